from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from lxml.html import HtmlElement, parse

from scripts.finish.labs import as_markdown, lay_out_labs
from scripts.project import HOME, Project
from scripts.site import build_site
from tests.conftest import copy_small_site
from tests.spoil import said

REPOSITORY = "https://github.com/owner/name"
HOSTS = ("cdnjs", "mathjax", "requirejs", "jupyter", "jp-", "unpkg")


def set_addresses(patch: pytest.MonkeyPatch) -> None:
    patch.delenv("SITE_URL", raising=False)
    patch.setenv("REPO_URL", REPOSITORY)
    patch.setenv("EDIT_URI", "edit/main/docs/")


@pytest.fixture(scope="session")
def lab_site(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny site with a tiny lab, built; shared, so only to be read."""
    project = copy_small_site(tmp_path_factory.mktemp("labs") / "project")
    project.labs.mkdir()
    shutil.copy(HOME / "tests" / "small_lab" / "rise.py", project.labs)
    with project.markdown("numbers").open("a", encoding="utf-8") as numbers:
        numbers.write("\n## A lab\n\n<!-- numbers: labs/rise -->\n")
    with pytest.MonkeyPatch.context() as patch:
        set_addresses(patch)
        assert said(project)[0] == 0
    return project


@pytest.fixture(scope="session")
def article(lab_site: Project) -> HtmlElement:
    root = parse(str(lab_site.site / "labs" / "rise.html")).getroot()
    [found] = root.find_class("md-content__inner")
    return found


def test_nothing_of_mkdocs_jupyter_reaches_the_page(lab_site: Project) -> None:
    path = lab_site.site / "labs" / "rise.html"
    text = path.read_text(encoding="utf-8")
    assert not [host for host in HOSTS if host in text.lower()]
    assert "<style" not in text
    other = (lab_site.site / "core" / "tiny.html").stat().st_size
    assert path.stat().st_size < 2 * other


def test_a_lab_looks_as_pages_do(article: HtmlElement) -> None:
    assert len(article.xpath("h1[@id='a-line-that-rises']/a[@class='headerlink']")) == 1
    assert len(article.xpath(".//div[@class='language-python highlight']//code")) == 3
    outputs = article.xpath(".//div[@class='language-text highlight']//code")
    assert [code.text_content() for code in outputs] == ["1.50 < 3\n"]
    assert len(article.xpath(".//span[@class='arithmatex']/span[@class='katex']")) == 1
    assert [data.text_content() for data in article.xpath(".//data[@value='half.three']")] == [
        "1.50"
    ]
    assert article.xpath(".//a[starts-with(., 'doubling')]/@href") == ["../core/tiny.html"]
    assert len(article.xpath(".//table/tbody/tr")) == 4


def test_a_lab_leads_to_its_script(article: HtmlElement) -> None:
    links = article.xpath("a[@rel='edit']/@href")
    assert links == [f"{REPOSITORY}/edit/main/snippets/labs/rise.py"]


def test_a_picture_stands_in_both_themes_before_its_code(article: HtmlElement) -> None:
    images = article.xpath(".//img")
    assert [image.get("src").rpartition("/")[2] for image in images] == [
        "line-light.svg#only-light",
        "line-dark.svg#only-dark",
    ]
    for image in images:
        assert image.get("alt") == 'A straight "line" that rises from zero.'
        assert (image.get("width"), image.get("height")) == ("499", "288")
    [fold] = article.xpath(".//details[contains(summary, 'code')]")
    assert "plt.plot(x, y)" in fold.text_content()
    assert list(article).index(images[0].getparent()) < list(article).index(fold)


def test_the_notebook_can_be_downloaded(lab_site: Project, article: HtmlElement) -> None:
    [link] = article.xpath(".//a[@download='rise.ipynb']")
    given = lab_site.site / "labs" / link.get("href")
    assert given.read_bytes() == lab_site.notebook("labs/rise").read_bytes()


def test_contents_and_search_lead_to_the_headings(lab_site: Project, article: HtmlElement) -> None:
    root = article.getroottree().getroot()
    links = root.xpath("//ul[@data-md-component='toc']//a")
    assert {(link.get("href"), link.text_content()) for link in links} == {
        ("#the-picture", "The picture")
    }
    index = json.loads((lab_site.site / "search" / "search_index.json").read_text("utf-8"))
    found = [each for each in index["docs"] if each["location"].startswith("labs/rise.html")]
    assert [(each["location"], each["title"]) for each in found] == [
        ("labs/rise.html", "A line that rises"),
        ("labs/rise.html#the-picture", "The picture"),
    ]
    assert "Half of three is 1.50" in found[0]["text"]
    assert "import torch" in found[0]["text"]
    assert "plt.plot" not in found[1]["text"]  # nobody looks for how a picture was drawn


def test_two_builds_are_the_same(
    lab_site: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_addresses(monkeypatch)
    assert build_site(lab_site, tmp_path / "again") == []
    for path in (lab_site.site / "labs").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / "labs" / path.name).read_bytes()


def test_as_markdown_it_is_a_page(lab_site: Project) -> None:
    text = as_markdown(lab_site, "labs/rise")
    assert text.startswith("# A line that rises\n\nHalf of three")
    assert "```python\nimport matplotlib.pyplot as plt\n" in text
    assert "~~~text\n1.50 < 3\n~~~\n" in text
    assert "(../assets/figures/labs/rise/line-dark.svg#only-dark)" in text


def no_page(site: Path) -> None:
    (site / "labs" / "rise.html").unlink()


def laid_out(site: Path) -> None:
    """It already is."""
    assert (site / "labs" / "rise.html").is_file()


def no_contents(site: Path) -> None:
    path = site / "labs" / "rise.html"
    text = path.read_text(encoding="utf-8").replace('data-md-component="toc"', "")
    path.write_text(text.replace("<h1", '<i class="jupyter-wrapper"></i><h1'), encoding="utf-8")


def unknown(site: Path) -> None:
    path = site / "labs" / "rise.html"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("<h1", '<i class="jupyter-wrapper"></i><h1'), encoding="utf-8")
    (site / "search" / "search_index.json").write_text('{"docs": []}', encoding="utf-8")


def no_index(site: Path) -> None:
    unknown(site)
    (site / "search" / "search_index.json").unlink()


FAULTS: dict[Callable[[Path], None], str] = {
    no_page: "the generator made no labs/rise.html of it",
    laid_out: "the page holds no notebook of mkdocs-jupyter's to replace",
    no_contents: "the page has no table of contents to replace",
    unknown: "search/search_index.json knows nothing of labs/rise.html",
    no_index: "the site has no search/search_index.json to put the lab into",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_missing_is_named(
    lab_site: Project, tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    site = shutil.copytree(lab_site.site, tmp_path / "site")
    fault(site)
    assert [str(problem) for problem in lay_out_labs(site, lab_site)] == [
        f"docs/labs/rise.ipynb:1: {FAULTS[fault]}"
    ]


def test_a_formula_that_cannot_be_read_is_named_by_the_script(
    lab_site: Project, tmp_path: Path
) -> None:
    project = Project(shutil.copytree(lab_site.root, tmp_path / "project"))
    for path in (project.module("labs/rise"), project.notebook("labs/rise")):
        text = path.read_text(encoding="utf-8")
        wrong = r"$\\nope{2}$" if path.suffix == ".ipynb" else r"$\nope{2}$"
        path.write_text(text.replace("$y = x / 2$", wrong), encoding="utf-8")
    [problem] = build_site(project)
    assert str(problem).startswith("snippets/labs/rise.py:11: KaTeX cannot read the formula")
