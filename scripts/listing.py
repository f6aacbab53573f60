"""Every number that the pages print, with what measured it: the tables and the file of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal

from scripts.counting import fill_counts
from scripts.fill import Block, Filled, Number, is_counted, is_stated, markdown_table
from scripts.project import Problem, Project, is_lab
from scripts.rounding import NumberError, noise_of, print_like, read
from scripts.run import Results

_NUMERAL = re.compile(
    r"(?<![\w.,])[-−+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?:\s?%)?(?![\w.]*\w)"
)


@dataclass(frozen=True)
class Entry:
    """One printed number: its place, its value to the precision printed, and where it is from."""

    page: str
    place: str  # prose, or the directive of the block that it stands in
    kind: str  # measured, counted, cited, given or derived; as text in an output or a table
    printed: str
    value: float | int | str
    last_place: float | int | None  # one unit in it; None for a measured word
    noise: float | None  # relative; where a block is compared as text there is none
    source: str  # the function that measured it, or what the page states


def list_numbers(
    project: Project, found: list[Filled], results: Mapping[str, Results]
) -> list[Problem]:
    """Fill the ``numbers`` directives, given all pages, and the JSON file beside the page."""
    pages = {filled.page.name: filled for filled in found}

    def list_entries() -> dict[str, list[Entry]]:
        return {name: list(_entries(project, page, results)) for name, page in pages.items()}

    standing = [entry for page in list_entries().values() for entry in page]
    measured = sum(entry.kind in ("measured", "as text") for entry in standing)
    problems = list(fill_counts(found, measured))
    entries = list_entries()
    for filled in found:
        directives = [d for d in filled.page.directives if d.kind == "numbers"]
        for directive in directives:
            listed = entries.get(directive.name)
            if not listed or directive.name == filled.page.name:
                message = f"{directive}: no other page of that name prints a number: remove this"
                problems.append(Problem(filled.page.file, directive.line, message))
                continue
            filled.blocks.append(Block(directive, markdown_table(list(_rows(listed)))))
        if not directives:
            continue
        names = {directive.name for directive in directives}
        for name in sorted(set(entries) - names - {filled.page.name}):
            if entries[name]:
                file = project.relative(project.published(name))
                message = f"the numbers of {file} are missing: add <!-- numbers: {name} -->"
                problems.append(Problem(filled.page.file, directives[0].line, message))
        lines = [
            json.dumps(asdict(entry), ensure_ascii=False)
            for name in sorted(names & set(entries))
            for entry in entries[name]
        ]
        path = project.markdown(filled.page.name).with_suffix(".json")
        filled.files[path] = (directives[0].line, "[\n" + ",\n".join(lines) + "\n]\n")
    return problems


def _entries(project: Project, filled: Filled, results: Mapping[str, Results]) -> Iterator[Entry]:
    page = filled.page
    measured = {number.bound.start: number for number in filled.numbers}
    for bound in page.bound:
        if is_stated(bound.key):
            kind, _, reason = bound.key.partition(":")
            yield _entry(page.name, "prose", kind, bound.printed, None, " ".join(reason.split()))
        elif bound.start in measured:
            number = measured[bound.start]
            source = _function(project, number, results)
            try:
                right = print_like(bound.printed, number.value)
            except NumberError:  # told where the page is filled
                continue
            noise = None if isinstance(number.value, str) else noise_of(number.value)
            kind = "counted" if is_counted(bound.key) else "measured"
            yield _entry(page.name, "prose", kind, right, noise, source)
    for block in filled.blocks + filled.cells:
        if block.directive.kind in ("output", "table"):
            kind = "example_" if block.directive.kind == "output" else "table_"
            name = f"{'' if is_lab(page.name) else kind}{block.directive.name}"
            source = f"{project.relative(project.module(page.name))}:{name}"
            place = f"{block.directive.kind}: {block.directive.name}"
            for match in _NUMERAL.finditer(block.text):
                yield _entry(page.name, place, "as text", match[0], None, source)


def _entry(
    page: str, place: str, kind: str, printed: str, noise: float | None, source: str
) -> Entry:
    try:
        number = read(printed)
    except NumberError:
        return Entry(page, place, kind, printed, printed, None, None, source)
    value, unit = _plain(number.value), _plain(number.unit)
    return Entry(page, place, kind, printed, value, unit, noise, source)


def _plain(value: Decimal) -> float | int:
    whole = value == value.to_integral_value() and abs(value) < 10**15
    return int(value) if whole else float(value)


def _function(project: Project, number: Number, results: Mapping[str, Results]) -> str:
    if is_counted(number.key):
        return "the build, over all pages and labs"
    page, _, name = number.key.rpartition(":")
    name = name.partition(".")[0]
    kind = "table_" if name in results[page].tables else "example_"
    return f"{project.relative(project.module(page))}:{'' if is_lab(page) else kind}{name}"


def _rows(entries: list[Entry]) -> Iterator[dict[str, str]]:
    """A row for each number in prose, and one for each block."""
    blocks: dict[tuple[str, str], int] = {}
    for entry in entries:
        source = entry.source
        if entry.kind in ("measured", "as text"):
            path = source.removeprefix("snippets/").removeprefix("pages/")
            module, _, function = path.partition(":")
            source = f"`{function}` of `{module}`"
        if entry.place == "prose":
            unit = "as it stands" if entry.last_place is None else f"{entry.last_place:g}"
            yield _row(entry.printed, entry.value, unit, entry.kind, source)
        else:
            blocks[entry.place, source] = blocks.get((entry.place, source), 0) + 1
    for (place, source), count in blocks.items():
        of = "number" if count == 1 else "numbers"
        yield _row(f"{count} {of}", f"in {place}", "the character", "as text", source)


def _row(printed: str, value: object, unit: str, kind: str, source: str) -> dict[str, str]:
    return {
        "printed": printed,
        "value": f"{value:.12g}" if isinstance(value, float) else str(value),
        "right to": unit,
        "kind": kind,
        "by": source,
    }
