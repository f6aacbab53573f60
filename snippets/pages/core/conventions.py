"""What the page on the conventions of masks runs."""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import zip_longest
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from snippets.attention import attention

SDPA = F.scaled_dot_product_attention
KERNELS = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION
REFUSALS = AssertionError, AttributeError, RuntimeError, TypeError, ValueError


# The first screen


def reading(call: Callable[[Tensor, Tensor], Tensor], mask: Tensor) -> str:
    """Say whether a query sees the keys that are marked in the mask.

    `call` maps x, (B, T, C) = (3, 3, 8), and a mask, (T, T), to outputs
    (B, T, C). The first column of the mask is marked, the others are not.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(1, 3, 8, dtype=torch.float64, generator=generator)
    x = x.repeat(3, 1, 1)  # (B, T, C): as it is, and with one key changed
    x[1, 0] *= -1  # the marked one
    x[2, 1] *= -1  # one that is not
    try:
        last = call(x, mask)[:, 2].detach()  # (B, C): what the last query gets
    except REFUSALS as error:
        return f"raises `{type(error).__name__}`"
    marked, unmarked = ((last[1:] - last[0]).abs().amax(-1) > 1e-9).tolist()
    sees = {
        (True, False): "attends",
        (False, True): "hides",
        (True, True): "hides nothing",
        (False, False): "hides all",
    }
    return sees[marked, unmarked]


def table_rule():
    options = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64}
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, **options)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, **options)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, **options)
    other = torch.randn(1, 3, 8).double().expand(3, 3, 8)

    def keys(mask: Tensor) -> Tensor:  # a mask of keys, (B, T)
        return mask[:1].expand(3, 3)

    def flex_call(x: Tensor, mask: Tensor) -> Tensor:
        def mask_mod(_b, _h, i, j):
            return mask[i, j]

        blocks = create_block_mask(mask_mod, None, None, 3, 3, x.device)
        x = x[:, None].detach()  # (B, H, T, d)
        with not_traced():
            return flex_attention(x, x, x, block_mask=blocks)[:, 0]

    calls: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "`F.scaled_dot_product_attention`: `attn_mask`": lambda x, mask: SDPA(
            x, x, x, mask
        ),
        "FlexAttention: what `mask_mod` returns": flex_call,
        "`attention` on this site": lambda x, mask: attention(x, x, x, mask)[0],
        "`nn.MultiheadAttention`: `attn_mask`": lambda x, mask: layer(
            x, x, x, attn_mask=mask
        )[0],
        "the same: `key_padding_mask`": lambda x, mask: layer(
            x, x, x, key_padding_mask=keys(mask)
        )[0],
        "`nn.TransformerEncoderLayer`: `src_mask`": lambda x, mask: encoder(
            x, src_mask=mask
        ),
        "the same: `src_key_padding_mask`": lambda x, mask: encoder(
            x, src_key_padding_mask=keys(mask)
        ),
        "`nn.TransformerDecoderLayer`: `tgt_mask`": lambda x, mask: decoder(
            x, other, tgt_mask=mask
        ),
        "the same: `memory_mask`": lambda x, mask: decoder(
            other, x, memory_mask=mask
        ),
    }
    marked = torch.zeros(3, 3, dtype=torch.bool)
    marked[:, 0] = True  # the first key, for every query
    given = {"`True`": marked, "`1.0`": marked.double(), "`1`": marked.long()}
    rows = []
    for name, call in calls.items():
        row = {"call": name}
        for kind, mask in given.items():
            found = []
            for training in (True, False):
                for module in (layer, encoder, decoder):
                    module.train(training)
                with torch.set_grad_enabled(training):
                    found.append(reading(call, mask))
            trained, evaluated = found
            same = "" if evaluated == trained else f"; evaluated: {evaluated}"
            row[kind] = trained + same
        rows.append(row)
    return rows


@contextmanager
def not_traced() -> Iterator[None]:
    """Run FlexAttention at once: tracing, its default, takes a while.

    It warns once in a process that it is slow unless compiled; not here.
    """
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.filterwarnings("ignore", "flex_attention called without")
        yield


# Calls that return their weights


def inputs(tq: int, tk: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random q and k, and the identity for v, each (B, H, T, d).

    What a call returns for them is its weights, (B, H, Tq, Tk).
    """
    generator = torch.Generator("cpu").manual_seed(0)
    q, k = (
        torch.randn(1, 1, n, tk, dtype=torch.float64, generator=generator)
        for n in (tq, tk)
    )
    return q, k, torch.eye(tk, dtype=torch.float64)[None, None]


def built_in(
    tq: int, tk: int, mask: Tensor | None = None, *, is_causal: bool = False
) -> Tensor:
    """Weights (Tq, Tk) of the built-in, the same through both CPU kernels."""
    found = []
    for kernel in KERNELS:
        with sdpa_kernel(kernel):
            output = SDPA(*inputs(tq, tk), mask, is_causal=is_causal)
        found.append(output[0, 0])
    by_math, by_flash = found
    assert torch.allclose(by_math, by_flash, rtol=0, atol=1e-14)
    return by_math


