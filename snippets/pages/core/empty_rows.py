"""What the page on queries without a key runs."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import (
    create_block_mask,
    flex_attention,
)

from snippets.attention import attention
from snippets.softmax import masked_softmax

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOORS = ("finfo.min", "-1e9", "-1e4")
# How far outputs and gradients may lie from float64, for the scores used here.
NEAR = {
    torch.float16: 5e-3,
    torch.bfloat16: 2e-2,
    torch.float32: 2e-2,
    torch.float64: 2e-3,
}


def left_padded(n: int, length: int) -> Tensor:
    """Causal mask (n, n) of left padding: the first n - length keys hidden."""
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    return causal & (torch.arange(n) >= n - length)


def as_floats(mask: Tensor, floor: str, dtype: torch.dtype) -> Tensor:
    """Mask to add: 0 where a query may attend, the floor where it may not."""
    number = torch.finfo(dtype).min if floor == "finfo.min" else float(floor)
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, number)


def figure_policies() -> Figure:
    """One mask with two empty rows, and the weights of four ways to write it.

    Four heat maps of six queries by six keys on one scale from 0 to 1. The
    mask is causal with two positions of left padding, so the first two
    queries have no key. Below them all four agree. The two rows themselves
    are zeros, NaN (left blank), a sixth everywhere, and, with an added floor,
    shares of all keys as if nothing were masked.
    """
    generator = torch.Generator("cpu").manual_seed(3)
    logits = torch.randn(6, 6, dtype=torch.float64, generator=generator) * 1.5
    mask = left_padded(6, 4)
    panels = {
        "zeros": masked_softmax(logits, mask),
        "NaN": masked_softmax(logits, mask, empty="nan"),
        "average": logits.masked_fill(~mask, -1e9).softmax(-1),
        "as if unmasked": (logits + as_floats(mask, "-1e4", logits.dtype)),
    }
    panels["as if unmasked"] = panels["as if unmasked"].softmax(-1)
    figure, grid = plt.subplots(2, 2, figsize=(5.2, 5.2), sharex=True)
    for axes, (name, weights) in zip(grid.flat, panels.items(), strict=True):
        image = axes.imshow(weights.numpy(), vmin=0, vmax=1)
        axes.set_title(name)
        axes.set_yticks(range(6), [f"q{i}" for i in range(6)])
        axes.set_xticks(range(6), [f"k{i}" for i in range(6)])
        if name == "NaN":
            for row in (0, 1):
                axes.text(2.5, row, "NaN", ha="center", va="center")
    colours = figure.colorbar(image, ax=grid, location="bottom", aspect=40)
    colours.set_label("weight")
    return figure


def example_arise():
    n = 5
    at = torch.arange(n)
    causal = at[:, None] >= at  # (Tq, Tk), True = may attend
    window = causal & (at[:, None] - at < 2)  # itself and the one before
    padding = at < 2  # (Tk,): keys 2, 3 and 4 are padding
    masks = {
        "causal": causal,
        "causal, left padding": causal & ~padding,
        "an empty sequence": (at < 0).expand(n, n),
        "only the past": at[:, None] > at,
        "window of 2, padding": window & padding,
        "5 queries, 3 keys, aligned at the end": causal[:, 2:],
        "a causal mask, inverted": ~causal,
    }
    for name, mask in masks.items():
        empty = (~mask.any(-1)).nonzero()[:, 0].tolist()
        print(f"{name:37}: queries without a key {empty}")


def example_policies():
    torch.manual_seed(0)
    q, k, v = (torch.randn(*s).double() for s in ((2, 4), (3, 4), (3, 5)))
    mask = torch.tensor([[True, True, False], [False, False, False]])
    logits = q @ k.T / 2  # (Tq, Tk) = (2, 3)
    found = {
        "zeros": masked_softmax(logits, mask),
        "nan": masked_softmax(logits, mask, empty="nan"),
        "filled with -1e9": logits.masked_fill(~mask, -1e9).softmax(-1),
        "plus -1e4": (logits + ~mask * -1e4).softmax(-1),
        "not masked": logits.softmax(-1),
    }
    for name, weights in found.items():
        print(f"{name:16}: {[f'{w:.3f}' for w in weights[1].tolist()]}")
    try:
        masked_softmax(logits, mask, empty="error")
    except ValueError as error:
        print(f"error           : {error}")
    output, _ = attention(q, k, v, mask)  # (Tq, dv)
    print("attention:", output[1].tolist())
    return {
        "weights": "zeros" if not found["zeros"][1].any() else "not zeros",
        "output": "zeros" if not output[1].any() else "not zeros",
        "largest": output[1].abs().max().item(),
        "nan": "NaN" if found["nan"][1].isnan().all() else "not NaN",
        "nan_entries": int(found["nan"][1].isnan().sum()),
    }


def example_uniform():
    none = torch.zeros(4, dtype=torch.bool)  # no key of four
    logits = torch.tensor([2.0, 1.0, 0.0, 3.0])  # (Tk,)
    floored = logits.masked_fill(~none, torch.finfo(torch.float32).min)
    infinite = logits.masked_fill(~none, -math.inf)
    print("finfo.min:", floored.softmax(-1).tolist())
    print("-inf:", infinite.softmax(-1).tolist())
    return {"each": floored.softmax(-1)[0].item()}


Call = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def fill(floor: str, repair: str = "") -> Call:
    """By hand: replace what is hidden; perhaps replace NaN afterwards."""

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        hidden = as_floats(mask, floor, q.dtype)
        logits = torch.where(mask, q @ k.mT / math.sqrt(q.shape[-1]), hidden)
        return finish(logits.softmax(-1), v, repair)

    return call


def by_library(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """By hand, with PyTorch's masked softmax."""
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.masked.softmax(logits, -1, mask=mask) @ v


