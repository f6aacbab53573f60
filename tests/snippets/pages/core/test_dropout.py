"""The helpers of the page on dropout, and what it says about variants."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from snippets.pages.core import dropout as page


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_weight_is_dropped_with_probability_p_or_rescaled(p: float) -> None:
    weights = torch.rand(300, 400, dtype=torch.float64) + 0.1
    dropped = page.drop(weights, p)
    zero = dropped == 0
    error = math.sqrt(p * (1 - p) / weights.numel())
    assert abs(zero.double().mean().item() - p) < 4 * error
    torch.testing.assert_close(dropped[~zero], weights[~zero] / (1 - p))


def test_masks_of_queries_are_independent() -> None:
    ones = torch.ones(20_000, 2, dtype=torch.float64)
    first, second = page.drop(ones, 0.3).unbind(-1)
    correlation = torch.corrcoef(torch.stack([first, second]))[0, 1].item()
    assert abs(correlation) < 4 / math.sqrt(20_000)


def test_nothing_is_dropped_at_0_and_a_masked_weight_stays_0() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5]], dtype=torch.float64)
    assert torch.equal(page.drop(weights, 0.0), weights)
    assert not page.drop(weights.expand(1000, 3), 0.5)[:, 1].any()


def test_rows_to_drop_sum_to_1_with_the_largest_that_is_named() -> None:
    rows = page.rows_to_drop()
    largest = [1 / 50, 1 / 8, 1 / 2, 9 / 10, 1]
    for row, expected in zip(rows.values(), largest, strict=True):
        assert row.sum().item() == pytest.approx(1, abs=1e-12)
        assert row.max().item() == pytest.approx(expected)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_row_sums_are_those_of_pytorchs_dropout(p: float) -> None:
    row = page.rows_to_drop()["50 keys, half on one"]
    ours = page.row_sums(row, p)
    theirs = F.dropout(row.expand(20_000, -1), p).sum(-1)
    error = math.sqrt(p / (1 - p) * row.square().sum().item() / 20_000)
    assert abs((ours.mean() - theirs.mean()).item()) < 4 * math.sqrt(2) * error
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.03)


def test_dropping_logits_is_dropping_and_dividing_by_the_new_sum() -> None:
    logits = torch.randn(1000, 6, dtype=torch.float64)
    kept = torch.rand(1000, 6) >= 0.25
    kept[:, 0] = True
    masked = logits.masked_fill(~kept, -math.inf).softmax(-1)
    divided = logits.softmax(-1) * kept
    torch.testing.assert_close(masked, divided / divided.sum(-1, keepdim=True))


def test_bytes_kept_are_those_of_what_backward_needs() -> None:
    x = torch.randn(5, 7).requires_grad_()
    assert page.bytes_kept(lambda a: a * a, x) == 0
    assert page.bytes_kept(lambda a: a.exp(), x) == 35 * 4
    assert page.bytes_kept(lambda a: a.double().exp(), x) == 35 * 8
