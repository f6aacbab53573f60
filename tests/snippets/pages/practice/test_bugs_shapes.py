"""Wrong versions differ from an independent reference, right ones equal it, and links lead on."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scripts.project import Project
from snippets.pages.practice import bugs_shapes as page
from tests.snippets.reference import attention_by_hand

TEXT = Project().markdown("practice/bugs-shapes").read_text(encoding="utf-8")
PAIRS = list(itertools.product([(6, 4), (6, 6)], [(6, 6), (3, 5)]))  # lengths, two each
NAMES = [f"{anchor}: {name}" for name, anchor, _, _ in page.ENTRIES]


def numbered(*shape: int) -> Tensor:
    return torch.arange(torch.Size(shape).numel()).view(shape)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def test_the_formula_is_attention() -> None:
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 5, 8, seed=1), normal(2, 3, 5, 6, seed=2)
    mask = torch.ones(4, 5).tril().bool()
    for given in (None, mask):
        expected, _ = attention_by_hand(q, k, v, given)
        assert page.apart(page.textbook(q, k, v, given), expected) < 1e-14


def test_a_difference_is_printed_to_two_decimals_or_as_rounding() -> None:
    assert page.amount(0.0) == page.amount(9e-13) == "below 1e-12"
    assert (page.amount(1.234), page.amount(1e-12)) == ("1.23", "0.00")
    assert page.apart(torch.tensor([1.0, -2]), torch.tensor([1.0, 1])) == 3
    with pytest.raises(AssertionError):
        page.apart(torch.ones(2), torch.ones(1))


def test_an_outcome_is_what_is_raised() -> None:
    assert page.outcome(lambda: torch.ones(2)) == "runs"
    assert page.outcome(lambda: torch.ones(2) + torch.ones(3)) == "RuntimeError"
    with pytest.raises(KeyError):
        page.outcome(lambda: dict[str, Tensor]()["an error that nobody expects"])


@pytest.mark.parametrize(("t", "n_heads"), [(5, 3), (4, 4), (2, 6), (1, 4), (5, 1)])
def test_heads_are_columns(t: int, n_heads: int) -> None:
    x = numbered(2, t, 2 * n_heads)
    heads = torch.stack([x[:, :, 2 * h : 2 * h + 2] for h in range(n_heads)], dim=1)
    invisible = 1 in (t, n_heads)
    assert torch.equal(page.right_split(x, n_heads), heads)
    assert torch.equal(page.wrong_split(x, n_heads), heads) == invisible
    assert torch.equal(page.right_merge(heads), x)
    assert torch.equal(page.right_reshape(heads), x)
    assert torch.equal(page.wrong_merge(heads), x) == invisible


def test_a_view_of_transposed_memory_raises_or_is_right() -> None:
    packed = numbered(2, 5, 12)
    heads = page.right_split(packed, 3)
    assert torch.equal(page.wrong_view(heads), packed)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        page.wrong_view(heads.contiguous())


@pytest.mark.parametrize(("h", "h_kv"), [(4, 2), (6, 3), (8, 2), (4, 1), (4, 4)])
def test_a_group_shares_a_key_head(h: int, h_kv: int) -> None:
    k = numbered(2, h_kv, 3, 4)
    expected = torch.stack([k[:, i // (h // h_kv)] for i in range(h)], dim=1)
    assert torch.equal(page.right_groups(k, h // h_kv), expected)
    assert torch.equal(page.wrong_groups(k, h // h_kv), expected) == (h_kv in (1, h))


def test_the_layer_takes_a_padding_mask_the_wrong_way_when_it_fits() -> None:
    layer = nn.MultiheadAttention(8, 2)
    x, padding = torch.zeros(5, 5, 8), torch.zeros(5, 5).bool()
    assert page.outcome(lambda: layer(x, x, x, key_padding_mask=padding)[0]) == "runs"


def test_a_mask_for_all_heads_is_the_same_memory() -> None:
    mask = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5
    assert page.right_mask(mask).data_ptr() == mask.data_ptr()
    assert torch.equal(page.right_mask(mask).expand(2, 3, 5, 5), page.wrong_mask(mask, 3))


def test_a_mean_over_words() -> None:
    x = normal(3, 6, 4)
    lengths = [6, 2, 1]
    real = torch.arange(6) < torch.tensor(lengths)[:, None]
    expected = torch.stack([x[i, :n].sum(0) / n for i, n in enumerate(lengths)])
    assert page.apart(page.right_pool(x, real), expected) < 1e-15
    spoiled = x.masked_fill(~real[..., None], torch.nan)
    assert page.apart(page.right_pool(spoiled, real), expected) < 1e-15
    assert page.apart(page.wrong_pool(x), expected) > 0.1


def test_weights_that_are_there_are_passed_on() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.rand(2, 3, 8)
    with torch.no_grad():
        for weights in (page.wrong_weights, page.right_weights):
            torch.testing.assert_close(weights(layer, x), torch.ones(2, 3))
        assert page.right_weights(layer, x[:0]).shape == (0, 3)
        assert page.right_weights(layer, x[:, :0]).shape == (2, 0)


def block_by_hand(target: Tensor, memory: Tensor) -> Tensor:
    x = target + attention_by_hand(target, target, target)[0]
    return x + attention_by_hand(x, memory, memory)[0]


@pytest.mark.parametrize(("own", "its"), PAIRS)
def test_a_pair_in_a_batch_is_the_pair_alone(own: tuple[int, int], its: tuple[int, int]) -> None:
    target, memory = normal(2, 6, 8), normal(2, 6, 8, seed=1)
    place = torch.arange(6)
    mask = (place < torch.tensor(own)[:, None])[:, None]
    memory_mask = (place < torch.tensor(its)[:, None])[:, None]
    right = page.right_block(target, memory, mask, memory_mask)
    wrong = page.wrong_block(target, memory, mask)
    errors: dict[str, list[float]] = {"right": [], "wrong": []}
    for i, (tq, tk) in enumerate(zip(own, its, strict=True)):
        expected = block_by_hand(target[i, :tq], memory[i, :tk])
        for name, output in (("right", right), ("wrong", wrong)):
            errors[name].append(page.apart(output[i, :tq], expected))
    assert max(errors["right"]) < 1e-14
    assert (max(errors["wrong"]) > 0.05) == (own != its)


def test_attending_to_the_past_is_a_mask() -> None:
    q, memory = normal(1, 2, 4, 8), normal(1, 2, 6, 8, seed=1)
    causal = torch.ones(4, 6).tril().bool()
    expected, _ = attention_by_hand(q, memory, memory, causal)
    assert page.apart(page.attend(q, memory, memory), expected) < 1e-14
    expected, _ = attention_by_hand(q, memory, memory)
    assert page.apart(page.attend(q, memory, memory, is_causal=False), expected) < 1e-14


@pytest.mark.parametrize("entry", page.ENTRIES, ids=NAMES)
def test_wrong_is_wrong_and_right_is_right(entry: Any) -> None:
    _, anchor, _, example = entry
    found = example()
    wrong, right = found["wrong"], found["right"]
    if isinstance(wrong, float):
        assert wrong > 0.1
        assert right < 1e-12
    else:
        expected = {
            "view": ("RuntimeError", "runs"),
            "enable-gqa": ("RuntimeError", "right"),
            "unread-weights": (4 * 128 * 128, 0),
            "mask-memory": (2 * 12 * 64 * 64, 2 * 64 * 64),
            "shorter-output": (3, 6),
            "empty-batch": ("AttributeError", "runs"),
        }
        assert (wrong, right) == expected[anchor]


def test_the_table_has_every_entry_of_the_page() -> None:
    rows = page.table_mistakes()
    linked = [re.search(r"\(#([\w-]+)\)$", row["mistake"])[1] for row in rows]  # type: ignore[index]
    assert list(dict.fromkeys(linked)) == re.findall(r"^## .+ \{ #([\w-]+) \}$", TEXT, re.M)


def test_every_entry_has_all_its_parts_in_order() -> None:
    _, *entries = re.split(r"^## ", TEXT, flags=re.M)
    assert len(entries) == 14
    for entry in entries:
        parts = (
            "**Symptom**",
            "<!-- example",
            "**Right**",
            "**Found by**",
            "**Reports**",
            "**Status**",
        )
        places = [entry.find(part) for part in parts]
        assert -1 not in places, entry.splitlines()[0]
        assert places == sorted(places), entry.splitlines()[0]
        reports = entry[places[4] : places[5]]
        assert 2 <= reports.count("](https://github.com/") <= 5, entry.splitlines()[0]
