"""Two generators, one site: whatever MkDocs shows of the sources, Zensical shows, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.finish.built import Built, Html, read_site
from scripts.project import HOME, Project
from scripts.site import build_site
from scripts.zensical import build_with_zensical
from tests.spoil import alter

Piece = tuple[str, ...]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    """The whole site by MkDocs and by Zensical."""
    folder = tmp_path_factory.mktemp("generators")
    built = []
    for name, build in (("mkdocs", build_site), ("zensical", build_with_zensical)):
        assert build(Project(HOME), folder / name) == []
        built.append(read_site(folder / name, Project(HOME)))
    return built[0], built[1]


def text(element: Any) -> str:
    return " ".join(element.text_content().split())


def headings(page: Html) -> Iterator[Piece]:
    for heading in page.content.xpath(".//h1|.//h2|.//h3|.//h4|.//h5|.//h6"):
        yield heading.tag, heading.get("id", ""), text(heading)


def code_blocks(page: Html) -> Iterator[Piece]:
    for block in page.content.iter("pre"):
        yield (block.text_content(),)


def figures(page: Html) -> Iterator[Piece]:
    for image in page.content.iter("img"):
        yield image.get("src"), image.get("alt")


def numbers(page: Html) -> Iterator[Piece]:
    for number in page.content.iter("data"):
        yield number.get("value"), text(number)


def tables(page: Html) -> Iterator[Piece]:
    for table in page.content.iter("table"):
        yield tuple(text(cell) for cell in table.iter("th", "td"))


def formulas(page: Html) -> Iterator[Piece]:
    for formula in page.content.iter("annotation"):
        yield (text(formula),)


def links(page: Html) -> Iterator[Piece]:
    for link in page.content.xpath(".//a[@href]"):
        yield link.get("href"), text(link)


KINDS: list[Callable[[Html], Iterator[Piece]]] = [
    headings,
    code_blocks,
    figures,
    numbers,
    tables,
    formulas,
    links,
]


def test_both_have_the_same_pages(sites: tuple[Built, Built]) -> None:
    mkdocs, zensical = sites
    assert set(mkdocs.pages) == set(zensical.pages)
    pages = {page.page for page in mkdocs.pages.values() if page.page}
    assert pages == set(Project(HOME).names())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_both_have_the_same(
    sites: tuple[Built, Built], kind: Callable[[Html], Iterator[Piece]]
) -> None:
    mkdocs, zensical = sites
    count = 0
    for file, page in mkdocs.pages.items():
        if page.page:
            pieces = list(kind(page))
            count += len(pieces)
            assert list(kind(zensical.pages[file])) == pieces, file
    assert count > len(Project(HOME).pages())


def test_what_zensical_cannot_build_is_told(small_site: Project, tmp_path: Path) -> None:
    alter(small_site, "mkdocs.yml", "site_name: ", "site_name: [")
    [problem] = build_with_zensical(small_site, tmp_path / "site")
    assert problem.file == "mkdocs.yml"
    assert problem.message.startswith("zensical failed: ")
    assert not (tmp_path / "site").exists()
