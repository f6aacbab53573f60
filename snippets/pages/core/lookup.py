"""What the page on attention as a soft lookup runs."""

import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets.attention import attention
from snippets.diagnostics import entropy, peak


def figure_lookup() -> Figure:
    """Three bar charts: how one query weighs six keys at three temperatures.

    The axis is the weight, from zero to one. Cold, one bar has all the weight,
    as in a dictionary. Mild, the best match leads and its neighbours have a
    share. Hot, all bars are nearly level.
    """
    angles = (torch.arange(6).double() * 30).deg2rad()
    k = torch.stack([angles.cos(), angles.sin()], dim=-1)  # (6, 2)
    q, v = k[2:3], torch.eye(6).double()  # (1, 2), (6, 6)
    figure, panels = plt.subplots(1, 3, sharey=True, figsize=(5.2, 2.4))
    for axes, tau, name in zip(
        panels, (0.01, 0.15, 4.0), ("cold", "mild", "hot"), strict=True
    ):
        _, weights = attention(q, k, v, scale=1 / (tau * math.sqrt(2)))
        axes.bar(range(6), weights[0].tolist())
        axes.set_title(f"{name}, τ = {tau:g}")
        axes.set_xticks(range(6), [f"k{i}" for i in range(6)])
        axes.set_ylim(0, 1)
    panels[0].set_ylabel("weight")
    return figure


def example_dictionary():
    prices = {"apple": 1.0, "pear": 2.0, "plum": 4.0}
    print("hard:", prices["pear"])

    q = torch.tensor([[0.0, 3.0]])  # (Tq, d) = (1, 2)
    k = torch.tensor([[2.0, 0.0], [0.5, 2.0], [1.5, 1.5]])  # (Tk, d) = (3, 2)
    v = torch.tensor([[1.0], [2.0], [4.0]])  # (Tk, dv) = (3, 1)
    logits = q @ k.T / math.sqrt(2)  # (Tq, Tk): how well each key matches
    weights = torch.softmax(logits, dim=-1)  # (Tq, Tk): shares that sum to 1
    output = weights @ v  # (Tq, dv): the average of the values
    for name, weight in zip(prices, weights[0].tolist(), strict=True):
        print(f"    {weight:.3f} of the {name}'s {prices[name]}")
    print(f"soft: {output.item():.3f}")
    return {"pear": weights[0, 1].item(), "output": output.item()}


def example_shapes():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 16), torch.randn(6, 16), torch.randn(6, 32)
    output, weights = attention(q, k, v)
    print("q", tuple(q.shape), "k", tuple(k.shape), "v", tuple(v.shape))
    print("output", tuple(output.shape), "weights", tuple(weights.shape))
    bound = 1e-5
    assert (weights.sum(-1) - 1).abs().max() < bound
    print(f"sums of the weights: within {bound:.0e} of 1")
    inside = (v.amin(0) - 1e-6 < output) & (output < v.amax(0) + 1e-6)
    print("outputs between the values:", inside.all().item())
    print("output is weights @ v:", torch.equal(output, weights @ v))
    return {
        "output": str(tuple(output.shape)),
        "sums": bound,
        "average": str(torch.equal(output, weights @ v)),
    }


def example_by_hand():
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(4, 8).double(),
        torch.randn(5, 8).double(),
        torch.randn(5, 3).double(),
    )
    mask = torch.rand(4, 5) < 0.6  # (Tq, Tk), True = may attend
    mask[2] = False  # the third query has no key
    expected = torch.zeros(4, 3).double()
    for i in range(4):
        logits = {
            j: (q[i] @ k[j]).item() / math.sqrt(8)
            for j in range(5)
            if mask[i, j]
        }
        total = sum(math.exp(logit) for logit in logits.values())
        for j, logit in logits.items():
            expected[i] += math.exp(logit) / total * v[j]
    output, _ = attention(q, k, v, mask)
    assert (output - expected).abs().max() < 1e-14
    print("output, one query and one key at a time: equal to within 1e-14")


