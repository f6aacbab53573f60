"""Titles: one a page, and text alone, because tabs, lists and search results show no formula."""

from __future__ import annotations

from lxml.html import HtmlElement

from scripts.finish.built import Built, Html
from scripts.project import Problem

_FORMULA = ".//sub | .//sup | .//*[contains(@class, 'arithmatex')]"


def title_of(page: Html) -> str:
    """The page's title as text; of a page without one, its file."""
    return next(map(heading_text, page.root.xpath("//h1")), page.file)


def heading_text(heading: HtmlElement) -> str:
    """What a heading says, without the sign that links to it."""
    pieces = heading.xpath(".//text()[not(ancestor::a[contains(@class, 'headerlink')])]")
    return " ".join("".join(pieces).split())


def check_titles(built: Built) -> list[Problem]:
    """Find pages whose title would be lost or spoilt where it is shown as text."""
    problems = []
    for page in built.pages.values():
        if page.page is None:
            continue
        file = built.project.relative(built.project.source(page.page))
        titles = page.content.xpath(".//h1")
        if len(titles) != 1:
            message = f"{len(titles)} titles: expected one, a line that starts with #"
            problems.append(Problem(file, 1, message))
            continue
        for heading in page.content.xpath(".//h1 | .//h2 | .//h3"):
            if heading.xpath(_FORMULA):
                message = f"the heading {heading_text(heading)!r} has a formula: write text (√dₖ)"
                problems.append(Problem(file, 1, message))
        shown = page.root.findtext("head/title") or ""
        if page.page != "index" and title_of(page) not in shown:
            message = f"the browser's tab shows {shown!r}: expected the title {title_of(page)!r}"
            problems.append(Problem(file, 1, message))
    return problems