def add(floor: str, repair: str = "") -> Call:
    """By hand: add a mask of 0 and a floor; perhaps replace NaN afterwards."""

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        hidden = as_floats(mask, floor, q.dtype)
        logits = q @ k.mT / math.sqrt(q.shape[-1]) + hidden
        return finish(logits.softmax(-1), v, repair)

    return call


def finish(weights: Tensor, v: Tensor, repair: str) -> Tensor:
    """Average of the values, NaN replaced in the weights, the output or not."""
    if repair == "weights":
        return weights.nan_to_num(0.0) @ v
    output = weights @ v
    return output.nan_to_num(0.0) if repair == "output" else output


def built_in(floor: str, backend: SDPBackend) -> Call:
    """F.scaled_dot_product_attention with a boolean mask or a float one."""

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        given = as_floats(mask, floor, q.dtype) if floor else mask
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, given)

    return call


def flex(floor: str) -> Call:
    """FlexAttention, not compiled: a block mask, or a floor in a score_mod."""

    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        hidden = as_floats(mask, floor or "-inf", q.dtype)

        def mask_mod(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return mask[i, j]  # of any batch and head, query i and key j

        def score_mod(score: Tensor, *at: Tensor) -> Tensor:
            return torch.where(mask_mod(*at), score, hidden[at[2], at[3]])

        with (
            warnings.catch_warnings(),  # that it is not compiled
            torch.compiler.set_stance("force_eager"),
        ):
            warnings.simplefilter("ignore")
            if floor:
                return flex_attention(q, k, v, score_mod=score_mod)
            tq, tk = mask.shape
            blocks = create_block_mask(
                mask_mod, None, None, tq, tk, device="cpu"
            )
            return flex_attention(q, k, v, block_mask=blocks)

    return call


def kind_of(row: Tensor, average: Tensor, unmasked: Tensor) -> str:
    """What a query without a key got."""
    bound = NEAR[row.dtype]
    assert (average - unmasked).abs().max() > 5 * bound
    if row.isnan().any():
        return "NaN"
    if not row.any():
        return "zeros"
    for name, other in (("average", average), ("as if unmasked", unmasked)):
        if (row.double() - other).abs().max() < bound:
            return name
    return "something else"


def merged(by_dtype: dict[torch.dtype, str]) -> str:
    """One text for four dtypes, which are named where they differ."""
    names: dict[str, list[str]] = {}
    for dtype, text in by_dtype.items():
        names.setdefault(text, []).append(str(dtype).removeprefix("torch."))
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(who)}: {text}" for text, who in names.items())