def table_agreement():
    torch.manual_seed(0)
    inputs = torch.randn(3, 2, 4, 8, 16)  # q, k and v, each (B, H, T, d)
    causal = torch.ones(8, 8, dtype=torch.bool).tril()
    dead = causal.clone()
    dead[3] = False
    rows = []
    for dtype, bound in (
        (torch.float64, 1e-14),
        (torch.float32, 2e-5),
        (torch.float16, 2e-3),
        (torch.bfloat16, 2e-2),
    ):
        q, k, v = inputs.to(dtype).unbind()
        row = {"dtype": str(dtype).removeprefix("torch.")}
        for name, mask, options in (
            ("no mask", None, {}),
            ("is_causal=True", causal, {"is_causal": True}),
            ("causal mask", causal, {"attn_mask": causal}),
            ("a row without keys", dead, {"attn_mask": dead}),
        ):
            ours, _ = attention(q, k, v, mask)
            for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
                with sdpa_kernel(backend):
                    theirs = F.scaled_dot_product_attention(q, k, v, **options)
                difference = (ours - theirs).abs().max().item()
                assert difference < bound, (dtype, name, backend, difference)
            row[name] = f"below {bound:.0e}"
        rows.append(row)
    return rows


def example_wrong_axis():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 16), torch.randn(5, 16), torch.randn(5, 8)
    right = torch.softmax(q @ k.T / 4, dim=-1)  # over the keys
    wrong = torch.softmax(q @ k.T / 4, dim=-2)  # over the queries
    for name, weights in (("right", right), ("wrong", wrong)):
        sums = ", ".join(f"{x:.2f}" for x in weights.sum(-1).tolist())
        shape = tuple((weights @ v).shape)
        print(f"{name}: output {shape}, sums of rows {sums}")
    ones = torch.ones(5, 1)  # the test: averaging ones gives one
    assert torch.allclose(right @ ones, torch.ones(3, 1))
    assert not torch.allclose(wrong @ ones, torch.ones(3, 1))


def example_limit():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 6, 8).double().unbind()  # (T, d) each
    best = v[(q @ k.T).argmax(-1)]  # (Tq, dv): the value of the best match
    for tau in (1.0, 0.1, 0.01):
        output, weights = attention(q, k, v, scale=1 / (tau * math.sqrt(8)))
        off, least = (
            (output - best).abs().max().item(),
            peak(weights).min().item(),
        )
        print(
            f"τ = {tau:4}: {off:.2f} from the best match, "
            f"largest weights at least {least:.4f}"
        )


def example_regression():
    torch.manual_seed(0)
    x = F.normalize(
        torch.randn(20, 8).double(), dim=-1
    )  # where y was seen, (Tk, d), norm 1
    y = torch.randn(20, 1).double()  # (Tk, dv)
    at = torch.randn(5, 8).double()  # where y is wanted, (Tq, d)
    width = 8**0.25  # a Gaussian of variance √d

    def nadaraya_watson(x):
        squared = (at[:, None] - x).square().sum(-1)  # (Tq, Tk, d) -> (Tq, Tk)
        kernel = torch.exp(-squared / (2 * width**2))
        return kernel @ y / kernel.sum(-1, keepdim=True)  # (Tq, dv)

    for name, keys in (
        ("equal", x),
        ("different", x * torch.linspace(0.5, 2, 20).double()[:, None]),
    ):
        output, _ = attention(at, keys, y)
        difference = (output - nadaraya_watson(keys)).abs().max().item()
        equal = difference < 1e-14
        print(
            f"keys of {name} norm: the same regression to within 1e-14: {equal}"
        )


