"""What the page on order runs."""

import itertools
import math

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from snippets.attention import attention


def draw_weights(n_layers: int, width: int = 16) -> Tensor:
    """Weights of q, k and v for each layer, (n_layers, 3, C, C)."""
    generator = torch.Generator("cpu").manual_seed(0)
    shape = n_layers, 3, width, width
    weights = torch.randn(shape, dtype=torch.float64, generator=generator)
    return weights / math.sqrt(width)


def run_layers(
    x: Tensor, weights: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Layers of self-attention without positions: (..., T, C) -> (..., T, C).

    Each adds to its input, through a function of one token at a time.
    """
    for w_q, w_k, w_v in weights:
        output, _ = attention(x @ w_q, x @ w_k, x @ w_v, mask)
        x = x + output.tanh()
    return x


FIRST = "the dog bites the man"
SECOND = "the man bites the dog"


def embed(sentence: str) -> Tensor:
    """A random vector for each word, (T, C), the same wherever it stands."""
    words = sorted({*FIRST.split()})
    generator = torch.Generator("cpu").manual_seed(1)
    table = torch.randn(4, 16, dtype=torch.float64, generator=generator)
    return table[[words.index(word) for word in sentence.split()]]


def word_changes(mask: Tensor | None) -> Tensor:
    """How far the output of each word of FIRST moves in SECOND, (T,)."""
    weights = draw_weights(1)
    first = run_layers(embed(FIRST), weights, mask)  # (T, C)
    second = run_layers(embed(SECOND), weights, mask)  # (T, C)
    return (first - second[[0, 4, 2, 3, 1]]).norm(dim=-1)  # dog meets dog


def figure_words() -> Figure:
    """Bars: how far each word's output moves when dog and man change places.

    The words are the, dog, bites, the, man. Without a mask, a dot for each word
    lies at zero. Under a causal mask the first word stays at zero, too, and
    each of the other four moves, bites the most.
    """
    figure, axes = plt.subplots(figsize=(4.2, 2.7))
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    axes.bar(range(5), word_changes(causal).tolist(), width=0.5, color="C1")
    unmasked = word_changes(None).tolist()
    axes.plot(range(5), unmasked, "o", color="C0", clip_on=False, zorder=3)
    axes.set_xticks(range(5), FIRST.split())
    axes.text(-0.3, 1.5, "no mask:\nall at 0", color="C0")
    axes.text(0.2, 3.4, "causal mask", color="C1")
    axes.set(ylabel="change of the output", ylim=(0, 4))
    return figure


def example_shuffle():
    torch.manual_seed(0)
    x = torch.randn(6, 8).double()  # (T, C), nothing in it about places
    w_q, w_k, w_v = torch.randn(3, 8, 8).double() / math.sqrt(8)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()  # True = may attend
    p = torch.tensor([3, 0, 5, 1, 4, 2])

    def layer(x, mask=None):
        return attention(x @ w_q, x @ w_k, x @ w_v, mask)[0]  # (T, C)

    blind = torch.allclose(layer(x[p]), layer(x)[p], rtol=0, atol=1e-14)
    print("no mask, shuffled in = shuffled out, to 1e-14:", blind)
    apart = (layer(x[p], causal) - layer(x, causal)[p]).abs().max().item()
    print(f"causal mask: off by {apart:.2f}")
    return {"no_mask": str(blind), "causal": apart}


def example_words():
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    for name, mask in (("no mask", None), ("causal mask", causal)):
        pairs = zip(FIRST.split(), word_changes(mask).tolist(), strict=True)
        moved = [f"{word} {x:.2f}" for word, x in pairs]
        print(f"{name}: {', '.join(moved)}")
    weights = draw_weights(1)
    first, second = (run_layers(embed(s), weights) for s in (FIRST, SECOND))
    same = torch.allclose(first.mean(0), second.mean(0), 0, 1e-14)
    print("no mask, the mean over words is the same:", same)
    same = torch.allclose(first[0], first[3], 0, 1e-14)
    print("no mask, both words 'the' get the same output:", same)


def table_masks():
    weights = draw_weights(1)
    generator = torch.Generator("cpu").manual_seed(2)
    options = {"dtype": torch.float64, "generator": generator}
    x, places = torch.randn(2, 6, 16, **options)  # (T, C) each
    p = torch.tensor([3, 0, 5, 1, 4, 2])
    distance = torch.arange(6)[:, None] - torch.arange(6)  # (T, T)
    masks = {
        "no mask": None,
        "padding mask": torch.arange(6).expand(6, 6) < 4,
        "causal mask": distance >= 0,
        "window of one to each side": distance.abs() <= 1,
    }
    rows, values = [], {}

    def add(name, expected, left, moved):
        row = {"what knows of places": name}
        for way, output in (("stays put", left), ("moves along", moved)):
            error = (output - expected).abs().max().item()
            assert error > 0.1 or error < 1e-14
            row[f"it {way}: error"] = (
                f"{error:.2f}" if error > 0.1 else "below 1e-14"
            )
            values[f"{name.split()[0]}_{way.split()[0]}"] = error
        rows.append(row)

    for name, mask in masks.items():
        along = None if mask is None else mask[p][:, p]
        expected = run_layers(x, weights, mask)[p]
        left = run_layers(x[p], weights, mask)
        add(name, expected, left, run_layers(x[p], weights, along))
    expected = run_layers(x + places, weights)[p]
    left = run_layers(x[p] + places, weights)
    along = run_layers(x[p] + places[p], weights)
    add("positions, added to the inputs", expected, left, along)
    return rows, {name: x for name, x in values.items() if x > 0.1}


def example_clock():
    n_tokens = 512
    q = k = torch.zeros(n_tokens, 1).double()  # equal scores: plain averages
    v = torch.zeros(n_tokens, 1).double()  # (T, 1)
    v[0] = 1  # only the start token has a value
    causal = torch.ones(n_tokens, n_tokens, dtype=torch.bool).tril()
    place = torch.arange(1, n_tokens + 1)
    for name, mask in (("causal", causal), ("no mask", None)):
        output = attention(q, k, v, mask)[0].flatten()  # (T,)
        read = (1 / output).round().long()  # (T,)
        distinct = read.unique().numel()
        print(f"{name}: {distinct} outputs apart,", end=" ")
        print("1 / output is the place:", torch.equal(read, place))


def figure_clock() -> Figure:
    """What a token reads of the start token, by its position, 1 to 32.

    Under a causal mask the line falls like one over the position, so that each
    position has a value of its own. Without a mask it is level at 1/32.
    """
    figure, axes = plt.subplots(figsize=(4.2, 2.7))
    q = torch.zeros(32, 1, dtype=torch.float64)  # (T, 1)
    v = torch.eye(32, dtype=torch.float64)[:, :1]  # (T, 1)
    causal = torch.ones(32, 32, dtype=torch.bool).tril()
    for mask in (None, causal):
        output, _ = attention(q, q, v, mask)  # (T, 1)
        axes.plot(range(1, 33), output.flatten().tolist(), marker=".")
    axes.text(3.3, 0.42, "causal mask: 1 / t", color="C1")
    axes.text(18, 0.09, "no mask: 1 / T", color="C0")
    axes.set(xlabel="position t", ylabel="output", ylim=(0, 1.05))
    axes.set_xticks([1, 8, 16, 24, 32])
    return figure


def table_precision():
    place = torch.arange(1, 100_001).double()
    rows, values = [], {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        output = (1 / place).to(dtype)
        same = output[1:] == output[:-1]
        first = int(place[:-1][same].min()) if same.any() else None
        name = str(dtype).removeprefix("torch.")
        rows.append(
            {
                "output in": name,
                "first position that reads like the next": "none up to 100,000"
                if first is None
                else f"{first:,}",
                "of 100,000 positions, apart": f"{output.unique().numel():,}",
            }
        )
        values[name] = output.unique().numel()
        values[f"first_{name}"] = first or "none"
    return rows, values


def example_past():
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(6, 16, dtype=torch.float64, generator=generator)  # (T, C)
    swapped = x[[0, 2, 1, 3, 4, 5]]  # tokens 1 and 2 change places
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    for n_layers in (1, 2):
        weights = draw_weights(n_layers)
        moved = run_layers(x, weights, causal) - run_layers(
            swapped, weights, causal
        )
        changed = (moved.abs().amax(-1) > 1e-12).nonzero().flatten().tolist()
        print(f"layers: {n_layers}, outputs that change: {changed}")


def table_depth():
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(8, 16, dtype=torch.float64, generator=generator)  # (T, C)
    p = torch.tensor([3, 6, 0, 5, 4, 1, 2, 7])  # the last token stays last
    causal = torch.ones(8, 8, dtype=torch.bool).tril()
    rows, values = [], {}
    for n_layers in (1, 2, 3, 6):
        weights = draw_weights(n_layers)
        row = {"layers": n_layers}
        for name, mask in (("no mask", None), ("causal mask", causal)):
            before, after = (
                run_layers(y, weights, mask)[-1] for y in (x, x[p])
            )
            change = (after - before).norm().item()
            assert change > 0.1 or change < 1e-13
            small = "below 1e-13"
            row[f"{name}: change of the last output"] = (
                f"{change:.2f}" if change > 0.1 else small
            )
        rows.append(row)
        values[f"causal_{n_layers}"] = change
    return rows, {name: x for name, x in values.items() if x > 0.1}


def example_before():
    orders = list(itertools.permutations("ABcd"))  # 24 of them
    is_a, is_b = (
        torch.tensor(
            [[[x == letter] for x in (*order, ".")] for order in orders]
        )
        for letter in "AB"
    )  # (24, T, 1) each, the last token is the full stop
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    none = torch.zeros(24, 5, 1).double()

    # First layer: the share of A among the tokens so far.
    share, _ = attention(none, none, is_a.double(), causal)  # (24, T, 1)
    # Second layer: look B up, and read the share there.
    read, _ = attention(none + 1, 40 * is_b.double(), share, causal)
    answer = read[:, -1, 0] > 0.1  # (24,), at the full stop
    truth = torch.tensor(
        [order.index("A") < order.index("B") for order in orders]
    )
    print("two layers, A before B, right in", (answer == truth).sum().item())

    # At the full stop, the first layer alone reads the same in every order.
    last = share[:, -1, 0]
    print("one layer, different outputs at the full stop:", len(last.unique()))
    return {"right": int((answer == truth).sum()), "orders": len(orders)}


def example_builtin():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    encoder = encoder.double().eval()
    x = torch.randn(1, 6, 16).double()  # (B, T, C)
    p = torch.tensor([3, 0, 5, 1, 4, 2])
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)  # here True = hidden
    with torch.no_grad():
        for name, mask in (("no mask", None), ("causal mask", hidden)):
            shuffled, output = encoder(x[:, p], mask), encoder(x, mask)
            apart = (shuffled - output[:, p]).abs().max().item()
            follows = "follows" if apart < 1e-13 else f"off by {apart:.2f}"
            print(f"nn.TransformerEncoder, {name}: {follows}")


def example_question_mirror():
    generator = torch.Generator("cpu").manual_seed(0)
    x = torch.randn(8, 16, dtype=torch.float64, generator=generator)  # (T, C)
    distance = torch.arange(8)[:, None] - torch.arange(8)  # (T, T)
    weights = draw_weights(3)
    for name, mask in (
        ("two to each side", distance.abs() <= 2),
        ("two to the left", (distance >= 0) & (distance <= 2)),
    ):
        mirrored = run_layers(x.flip(0), weights, mask).flip(0)
        apart = (mirrored - run_layers(x, weights, mask)).abs().max().item()
        print(f"{name}: mirror image the same: {apart < 1e-13}")


def example_question_count():
    generator = torch.Generator("cpu").manual_seed(0)
    start, a = torch.randn(2, 1, 16, dtype=torch.float64, generator=generator)
    causal = torch.ones(8, 8, dtype=torch.bool).tril()
    weights = draw_weights(6)
    for name, x in (
        ("aaaaaaaa", a.expand(8, 16)),
        ("start, aaaaaaa", torch.cat([start, a.expand(7, 16)])),
    ):
        output = run_layers(x, weights, causal)[1:]  # (7, C)
        apart = (output - output[0]).abs().max().item()
        same = "all the same" if apart < 1e-12 else f"up to {apart:.2f} apart"
        print(f"six layers, {name}: outputs from place 1 on {same}")
