"""What the page on splitting and merging heads runs."""

import functools
import itertools
import warnings
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets.attention import attention


def split(x: Tensor, n_heads: int) -> Tensor:
    """Give each head its columns: (B, T, C) -> (B, H, T, d)."""
    b, t, width = x.shape
    x = x.view(b, t, n_heads, width // n_heads)  # (B, T, H, d)
    return x.transpose(1, 2)  # (B, H, T, d)


def merge(x: Tensor) -> Tensor:
    """Put the heads side by side: (B, H, T, d) -> (B, T, C)."""
    b, n_heads, t, d = x.shape
    x = x.transpose(1, 2)  # (B, T, H, d)
    return x.reshape(b, t, n_heads * d)  # (B, T, C)


def bad_split(x: Tensor, n_heads: int) -> Tensor:
    """Cut memory into H parts, whatever lies there."""
    b, t, width = x.shape
    return x.view(b, n_heads, t, width // n_heads)  # (B, H, T, d)!


def bad_merge(x: Tensor) -> Tensor:
    """Cut the memory of the heads into T tokens, whatever lies there."""
    b, n_heads, t, d = x.shape
    return x.reshape(b, t, n_heads * d)  # (B, T, C)!


def draw_memory(axes: Axes, heads: Tensor, positions: Tensor) -> None:
    """One cell a number in memory, (T, C), with its head and position."""
    colours = plt.rcParams["axes.prop_cycle"].by_key()["color"]
    t, width = heads.shape
    for row, column in itertools.product(range(t), range(width)):
        head, position = int(heads[row, column]), int(positions[row, column])
        # A gap between the rows, as each is one token.
        corner, colour = (column, row + 0.06), (colours[head], 0.35)
        axes.add_patch(Rectangle(corner, 1, 0.88, facecolor=colour, lw=0))
        x, y, label = column + 0.5, row + 0.5, f"{head}, {position}"
        axes.text(x, y, label, ha="center", va="center")
    axes.set(xlim=(0, width), ylim=(t, 0), xlabel="feature")
    axes.set_xticks([i + 0.5 for i in range(width)], map(str, range(width)))
    names = [f"token {i}" for i in range(t)]
    axes.set_yticks([i + 0.5 for i in range(t)], names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def figure_memory() -> Figure:
    """Three tokens of four features, each cell with its head and position.

    In the right split, on the left, head 0 has the first two features of every
    token and head 1 the last two, and the position is the token. In the wrong
    one, on the right, head 0 has all of token 0 and half of token 1, head 1 has
    the rest, and positions 0 and 1 of head 0 are the two halves of token 0.
    """
    place = torch.arange(12).view(1, 3, 4)  # (B, T, C): where each number lies
    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(4.3, 2.2))
    for axes, name, cut in zip(
        panels, ("right", "wrong"), (split, bad_split), strict=True
    ):
        heads, positions = torch.empty(2, 12, dtype=torch.long)
        for head, cells in enumerate(cut(place, 2)[0]):  # (T, d)
            for position, cell in enumerate(cells):  # (d,)
                heads[cell], positions[cell] = head, position
        draw_memory(axes, heads.view(3, 4), positions.view(3, 4))
        axes.set_title(f"{name}: head, position")
    return figure


def example_split():
    torch.manual_seed(0)
    b, t, n_heads, d = 2, 5, 3, 4
    x = torch.randn(b, t, n_heads * d)  # (B, T, C)
    heads = [x[:, :, h * d : (h + 1) * d] for h in range(n_heads)]
    spec = torch.stack(heads, dim=1)  # (B, H, T, d), said by indexing
    with warnings.catch_warnings(record=True) as caught:
        right = x.view(b, t, n_heads, d).transpose(1, 2)  # (B, H, T, d)
        wrong = x.view(b, n_heads, t, d)  # (B, H, T, d), too
    print("right:", tuple(right.shape), torch.equal(right, spec))
    print("wrong:", tuple(wrong.shape), torch.equal(wrong, spec))
    same = (wrong == right).double().mean().item()
    print(f"entries that agree all the same: {same:.0%}")
    print("warnings:", len(caught))
    assert torch.equal(right, spec)  # the one-line test
    return {
        "coincide": same,
        "warnings": len(caught),
        "right_shape": str(tuple(right.shape)),
        "wrong_shape": str(tuple(wrong.shape)),
        "right": str(torch.equal(right, spec)),
        "wrong": str(torch.equal(wrong, spec)),
    }


def example_chunk():
    torch.manual_seed(0)
    q = torch.randn(2, 5, 36).chunk(3, dim=-1)[0]  # (B, T, 3C) -> (B, T, C)
    print("right, by view:", tuple(split(q, 3).shape))
    try:
        q.view(2, 3, 5, 4)  # the wrong split
    except RuntimeError as error:
        print(f"wrong, by view: {type(error).__name__}")
    silenced = q.reshape(2, 3, 5, 4)  # (B, H, T, d)!
    same = torch.equal(silenced, bad_split(q.contiguous(), 3))
    print("wrong, by reshape, is the bad split:", same)


def example_tokens():
    token = torch.arange(5).repeat_interleave(12).view(1, 5, 12)  # (B, T, C)
    block = torch.arange(3).repeat_interleave(4).repeat(1, 5, 1)  # (B, T, C)
    for name, cut in (("right", split), ("wrong", bad_split)):
        tokens, blocks = cut(token, 3), cut(block, 3)  # (B, H, T, d)
        for head in range(3):
            print(
                f"{name}, head {head}: tokens {tokens[0, head, :, 0].tolist()},"
                f" blocks {blocks[0, head, :, 0].tolist()}"
            )
    return {
        f"head_{head}": str(tokens[0, head].unique().tolist())
        for head in range(3)
    }


def example_downstream():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12).double()  # (B, T, C)
    right, wrong = split(x, 3), bad_split(x, 3)  # (B, H, T, d) both
    output, weights = attention(right, right, right)
    other, others = attention(wrong, wrong, wrong)
    print("shapes:", tuple(output.shape), tuple(other.shape))
    for name, each in (("right", weights), ("wrong", others)):
        sums_to_one = torch.allclose(each.sum(-1), torch.ones(()).double())
        print(f"{name}: rows of the weights sum to 1: {sums_to_one}")
    apart = (output - other).abs().max().item()
    print(f"largest difference of the outputs: {apart:.4f}")
    return {"difference": (apart, 1e-7)}


def example_contiguity():
    x = torch.zeros(2, 5, 12)  # (B, T, C)
    heads = x.view(2, 5, 3, 4).transpose(1, 2)  # (B, H, T, d)
    print("strides:", x.stride(), "->", heads.stride())
    print("contiguous:", heads.is_contiguous())
    print("copied:", heads.data_ptr() != x.data_ptr())
    try:
        heads.view(2, 5, 12)
        raised = "nothing"
    except RuntimeError as error:
        raised = type(error).__name__
    print("heads.view(B, T, C) raises", raised)
    merged = heads.reshape(2, 5, 12)  # raises nothing, and is wrong
    print("heads.reshape(B, T, C) copies:", merged.data_ptr() != x.data_ptr())
    back = heads.transpose(1, 2).view(2, 5, 12)  # (B, T, C), the same memory
    print("transposed back, a view:", back.data_ptr() == x.data_ptr())
    return {"view": raised}


def example_kernels():
    x = torch.zeros(2, 5, 12, device="cpu")  # (B, T, C)
    q = split(x, 3)  # (B, H, T, d)
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(q, q, q)  # (B, H, T, d)
        try:
            output.transpose(1, 2).view(2, 5, 12)  # (B, T, C)
            answer = "works"
        except RuntimeError:
            answer = "raises RuntimeError"
        strides = output.stride()
        print(f"{backend.name}: strides {strides}, then view {answer}")


def run_heads(
    x: Tensor,
    weight: Tensor,
    cut: Callable[[Tensor, int], Tensor],
    join: Callable[[Tensor], Tensor],
    *,
    n_heads: int = 4,
    causal: bool = True,
) -> Tensor:
    """Self-attention of x (B, T, C) with a split and a merge to be tried.

    The rows of weight, (3C, C), give all queries, all keys, then all values.
    """
    q, k, v = (
        cut(part.contiguous(), n_heads)
        for part in (x @ weight.T).chunk(3, dim=-1)  # (B, T, C) each
    )  # (B, H, T, d) each
    n = q.shape[-2]
    mask = torch.ones(n, n, dtype=torch.bool).tril() if causal else None
    return join(attention(q, k, v, mask)[0])  # (B, T, C)


def reach(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Whether output t depends on input s, (T, T), for a sequence x (T, C).

    Each input in turn is changed, all in one batch with x as it was.
    """
    steps = torch.eye(len(x), dtype=x.dtype)[:, :, None]  # (T, T, 1)
    outputs = layer(torch.cat([x[None], x + steps]))  # (1 + T, T, C)
    moved = (outputs[1:] - outputs[0]).abs().amax(-1)  # (T, T), input first
    return moved.T > 1e-9


PAIRS = {
    "right": (split, merge),
    "bad split": (bad_split, merge),
    "bad merge": (split, bad_merge),
    "both bad": (bad_split, bad_merge),
}


def draw_layer(n_tokens: int = 8, width: int = 16) -> tuple[Tensor, Tensor]:
    """Two sequences, (2, T, C), and the weight of q, k and v, (3C, C)."""
    generator = torch.Generator("cpu").manual_seed(0)
    x, weight = (
        torch.randn(shape, dtype=torch.float64, generator=generator)
        for shape in ((2, n_tokens, width), (3 * width, width))
    )
    return x, weight / width**0.5


def figure_reach() -> Figure:
    """Four maps of which of 8 inputs reach which outputs under a causal mask.

    With the right split and merge the map is the lower triangle. With a bad
    split, and with a bad merge, more than half of the pairs above the diagonal
    are filled, too. With both, nothing is above the diagonal, and below it only
    the pairs of neighbours 0 and 1, 2 and 3, 4 and 5, 6 and 7 are left.
    """
    x, weight = draw_layer()
    figure, panels = plt.subplots(2, 2, sharex=True, sharey=True)
    figure.set_size_inches(4.2, 4.5)
    for axes, (name, (cut, join)) in zip(
        panels.flat, PAIRS.items(), strict=True
    ):
        layer = functools.partial(run_heads, weight=weight, cut=cut, join=join)
        seen = reach(layer, x[0])
        axes.imshow(seen.int().tolist(), vmin=0, vmax=1)
        axes.plot([-0.5, 7.5], [-0.5, 7.5], color="C0", lw=1.5)
        axes.set_title(name)
        axes.set_xticks(range(0, 8, 2))
        axes.set_yticks(range(0, 8, 2))
    figure.supxlabel("input token")
    figure.supylabel("output token")
    return figure


def table_leaks():
    x, weight = draw_layer()
    p = torch.tensor([3, 6, 0, 7, 4, 1, 5, 2])
    rows, values = [], {}
    for name, (cut, join) in PAIRS.items():

        def layer(x, causal=True, cut=cut, join=join):
            return run_heads(x, weight, cut, join, causal=causal)

        seen = reach(layer, x[0])
        future = seen.triu(1).sum().item()
        lost = (~seen).tril().sum().item()
        moved = layer(x[:, p], causal=False) - layer(x, causal=False)[:, p]
        error = moved.abs().max().item()
        assert error > 1 or error < 1e-14
        rows.append(
            {
                "T = 8, H = 4": name,
                "of 28 future pairs, leaked": future,
                "of 36 past pairs, lost": lost,
                "error when tokens are shuffled": f"{error:.2f}"
                if error > 1
                else "below 1e-14",
            }
        )
        key = name.replace(" ", "_")
        values |= {f"future_{key}": future, f"lost_{key}": lost}
        if error > 1:
            values[f"error_{key}"] = error
    return rows, values


def table_growth():
    rows = []
    sizes = (1, 4), (8, 1), (8, 2), (8, 4), (8, 8), (12, 8), (32, 8)
    for t, n_heads in sizes:
        x, weight = draw_layer(t, 2 * n_heads)
        leaked, lost = {}, {}
        for name, (cut, join) in PAIRS.items():
            layer = functools.partial(
                run_heads, weight=weight, cut=cut, join=join, n_heads=n_heads
            )
            seen = reach(layer, x[0])
            leaked[name] = seen.triu(1).sum().item()
            lost[name] = (~seen).tril().sum().item()
        assert leaked["bad split"] == leaked["bad merge"]
        assert lost["bad split"] == lost["bad merge"]
        rows.append(
            {
                "T": t,
                "H": n_heads,
                "future pairs": f"{t * (t - 1) // 2:,}",
                "one bad: leaked": f"{leaked['bad split']:,}",
                "both bad: leaked": f"{leaked['both bad']:,}",
                "past pairs": f"{t * (t + 1) // 2:,}",
                "one bad: lost": f"{lost['bad split']:,}",
                "both bad: lost": f"{lost['both bad']:,}",
            }
        )
    return rows


def no_transpose(x: Tensor, n_heads: int) -> Tensor:
    """Leave out the transpose: (B, T, C) -> (B, T, H, d)."""
    return x.unflatten(-1, (n_heads, -1))


def dealt_split(x: Tensor, n_heads: int) -> Tensor:
    """Deal features to heads in turn: (B, T, C) -> (B, H, T, d)."""
    return x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2)


def dealt_merge(x: Tensor) -> Tensor:
    """Undo `dealt_split`: (B, H, T, d) -> (B, T, C)."""
    return x.permute(0, 2, 3, 1).flatten(-2)


def swapped_split(x: Tensor, n_heads: int) -> Tensor:
    """Take the batch for the time: (B, T, C) -> (T, H, B, d)."""
    return split(x.transpose(0, 1), n_heads)


def swapped_merge(x: Tensor) -> Tensor:
    """Undo `swapped_split`: (T, H, B, d) -> (B, T, C)."""
    return merge(x).transpose(0, 1)


BUGS = {
    **PAIRS,
    "no transpose": (no_transpose, lambda x: x.flatten(-2)),
    "features dealt in turn": (dealt_split, dealt_merge),
    "batch taken for time": (swapped_split, swapped_merge),
}


def shape_test(layer: Callable[..., Tensor], x: Tensor) -> bool:
    """Same shape out as in."""
    return layer(x).shape == x.shape


def spec_test(layer: Callable[..., Tensor], x: Tensor, weight: Tensor) -> bool:
    """Equal to one head at a time, each found by indexing."""
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    outputs = []
    for q_rows, k_rows, v_rows in zip(*weight.view(3, 4, -1, 16), strict=True):
        q, k, v = x @ q_rows.T, x @ k_rows.T, x @ v_rows.T  # (B, T, d) each
        outputs.append(attention(q, k, v, mask)[0])
    return torch.allclose(layer(x), torch.cat(outputs, -1), rtol=0, atol=1e-12)


def causality_test(layer: Callable[..., Tensor], x: Tensor) -> bool:
    """A changed token changes no output before it."""
    before = layer(x)
    for t in range(1, x.shape[1]):
        changed = x.clone()
        changed[:, t] += 1
        if not torch.equal(layer(changed)[:, :t], before[:, :t]):
            return False
    return True


def past_test(layer: Callable[..., Tensor], x: Tensor) -> bool:
    """The first token reaches the last output."""
    changed = x.clone()
    changed[:, 0] += 1
    return not torch.equal(layer(changed)[:, -1], layer(x)[:, -1])


def shuffle_test(layer: Callable[..., Tensor], x: Tensor) -> bool:
    """Without a mask, shuffled tokens give shuffled outputs."""
    order = torch.arange(x.shape[1]).roll(3)
    shuffled = layer(x[:, order], causal=False)
    expected = layer(x, causal=False)[:, order]
    return torch.allclose(shuffled, expected, rtol=0, atol=1e-12)


def batch_test(layer: Callable[..., Tensor], x: Tensor) -> bool:
    """The last sequence alone gives what it gives in the batch."""
    return torch.allclose(layer(x[-1:]), layer(x)[-1:], rtol=0, atol=1e-12)


def table_tests():
    x, weight = draw_layer()
    rows = []
    for name, (cut, join) in BUGS.items():

        def layer(x, causal=True, cut=cut, join=join):
            return run_heads(x, weight, cut, join, causal=causal)

        found = {
            "shape": shape_test(layer, x),
            "round trip": torch.equal(join(cut(x, 4)), x),
            "spec by indexing": spec_test(layer, x, weight),
            "future changed": causality_test(layer, x),
            "first reaches last": past_test(layer, x),
            "tokens shuffled": shuffle_test(layer, x),
            "one alone": batch_test(layer, x),
        }
        rows.append(
            {"layout": name}
            | {test: "·" if ok else "**fails**" for test, ok in found.items()}
        )
    return rows


def example_invisible():
    same = []
    for t, n_heads in itertools.product(range(1, 9), range(1, 9)):
        place = torch.arange(t * n_heads * 2).view(1, t, -1)  # (B, T, C)
        if torch.equal(split(place, n_heads), bad_split(place, n_heads)):
            same.append((t, n_heads))
    print("the same at T = 1 for H =", [h for t, h in same if t == 1])
    print("the same at H = 1 for T =", [t for t, h in same if h == 1])
    print("elsewhere:", [pair for pair in same if 1 not in pair])


def example_fused():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12).double()  # (B, T, C), for 4 heads of width 3
    weight = torch.randn(36, 12).double()  # (3C, C): rows of q, of k, of v

    def blocked(y):  # (B, T, 3C): all of q, all of k, all of v
        y = y.view(2, 5, 3, 4, 3)  # (B, T, 3, H, d)
        return y.permute(2, 0, 3, 1, 4)  # (3, B, H, T, d)

    def interleaved(y):  # (B, T, 3C): q, k and v of head 0, of head 1, ...
        y = y.view(2, 5, 4, 3, 3)  # (B, T, H, 3, d)
        return y.permute(3, 0, 2, 1, 4)  # (3, B, H, T, d)

    rows = weight.view(3, 4, 3, 12).transpose(0, 1)  # (H, 3, d, C)
    converted = rows.reshape(36, 12)  # (3C, C), interleaved by head
    right = attention(*blocked(x @ weight.T))[0]  # (B, H, T, d)
    same = attention(*interleaved(x @ converted.T))[0]
    wrong = attention(*interleaved(x @ weight.T))[0]
    print("converted, read interleaved:", torch.allclose(same, right, 0, 1e-12))
    apart = (wrong - right).abs().max().item()
    print(f"read interleaved: shape {tuple(wrong.shape)}, off by {apart:.2f}")
    return {"apart": apart}


def example_builtin():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, 3, bias=False, batch_first=True).double()
    x = torch.randn(2, 5, 12).double()  # (B, T, C)
    with torch.no_grad():
        output, weights = layer(x, x, x, average_attn_weights=False)
        q, k, v = (
            split(part, 3)  # (B, H, T, d)
            for part in F.linear(x, layer.in_proj_weight).chunk(3, dim=-1)
        )
        ours, our_weights = attention(q, k, v)
        ours = layer.out_proj(merge(ours))  # (B, T, C)
    print("weights:", tuple(weights.shape))  # (B, H, T, T)
    print("weights as ours:", torch.allclose(weights, our_weights, 0, 1e-14))
    print("output as ours:", torch.allclose(output, ours, 0, 1e-14))


def example_unflatten():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12)  # (B, T, C)
    heads = x.unflatten(-1, (3, -1)).transpose(1, 2)  # (B, H, T, d)
    back = heads.transpose(1, 2).flatten(-2)  # (B, T, C)
    print("split:", torch.equal(heads, split(x, 3)))
    print("merge:", torch.equal(back, merge(heads)), torch.equal(back, x))
    try:
        x.unflatten(-1, (5, -1))
    except RuntimeError:
        print("5 heads for a width of 12: RuntimeError")
    wrong = x.flatten(1).unflatten(1, (3, 5, 4))  # (B, T·C) -> (B, H, T, d)
    print("flatten(1), bad split:", torch.equal(wrong, bad_split(x, 3)))
    wrong = heads.flatten(1).unflatten(1, (5, 12))  # (B, H·T·d) -> (B, T, C)
    print("flatten(1), bad merge:", torch.equal(wrong, bad_merge(heads)))


def example_question_flat():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12)  # (B, T, C)
    flat = x.view(2 * 3, 5, 4)  # (B · H, T, d)
    heads = flat.view(2, 3, 5, 4)  # (B, H, T, d)
    print("as the right split:", torch.equal(heads, split(x, 3)))
    print("as the wrong split:", torch.equal(heads, bad_split(x, 3)))


def example_question_round_trip():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12)  # (B, T, C)
    print("right:", torch.equal(merge(split(x, 3)), x))
    print("both bad:", torch.equal(bad_merge(bad_split(x, 3)), x))
    print("one bad:", torch.equal(merge(bad_split(x, 3)), x))