def weighing_layer(n: int) -> nn.MultiheadAttention:
    """A layer of two heads of width n whose output is its weights.

    Where keys and values are rows of the identity, (T, 2n), the output is the
    weights of the first head beside those of the second.
    """
    double = torch.float64
    layer = nn.MultiheadAttention(2 * n, 2, batch_first=True, dtype=double)
    generator = torch.Generator("cpu").manual_seed(0)
    w_qk = torch.randn(4 * n, 2 * n, dtype=double, generator=generator)
    w_v = torch.eye(n, 2 * n).repeat(2, 1)  # the first n features, twice
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([w_qk, w_v]))
        layer.out_proj.weight.copy_(torch.eye(2 * n))
    return layer


def multi_head(
    tq: int,
    tk: int,
    *,
    training: bool = True,
    need_weights: bool = True,
    **masks: Tensor | bool,
) -> Tensor:
    """Weights (H, Tq, Tk) of a layer in training, or evaluated in no_grad."""
    n = max(tq, tk)
    layer = weighing_layer(n).train(training)
    keys = torch.eye(tk, 2 * n, dtype=torch.float64)[None]  # (B, Tk, C)
    queries = keys if tq == tk else torch.eye(tq, 2 * n).double()[None]
    with torch.set_grad_enabled(training):
        output, _ = layer(
            queries, keys, keys, need_weights=need_weights, **masks
        )  # (B, Tq, C)
    heads = output[0].unflatten(-1, (2, n)).transpose(0, 1)  # (H, Tq, n)
    return heads[..., :tk]  # (H, Tq, Tk)


def flex(tq: int, tk: int, mask_mod: Callable[..., Tensor]) -> Tensor:
    """Weights (Tq, Tk) of FlexAttention, not compiled."""
    q, k, v = inputs(tq, tk)
    blocks = create_block_mask(mask_mod, None, None, tq, tk, q.device)
    with not_traced():
        return flex_attention(q, k, v, block_mask=blocks)[0, 0]


def grid(weights: Tensor) -> list[str]:
    """Rows of 1 where a query attends to a key and 0 where not, or NaN."""
    return [
        "NaN"
        if row.isnan().any()
        else " ".join("1" if weight else "0" for weight in row.tolist())
        for row in weights
    ]


def causal(tq: int, tk: int, corner: str = "top left") -> Tensor:
    """Causal mask (Tq, Tk), True = may attend, aligned in a corner."""
    shift = {"top left": 0, "bottom right": tk - tq}[corner]
    return torch.ones(tq, tk, dtype=torch.bool).tril(shift)


# Figures


def draw(axes: Axes, weights: Tensor) -> None:
    """Draw which key (across) each query (down) attends to; name NaN rows."""
    look: dict[str, Any]
    place: dict[str, Any] = {"ha": "center", "va": "center", "color": "C1"}
    tq, tk = weights.shape
    for i, row in enumerate(weights):
        if row.isnan().any():
            look = {"fill": False, "ec": "C1", "lw": 1.5}
            axes.add_patch(Rectangle((0, i), tk, 1, **look))
            axes.text(tk / 2, i + 0.5, "NaN", **place)
            continue
        for j, weight in enumerate(row.tolist()):
            look = {"fill": bool(weight), "fc": "C0", "ec": "C0", "lw": 0.8}
            axes.add_patch(Rectangle((j + 0.08, i + 0.08), 0.84, 0.84, **look))
    axes.set(xlim=(-0.1, tk + 0.1), ylim=(tq + 0.1, -0.1), aspect="equal")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def figure_same_mask() -> Figure:
    """One causal mask and what two calls make of it, query down, key across.

    The mask is True in a lower triangle. The built-in attends to that lower
    triangle. nn.MultiheadAttention attends to the upper triangle without the
    diagonal, and its last row is NaN.
    """
    mask = causal(5, 5)
    layer = multi_head(5, 5, attn_mask=mask)[0].detach()  # the first head
    panels = {
        "the mask,\nfilled = True": mask,
        "F.scaled_dot_\nproduct_attention": built_in(5, 5, mask),
        "nn.Multihead-\nAttention": layer,
    }
    figure, axes = plt.subplots(1, 3, figsize=(5.2, 2.4))
    for at, (name, weights) in zip(axes, panels.items(), strict=True):
        draw(at, weights)
        at.set_title(name)
        at.set_xlabel("key")
    axes[0].set_ylabel("query")
    return figure


