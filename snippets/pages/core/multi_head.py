"""What the page on multi-head attention runs."""

import copy
import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from snippets.attention import attention
from snippets.diagnostics import entropy, peak
from snippets.multi_head import MultiHeadAttention
from snippets.pages.core.scaling import random_scores


def split(x: Tensor, n_heads: int) -> Tensor:
    """Give each head its part of a projection: (B, T, C) -> (B, H, T, d)."""
    # (B, T, C) -> (B, T, H, d) -> (B, H, T, d)
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """Put the heads side by side again: (B, H, T, d) -> (B, T, C)."""
    # (B, H, T, d) -> (B, T, H, d) -> (B, T, C)
    return x.transpose(1, 2).flatten(2)


def project_tokens() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of four tokens, (B, T, C), for all heads."""
    torch.manual_seed(7)
    x = torch.randn(1, 4, 8, dtype=torch.float64)  # (B, T, C)
    w_q, w_k, w_v = torch.randn(3, 8, 8, dtype=torch.float64) / math.sqrt(8)
    return x @ w_q.T, x @ w_k.T, x @ w_v.T


def draw_features(axes: Axes) -> None:
    """Draw one token's features: projected, and only then split."""
    both = ["C0"] * 4 + ["C1"] * 4
    arrow = {"arrowstyle": "->", "color": plt.rcParams["text.color"]}
    for left, colours, name in (
        (0, ["0.6"] * 8, "x (C,)"),
        (14, both, r"$W_q x$ (C,)"),
        (28, both[:4], "head 0"),
        (36, both[4:], "head 1"),
    ):
        cells = range(left, left + len(colours))
        axes.bar(cells, 1, 0.8, color=colours)
        axes.text(left + len(colours) / 2 - 0.5, 1.3, name, ha="center")
    for start, name in ((8, "project"), (22, "split")):
        axes.annotate("", (start + 5, 0.5), (start, 0.5), arrowprops=arrow)
        axes.text(start + 2.5, -0.7, name, ha="center")
    axes.set(xlim=(-1, 40.5), ylim=(-1, 2.5))
    axes.axis("off")


def figure_heads() -> Figure:
    """From one token's features to two heads, and the weights of the heads.

    Above, eight grey features x are projected to eight features of a query,
    and these are split: the first four for head 0, the last four for head 1.
    Below, three heat maps of weights, four queries by four keys, on one scale.
    A dot marks the largest weight of each query. The dots of head 0 are at keys
    3, 1, 3 and 2, those of head 1 at keys 2, 0, 1 and 0. The third map is the
    one head that has the whole width: it has one dot for each query, too, at
    keys 3, 0, 3 and 0.
    """
    q, k, v = project_tokens()  # (B, T, C)
    narrow = attention(split(q, 2), split(k, 2), split(v, 2))[1][0]  # (H, T, T)
    wide = attention(q, k, v)[1]  # (1, T, T)
    figure = plt.figure(figsize=(5.2, 3.2))
    above, below = figure.subfigures(
        2, 1, squeeze=False, height_ratios=(1, 2.6)
    ).flat
    draw_features(above.subplots())
    panels = below.subplots(1, 3, sharey=True)
    names = ("head 0 of 2", "head 1 of 2", "one wide head")
    for axes, weights, name in zip(
        panels, torch.cat([narrow, wide]), names, strict=True
    ):
        picture = axes.imshow(weights.numpy(), vmin=0, vmax=1)
        axes.plot(weights.argmax(-1).tolist(), range(4), "o", color="red")
        axes.set(title=name, xlabel="key")
        axes.set_xticks(range(4))
        axes.set_yticks(range(4))
    panels[0].set_ylabel("query")
    below.colorbar(picture, ax=panels, shrink=0.7).set_label("weight")
    return figure


