from __future__ import annotations

import re
import shutil
from pathlib import Path

import nbformat
import pytest

from scripts.finish.built import Built, read_site
from scripts.finish.llms import list_everything
from scripts.finish.take import offer_pages
from scripts.plain import read_plain
from scripts.project import HOME, Project


def test_a_page_is_offered_in_both_forms(built_small_site: Project) -> None:
    [page] = [
        page
        for page in read_site(built_small_site.site, built_small_site).pages.values()
        if page.page == "core/tiny"
    ]
    [block] = page.content.find_class("take")
    assert block.get("aria-label")
    assert [(a.text_content(), a.get("href")) for a in block.iter("a")] == [
        ("Markdown", "tiny.md"),
        ("Notebook", "tiny.ipynb"),
        ("Code that it runs", "../code/pages/core/tiny.html"),
    ]
    folder = built_small_site.site / "core"
    plain = read_plain(built_small_site, "core/tiny").markdown()
    assert (folder / "tiny.md").read_text(encoding="utf-8") == plain
    nbformat.validate(nbformat.read(folder / "tiny.ipynb", as_version=4))


def test_a_notebook_page_is_its_own_notebook_and_has_markdown(
    built_small_site: Project, tmp_path: Path
) -> None:
    project = Project(shutil.copytree(built_small_site.root, tmp_path / "project"))
    lab = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A lab\n\nText.")])
    (project.docs / "labs").mkdir()
    project.labs.mkdir()
    head = "# ---\n# description: What a lab is.\n# ---\n\n# %% [markdown]\n"
    (project.labs / "one.py").write_text(f"{head}# # A lab\n#\n# Text.\n", encoding="utf-8")
    nbformat.write(lab, project.docs / "labs" / "one.ipynb")
    (project.site / "labs").mkdir()
    shutil.copy(project.site / "core" / "tiny.html", project.site / "labs" / "one.html")
    built = read_site(project.site, project)
    assert offer_pages(built) == []
    given = (project.docs / "labs" / "one.ipynb").read_bytes()
    assert (project.site / "labs" / "one.ipynb").read_bytes() == given
    assert (project.site / "labs" / "one.md").read_text(encoding="utf-8") == "# A lab\n\nText.\n"
    assert built.pages["labs/one.html"].content.xpath(".//a[@href='one.ipynb']")
    with (project.root / "mkdocs.yml").open("a", encoding="utf-8") as settings:
        settings.write("nav:\n  - index.md\n  - Labs:\n      - labs/one.ipynb\n")
    assert list_everything(built) == []
    text = (project.site / "llms.txt").read_text(encoding="utf-8")
    assert (
        "\n## Labs\n\n- [A lab](labs/one.md): What a lab is. ([notebook](labs/one.ipynb))\n" in text
    )


def test_a_page_without_a_place_for_the_offer_is_told(
    built_small_site: Project, tmp_path: Path
) -> None:
    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    built = read_site(site, built_small_site)
    built.pages["core/tiny.html"].content.attrib.pop("class")
    assert [str(problem) for problem in offer_pages(built)] == [
        "core/tiny.html:1: no .md-content__inner to offer the page in"
    ]


@pytest.mark.parametrize("url", ["", "https://example.org/at"])
def test_the_list_names_every_page_and_module(
    built_small_site: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("SITE_URL", url)
    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    page = built_small_site.markdown("core/tiny")
    text = page.read_text(encoding="utf-8")
    try:
        page.write_text(f"---\ndescription: It doubles.\n---\n\n{text}", encoding="utf-8")
        assert list_everything(read_site(site, built_small_site)) == []
    finally:
        page.write_text(text, encoding="utf-8")
    base = f"{url}/" if url else ""
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# The Attention Reference\n\n> Attention in PyTorch")
    doubling = (
        f"- [Doubling]({base}core/tiny.md): It doubles. ([notebook]({base}core/tiny.ipynb))\n"
    )
    assert doubling in listed
    assert f"\n## Code\n\n- [pages/core/many_numbers.py]({base}code/pages/" in listed
    assert f"- [tiny.py]({base}code/tiny.py): Doubling.\n" in listed


def test_the_sites_own_list_describes_everything(tmp_path: Path) -> None:
    assert list_everything(Built(tmp_path, Project(HOME), {})) == []
    lines = (tmp_path / "llms.txt").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > len(Project(HOME).names())
    told = re.compile(r"- \[[^]]+\]\(\S+\): \w.{15,}")
    assert [entry for entry in entries if not told.match(entry)] == []


def test_what_has_no_description_is_listed_without_a_colon(
    built_small_site: Project, tmp_path: Path
) -> None:
    assert list_everything(Built(tmp_path, built_small_site, {})) == []
    listed = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    assert "\n- [Doubling](core/tiny.md) ([notebook](core/tiny.ipynb))\n" in listed
