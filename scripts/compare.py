"""How what a page holds differs from what a fresh run gave, line by line."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from scripts.fill import Filled
from scripts.page import Page
from scripts.project import Problem, Project
from scripts.rounding import difference, read

_NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")


def differences(project: Project, filled: Filled, units: int) -> Iterator[Problem]:
    """Every difference of one page; ``units`` in the last place of a number are allowed."""
    page = filled.page
    for block in filled.blocks:
        directive = block.directive
        printed = page.text[directive.start : directive.end]
        if not printed:
            yield Problem(
                page.file,
                directive.line,
                f"{directive} has no block under it: run scripts/build.py to have it written",
            )
            continue
        start = page.line_at(directive.start)
        measured = directive.kind in ("output", "planted", "table", "numbers")
        for line, old, new in line_differences(printed, block.text, units if measured else 0):
            yield Problem(page.file, start + line, f"{said(old, new)} ({directive})")
    for number in filled.numbers:
        message = difference(number.bound.printed, number.value, units)
        if message:
            yield Problem(page.file, number.bound.line, f"{message} ({number.key})")
    for path, (line, right) in filled.files.items():
        if path.suffix == ".ipynb":
            continue  # scripts.lab compares it cell by cell
        if path.is_file():
            printed = path.read_text(encoding="utf-8")
            yield from file_difference(project, page, path, line, printed, right, units)
        else:
            name = project.relative(path)
            yield Problem(page.file, line, f"{name} is missing: run scripts/build.py")


def file_difference(
    project: Project, page: Page, path: Path, line: int, printed: str, right: str, units: int
) -> Iterator[Problem]:
    """The first difference of a file beside the page, whose directive is in that line."""
    # On a GPU a coordinate of a drawn point moves by far more than its last printed place.
    for number, old, new in line_differences(printed, right, units * 1000):
        name = project.relative(path)
        yield Problem(page.file, line, f"line {number + 1} of {name}: {said(old, new)}")
        return


def said(old: str | None, new: str | None) -> str:
    """Say what is printed and what was measured."""
    printed = f"printed {old!r}" if old is not None else "printed nothing"
    return f"{printed}, measured {new!r}" if new is not None else f"{printed}, measured nothing"


def line_differences(
    printed: str, measured: str, units: int = 0
) -> Iterator[tuple[int, str | None, str | None]]:
    """The lines that differ: number within the block (from 0), what is printed, what is right."""
    old, new = (text.removesuffix("\n").split("\n") for text in (printed, measured))
    if len(old) == len(new):
        for number, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b and not (units and _near(a, b, units)):
                yield number, a, b
        return
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            continue
        for step in range(max(j - i, m - k)):
            there = old[i + step] if i + step < j else None
            right = new[k + step] if k + step < m else None
            yield min(i + step, len(old) - 1), there, right


def _near(a: str, b: str, units: int) -> bool:
    """Whether two lines are the same but for numbers that differ by units in the last place."""
    if _NUMBER.sub("0", a).split() != _NUMBER.sub("0", b).split():
        return False
    for x, y in zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True):
        p, q = read(x), read(y)
        if not re.search("[.eE]", x) and x != y:  # a count, or a cell of a mask
            return False
        if p.unit != q.unit or abs(p.value - q.value) > units * p.unit:
            return False
    return True


def uncounted(page: Page, filled: Filled) -> Iterator[Problem]:
    """Blocks and numbers that stand on the page but were not compared with anything."""
    standing = Counter(
        b.directive.kind for b in filled.blocks if b.directive.start < b.directive.end
    )
    checked = {
        "directives": len(page.directives),
        "python blocks": standing["imports"] + standing["source"] + standing["example"],
        "numbers": len(page.bound),
    }
    for what, count in page.counts().items():
        if count != checked[what]:
            message = f"{count} {what} stand here, {checked[what]} were checked"
            yield Problem(page.file, 1, message)
