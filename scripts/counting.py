"""How much the site holds, counted from what its pages should hold: the numbers named site:."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from scripts.fill import Filled, Number, is_counted
from scripts.project import Problem, is_lab


def count_blocks(found: Sequence[Filled]) -> dict[str, int]:
    """Pages, labs, and in both code blocks, outputs, tables and figures."""
    kinds = Counter(block.directive.kind for page in found for block in page.blocks + page.cells)
    labs = sum(is_lab(page.page.name) for page in found)
    return {
        "pages": len(found) - labs,
        "labs": labs,
        "blocks": sum(kinds[kind] for kind in ("imports", "source", "example", "code")),
        "outputs": kinds["output"],
        "tables": kinds["table"],
        "figures": kinds["figure"],
    }


def fill_counts(found: Sequence[Filled], numbers: int) -> Iterator[Problem]:
    """Give every number named site: its count; ``numbers`` are those that a run has measured."""
    counts = {"numbers": numbers, **count_blocks(found)}
    for filled in found:
        for bound in filled.page.bound:
            name = bound.key.removeprefix("site:")
            if not is_counted(bound.key):
                continue
            if name in counts:
                filled.numbers.append(Number(bound, bound.key, counts[name]))
            else:
                closest = ", ".join(get_close_matches(name, counts, 6, 0.0))
                message = f"nothing counts {bound.key}: the site has {closest}"
                yield Problem(filled.page.file, bound.line, message)
