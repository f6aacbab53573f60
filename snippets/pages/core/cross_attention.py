"""What the page on cross-attention runs."""

import functools
import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from snippets.attention import attention

N_ROLES = 8  # also the most words of a sentence
N_WORDS = 24


class CrossAttention(nn.Module):
    """Multi-head attention to a memory that is projected apart, and so once."""

    def __init__(self, d_model: int, n_heads: int, d_memory: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.to_q = nn.Linear(d_model, d_model)
        self.to_k = nn.Linear(d_memory, d_model)
        self.to_v = nn.Linear(d_memory, d_model)
        self.to_out = nn.Linear(d_model, d_model)

    def split(self, x: Tensor) -> Tensor:
        """Cut the width into heads: (B, T, C) -> (B, H, T, d)."""
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory (B, Tk, d_memory), (B, H, Tk, d) each."""
        return self.split(self.to_k(memory)), self.split(self.to_v(memory))

    def forward(
        self, target: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output (B, Tq, C) and weights (B, H, Tq, Tk); True = may attend."""
        q = self.split(self.to_q(target))  # (B, Tq, C) -> (B, H, Tq, d)
        output, weights = attention(q, k, v, mask)  # (B, H, Tq, d)
        merged = output.transpose(1, 2).flatten(-2)  # (B, Tq, C)
        return self.to_out(merged), weights


def example_shapes():
    torch.manual_seed(0)
    layer = CrossAttention(d_model=16, n_heads=4, d_memory=16)
    target = torch.randn(1, 5, 16)  # (B, Tq, C): 5 queries
    memory = torch.randn(1, 9, 16)  # (B, Tk, C): 9 keys and values
    k, v = layer.project(memory)  # (B, H, Tk, d) each
    output, weights = layer(target, k, v)
    print("keys", tuple(k.shape))
    print("output", tuple(output.shape), "weights", tuple(weights.shape))
    return {
        "output_length": output.shape[1],
        "weights": str(tuple(weights.shape)),
    }


def example_holds():
    torch.manual_seed(0)
    layer = CrossAttention(16, 4, 16).double()
    target = torch.randn(2, 5, 16).double()  # (B, Tq, C)
    memory = torch.randn(2, 9, 16).double()  # (B, Tk, C)
    k, v = layer.project(memory)  # (B, H, Tk, d) each
    output, _ = layer(target, k, v)

    theirs = nn.MultiheadAttention(16, 4, batch_first=True).double()
    parts = layer.to_q, layer.to_k, layer.to_v
    theirs.in_proj_weight.data = torch.cat([x.weight for x in parts])
    theirs.in_proj_bias.data = torch.cat([x.bias for x in parts])
    theirs.out_proj.load_state_dict(layer.to_out.state_dict())
    q = layer.split(layer.to_q(target))  # (B, H, Tq, d)
    fused = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
    shuffled = memory[:, torch.randperm(9)]
    alone = [layer(target[:, i : i + 1], k, v)[0] for i in range(5)]
    for name, other in (
        ("nn.MultiheadAttention", theirs(target, memory, memory)[0]),
        ("built-in function", layer.to_out(fused)),
        ("memory shuffled", layer(target, *layer.project(shuffled))[0]),
        ("one query at a time", torch.cat(alone, dim=1)),
    ):
        assert (output - other).abs().max() < 1e-14, name
        print(f"{name}: equal to within 1e-14")


def example_padding():
    torch.manual_seed(0)
    layer = CrossAttention(16, 4, 16).double()
    target = torch.randn(2, 5, 16).double()  # (B, Tq, C)
    memory = torch.randn(2, 9, 16).double()  # (B, Tk, C)
    lengths = torch.tensor([9, 6])
    real = torch.arange(9) < lengths[:, None]  # (B, Tk), True = a word
    mask = real[:, None, None]  # (B, 1, 1, Tk): for all heads and all queries
    output, weights = layer(target, *layer.project(memory), mask)
    print("weight on padding:", weights[1, :, :, 6:].abs().max().item())

    short, _ = layer(target[1:], *layer.project(memory[1:, :6]))  # no padding
    assert (short - output[1:]).abs().max() < 1e-14
    print("the shorter memory by itself: equal to within 1e-14")
    spoiled = memory.masked_fill(~real[..., None], 1e6)
    again, _ = layer(target, *layer.project(spoiled), mask)
    print("other numbers in the padding: equal", torch.equal(again, output))


def words_read(run: Callable[[Tensor], Tensor], memory: Tensor) -> Tensor:
    """Places of the memory that reach the first query's output, (B, Tk)."""
    memory = memory.clone().requires_grad_()
    first = run(memory)[:, 0]  # (B, Tq, C) -> (B, C)
    # Unequal factors: after a normalisation a plain sum has no gradient.
    factors = torch.linspace(1, 2, first.numel()).view_as(first)
    gradient = torch.autograd.grad((first * factors).sum(), memory)[0]
    return gradient.abs().sum(-1) > 0


def table_masks():
    torch.manual_seed(0)
    layer = CrossAttention(16, 4, 16).double()
    inputs, memory = torch.randn(2, 2, 9, 16).double().unbind()
    real = torch.arange(9) < torch.tensor([[6], [9]])  # (B, Tk), of the memory
    rows: dict[str, dict[str, object]] = {}
    for tq in (7, 9):
        target = inputs[:, :tq]
        own = torch.arange(tq) < torch.tensor([[tq], [4]])  # (B, Tq)
        for name, mask in {
            "memory's padding, `(B, 1, 1, Tk)`": real[:, None, None],
            "none": None,
            "target's padding, `(B, 1, 1, Tq)`": own[:, None, None],
            "target's padding, `(B, 1, Tq, 1)`": own[:, None, :, None],
            "memory's padding, `(B, 1, Tk, 1)`": real[:, None, :, None],
            "memory's padding, inverted": ~real[:, None, None],
            "causal, `(Tq, Tk)`": torch.ones(tq, 9, dtype=torch.bool).tril(),
        }.items():
            row = rows.setdefault(name, {"mask": name})

            def run(memory, target=target, mask=mask):
                return layer(target, *layer.project(memory), mask)[0]

            try:
                read = words_read(run, memory)
            except ValueError:
                row[f"Tq = {tq}"] = "`ValueError`"
                continue
            row[f"Tq = {tq}"] = "runs"
            row["words hidden"] = (real & ~read).sum().item()
            row["padding read"] = (read & ~real).sum().item()
            row["test"] = "passes" if torch.equal(read, real) else "fails"
    ordered = (
        "mask",
        "Tq = 7",
        "Tq = 9",
        "words hidden",
        "padding read",
        "test",
    )
    return [{key: row[key] for key in ordered} for row in rows.values()], {
        "words": real.sum().item(),
        "padding": (~real).sum().item(),
    }


def example_one_line():
    torch.manual_seed(0)
    layer = CrossAttention(16, 4, 16)
    target, memory = torch.randn(2, 2, 9, 16).unbind()  # (B, T, C) each
    real = torch.arange(9) < torch.tensor([[6], [9]])  # (B, Tk), True = a word
    own = torch.arange(9) < torch.tensor([[9], [4]])  # (B, Tq), the target's

    def run(memory, mask=real[:, None, None]):
        return layer(target, *layer.project(memory), mask)[0]

    def wrong(memory):
        return run(memory, own[:, None, None])

    assert torch.equal(words_read(run, memory), real)  # the test
    assert not torch.equal(words_read(wrong, memory), real)


def example_once():
    torch.manual_seed(0)
    layer = CrossAttention(64, 4, 64).double()
    memory = torch.randn(1, 20, 64).double()  # (B, Tk, C)
    steps = torch.randn(10, 1, 1, 64).double()  # ten targets (B, 1, C)
    k, v = layer.project(memory)  # once: (B, H, Tk, d) each
    reused = [layer(x, k, v)[0] for x in steps]
    recomputed = [layer(x, *layer.project(memory))[0] for x in steps]
    same = all(map(torch.equal, reused, recomputed))
    print("ten steps, reused and recomputed, equal to the last bit:", same)

    every = steps[:, 0, 0][None]  # (1, 10, C): all at once, as in training
    together, _ = layer(every, k, v)
    difference = (together - torch.cat(reused, dim=1)).abs().max()
    assert difference < 1e-14
    print("ten steps at once: equal to within 1e-14")


def multiply_adds(tk: int, d_model: int) -> tuple[int, int]:
    """Multiply-adds of projecting a memory of tk words, and of one query.

    The query is projected, compared with tk keys, averages tk values, and the
    result is projected. The heads do not matter: together they are d_model
    wide. Biases and the softmax are not counted.
    """
    return 2 * tk * d_model**2, 2 * d_model**2 + 2 * tk * d_model


def table_once():
    d_model, n_steps = 512, 100
    rows, values = [], {}
    for tk in (100, 1000):
        projecting, stepping = multiply_adds(tk, d_model)
        again = n_steps * (projecting + stepping)
        once = projecting + n_steps * stepping
        rows.append(
            {
                "millions of multiply-adds": f"Tk = {tk}",
                "projecting the memory": f"{projecting / 1e6:.1f}",
                "one step": f"{stepping / 1e6:.2f}",
                "all steps, projecting each time": f"{again / 1e6:,.0f}",
                "all steps, projecting once": f"{once / 1e6:,.0f}",
                "ratio": f"{again / once:.1f}",
            }
        )
        values[f"ratio_{tk}"] = again / once
    return rows, values | {"steps": n_steps, "d_model": d_model}


def additive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w: Tensor,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention whose logit is w · tanh(W q + U k), one small network a pair.

    q is (..., Tq, dq), k (..., Tk, dk), v (..., Tk, dv); w_q, which is W, is
    (d_hidden, dq), w_k, which is U, (d_hidden, dk), and w (d_hidden,). The
    mask is boolean, True = may attend; a query without keys gets zeros.
    Returns output (..., Tq, dv) and weights (..., Tq, Tk).
    """
    left = (q @ w_q.mT)[..., :, None, :]  # (..., Tq, 1, d_hidden)
    right = (k @ w_k.mT)[..., None, :, :]  # (..., 1, Tk, d_hidden)
    logits = torch.tanh(left + right) @ w  # (..., Tq, Tk, d_hidden) @ w
    if mask is None:
        weights = logits.softmax(-1)  # (..., Tq, Tk)
    else:
        alive = mask.any(-1, keepdim=True)  # (..., Tq, 1)
        logits = logits.masked_fill(alive & ~mask, -math.inf)
        weights = logits.softmax(-1) * alive  # (..., Tq, Tk)
    return weights @ v, weights


def example_additive():
    torch.manual_seed(0)
    q, k = torch.randn(4, 3).double(), torch.randn(6, 5).double()  # dq ≠ dk
    v = torch.randn(6, 2).double()  # (Tk, dv)
    w_q, w_k = torch.randn(7, 3).double(), torch.randn(7, 5).double()
    w = torch.randn(7).double()  # (d_hidden,)
    output, weights = additive_attention(q, k, v, w_q, w_k, w)
    for i in range(4):
        scores = [
            sum(
                w[h].item() * math.tanh((w_q[h] @ q[i] + w_k[h] @ k[j]).item())
                for h in range(7)
            )
            for j in range(6)
        ]
        assert max(map(abs, scores)) < w.abs().sum()  # since |tanh| < 1
        total = sum(map(math.exp, scores))
        shares = torch.tensor(
            [math.exp(s) / total for s in scores], dtype=torch.float64
        )
        assert (weights[i] - shares).abs().max() < 1e-14
        assert (output[i] - shares @ v).abs().max() < 1e-14
    print("additive scores, pair by pair: equal to within 1e-14")


def kept(function: Callable[..., object], *inputs: Tensor) -> int:
    """Count the numbers that autograd keeps for the backward pass, inputs not.

    A tensor that is kept twice, or in two shapes, counts once.
    """
    given = {x.data_ptr() for x in inputs}
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        if x.data_ptr() not in given:
            sizes[x.data_ptr()] = x.numel()
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        result = function(*inputs)  # kept, so that no address is used again
    del result
    return sum(sizes.values())


def table_kept():
    torch.manual_seed(0)
    rows, values = [], {}
    d = 64  # d_hidden, too
    for n in (128, 256, 512):
        q, k, v = torch.randn(3, n, d).requires_grad_().unbind()
        w_q, w_k = torch.randn(2, d, d).requires_grad_().unbind()
        w = torch.randn(d).requires_grad_()
        calls = (
            (attention, (q, k, v)),
            (additive_attention, (q, k, v, w_q, w_k, w)),
        )
        dot, additive = (kept(call, *inputs) for call, inputs in calls)
        # Without arguments, there is nothing that kept takes for an input.
        with_dot, with_additive = (
            kept(functools.partial(call, *inputs)) for call, inputs in calls
        )
        rows.append(
            {
                "Tq = Tk": n,
                "weights, Tq · Tk": f"{n * n:,}",
                "dot product": f"{dot:,}",
                "additive": f"{additive:,}",
                "ratio": f"{additive / dot:.0f}",
            }
        )
        values[f"ratio_{n}"] = additive / dot
        values[f"with_inputs_{n}"] = with_additive / with_dot
    return rows, values


def sentences(n: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Sentences in free word order, as roles, words and real, (n, 8) each.

    A word has a role, which its ending marks, and a meaning. A sentence has
    4 to 8 words, their roles 0, 1, ... in any order; the rest is padding.
    `where`, also (n, 8), is the place of each role: the right alignment.
    """
    lengths = torch.randint(4, N_ROLES + 1, (n, 1), generator=generator)
    real = torch.arange(N_ROLES) < lengths  # (n, 8), True = a word
    places = torch.rand(n, N_ROLES, generator=generator)
    roles = places.masked_fill(~real, 2.0).argsort(stable=True)
    words = torch.randint(N_WORDS, (n, N_ROLES), generator=generator)
    return roles, words, real, roles.argsort(-1)


class Translator(nn.Module):
    """One cross-attention of one head: a query for each role, in order."""

    def __init__(self, additive: bool) -> None:
        super().__init__()
        d, dtype = 32, torch.float64
        self.role = nn.Embedding(N_ROLES, d, dtype=dtype)
        self.word = nn.Embedding(N_WORDS, d, dtype=dtype)
        self.slot = nn.Embedding(N_ROLES, d, dtype=dtype)
        self.to_q, self.to_k, self.to_v = (
            nn.Linear(d, d, bias=False, dtype=dtype) for _ in range(3)
        )
        self.w = nn.Parameter(torch.randn(d, dtype=dtype) / math.sqrt(d))
        self.to_word = nn.Linear(d, N_WORDS, dtype=dtype)
        self.additive = additive

    def forward(
        self, roles: Tensor, words: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Logits of the translated words, (B, Tq, 24), and the weights."""
        memory = self.role(roles) + self.word(words)  # (B, Tk, C)
        q, v = self.slot.weight[None], self.to_v(memory)  # (1, Tq, C)
        if self.additive:
            w_q, w_k = self.to_q.weight, self.to_k.weight
            output, weights = additive_attention(
                q, memory, v, w_q, w_k, self.w, mask
            )
        else:
            output, weights = attention(
                self.to_q(q), self.to_k(memory), v, mask
            )
        return self.to_word(output), weights


def hand_on(x: Tensor, real: Tensor) -> Tensor:
    """Give each place of a sentence what its left neighbour had, in a ring."""
    places = torch.arange(x.shape[-1])
    left = (places - 1) % real.sum(-1, keepdim=True)
    return x.gather(-1, torch.where(real, left, places))


@functools.cache
def train(
    additive: bool, handed_on: bool, seed: int = 0
) -> tuple[Translator, Tensor]:
    """Train on translations alone; also returns the dictionary, (24,)."""
    torch.manual_seed(seed)
    model = Translator(additive)
    generator = torch.Generator("cpu").manual_seed(seed)
    dictionary = torch.randperm(N_WORDS, generator=generator)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # more would only wait for one another: it is small
    for _ in range(100):
        roles, words, real, where = sentences(32, generator)
        right = dictionary[words.gather(-1, where)]  # (B, Tq)
        if handed_on:
            roles, words = hand_on(roles, real), hand_on(words, real)
        logits, _ = model(roles, words, real[:, None])
        loss = F.cross_entropy(logits[real], right[real])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    return model, dictionary


def table_alignment():
    generator = torch.Generator("cpu").manual_seed(1)  # sentences not seen
    roles, words, real, where = sentences(1000, generator)
    rows, values = [], {"sentences": len(real), "words": real.sum().item()}
    for name, additive, handed_on in (
        ("dot product", False, False),
        ("additive", True, False),
        ("dot product, word handed on", False, True),
    ):
        model, dictionary = train(additive, handed_on)
        right = dictionary[words.gather(-1, where)]  # (n, Tq)
        memory = roles, words
        if handed_on:
            memory = hand_on(roles, real), hand_on(words, real)

        def share_right(mask, model=model, memory=memory, right=right):
            with torch.no_grad():
                logits, weights = model(*memory, mask)
            correct = (logits.argmax(-1) == right)[real]
            return correct.double().mean().item(), weights

        share, weights = share_right(real[:, None])
        on_right = weights.gather(-1, where[..., None])[..., 0][real]
        top = weights.argmax(-1)  # (n, Tq)
        is_top = F.one_hot(top, N_ROLES) > 0  # (n, Tq, Tk)
        found = {
            "translated right": share,
            "mean weight on the aligned word": on_right.mean().item(),
            "largest weight there": (top == where)[real].double().mean().item(),
            "right with that key alone": share_right(is_top)[0],
            "right without it": share_right(real[:, None] & ~is_top)[0],
        }
        rows.append(
            {"scores": name} | {key: f"{x:.0%}" for key, x in found.items()}
        )
        short = ("right", "weight", "argmax", "alone", "without")
        kind = "handed" if handed_on else "additive" if additive else "dot"
        values |= {
            f"{kind}_{key}": x
            for key, x in zip(short, found.values(), strict=True)
        }
    return rows, values | {"chance": 1 / N_WORDS}


def draw_maps(additive: bool, handed_on: bool, title: str) -> Figure:
    """Right alignment of a sentence of six words, and the learned weights."""
    generator = torch.Generator("cpu").manual_seed(1)
    roles, words, real, where = sentences(100, generator)
    six = (real.sum(-1) == 6).nonzero()[0]  # the first such sentence
    roles, words, real, where = (x[six] for x in (roles, words, real, where))
    right = F.one_hot(where[0, :6], N_ROLES)  # (6, 8)
    if handed_on:
        roles, words = hand_on(roles, real), hand_on(words, real)
    with torch.no_grad():
        _, weights = train(additive, handed_on)[0](roles, words, real[:, None])

    figure, panels = plt.subplots(1, 2, sharey=True, figsize=(5.2, 2.2))
    for axes, name, shown in (
        (panels[0], "the right alignment", right),
        (panels[1], title, weights[0, :6]),
    ):
        image = axes.imshow(shown.numpy(), vmin=0, vmax=1)
        axes.set_title(name)
        axes.set_xticks([*range(6), 6.5], [*map(str, range(1, 7)), "pad"])
        axes.set_xlabel("word of the source")
        axes.set_yticks(range(6), map(str, range(1, 7)))
    panels[0].set_ylabel("word of the translation")
    figure.colorbar(image, ax=panels, label="weight", shrink=0.8)
    return figure


def figure_alignment() -> Figure:
    """Two heat maps, words of a translation against words of its source.

    Left, the right alignment: one bright cell in each of six rows, no two in
    one column. Right, the learned weights: the same cells are bright, all
    others dark. Two columns of padding are dark in both.
    """
    return draw_maps(additive=False, handed_on=False, title="learned weights")


def figure_handed_on() -> Figure:
    """The same two heat maps where the memory hands each word one place on.

    Every bright cell of the learned map lies one place to the right of the
    right alignment, and where that is past the last word, at the first one.
    """
    return draw_maps(additive=False, handed_on=True, title="handed on")


def example_decoder():
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(16, 4, batch_first=True).double().eval()
    target, memory = torch.randn(2, 2, 9, 16).double().unbind()  # (B, T, C)
    real = torch.arange(9) < torch.tensor([[6], [9]])  # (B, Tk), True = a word
    for name in ("memory_key_padding_mask", "tgt_key_padding_mask"):
        hidden = {name: ~real}  # here True = may not attend
        read = words_read(
            lambda x, hidden=hidden: layer(target, x, **hidden), memory
        )
        passes = torch.equal(read, real)
        print(f"{name}=~real: the test {'passes' if passes else 'fails'}")

    layer = nn.MultiheadAttention(16, 4, kdim=24, vdim=24, batch_first=True)
    memory = torch.randn(2, 9, 24)  # (B, Tk, d_memory), wider than the model
    output, weights = layer(torch.randn(2, 5, 16), memory, memory)
    print("output", tuple(output.shape), "weights", tuple(weights.shape))


def example_question_beams():
    torch.manual_seed(0)
    layer = CrossAttention(64, 4, 64).double()
    memory = torch.randn(1, 20, 64).double()  # (1, Tk, C): one sentence
    beams = torch.randn(5, 1, 64).double()  # (beams, Tq, C)
    k, v = layer.project(memory)  # (1, H, Tk, d) each
    shared, _ = layer(beams, k, v)  # the keys and values broadcast
    repeated, _ = layer(beams, *layer.project(memory.expand(5, -1, -1)))
    assert (shared - repeated).abs().max() < 1e-14
    print("five beams, one projected memory: equal to within 1e-14")


def example_question_causal():
    torch.manual_seed(0)
    q, k = torch.randn(1, 1, 5, 8).double(), torch.randn(1, 1, 9, 8).double()
    v = torch.eye(9).double()[None, None]  # the output is the weights
    weights = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    print("words seen by each query:", (weights[0, 0] > 0).sum(-1).tolist())
