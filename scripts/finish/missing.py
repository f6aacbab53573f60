"""The page that stands where there is none: what happened, and three ways on."""

from __future__ import annotations

from itertools import groupby
from urllib.parse import urlsplit

from lxml.html import HtmlElement
from lxml.html.builder import CLASS, FORM, H1, H2, H3, INPUT, LABEL, LI, UL, A, E, P

from scripts.finish.built import Built
from scripts.finish.titles import title_of
from scripts.project import Problem
from scripts.settings import read_settings
from scripts.tasks import anchor, sections, tasks

FILE = "404.html"
TITLE = "There is no page here"


def help_the_lost(built: Built) -> list[Problem]:
    """Fill the page for missing addresses; it is shown at any depth, so its links are absolute."""
    page = built.pages.get(FILE)
    if page is None:
        return [Problem(FILE, 1, "the generator wrote no page for missing addresses")]
    settings = read_settings(built.project)
    base = urlsplit(settings.url).path or "/"
    titles = {each.page: title_of(each) for each in built.pages.values() if each.page}
    field = {"type": "search", "name": "q", "id": "missing-search", "autocomplete": "off"}
    content = [
        H1(TITLE, id="__skip"),  # where the link for keyboards leads
        P("The address is mistyped, or the page has moved. The site is small: it will be below."),
        FORM(
            LABEL("Search the site", {"for": "missing-search"}),
            INPUT(field),
            E.button("Search", type="submit"),
            CLASS("missing-search"),
            {"action": f"{base}index.html"},
        ),
    ]
    if listing := tasks(built.project):
        entries = [(tag, f"{base}{name}.html#{anchor(tag)}") for tag, name in listing.items()]
        content += [H2("By task"), _links(entries)]
    content.append(H2("Every page"))
    places = sections(built.project)
    for place, names in groupby(sorted(titles, key=list(places).index), places.__getitem__):
        if place:
            content.append(H3(" · ".join(place)))
        content.append(_links([(titles[name], f"{base}{name}.html") for name in names]))
    article = page.content
    article.clear()
    article.set("class", "md-content__inner md-typeset")
    article.extend(content)
    page.root.find("head/title").text = f"{TITLE} - {settings.name}"
    return []


def _links(entries: list[tuple[str, str]]) -> HtmlElement:
    return UL(*[LI(A(text, href=link)) for text, link in entries])
