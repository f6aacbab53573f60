from __future__ import annotations

import io

import pytest
from PIL import Image

from scripts.finish.card import SIZE, draw_card

LONG = "PyTorch's built-in attention: which kernel ran, and how far it is off, in every dtype"


@pytest.mark.parametrize("title", ["√dₖ", LONG])
def test_a_card_is_small_whole_and_the_same_each_time(title: str) -> None:
    card = draw_card(title, "Core", "The Attention Reference")
    assert card == draw_card(title, "Core", "The Attention Reference")
    assert len(card) < 30_000
    image = Image.open(io.BytesIO(card)).convert("L")
    assert image.size == SIZE
    # The margins stay free: no word is cut off.
    width, height = SIZE
    for box in ((0, 0, 75, height), (width - 75, 0, width, height), (0, 0, width, 75)):
        low, high = image.crop(box).getextrema()
        assert low == high


def test_cards_show_their_words() -> None:
    cards = {draw_card(*words) for words in [("A", "", "S"), ("B", "", "S"), ("A", "C", "S")]}
    assert len(cards) == 3


def test_every_sign_of_a_title_is_drawn() -> None:
    assert draw_card("√dₖ", "", "") != draw_card("\ufffe\ufffed", "", "")