def example_floor():
    least = torch.finfo(torch.float32).min
    hidden = torch.tensor([False, True, True, True])
    low = torch.full((4,), least)  # real scores, as low as float32 goes
    kept = {}
    for name, floor in (("finfo.min", least), ("-inf", -math.inf)):
        kept[name] = low.masked_fill(hidden, floor).softmax(-1)[0].item()
        none = torch.full((4,), floor).softmax(-1).tolist()
        print(f"{name}: the only key gets {kept[name]}, no key {none}")
    return {"tie": kept["finfo.min"], "infinite": kept["-inf"]}


def example_no_key():
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(shape, requires_grad=True)
        for shape in ((2, 4), (3, 4), (3, 5))
    )
    mask = torch.tensor(
        [[True, True, False], [False, False, False]]
    )  # (Tq, Tk)
    output, weights = attention(q, k, v, mask)
    print("weights:", [[f"{w:.3f}" for w in row] for row in weights.tolist()])
    print("second output:", output[1].tolist())
    output.sum().backward()  # also through the query without a key
    print("gradient of the second query:", q.grad[1].tolist())
    print(
        "gradients finite:",
        all(bool(x.grad.isfinite().all()) for x in (q, k, v)),
    )
    empty = weights[1].any() or output[1].any() or q.grad[1].any()
    return {"empty": "something else" if empty else "zeros"}


def table_empty():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 4, 8).double().unbind()  # (B, H, T, d) each
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    mask[0] = False  # the first query has no key
    floats = torch.zeros(4, 4, dtype=torch.float64)
    infinite = floats.masked_fill(~mask, -math.inf)
    least = floats.masked_fill(~mask, torch.finfo(torch.float64).min)
    layer = nn.MultiheadAttention(8, 1, bias=False, batch_first=True).double()

    def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = (q @ k.mT / math.sqrt(8)).masked_fill(~mask, -math.inf)
        return logits.softmax(-1) @ v

    def built_in(bias: Tensor) -> Callable[..., Tensor]:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, bias)

    def multi_head(need_weights: bool) -> Callable[..., Tensor]:
        options = {"attn_mask": ~mask, "need_weights": need_weights}
        return lambda q, k, v: layer(q[0], k[0], v[0], **options)[0][None]

    calls: dict[str, Callable[..., Tensor]] = {
        "`attention`": lambda q, k, v: attention(q, k, v, mask)[0],
        "softmax over −∞, by hand": by_hand,
        "built-in, boolean mask": built_in(mask),
        "built-in, 0 and −∞": built_in(infinite),
        "built-in, 0 and `finfo.min`": built_in(least),
        "`nn.MultiheadAttention`": multi_head(True),
        "the same, `need_weights=False`, in training": multi_head(False),
    }
    rows = []
    for name, call in calls.items():
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        output = call(*inputs)
        gradients = torch.autograd.grad(output[0, 0, 1:].sum(), inputs)
        finite = all(bool(g.isfinite().all()) for g in gradients)
        row = output[0, 0, 0]
        if row.isnan().any():
            found = "NaN"
        elif not row.any():
            found = "zeros"
        else:
            average = torch.allclose(row, v[0, 0].mean(0))
            found = "the average of all values" if average else "something else"
        rows.append(
            {
                "call": name,
                "output of the empty row": found,
                "gradients of a loss on the other rows": "finite"
                if finite
                else "NaN",
            }
        )
    return rows


def example_bad_value():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 4, 8).unbind()  # (B, H, T, d) each
    q.requires_grad_()
    mask = torch.tensor([[True, True, True, False]]).expand(4, 4)
    bad_k, bad_v = k.clone(), v.clone()
    bad_k[..., 3, :] = bad_v[..., 3, :] = math.nan  # hidden from every query
    sdpa = F.scaled_dot_product_attention
    spoiled = {}
    for name, output in (
        ("in a key, attention", attention(q, bad_k, v, mask)[0]),
        ("in a key, built-in", sdpa(q, bad_k, v, mask)),
        ("in a value, attention", attention(q, k, bad_v, mask)[0]),
        ("in a value, built-in", sdpa(q, k, bad_v, mask)),
    ):
        (gradient,) = torch.autograd.grad(output.sum(), q)
        spoiled[name] = bad, bad_q = [
            x.isnan().any(-1).sum().item() for x in (output, gradient)
        ]
        print(
            f"{name:21}: NaN in {bad} of 4 outputs, {bad_q} of 4 gradients of q"
        )
    return {
        "key": spoiled["in a key, attention"][0],
        "key_builtin": spoiled["in a key, built-in"][0],
        "value": spoiled["in a value, attention"][0],
    }


