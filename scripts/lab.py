"""The notebook that a lab's script and its results make, and how the one on record differs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from scripts.compare import line_differences, said
from scripts.fill import Block, Filled, markdown_table
from scripts.page import Directive
from scripts.percent import Cell, read_cells, with_prose
from scripts.project import Problem, Project
from scripts.run import Results

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def fill_lab(project: Project, filled: Filled, results: Results) -> None:
    """Add what the lab's cells give to ``filled``: blocks, figures and the notebook."""
    name = filled.page.name
    script = project.module(name).read_text(encoding="utf-8")
    cells = read_cells(with_prose(script, filled.text()))
    given = iter(range(len(cells)))
    outputs: list[list[dict[str, object]]] = []
    for place, cell in enumerate(cells, 1):
        number = "" if cell.kind == "markdown" else str(next(given))
        outputs.append([])
        if number:
            filled.cells.append(_block("code", place, cell, cell.source))
        if printed := results.outputs.get(number, ""):
            filled.cells.append(_block("output", place, cell, printed))
            outputs[-1].append({"output_type": "stream", "name": "stdout", "text": printed})
        if number in results.tables:
            table = markdown_table(results.tables[number])
            filled.cells.append(_block("table", place, cell, table))
            outputs[-1].append(_display("text/markdown", table, table))
        if number in results.figures:
            drawn = results.figures[number]
            filled.cells.append(_block("figure", place, cell, ""))
            outputs[-1].append(_display("image/svg+xml", drawn["light"], cell.alt))
            for theme, svg in drawn.items():
                path = project.figures / name / f"{cell.name}-{theme}.svg"
                filled.files[path] = (cell.line, svg)
    filled.files[project.notebook(name)] = (1, _notebook(cells, outputs))


def _block(kind: str, place: int, cell: Cell, text: str) -> Block:
    return Block(Directive(kind, cell.name or f"cell {place}", cell.line, 0, 0), text)


def _display(kind: str, text: str, plain: str) -> dict[str, object]:
    return {
        "output_type": "display_data",
        "data": {kind: text, "text/plain": plain},
        "metadata": {},
    }


def _notebook(cells: list[Cell], outputs: list[list[dict[str, object]]]) -> str:
    import nbformat  # which takes a third of a second

    ran = 0
    parts: list[dict[str, object]] = []
    for number, (cell, given) in enumerate(zip(cells, outputs, strict=True), 1):
        part: dict[str, object] = {"id": f"cell-{number}", "metadata": {}, "source": cell.source}
        if cell.kind == "markdown":
            part |= {"cell_type": "markdown"}
        else:
            ran += 1
            part |= {"cell_type": "code", "execution_count": ran, "outputs": given}
        if cell.kind == "figure":
            part["metadata"] = {"figure": cell.name, "alt": cell.alt}
        elif cell.kind == "table":
            part["metadata"] = {"table": cell.name}
        parts.append(part)
    notebook = nbformat.from_dict(
        {
            "cells": parts,
            "metadata": METADATA,
            "nbformat": 4,
            "nbformat_minor": 5,
        }
    )
    nbformat.validate(notebook)
    text: str = nbformat.writes(notebook)
    return text.removesuffix("\n") + "\n"


def differences(project: Project, filled: Filled) -> Iterator[Problem]:
    """Every line of the notebook on record that is not what a fresh run makes, with its cell."""
    path = project.notebook(filled.page.name)
    file = project.relative(path)
    _, right = filled.files[path]
    if not path.is_file():
        yield Problem(filled.page.file, 1, f"{file} is missing: run scripts/build.py")
        return
    text = path.read_bytes().decode("utf-8", "replace")
    # Both begin each cell with a line of its own; the script's cells are the right text's.
    lines = [line for line, row in enumerate(text.split("\n"), 1) if row == "  {"]
    script = project.module(filled.page.name).read_text(encoding="utf-8")
    cells = read_cells(script)
    drawn = set()
    for number, old, new in line_differences(text, right):
        line = number + 1
        place = sum(first <= line for first in lines)
        where = f"cell {place}" if place else "its head"
        if 0 < place <= len(cells):
            cell = cells[place - 1]
            where += f", {filled.page.file}:{cell.line}"
            if cell.kind == "figure":  # of a picture, the first line that differs will do
                if place in drawn:
                    continue
                drawn.add(place)
        yield Problem(file, line, f"{said(_plain(old), _plain(new))} ({where})")


def _plain(row: str | None) -> str | None:
    """Return a line of a notebook's text as the cell shows it."""
    if row is None or not re.fullmatch(r'\s*".*",?', row):
        return row and row.strip()
    try:
        return str(json.loads(row.strip().rstrip(","))).removesuffix("\n")
    except ValueError:
        return row.strip()
