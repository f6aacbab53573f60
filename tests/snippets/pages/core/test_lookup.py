"""What the page says that a NaN in a key does."""

from __future__ import annotations

import pytest

from snippets.pages.core import lookup


def test_only_the_flash_kernel_with_the_flag_spares_the_queries_before_the_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lookup.example_bad_key() == {"flag": 2}
    lines = dict(
        line.split(": NaN for the queries ") for line in capsys.readouterr().out.splitlines()
    )
    everyone = str([0, 1, 2, 3])
    assert lines == {
        "MATH, mask": everyone,
        "MATH, is_causal": everyone,
        "FLASH_ATTENTION, mask": everyone,
        "FLASH_ATTENTION, is_causal": str([2, 3]),
    }


def test_three_dimensions_for_four_are_among_the_refusals() -> None:
    rows, _ = lookup.table_refusals()
    answers = {row["given"]: row["answer"] for row in rows}
    answer = answers["a mask `(3, 2, 2)` for scores `(3, 3, 2, 2)`"]
    assert answer.startswith("`ValueError: mask must broadcast to (..., Tq, Tk) = (3, 3, 2, 2) and")
    assert "mask[:, None] for (B, Tq, Tk)" in answer
