from __future__ import annotations

import re

import pytest
from lxml.html import HtmlElement, document_fromstring

from scripts.finish import verified
from scripts.finish.built import Built, Html, read_site
from scripts.page import KINDS
from scripts.project import Project
from tests.conftest import commit


def section(project: Project, page: str) -> HtmlElement:
    content = read_site(project.site, project).pages[page].content
    [found] = content.xpath(".//section[@class='verified']")
    assert found.getnext() is None  # it ends the page
    return found


def made(project: Project, markdown: str, html: str) -> str:
    project.markdown("page").write_text(markdown)
    root = document_fromstring(f"<article class='md-content__inner'>{html}</article>")
    pages = {"page.html": Html("page.html", root, "page")}
    assert verified.tell_verified(Built(project.root, project, pages)) == []
    return str(root.text_content())


def test_a_page_counts_what_was_verified_on_it(built_small_site: Project) -> None:
    tiny = section(built_small_site, "core/tiny.html")
    text = tiny.text_content()
    assert (
        "On this page, 3 code blocks are the code that was run; 1 output, 1 table, 1 figure and "
        "1 number in the text are what runs gave."
    ) in text
    assert tiny.find("div/pre/code").text == "python scripts/build.py --check docs/core/tiny.md\n"
    many = section(built_small_site, "core/many-numbers.html").text_content()
    assert (
        "2 code blocks are the code that was run; 1 output, 1 table and 10 numbers in the text "
        "are what runs gave. Not measured: 1 number cited, 1 number derived and 1 number given."
    ) in many
    home = section(built_small_site, "index.html").text_content()
    assert "On this page, 1 number in the text is what runs gave." in home


def test_a_list_of_numbers_is_checked_as_a_whole(built_small_site: Project) -> None:
    numbers = section(built_small_site, "numbers.html")
    assert "On this page, 3 lists of numbers are what runs gave." in numbers.text_content()
    assert numbers.find("div/pre/code").text == "python scripts/build.py --check\n"


def test_every_kind_of_block_is_counted(project: Project) -> None:
    for kind in KINDS:
        text = made(project, f"# Page\n\n<!-- {kind}: name -->\n\ntext\n", "")
        assert re.search(r"On this page, 1 [a-z ]+ is ", text), kind


def test_a_page_without_anything_measured_says_so(project: Project) -> None:
    text = made(project, "# Words\n", "<h1>Words</h1>")
    assert "Nothing on this page is measured" in text
    assert "--check" not in text
    cited = made(project, "# Words\n", "<data value='cited: a'>5.0</data>")
    assert "Nothing on this page is measured" in cited


def test_the_versions_are_the_installed_ones(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"torch": "9.1.0+cpu", "numpy": "8.2", "matplotlib": "7.3"}
    monkeypatch.setattr("scripts.finish.numbers.version", versions.get)
    monkeypatch.setattr("platform.python_version", lambda: "3.99.1")
    text = made(project, "<!-- output: a -->\n", "<p>x</p>")
    assert "with Python 3.99.1, torch 9.1.0, numpy 8.2 and matplotlib 7.3. Before" in text


def test_the_date_is_the_last_commits_or_left_out(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "last commit" not in made(project, "<!-- output: a -->\n", "<p>x</p>")
    commit(project, "2001-02-03T23:30:00-05:00", monkeypatch)
    text = made(project, "<!-- output: a -->\n", "<p>x</p>")
    assert "The last commit is of 4 February 2001." in text
