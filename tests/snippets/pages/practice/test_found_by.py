"""Every mistake of the museum is given to the check that its page names, in the museum's own code.

A page says `Found by` for each entry. Here each entry has its code, wrong and right, as a subject
of the contract: wrong code fails (or is a hazard, where the page says so), right code does not.
Code that lies inside an example is taken from its source, never written again.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scripts.project import Project
from snippets.contract import (
    CHECKS,
    Attention,
    Cache,
    Finding,
    MultiHead,
    Positions,
    Subject,
    SubjectError,
    run_check,
)
from snippets.pages.practice import bugs, bugs_masks, bugs_numbers, bugs_positions, bugs_shapes

NAMES = set().union(*CHECKS.values())

# The museum's code, also where it lies inside a function


@functools.cache
def compiled(function: Callable[..., Any], name: str, *, loop: bool) -> CodeType:
    """What gives `name` its value in the function: a definition, an assignment or the result.

    With loop, the body of the first loop in what is defined under that name.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    nodes = list(ast.walk(tree))
    for node in nodes:
        defined = isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        assigned = (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        )
        body: list[ast.stmt] = [node] if defined or assigned else []  # type: ignore[list-item]
        if name == "return" and isinstance(node, ast.Return) and node.value:
            body = [ast.Assign([ast.Name(name, ast.Store())], node.value)]
        if body and loop:
            body = next(n for n in ast.walk(node) if isinstance(n, ast.For)).body
        if body:
            module = ast.fix_missing_locations(ast.Module(body, []))
            return compile(module, function.__name__, "exec")
    raise LookupError(f"{function.__name__} has no {name}")


