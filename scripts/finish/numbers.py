"""Says at a page's end where each of its bound numbers is from; the number links there.

Nothing of it needs JavaScript: ``assets/javascripts/numbers.js`` only shows the same text beside
the number.
"""

from __future__ import annotations

import json
import platform
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from lxml.html import HtmlElement, builder

from scripts.finish.blocks import block_id
from scripts.finish.built import Built, Html
from scripts.project import Problem
from scripts.prose import DATA_OPEN

_LIST = re.compile(r"^<!-- numbers: ", re.MULTILINE)
_HEADING = "where-the-numbers-are-from"

Entry = dict[str, Any]  # of the JSON file that scripts/listing.py writes


@dataclass(frozen=True)
class _Lists:
    """The page that lists all numbers, and the numbers in the prose of each page."""

    page: str
    entries: dict[str, list[Entry]]


def explain_numbers(built: Built) -> list[Problem]:
    """Link every number to its origin; the HTML must hold the numbers that are listed."""
    lists = _read_lists(built)
    problems = []
    for page in built.pages.values():
        if page.page is None:
            continue
        data = list(page.content.iter("data"))
        entries = lists.entries.get(page.page, [])
        problem = _mismatch(built, page.page, [each.text_content() for each in data], entries)
        if problem:
            problems.append(problem)
        elif data:
            _explain(built, lists, page, list(zip(data, entries, strict=True)))
    return problems


def _read_lists(built: Built) -> _Lists:
    entries: dict[str, list[Entry]] = {}
    found = ""
    for name in built.project.pages():
        path = built.project.markdown(name)
        listed = path.with_suffix(".json")
        if _LIST.search(path.read_text(encoding="utf-8")) and listed.is_file():
            found = name
            for entry in json.loads(listed.read_text(encoding="utf-8")):
                if entry["place"] == "prose":
                    entries.setdefault(entry["page"], []).append(entry)
    return _Lists(found, entries)


def _mismatch(built: Built, name: str, shown: list[str], entries: list[Entry]) -> Problem | None:
    listed = [entry["printed"] for entry in entries]
    if shown == listed:
        return None
    source = built.project.source(name)
    text = source.read_text(encoding="utf-8")
    starts = [match.start() for match in DATA_OPEN.finditer(text)]
    pairs = zip([*shown, "nothing"], [*listed, "nothing"], strict=False)
    at, (a, b) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
    line = text.count("\n", 0, starts[at]) + 1 if at < len(starts) else 1
    message = (
        f"number {at + 1} of the page is {a} in its HTML and {b} in the list of all numbers: "
        "run scripts/build.py without naming a page"
    )
    return Problem(built.project.relative(source), line, message)


def _explain(
    built: Built, lists: _Lists, page: Html, numbers: list[tuple[HtmlElement, Entry]]
) -> None:
    groups: dict[tuple[str, str], list[tuple[int, Entry]]] = {}
    for number, (data, entry) in enumerate(numbers, 1):
        group = entry["kind"], entry["source"]
        groups.setdefault(group, []).append((number, entry))
        _link(data, number, f"#{_origin_id(groups, group)}")
    entries = [
        builder.LI(
            builder.P(*_origin(built, lists, page, *group)),
            builder.P(*_printed(listed), {"class": "printed"}),
            {"id": _origin_id(groups, group), "class": group[0]},
        )
        for group, listed in groups.items()
    ]
    page.content.append(
        builder.SECTION(
            builder.H2("Where the numbers are from", id=_HEADING),
            builder.UL(*entries),
            *([_run(built, page)] if any(kind == "measured" for kind, _ in groups) else []),
            {"class": "origins", "aria-labelledby": _HEADING},
        )
    )


def _link(data: HtmlElement, number: int, target: str) -> None:
    """Make the number itself the link; its text stays as it is."""
    if next(data.iterancestors("summary"), None) is not None:  # which is a control itself
        data.set("id", f"number-{number}")
        return
    link = builder.A(
        {
            "class": "number",
            "id": f"number-{number}",
            "href": target,
            "aria-describedby": _HEADING,
        }
    )
    link.text, data.text = data.text, None
    link.extend(list(data))
    data.append(link)