def names_of(gradients: Sequence[Tensor], expected: Sequence[Tensor]) -> str:
    """Which gradients of q, k and v are NaN or wrong; right if none is."""
    bad: dict[str, list[str]] = {}
    for name, gradient, right in zip("qkv", gradients, expected, strict=True):
        bound = 2 * NEAR[gradient.dtype] * max(1.0, right.abs().max().item())
        if gradient.isnan().any():
            bad.setdefault("NaN in", []).append(name)
        elif (gradient.double() - right).abs().max() > bound:
            bad.setdefault("wrong in", []).append(name)
    found = [f"{what} {', '.join(names)}" for what, names in bad.items()]
    return ", ".join(found) or "right"


def reach_of(gradients: Sequence[Tensor]) -> str:
    """What flows back from the sum of the empty row's output."""
    if any(gradient.isnan().any() for gradient in gradients):
        bad = [
            n for n, g in zip("qkv", gradients, strict=True) if g.isnan().any()
        ]
        return f"NaN in {', '.join(bad)}"
    reached = [n for n, g in zip("qkv", gradients, strict=True) if g.any()]
    if not reached:
        return "zeros"
    # The weights, summed: each weight is the gradient of its value.
    total = gradients[2][..., 0].double().sum().item()
    times = "" if abs(total - 1) < 0.1 else f", {total:.0f} times too large"
    return f"reaches {', '.join(reached)}{times}"


def measure(call: Call) -> tuple[str, str, str]:
    """What an empty row gets, and the gradients without it and of it alone."""
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = torch.randn(4, 1, 1, 4, 8, dtype=torch.float64, generator=generator)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[0] = False  # the first query has no key
    q, k, v, upstream = drawn  # (B, H, T, d) each
    exact = tuple(x.clone().requires_grad_() for x in (q, k, v))
    wanted, _ = attention(exact[0], exact[1], exact[2], mask)
    loss = (wanted * upstream)[0, 0, 1:].sum()
    right = torch.autograd.grad(loss, exact)
    average, (unmasked, _) = v[0, 0].mean(0), attention(q, k, v)
    outputs, left_out, read = {}, {}, {}
    for dtype in DTYPES:
        inputs = [x.to(dtype) for x in (q, k, v)]
        try:
            row = call(inputs[0], inputs[1], inputs[2], mask)[0, 0, 0]
        except RuntimeError as error:
            outputs[dtype] = f"raises `{type(error).__name__}`"
            left_out[dtype] = read[dtype] = "–"
            continue
        outputs[dtype] = kind_of(row, average, unmasked[0, 0, 0])
        inputs = [x.requires_grad_() for x in inputs]
        try:
            output = call(inputs[0], inputs[1], inputs[2], mask)
        except NotImplementedError as error:
            left_out[dtype] = f"raises `{type(error).__name__}`"
            read[dtype] = left_out[dtype]
            continue
        loss = (output * upstream.to(dtype))[0, 0, 1:].sum()
        found = torch.autograd.grad(loss, inputs, retain_graph=True)
        left_out[dtype] = names_of(found, right)
        found = torch.autograd.grad(output[0, 0, 0].sum(), inputs)
        read[dtype] = reach_of(found)
    return merged(outputs), merged(left_out), merged(read)


def table_ways():
    math_, flash = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION
    calls: dict[str, list[Call]] = {
        "`attention`": [lambda q, k, v, mask: attention(q, k, v, mask)[0]],
        "by hand, filled with −∞": [fill("-inf")],
        "`torch.masked.softmax`": [by_library],
        "by hand, plus −∞": [add("-inf")],
        "the same, NaN in the output set to 0": [add("-inf", "output")],
        "the same, NaN in the weights set to 0": [add("-inf", "weights")],
        "filled with −∞, NaN in the output set to 0": [fill("-inf", "output")],
        "filled with −∞, NaN in the weights set to 0": [
            fill("-inf", "weights")
        ],
    }
    calls |= {f"by hand, filled with `{x}`": [fill(x)] for x in FLOORS}
    calls |= {f"by hand, plus `{x}`": [add(x)] for x in FLOORS}
    for name, floor in (
        ("built-in, boolean", ""),
        ("built-in, 0 and −∞", "-inf"),
        *((f"built-in, 0 and `{x}`", x) for x in FLOORS),
    ):
        calls[name] = [built_in(floor, backend) for backend in (math_, flash)]
    calls |= {
        "FlexAttention, block mask": [flex("")],
        "FlexAttention, −∞ in `score_mod`": [flex("-inf")],
        "FlexAttention, `finfo.min` in `score_mod`": [flex("finfo.min")],
    }
    rows, values = [], {}
    for name, variants in calls.items():
        found = [measure(call) for call in variants]
        paths = ["MATH and FLASH"] if len(variants) == 2 else [""]
        if len(set(found)) == 2:
            paths = ["MATH", "FLASH"]
        for path, (output, left_out, read) in zip(paths, found, strict=False):
            rows.append(
                {
                    "written as": f"{name}, {path}" if path else name,
                    "the empty row": output,
                    "gradients, loss without the row": left_out,
                    "gradients of the row alone": read,
                }
            )
            values[rows[-1]["written as"]] = output
    return rows, {
        "boolean": values["built-in, boolean, MATH and FLASH"],
        "infinite": values["built-in, 0 and −∞, MATH and FLASH"],
        "by_hand": values["by hand, filled with −∞"],
        "floor": values.get("built-in, 0 and `finfo.min`, MATH", ""),
    }


