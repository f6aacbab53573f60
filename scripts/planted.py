"""Plants a fault in a page and writes down what the check says: one digit of a block is altered.

The file of the page is left alone: what is altered is the text that it should hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scripts import compare
from scripts.fill import Block, Filled, fill, needed_pages
from scripts.page import Directive, Page, read_page, take_apart
from scripts.project import Problem, Project
from scripts.run import Results

FAULTS = ("number", "source", "example", "output", "table", "figure")
_LAST_DIGIT = re.compile(r"\d(?=\D*\Z)")
_DATA = re.compile(r'<data value="[^"]*">|</data>')
_POINT = re.compile(r"^(?:M|L) [\d.]+ [\d.]+", re.MULTILINE)  # of a line in a drawing


class _PlantError(ValueError):
    """A fault that cannot be planted, or that the check does not see."""


@dataclass(frozen=True)
class _Fault:
    """A changed line, and what the check says of it."""

    file: str
    before: str
    after: str
    said: list[Problem]


def planted_pages(page: Page) -> set[str]:
    """The pages in which this page's directives plant a fault."""
    return {d.name.rpartition("/")[0] for d in page.directives if d.kind == "planted"}


def plant_faults(
    project: Project, filled: Filled, results: Mapping[str, Results]
) -> Iterator[Problem]:
    """Fill the ``planted`` directives of a page, given the results of the pages that they name."""
    for directive in filled.page.directives:
        if directive.kind != "planted":
            continue
        try:
            fault = _plant(project, directive, results)
        except _PlantError as error:
            yield Problem(filled.page.file, directive.line, f"{directive}: {error}")
            continue
        said = "".join(f"{problem}\n" for problem in fault.said)
        changed = f"{fault.file}\n- {fault.before}\n+ {fault.after}\n"
        text = f"~~~text\n{changed}\nThe check says:\n{said}~~~\n"
        filled.blocks.append(Block(directive, text))


def _plant(project: Project, directive: Directive, results: Mapping[str, Results]) -> _Fault:
    name, _, kind = directive.name.rpartition("/")
    if kind not in FAULTS or name not in project.pages():
        raise _PlantError(f"expected a page and one of {', '.join(FAULTS)}, as in core/page/number")
    page = read_page(project, name)
    right = page if page.problems else take_apart(name, page.file, _text(project, name, results))
    filled = fill(project, right, results)
    if right.problems or filled.problems or not needed_pages(right) <= set(results):
        raise _PlantError(f"{page.file} has faults of its own, told there")
    fault = _in_figure(project, filled) if kind == "figure" else None
    for start, end in [] if fault else _spans(filled, kind):
        if fault := _in_text(project, filled, start, end, results):
            break
    if fault is None:
        raise _PlantError(f"{page.file} has no {kind} with a digit")
    if not fault.said:
        raise _PlantError(f"the check does not see {fault.after!r} in place of {fault.before!r}")
    return fault


def _text(project: Project, name: str, results: Mapping[str, Results]) -> str:
    return fill(project, read_page(project, name), results).text()


def _spans(filled: Filled, kind: str) -> Iterator[tuple[int, int]]:
    if kind == "number":
        yield from ((number.bound.start, number.bound.end) for number in filled.numbers)
    for directive in filled.page.directives:
        if directive.kind == kind:
            yield directive.start, directive.end


def _in_text(
    project: Project, filled: Filled, start: int, end: int, results: Mapping[str, Results]
) -> _Fault | None:
    page = filled.page
    match = _LAST_DIGIT.search(page.text[start:end])
    if match is None:
        return None
    at = start + match.start()
    text = page.text[:at] + _other(page.text[at]) + page.text[at + 1 :]
    altered = fill(project, take_apart(page.name, page.file, text), results)
    altered.files.clear()
    line = page.line_at(at) - 1
    before, after = (_DATA.sub("", each.split("\n")[line]) for each in (page.text, text))
    return _Fault(page.file, before, after, list(compare.differences(project, altered, 0)))


def _in_figure(project: Project, filled: Filled) -> _Fault | None:
    for path, (line, right) in filled.files.items():
        if path.suffix == ".svg" and (match := _POINT.search(right)):
            at = match.end() - 1
            altered = right[:at] + _other(right[at]) + right[at + 1 :]
            number = right.count("\n", 0, at)
            before, after = (each.split("\n")[number].strip() for each in (right, altered))
            said = compare.file_difference(project, filled.page, path, line, altered, right, 0)
            return _Fault(project.relative(path), before, after, list(said))
    return None


def _other(digit: str) -> str:
    return str((int(digit) + 1) % 10)