def _origin_id(groups: dict[tuple[str, str], Any], group: tuple[str, str]) -> str:
    return f"origin-{list(groups).index(group) + 1}"


def _origin(
    built: Built, lists: _Lists, page: Html, kind: str, source: str
) -> list[str | HtmlElement]:
    """Say what measured a number, or what the page states of it."""
    if kind == "measured":
        file, _, function = source.partition(":")
        target = _block(built, file, function)
        if target is None:
            target = f"{lists.page}.html", block_id("numbers", page.page or "")
        name = builder.CODE(function)
        return ["Measured by ", _to(page, *target, name), " in ", *_file(built, page, file), "."]
    if kind == "cited":
        cited = page.content.get_element_by_id(source, None)
        title = None if cited is None else cited.find(".//em")
        text = source if title is None else title.text_content()
        return ["Cited, not measured here: ", builder.A(text, href=f"#{source}"), "."]
    if kind == "counted":
        return [f"Counted by {source}."]
    return [f"{kind.capitalize()}, not measured: {source}."]


def _block(built: Built, file: str, function: str) -> tuple[str, str] | None:
    """The place that shows the function: a block of its page, or else its module's own page."""
    kind, _, name = function.partition("_")
    module = file.removeprefix("snippets/").removesuffix(".py")
    ids = [block_id("source", f"{module.replace('/', '.')}.{function}")]
    if kind == "example":
        ids.append(block_id(kind, name))
    pages = [
        f"{page}.html"
        for page in built.project.pages()
        if built.project.relative(built.project.module(page)) == file
    ]
    places = [(page, each) for page in pages for each in ids]
    places.append((f"code/{module}.html", function))
    return next((place for place in places if _holds(built, *place)), None)


def _holds(built: Built, file: str, anchor: str) -> bool:
    page = built.pages.get(file)
    return page is not None and page.root.get_element_by_id(anchor, None) is not None


def _file(built: Built, page: Html, file: str) -> list[str | HtmlElement]:
    view = f"code/{file.removeprefix('snippets/').removesuffix('.py')}.html"
    name = builder.CODE(file)
    return [_to(page, view, "", name) if view in built.pages else name]


def _to(page: Html, file: str, anchor: str, content: HtmlElement) -> HtmlElement:
    fragment = f"#{anchor}" if anchor else ""
    href = fragment if file == page.file and anchor else page.to(file) + fragment
    return builder.A(content, href=href)


def _printed(listed: list[tuple[int, Entry]]) -> list[str | HtmlElement]:
    parts: list[str | HtmlElement] = ["Printed: "]
    for number, entry in listed:
        link = builder.A(entry["printed"], href=f"#number-{number}")
        parts += [builder.SPAN(link, _rule(entry)), ", "]
    return [*parts[:-1], "."]


def _rule(entry: Entry) -> str:
    if entry["kind"] != "measured":
        return ""
    if entry["last_place"] is None:
        return " as the run gave it"
    percent = entry["printed"].endswith("%")
    if entry["last_place"] == 1:
        return " rounded to a whole number"
    unit = f"{entry['last_place'] * 100:g} %" if percent else f"{entry['last_place']:,g}"
    return f" rounded to {unit}"


def _run(built: Built, page: Html) -> HtmlElement:
    """What holds for every measured number of the page."""
    packages = " and ".join(f"{name} {plain_version(name)}" for name in ("torch", "numpy"))
    how: list[str | HtmlElement] = [
        f"Run on a CPU, with Python {platform.python_version()}, {packages}. A measured number is "
        "the value that the run gave, correctly rounded to the last place printed; the tests "
        "repeat it with one thread and with two."
    ]
    if "reference/verification.html" in built.pages:
        rules = builder.A("The rules", href=page.to("reference/verification.html"))
        how += [" ", rules, "."]
    return builder.P(*how, {"class": "run"})


def plain_version(package: str) -> str:
    """The installed version, without the name of a build for some device."""
    return version(package).partition("+")[0]