def layer_output(layer: nn.MultiheadAttention, x: Tensor, mask: Tensor):
    """What the layer would give with zeros for empty rows, (B, T, C)."""
    projected = F.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    q, k, v = (
        y.unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)  # (B, H, T, d)
        for y in projected.chunk(3, dim=-1)
    )
    output, _ = attention(q, k, v, mask)
    merged_heads = output.transpose(1, 2).flatten(2)  # (B, T, C)
    return layer.out_proj(merged_heads)


def measure_layer(
    masks: dict[str, Tensor],
    floor: str,
    mask: Tensor,
    mode: str,
    need_weights: bool,
) -> str:
    """What nn.MultiheadAttention gives empty rows, and its gradients.

    ``masks`` are its arguments, True = may attend, and are turned into floats
    or inverted here; ``mask`` says what they mean together, (B, 1, T, T).
    """
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(2, 4, 8, dtype=torch.float64, generator=generator)
    weight = torch.randn(24, 8, dtype=torch.float64, generator=generator) / 3
    exact = nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        exact.in_proj_weight.copy_(weight)
        exact.out_proj.weight.copy_(torch.eye(8))
    empty = ~mask.any(-1)[:, 0]  # (B, T)
    everything = torch.ones(4, 4, dtype=torch.bool)
    average, unmasked = (
        layer_output(exact, y, everything).detach()
        for y in (x.mean(1, keepdim=True).expand_as(x), x)
    )
    loss = layer_output(exact, x, mask)[~empty].square().sum()
    right = torch.autograd.grad(loss, exact.in_proj_weight)[0].chunk(3)
    found = {}
    for dtype in DTYPES:
        layer = nn.MultiheadAttention(8, 2, batch_first=True).to(dtype)
        layer.load_state_dict(exact.state_dict())
        layer.train(mode != "eval")
        inputs = [x.to(dtype)] * 3
        try:
            # The layer's boolean masks are inverted: True = may NOT attend.
            given = {
                name: as_floats(m, floor, dtype) if floor else ~m
                for name, m in masks.items()
            }
            with torch.set_grad_enabled(mode != "eval"):
                output, _ = layer(*inputs, **given, need_weights=need_weights)
        except RuntimeError as error:
            found[dtype] = f"raises `{type(error).__name__}`"
            continue
        at = tuple(empty.nonzero()[0].tolist())
        found[dtype] = kind_of(output[at], average[at], unmasked[at])
        if mode != "eval":
            loss = output[~empty].square().sum()
            (by_weight,) = torch.autograd.grad(loss, layer.in_proj_weight)
            found[dtype] += f", {names_of(by_weight.chunk(3), right)}"
    return merged(found)