def figure_alignment() -> Figure:
    """Two causal alignments at three pairs of lengths, query down, key across.

    With is_causal the triangle starts in the top left corner, with
    causal_lower_right it ends in the bottom right corner. They differ for two
    queries and four keys and for four queries and two keys, where the first
    two queries have no key at the bottom right. They agree at three and three.
    """
    lengths = (2, 4), (3, 3), (4, 2)
    ratios = [tk for _, tk in lengths]
    figure, axes = plt.subplots(2, 3, figsize=(5.2, 4.2), width_ratios=ratios)
    for column, (tq, tk) in zip(axes.T, lengths, strict=True):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Lower right causal bias")
            lower = built_in(tq, tk, causal_lower_right(tq, tk))
        draw(column[0], built_in(tq, tk, is_causal=True))
        draw(column[1], lower)
        column[0].set_title(f"{tq} queries,\n{tk} keys")
        for at in column:
            at.set_ylim(4.1, -0.1)
    axes[0, 0].set_ylabel("is_causal=True")
    axes[1, 0].set_ylabel("causal_lower_right")
    return figure


# The test


def future_stays_out(f: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether no earlier output changes with the last input, (B, T, C)."""
    changed = x.clone()
    changed[:, -1] *= -1
    return torch.equal(f(x)[:, :-1], f(changed)[:, :-1])


def past_comes_in(f: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    """Whether the last output is finite and changes with the first input."""
    changed = x.clone()
    changed[:, 0] *= -1
    last, other = f(x)[:, -1], f(changed)[:, -1]
    return bool(last.isfinite().all()) and not torch.equal(last, other)


def reach(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Which input reaches which output of a layer or a model, (T, T).

    For x (1, T, C) and a batch first: 1 at (i, j) where output i changes with
    input j, 0 where it does not, NaN where output i is NaN.
    """
    n = x.shape[1]
    changed = x.repeat(n + 1, 1, 1)  # (T + 1, T, C): the last as it is
    changed[range(n), range(n)] *= -1
    outputs = f(changed).detach()  # (T + 1, T, C)
    moved = (outputs[:-1] - outputs[-1]).abs().amax(-1)  # (T, T): by j, by i
    return torch.where(moved.isnan(), moved, (moved > 1e-9).double()).mT


def example_test():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8).double()  # (B, T, C)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).double()
    mask = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    for name, given in (("~mask", ~mask), ("mask", mask)):
        f = partial(layer, src_mask=given)
        print(f"src_mask={name}")
        print("  the future stays out:", future_stays_out(f, x))
        print("  the past comes in:", past_comes_in(f, x))
        print("  inputs (across) that reach each output (down):")
        print("   ", "\n    ".join(grid(reach(f, x))))


def example_padding_test():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = torch.randn(1, 5, 8).double()  # (B, T, C)
    real = torch.tensor([[True, True, True, False, False]])  # (B, T)
    changed = torch.where(real[..., None], x, -x)  # other padding
    for name, given in (("~real", ~real), ("real", real)):
        before, after = (layer(y, y, y, given)[0][real] for y in (x, changed))
        out = torch.equal(before, after)
        print(f"key_padding_mask={name:5}: the padding stays out: {out}")


