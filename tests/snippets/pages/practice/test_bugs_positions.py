"""In each entry the wrong version differs, the right one does not, and the helpers are right."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from snippets import masks
from snippets.attention import attention
from snippets.pages.practice import bugs_positions as page

EXAMPLES = [example for _, _, example in page.MISTAKES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__)
def test_the_wrong_version_differs_and_the_right_one_does_not(
    example: Callable[[], dict[str, float]],
) -> None:
    found = example()
    assert found["wrong"] > 0.1
    assert found["right"] < (2**-8 if example is page.example_precision else 1e-12)


def test_every_entry_is_in_the_table() -> None:
    examples = {name for name in vars(page) if name.startswith("example_")}
    assert {example.__name__ for example in EXAMPLES} == examples
    assert len(EXAMPLES) == len(examples) == len(page.table_mistakes())


@pytest.mark.parametrize("seed", range(5))
def test_rope_turns_pairs_as_complex_numbers(seed: int) -> None:
    x = page.draw(7, 8, seed=seed)
    positions = torch.tensor([0, 1, 2, 5, 60, 4000, 131_072])
    turned = page.rope(x, positions)
    for row, position in enumerate(positions.tolist()):
        for i in range(4):
            angle = position * 10_000 ** (-2 * i / 8)
            pair = complex(x[row, i].item(), x[row, i + 4].item())
            pair *= complex(math.cos(angle), math.sin(angle))
            assert math.isclose(turned[row, i].item(), pair.real, abs_tol=1e-9)
            assert math.isclose(turned[row, i + 4].item(), pair.imag, abs_tol=1e-9)


def test_rope_depends_on_distances_and_keeps_norms() -> None:
    q, k = page.draw(2, 5, 16)
    t = torch.arange(5)
    here = page.rope(q, t) @ page.rope(k, t).T
    there = page.rope(q, t + 1000) @ page.rope(k, t + 1000).T
    torch.testing.assert_close(here, there, rtol=0, atol=1e-10)
    torch.testing.assert_close(page.rope(q, t).norm(dim=-1), q.norm(dim=-1))
    assert torch.equal(page.rope(q, t)[0], q[0])


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (2, 5), (1, 4)])
def test_attention_and_its_mask_are_those_of_the_site(n_queries: int, n_keys: int) -> None:
    q, k, v = page.draw(n_queries, 8), *page.draw(2, n_keys, 8, seed=1)
    mask = page.causal(n_queries, n_keys)
    assert torch.equal(mask, masks.causal(n_queries, n_keys)[0, 0])
    expected, _ = attention(q, k, v, mask)
    torch.testing.assert_close(page.attend(q, k, v, mask), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(page.attend(q, k, v), attention(q, k, v)[0], rtol=0, atol=1e-14)


def test_draws_are_the_same_each_time_and_differ_by_seed() -> None:
    assert torch.equal(page.draw(3, 4), page.draw(3, 4))
    assert not torch.equal(page.draw(3, 4), page.draw(3, 4, seed=1))


def test_an_error_is_said_in_two_places_or_as_rounding() -> None:
    assert page.say(0.5) == "0.50"
    assert page.say(1e-13) == page.say(0.0) == "below 1e-12"
    assert page.apart(torch.tensor([1.0, 2.0]), torch.tensor([1.5, -1.0])) == 3.0


def test_one_new_token_needs_a_mask_under_a_window_unless_the_cache_is_cut_to_it() -> None:
    found = page.example_prefill()
    q, k, v = page.draw(3, 6, 8)
    everything, near = (
        torch.tensor([(q[5] @ x / math.sqrt(8)).item() for x in keys]).double().softmax(0) @ values
        for keys, values in ((k, v), (k[3:], v[3:]))
    )
    assert math.isclose(found["uncut"], page.apart(everything, near), rel_tol=1e-6)
    assert found["uncut"] > 0.1


def test_proportional_rope_is_the_version_that_is_wrong_elsewhere() -> None:
    found = page.example_partial()
    assert found["proportional"] == "True"
    assert found["wrong"] > 1


def test_the_right_window_is_the_mask_of_the_site() -> None:
    right = page.causal(6, 6).triu(1 - 3)
    assert torch.equal(right, masks.sliding_window(6, 6, 3)[0, 0])


def test_frequencies_follow_the_dtype_of_the_module() -> None:
    late, cast = page.Rotary(8), page.Rotary(8).bfloat16()
    t = torch.arange(300)
    exact = page.angles(t, 8).cos()
    assert (late(t).double() - exact).abs().max() < 1e-4
    assert cast(t).dtype == torch.bfloat16
    assert torch.equal(cast(t)[256], cast(t)[257])  # 257 is not a bfloat16
    assert not torch.equal(late(t)[256], late(t)[257])


def test_the_ring_heals_after_a_window() -> None:
    assert page.example_rolled()["count"] == 4 - 1
