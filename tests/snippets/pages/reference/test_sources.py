"""The faults of public pages are there, and the test that the page gives finds them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from snippets.pages.reference import sources


@pytest.mark.parametrize("causal", [True, False])
def test_an_edit_of_the_last_token_shows_who_sees_the_future(causal: bool) -> None:
    def call(x: Tensor) -> Tensor:
        q = x[None, None]
        return F.scaled_dot_product_attention(q, q, q, is_causal=causal)[0, 0]

    x = torch.randn(6, 8, dtype=torch.float64)
    before = x.clone()
    assert sources.moved(call, x) == ([5] if causal else [0, 1, 2, 3, 4, 5])
    assert torch.equal(x, before)


def test_the_mask_goes_in_evaluation() -> None:
    assert sources.example_evaluation() == {"training": 1, "evaluation": 6}


def test_a_multiplied_mask_leaks(capsys: pytest.CaptureFixture[str]) -> None:
    first = sources.example_multiplied()["first"]
    wrong, right = capsys.readouterr().out.splitlines()
    assert wrong.split()[1] == f"{first:.2f}"
    assert right.endswith(": 0.00 0.00 0.00 0.00 0.00 0.00")


def test_an_inverted_mask_shows_the_future(capsys: pytest.CaptureFixture[str]) -> None:
    sources.example_inverted()
    grid = [line.split() for line in capsys.readouterr().out.splitlines() if "mask" not in line]
    upper = torch.ones(5, 5, dtype=torch.int64).triu(1)
    assert [[int(x) for x in row] for row in grid] == [*upper.tolist(), *(1 - upper).tolist()]


def test_a_mask_after_the_softmax_lets_the_future_in() -> None:
    values = sources.example_after()
    assert values["changed"] == 5
    assert 0 < values["first"] < 0.5
