"""The layers of the page are blind to order without a mask, and its recipes are right."""

from __future__ import annotations

import itertools

import pytest
import torch

from snippets.attention import attention
from snippets.pages.core import order as page


def test_layers_are_attention_and_a_function_of_one_token() -> None:
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = x
    for w_q, w_k, w_v in page.draw_weights(2):
        output, _ = attention(expected @ w_q, expected @ w_k, expected @ w_v, mask)
        expected = expected + output.tanh()
    assert torch.equal(page.run_layers(x, page.draw_weights(2), mask), expected)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_every_order_without_a_mask_and_every_past_in_one_causal_layer(n_layers: int) -> None:
    x = torch.randn(4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = page.draw_weights(n_layers)
    blind, masked = page.run_layers(x, weights), page.run_layers(x, weights, causal)
    changed = []
    for order in itertools.permutations(range(4)):
        shuffled = page.run_layers(x[[*order]], weights)
        torch.testing.assert_close(shuffled, blind[[*order]], rtol=0, atol=1e-13)
        if order[3] == 3:
            last = page.run_layers(x[[*order]], weights, causal)[3]
            changed.append(bool((last - masked[3]).abs().max() > 1e-12))
    assert changed == [False] + [n_layers > 1] * 5


def test_a_word_is_the_same_vector_wherever_it_stands() -> None:
    first, second = page.embed(page.FIRST), page.embed(page.SECOND)
    assert torch.equal(first[[0, 4, 2, 3, 1]], second)
    assert torch.equal(first[0], first[3])
    assert len(first.unique(dim=0)) == 4


def test_words_change_under_a_causal_mask_only() -> None:
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    assert page.word_changes(None).max() < 1e-14
    changed = page.word_changes(causal) > 0.1
    assert changed.tolist() == [False, True, True, True, True]


def test_a_causal_layer_is_not_blind_and_a_plain_one_is() -> None:
    found = page.example_shuffle()
    assert found["no_mask"] == "True"
    assert found["causal"] > 0.1


@pytest.mark.parametrize(("dtype", "first"), [(torch.float16, 1464), (torch.bfloat16, 190)])
def test_the_first_positions_that_read_alike(dtype: torch.dtype, first: int) -> None:
    read = [torch.tensor(1 / t, dtype=torch.float64).to(dtype).item() for t in range(1, first + 2)]
    assert read[first - 1] == read[first]
    assert len({*read[:first]}) == first


def test_two_layers_answer_for_every_order() -> None:
    assert page.example_before() == {"right": 24, "orders": 24}


def test_equal_tokens_can_be_counted_after_a_start_token_only() -> None:
    start, a = torch.randn(
        2, 1, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    for x, apart in ((a.expand(6, 16), False), (torch.cat([start, a.expand(5, 16)]), True)):
        places = page.run_layers(x, page.draw_weights(2), causal)[1:]
        steps = (places[1:] - places[:-1]).abs().amax(-1)
        assert ((steps > 1e-6) == apart).all(), f"a start token: {apart}, steps {steps.tolist()}"


def test_the_published_first_positions_are_the_tables() -> None:
    _, values = page.table_precision()
    assert values["first_bfloat16"] == 190
    assert values["first_float32"] == "none"


def test_positions_show_order_without_a_mask() -> None:
    x, places = torch.randn(
        2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    weights, order = page.draw_weights(1), [3, 0, 4, 1, 2]
    for added, blind in ((torch.zeros_like(places), True), (places, False)):
        moved = page.run_layers(x[order] + added, weights)
        stayed = page.run_layers(x + added, weights)[order]
        assert torch.allclose(moved, stayed, 0, 1e-13) == blind