def table_layer():
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    first = causal.clone()
    first[0] = False  # the first query has no key
    padded = torch.ones(2, 4, dtype=torch.bool)
    padded[0] = False  # the first sequence is padding
    half = torch.ones(2, 4, dtype=torch.bool)
    half[0, :2] = False  # the first sequence has two of left padding
    by_query = first.expand(2, 1, 4, 4)  # (B, 1, T, T)
    by_key = padded[:, None, None].expand(2, 1, 4, 4)
    joined = half[:, None, None] & causal
    cases: dict[str, tuple[dict[str, Tensor], str, Tensor]] = {
        "`attn_mask`, boolean": ({"attn_mask": first}, "", by_query),
        "`key_padding_mask`, boolean": (
            {"key_padding_mask": padded},
            "",
            by_key,
        ),
        "both: causal, left padding": (
            {"attn_mask": causal, "key_padding_mask": half},
            "",
            joined,
        ),
        "`key_padding_mask`, 0 and −∞": (
            {"key_padding_mask": padded},
            "-inf",
            by_key,
        ),
        "`attn_mask`, 0 and −∞": ({"attn_mask": first}, "-inf", by_query),
    }
    for floor in FLOORS:
        name = f"`attn_mask`, 0 and `{floor}`"
        cases[name] = {"attn_mask": first}, floor, by_query
    rows = []
    for name, (masks, floor, mask) in cases.items():
        row = {"mask": name}
        for heading, mode, need_weights in (
            ("training, weights", "train", True),
            ("training, no weights", "train", False),
            ("`eval`, `no_grad`, weights", "eval", True),
            ("`eval`, `no_grad`, no weights", "eval", False),
        ):
            row[heading] = measure_layer(masks, floor, mask, mode, need_weights)
        rows.append(row)
    return rows, {
        "training": rows[1]["training, no weights"],
        "evaluation": rows[1]["`eval`, `no_grad`, no weights"],
        "weights": rows[1]["training, weights"],
    }


def example_evaluation():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(2, 4, 8)  # (B, T, C)
    padding = torch.tensor([[True] * 4, [False] * 4])  # True = may NOT attend

    def empty_rows():
        options = {"key_padding_mask": padding, "need_weights": False}
        output = layer(x, x, x, **options)[0] - layer.out_proj.bias
        return (
            "NaN" if output[0].isnan().all() else output[0].abs().max().item()
        )

    print("train():", empty_rows())
    layer.eval()
    print("eval():", empty_rows())
    with torch.no_grad():
        print("eval(), no_grad():", empty_rows())
        torch.backends.mha.set_fastpath_enabled(False)
        print("the same, without the fast path:", empty_rows())
    torch.backends.mha.set_fastpath_enabled(True)


def example_repair():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4, 8).double().unbind()  # (T, d) each
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[0] = False

    def afterwards(q, k, v):
        logits = (q @ k.T / math.sqrt(8)).masked_fill(~mask, -math.inf)
        return (logits.softmax(-1) @ v).nan_to_num(0.0)

    def before(q, k, v):
        return masked_softmax(q @ k.T / math.sqrt(8), mask) @ v

    print(
        "outputs alike:", torch.allclose(afterwards(q, k, v), before(q, k, v))
    )
    for function in (afterwards, before):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        loss = function(*inputs)[1:].sum()  # the empty row is left out
        finite = [
            bool(gradient.isfinite().all())
            for gradient in torch.autograd.grad(loss, inputs)
        ]  # the test
        print(f"{function.__name__:10}: gradients of q, k, v finite: {finite}")


def example_spreads():
    torch.manual_seed(0)
    x = torch.randn(4, 8).double()  # (T, C)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[:, 3] = mask[3] = False  # the last token is padding, as key and query
    for empty in ("nan", "zeros"):
        h, counts = x, []
        for _ in range(2):  # two layers, as plain as can be
            weights = masked_softmax(h @ h.T / math.sqrt(8), mask, empty=empty)
            h = weights @ h
            counts.append(int(h.isnan().any(-1).sum()))
        print(f"{empty:5}: rows of NaN after layer 1 and 2: {counts}, of 4")


def example_backward():
    sums = {}
    for n in (4, 8, 64):
        torch.manual_seed(0)
        q, k, v = torch.randn(3, 1, 1, n, 8).unbind()  # (B, H, T, d) each
        floor = torch.zeros(n, n)
        floor[0] = torch.finfo(torch.float32).min  # the first query has no key
        for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
            values = v.clone().requires_grad_()
            with sdpa_kernel(backend):
                output = F.scaled_dot_product_attention(q, k, values, floor)
            (gradient,) = torch.autograd.grad(output[0, 0, 0, 0], values)
            sums[backend.name, n] = gradient.sum().item()
            print(
                f"{n:2} keys, {backend.name:15}: "
                f"weights in the backward pass sum to {gradient.sum():.3f}"
            )
    return {"math": sums["MATH", 64], "flash": sums["FLASH_ATTENTION", 64]}