def example_bad_key():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 4, 8).unbind()  # (B, H, T, d) each
    k[..., 2, :] = math.nan  # hidden from the queries 0 and 1
    past = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    found = {}
    for kernel in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        for name, option in (
            ("mask", {"attn_mask": past}),
            ("is_causal", {"is_causal": True}),
        ):
            with sdpa_kernel(kernel):
                output = F.scaled_dot_product_attention(q, k, v, **option)
            rows = output[0, 0].isnan().any(-1).nonzero().flatten().tolist()
            found[kernel.name, name] = rows
            print(f"{kernel.name}, {name}: NaN for the queries {rows}")
    return {"flag": len(found["FLASH_ATTENTION", "is_causal"])}


def example_half():
    q = torch.full((1, 1, 1, 64), 300.0).half()  # (B, H, Tq, d)
    k = torch.full((1, 1, 2, 64), 300.0).half()  # (B, H, Tk, d)
    k[..., 1, :] = 299.75
    v = torch.tensor([[1.0], [-1.0]]).half().expand(1, 1, 2, 1)
    raw, early = q @ k.mT, (q / 8) @ k.mT  # (B, H, Tq, Tk): unscaled and scaled
    exact, _ = attention(q.double(), k.double(), v.double())
    print("q kᵀ in float16:", raw.flatten().tolist())
    print("(q / √d) kᵀ in float16:", early.flatten().tolist())
    print("their softmax:", (raw / 8).softmax(-1).flatten().tolist())
    print("attention:", attention(q, k, v)[0].item())
    print("built-in:", F.scaled_dot_product_attention(q, k, v).item())
    print("float64:", exact.item())
    return {
        "score": int((q.double() @ k.double().mT).max()),
        "largest": int(torch.finfo(torch.float16).max),
    }


def table_refusals():
    q, k, v = torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, 5)
    keep = torch.ones(2, 2, dtype=torch.bool)
    cases: list[tuple[str, Callable[[], object]]] = [
        (
            "q of width 3, k of width 4",
            lambda: attention(q, torch.zeros(2, 4), v),
        ),
        ("2 keys, 3 values", lambda: attention(q, k, torch.zeros(3, 5))),
        (
            "a mask of 0 and 1 in float",
            lambda: attention(q, k, v, keep.float()),
        ),
        (
            "a mask with 3 columns for 2 keys",
            lambda: attention(q, k, v, torch.ones(2, 3) > 0),
        ),
        ("a mask with more dimensions", lambda: attention(q, k, v, keep[None])),
        (
            "a mask `(3, 2, 2)` for scores `(3, 3, 2, 2)`",
            lambda: attention(
                q.expand(3, 3, 2, 3),
                k.expand(3, 3, 2, 3),
                v.expand(3, 3, 2, 5),
                keep.expand(3, 2, 2),
            ),
        ),
        ("k in another dtype", lambda: attention(q, k.double(), v)),
        ("whole numbers", lambda: attention(q.long(), k.long(), v.long())),
        (
            "an empty batch",
            lambda: attention(*(x.expand(0, *x.shape) for x in (q, k, v))),
        ),
    ]
    rows, raised = [], []
    for name, call in cases:
        try:
            output, _ = call()
            answer = f"returns an output of shape {tuple(output.shape)}"
        except (TypeError, ValueError) as error:
            answer = f"`{type(error).__name__}: {error}`"
            raised.append(type(error).__name__)
        rows.append({"given": name, "answer": answer})
    return rows, dict(
        zip(("width", "length", "floats", "columns"), raised, strict=False)
    )


