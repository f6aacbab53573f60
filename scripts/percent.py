"""A script in percent format, taken apart: its prose line by line, and its cells."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ALT = re.compile(r'\salt="(?:[^"\\]|\\.)*"')


class LabError(Exception):
    """The script is no lab; ``line`` is in the script."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Cell:
    """One cell: ``line`` is that of its ``# %%``, ``first`` that of its first line of content."""

    kind: str  # markdown, code, figure or table
    name: str
    alt: str
    source: str
    line: int
    first: int


def prose_of(script: str) -> str:
    """Return the script's head and Markdown, each at its own line; all other lines are empty."""
    return "\n".join(
        line.removeprefix("#").removeprefix(" ") if is_prose else ""
        for line, is_prose in _lines(script)
    )


def with_prose(script: str, prose: str) -> str:
    """Return the script with the lines of its head and Markdown as they stand in ``prose``."""
    return "\n".join(
        f"# {new}".rstrip() if is_prose and line.startswith("#") else line
        for (line, is_prose), new in zip(_lines(script), prose.split("\n"), strict=True)
    )


def digest(script: str) -> str:
    """Return a hash of all that the script's results depend on: its code, not its prose."""
    code = [_ALT.sub("", line) for line, is_prose in _lines(script) if not is_prose]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()


def _lines(script: str) -> Iterator[tuple[str, bool]]:
    is_prose = script.startswith("# ---\n")
    for line in script.split("\n"):
        marks = _is_marker(line)
        if marks:
            is_prose = line.rstrip() == "# %% [markdown]"
        yield line, is_prose and not marks


def _is_marker(line: str) -> bool:
    return line == "# %%" or line.startswith("# %% ")


def read_cells(script: str) -> list[Cell]:
    """Take the script apart; raises ``LabError`` where its form is wrong."""
    import jupytext  # half a second that only labs should cost

    lines = script.split("\n")
    markers = [number for number, line in enumerate(lines, 1) if _is_marker(line)]
    parts = [part for part in jupytext.reads(script, "py:percent").cells if part.cell_type != "raw"]
    if len(parts) != len(markers) or not parts:
        raise LabError(
            1,
            f"{len(markers)} lines begin with # %%, but jupytext reads {len(parts)} cells: "
            "put nothing but the head above the first, and none inside a text",
        )
    for number, (line, is_prose) in enumerate(_lines(script), 1):
        if is_prose and line and not line.startswith("#"):
            raise LabError(number, f"the line of prose {line!r} should begin with #")
    cells = [_cell(part, line, lines) for part, line in zip(parts, markers, strict=True)]
    if cells[0].kind != "markdown" or not cells[0].source.startswith("# "):
        raise LabError(markers[0], "a lab begins with a cell # %% [markdown] that opens: # # Title")
    seen = set()
    for cell in cells:
        if cell.name and cell.name in seen:
            raise LabError(cell.line, f"the name {cell.name} is given twice: rename one of them")
        seen.add(cell.name)
    return cells


def _cell(part: dict[str, object], line: int, lines: list[str]) -> Cell:
    metadata, source = part["metadata"], part["source"]
    assert isinstance(metadata, dict)
    assert isinstance(source, str)
    # jupytext notes there, too, how many empty lines stand below the cell.
    given = {key: value for key, value in metadata.items() if not key.startswith("lines_to_")}
    kind = str(part["cell_type"])
    named = [key for key in given if key in ("figure", "table")]
    expected = {(): [], ("figure",): ["figure", "alt"], ("table",): ["table"]}.get(tuple(named))
    if expected is None or sorted(given) != sorted(expected) or not all(given.values()):
        raise LabError(
            line,
            f"the cell {lines[line - 1]} should be # %%, # %% [markdown], "
            '# %% figure="name" alt="What it shows." or # %% table="name"',
        )
    if kind == "markdown" and named:
        raise LabError(line, "a cell of Markdown is neither a figure nor a table")
    if not source.strip():
        raise LabError(line, "the cell is empty: delete it")
    first = next(number for number, text in enumerate(lines[line:], line + 1) if text.strip())
    name = str(given[named[0]]) if named else ""
    alt = str(given.get("alt", ""))
    return Cell(named[0] if named else kind, name, alt, source.strip("\n"), line, first)
