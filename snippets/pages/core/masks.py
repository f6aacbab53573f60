"""What the page on masks runs."""

import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from snippets.attention import attention
from snippets.masks import (
    additive,
    all_of,
    any_of,
    below,
    causal,
    dense,
    describe,
    documents,
    multihead_arguments,
    negate,
    padding,
    prefix,
    same,
    sliding_window,
    up_to,
)


def figure_masks() -> Figure:
    """Six masks of six queries and six keys; a filled cell may attend.

    Causal: the lower triangle. Padding of length 4: the first four columns.
    Both: the triangle, cut off after the fourth column. A window of 3: a band
    of three cells along the diagonal. A prefix of 3: the triangle and the first
    three columns. Documents of lengths 2, 3 and 1: squares along the diagonal.
    """
    four, three = torch.tensor([4]), torch.tensor([3])
    panels = {
        "causal": causal(6, 6),
        "padding": padding(four, 6).expand(1, 1, 6, 6),
        "both": causal(6, 6) & padding(four, 6),
        "window": sliding_window(6, 6, 3),
        "prefix": prefix(three, 6, 6),
        "documents": documents(torch.tensor([[0, 0, 1, 1, 1, 2]])),
    }
    figure, grid = plt.subplots(
        2, 3, sharex=True, sharey=True, figsize=(5.2, 4.1)
    )
    filled = ListedColormap(["none", "C0"])
    edges = torch.arange(7) - 0.5
    for axes, (name, mask) in zip(grid.flat, panels.items(), strict=True):
        axes.imshow(mask[0, 0].tolist(), cmap=filled, vmin=0, vmax=1)
        for edge in edges.tolist():
            axes.axhline(edge, color=plt.rcParams["axes.edgecolor"], lw=0.8)
            axes.axvline(edge, color=plt.rcParams["axes.edgecolor"], lw=0.8)
        axes.set_title(name)
        axes.set(xticks=range(6), yticks=range(6))
        axes.set(xlim=(-0.5, 5.5), ylim=(5.5, -0.5))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("key")
    for axes in grid[:, 0]:
        axes.set_ylabel("query")
    return figure


def example_by_hand():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8).double().unbind()  # (B, H, T, d) each
    lengths = torch.tensor([6, 4])  # tokens in each example, the rest padding

    i = torch.arange(6)[:, None]  # (Tq, 1)
    j = torch.arange(6)  # (Tk,)
    past = j <= i  # (Tq, Tk): True = may attend
    tokens = j < lengths[:, None, None, None]  # (B, 1, 1, Tk)
    mask = past & tokens  # (B, 1, Tq, Tk): both

    logits = q @ k.mT / math.sqrt(8)  # (B, H, Tq, Tk)
    weights = logits.masked_fill(~mask, -math.inf).softmax(-1)
    output = weights @ v  # (B, H, Tq, d)

    above = weights[(~past).expand_as(weights)]
    padded = weights[(~tokens).expand_as(weights)]
    sums = weights.sum(-1)  # (B, H, Tq)
    print("largest weight above the diagonal:", above.max().item())
    print("largest weight on padding:", padded.max().item())
    print("rows sum to 1:", torch.allclose(sums, torch.ones_like(sums)))
    print("output:", tuple(output.shape))
    return {
        "above": above.max().item(),
        "padded": padded.max().item(),
        "rows": sums.numel(),
        "rows_of_sum_1": int(((sums - 1).abs() < 1e-14).sum()),
    }


def example_functions():
    lengths = torch.tensor([6, 4])
    mask = causal(6, 6) & padding(lengths, 6)  # (1, 1, T, T) & (B, 1, 1, T)
    print(tuple(mask.shape))
    print(describe(mask))


def example_predicate():
    lengths = torch.tensor([3, 5])
    both = all_of(up_to(), below(lengths))  # a function
    mask = dense(both, (2, 1, 5, 5))  # (B, 1, Tq, Tk): a tensor
    for rows in zip(*mask[:, 0].tolist(), strict=True):  # a picture
        print("   ".join("".join(" ■" if x else " ·" for x in r) for r in rows))

    b, h, q_idx, kv_idx = torch.tensor([0, 0, 4, 2]).unbind()
    print("may query 4 of example 0 see key 2?", both(b, h, q_idx, kv_idx))
    theirs = create_mask(both, 2, 1, 5, 5, device="cpu")  # FlexAttention's
    print("FlexAttention makes the same tensor:", mask.equal(theirs))