def table_tests():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8).double()  # (B, T, C)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    mask = causal(4, 4)

    def built(mask: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: SDPA(x, x, x, mask)

    def layered(training: bool = True, **options: Tensor | bool):
        def run(x: Tensor) -> Tensor:
            layer.train(training)
            with torch.set_grad_enabled(training):
                return layer(x, x, x, **options)[0]

        return run

    versions: dict[str, Callable[[Tensor], Tensor]] = {
        "built-in, `mask`": built(mask),
        "built-in, `~mask`": built(~mask),
        "built-in, `mask.double()`": built(mask.double()),
        "layer, `~mask`": layered(attn_mask=~mask),
        "layer, `mask`": layered(attn_mask=mask),
        "the same, `need_weights=False`": layered(
            attn_mask=mask, need_weights=False
        ),
        "layer, `is_causal` alone, evaluated": layered(False, is_causal=True),
        "built-in, `mask.tril(-1)`": built(mask.tril(-1)),
    }
    answers = {True: "passes", False: "fails"}
    return [
        {
            "causal self-attention by": name,
            "the future stays out": answers[future_stays_out(f, x)],
            "the past comes in": answers[past_comes_in(f, x)],
        }
        for name, f in versions.items()
    ]


# The contract


def some_mask() -> Tensor:
    """A mask (4, 4) that leaves each query a key, and so does its inverse."""
    rows = ("1001", "1100", "0111", "1110")
    return torch.tensor([[c == "1" for c in row] for row in rows])


def kinds(mask: Tensor) -> dict[str, Tensor]:
    """A boolean mask, written in the ways that people try, and a bias."""
    zeros = torch.zeros(mask.shape, dtype=torch.float64)
    generator = torch.Generator("cpu").manual_seed(1)
    bias = torch.randn(mask.shape, dtype=torch.float64, generator=generator)
    additive = zeros.masked_fill(~mask, -math.inf)
    return {
        "boolean": mask,
        "float, 0 and −∞": additive,
        "float, 0 and 1": mask.double(),
        "integer, 0 and 1": mask.long(),
        "float32, 0 and −∞": additive.float(),
        "float16, 0 and −∞": additive.half(),
        "float that needs a gradient": bias.requires_grad_(),
    }


def meaning(weights: Tensor, q: Tensor, k: Tensor, mask: Tensor) -> str:
    """Say what a call made of its mask, from the weights that it returned.

    Everything is compared in float64 and to within 1e-12: with `attention`,
    and with the softmax of the logits and the mask, added by hand.
    """

    def same(left: Tensor, right: Tensor) -> bool:
        return torch.allclose(left, right, rtol=0, atol=1e-12)

    if mask.dtype == torch.bool:
        for name, expected in (
            ("True attends", attention(q, k, k, mask)[1]),
            ("True hides", attention(q, k, k, ~mask)[1]),
            ("replaces the score, hides nothing", mask.double().softmax(-1)),
        ):
            if same(weights, expected):
                return name
        return "something else"
    by_hand = (q @ k.mT / math.sqrt(q.shape[-1]) + mask).softmax(-1)
    if not same(weights, by_hand):
        return "something else"
    if not mask.requires_grad:
        hides = "−∞ hides" if (weights == 0).any() else "hides nothing"
        return f"added, {hides}"
    if not weights.requires_grad:
        return "added, no gradient"
    loss = torch.arange(weights.numel()).view_as(weights).double().cos()
    (found,) = torch.autograd.grad((weights * loss).sum(), mask)
    (right,) = torch.autograd.grad((by_hand * loss).sum(), mask)
    return f"added, gradient {'right' if same(found, right) else 'wrong'}"


def answer(
    call: Callable[[Tensor], Tensor], q: Tensor, k: Tensor, mask: Tensor
) -> str:
    """Say what a call made of its mask, what it raised or that it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            weights = call(mask)
        except REFUSALS as error:
            return f"raises `{type(error).__name__}`"
    warned = [f", warns `{w.category.__name__}`" for w in caught]
    return meaning(weights, q, k, mask) + "".join(warned)


def table_built_in():
    q, k, v = inputs(4, 4)
    rows, values = [], {}
    for name, mask in kinds(some_mask()).items():
        row = {"mask, where q is float64": name}
        for kernel in KERNELS:
            with sdpa_kernel(kernel):
                said = answer(partial(SDPA, q, k, v), q, k, mask)
            title = kernel.name.lower().removesuffix("_attention")
            row[f"{title} kernel"] = said
            values.setdefault(title, said)  # of the boolean mask, the first
        rows.append(row)
    return rows, values


def table_multi_head():
    x = torch.eye(4, 8, dtype=torch.float64)  # (T, C)
    q, k, _ = (
        y.unflatten(-1, (2, 4)).transpose(0, 1).detach()  # (H, T, d)
        for y in F.linear(x, weighing_layer(4).in_proj_weight).chunk(3, dim=-1)
    )
    arguments = {"attn_mask": some_mask(), "key_padding_mask": some_mask()[2:3]}
    native = torch._native_multi_head_attention  # what the fast path calls

    def answers(kind: str, training: bool, need_weights: bool) -> set[str]:
        options: dict[str, Any] = {
            "training": training,
            "need_weights": need_weights,
        }

        def given(argument: str, mask: Tensor) -> str:
            def call(mask: Tensor) -> Tensor:
                return multi_head(4, 4, **(options | {argument: mask}))

            with patch("torch._native_multi_head_attention", wraps=native) as f:
                said = answer(call, q, k, kinds(mask)[kind])
            return said + ", fast path" * f.called

        return {given(*pair) for pair in arguments.items()}

    rows, values = [], {}
    for kind in kinds(some_mask()):
        row, evaluated = {"mask, where x is float64": kind}, set()
        for need_weights in (True, False):
            title = f"`need_weights={need_weights}`"
            (said,) = answers(kind, True, need_weights)  # either argument
            row[title] = said
            # Of the boolean mask, the first.
            values.setdefault("weights" if need_weights else "fused", said)
            for found in answers(kind, False, need_weights):
                evaluated.add(found.replace(said, "the same"))
        (row["evaluated in `no_grad`"],) = evaluated
        rows.append(row)
    return rows, values


def example_mixed():
    mask = torch.ones(3, 3, dtype=torch.bool).tril()  # True = may attend
    additive = torch.where(mask, 0.0, -math.inf).double()
    padding = torch.tensor([[False, True, False]])  # True = hidden
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weights = multi_head(
            3, 3, attn_mask=additive, key_padding_mask=padding
        )  # (H, Tq, Tk)
    print(*grid(weights[0]), sep="\n")
    print("warned:", str(caught[0].message).split(". ")[0])


def table_flex():
    q, k, v = inputs(4, 4)
    trained = q.clone().requires_grad_()
    mask = some_mask()
    bias = kinds(mask)["float that needs a gradient"]

    def masked(returned: Tensor) -> Tensor:
        def mask_mod(_b, _h, i, j):
            return returned[i, j]

        blocks = create_block_mask(mask_mod, None, None, 4, 4, q.device)
        return flex_attention(q, k, v, block_mask=blocks)

    def hidden(score, _b, _h, i, j):
        return torch.where(mask[i, j], score, -math.inf)

    def replaced(_score, _b, _h, i, j):
        return mask[i, j]

    def learned(score, _b, _h, i, j):
        return score + bias[i, j]

    def untraced(_: Tensor) -> Tensor:
        with torch.compiler.set_stance("force_eager"):
            return flex_attention(q, k, v, learned)

    def tensor(mask: Any) -> Tensor:
        return flex_attention(q, k, v, block_mask=mask)

    calls: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
        "`mask_mod` returns a boolean": (masked, mask),
        "`mask_mod` returns a float": (masked, mask.double()),
        "`mask_mod` returns an integer": (masked, mask.long()),
        "a boolean tensor as `block_mask`": (tensor, mask),
        "`score_mod` returns the score or −∞": (
            lambda _: flex_attention(q, k, v, hidden),
            mask,
        ),
        "`score_mod` returns a boolean": (
            lambda _: flex_attention(q, k, v, replaced),
            mask,
        ),
        "`score_mod` adds a learned bias": (
            lambda _: flex_attention(q, k, v, learned),
            bias,
        ),
        "the same, stance `force_eager`": (untraced, bias),
        "the same, where q needs a gradient": (
            lambda _: flex_attention(trained, k, v, learned),
            bias,
        ),
    }
    rows = []
    for name, (call, given) in calls.items():
        # As in a new process: the warning is given once in each.
        shown = "torch.nn.attention.flex_attention._WARNINGS_SHOWN"
        with patch(shown, set()):
            said = answer(call, q, k, given)
        rows.append({"FlexAttention, given": name, "answer": said})
    return rows


def table_dtypes():
    floats = torch.float64, torch.float32, torch.float16, torch.bfloat16
    bounds = dict(zip(floats, (1e-14, 1e-5, 4e-3, 4e-2), strict=True))
    bias = kinds(some_mask())["float that needs a gradient"].detach()

    def taken(dtype: torch.dtype, mask: Tensor) -> str:
        q, k, v = (x.to(dtype) for x in inputs(4, 4))
        layer = weighing_layer(4).to(dtype)
        x = torch.eye(4, 8, dtype=dtype)[None]  # (B, T, C)
        exact = SDPA(q.double(), k.double(), v.double(), mask.double())
        built = 0
        for kernel in KERNELS:
            with sdpa_kernel(kernel):
                try:
                    output = SDPA(q, k, v, mask)
                except RuntimeError:
                    continue
            built += output.dtype == dtype
            assert (output.double() - exact).abs().max() < bounds[dtype]
        found = [{0: False, 2: True}[built]]
        for need_weights in (False, True):
            try:
                layer(x, x, x, attn_mask=mask, need_weights=need_weights)
                found.append(True)
            except RuntimeError:
                found.append(False)
        answers: dict[tuple[bool, ...], str] = {
            (True, True, True): "all",
            (True, True, False): "all but `need_weights=True`",
            (False, False, False): "none",
        }
        return answers[tuple(found)]

    rows = []
    for dtype in floats:
        name = str(dtype).removeprefix("torch.")
        row = {"q": name}
        for other in floats:
            title = f"{str(other).removeprefix('torch.')} mask"
            row[title] = taken(dtype, bias.to(other))
        rows.append(row)
    return rows


def example_learned():
    sdpa = F.scaled_dot_product_attention
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 8, 2, 6, 16).double().unbind()  # (B, H, T, d)
    mask = torch.ones(6, 6, dtype=torch.bool).tril()  # True = may attend
    right = torch.randn(6, 6).double()
    wanted = sdpa(q, k, v, right.masked_fill(~mask, -math.inf))

    bias = nn.Parameter(torch.zeros(6, 6, dtype=torch.float64))
    optimizer = torch.optim.LBFGS([bias], max_iter=60, tolerance_change=0)

    def attend():
        both = bias.masked_fill(~mask, -math.inf)  # a bias and a mask in one
        return sdpa(q, k, v, both)  # (B, H, T, d)

    def loss():
        optimizer.zero_grad()
        value = (attend() - wanted).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    found = torch.allclose(attend(), wanted, atol=1e-3)
    print("the outputs are right:", found)
    off = (bias - right).detach() * mask  # (Tq, Tk)
    free = off[:, :1] * mask  # a constant added to a row of logits
    print(
        "the bias is right, but for a constant a query:",
        torch.allclose(off, free, atol=1e-2),
    )


def example_encoder_layer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).double()
    x = torch.randn(2, 4, 8).double()  # (B, T, C)
    distance = torch.arange(4)[:, None] - torch.arange(4)  # (T, T)
    bias = -0.5 * distance.abs().double()  # near keys count for more

    trained = layer(x, src_mask=bias)
    layer.eval()
    with torch.no_grad():
        evaluated = layer(x, src_mask=bias)
        itself = layer(x, src_mask=distance != 0)  # True = hidden
        torch.backends.mha.set_fastpath_enabled(False)
        slow = layer(x, src_mask=bias)
        torch.backends.mha.set_fastpath_enabled(True)
    print("evaluated as trained:", torch.allclose(evaluated, trained))
    print("as if each token saw itself alone:", torch.equal(evaluated, itself))
    print("without the fast path, as trained:", torch.allclose(slow, trained))
    return {"off": (evaluated - trained).abs().max().item()}


def hidden_pairs(
    layer: nn.Module, inputs: tuple[Tensor, ...], mask: str, hidden: Tensor
) -> dict[str, Tensor]:
    """Which weights (B, Tq, Tk) of each attention a mask set to 0."""
    found: dict[str, Tensor] = {}

    def ask(_module, given, options):
        return given, options | {"need_weights": True}

    for name, child in layer.named_children():
        if isinstance(child, nn.MultiheadAttention):
            child.register_forward_pre_hook(ask, with_kwargs=True)
            child.register_forward_hook(
                lambda _m, _i, outputs, name=name: found.update(
                    {name: outputs[1] == 0}
                )
            )
    layer(*inputs, **{mask: hidden})
    return found


def table_transformer_masks():
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 5, 8)  # (B, T, C)
    rows = []
    for kind, inputs, mask, given in (
        ("Encoder", (x,), "src_mask", "(T, T)"),
        ("Encoder", (x,), "src_key_padding_mask", "(B, T)"),
        ("Decoder", (x, memory), "tgt_mask", "(T, T)"),
        ("Decoder", (x, memory), "tgt_key_padding_mask", "(B, T)"),
        ("Decoder", (x, memory), "memory_mask", "(T, S)"),
        ("Decoder", (x, memory), "memory_key_padding_mask", "(B, S)"),
    ):
        make = getattr(nn, f"Transformer{kind}Layer")
        layer = make(8, 2, 16, 0.0, batch_first=True)
        sizes = {"B": 2, "T": 4, "S": 5}
        shape = [sizes[letter] for letter in given if letter in sizes]
        hidden = torch.zeros(shape, dtype=torch.bool)
        hidden[1, 2] = True  # query 1 and key 2, or example 1 and key 2
        zeros = hidden_pairs(layer, inputs, mask, hidden)
        ((name, pairs),) = ((n, p) for n, p in zeros.items() if p.any())
        examples, queries, keys = (
            sorted(set(index.tolist())) for index in pairs.nonzero().unbind(1)
        )
        assert len(examples) * len(queries) * len(keys) == pairs.sum()
        attends = {"self_attn": "itself", "multihead_attn": "the memory"}
        rows.append(
            {
                "argument": f"`{mask}`",
                "shape": f"`{given}`",
                "of the attention to": attends[name],
                "True at (1, 2) hides": ", ".join(
                    (
                        f"key {keys[0]}",
                        "from every query"
                        if len(queries) == pairs.shape[1]
                        else f"from query {queries[0]}",
                        "of every example"
                        if len(examples) == len(pairs)
                        else f"of example {examples[0]}",
                    )
                ),
            }
        )
    return rows


def example_transformer_masks():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
    x, memory = torch.randn(2, 4, 8), torch.randn(2, 5, 8)  # (B, T, C)
    layer, x, memory = layer.double(), x.double(), memory.double()
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)  # True = hidden
    padded = torch.arange(5) >= torch.tensor([[5], [3]])  # (B, S)
    output = layer(x, memory, tgt_mask=future, memory_key_padding_mask=padded)
    alone = layer(x[1:], memory[1:, :3], tgt_mask=future)  # without padding
    print("as without padding:", torch.allclose(output[1:], alone))
    changed = x.clone()
    changed[:, -1] *= -1
    again = layer(changed, memory, future, memory_key_padding_mask=padded)
    print("the future stays out:", torch.equal(again[:, :-1], output[:, :-1]))


# What is passed to the wrong call


def example_handed_over():
    mask = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    modes = {
        "training, need_weights=True": (True, True),
        "training, need_weights=False": (True, False),
        "evaluated in no_grad, need_weights=False": (False, False),
    }
    last = {}
    for name, (training, need_weights) in modes.items():
        options = {"training": training, "need_weights": need_weights}
        weights = multi_head(4, 4, attn_mask=mask, **options)  # (H, Tq, Tk)
        print(name, *grid(weights[0]), sep="\n  ")
        last[name] = weights[:, -1]  # (H, Tk)
    found = (
        "NaN" if row.isnan().all() else "zeros" if not row.any() else "?"
        for row in last.values()
    )
    return dict(zip(("weights", "fused", "fast"), found, strict=True))


def example_padding_handed_over():
    real = torch.tensor([[True, True, False, False], [True, True, True, True]])
    for row in real:
        print("real:", *(int(x) for x in row))
        for name, given in (("~real", ~row), ("real", row)):
            weights = multi_head(4, 4, key_padding_mask=given[None])
            print(f"  given {name:5}: each query sees", grid(weights[0])[0])


def example_benchmark():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 16).double().unbind()  # (B, H, T, d)
    future = torch.ones(6, 6, dtype=torch.bool).triu(1)
    logits = (q @ k.mT / math.sqrt(16)).masked_fill(future, -math.inf)
    contestants = {
        "by hand": logits.softmax(-1) @ v,  # (B, H, T, d)
        "built-in, future": F.scaled_dot_product_attention(q, k, v, future),
        "built-in, ~future": F.scaled_dot_product_attention(q, k, v, ~future),
    }
    for name, output in contestants.items():
        shape, finite = tuple(output.shape), bool(output.isfinite().all())
        print(f"{name}: {shape}, finite: {finite}")
    for name, output in contestants.items():  # the test
        alone = torch.allclose(output[..., 0, :], v[..., 0, :])
        print(f"{name}: the first token gets its own value: {alone}")


def example_one_mask():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, bias=False, batch_first=True).double()
    layer.requires_grad_(False)  # FlexAttention has no gradient on a CPU
    x = torch.randn(2, 5, 8).double()  # (B, T, C)
    projected = F.linear(x, layer.in_proj_weight).chunk(3, dim=-1)
    q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in projected)

    mask = torch.ones(5, 5, dtype=torch.bool).tril()  # True = may attend
    additive = torch.where(mask, 0.0, -math.inf).double()
    expected, _ = attention(q, k, v, mask)  # (B, H, T, d)
    whole = layer.out_proj(expected.transpose(1, 2).flatten(2))  # (B, T, C)

    def mask_mod(_b, _h, i, j):
        return mask[i, j]

    blocks = create_block_mask(mask_mod, None, None, 5, 5, x.device)
    sdpa = F.scaled_dot_product_attention
    same = {
        "built-in, mask": (sdpa(q, k, v, mask), expected),
        "built-in, additive": (sdpa(q, k, v, additive), expected),
        "built-in, is_causal": (sdpa(q, k, v, is_causal=True), expected),
        "layer, ~mask": (layer(x, x, x, attn_mask=~mask)[0], whole),
        "layer, additive": (layer(x, x, x, attn_mask=additive)[0], whole),
    }
    with not_traced():
        output = flex_attention(q, k, v, block_mask=blocks)
    same["FlexAttention, mask_mod"] = output, expected
    for name, (output, right) in same.items():
        assert torch.allclose(output, right, rtol=0, atol=1e-14), name
        print(f"{name}: equal to within 1e-14")
    return {"causal": "equal to within 1e-14"}


# Alignment


def example_alignment():
    def lower(tq, tk):
        with warnings.catch_warnings(action="ignore"):
            return built_in(tq, tk, causal_lower_right(tq, tk))

    def explicit(tq, tk):
        return built_in(tq, tk, causal(tq, tk, "bottom right"))

    def layer(tq, tk, need_weights):
        hidden = ~causal(tq, tk, "bottom right")
        options = {"is_causal": True, "need_weights": need_weights}
        return multi_head(tq, tk, attn_mask=hidden, **options)[0]

    def predicate(tq, tk, lower=False):
        shift = tk - tq if lower else 0
        return flex(tq, tk, lambda _b, _h, i, j: i + shift >= j)

    callers = {
        "is_causal=True": partial(built_in, is_causal=True),
        "causal_upper_left": lambda *n: built_in(*n, causal_upper_left(*n)),
        "flex, i >= j": predicate,
        "layer, need_weights=False": partial(layer, need_weights=False),
        "causal_lower_right": lower,
        "tril(Tk - Tq)": explicit,
        "flex, i + Tk - Tq >= j": partial(predicate, lower=True),
        "layer, need_weights=True": partial(layer, need_weights=True),
    }
    pictures = {}  # what was seen at the three pairs of lengths: by whom
    for name, call in callers.items():
        grids = [grid(call(*n)) for n in ((2, 4), (3, 3), (4, 2))]
        picture = "\n".join(
            "    {:10}{:8}{}".format(*rows).rstrip()
            for rows in zip_longest(*grids, fillvalue="")
        )
        pictures.setdefault(picture, []).append(name)
    for picture, names in pictures.items():
        print(*names, picture, sep="\n")


def example_one_query():
    q, k, v = inputs(1, 4)  # a new token, four in the cache; v: identity
    sdpa = F.scaled_dot_product_attention
    weights = {
        "is_causal=True": sdpa(q, k, v, is_causal=True),
        "causal_lower_right": sdpa(q, k, v, causal_lower_right(1, 4)),
        "no mask": sdpa(q, k, v),
    }  # (B, H, Tq, Tk) each
    for name, found in weights.items():
        row = " ".join(f"{x:.2f}" for x in found.flatten().tolist())
        print(f"{name:18}: {row}")
    return {"oldest": weights["is_causal=True"][..., 0].item()}


def example_empty():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mask = causal_lower_right(4, 2)  # (Tq, Tk)
    print("warned:", str(caught[0].message).split(" in the")[0])
    q, k, v = (x.requires_grad_() for x in inputs(4, 2))
    output = F.scaled_dot_product_attention(q, k, v, mask)  # (B, H, Tq, dv)
    output.square().sum().backward()
    print("the first two outputs:", output[0, 0, :2].tolist())
    print("NaN in the gradient of q:", bool(q.grad.isnan().any()))


# A mask and is_causal


def table_both():
    q, k, v = inputs(4, 4)
    mask = some_mask()
    bias = kinds(mask)["float that needs a gradient"]
    joined = attention(q, k, v, mask & causal(4, 4))[0]
    both = partial(SDPA, attn_mask=mask, is_causal=True)

    def through(kernel: SDPBackend) -> Tensor:
        with sdpa_kernel(kernel):
            return both(q, k, v)

    calls: dict[str, Callable[[], Tensor]] = {
        "`(B, H, T, d)`, kernel not chosen": partial(both, q, k, v),
        "flash kernel": partial(through, SDPBackend.FLASH_ATTENTION),
        "math kernel": partial(through, SDPBackend.MATH),
        "`(H, T, d)`": partial(both, q[0], k[0], v[0]),
        "values of another width": partial(both, q, k, v[..., :3]),
        "`dropout_p=0.1`": partial(both, q, k, v, dropout_p=0.1),
        "a mask that needs a gradient": partial(both, q, k, v, attn_mask=bias),
        "`causal_lower_right` for the mask": partial(
            both, q, k, v, attn_mask=causal_lower_right(4, 4)
        ),
    }
    rows = []
    for name, call in calls.items():
        try:
            equal = torch.allclose(call(), joined, rtol=0, atol=1e-14)
            said = "both apply" if equal else "something else"
        except REFUSALS as error:
            said = f"raises `{type(error).__name__}`"
        rows.append({"the built-in, given both": name, "answer": said})
    return rows


def example_both():
    q, k, v = inputs(4, 4)  # v is the identity: the output is the weights
    sdpa = F.scaled_dot_product_attention
    mask = torch.tensor([True, False, True, True]).expand(4, 4)  # (Tq, Tk)
    for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        try:
            with sdpa_kernel(kernel):
                weights = sdpa(q, k, v, mask, is_causal=True)  # (B, H, Tq, Tk)
            print(f"{kernel.name}: no error", *grid(weights[0, 0]), sep="\n")
        except RuntimeError as error:
            print(f"{kernel.name}: {str(error).split(': ')[1]}")


def table_hint():
    window = causal(4, 4) & ~causal(4, 4).tril(-2)  # itself and one before
    padding = torch.tensor([[False, True, False, False]])  # True = hidden
    given: dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]] = {
        "no mask": ({}, {"every key is seen": causal(4, 4) | True}),
        "a window of two": (
            {"attn_mask": ~window},
            {"window": window, "causal, no window": causal(4, 4)},
        ),
        "a window and padding": (
            {"attn_mask": ~window, "key_padding_mask": padding},
            {"both": window & ~padding},
        ),
    }
    rows = []
    for training in (True, False):
        for need_weights in (True, False):
            options = {"training": training, "need_weights": need_weights}
            mode = "training" if training else "evaluated"
            mode = f"{mode}, `need_weights={need_weights}`"
            row = {"`is_causal=True` and": mode}
            for name, (masks, meant) in given.items():
                try:
                    weights = multi_head(
                        4, 4, is_causal=True, **options, **masks
                    )
                    seen = weights[0] > 0
                    (said,) = (n for n, x in meant.items() if x.equal(seen))
                except RuntimeError as error:
                    said = f"raises `{type(error).__name__}`"
                row[name] = said
            rows.append(row)
    return rows


def example_mode():
    mask = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    window = mask & ~mask.tril(-2)  # itself and the one before
    options = {"attn_mask": ~window, "is_causal": True, "need_weights": False}
    for name, training in (("training", True), ("evaluated", False)):
        weights = multi_head(4, 4, training=training, **options)  # (H, Tq, Tk)
        print(name, *grid(weights[0]), sep="\n  ")


# Check yourself


def example_question_ones():
    q, k, v = inputs(3, 3)
    ones = torch.ones(3, 3)  # float32
    sdpa = F.scaled_dot_product_attention
    nothing = torch.allclose(sdpa(q, k, v, ones), sdpa(q, k, v))
    print("the built-in, float ones, as without a mask:", nothing)
    print(
        "the layer, float ones:",
        grid(multi_head(3, 3, attn_mask=ones.double())[0]),
    )
    print(
        "the layer, boolean ones:",
        grid(multi_head(3, 3, attn_mask=ones > 0)[0]),
    )


def example_question_square():
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8)  # (B, T, C)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)  # (T, T)
    print(mask.dtype, mask.tolist())
    print(
        "the future stays out:",
        future_stays_out(partial(layer, src_mask=mask), x),
    )
