"""The helpers of the page are right, and its pictures and tables say what was found."""

from __future__ import annotations

import math

import pytest
import torch

from snippets.pages.core import softmax
from tests.snippets.reference import DTYPES

dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.parametrize("scores", [[0.0], [1.0, -2.0, 3.0], [-1e4, -1e4 + 1]])
def test_the_plain_softmax_is_torchs(scores: list[float]) -> None:
    expected = torch.tensor(scores, dtype=torch.float64).softmax(-1).tolist()
    assert softmax.softmax(scores) == pytest.approx(expected, abs=1e-15)


@dtypes
def test_the_step_is_the_distance_between_neighbours(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    assert float(softmax.step_at(1.0, dtype)) == pytest.approx(info.eps / 2, rel=0.1)
    assert softmax.step_at(-math.inf, dtype) == "none"
    step = float(softmax.step_at(info.min, dtype))
    largest = torch.tensor(info.max, dtype=dtype)
    assert step == pytest.approx((largest - largest.nextafter(largest * 0)).item(), rel=0.1)


@dtypes
def test_a_filled_row_is_a_masked_one_where_scores_are_ordinary(dtype: torch.dtype) -> None:
    found = softmax.weights_filled([1.0, 2.0, 50.0], [2], "finfo.min", dtype)
    expected = torch.tensor([1.0, 2.0], dtype=dtype).softmax(-1).tolist()
    assert found == [*expected, 0.0]


def test_masks_are_added_as_often_as_they_hide() -> None:
    double = torch.float64
    assert softmax.weights_added([0.0] * 3, [0, 1, 2], "-1e4", double) == [1, 0, 0]
    assert softmax.weights_added([0.0] * 3, [2, 1, 1], "finfo.min", double) == [0, 0.5, 0.5]
    assert softmax.weights_added([0.0] * 3, [1, 1, 1], "finfo.min", double) == [1 / 3] * 3


def test_cells() -> None:
    assert softmax.cell([0.25] * 4) == "0.25 each"
    assert softmax.cell([1.0]) == "1"
    assert softmax.cell([0.736, 0.264, 0.0]) == "0.74, 0.26, 0"
    assert softmax.cell([0.5, math.nan]) == "NaN"
    found = softmax.try_cell(softmax.weights_filled, [0.0, 0.0], [0], "-1e9", torch.float16)
    assert found == "raises `RuntimeError`"


def test_the_picture_holds_one_wherever_the_score_beats_the_floor() -> None:
    for dtype in DTYPES:
        for floor in softmax.FLOORS:
            number = softmax.floor_of(floor, dtype)
            if number < torch.finfo(dtype).min and number > -math.inf:
                continue
            for power in range(1, 5):
                score = -(10.0**power) / 2
                weight, *_ = softmax.weights_filled([score, 0, 0, 0], [1, 2, 3], floor, dtype)
                assert weight == 1


@dtypes
def test_what_takes_the_least_number_to_minus_infinity(dtype: torch.dtype) -> None:
    """An ordinary score does in float16 only; a second mask does everywhere."""
    _, values = softmax.table_added()
    least = torch.tensor(torch.finfo(dtype).min, dtype=dtype)
    score = torch.tensor(values[softmax.name_of(dtype)], dtype=dtype)
    assert (least + score).item() == -math.inf
    assert (least + score * 0.99).item() == least
    ordinary = (least + torch.tensor(-1000.0, dtype=dtype)).item() == -math.inf
    assert ordinary == (dtype == torch.float16)
    assert (least + least).item() == -math.inf
    assert values["twice"] == len(DTYPES)


def test_published_bounds_of_float16() -> None:
    assert softmax.table_added()[1]["float16"] == -16
    assert softmax.example_half()["rounded"] == 8192  # 8,190 and 8,191 alike