def train(
    policy: Literal["zeros", "nan", "filled"], everything: bool
) -> dict[str, float]:
    """Train a pooling query on four sequences, the last of which is empty.

    The padding is a learned vector, as an embedding of padding is. The target
    is the mean of a sequence's first coordinate, and 0 for the empty one.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    x, at = torch.randn(4, 5, 6, generator=generator).double(), torch.arange(5)
    mask = at < torch.tensor([[5], [3], [2], [0]])  # (B, T)
    target = (x[..., 0] * mask).sum(-1) / mask.sum(-1).clamp(min=1)  # (B,)
    pad = torch.full((6,), 2.0).double().requires_grad_()
    key, value = (
        (torch.randn(6, n, generator=generator).double() / 4).requires_grad_()
        for n in (4, 1)
    )
    query = torch.randn(4, 1, generator=generator).double().requires_grad_()
    parameters = [pad, key, value, query]
    rows = slice(None) if everything else slice(0, 3)

    def predict() -> Tensor:
        seen = torch.where(mask[..., None], x, pad)  # (B, T, C)
        logits = (seen @ key @ query)[..., 0]  # (B, T)
        if policy == "filled":
            weights = logits.masked_fill(~mask, -1e9).softmax(-1)
        else:
            weights = masked_softmax(logits, mask, empty=policy)
        return (weights[..., None] * (seen @ value)).sum((1, 2))  # (B,)

    firsts, spoiled = [], []
    for _ in range(40):
        loss = (predict() - target)[rows].square().mean()
        gradients = torch.autograd.grad(loss, parameters)
        firsts.append(gradients[0].abs().max().item())
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(0.2 * gradient)
        spoiled.append(sum(p.isnan().any().item() for p in (key, value, query)))
    with torch.no_grad():
        others = (predict() - target)[:3].square().mean().item()
        before = predict()[3].item()
        pad.add_(1)
        moved = abs(predict()[3].item() - before)
    return {
        "loss": others,
        "first": firsts[0],
        "moved": moved,
        "nan": spoiled[-1],
        "nan_1": spoiled[0],
        "nan_2": spoiled[1],
    }


def table_training():
    rows, values = [], {}
    for everything in (False, True):
        for policy, name in (
            ("zeros", "zeros"),
            ("nan", "NaN"),
            ("filled", "the average"),
        ):
            found = train(policy, everything)
            rows.append(
                {
                    "empty row in the loss": "yes" if everything else "no",
                    "it gets": name,
                    "loss on the others": shown(found["loss"]),
                    "parameters with NaN": f"{found['nan']} of 3",
                    "first gradient on the padding": shown(found["first"]),
                    "edited padding moves its output by": shown(found["moved"]),
                }
            )
            if policy != "nan":
                values[f"{policy}_{everything}"] = found["moved"]
            else:
                values |= {"nan_1": found["nan_1"], "nan_2": found["nan_2"]}
    return rows, values


def shown(number: float) -> str:
    """Three digits, 0 as 0 and NaN as NaN."""
    if math.isnan(number):
        return "NaN"
    return "0" if number == 0 else f"{number:.2e}"


def example_question_inverted():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 4, 8)  # (B, T, C)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    output, _ = layer(x, x, x, attn_mask=causal)
    print("rows of NaN:", output[0].isnan().any(-1).nonzero()[:, 0].tolist())
    output, _ = layer(x, x, x, attn_mask=~causal)
    print("inverted:", output[0].isnan().any(-1).nonzero()[:, 0].tolist())


def example_question_bias():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    nn.init.normal_(layer.out_proj.bias)  # as after some training
    x = torch.randn(1, 4, 8)  # (B, T, C)
    padding = torch.ones(1, 4, dtype=torch.bool)  # True = may NOT attend
    options = {"key_padding_mask": padding, "need_weights": False}
    output, _ = layer(x, x, x, **options)
    print("zeros:", not output.any().item())
    bias = layer.out_proj.bias.expand_as(output)
    print("the bias:", torch.allclose(output, bias))