def example_block_mask():
    lengths = torch.tensor([3, 5])
    both = all_of(up_to(), below(lengths))  # reads b, the example
    found = {}
    for n_examples in (None, 2):
        blocks = create_block_mask(
            both, n_examples, None, 5, 5, "cpu", BLOCK_SIZE=1
        )
        pairs = blocks.to_dense().sum((1, 2, 3)).tolist()
        found[n_examples] = pairs
        print(f"B={n_examples}: pairs that may attend, by example: {pairs}")
    allowed = dense(both, (2, 1, 5, 5)).sum((1, 2, 3)).tolist()
    print("what the predicate allows:", allowed)
    return {"without": found[None][0], "second": allowed[1]}


def list_masks():
    """Each mask of six tokens: its name, tensor and predicate, with code."""
    n = torch.tensor([4])
    ids = torch.tensor([[0, 0, 1, 1, 1, 2]])
    return [
        ("causal", "causal(6, 6)", causal(6, 6), "up_to()", up_to()),
        ("padding", "padding(n, 6)", padding(n, 6), "below(n)", below(n)),
        (
            "both",
            "causal(6, 6) & padding(n, 6)",
            causal(6, 6) & padding(n, 6),
            "all_of(up_to(), below(n))",
            all_of(up_to(), below(n)),
        ),
        (
            "window of 3",
            "sliding_window(6, 6, 3)",
            sliding_window(6, 6, 3),
            "all_of(up_to(), negate(up_to(-3)))",
            all_of(up_to(), negate(up_to(-3))),
        ),
        (
            "prefix",
            "prefix(n, 6, 6)",
            prefix(n, 6, 6),
            "any_of(up_to(), below(n))",
            any_of(up_to(), below(n)),
        ),
        ("documents", "documents(ids)", documents(ids), "same(ids)", same(ids)),
        (
            "documents, causal",
            "documents(ids) & causal(6, 6)",
            documents(ids) & causal(6, 6),
            "all_of(same(ids), up_to())",
            all_of(same(ids), up_to()),
        ),
    ]


def table_masks():
    rows = []
    for name, code, mask, rule, predicate in list_masks():
        whole = mask.expand(1, 1, 6, 6)
        assert whole.equal(create_mask(predicate, 1, 1, 6, 6, device="cpu"))
        rows.append(
            {
                "mask": name,
                "tensor": f"`{code}`",
                "shape": f"`{tuple(mask.shape)}`",
                "predicate": f"`{rule}`",
                "keys of each query": f"`{whole.sum(-1)[0, 0].tolist()}`",
            }
        )
    return rows


def example_alignment():
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 6, 8)  # (B, H, T, d)
    v = torch.eye(6)[None, None]  # (B, H, Tk, Tk): the output is the weights
    sdpa = F.scaled_dot_product_attention
    for name, weights in (
        ("is_causal=True", sdpa(q, k, v, is_causal=True)),
        ("causal(2, 6, offset=0)", sdpa(q, k, v, causal(2, 6, offset=0))),
        ("causal(2, 6)", sdpa(q, k, v, causal(2, 6))),
    ):
        counts = (weights > 0).sum(-1).flatten().tolist()
        print(f"{name:22}: the two queries see {counts} of 6 keys")


def example_edit():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()  # (B, H, T, d), float32
    new_k, new_v = k.clone(), v.clone()
    new_k[..., 3:, :] *= 10  # the future of queries 0, 1 and 2
    new_v[..., 3:, :] += 10
    past = causal(6, 6)
    sdpa = F.scaled_dot_product_attention
    moves = {}
    for name, run in {
        "attention": lambda k, v: attention(q, k, v, past)[0],
        "built-in, mask": lambda k, v: sdpa(q, k, v, past),
        "built-in, is_causal": lambda k, v: sdpa(q, k, v, is_causal=True),
        "no mask": lambda k, v: sdpa(q, k, v),
    }.items():
        moved = (run(new_k, new_v) - run(k, v)).abs()  # (B, H, Tq, d)
        moves[name] = moved[..., :3, :].max().item()
        print(f"{name:19}: the past moves by {moves[name]:.1f}")
    assert max(list(moves.values())[:3]) == 0.0  # not by one bit
    return {"moved": moves["attention"], "no_mask": moves["no mask"]}


