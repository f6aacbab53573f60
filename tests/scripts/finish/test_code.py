from __future__ import annotations

import shutil
from pathlib import Path

from lxml.html import parse

from scripts.finish.built import finish, read_site, write_site
from scripts.finish.code import offer_code
from scripts.module import Module, modules
from scripts.project import Project
from scripts.scan import scan
from scripts.source import definitions

SITE = Project()


def offered(built_small_site: Project, site: Path, project: Project = SITE) -> Path:
    """The pages of code of the whole project, in the small site."""
    shutil.copytree(built_small_site.site, site)
    shutil.rmtree(site / "code")
    built = read_site(site, project)
    assert offer_code(built) == []
    write_site(built)
    return site / "code"


def test_the_small_site_offers_its_modules(built_small_site: Project) -> None:
    folder = built_small_site.site / "code"
    source = built_small_site.root / "snippets" / "tiny.py"
    assert (folder / "tiny.py").read_bytes() == source.read_bytes()
    root = parse(str(folder / "tiny.html")).getroot()
    [code] = root.xpath("//pre[@id='the-code']")
    assert code.text_content() == source.read_text(encoding="utf-8")
    assert code.xpath(".//span[@id='double']")[0].text_content().startswith("def double(")
    assert root.xpath("//nav[@aria-label='Definitions']//a/@href") == ["#double"]
    assert root.xpath("//a[@download]/@href") == ["tiny.py"]
    assert root.xpath("//a[@class='code-skip']/@href") == ["#the-code"]
    assert code.xpath(".//span[@class='k']")


def test_a_page_that_runs_it_is_linked(built_small_site: Project) -> None:
    root = parse(str(built_small_site.site / "code" / "pages" / "core" / "tiny.html")).getroot()
    assert root.xpath("//dl//a/@href") == ["../../../core/tiny.html", "../../../code/tiny.html"]


def test_every_definition_of_every_module_can_be_linked(
    built_small_site: Project, tmp_path: Path
) -> None:
    folder = offered(built_small_site, tmp_path / "site")
    for module in modules(SITE):
        root = parse(str(folder / f"{module.name}.html")).getroot()
        [code] = root.xpath("//pre[@id='the-code']")
        assert code.text_content() == module.text
        ids = {mark.get("id") for mark in code.xpath(".//span[@id]")}
        assert ids == set(definitions(module.path))
        for file in [f"{module.name}.py", *module.beside()]:
            assert (folder / file).read_bytes() == (SITE.root / "snippets" / file).read_bytes()
    assert (folder / "pages" / "practice" / "versions.json").is_file()


def test_a_long_module_stays_light(built_small_site: Project, tmp_path: Path) -> None:
    folder = offered(built_small_site, tmp_path / "site")
    long = Module(SITE, "contract")
    page = (folder / "contract.html").read_bytes()
    assert len(page) < 1.25 * len(long.text.encode())


def test_what_the_pages_need_is_told_when_missing(
    built_small_site: Project, tmp_path: Path
) -> None:
    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    (site / "assets" / "stylesheets" / "code.css").unlink()
    [problem] = finish(site, built_small_site, [offer_code])
    assert str(problem) == ("assets/stylesheets/code.css:1: missing: the pages of code/ need it")
    built = read_site(site, built_small_site)
    for link in built.pages["index.html"].root.xpath("//link[@rel='stylesheet']"):
        link.getparent().remove(link)
    [problem] = offer_code(built)
    assert problem.message == "no stylesheet, which the pages of code/ would share"


def test_a_link_to_no_definition_is_found(built_small_site: Project, tmp_path: Path) -> None:
    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    page = site / "code" / "tiny.html"
    page.write_text(
        page.read_text(encoding="utf-8").replace('href="#double"', 'href="#triple"'),
        encoding="utf-8",
    )
    assert [p.message for p in scan(site)] == ["a broken anchor: '#triple'"]