def space(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    return {**vars(sys.modules[function.__module__]), **given}


def part(function: Callable[..., Any], name: str, **given: Any) -> Any:
    """Value of a name inside a function, where the names that it uses have the values given."""
    names = space(function, given)
    exec(compiled(function, name, loop=False), names)
    return names[name]


def turn(function: Callable[..., Any], name: str, **given: Any) -> dict[str, Any]:
    """Names after one turn of the loop inside a function."""
    names = space(function, given)
    exec(compiled(function, name, loop=True), names)
    return names


# Subjects


def logits(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def each(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Function of one example and one head, (T, d) each, on a batch (B, H, T, d)."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        sizes = *q.shape[:3], k.shape[2]
        masks = None if mask is None else mask.expand(sizes)
        rows = [
            [
                function(q[b, h], k[b, h], v[b, h], *([] if masks is None else [masks[b, h]]))
                for h in range(sizes[1])
            ]
            for b in range(sizes[0])
        ]
        return torch.stack([torch.stack(row) for row in rows])

    return attend


def unmasked(function: Callable[..., Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Function without the parameter for a mask."""

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return function(q, k, v)

    return attend


def attention(fn: Callable[..., Any], **settings: Any) -> Attention:
    given = {"layout": "(B, H, T, d)", "dtype": torch.float64, **settings}
    return Attention(fn, **given)


def masked(fn: Callable[..., Any], **settings: Any) -> Attention:
    given = {"mask": "attend", "mask_shape": "(B, H, Tq, Tk)", "needs_mask": True, **settings}
    return attention(fn, **given)


def module(call: Callable[..., Any], inner: nn.Module | None = None, **settings: Any) -> MultiHead:
    given = {"d_model": 16, "n_heads": 4, "batch_first": True, "memory": False, **settings}
    return MultiHead(inner or nn.Identity(), call, **given)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().double()


def layer(**options: Any) -> nn.Module:
    return seeded(lambda: nn.MultiheadAttention(16, 4, **{"batch_first": True, **options}))


def encoder_layer() -> nn.TransformerEncoderLayer:
    options = {"dropout": 0.0, "batch_first": True}
    return seeded(lambda: nn.TransformerEncoderLayer(16, 2, 32, **options))  # type: ignore


# Masks


M = bugs_masks


def nan_layers(run: Callable[..., Tensor]) -> MultiHead:
    return module(
        lambda _m, x, _memory, mask: run(x, everything(mask, x), 2),
        mask="attend",
        mask_shape="(B, Tk)",
        causal="never",
    )


def everything(mask: Tensor | None, x: Tensor) -> Tensor:
    return torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask


def by_keys(run: Callable[..., Tensor]) -> Attention:
    return masked(run, mask_shape="(B, Tk)")


def last_line(run: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """The call in which a function hands its own mask on, given another mask."""
    return lambda q, k, v, mask=None: part(run, "return", q=q, k=k, v=v, **{name: mask})


def repeated_mask(run: Callable[..., Tensor]) -> MultiHead:
    def call(m: nn.MultiheadAttention, x: Tensor, _memory: None, mask: Tensor | None) -> Tensor:
        if mask is None:
            mask = torch.zeros(x.shape[0], x.shape[1], x.shape[1], dtype=torch.bool)
        return run(m, x, mask)

    return module(call, layer(), mask="hide", mask_shape="(B, Tq, Tk)")


def biased(run: Callable[..., Tensor]) -> MultiHead:
    def call(m: nn.TransformerEncoderLayer, x: Tensor, *_: object) -> Tensor:
        place = torch.arange(x.shape[1], dtype=x.dtype)
        bias = part(M.example_bias, "bias", place=place)
        if m.training:
            output: Tensor = m(x, src_mask=bias)
            return output
        return run(m, x, bias)

    return module(call, encoder_layer(), mask="none")


def window(build: Callable[..., Tensor]) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, build(q.shape[2], 2))

    return attention(attend, causal="always", window=2)


def hinted(run: Callable[..., Tensor]) -> MultiHead:
    def call(m: nn.MultiheadAttention, x: Tensor, *_: object) -> Tensor:
        return run(m, x, M.right_window(x.shape[1], 2))

    return module(call, layer(), mask="none", causal="always", window=2)


def hint_alone(run: Callable[..., Tensor]) -> MultiHead:
    return module(lambda m, x, *_: run(m, x), layer(), mask="none", causal="always")


def flagged(run: Callable[..., Any]) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> Tensor:
        output: Tensor = run(q, k, v, causal, True)[0]
        return output

    return attention(attend, causal="causal", alignment="top-left")


def half_mask(run: Callable[..., Tensor]) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return F.scaled_dot_product_attention(q, k, v)
        return run(q, k, v, mask)

    half = {"dtype": torch.float16, "dtypes": (torch.bfloat16,)}
    return masked(attend, needs_mask=False, **half)


def summed(run: Callable[..., Tensor]) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        rows = zip(q.split(1), k.split(1), v.split(1), mask, strict=True)
        return torch.cat([run(*row) for row in rows])

    return masked(attend, mask_shape="(B, Tk)", causal="always", same_lengths=True)


# Numbers


N = bugs_numbers


def scored(line: str, example: Callable[..., Any], **given: Any) -> Callable[..., Tensor]:
    """Weights by one line of an example, times v."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        names = {"q": q, "k": k, "v": v, "mask": mask, "scores": logits(q, k), **given}
        names["scale"] = q.shape[-1] ** -0.5
        output: Tensor = part(example, line, **names) @ v
        return output

    return attend


def averaged(name: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = part(N.example_average, name, mask=mask)(q, k, v)
        return output

    return masked(attend, layout="(B, T, d)", mask_shape="(B, Tq, Tk)")


def floor_added(name: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = part(N.example_floor_added, name, mask=mask)(logits(q, k)).to(v.dtype) @ v
        return output

    return masked(attend, dtype=torch.float16)


def floor_half(floor: float) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        names: dict[str, Any] = {
            "scores": logits(q, k),
            "dtype": q.dtype,
            "mask": mask,
            "floor": floor,
        }
        if mask is not None:
            names["scores"] = part(N.example_floor_does_not_fit, "filled", **names)
        output: Tensor = names["scores"].softmax(-1) @ v
        return output

    return masked(attend, needs_mask=False, dtypes=(torch.float16,))


def started(start: float) -> Attention:
    streamed = part(N.example_start, "streamed")
    return attention(unmasked(each(lambda q, k, v: streamed(logits(q, k), v, start))))


def first_block(safe: bool) -> Attention:
    streamed = part(N.example_first_block, "streamed")

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = streamed(logits(q, k).masked_fill(~mask, -math.inf), v, safe)
        return output

    return masked(each(attend), n_heads=1)


def by_hand(mended: bool) -> Attention:
    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            scores = logits(q, k).masked_fill(~mask, -math.inf)
            lse = scores.logsumexp(-1, keepdim=True)
            ctx.save_for_backward(q, k, v, scores, lse)
            return M.right_empty(q, k, v, mask)

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            q, k, v, scores, lse = ctx.saved_tensors
            names = {"q": q * 2 / math.sqrt(q.shape[-1]), "k": k * 2 / math.sqrt(q.shape[-1])}
            names |= {"v": v, "scores": scores, "gradient": gradients[0], "lse": lse}
            backward = part(N.example_backward, "backward", **names)
            return *(
                part(N.example_backward, "right", backward=backward, lse=lse)
                if mended
                else backward(lse)
            ), None

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        output: Tensor = Attend.apply(q, k, v, mask)
        return output

    return masked(each(attend), n_heads=1)


def model_width(whole: bool) -> Attention:
    run = part(N.example_model_width, "attend")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        width = q.shape[1] * q.shape[3] if whole else q.shape[3]
        output: Tensor = run(q, k, v, width)
        return output

    return attention(attend)


def dropped_scale(name: str) -> Attention:
    scale = 64**-0.5 / 3
    return attention(unmasked(part(N.example_scale_dropped, name, scale=scale)), scale=scale)


def scaled(example: Callable[..., Any], line: str) -> Attention:
    return attention(unmasked(scored(line, example)))


def evaluated(name: str) -> MultiHead:
    inner = part(N.example_evaluation, name)()
    return module(lambda m, x, *_: m(x), inner, mask="none", n_heads=1)


def denominator(name: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
        def one(e: Tensor, v: Tensor) -> Tensor:
            kept = (torch.rand(e.shape) >= dropout).to(e.dtype)
            output: Tensor = part(N.example_denominator, name, e=e, v=v, p=dropout)(kept)
            return output

        def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.stack([one(e, v) for e in logits(q, k).exp()])

        return each(head)(q, k, v)

    return attention(attend, n_heads=1, dropout="dropout")


def capped(line: str) -> Attention:
    return masked(
        scored(line, N.example_soft_cap, cap=part(N.example_soft_cap, "cap")), soft_cap=5.0
    )


SINK = torch.tensor(0.7).double()


def sunk(in_each: bool) -> Attention:
    merged = part(N.example_sink, "merged", sink=SINK)

    def one(scores: Tensor, v: Tensor) -> Tensor:
        blocks = [*zip(scores.split(2), v.split(2), strict=True)]  # the example has two columns
        output: Tensor = merged(blocks, in_each)
        return output

    def head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        columns = v.split(2, -1)
        rows = [torch.cat([one(row, x) for x in columns]) for row in logits(q, k)]
        return torch.stack(rows)

    return attention(unmasked(each(head)), sink=0.7, n_heads=1)


def gated(line: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = logits(q, k)
        names = {"lse": scores.logsumexp(-1, keepdim=True), "sink": SINK}
        output: Tensor = part(N.example_sigmoid, line, output=scores.softmax(-1) @ v, **names)
        return output

    return attention(attend, sink=0.7)


def by_axis(version: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        versions = part(N.example_axis, "versions", scores=logits(q, k), implicit=None)
        output: Tensor = versions[version] @ v
        return output

    return attention(attend)


# Heads and shapes


S = bugs_shapes


class Heads(nn.Module):
    """Self-attention with projections, around the museum's split and merge."""

    def __init__(self, split: Any = S.right_split, merge: Any = S.right_merge) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(16, 16) for _ in range(4))
        self.split, self.merge = split, merge

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(project(x), 4) for project in (self.q, self.k, self.v))
        output: Tensor = self.out(self.merge(S.textbook(q, k, v, mask)))
        return output


BOOLEAN: dict[str, Any] = {"mask": "attend", "mask_shape": "(B, 1, Tq, Tk)"}


def heads(**parts: Any) -> MultiHead:
    return MultiHead(seeded(lambda: Heads(**parts)), d_model=16, n_heads=4, **BOOLEAN)


def quantizable(batch_first: bool) -> MultiHead:
    from torch.ao.nn import quantizable as other

    inner: Any = layer(batch_first=batch_first).eval()
    inner.qconfig = None
    return module(
        lambda m, x, *_: m(x, x, x),
        other.MultiheadAttention.from_float(inner).eval(),
        mask="none",
        batch_first=batch_first,
    )


def axes(**options: Any) -> MultiHead:
    inner = seeded(lambda: nn.MultiheadAttention(16, 4, **options))
    return MultiHead(
        inner, d_model=16, n_heads=4, batch_first=True, mask="hide", mask_shape="(Tq, Tk)"
    )


def grouped(groups: Callable[..., Tensor]) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        n = q.shape[1] // k.shape[1]
        return S.textbook(q, groups(k, n), groups(v, n), mask)

    return attention(attend, n_heads=4, n_kv_heads=2)


def ungrouped(flag: bool) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=flag)

    return attention(attend, n_heads=4, n_kv_heads=2)


def pooled(right: bool) -> MultiHead:
    inner = nn.TransformerEncoder(encoder_layer(), 2)

    def call(m: nn.Module, x: Tensor, *_: object) -> Tensor:
        real = torch.arange(x.shape[1]) < torch.tensor([[x.shape[1]], [2]])
        y = m(x, src_key_padding_mask=~real)
        pool = S.right_pool(y, real) if right else S.wrong_pool(y)
        return pool[:, None].expand_as(x)

    return module(call, inner, mask="none")


def cut(right: bool) -> MultiHead:
    def call(m: nn.Module, x: Tensor, *_: object) -> Tensor:
        if m.training:
            return x * (torch.arange(x.shape[1]) < torch.tensor([[3], [2]]))[..., None]
        nested = torch.nested.nested_tensor([x[0, :3], x[1, :2]])
        return S.right_pad(nested, x.shape) if right else S.wrong_pad(nested)

    return module(call, mask="none")


def blocks(run: Callable[..., Tensor]) -> MultiHead:
    def call(
        _m: nn.Module, x: Tensor, memory: Tensor, mask: Tensor | None, own: Tensor | None = None
    ) -> Tensor:
        masks = [None if m is None else m[:, None] for m in (own, mask)]
        return run(x, memory, *masks[: len(inspect.signature(run).parameters) - 2])

    settings: dict[str, Any] = {"mask": "attend", "mask_shape": "(B, Tk)", "causal": "never"}
    return module(call, memory=True, mask_argument="own", memory_mask="its", **settings)


def cross(**options: Any) -> MultiHead:
    return module(
        lambda _m, x, memory, _mask: S.attend(x, memory, memory, **options),
        memory=True,
        mask="none",
    )


# Positions and caches


P = bugs_positions
HALF: dict[str, Any] = {
    "scheme": "rotary",
    "signature": "x, positions",
    "layout": "(T, d)",
    "width": 8,
}


def rotary(apply: Callable[..., Tensor], **settings: Any) -> Positions:
    return Positions(apply, **{**HALF, "max_length": 64, **settings})


def recipe(version: str) -> Positions:
    rotate_half = part(P.example_recipes, "rotate_half")

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angle = P.angles(positions, x.shape[-1])
        full = part(P.example_recipes, "recipes", angle=angle)[version]
        output: Tensor = x * full.cos() + rotate_half(x) * full.sin()
        return output

    return rotary(apply)


def precise(cast: bool) -> Positions:
    rotary_module = P.Rotary(64).bfloat16() if cast else P.Rotary(64)

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        buffer = rotary_module.frequencies
        angle = positions.to(buffer.dtype)[:, None] * buffer
        return P.rotate(x, angle).to(x.dtype)

    return rotary(apply, width=64, max_length=4096)


def partial(name: str) -> Positions:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        output: Tensor = part(P.example_partial, name, t=positions)(x)
        return output

    return rotary(apply, width=16, rotary_dim=8)


def restarted(restart: bool) -> Positions:
    def apply(x: Tensor, offset: int = 0) -> Tensor:
        table = P.angles(torch.arange(64), x.shape[-1])
        rows = []
        for i, row in enumerate(x.split(1)):
            names = {"table": table, "i": offset + i, "restart": restart}
            rows.append(P.rotate(row, part(P.example_restart, "angle", **names)))
        return torch.cat(rows)

    return Positions(apply, **{**HALF, "signature": "x, offset", "max_length": 64})


def turned(x: Tensor) -> Tensor:
    """Causal attention with rotary positions, (T, C)."""
    t = torch.arange(len(x))
    output: Tensor = P.attend(P.rope(x, t), P.rope(x, t), x, P.causal(len(x), len(x)))
    return output


def plain(x: Tensor, window: int | None = None) -> Tensor:
    mask = P.causal(len(x), len(x))
    output: Tensor = P.attend(x, x, x, mask if window is None else mask.triu(1 - window))
    return output


def cache(step: Callable[..., Any], full: Callable[..., Tensor], **settings: Any) -> Cache:
    """Subject from a step that takes (n new tokens, all tokens, state), each sequence alone."""

    def steps(chunk: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        before, kept = state or (chunk[:, :0], [None] * len(chunk))
        whole = torch.cat([before, chunk], 1)
        pairs = [step(chunk.shape[1], x, k) for x, k in zip(whole, kept, strict=True)]
        return torch.stack([y for y, _ in pairs]), (whole, [k for _, k in pairs])

    def passes(x: Tensor) -> Tensor:
        return torch.stack([full(row) for row in x])

    return Cache(steps, passes, **{"d_model": 8, "dtype": torch.float64, **settings})


def looped(
    example: Callable[..., Any], name: str, start: Callable[[Tensor], dict[str, Any]], **given: Any
) -> Callable[..., Any]:
    """Step by the loop of an example, one token a turn; the state is what the loop changes."""

    def step(n: int, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        state = start(x) if state is None else {k: v.clone() for k, v in state.items()}
        outputs: list[Tensor] = []
        for i in range(len(x) - n, len(x)):
            names = {"q": x, "k": x, "v": x, "i": i, "outputs": outputs, **given, **state}
            names = turn(example, name, **names)
            state = {key: names[key] for key in state}
        return torch.cat(outputs), state

    return step


def restarting(restart: bool) -> Cache:
    given = {"table": P.angles(torch.arange(32), 8), "restart": restart}
    step = looped(P.example_restart, "decode", lambda x: {"keys": x[:0]}, **given)
    return cache(step, turned, max_length=32)


def again(again: bool) -> Cache:
    given = {"t": torch.arange(64), "again": again}
    return cache(looped(P.example_twice, "decode", lambda x: {"keys": x[:0]}, **given), turned)


def learned(version: str) -> Cache:
    words, places = P.draw(10, 8, seed=1), P.draw(8, 8, seed=2)
    last = part(P.example_learned, "last", words=words, places=places)

    def step(ids: Tensor, state: Any, mask: Tensor | None = None) -> tuple[Tensor, Any]:
        ids = ids if state is None else torch.cat([state, ids], 1)
        n = ids.shape[1] if state is None else ids.shape[1] - state.shape[1]
        return run(ids, mask)[:, -n:], ids

    def run(ids: Tensor, mask: Tensor | None = None) -> Tensor:
        rows = []
        mask = everything(mask, ids)
        for row, real in zip(ids, mask, strict=True):
            counted = torch.arange(len(row))
            own = part(P.example_learned, "own", real=real)
            at = {"counted": counted, "own": own}[version]
            ends = range(1, len(row) + 1)
            rows.append(torch.stack([last(row[:n], at[:n], real[:n]) for n in ends]))
        return torch.stack(rows).nan_to_num(0.0)

    return Cache(
        step,
        run,
        vocabulary=10,
        mask="mask",
        mask_covers="all",
        max_length=8,
        dtype=torch.float64,
    )


def counted(version: str) -> Cache:
    def step(chunk: Tensor, state: Any, mask: Tensor | None = None) -> tuple[Tensor, Any]:
        before, places = state or (chunk[:, :0], chunk[:, :0, 0].long())
        x = torch.cat([before, chunk], 1)
        old, outputs, at = before.shape[1], [], []
        for row, real, place in zip(x, everything(mask, x), places, strict=True):
            own = part(P.example_two_counts, "own", real=real)
            p = own.clone()
            if old and version == "wrong":
                p[:old], p[old:] = place, torch.arange(old, len(row))
            at.append(p)
            seen = P.causal(len(row), len(row)) & real
            y = P.attend(P.rope(row, p), P.rope(row, p), row, seen)
            outputs.append(y[old:].nan_to_num(0.0))
        return torch.stack(outputs), (x, torch.stack(at))

    return Cache(step, d_model=8, mask="mask", mask_covers="all", dtype=torch.float64)


def alibi(slopes: list[float]) -> Positions:
    def apply(n_queries: int, n_keys: int) -> Tensor:
        i = torch.arange(n_keys - n_queries, n_keys)[:, None]
        distance = (i - torch.arange(n_keys)).double()
        return -torch.tensor(slopes, dtype=torch.float64)[:, None, None] * distance

    return Positions(apply, scheme="additive", signature="n_queries, n_keys", slopes="paper")


def geometric(name: str) -> Positions:
    lines = part(P.example_slopes, "geometric")
    return alibi(part(P.example_slopes, name, geometric=lines)(12))


def exponents(name: str) -> Positions:
    return alibi(part(P.example_exponent, name, n_heads=8))


def signed(version: str) -> Positions:
    def apply(n: int) -> Tensor:
        t = torch.arange(n, dtype=torch.float64)
        found: Tensor = part(P.example_sign, "versions", t=t, slope=0.5)[version]
        return found

    return Positions(apply, scheme="additive", signature="n")


def decoding(by_query: bool) -> Positions:
    bias = part(P.example_decoding, "bias")

    def apply(n_queries: int, n_keys: int) -> Tensor:
        single = by_query and n_queries == 1  # several would raise
        found: Tensor = bias(n_queries, n_queries if single else n_keys)
        return found.expand(n_queries, n_keys)

    return Positions(apply, scheme="additive", signature="n_queries, n_keys")


def one_row(name: str) -> Positions:
    def apply(n: int) -> Tensor:
        found: Tensor = part(P.example_one_row, name, t=torch.arange(n).double(), slope=0.5)
        return found.expand(n, n)

    return Positions(apply, scheme="additive", signature="n", causal=False)


def prefilled(by_cache: bool) -> Cache:
    run = part(P.example_prefill, "step")

    def step(n: int, x: Tensor, _state: Any) -> tuple[Tensor, Any]:
        new, old = x[len(x) - n :], x[: len(x) - n]
        return run(new, new, new, (old, old), by_cache), None

    return cache(step, plain)


def windowed(version: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        t = q.shape[2]
        names = {"causal": lambda *_: P.causal(t, t), "window": 3}
        mask = part(P.example_window, "versions", **names)[version]
        output: Tensor = P.attend(q, k, v, mask)
        return output

    return attention(attend, causal="always", window=3, same_lengths=True)


def unwritten(name: str) -> Cache:
    def step(n: int, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        keys, values = torch.zeros(2, 16, 8).double() if state is None else state
        keys, values = keys.clone(), values.clone()
        outputs: dict[str, list[Tensor]] = {"all_slots": [], "written_slots": []}
        for i in range(len(x) - n, len(x)):
            names = {"q": x, "k": x, "v": x, "i": i, "keys": keys, "values": values}
            turn(P.example_unwritten, "example_unwritten", **names, **outputs)
        return torch.cat(outputs[name]), (keys, values)

    return cache(step, plain, max_length=16)


def rolled(full_at: int) -> Cache:
    def start(_x: Tensor) -> dict[str, Any]:
        return {"keys": torch.zeros(4, 8).double(), "values": torch.zeros(4, 8).double()}

    step = looped(P.example_rolled, "decode", start, window=4, full_at=full_at)
    return cache(step, lambda x: plain(x, 4), window=4)


def chunked(cut_first: bool) -> Cache:
    def step(n: int, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        names: dict[str, Any] = {
            "q": x,
            "k": x,
            "v": x,
            "window": 4,
            "cut_first": cut_first,
            "outputs": [],
        }
        kept = torch.arange(0) if state is None else state
        chunk = torch.arange(len(x) - n, len(x))
        names = turn(P.example_chunk, "prefill", **names, kept=kept, chunk=chunk)
        return names["outputs"][0], names["kept"]

    return cache(step, lambda x: plain(x, 4), window=4)


def packed(version: str) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor, document_ids: Tensor) -> Tensor:
        t, masks = q.shape[2], []
        for document in document_ids:
            same = part(P.example_packed, "same", document=document)
            names = {"causal": lambda *_: P.causal(t, t), "same": same}
            masks.append(part(P.example_packed, "versions", **names)[version])
        output: Tensor = P.attend(q, k, v, torch.stack(masks)[:, None])
        return output

    return attention(
        attend, mask="none", documents="document_ids", causal="always", same_lengths=True
    )


# Every entry, by its heading


@dataclass(frozen=True)
class Case:
    """A check, and the subjects with the wrong and the right code."""

    check: str
    wrong: Callable[[], Subject]
    right: Callable[[], Subject]
    verdict: str = "fail"


def case(
    check: str, make: Callable[..., Subject], *sides: Any, verdict: str = "fail", **more: Any
) -> Case:
    """Case whose subjects are made of the wrong and of the right side of an entry."""
    wrong, right = sides or ("wrong", "right")
    return Case(check, lambda: make(wrong, **more), lambda: make(right, **more), verdict)


def flexible(run: Callable[..., Tensor], **settings: Any) -> Attention:
    return attention(run, causal="always", **settings)


def square(run: Callable[..., Tensor]) -> Attention:
    return attention(run, causal="always", same_lengths=True)


def handed(run: Callable[..., Tensor]) -> Attention:
    numbers = run is M.wrong_numbers
    return masked(last_line(run, "mask"), mask="ones" if numbers else "attend")


def by_future(run: Callable[..., Tensor]) -> Attention:
    return masked(last_line(run, "future"), mask="hide")


def twice(name: str) -> Attention:
    return attention(unmasked(part(N.example_twice, name)))


def too_high(line: str) -> Attention:
    return masked(scored(line, N.example_floor_too_high))


def inverted(line: str) -> Attention:
    return scaled(N.example_inverted, line)


def scaled_after(line: str) -> Attention:
    return scaled(N.example_after, line)


def layouts(run: Callable[..., Tensor]) -> Positions:
    return rotary(run, pairs="interleaved")


SPLITS = ({"split": S.wrong_split}, {"split": S.right_split})
MERGES = ({"merge": S.wrong_merge}, {"merge": S.right_merge})
VIEWS = ({"merge": S.wrong_view}, {"merge": S.right_reshape})
FIRST: tuple[dict[str, Any], ...] = ({}, {"batch_first": True})
RECIPES = ("wrong, repeat_interleave", "right, cat")
MASKED: tuple[dict[str, Any], ...] = ({}, {"is_causal": False})
CORNER = (M.wrong_cache, M.right_cache)
ROTATIONS = (P.rope, part(P.example_layouts, "interleaved"))


def given(make: Callable[..., Subject]) -> Callable[..., Subject]:
    return lambda options: make(**options)


# A list of cases, or the reason why there is no check.
FOUND: dict[str, dict[str, list[Case] | str]] = {
    "bugs-masks": {
        "empty-row": [
            case("empty_rows", masked, M.wrong_empty, M.right_empty, verdict="hazard"),
            case("empty_rows", masked, M.wrong_empty, M.right_empty, empty="zeros"),
        ],
        "late-repair": [
            case(
                "empty_rows_backward",
                masked,
                M.wrong_repair,
                M.right_empty,
                mask_shape="(Tq, Tk)",
            )
        ],
        "nan-layers": [
            case(name, nan_layers, M.wrong_layers, M.right_layers)
            for name in ("empty_rows", "nan_spreads")
        ],
        "unwritten": [
            case("nan_spreads", by_keys, M.wrong_padding, M.right_padding, verdict="hazard")
        ],
        "polarity": [
            case("mask_polarity", by_future, M.wrong_polarity, M.right_polarity),
            case("causal_leak", square, M.wrong_polarity, M.right_polarity),
        ],
        "query-axis": [case("mask_on_query_axis", by_keys, M.wrong_axis, M.right_axis)],
        "other-mask": [case("mask_broadcast", repeated_mask, M.wrong_heads, M.right_heads)],
        "zero-one": [
            case("mask_ignored", handed, M.wrong_numbers, M.right_numbers),
            case("causal_leak", square, M.wrong_numbers, M.right_numbers),
        ],
        "mask-dtype": [case("mask_floor", half_mask, M.wrong_dtype, M.right_dtype)],
        "lost-bias": [case("training_and_evaluation", biased, M.wrong_bias, M.right_bias)],
        "mixed-masks": "the outputs are right",
        "after-softmax": [case("mask_after_softmax", masked, M.wrong_after, M.right_after)],
        "product": [case("mask_multiplied", masked, M.wrong_product, M.right_after)],
        "triangle": [case("causal_leak", window, M.wrong_window, M.right_window)],
        "cache-corner": [
            case("causal_alignment", flexible, *CORNER, alignment="bottom-right"),
            case("causal_alignment", flexible, *CORNER, verdict="hazard"),
        ],
        "more-queries": [
            case(
                "causal_alignment",
                flexible,
                M.wrong_longer,
                M.right_longer,
                alignment="bottom-right",
            )
        ],
        "mask-and-flag": "each kernel refuses the two or applies both, and both are right",
        "hint": [case("training_and_evaluation", hinted, M.wrong_hint, M.right_hint)],
        "hint-alone": [case("runs", hint_alone, M.wrong_alone, M.right_alone)],
        "forgotten-flag": [case("causal_leak", flagged, M.wrong_flag, M.right_flag)],
        "two-floors": [case("masks_summed", summed, M.wrong_sum, M.right_sum)],
    },
    "bugs-numbers": {
        "average": [case("empty_rows", averaged, verdict="hazard")],
        "floor-too-high": [case("mask_floor", too_high)],
        "floor-added": [case("empty_rows", floor_added, verdict="hazard")],
        "floor-does-not-fit": [case("mask_floor", floor_half, -1e9, -math.inf)],
        "start": [case("overflow", started, -5e4, -math.inf)],
        "first-block": [case("empty_first_block", first_block, False, True)],
        "backward": [case("empty_rows_backward", by_hand, False, True)],
        "model-width": [case("scale", model_width, True, False)],
        "twice": [case("scale", twice)],
        "scale-dropped": [case("scale", dropped_scale)],
        "inverted": [case("scale", inverted)],
        "after": [case("scale", scaled_after)],
        "evaluation": [case("dropout_in_evaluation", evaluated, "Wrong", "Right")],
        "weights": "right code does this, too",
        "denominator": [case("dropout_rescaled", denominator)],
        "soft-cap": [case("soft_cap_after_mask", capped)],
        "sink": [case("sink_counted_twice", sunk, True, False)],
        "sigmoid": [case("sink_counted_twice", gated, "gated", "renormalised", verdict="pass")],
        "axis": [case("softmax_axis", by_axis)],
        "strides": "it is not the function that is wrong, but what is done with its output",
        "nan": "none puts a NaN into a query",
        "tensor-scale": "it raises",
        "last-digits": "it is no mistake",
        "mask-stride": "the kernel refuses by itself",
    },
    "bugs-shapes": {
        "head-split": [case(name, given(heads), *SPLITS) for name in ("head_split", "causal_leak")],
        "head-merge": [
            case("head_merge", given(heads), *MERGES),
            case("head_merge", quantizable, True, False),
        ],
        "view": [case("runs", given(heads), *VIEWS)],
        "batch-first": [
            case(name, given(axes), *FIRST) for name in ("batch_time_exchanged", "batch_leak")
        ],
        "groups": [case("grouped_heads", grouped, S.wrong_groups, S.right_groups)],
        "enable-gqa": "the call raises, and the contract stops before its first check",
        "average": "the outputs are right",
        "unread-weights": "the outputs are equal",
        "mask-memory": "the outputs are equal",
        "pooling": [case("training_and_evaluation", pooled, False, True)],
        "shorter-output": [case("runs", cut, False, True)],
        "empty-batch": "none passes an empty batch",
        "memory-mask": [case("cross_mask", blocks, S.wrong_block, S.right_block)],
        "causal-memory": [case("cross_mask", given(cross), *MASKED)],
    },
    "bugs-positions": {
        "layouts": [case("pairs_mixed", layouts, *ROTATIONS)],
        "recipes": [
            case(name, recipe, *RECIPES) for name in ("norm_kept", "relative_only", "pairs_mixed")
        ],
        "precision": [case("low_precision_angles", precise, True, False)],
        "partial": [case("partial_width", partial, "wrong_partial", "right_partial")],
        "restart": [
            case("offset_ignored", restarted, True, False),
            case("chunks_differ", restarting, True, False),
        ],
        "twice": [case("rotated_twice", again, True, False)],
        "learned": [case("left_padding", learned, "counted", "own")],
        "two-counts": [case("left_padding", counted)],
        "slopes": [case("alibi_slopes", geometric, "geometric", "slopes")],
        "exponent": [case("alibi_slopes", exponents, "from_0", "from_1")],
        "sign": [
            case("alibi_sign", signed, "wrong, + slope · distance", "right, − slope · distance")
        ],
        "decoding": [case("alibi_while_decoding", decoding, True, False)],
        "one-row": [case("alibi_sign", one_row, "row", "triangle")],
        "prefill": [case("chunks_differ", prefilled, True, False)],
        "window": [
            case("window_length", windowed, "wrong, triu(-window)", "right, triu(1 - window)")
        ],
        "unwritten": [case("unwritten_slots", unwritten, "all_slots", "written_slots")],
        "rolled": [case("rolled_early", rolled, 3, 4)],
        "chunk": [case(name, chunked, True, False) for name in ("rolled_early", "chunks_differ")],
        "packed": [case("documents_leak", packed, "wrong, positions only", "right, and the mask")],
    },
}

# Entries of the table that no page shows: the status function is what is tried.
UNSHOWN: dict[str, Case | str] = {
    "half_overflow": Case(
        "half_overflow",
        lambda: attention(unmasked(bugs.plain)),
        lambda: attention(F.scaled_dot_product_attention),
        "hazard",
    ),
    "second_derivative": "the check of the gradients takes first derivatives",
}
CASES = [
    pytest.param(found, id=f"{page}#{anchor}-{found.check}-{found.verdict}")
    for page, entries in FOUND.items()
    for anchor, cases in entries.items()
    for found in (cases if isinstance(cases, list) else [])
] + [
    pytest.param(found, id=f"bugs-{name}")
    for name, found in UNSHOWN.items()
    if isinstance(found, Case)
]


def asked(subject: Subject, check: str) -> Finding:
    return run_check(subject.prepared(), check)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("found", CASES)
def test_the_check_finds_the_wrong_code_and_not_the_right_one(found: Case) -> None:
    wrong = asked(found.wrong(), found.check)
    assert wrong.verdict == found.verdict, str(wrong)
    right = asked(found.right(), found.check)
    assert right.verdict != "skip", str(right)
    assert right.verdict != "fail", str(right)
    if found.verdict == "hazard":
        assert right.verdict == "pass", str(right)


def lines(page: str) -> dict[str, str]:
    """What each entry of a page says of itself, from its Found by on, by anchor."""
    text = Project().markdown(f"practice/{page}").read_text(encoding="utf-8")
    found = {}
    for entry in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        said = re.search(r"\*\*Found by\*\*:? (.+?)\n(?:\n|- )", entry, flags=re.DOTALL)
        anchor = re.search(r"\{ #([\w-]+) \}$", entry.partition("\n")[0])
        if anchor:
            assert said, anchor[1]
            assert entry.count("**Found by**") == 1, anchor[1]
            found[anchor[1]] = " ".join(said[1].split())
    return found


def names(line: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", line)) & NAMES


@pytest.mark.parametrize("page", FOUND)
def test_the_pages_name_the_checks_that_are_tried(page: str) -> None:
    said = lines(page)
    assert list(said) == list(FOUND[page])
    for anchor, cases in FOUND[page].items():
        line = said[anchor]
        if isinstance(cases, str):
            assert line.startswith(f"no check: {cases}"), (anchor, line)
            assert not names(line), (anchor, line)
            continue
        assert "no check" not in line, (anchor, line)
        assert names(line) == {found.check for found in cases}, (anchor, line)
        if any(found.verdict == "hazard" for found in cases):
            assert "hazard" in line, (anchor, line)
        if any(found.verdict == "pass" for found in cases):
            assert "passes both" in line, (anchor, line)


@pytest.mark.parametrize("entry", bugs.ENTRIES, ids=lambda entry: entry.name)
def test_the_table_names_a_check_of_the_page_that_it_links_to(entry: bugs.Entry) -> None:
    if entry.name in bugs.LINKS:
        page, _, anchor = bugs.LINKS[entry.name].partition(".md#")
        cases = FOUND[page][anchor]
    else:
        only = UNSHOWN[entry.name]
        cases = only if isinstance(only, str) else [only]
    allowed = {""} if isinstance(cases, str) else {found.check for found in cases}
    assert entry.check in allowed


def test_every_entry_without_a_page_is_in_the_table() -> None:
    assert set(UNSHOWN) == {entry.name for entry in bugs.ENTRIES} - set(bugs.LINKS)
    linked = set(bugs.LINKS.values())
    assert linked <= {f"{page}.md#{anchor}" for page in FOUND for anchor in FOUND[page]}


def test_grouped_heads_without_the_flag_raise_before_the_first_check() -> None:
    with pytest.raises(SubjectError, match="The size of tensor a"):
        ungrouped(False).prepared()
    assert asked(ungrouped(True), "grouped_heads").verdict == "pass"