def example_not_a_number():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 6, 8).unbind()  # (B, H, T, d) each
    tokens = padding(torch.tensor([5]), 6)  # (B, 1, 1, Tk): hides key 5
    v[..., 5, :] = math.nan
    real = tokens.mT  # (B, 1, Tk, 1): the same, for values
    found = {}
    for name, mask, value in (
        ("causal", causal(6, 6), v),
        ("padding", tokens, v),
        ("padding, values times 0", tokens, v * real),
        ("padding, values filled with 0", tokens, v.masked_fill(~real, 0)),
    ):
        output, _ = attention(q, k, value, mask)
        may = mask.expand(1, 1, 6, 6)[..., 5].sum().item()
        found[name] = may, output.isnan().any(-1).sum().item()
        print(f"{name:29}: key 5 is seen by {may}, ", end="")
        print(f"NaN in {found[name][1]} of 6 outputs")
    return {
        "allowed": found["causal"][0],
        "reached": found["causal"][1],
        "padding": found["padding"][1],
        "filled": found["padding, values filled with 0"][1],
    }


def shares_of_the_past(q: Tensor, k: Tensor) -> Tensor:
    """Row sums of weights that were masked after the softmax: (..., T)."""
    t, d = q.shape[-2:]
    weights = (q @ k.mT / math.sqrt(d)).softmax(-1)  # (..., T, T)
    return (weights * causal(t, t)[0, 0]).sum(-1)


def example_after():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 6, 16).double().unbind()  # (T, d) each
    past = causal(6, 6)[0, 0]  # (T, T)
    right, weights = attention(q, k, v, past)
    late = (q @ k.T / 4).softmax(-1) * past  # masked after the softmax
    sums = late.sum(-1)  # (T,)
    again = late / sums[:, None]  # renormalised
    shrunk = (late @ v).norm(dim=-1) / right.norm(dim=-1)  # (T,)
    itself = shares_of_the_past(q, q)
    for name, numbers in (
        ("row sums, masked before", weights.sum(-1)),
        ("row sums, masked after", sums),
        ("length of the output", shrunk),
        ("row sums after, q = k", itself),
    ):
        print(f"{name:24}", " ".join(f"{x:.4f}" for x in numbers.tolist()))
    equal = torch.allclose(again, weights, rtol=0, atol=1e-14)
    print("renormalised, the weights are right to within 1e-14:", equal)
    return {
        "least": sums.min().item(),
        "least_shrunk": shrunk.min().item(),
        "least_q_is_k": itself.min().item(),
        "last": sums[-1].item(),
    }


def table_shares():
    generator = torch.Generator("cpu").manual_seed(0)
    shape = 2, 20_000, 6, 16  # q and k of 20,000 examples: (n, T, d) each
    q, k = torch.randn(shape, generator=generator, dtype=torch.float64)
    rows, values = [], {"examples": len(q)}
    apart, equal = shares_of_the_past(q, k), shares_of_the_past(q, q)  # (n, T)
    for i in range(6):
        error = apart[:, i].std().item() / math.sqrt(len(q))
        mean = apart[:, i].mean().item()
        assert abs(mean - (i + 1) / 6) <= 4 * error + 1e-12
        rows.append(
            {
                "query i": i,
                "(i + 1) / T": f"{(i + 1) / 6:.3f}",
                "mean row sum": f"{mean:.3f}",
                "standard error": f"{error:.4f}",
                "5 % of rows below": f"{apart[:, i].quantile(0.05).item():.3f}",
                "mean row sum, q = k": f"{equal[:, i].mean().item():.3f}",
            }
        )
        values |= {f"mean_{i}": mean, f"equal_{i}": equal[:, i].mean().item()}
    return rows, values


def table_late():
    rows = []
    allowed = torch.tensor([True, True, False])
    for hidden in (0, 10, 16, 20, 50, 120):
        row = {"logits": f"0, 1 and {hidden}, hidden"}
        for dtype in (torch.float16, torch.float32):
            logits = torch.tensor([0.0, 1.0, hidden], dtype=dtype)
            for name, way in (
                ("−∞ before", masked_before),
                ("0 after, divided", renormalised),
            ):
                found = way(logits, allowed)[:2].tolist()
                row[f"{name}: {str(dtype).removeprefix('torch.')}"] = ", ".join(
                    "NaN" if math.isnan(x) else f"{x:.3f}" for x in found
                )
        rows.append(row)
    return rows


def masked_before(logits: Tensor, mask: Tensor) -> Tensor:
    return logits.masked_fill(~mask, -math.inf).softmax(-1)


def masked_after(logits: Tensor, mask: Tensor) -> Tensor:
    return logits.softmax(-1) * mask


