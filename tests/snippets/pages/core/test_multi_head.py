"""The recipes of the page give the digits that were published, and its helpers are right."""

from __future__ import annotations

import math

import pytest
import torch

from snippets.pages.core import multi_head
from tests.snippets.reference import attention_by_hand


def test_one_wide_head_differs_from_two_as_published() -> None:
    values = multi_head.example_false()
    assert values["equal"] == "False"
    assert f"{values['difference']:.3f}" == "0.889"
    assert values["head_0"] == "3, 1, 3, 2"
    assert values["head_1"] == "2, 0, 1, 0"


def test_features_are_projected_before_they_are_split() -> None:
    """A head has rows of the projections, each of which reads all features of a token."""
    values = multi_head.example_false()
    torch.manual_seed(7)
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    projections = torch.randn(3, 8, 8, dtype=torch.float64) / 8**0.5
    for h in range(2):
        q, k, v = (x @ w[4 * h : 4 * h + 4].T for w in projections)  # (1, T, d)
        _, weights = attention_by_hand(q, k, v)
        assert values[f"head_{h}"] == ", ".join(map(str, weights[0].argmax(-1).tolist()))
        part = x[..., 4 * h : 4 * h + 4]  # what splitting first would give
        _, weights = attention_by_hand(part, part, part)
        assert values[f"head_{h}"] != ", ".join(map(str, weights[0].argmax(-1).tolist()))


def test_one_projection_for_queries_and_keys_makes_the_scores_symmetric() -> None:
    found = multi_head.example_shared()
    assert found["shared"] < 1e-12
    assert found["apart"] > 1
    assert found["itself"] == 6


def test_the_variances_are_the_published_ones() -> None:
    rows, values = multi_head.table_heads()
    found = [(row["head width d"], row["variance of q·k"], row["of q·k / √d"]) for row in rows]
    assert found == [
        (512, "513.8", "1.0035"),
        (64, "64.0", "0.9994"),
        (32, "31.7", "0.9920"),
        (8, "8.0", "0.9966"),
    ]
    assert values["parameters"] == 4 * 512**2 + 4 * 512
    for d in (8, 32, 64, 512):  # within three standard errors of 1
        assert abs(values[f"scaled_{d}"] - 1) < 3 * math.sqrt((2 + 6 / d) / 50_000)


def test_splitting_gives_each_head_its_slice_of_each_token_and_merging_undoes_it() -> None:
    x = torch.arange(2 * 3 * 8).view(2, 3, 8)  # B, T and H all different from each other
    heads = multi_head.split(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    for b, h, t in torch.cartesian_prod(*map(torch.arange, (2, 4, 3))).tolist():
        assert heads[b, h, t].tolist() == x[b, t, 2 * h : 2 * h + 2].tolist()
    assert torch.equal(multi_head.merge(heads), x)


def test_the_layers_with_one_average_do_differ(capsys: pytest.CaptureFixture[str]) -> None:
    values = multi_head.example_average()
    assert "the same averaged weights: True" in capsys.readouterr().out
    assert values["difference"] > 1
    assert values["average"] > values["heads"]
