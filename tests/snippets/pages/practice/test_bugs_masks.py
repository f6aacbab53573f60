"""Each wrong version of the room is wrong and its right version right, on other draws, too."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.project import Project
from snippets.pages.practice import bugs_masks as page
from tests.snippets.reference import attention_by_hand

DOUBLE = torch.float64
Run = Callable[..., Tensor]


def drawn(*shape: int, seed: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = torch.randn(3, *shape, generator=generator, dtype=DOUBLE).unbind()
    return q, k, v


def near(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=1e-12)


def past(t: int) -> Tensor:
    return torch.ones(t, t, dtype=torch.bool).tril()


# Helpers


def test_differences_are_largest_and_nan_is_not_lost() -> None:
    a = torch.tensor([1.0, 2.0, 3.0])
    assert page.apart(a, torch.tensor([1.0, 4.5, 2.0])) == 2.5
    assert math.isnan(page.apart(a, torch.tensor([9.0, math.nan, 3.0])))
    with pytest.raises(AssertionError):
        page.apart(a, a[:1])


@pytest.mark.parametrize(
    ("error", "text"),
    [(math.nan, "NaN"), (0.0, "below 1e-12"), (2e-12, "0.00"), (0.126, "0.13"), (3.0, "3.00")],
)
def test_amounts_are_told(error: float, text: str) -> None:
    assert page.amount(error) == text


def test_outcomes_are_named() -> None:
    assert page.outcome(lambda: torch.ones(1)) == "runs"
    assert page.outcome(lambda: torch.ones(2) @ torch.ones(3)) == "RuntimeError"
    with pytest.raises(IndexError):
        page.outcome(lambda: torch.ones(1)[1])


def test_rows_of_nan_are_counted_once() -> None:
    x = torch.tensor([[math.nan, math.nan], [1.0, 2.0], [1.0, math.nan]])
    assert page.nan_rows(x) == 2


def test_the_weights_are_read_off() -> None:
    q, k, v = drawn(4, 8)
    weights = page.weights_of(page.right_polarity, q, k)
    expected, by_hand = attention_by_hand(q, k, v, past(4))
    assert near(weights, by_hand)
    assert near(weights @ v, expected)


def test_the_panels_show_what_their_names_say() -> None:
    panels = dict(page.panels(5, 2))
    right = panels.pop("right")
    assert near(right.sum(-1), torch.ones(5, dtype=DOUBLE))
    assert not (right * ~past(5)).any()
    assert len(panels) == 5
    assert not any(near(weights, right) for weights in panels.values())
    assert not (panels["upside down"] * past(5)).any()
    assert near(panels["after the softmax"] / panels["after the softmax"].sum(-1, True), right)
    everywhere = "0 and 1 added", "logits times mask", "floors times triangle"
    assert all((panels[name] > 0).all() for name in everywhere)


# The two versions of each entry: functions of queries, keys and values

MASKED: dict[str, tuple[Run, Run]] = {
    "after the softmax": (page.wrong_after, page.right_after),
    "logits times the mask": (page.wrong_product, page.right_after),
}


@pytest.mark.parametrize("entry", MASKED)
def test_masks_that_empty_no_row(entry: str) -> None:
    q, k, v = drawn(2, 3, 6, 4)
    generator = torch.Generator().manual_seed(1)
    mask = torch.rand(2, 1, 6, 6, generator=generator) < 0.5
    mask[..., 0] = True
    expected, _ = attention_by_hand(q, k, v, mask)
    wrong, right = MASKED[entry]
    assert near(right(q, k, v, mask), expected)
    assert page.apart(wrong(q, k, v, mask), expected) > 0.01
    full = torch.ones(6, 6, dtype=torch.bool)
    assert near(wrong(q, k, v, full), right(q, k, v, full))


CAUSAL: dict[str, tuple[Run, Run]] = {
    "upside down": (page.wrong_polarity, page.right_polarity),
    "0 and 1": (page.wrong_numbers, page.right_numbers),
    "a flag that one path forgets": (
        lambda q, k, v: page.wrong_flag(q, k, v, True, True)[0],
        lambda q, k, v: page.right_flag(q, k, v, True, True)[0],
    ),
}


@pytest.mark.parametrize("entry", CAUSAL)
def test_causal_attention(entry: str) -> None:
    q, k, v = drawn(2, 3, 6, 4)
    expected, _ = attention_by_hand(q, k, v, past(6))
    wrong, right = CAUSAL[entry]
    assert near(right(q, k, v), expected)
    assert page.apart(wrong(q, k, v), expected) > 0.01


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_flag_holds_on_every_path(causal: bool, need_weights: bool) -> None:
    q, k, v = drawn(2, 3, 6, 4)
    mask = past(6) if causal else None
    expected, by_hand = attention_by_hand(q, k, v, mask)
    output, weights = page.right_flag(q, k, v, causal, need_weights)
    assert near(output, expected)
    assert (weights is not None) is need_weights
    assert weights is None or near(weights, by_hand)
    output, _ = page.wrong_flag(q, k, v, causal, need_weights)
    assert near(output, expected) is not (causal and need_weights)


@pytest.mark.parametrize("new", [1, 2, 5, 6])
def test_a_causal_flag_beside_a_cache(new: int) -> None:
    q, k, v = drawn(2, 3, 6, 4)
    expected = attention_by_hand(q, k, v, past(6))[0][:, :, -new:]
    q = q[:, :, -new:]
    assert near(page.right_cache(q, k, v), expected)
    assert near(page.wrong_cache(q, k, v), expected) is (new == 6)


def test_more_queries_than_keys() -> None:
    q, k, v = drawn(2, 3, 6, 4)
    k, v = k[:, :, 2:], v[:, :, 2:]
    expected, _ = attention_by_hand(q, k, v, past(6)[:, 2:])
    right = page.right_longer(q, k, v)
    assert near(right, expected)
    assert not right[:, :, :2].any()
    assert page.apart(page.wrong_longer(q, k, v), expected) > 0.01


def test_empty_rows_and_their_gradients() -> None:
    q, k, v = (x.requires_grad_() for x in drawn(2, 5, 4))
    mask = past(5)
    mask[:2] = False
    expected, _ = attention_by_hand(q.detach(), k.detach(), v.detach(), mask)
    for run, forward, backward in (
        (page.wrong_empty, False, False),
        (page.wrong_repair, True, False),
        (page.right_empty, True, True),
    ):
        output = run(q, k, v, mask)
        assert near(output.detach(), expected) is forward
        gradients = torch.autograd.grad(output[:, 2:].sum(), (q, k, v))
        assert all(bool(x.isfinite().all()) for x in gradients) is backward
        mended = run(q, k, v, past(5)).detach()
        assert near(mended, attention_by_hand(q.detach(), k.detach(), v.detach(), past(5))[0])


def test_nan_passes_through_layers() -> None:
    x = drawn(3, 5, 4)[0]
    lengths = torch.tensor([5, 4, 2])
    real = torch.arange(5) < lengths[:, None]
    for depth in (1, 2, 3):
        right = page.right_layers(x, real, depth)
        assert right.isfinite().all()
        wrong = page.wrong_layers(x, real, depth)
        assert page.nan_rows(wrong[0]) == 0
        assert page.nan_rows(wrong[1]) == (1 if depth == 1 else 5)
        assert page.nan_rows(wrong[2]) == (3 if depth == 1 else 5)
    for b, n in enumerate(lengths.tolist()):
        alone = x[b, :n]
        for _ in range(3):
            alone, _ = attention_by_hand(alone, alone, alone)
        assert near(right[b, :n], alone)


@pytest.mark.parametrize("content", [0.0, -1e30, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("side", ["k", "v"])
def test_padding_that_was_never_written(content: float, side: str) -> None:
    q, k, v = drawn(2, 3, 5, 4)
    real = torch.arange(5) < torch.tensor([[5], [3]])
    mask = real[:, None, None]
    expected, _ = attention_by_hand(q, k, v, mask)
    (k if side == "k" else v)[1, :, 3:] = content
    assert near(page.right_padding(q, k, v, real), expected)
    if side == "v":
        assert near(page.wrong_padding(q, k, v, real), expected) is math.isfinite(content)
    elif math.isnan(content):
        assert page.wrong_padding(q, k, v, real)[1].isnan().all()


def test_padding_on_the_axis_of_the_queries() -> None:
    q, k, v = drawn(3, 2, 5, 4)
    lengths = torch.tensor([5, 3, 1])
    real = torch.arange(5) < lengths[:, None]
    for b, n in enumerate(lengths.tolist()):
        alone, _ = attention_by_hand(q[b, :, :n], k[b, :, :n], v[b, :, :n])
        assert near(page.right_axis(q, k, v, real)[b, :, :n], alone)
        assert near(page.wrong_axis(q, k, v, real)[b, :, :n], alone) is (n == 5)


@pytest.mark.parametrize(("b", "same"), [(1, True), (2, False), (3, False)])
def test_another_sequences_mask(b: int, same: bool) -> None:
    torch.manual_seed(2)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = drawn(b, 4, 8)[0]
    mask = torch.zeros(b, 4, 4, dtype=torch.bool)
    for n in range(b):
        mask[n, :, 4 - n :] = True
    right, wrong = page.right_heads(layer, x, mask), page.wrong_heads(layer, x, mask)
    for n in range(b):
        alone = layer(x[n : n + 1], x[n : n + 1], x[n : n + 1], attn_mask=mask[n])[0]
        assert near(right[n : n + 1].detach(), alone.detach())
    assert near(right, wrong) is same


@pytest.mark.parametrize(("t", "window"), [(6, 1), (6, 3), (4, 4), (3, 9)])
def test_an_additive_mask_times_a_triangle(t: int, window: int) -> None:
    mask = page.right_window(t, window)
    assert mask.tolist() == [[i - window < j <= i for j in range(t)] for i in range(t)]
    assert not page.wrong_window(t, window).any()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_mask_and_a_flag(dropout: float) -> None:
    q, k, v = drawn(2, 3, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, 1] = False
    expected, _ = attention_by_hand(q, k, v, mask & past(5))
    if dropout:
        with pytest.raises(RuntimeError, match="is_causal"):
            page.wrong_both(q, k, v, mask, dropout)
        assert page.right_both(q, k, v, mask, dropout).shape == q.shape
    else:
        assert near(page.right_both(q, k, v, mask), expected)


def test_a_mask_and_a_flag_where_queries_are_fewer() -> None:
    q, k, v = drawn(2, 3, 5, 4)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[:, 1] = False
    expected, _ = attention_by_hand(q[:, :, -2:], k, v, mask & past(5)[-2:])
    assert near(page.right_both(q[:, :, -2:], k, v, mask), expected)


@pytest.mark.parametrize("training", [False, True])
def test_hints(training: bool) -> None:
    torch.manual_seed(2)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double().train(training)
    x = drawn(1, 5, 8)[0]
    window = page.right_window(5, 2)

    def expected(mask: Tensor) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(False)
        output: Tensor = layer(x, x, x, attn_mask=~mask, need_weights=True)[0]
        torch.backends.mha.set_fastpath_enabled(True)
        return output

    with torch.set_grad_enabled(training):
        assert near(page.right_hint(layer, x, window), expected(window))
        assert near(page.right_alone(layer, x), expected(past(5)))
        wrong = page.wrong_hint(layer, x, window)
        assert near(wrong, expected(past(5) if training else window))
        if training:
            with pytest.raises(RuntimeError, match="is_causal"):
                page.wrong_alone(layer, x)
        else:
            assert near(page.wrong_alone(layer, x), expected(torch.ones_like(window)))


def test_two_floors() -> None:
    q, k, v = drawn(2, 5, 4)
    real = torch.arange(5) >= 2
    mask = past(5) & real
    expected, _ = attention_by_hand(q, k, v, mask)
    assert near(page.right_sum(q, k, v, real), expected)
    wrong = page.wrong_sum(q, k, v, real)
    assert near(wrong[:, 2:], expected[:, 2:])
    once = (past(5) ^ real).double()[:2]  # keys that one of the two masks hides, and not both
    assert near(wrong[:, :2], once / once.sum(-1, keepdim=True) @ v)


def test_precisions_of_masks() -> None:
    q, k, v = (x.bfloat16() for x in drawn(1, 2, 5, 4))
    with pytest.raises(RuntimeError, match="attn_mask"):
        page.wrong_dtype(q, k, v, past(5))
    expected, _ = attention_by_hand(q, k, v, past(5))
    torch.testing.assert_close(
        page.right_dtype(q, k, v, past(5)).double(), expected, rtol=2e-2, atol=2e-2
    )


def test_a_bias_is_kept_and_the_fast_path_comes_back() -> None:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True, dtype=DOUBLE)
    x = drawn(2, 4, 8)[0]
    bias = drawn(4, 4)[0].fill_diagonal_(0)  # the fast path hides all but the zeros
    trained = layer.train()(x, src_mask=bias)
    assert near(page.right_bias(layer, x, bias), trained)
    assert page.apart(page.wrong_bias(layer, x, bias), trained) > 0.01
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError):
        page.right_bias(layer, x, bias[:2])
    assert torch.backends.mha.get_fastpath_enabled()


def test_two_kinds_of_mask() -> None:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True, dtype=DOUBLE)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    x = drawn(2, 4, 8)[0]
    padding = torch.arange(4) >= torch.tensor([[4], [2]])
    with pytest.warns(UserWarning, match="mismatched"):
        wrong = page.wrong_mixed(encoder, x, padding)
    with warnings.catch_warnings(action="error"):
        right = page.right_mixed(encoder, x, padding)
    assert near(wrong[~padding], right[~padding])


# The table


def test_the_table_tells_wrong_from_right() -> None:
    rows, values = page.table_mistakes()
    assert values["entries"] == len(rows) == len(page.ENTRIES)
    for row in rows:
        assert row["right"] in ("below 1e-12", "runs", "0"), row
        assert row["wrong"] not in ("below 1e-12", "runs", "0", "0.00"), row
    quiet = [row for row in rows if re.fullmatch(r"\d+\.\d\d", row["wrong"])]
    assert values["silent"] == len(quiet)


def test_each_entry_of_the_table_is_on_the_page() -> None:
    text = Project().markdown("practice/bugs-masks").read_text(encoding="utf-8")
    entries = re.findall(r"^## .+ \{ #([\w-]+) \}$", text, re.M)
    assert entries == [anchor for _, anchor, _, _ in page.ENTRIES]
    for part in ("Symptom", "Right", "Found by", "Reports", "Status"):
        assert text.count(f"\n**{part}**: ") == len(entries)


def test_each_example_prints_both_versions() -> None:
    for _, anchor, _, example in page.ENTRIES:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            example()
        lines = printed.getvalue().splitlines()
        for side in ("wrong", "right"):
            assert any(line.startswith(side) for line in lines), anchor


def test_a_release_that_refuses_a_mask_with_the_flag_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = F.scaled_dot_product_attention

    def refuse(*given: Any, is_causal: bool = False, **options: Any) -> Tensor:
        if is_causal:
            raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
        return whole(*given, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", refuse)
    assert page.example_both() == {"wrong": "RuntimeError", "right": "runs"}
    wrong, right = capsys.readouterr().out.splitlines()
    assert wrong == "wrong: RuntimeError, with dropout RuntimeError, without a batch RuntimeError"
    assert right.startswith("right: error below 1e-12")