def renormalised(logits: Tensor, mask: Tensor) -> Tensor:
    weights = logits.softmax(-1) * mask
    return weights / weights.sum(-1, keepdim=True)


def multiplied(logits: Tensor, mask: Tensor) -> Tensor:
    return (logits * mask).softmax(-1)


def added(logits: Tensor, mask: Tensor) -> Tensor:
    return (logits + mask.to(logits.dtype)).softmax(-1)


def table_ways():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 6, 16).double().unbind()  # (T, d) each
    past = causal(6, 6)[0, 0]
    new_k, new_v = k.clone(), v.clone()
    new_k[3:] *= 3  # the future of queries 0, 1 and 2
    new_v[3:] += 1

    def name_size(x: float) -> str:
        return (
            "0, exactly"
            if x == 0
            else f"{x:.2f}"
            if x > 1e-14
            else "below 1e-14"
        )

    rows, values = [], {}
    for name, way in (
        ("−∞ before the softmax", masked_before),
        ("0 after the softmax", masked_after),
        ("0 after it, then divided by the sum", renormalised),
        ("logits times the mask", multiplied),
        ("mask of 0 and 1 added", added),
    ):
        key = k.clone().requires_grad_()
        weights = way(q @ key.T / 4, past)  # (T, T)
        output = weights @ v
        (gradient,) = torch.autograd.grad(output[:3].sum(), key)
        edited = way(q @ new_k.T / 4, past) @ new_v
        moved = (edited - output)[:3].abs().max().item()
        sent = gradient[3:].abs().max().item()
        hidden = (weights * ~past).sum(-1)[:3].max().item()
        rows.append(
            {
                "mask": name,
                "least row sum": f"{weights.sum(-1).min().item():.2f}",
                "most weight on the future": name_size(hidden),
                "editing it moves the past by": name_size(moved),
                "its gradient from the past": name_size(sent),
            }
        )
        values |= {
            f"{way.__name__}_moved": moved,
            f"{way.__name__}_hidden": hidden,
        }
    return rows, values


def example_multiplied():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 6, 16).double().unbind()  # (T, d) each
    past = causal(6, 6)[0, 0]
    logits = q @ k.T / 4  # (Tq, Tk)
    right = logits.masked_fill(~past, -math.inf).softmax(-1)
    wrong = (logits * past).softmax(-1)  # a hidden logit is 0, not -inf
    for name, weights in (("right", right), ("wrong", wrong)):
        first = ", ".join(f"{x:.3f}" for x in weights[0].tolist())
        print(f"{name}: the first query weighs the keys {first}")
    # The test: the first query sees one key, so it returns that key's value.
    assert torch.equal((right @ v)[0], v[0])
    assert not torch.allclose((wrong @ v)[0], v[0])
    return {"hidden": wrong[0, 1:].sum().item()}


def each_alone(
    run: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    lengths: Tensor,
) -> bool:
    """Whether each example gives what it gives alone, cut to its length."""
    output = run(q, k, v, mask)  # (B, H, T, dv)
    return all(
        torch.allclose(
            output[b, :, :n],
            attention(q[b, :, :n], k[b, :, :n], v[b, :, :n])[0],
        )
        for b, n in enumerate(lengths.tolist())
    )


