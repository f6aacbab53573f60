"""Joins the style sheets of all pages to one, since a page waits for each before it is drawn."""

from __future__ import annotations

from hashlib import sha256

from lxml.html import HtmlElement

from scripts.finish.built import Built
from scripts.project import Problem

_FOLDER = "assets/stylesheets/"
_LINKS = f"//head/link[@rel='stylesheet'][not(@media)][contains(@href, '{_FOLDER}')]"


def join_sheets(built: Built) -> list[Problem]:
    """Have every page link one file in place of those that every page links."""
    linked = {page.file: list(map(_name, page.root.xpath(_LINKS))) for page in built.pages.values()}
    # A sheet in a folder below names other files from there, and stays by itself.
    names = [
        name
        for name in next(iter(linked.values()), [])
        if "/" not in name and all(name in others for others in linked.values())
    ]
    if len(names) < 2:
        return []
    problems = [
        Problem(
            file, 1, f"its style sheets are to be {', '.join(names)}, in this order, side by side"
        )
        for file, others in linked.items()
        if others[others.index(names[0]) :][: len(names)] != names
    ]
    if problems:
        return problems
    text = "\n".join((built.folder / _FOLDER / name).read_text("utf-8") for name in names)
    joined = f"site.{sha256(text.encode()).hexdigest()[:8]}.css"
    (built.folder / _FOLDER / joined).write_text(text, encoding="utf-8", newline="\n")
    for page in built.pages.values():
        first, *others = (link for link in page.root.xpath(_LINKS) if _name(link) in names)
        first.set("href", first.get("href").replace(names[0], joined))
        for link in others:
            link.drop_tree()
    for name in names:
        (built.folder / _FOLDER / name).unlink()
        (built.folder / _FOLDER / f"{name}.map").unlink(missing_ok=True)
    return []


def _name(link: HtmlElement) -> str:
    return str(link.get("href")).partition(_FOLDER)[2]
