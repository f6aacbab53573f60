"""The classification of the page tells apart what it names."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from snippets.attention import attention
from snippets.pages.core import empty_rows
from tests.snippets.reference import DTYPES

DOUBLE = torch.float64
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@dtypes
def test_kinds_of_rows(dtype: torch.dtype) -> None:
    average, unmasked = torch.tensor([1.0, 2.0]).double(), torch.tensor([2.0, 1.0]).double()
    for row, kind in (
        ([0.0, 0.0], "zeros"),
        ([1.0, math.nan], "NaN"),
        ([1.0, 2.0], "average"),
        ([2.0, 1.0], "as if unmasked"),
        ([2.0, 2.0], "something else"),
        ([0.0, 2.0], "something else"),
    ):
        assert empty_rows.kind_of(torch.tensor(row, dtype=dtype), average, unmasked) == kind


def test_kinds_that_cannot_be_told_apart_are_refused() -> None:
    row = torch.ones(2)
    with pytest.raises(AssertionError):
        empty_rows.kind_of(row, row.double(), row.double() + 1e-3)


def test_wrong_gradients_are_named() -> None:
    right = [torch.ones(3, dtype=DOUBLE)] * 3
    assert empty_rows.names_of(right, right) == "right"
    bad = [right[0] * math.nan, right[0], right[0] * 2]
    assert empty_rows.names_of(bad, right) == "NaN in q, wrong in v"
    assert empty_rows.names_of([right[0] * math.nan] * 3, right) == "NaN in q, k, v"


@pytest.mark.parametrize(
    ("share", "found"), [(0.25, "reaches k, v"), (1.0, "reaches k, v, 4 times too large")]
)
def test_what_flows_back_is_weighed(share: float, found: str) -> None:
    zeros, ones = torch.zeros(4, 8), torch.ones(4, 8)
    assert empty_rows.reach_of([zeros, ones, share * ones]) == found
    assert empty_rows.reach_of([zeros, zeros, zeros]) == "zeros"
    assert empty_rows.reach_of([zeros, zeros, math.nan * ones]) == "NaN in v"


def test_texts_of_dtypes_are_merged() -> None:
    assert empty_rows.merged(dict.fromkeys(DTYPES, "zeros")) == "zeros"
    mixed = {torch.float16: "NaN", torch.float32: "zeros", torch.float64: "NaN"}
    assert empty_rows.merged(mixed) == "float16, float64: NaN; float32: zeros"


def test_the_layer_by_hand_is_the_layer() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x, mask = torch.randn(2, 4, 8).double(), torch.ones(4, 4, dtype=torch.bool).tril()
    expected, _ = layer(x, x, x, attn_mask=~mask)
    torch.testing.assert_close(empty_rows.layer_output(layer, x, mask), expected)


def test_left_padding_hides_the_first_keys_from_all() -> None:
    mask = empty_rows.left_padded(4, 3)
    assert mask.int().tolist() == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]


@dtypes
def test_masks_as_floats(dtype: torch.dtype) -> None:
    mask = torch.tensor([True, False])
    for floor, number in (("-inf", -math.inf), ("finfo.min", torch.finfo(dtype).min)):
        given = empty_rows.as_floats(mask, floor, dtype)
        assert given.dtype == dtype
        assert given.tolist() == [0.0, number]


def test_a_way_without_fault_is_measured_as_such() -> None:
    assert empty_rows.measure(lambda q, k, v, mask: attention(q, k, v, mask)[0]) == (
        "zeros",
        "right",
        "zeros",
    )


def test_a_way_that_forgets_the_mask_is_found_out() -> None:
    output, without, alone = empty_rows.measure(lambda q, k, v, _: attention(q, k, v)[0])
    assert (output, without, alone) == ("as if unmasked", "wrong in q, k, v", "reaches q, k, v")
