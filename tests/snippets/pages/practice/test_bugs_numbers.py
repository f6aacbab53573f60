"""The wrong versions are wrong and the right ones right, on other draws than the page's, too."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from snippets.pages.practice import bugs_numbers as page

# What is no error: the wrong and the right measurement in words.
WORDS = {
    "floor_does_not_fit": ("raises RuntimeError", "weight on the future 0"),
    "evaluation": ("10", "1"),
    "weights": ("0 of 50 rows", "50 of 50 rows"),
    "nan": ("zeros", "NaN"),
    "mask_stride": ("5", "8"),
}
# The wrong version does not give a number.
NOT_A_NUMBER = {
    "floor_added": "NaN",
    "first_block": "NaN",
    "backward": "NaN",
    "tensor_scale": "raises TypeError",
}
NO_MISTAKE = {"sigmoid"}
NAMES = [name for name, _, _ in page.MISTAKES]


@pytest.fixture(params=range(3))
def _other_draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: Callable[[int], torch.Generator] = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda seed: seeded(seed + 1000 * request.param))


@pytest.mark.usefixtures("_other_draws")
@pytest.mark.parametrize("name", NAMES)
def test_wrong_differs_and_right_equals(name: str) -> None:
    found = getattr(page, f"example_{name}")()
    wrong, right = found["wrong"], found["right"]
    if name in WORDS:
        assert (wrong, right) == WORDS[name]
        return
    assert right < 1e-9
    if name in NOT_A_NUMBER:
        assert wrong == NOT_A_NUMBER[name]
    elif name in NO_MISTAKE:
        assert wrong < 1e-9
    else:
        assert wrong > 1e-3


def test_every_example_is_in_the_table_and_has_one_row() -> None:
    examples = {name for name in vars(page) if name.startswith("example_")}
    assert {f"example_{name}" for name in NAMES} == examples
    rows = page.table_mistakes()
    assert len(rows) == len(NAMES) == len({row["mistake"] for row in rows})


def test_the_table_prints_what_the_examples_return(capsys: pytest.CaptureFixture[str]) -> None:
    rows = dict(zip(NAMES, page.table_mistakes(), strict=True))
    assert capsys.readouterr().out == ""
    for name in ("average", "nan", "backward"):
        found = getattr(page, f"example_{name}")()
        assert rows[name]["wrong"] == page.shown(found["wrong"])
        assert rows[name]["right"] == page.shown(found["right"])


def test_the_error_is_the_largest_difference_in_float64() -> None:
    x = torch.tensor([1.0, -4.0, 2.0])
    assert page.error(x, torch.tensor([1.5, -1.0, 2.0]).double()) == 3.0
    assert page.error(x.half(), x) == 0.0
    assert math.isnan(page.error(torch.tensor([0.0, math.nan]), torch.zeros(2)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("zeros", "zeros"),
        (math.nan, "NaN"),
        (math.inf, "inf"),
        (0.0, "below 1e-9"),
        (9e-10, "below 1e-9"),
        (0.0625, "0.062"),
    ],
)
def test_what_is_shown_of_a_value(value: float | str, text: str) -> None:
    assert page.shown(value) == text


def test_compare_prints_a_line_for_each_output(capsys: pytest.CaptureFixture[str]) -> None:
    zero = torch.zeros(2, dtype=torch.float64)
    found = page.compare(zero, wrong=zero + 0.25, right=zero)
    assert found == {"wrong": 0.25, "right": 0.0}
    assert capsys.readouterr().out == "wrong: error 0.250\nright: error below 1e-9\n"


def test_the_sigmoid_mistake_nearby_loses_the_sink() -> None:
    assert page.example_sigmoid()["again"] > 0.01


def test_without_dim_the_softmax_mixes_heads() -> None:
    assert page.example_axis()["implicit"] > 0.01