def example_broadcast():
    q, k, v = (
        torch.zeros(2, 4, 3, 8),
        torch.zeros(2, 4, 5, 8),
        torch.zeros(2, 4, 5, 8),
    )
    for shape in ((3, 5), (1, 5), (3, 1), (1, 1, 3, 5), (2, 1, 1, 5)):
        output, _ = attention(q, k, v, torch.ones(shape, dtype=torch.bool))
        print(
            f"mask {shape} on logits (2, 4, 3, 5): output {tuple(output.shape)}"
        )
    return {"output": str(tuple(output.shape))}


def table_conventions():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8).double()  # (B, T, C)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    layer = nn.MultiheadAttention(8, 1, bias=False, batch_first=True).double()
    layer.requires_grad_(False).out_proj.weight.copy_(torch.eye(8))
    q, k, v = F.linear(x, layer.in_proj_weight).chunk(
        3, dim=-1
    )  # (B, T, C) each
    expected, _ = attention(q, k, v, causal)

    def multi_head(need_weights: bool) -> Callable[[Tensor], Tensor]:
        options = {"need_weights": need_weights}
        return lambda mask: layer(x, x, x, attn_mask=mask, **options)[0]

    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "`F.scaled_dot_product_attention`": lambda mask: (
            F.scaled_dot_product_attention(q, k, v, mask)
        ),
        "`nn.MultiheadAttention`": multi_head(True),
        "the same, `need_weights=False`, in training": multi_head(False),
    }
    rows = []
    for name, call in calls.items():
        row = {"call": name}
        for given, mask in (("mask", causal), ("~mask", ~causal)):
            output = call(mask)
            n = output.isnan().any(-1).sum().item()
            equal = torch.allclose(output, expected, rtol=0, atol=1e-14)
            row[f"given `{given}`"] = (
                "equal" if equal else f"differs, {n} rows NaN"
            )
        rows.append(row)
    return rows


def example_order():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 5, 8).double().unbind()  # (T, d) each
    p = torch.tensor([3, 0, 4, 1, 2])
    causal = torch.ones(5, 5, dtype=torch.bool).tril()

    def equal(left, right):
        return torch.allclose(left[0], right, rtol=0, atol=1e-14)

    output, _ = attention(q, k, v)
    masked, _ = attention(q, k, v, causal)
    shuffled = q[p], k[p], v[p]
    print("keys and values shuffled:", equal(attention(q, k[p], v[p]), output))
    print("queries, too:", equal(attention(*shuffled), output[p]))
    print(
        "under a causal mask:", equal(attention(*shuffled, causal), masked[p])
    )
    with_mask = attention(*shuffled, causal[p][:, p])
    print("with the mask shuffled, too:", equal(with_mask, masked[p]))


def table_memory():
    rows = []
    for n in (1024, 2048, 4096, 8192):
        q = torch.empty(n, 64, device="meta")  # holds a shape and no data
        _, weights = attention(q, q, q)
        mebibytes = weights.numel() * 4 // 2**20
        rows.append(
            {
                "T": n,
                "numbers in q, k and v": f"{3 * q.numel():,}",
                "numbers in the weights": f"{weights.numel():,}",
                "weights in float32": f"{mebibytes} MiB",
            }
        )
    return rows


def example_question_blend():
    v = torch.tensor([[0.0], [10.0]])
    q, k = (
        torch.zeros(1, 4),
        torch.zeros(2, 4),
    )  # a query that matches both keys alike
    print(attention(q, k, v)[0].item())


def example_question_entropy():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 50, 64).double().unbind()
    for name, queries in (("q", q), ("2 q", 2 * q)):
        _, weights = attention(queries, k, v)
        print(f"{name}: mean entropy {entropy(weights).mean():.2f}")
