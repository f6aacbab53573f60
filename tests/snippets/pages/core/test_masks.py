"""The helpers of the page on masks are right, and tell right from wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets import masks as snippet
from snippets.attention import attention
from snippets.masks import causal, padding
from snippets.pages.core import masks as page


def test_the_code_in_the_table_is_what_was_run() -> None:
    names = vars(snippet) | {
        "n": torch.tensor([4]),
        "ids": torch.tensor([[0, 0, 1, 1, 1, 2]]),
    }
    for name, code, mask, rule, predicate in page.list_masks():
        assert eval(code, names).equal(mask), name
        whole = (1, 1, 6, 6)
        assert snippet.dense(eval(rule, names), whole).equal(snippet.dense(predicate, whole)), name
        assert snippet.dense(predicate, whole).equal(mask.expand(whole)), name


def test_each_alone_tells_right_from_wrong() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 3, 3, 4, 8).double().unbind()
    lengths = torch.tensor([3, 1, 4])

    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return attention(q, k, v, mask)[0]

    right = padding(lengths, 4)
    assert page.each_alone(run, q, k, v, right, lengths)
    assert not page.each_alone(run, q, k, v, right.transpose(0, 1), lengths)
    assert not page.each_alone(run, q, k, v, torch.ones_like(right), lengths)
    assert not page.each_alone(run, q, k, v, right & causal(4, 4), lengths)


def test_a_block_mask_without_b_knows_the_first_example_only() -> None:
    def pairs(length: int) -> int:
        return sum(j <= i and j < length for i in range(5) for j in range(5))

    assert page.example_block_mask() == {"without": pairs(3), "second": pairs(5)}


def test_three_dimensions_for_four_are_refused_at_every_size() -> None:
    rows = {row["mask, its shape"].split("`")[1]: row for row in page.table_shapes()}
    sizes = ("B 2, H 3, T 4", "B = H = 3, T 4", "B = T = 4, H 3", "B 1, H 3, T 4")
    for mask, row in rows.items():
        three = mask in ("tokens[:, None]", "pairs")
        assert row["`attention`"] == ("refused" if three else "as SDPA"), mask
        if three:  # SDPA, as it broadcasts
            assert [row[size] for size in sizes] == ["refused", "wrong", "refused", "right"]


def test_describe_is_shown_the_dimension_that_sdpa_adds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page.example_shapes()
    meant, read = capsys.readouterr().out.split("(B, 1, T) where B = H", 1)
    assert "example 1, every head: 2 of 4" in meant
    assert "every example, head 1: 2 of 4" in read
    assert read.endswith("(B, 1, T) as it is: ValueError\n")


def test_the_past_keeps_its_share_of_equal_weights() -> None:
    zeros = torch.zeros(4, 8, dtype=torch.float64)
    shares = page.shares_of_the_past(zeros, zeros)
    torch.testing.assert_close(shares, torch.tensor([0.25, 0.5, 0.75, 1.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("way", "shares"),
    [
        (page.masked_before, [1, 3, 0]),
        (page.masked_after, [1 / 2, 3 / 2, 0]),
        (page.renormalised, [1, 3, 0]),
        (page.multiplied, [4 / 5, 12 / 5, 4 / 5]),
        (page.added, [math.e / (math.e + 1), 3 * math.e / (math.e + 1), 4 / (math.e + 1)]),
    ],
)
def test_each_way_of_masking_gives_the_weights_that_it_says(
    way: Callable[[Tensor, Tensor], Tensor], shares: list[float]
) -> None:
    logits = torch.tensor([1, 3, 4], dtype=torch.float64).log()
    weights = way(logits, torch.tensor([True, True, False]))
    torch.testing.assert_close(weights, torch.tensor(shares, dtype=torch.float64) / 4)
