"""Ends every page with what was verified on it, with which versions, and how to repeat that."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import nbformat
from lxml.html import HtmlElement, builder
from nbformat import NotebookNode

from scripts.commit import commit_time
from scripts.fill import is_stated
from scripts.finish.blocks import directives_of
from scripts.finish.built import Built, Html
from scripts.finish.numbers import plain_version
from scripts.project import Problem, Project, is_lab

_HEADING = "what-was-verified"
_CODE = {"code": "code block", "file": "file to download"}
_RESULTS = {
    "output": "output",
    "table": "table",
    "figure": "figure",
    "planted": "planted fault",
    "numbers": "list of numbers",
    "measured": "number in the text",
}
_LISTS = {
    "tagged": "list of pages",
    "module": "description of a module",
    "functions": "table of functions",
    "modules": "table of modules",
}
_PLURALS = {
    "list of pages": "lists of pages",
    "description of a module": "descriptions of a module",
    "table of functions": "tables of functions",
    "table of modules": "tables of modules",
    "file to download": "files to download",
    "list of numbers": "lists of numbers",
    "number in the text": "numbers in the text",
}


def tell_verified(built: Built) -> list[Problem]:
    """Append the section to every page that has a source."""
    seconds = commit_time(built.project)
    for page in built.pages.values():
        if page.page is not None:
            _append(built, page, page.page, seconds)
    return []


def _append(built: Built, page: Html, name: str, seconds: int | None) -> None:
    kinds = _kinds(built.project, name)
    counts = Counter("code" if k in ("imports", "source", "example") else k for k in kinds)
    keys = [data.get("value") for data in page.content.iter("data")]
    stated = Counter(key.partition(":")[0] for key in keys if is_stated(key))
    counts["measured"] = len(keys) - stated.total()
    rules: list[HtmlElement] = []
    if "reference/verification.html" in built.pages:
        text = "What is compared, and what is not"
        rules = [builder.A(text, href=page.to("reference/verification.html"))]
    if counts.total():
        told = _told(counts, stated, seconds, rules)
        whole = "numbers" in kinds  # a list of numbers follows from all pages
        told += _command(
            "" if whole else f" {built.project.relative(built.project.published(name))}"
        )
    else:
        told = [
            builder.P(
                "Nothing on this page is measured: it shows no code that was run, no output, table "
                "or figure of a run, and no measured number. ",
                *_ended(rules),
            )
        ]
    heading = builder.H2("What was verified", id=_HEADING)
    page.content.append(
        builder.SECTION(heading, *told, {"class": "verified", "aria-labelledby": _HEADING})
    )


def _kinds(project: Project, name: str) -> list[str]:
    """The kind of every block that was run, or that a run gave."""
    if not is_lab(name):
        return [kind for _, kind, _ in directives_of(project, name)]
    cells = nbformat.read(project.notebook(name), as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    shown = ["output" if output.output_type == "stream" else _shown(output) for output in outputs]
    return ["code"] * len(code) + shown


def _shown(output: NotebookNode) -> str:
    return "figure" if "image/svg+xml" in output.data else "table"


def _told(
    counts: Counter[str], stated: Counter[str], seconds: int | None, rules: list[HtmlElement]
) -> list[HtmlElement]:
    groups = (
        (_CODE, "the code that was run"),
        (_RESULTS, "what runs gave"),
        (_LISTS, "what the sources hold"),
    )
    told = ((*_listed(counts, names), what) for names, what in groups)
    first = "; ".join(
        f"{_joined(parts)} {'are' if many else 'is'} {what}" for parts, many, what in told if parts
    )
    if stated:
        first += ". Not measured: " + _joined(
            [f"{count} number{'s' * (count > 1)} {kind}" for kind, count in sorted(stated.items())]
        )
    packages = ("torch", "numpy", "matplotlib")
    versions = [
        f"Python {platform.python_version()}",
        *(f"{p} {plain_version(p)}" for p in packages),
    ]
    how: list[str | HtmlElement] = [
        f"Run on a CPU, with {_joined(versions)}. Before the site is published, the tests run all "
        "of this again, with one thread and with two, with PyTorch's AVX2 kernels and with its "
        "default ones, and compare. ",
        *_dated(seconds),
        *_ended(rules),
    ]
    return [builder.P(f"On this page, {first}."), builder.P(*how)]


def _listed(counts: Counter[str], names: dict[str, str]) -> tuple[list[str], bool]:
    """Counted nouns, and whether they take a plural verb."""
    parts = [
        f"{counts[key]:,} {name if counts[key] == 1 else _PLURALS.get(name, name + 's')}"
        for key, name in names.items()
        if counts[key]
    ]
    return parts, sum(counts[key] for key in names) > 1


def _joined(parts: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _dated(seconds: int | None) -> Iterable[str | HtmlElement]:
    if seconds is not None:
        day = datetime.fromtimestamp(seconds, UTC).date()
        text = f"{day.day} {day:%B %Y}"
        yield from ("The last commit is of ", builder.E.time(text, datetime=str(day)), ". ")


def _ended(rules: list[HtmlElement]) -> Iterable[str | HtmlElement]:
    for link in rules:
        yield from (link, ".")


def _command(page: str) -> list[HtmlElement]:
    code = builder.CODE(f"python scripts/build.py --check{page}\n")
    return [
        builder.P(
            "To repeat it, in a copy of the repository that the README's first command set up:"
        ),
        builder.DIV(builder.PRE(code), {"class": "language-console highlight"}),
    ]
