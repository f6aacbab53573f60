"""What the page measures with can tell the conventions apart, and its traps are there."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from snippets.attention import attention
from snippets.pages.core import conventions
from tests.snippets.reference import attention_by_hand

Attend = Callable[[Tensor], Tensor]

FLEX = sys.modules["torch.nn.attention.flex_attention"]
MASK = conventions.some_mask()
LENGTHS = pytest.mark.parametrize(("tq", "tk"), [(2, 4), (3, 3), (4, 2)])


def by_hand(mask: Tensor) -> Attend:
    return lambda x: attention(x, x, x, mask)[0]


def tokens(n: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, n, 8, dtype=torch.float64, generator=generator)


# Calls that return their weights


@LENGTHS
def test_the_built_in_returns_its_weights(tq: int, tk: int) -> None:
    q, k, v = conventions.inputs(tq, tk)
    mask = torch.ones(tq, tk, dtype=torch.bool)
    mask[0, -1] = False
    expected = attention_by_hand(q, k, v, mask)[1][0, 0]
    torch.testing.assert_close(conventions.built_in(tq, tk, mask), expected)


@LENGTHS
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_the_layer_returns_its_weights(
    tq: int, tk: int, training: bool, need_weights: bool
) -> None:
    n = max(tq, tk)
    found = conventions.multi_head(tq, tk, training=training, need_weights=need_weights)
    keys, queries = (torch.eye(t, 2 * n, dtype=torch.float64) for t in (tk, tq))
    w_q, w_k, _ = conventions.weighing_layer(n).in_proj_weight.detach().chunk(3)
    q, k = (
        F.linear(x, w).unflatten(-1, (2, n)).transpose(0, 1)
        for x, w in ((queries, w_q), (keys, w_k))
    )
    torch.testing.assert_close(found.detach(), attention_by_hand(q, k, k)[1])


def test_flex_returns_its_weights_traced_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = conventions.inputs(4, 4)

    def mask_mod(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return MASK[i, j]

    expected = attention_by_hand(q, k, v, MASK)[1][0, 0]
    torch.testing.assert_close(conventions.flex(4, 4, mask_mod), expected)
    blocks = create_block_mask(mask_mod, None, None, 4, 4, "cpu")
    monkeypatch.setattr(FLEX, "_WARNINGS_SHOWN", {"flex_attention_performance"})
    traced = flex_attention(q, k, v, block_mask=blocks)
    torch.testing.assert_close(traced[0, 0], expected)


def test_a_grid_says_what_is_seen() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.0, 0.0], [math.nan, 0.0, 1.0]])
    assert conventions.grid(weights) == ["1 0 1", "0 0 0", "NaN"]


@LENGTHS
def test_the_corners_of_causal_masks(tq: int, tk: int) -> None:
    for corner, shift in (("top left", 0), ("bottom right", tk - tq)):
        expected = [[j <= i + shift for j in range(tk)] for i in range(tq)]
        assert conventions.causal(tq, tk, corner).tolist() == expected


# Telling the conventions apart


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([True, False], "attends"),
        ([False, True], "hides"),
        ([True, True], "hides nothing"),
        ([False, False], "hides all"),
    ],
)
def test_a_reading_is_of_the_marked_key(seen: list[bool], said: str) -> None:
    mask = torch.tensor([*seen, True]).expand(3, 3)
    assert conventions.reading(lambda x, _: attention(x, x, x, mask)[0], mask) == said


def test_a_reading_names_what_was_raised() -> None:
    def refuse(*_: Tensor) -> Tensor:
        raise TypeError

    assert conventions.reading(refuse, MASK) == "raises `TypeError`"


def test_the_rule_says_what_each_call_means() -> None:
    rows = {row["call"].strip("`").replace("`", ""): row for row in conventions.table_rule()}
    attends = {name for name, row in rows.items() if row["`True`"] == "attends"}
    hides = {name for name, row in rows.items() if row["`True`"] == "hides"}
    assert {name.partition(":")[0] for name in attends} == {
        "F.scaled_dot_product_attention",
        "FlexAttention",
        "attention on this site",
    }
    assert len(hides) == 6
    assert all(row["`1`"].startswith("raises") for row in rows.values())


@pytest.mark.parametrize(
    ("weigh", "mask", "said"),
    [
        (lambda _, mask: mask, MASK, "True attends"),
        (lambda _, mask: ~mask, MASK, "True hides"),
    ],
)
def test_booleans_are_told_apart(
    weigh: Callable[[Tensor, Tensor], Tensor], mask: Tensor, said: str
) -> None:
    q, k, _ = conventions.inputs(4, 4)
    weights = attention(q, k, k, weigh(q, mask))[1]
    assert conventions.meaning(weights, q, k, mask) == said


def test_what_follows_no_convention_is_said_to_be_something_else() -> None:
    q, k, _ = conventions.inputs(4, 4)
    weights = attention(q, k, k)[1]
    for mask in (MASK, MASK.double() * 2):
        assert conventions.meaning(weights, q, k, mask) == "something else"
    replaced = MASK.double().softmax(-1)
    said = conventions.meaning(replaced, q, k, MASK)
    assert said == "replaces the score, hides nothing"


def test_a_wrong_gradient_is_noticed() -> None:
    q, k, _ = conventions.inputs(4, 4)
    bias = conventions.kinds(MASK)["float that needs a gradient"]
    logits = q @ k.mT / 2

    def halved(mask: Tensor) -> Tensor:
        return (logits + mask / 2 + mask.detach() / 2).softmax(-1)

    assert conventions.answer(halved, q, k, bias) == "added, gradient wrong"
    right = conventions.answer(lambda mask: (logits + mask).softmax(-1), q, k, bias)
    assert right == "added, gradient right"


@pytest.mark.parametrize("kind", ["boolean", "float, 0 and −∞", "float, 0 and 1"])
def test_no_row_of_the_mask_or_of_its_inverse_is_empty(kind: str) -> None:
    for mask in (MASK, ~MASK, MASK[2:3], ~MASK[2:3]):
        assert mask.any(-1).all()
    assert conventions.kinds(MASK)[kind].shape == (4, 4)


# The test of a mask


@pytest.mark.parametrize(
    ("mask", "stays_out", "comes_in"),
    [
        (torch.ones(4, 4).tril() > 0, True, True),
        (torch.ones(4, 4).tril() == 0, False, False),
        (torch.ones(4, 4).triu() > 0, False, False),
        (torch.ones(4, 4) > 0, False, True),
        (torch.eye(4) > 0, True, False),
    ],
    ids=["causal", "inverted", "triu", "no mask", "itself"],
)
def test_the_two_lines_find_an_inverted_mask(mask: Tensor, stays_out: bool, comes_in: bool) -> None:
    f = by_hand(mask)
    assert conventions.future_stays_out(f, tokens()) is stays_out
    assert conventions.past_comes_in(f, tokens()) is comes_in


def test_nan_passes_neither_line() -> None:
    def spoiled(x: Tensor) -> Tensor:
        return x.cumsum(1) * math.nan

    assert not conventions.future_stays_out(spoiled, tokens())
    assert not conventions.past_comes_in(spoiled, tokens())


def test_what_reaches_is_the_mask_and_the_queries_own_token() -> None:
    x = tokens()
    reached = conventions.reach(by_hand(MASK), x)
    assert reached.bool().equal(MASK | torch.eye(4).bool())
    assert conventions.reach(lambda x: x.roll(1, 1), x).equal(torch.eye(4).double().roll(1, 0))
    assert conventions.reach(lambda x: x * math.nan, x).isnan().all()


# The traps, with plain layers


@pytest.mark.parametrize("need_weights", [True, False])
def test_is_causal_alone_lets_the_future_in_on_the_fast_path(need_weights: bool) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = tokens()
    call = partial(layer, x, x, x, need_weights=need_weights)
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        call(is_causal=True)
    layer.eval()
    with torch.no_grad():
        assert torch.equal(call(is_causal=True)[0], call()[0])


def test_the_hint_replaces_a_window_in_training_only() -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = tokens()
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    window = causal & ~causal.tril(-2)
    call = partial(layer, x, x, x, need_weights=False)
    torch.testing.assert_close(
        call(attn_mask=~window, is_causal=True)[0], call(attn_mask=~causal)[0]
    )
    layer.eval()
    with torch.no_grad():
        torch.testing.assert_close(
            call(attn_mask=~window, is_causal=True)[0], call(attn_mask=~window)[0]
        )


def test_an_encoder_hides_by_any_float_but_zero_on_the_fast_path() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).double().eval()
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = tokens()
    bias = MASK.double() * 0.01
    for f, name in ((layer, "src_mask"), (encoder, "mask")):
        slow = f(x, **{name: bias})
        with torch.no_grad():
            fast = f(x, **{name: bias})
            hidden = f(x, **{name: MASK})
        assert torch.equal(fast, hidden)
        assert not torch.allclose(fast, slow, atol=0.1)


def test_flex_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FLEX, "_WARNINGS_SHOWN", set())
    q = torch.zeros(1, 1, 2, 2)
    with torch.compiler.set_stance("force_eager"):
        with pytest.warns(UserWarning, match="flex_attention called without torch.compile"):
            flex_attention(q, q, q)
        flex_attention(q, q, q)  # a warning would be an error


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="no C++ compiler")
def test_flex_compiled_attends_where_true_and_has_no_gradient(
    monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    # Inductor's cache does not tell apart what it compiled under another ATEN_CPU_CAPABILITY.
    cache = pytestconfig.rootpath / ".cache" / "inductor" / torch.backends.cpu.get_cpu_capability()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    torch.compiler.reset()
    q, k, v = (x.float() for x in conventions.inputs(4, 4))
    blocks = create_block_mask(lambda _b, _h, i, j: MASK[i, j], None, None, 4, 4, "cpu")
    compiled = torch.compile(flex_attention)
    found = compiled(q, k, v, block_mask=blocks)
    torch.testing.assert_close(
        found.double(), attention_by_hand(q, k, v, MASK)[0], rtol=0, atol=1e-6
    )
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        compiled(q.requires_grad_(), k, v, block_mask=blocks)


# What other pages may bind


def test_the_values_are_the_published_ones() -> None:
    _, built_in = conventions.table_built_in()
    assert built_in == {"math": "True attends", "flash": "True attends"}
    _, layer = conventions.table_multi_head()
    assert layer == {"weights": "True hides", "fused": "True hides"}
    assert conventions.example_handed_over() == {"weights": "NaN", "fused": "zeros", "fast": "NaN"}
    both = {row["the built-in, given both"]: row["answer"] for row in conventions.table_both()}
    assert (both["flash kernel"], both["math kernel"]) == ("both apply", "raises `RuntimeError`")
    assert conventions.example_one_query() == {"oldest": 1.0}


# What each mask of a transformer layer is for


def test_a_mask_is_for_pairs_and_a_key_padding_mask_for_keys_of_an_example() -> None:
    rows = conventions.table_transformer_masks()
    assert {row["argument"].strip("`"): tuple(row.values())[1:] for row in rows} == {
        name: (
            f"`({'B' if padding else 'T'}, {'S' if memory else 'T'})`",
            "the memory" if memory else "itself",
            f"key 2, from {'every query' if padding else 'query 1'}, "
            f"of {'example 1' if padding else 'every example'}",
        )
        for prefix, memory in (("src", False), ("tgt", False), ("memory", True))
        for name, padding in ((f"{prefix}_mask", False), (f"{prefix}_key_padding_mask", True))
    }


def test_the_hidden_pairs_are_those_that_change_nothing() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True).double()
    x, memory = torch.randn(2, 4, 8).double(), torch.randn(2, 5, 8).double()
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 2] = True
    pairs = conventions.hidden_pairs(layer, (x, memory), "memory_key_padding_mask", hidden)
    assert not pairs["self_attn"].any()
    assert pairs["multihead_attn"].nonzero().tolist() == [[1, i, 2] for i in range(4)]
    changed = memory.clone()
    changed[:, 2] *= -1
    before, after = (layer(x, y, memory_key_padding_mask=hidden) for y in (memory, changed))
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0], after[0])


def test_a_decoder_needs_the_padding_of_the_memory_and_the_future(
    capsys: pytest.CaptureFixture[str],
) -> None:
    conventions.example_transformer_masks()
    assert capsys.readouterr().out == "as without padding: True\nthe future stays out: True\n"


def test_a_release_that_refuses_a_mask_with_the_flag_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("sdpa: Explicit attn_mask should not be set when is_causal=True")

    monkeypatch.setattr(F, "scaled_dot_product_attention", refuse)
    conventions.example_both()
    said = "Explicit attn_mask should not be set when is_causal=True"
    assert capsys.readouterr().out == f"FLASH_ATTENTION: {said}\nMATH: {said}\n"