def example_by_hand():
    torch.manual_seed(0)
    b, t, c, n_heads = 2, 10, 512, 8
    project, out = nn.Linear(c, 3 * c).double(), nn.Linear(c, c).double()
    x = torch.randn(b, t, c).double()

    def heads(y):  # (B, T, C) -> (B, T, H, d) -> (B, H, T, d)
        return y.view(b, t, n_heads, c // n_heads).transpose(1, 2)

    q, k, v = map(heads, project(x).chunk(3, dim=-1))  # three of (B, T, C)
    y = F.scaled_dot_product_attention(q, k, v)  # (B, H, T, d)
    y = y.transpose(1, 2).reshape(b, t, c)  # (B, T, H, d) -> (B, T, C)
    output = out(y)  # (B, T, C)

    module = MultiHeadAttention(c, n_heads).double()
    module.qkv, module.out = project, out
    assert (module(x)[0] - output).abs().max() < 1e-12
    print(f"d = {q.shape[-1]}; the module gives the same to within 1e-12")
    return {"width": q.shape[-1]}


def example_use():
    torch.manual_seed(0)
    x, memory = torch.randn(2, 5, 512), torch.randn(2, 7, 512)  # (B, T, C)
    lengths = torch.tensor([7, 4])
    padding = torch.arange(7) < lengths[:, None]  # (B, Tk), True = may attend
    module = MultiHeadAttention(512, 8)
    grouped = MultiHeadAttention(512, 8, n_kv_heads=2)
    for name, (output, weights) in {
        "self": module(x),
        "causal": module(x, is_causal=True, need_weights=True),
        "cross": module(x, memory, padding[:, None, None], need_weights=True),
        "grouped": grouped(x, memory, need_weights=True),
    }.items():
        shape = None if weights is None else tuple(weights.shape)
        print(f"{name:7}: output {tuple(output.shape)}, weights {shape}")


def example_false():
    q, k, v = project_tokens()  # first project: (B, T, C) each
    heads = split(q, 2), split(k, 2), split(v, 2)  # then split: (B, H, T, d)
    narrow, weights = attention(*heads)
    wide, wide_weights = attention(q, k, v)  # one head of the whole width
    difference = (merge(narrow) - wide).abs().max().item()
    print("two narrow heads are one wide head:", difference < 1e-12)
    print(f"largest difference: {difference:.3f}")
    for name, w in zip(("head 0", "head 1"), weights[0], strict=True):
        print(f"{name}: largest weights at keys {w.argmax(-1).tolist()}")
    print(
        f"wide: largest weights at keys {wide_weights[0].argmax(-1).tolist()}"
    )
    return {
        "equal": str(difference < 1e-12),
        "difference": difference,
        "head_0": ", ".join(map(str, weights[0, 0].argmax(-1).tolist())),
        "head_1": ", ".join(map(str, weights[0, 1].argmax(-1).tolist())),
    }


def example_shared():
    torch.manual_seed(0)
    x = torch.randn(6, 16).double()  # (T, C)
    w_q, w_k = torch.randn(2, 16, 16).double() / 4  # (d, C) each
    found = {}
    for name, (queries, keys) in {
        "one projection": (w_q, w_q),
        "two projections": (w_q, w_k),
    }.items():
        scores = (x @ queries.T) @ (x @ keys.T).T / 4  # (Tq, Tk)
        error = (scores - scores.T).abs().max().item()
        itself = (scores.argmax(-1) == torch.arange(6)).sum().item()
        found[name] = error, itself
        print(f"{name}: s_ij and s_ji differ by up to {error:.2f},")
        print(f"    {itself} of 6 tokens score themselves highest")
    return {
        "shared": found["one projection"][0],
        "apart": found["two projections"][0],
        "itself": found["one projection"][1],
    }


def example_product():
    q, k, v = project_tokens()  # (B, T, C) each
    heads = split(q, 2), split(k, 2), split(v, 2)  # (B, H, T, d) each
    _, weights = attention(*heads)  # (B, H, T, T)
    _, wide = attention(q, k, v)  # (B, T, T)
    product = weights.prod(dim=1) ** (1 / math.sqrt(2))  # over H = 2 heads
    product = product / product.sum(-1, keepdim=True)
    assert (wide - product).abs().max() < 1e-14
    print("wide head: the product of the heads to within 1e-14")


def example_sum():
    torch.manual_seed(0)
    module = MultiHeadAttention(16, 4).double()
    x = torch.randn(2, 5, 16).double()
    output, weights = module(x, need_weights=True)  # weights (B, H, T, T)
    v = split(module.qkv(x).chunk(3, dim=-1)[2], 4)  # (B, H, T, d)
    columns = module.out.weight.split(4, dim=1)  # one (C, d) for each head
    total = module.out.bias + sum(
        weights[:, h] @ v[:, h] @ columns[h].T  # (B, T, d) -> (B, T, C)
        for h in range(4)
    )
    assert (output - total).abs().max() < 1e-14
    print("project the heads side by side, or each and add: within 1e-14")


def example_reads():
    torch.manual_seed(0)
    module = MultiHeadAttention(16, 2).double()
    x = torch.randn(16).double()

    def query_of_head_0(x):
        return module.qkv(x)[:8]  # the first d = 8 rows: (C,) -> (d,)

    jacobian = torch.autograd.functional.jacobian(query_of_head_0, x)  # (d, C)
    read = (jacobian != 0).any(0).sum().item()
    print(f"head 0 has {len(jacobian)} query features and reads {read} of 16")
    return {"features": read}


def example_one_head():
    torch.manual_seed(0)
    module = MultiHeadAttention(16, 1).double()
    x = torch.randn(2, 5, 16).double()  # (B, T, C)
    q, k, v = module.qkv(x).chunk(3, dim=-1)  # (B, T, C) each
    expected = module.out(attention(q, k, v)[0])
    output, _ = module(x, need_weights=True)
    print("one head is attention between projections:", output.equal(expected))
    return {"equal": str(output.equal(expected))}


def table_agreement():
    torch.manual_seed(0)
    x, memory = torch.randn(2, 5, 32).double(), torch.randn(2, 7, 32).double()
    hidden = torch.rand(5, 7) < 0.4  # True = may NOT attend, as nn has it
    hidden[:, 0] = False
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    rows, worst = [], 0.0
    for name, bias, theirs, ours in (
        ("self", True, {}, {}),
        ("self, causal", True, {"attn_mask": later}, {"is_causal": True}),
        ("self, no bias", False, {}, {}),
        ("cross", True, {}, {"memory": memory}),
        (
            "cross, masked",
            True,
            {"attn_mask": hidden},
            {"memory": memory, "mask": ~hidden},
        ),
    ):
        layer = nn.MultiheadAttention(32, 4, bias=bias, batch_first=True)
        module = MultiHeadAttention.from_torch(layer.double())
        y = ours.get("memory", x)
        expected, expected_weights = layer(
            x, y, y, **theirs, average_attn_weights=False
        )
        wanted = torch.autograd.grad(
            expected.square().sum(), list(layer.parameters())
        )
        row = {"4 heads, d_model 32, float64": name}
        for path in (False, True):
            output, weights = module(x, **ours, need_weights=path)
            found = torch.autograd.grad(
                output.square().sum(), list(module.parameters())
            )
            pairs = {
                "output": [(output, expected)],
                "weights": [(weights, expected_weights)] if path else [],
                "gradients": list(zip(found, wanted, strict=True)),
            }
            for what, both in pairs.items():
                off = max(
                    ((a - b).abs().max().item() for a, b in both), default=0
                )
                assert off < 1e-12, (name, what, off)
                worst = max(worst, off)
                row[what] = "below 1e-12"
        rows.append(row)
    return rows


def example_average():
    torch.manual_seed(0)
    x = torch.randn(1, 6, 8).double()  # (B, T, C)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        layer.in_proj_weight *= 4  # weights that are not nearly even
    swapped = copy.deepcopy(layer)
    rows = torch.arange(24).view(3, 2, 4)  # rows of q, k and v, by head
    rows[:2] = rows[:2].flip(1)  # queries and keys change heads, values stay
    with torch.no_grad():
        swapped.in_proj_weight.copy_(layer.in_proj_weight[rows.flatten()])
    output, averaged = layer(x, x, x)  # (B, T, C), (B, T, T)
    other_output, other_averaged = swapped(x, x, x)
    _, weights = layer(x, x, x, average_attn_weights=False)  # (B, H, T, T)
    same = torch.allclose(averaged, other_averaged, rtol=0, atol=1e-14)
    off = (output - other_output).abs().max().item()
    print("the same averaged weights:", same)
    print(f"outputs differ by {off:.2f}")
    for name, w in (("head 0", weights[0, 0]), ("head 1", weights[0, 1])):
        print(
            f"{name}: query 0 gives its largest weight to key {w[0].argmax()}"
        )
    assert torch.allclose(weights.mean(1), averaged)  # and this is the average
    print(f"mean entropy of the heads {entropy(weights).mean():.2f},")
    print(f"of their average {entropy(averaged).mean():.2f}")
    return {
        "difference": off,
        "heads": entropy(weights).mean().item(),
        "average": entropy(averaged).mean().item(),
    }


def table_heads():
    torch.manual_seed(0)
    torch.randn(1, 4, 8)  # the published digits start after this draw
    rows, values = [], {}
    for d in (8, 32, 64, 512):
        q, k = torch.randn(50_000, d), torch.randn(50_000, d)
        variance = (q * k).sum(-1).var().item()
        weights = (random_scores(d, 20_000, 50) / math.sqrt(d)).softmax(-1)
        with torch.device("meta"):  # holds shapes and no data
            module = MultiHeadAttention(512, 512 // d)
        parameters = sum(x.numel() for x in module.parameters())
        rows.append(
            {
                "heads": 512 // d,
                "head width d": d,
                "parameters": f"{parameters:,}",
                "variance of q·k": f"{variance:.1f}",
                "of q·k / √d": f"{variance / d:.4f}",
                "mean entropy": f"{entropy(weights).mean().item():.3f}",
                "median largest weight": f"{peak(weights).median().item():.2f}",
            }
        )
        values |= {
            f"variance_{d}": variance,
            f"scaled_{d}": variance / d,
            f"entropy_{d}": entropy(weights).mean().item(),
            f"peak_{d}": peak(weights).median().item(),
            "parameters": parameters,
            "pairs": len(q),
            "rows": len(weights),
            "uniform": math.log(50),
        }
    return rows[::-1], values


def table_start():
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(1, 300, 512, dtype=torch.float64, generator=generator)
    rows = []
    for n_heads, n_kv_heads in ((1, 1), (8, 8), (8, 2), (64, 64)):
        torch.manual_seed(1)
        module = MultiHeadAttention(512, n_heads, n_kv_heads=n_kv_heads)
        weight = module.qkv.weight.detach().double()
        q, k, _ = (x @ weight.T).split(
            (512, module.kv_width, module.kv_width), dim=-1
        )
        q, k = split(q, n_heads), split(k, n_kv_heads)  # (B, H, T, d)
        k = k.repeat_interleave(n_heads // n_kv_heads, dim=1)
        logits = q @ k.mT / math.sqrt(512 // n_heads)  # (B, H, T, T)
        weights = logits[..., :50].softmax(-1)
        share = entropy(weights).mean().item() / math.log(50)
        rows.append(
            {
                "query heads": n_heads,
                "key and value heads": n_kv_heads,
                "Var(q)": f"{q.var():.2f}",
                "Var(logits)": f"{logits.var():.1f}",
                "entropy over 50 keys, share of even": f"{share:.0%}",
            }
        )
    return rows


def example_fused():
    torch.manual_seed(0)
    c, n_heads, d = 32, 4, 8
    fused, out = torch.randn(3 * c, c).double(), torch.randn(c, c).double()
    x = torch.randn(2, 5, c).double() / 4

    def by_head(x):  # a model whose rows are q0, k0, v0, q1, k1, v1, ...
        y = (x @ fused.T).unflatten(-1, (n_heads, 3, d))  # (B, T, H, 3, d)
        q, k, v = (z.transpose(1, 2) for z in y.unbind(3))  # (B, H, T, d)
        return merge(F.scaled_dot_product_attention(q, k, v)) @ out.T

    module = MultiHeadAttention(c, n_heads, bias=False).double()
    rows = fused.unflatten(0, (n_heads, 3, d))  # (H·3·d, C) -> (H, 3, d, C)
    reordered = rows.transpose(0, 1).flatten(0, 2)  # (3, H, d, C), (3·H·d, C)
    for name, weight in (("as it is", fused), ("reordered", reordered)):
        module.load_state_dict({"qkv.weight": weight, "out.weight": out})
        off = (module(x)[0] - by_head(x)).abs().max().item()
        print(f"loaded {name}: the same to within 1e-12: {off < 1e-12}")


def table_refusals():
    module = MultiHeadAttention(8, 4)
    x, memory = torch.zeros(2, 3, 8), torch.zeros(2, 5, 8)
    cases: list[tuple[str, Callable[[], object]]] = [
        ("3 heads for a width of 10", lambda: MultiHeadAttention(10, 3)),
        (
            "3 key and value heads for 4",
            lambda: MultiHeadAttention(8, 4, n_kv_heads=3),
        ),
        ("no batch", lambda: module(x[0])),
        ("`module(x, x, x)`", lambda: module(x, x, x)),
        (
            "a mask of `(B, Tq, Tk)`",
            lambda: module(x, mask=torch.ones(2, 3, 3) > 0),
        ),
        ("is_causal with a memory", lambda: module(x, memory, is_causal=True)),
        (
            "a layer with kdim=6",
            lambda: MultiHeadAttention.from_torch(
                nn.MultiheadAttention(8, 2, kdim=6)
            ),
        ),
    ]
    rows, values = [], {}
    for name, call in cases:
        try:
            call()
        except (TypeError, ValueError) as error:
            kind = type(error).__name__
            rows.append({"given": name, "answer": f"`{kind}: {error}`"})
            values.setdefault("divisible", kind)
    return rows, values


def example_coincide():
    torch.manual_seed(0)
    module = MultiHeadAttention(8, 2).double()
    x, memory = torch.randn(4, 4, 8).double(), torch.randn(4, 6, 8).double()
    padding = torch.arange(6) < torch.tensor([6, 5, 4, 3])[:, None]  # (B, Tk)
    meant, _ = module(x, memory, padding[:, None, None])  # (B, 1, 1, Tk)
    read, _ = module(x, memory, padding)  # read as (Tq, Tk): no error
    print("the same:", torch.allclose(meant, read))


def table_builtin():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    module = MultiHeadAttention.from_torch(layer)
    x = torch.randn(2, 4, 8).double()  # (B, T, C)
    past = torch.ones(4, 4, dtype=torch.bool).tril()  # True = may attend
    window, first = past.triu(-1), past.tril(-1)  # query 0 of first has no key

    def run(options: dict[str, object], mask: Tensor, training: bool) -> str:
        expected, every = module(x, mask=mask)[0], module(x)[0]
        layer.train(training)
        try:
            with torch.set_grad_enabled(training):
                output, _ = layer(x, x, x, **options)
        except RuntimeError:
            return "RuntimeError"
        if output.isnan().any():
            return "NaN"
        if (output - expected).abs().max() < 1e-12:
            return "right"
        seen = (output - every).abs().max() < 1e-12
        return "every key seen" if seen else "differs, no error"

    rows = []
    for training in (True, False):
        for name, options, mask in (
            ("is_causal=True alone", {"is_causal": True}, past),
            (
                "is_causal=True and a window",
                {"is_causal": True, "attn_mask": ~window},
                window,
            ),
            ("a query without keys", {"attn_mask": ~first}, first),
        ):
            row = {
                "mode": "training" if training else "evaluated in `no_grad`",
                "`nn.MultiheadAttention`, given": name,
            }
            for need in (True, False):
                row[f"need_weights={need}"] = run(
                    {"need_weights": need, **options}, mask, training
                )
            rows.append(row)
    return rows


def example_question_parameters():
    with torch.device("meta"):  # shapes only
        for n_heads, n_kv_heads in ((1, 1), (8, 8), (8, 2), (8, 1)):
            module = MultiHeadAttention(512, n_heads, n_kv_heads=n_kv_heads)
            count = sum(x.numel() for x in module.parameters())
            print(f"{n_heads} heads on {n_kv_heads}: {count:,}")


def example_question_order():
    torch.manual_seed(0)
    module = MultiHeadAttention(16, 4).double()
    x = torch.randn(2, 5, 16).double()
    before, _ = module(x)
    order = torch.tensor([2, 0, 3, 1])
    columns = torch.arange(16).view(4, 4)[order].flatten()  # head by head
    rows = torch.cat([columns, 16 + columns, 32 + columns])  # of q, k and v
    with torch.no_grad():
        module.qkv.weight.copy_(module.qkv.weight[rows])
        module.qkv.bias.copy_(module.qkv.bias[rows])
        shuffled, _ = module(x)
        module.out.weight.copy_(module.out.weight[:, columns])
        both, _ = module(x)
    for name, output in (("heads", shuffled), ("heads and out", both)):
        same = torch.allclose(output, before, rtol=0, atol=1e-14)
        print(f"{name} reordered, the same output: {same}")
