"""The search finds each page by its title."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import html
from playwright.sync_api import Browser, Page

from tests.browser.checks import opened
from tests.browser.conftest import sources

FIRST = 5
FOUND = ".md-search-result__list > .md-search-result__item > a"


@pytest.fixture(scope="module")
def search(browser: Browser) -> Iterator[Page]:
    with opened(browser, "index.html") as watched:
        watched.page.locator("input[name=query]").click()
        yield watched.page
        assert not watched.faults


def find(page: Page, words: str) -> list[str]:
    """The pages that the search gives, best first; it waits until there is one."""
    field = page.locator("input[name=query]")
    for text in ("", words):
        field.fill(text)
        field.press("End")  # the theme listens to keys
        if not text:
            page.wait_for_function("one => !document.querySelector(one)", arg=FOUND)
    page.wait_for_selector(FOUND, state="attached")
    found: list[str] = page.locator(FOUND).evaluate_all(
        "all => all.map(each => new URL(each.href).pathname.slice(1))"
    )
    return list(dict.fromkeys(found))  # a page may come by its sections, too


def titles(site: Path) -> dict[str, str]:
    """The title that each page of the search has in its head."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        if name in sources() and name != "404.html":
            title = html.parse(str(path), html.HTMLParser(encoding="utf-8")).findtext(".//title")
            pages[name] = title.removesuffix(" - The Attention Reference").strip()
    return pages


def test_each_page_is_found_by_its_title(search: Page, site: Path) -> None:
    wrong = []
    for name, title in titles(site).items():
        found = find(search, title)
        if name not in found[:FIRST]:
            wrong.append(f"{title!r} gives {found[:FIRST]}, not {name}")
    assert not wrong, "\n".join(wrong)