def table_shapes():
    ways: dict[str, tuple[str, Callable[[Tensor], Tensor], str]] = {
        "tokens[:, None, None]": (
            "(B, 1, 1, T)",
            lambda x: x[:, None, None],
            "every query of example b gets the padding of example b",
        ),
        "tokens": (
            "(B, T)",
            lambda x: x,
            "query i gets the padding of example i",
        ),
        "tokens[:, None]": (
            "(B, 1, T)",
            lambda x: x[:, None],
            "head h gets the padding of example h",
        ),
        "pairs": (
            "(B, T, T)",
            lambda x: x[:, None].expand(-1, x.shape[1], -1),
            "head h gets the mask of example h",
        ),
        "tokens[:, None, :, None]": (
            "(B, 1, T, 1)",
            lambda x: x[:, None, :, None],
            "queries are hidden, padding is attended to",
        ),
    }
    sizes = {
        "B 2, H 3, T 4": (2, 3, 4),
        "B = H = 3, T 4": (3, 3, 4),
        "B = T = 4, H 3": (4, 3, 4),
        "B 1, H 3, T 4": (1, 3, 4),
    }

    def run_ours(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return attention(q, k, v, mask)[0]

    def judge(run, n_examples: int, n_heads: int, t: int, way) -> str:
        generator = torch.Generator("cpu").manual_seed(0)
        shape = 3, n_examples, n_heads, t, 8
        q, k, v = torch.randn(shape, generator=generator, dtype=torch.float64)
        lengths = torch.tensor([3, 1, 4, 2])[:n_examples]
        tokens = torch.arange(t) < lengths[:, None]  # (B, T)
        try:
            right = each_alone(run, q, k, v, way(tokens), lengths)
        except (ValueError, RuntimeError):
            return "refused"
        return "right" if right else "wrong"

    rows = []
    for code, (shape, way, meaning) in ways.items():
        row = {"mask, its shape": f"`{code}`, `{shape}`"}
        for name, size in sizes.items():
            row[name] = judge(F.scaled_dot_product_attention, *size, way)
        sdpa = [row[name] for name in sizes]
        ours = [judge(run_ours, *size, way) for size in sizes.values()]
        if ours == sdpa:
            row["`attention`"] = "as SDPA"
        else:
            (row["`attention`"],) = set(ours)
        rows.append(row | {"what SDPA reads": meaning})
    return rows


def example_shapes():
    lengths = torch.tensor([2, 1, 2])  # of three examples of two tokens
    tokens = torch.arange(2) < lengths[:, None]  # (B, T)
    print("meant:")
    print(describe(tokens[:, None, None], (3, 3, 2, 2)))
    print("(B, 1, T) where B = H, as SDPA reads it, (1, B, 1, T):")
    print(describe(tokens[None, :, None], (3, 3, 2, 2)))
    try:
        describe(tokens[:, None], (3, 3, 2, 2))
    except ValueError as error:
        print("(B, 1, T) as it is:", type(error).__name__)


def example_forms():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8).double().unbind()  # (B, H, T, d) each
    mask = causal(6, 6) & padding(torch.tensor([6, 4]), 6)  # (B, 1, T, T)
    expected, _ = attention(q, k, v, mask)
    for name, form in (
        ("boolean", mask),
        ("0 and -inf", additive(mask, q.dtype)),
        ("0 and 1", mask.double()),
        ("inverted", ~mask),
    ):
        output = F.scaled_dot_product_attention(q, k, v, form)
        equal = torch.allclose(output, expected, rtol=0, atol=1e-14)
        print(f"{name:10}: equal to within 1e-14: {equal}")


def example_multihead():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = torch.randn(2, 4, 8).double()  # (B, T, C)
    new = x.clone()
    new[1, 3] += 1  # padding, and the last token
    shape = 2, 2, 4, 4  # (B, H, Tq, Tk)
    past, tokens = causal(4, 4), padding(torch.tensor([4, 3]), 4)
    for name, masks in {
        "together": multihead_arguments(past & tokens, shape),
        "apart": {
            "attn_mask": ~past[0, 0],
            "key_padding_mask": ~tokens[:, 0, 0],
        },
        "not converted": {"attn_mask": past[0, 0]},
    }.items():
        given = ", ".join(f"{n} {tuple(m.shape)}" for n, m in masks.items())
        before, after = (
            layer(y, y, y, **masks, need_weights=False)[0] for y in (x, new)
        )
        moved = (after - before)[1, :3].abs().max().item()
        print(f"{name}: {given}; moved by {moved:.2f}")


def table_bytes():
    n_examples, n_heads, t = 8, 32, 8192
    rows = []
    for name, shape in (
        ("`padding`", (n_examples, 1, 1, t)),
        ("`causal`", (1, 1, t, t)),
        ("`causal & padding`", (n_examples, 1, t, t)),
        ("the same, copied for each head", (n_examples, n_heads, t, t)),
    ):
        mask = dense(up_to(), shape, device="meta")  # a shape without data
        size = mask.numel() * mask.element_size()
        unit, name_of_unit = (2**30, "GiB") if size >= 2**30 else (2**20, "MiB")
        if size < 2**20:
            unit, name_of_unit = 2**10, "KiB"
        rows.append(
            {
                "mask": name,
                "shape": f"`{shape}`",
                "boolean": f"{size // unit} {name_of_unit}",
            }
        )
    return rows


def example_question_left():
    tokens = torch.tensor([[False, False, True, True]])  # (B, T): padded left
    print(describe(causal(4, 4) & tokens[:, None, None]))


def example_question_window():
    mask = sliding_window(20, 20, 4)
    print("query 10 sees keys", mask[0, 0, 10].nonzero().flatten().tolist())
    print("query 2 sees keys", mask[0, 0, 2].nonzero().flatten().tolist())
