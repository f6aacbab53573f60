"""What stands under a page's title: its length, its tasks, what to read first, who uses it.

The lists of pages are computed from the heads of the pages and from the links between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from posixpath import dirname, join, normpath

from lxml.html import HtmlElement
from lxml.html.builder import CLASS, DD, DETAILS, DIV, DL, DT, LI, NAV, SUMMARY, UL, A

from scripts.finish.built import Built, Html
from scripts.finish.titles import heading_text, title_of
from scripts.matter import Matter
from scripts.project import Problem
from scripts.tasks import anchor, heads, sections, tasks

WORDS, LINES = 200, 20  # read in a minute: words of prose, lines of code
_FEW = 3  # so many pages are listed at once; more are folded
# Tables are looked at, folded code is there for who wants it.
_UNREAD = "ancestor::table or ancestor::pre or ancestor::details or ancestor::script"


def tell_about(built: Built) -> list[Problem]:
    """Tell about every page but the home page."""
    known = heads(built.project)
    listing = tasks(built.project)
    places = sections(built.project)
    pages = {page.page: page for page in built.pages.values() if page.page in known}
    titles = {name: title_of(page) for name, page in pages.items()}
    links = {name: _linked(page) & set(pages) - {name} for name, page in pages.items()}
    problems = []
    for name in known:
        if name not in pages:
            file = built.project.relative(built.project.source(name))
            problems.append(Problem(file, 1, "the generator wrote no page of it"))
    for page in built.pages.values():
        for path in page.root.find_class("md-path"):  # the theme names it as it names the menu
            path.set("aria-label", "Breadcrumbs")
    for name, page in pages.items():
        if name == "index":
            continue
        if places[name] and not page.root.find_class("md-path"):
            file = built.project.relative(built.project.source(name))
            problems.append(Problem(file, 1, "the generator wrote no breadcrumbs"))
        for shown in page.content.find_class("md-tags"):  # Zensical's own, without links
            shown.drop_tree()

        def links_to(names: Iterable[str], page: Html = page) -> list[HtmlElement]:
            return [A(titles[each], href=page.to(f"{each}.html")) for each in names]

        tags = [
            A(tag, href=page.to(f"{listing[tag]}.html#{anchor(tag)}"))
            for tag in known[name].tags
            if listing.get(tag, name) != name
        ]
        needs = [needed for needed in known[name].needs if needed in titles]
        rows = [
            ("Takes", [f"{minutes(page.content)} min"]),
            ("To", tags),
            ("Read first", links_to(needs)),
            (
                "Used by",
                _folded(links_to(each for each in _users(name, links, known) if each in titles)),
            ),
        ]
        about = DIV(
            CLASS("about"), DL(*[DIV(DT(key), DD(*_apart(row))) for key, row in rows if row])
        )
        if (contents := _contents(page.content)) is not None:
            about.append(contents)
        for title in page.content.xpath(".//h1"):
            title.addnext(about)
    return problems


def minutes(content: HtmlElement) -> int:
    """How long the text and the code that lies open take to read."""
    text = "".join(content.xpath(f".//text()[not({_UNREAD} or ancestor::*[@class='katex'])]"))
    formulas = content.xpath(f".//*[@class='katex'][not({_UNREAD})]")
    code = content.xpath(".//pre[not(ancestor::details)]")
    lines = sum(bool(line.strip()) for pre in code for line in pre.text_content().split("\n"))
    return math.ceil((len(text.split()) + len(formulas)) / WORDS + lines / LINES)


def _linked(page: Html) -> set[str]:
    """The names of the pages that the page's own text links to."""
    paths = (link.partition("#")[0] for link in page.content.xpath(".//a/@href"))
    return {
        normpath(join(dirname(page.file), path)).removesuffix(".html")
        for path in paths
        if path.endswith(".html") and "://" not in path
    }


def _users(name: str, links: dict[str, set[str]], known: Mapping[str, Matter]) -> list[str]:
    """The pages that need this one or link to it; a page that links to most is a mere list."""
    most = len(links) / 2
    return [
        other
        for other, matter in known.items()
        if name in matter.needs or (name in links.get(other, ()) and len(links[other]) <= most)
    ]


def _apart(items: list[HtmlElement | str]) -> Iterable[HtmlElement | str]:
    for number, item in enumerate(items):
        yield from ((", ", item) if number else (item,))


def _folded(items: list[HtmlElement]) -> list[HtmlElement]:
    if len(items) <= _FEW:
        return items
    return [DETAILS(SUMMARY(f"{len(items)} pages"), UL(*map(LI, items)))]


def _contents(content: HtmlElement) -> HtmlElement | None:
    """The parts of the page, for screens on which the theme's own list is out of sight."""
    parts = content.xpath(".//h2[@id]")
    if not parts:
        return None
    entries = [LI(A(heading_text(part), href=f"#{part.get('id')}")) for part in parts]
    listed = NAV(UL(*entries), {"aria-label": "On this page"})
    return DETAILS(CLASS("about-contents"), SUMMARY("On this page"), listed)
