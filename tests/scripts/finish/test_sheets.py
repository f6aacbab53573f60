from __future__ import annotations

import re
from hashlib import sha256

import pytest

from scripts.finish.built import Built, read_site
from scripts.finish.sheets import join_sheets
from scripts.project import Project

FOLDER = "assets/stylesheets/"


def site(project: Project, pages: dict[str, list[str]]) -> Built:
    """Pages that link these sheets, each of which names itself."""
    for file, sheets in pages.items():
        page = project.site / file
        page.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * file.count("/")
        links = "".join(f'<link rel="stylesheet" href="{up}{sheet}">' for sheet in sheets)
        page.write_text(f"<html><head>{links}</head><body></body></html>", encoding="utf-8")
        for sheet in sheets:
            target = project.site / sheet
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"/* {sheet} */", encoding="utf-8")
    return read_site(project.site, project)


def links(built: Built) -> dict[str, list[str]]:
    return {file: page.root.xpath("//link/@href") for file, page in built.pages.items()}


def test_what_all_pages_link_becomes_one_file(project: Project) -> None:
    a, b, c = (f"{FOLDER}{name}.css" for name in "abc")
    inner, other = f"{FOLDER}inner/d.css", "assets/katex/e.css"
    built = site(project, {"index.html": [inner, a, b, other], "x/y.html": [inner, a, b, c]})
    assert join_sheets(built) == []
    text = f"/* {a} */\n/* {b} */"
    joined = f"{FOLDER}site.{sha256(text.encode()).hexdigest()[:8]}.css"
    assert (project.site / joined).read_text(encoding="utf-8") == text
    assert links(built) == {
        "index.html": [inner, joined, other],
        "x/y.html": [f"../{inner}", f"../{joined}", f"../{c}"],
    }
    left = {path.name for path in (project.site / FOLDER).glob("*.css")}
    assert left == {joined.removeprefix(FOLDER), "c.css"}


@pytest.mark.parametrize("sheets", [["a.css"], []])
def test_one_sheet_stays_as_it_is(project: Project, sheets: list[str]) -> None:
    built = site(project, {"index.html": [FOLDER + each for each in sheets]})
    before = links(built)
    assert join_sheets(built) == []
    assert links(built) == before


def test_sheets_in_another_order_are_told(project: Project) -> None:
    pages = {"index.html": ["a", "b"], "x.html": ["b", "a"], "y.html": ["a", "c", "b"]}
    built = site(
        project,
        {file: [f"{FOLDER}{name}.css" for name in names] for file, names in pages.items()},
    )
    expected = "its style sheets are to be a.css, b.css, in this order, side by side"
    assert [str(problem) for problem in join_sheets(built)] == [
        f"x.html:1: {expected}",
        f"y.html:1: {expected}",
    ]
    assert {path.name for path in (project.site / FOLDER).iterdir()} == {"a.css", "b.css", "c.css"}


def test_the_real_pages_link_one(built_small_site: Project) -> None:
    text = (built_small_site.site / "core" / "tiny.html").read_text(encoding="utf-8")
    [name] = re.findall(r'href="\.\./assets/stylesheets/([^"]*)"', text)
    assert re.fullmatch(r"site\.[0-9a-f]{8}\.css", name)
