"""Right decoders with a cache, in the styles that public code has.

`make()` gives a `Pair`: `full(x) -> (B, T, C)` in one causal pass, `step(chunk, state) -> (out,
state)` where the state None starts a sequence and chunks have any length. Settings:

d_model, n_heads, n_kv_heads, head_width, layers
positions   "rotary" (at absolute positions, base 10000), "rotary in cache" (at the place among the
            keys that the query sees), "learned" (added to the inputs), "alibi", "t5" or "none"
pairing     of the rotary positions
scaling     None, or {"kind": "dynamic linear", "original_length": n}: a pass over T > n tokens
            has its positions multiplied by n / T (no causal pass: no right decoder has it here)
window      how many keys a query sees, its own included; None for all
sinks       how many first keys every query sees beside its window
state       "argument", or "inside": `step(chunk)` alone, and `reset()` starts a sequence
input       "features" (B, T, C), or "tokens" (B, T) with `vocabulary`: out (B, T, vocabulary)
padding     None, or "left": `full(x, mask)` and `step(chunk, state, mask)` with a boolean mask
            (B, T of the chunk), True where the token is real; what padded tokens give is open
max_length  the sequence ends here, None for no end
log_n       scores are multiplied by log(4 + i) / log(4) at position i
latent      width of what is cached in place of keys and values
dtype       of the weights
"""

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.snippets.contract.entries import (
    Apply,
    Entry,
    Pair,
    Weights,
    cached,
    collect,
    draw,
    weights,
)

ALL: dict[str, Entry] = {}


def split(x: Tensor) -> Tensor:
    """(B, T, H * 4) to (B, H, T, 4)."""
    return x.reshape(*x.shape[:-1], -1, 4).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def rope(x: Tensor, positions: Tensor) -> Tensor:
    """Halves, positions (T,) or (B, T)."""
    freqs = positions[..., None] * 10000.0 ** -(torch.arange(2) / 2)
    angles = torch.cat((freqs, freqs), -1)
    angles = angles[:, None] if angles.dim() == 3 else angles
    a, b = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-b, a), -1) * angles.sin()


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
    return scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ v


def causal(n_queries: int, n_keys: int, window: int | None = None) -> Tensor:
    """Bottom right."""
    distance = torch.arange(n_keys - n_queries, n_keys)[:, None] - torch.arange(n_keys)
    return (distance >= 0) & (distance < (n_keys if window is None else window))


def rotary_full(w: Weights, window: int | None = None) -> Apply:
    """One pass with rotary positions."""

    def full(x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        return merge(attend(q, k, v, causal(len(at), len(at), window))) @ w.o

    return full


def plain_full(w: Weights) -> Apply:
    """One pass without positions, by PyTorch's function."""

    def full(x: Tensor) -> Tensor:
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        return merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)) @ w.o

    return full


SLOPES = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])  # of 4 heads


def alibi_full(w: Weights) -> Apply:
    def full(x: Tensor) -> Tensor:
        n = x.shape[1]
        bias = SLOPES[:, None, None] * (torch.arange(n) - torch.arange(n)[:, None])
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        return merge(attend(q, k, v, causal(n, n), bias)) @ w.o

    return full


TABLE = draw(64, 16, seed=90)  # learned positions
EMBEDDING = draw(11, 16, seed=70)
BUCKETS = draw(8, 4, seed=91)  # learned distances, 0 to 7 and more


def learned_full(w: Weights) -> Apply:
    plain = plain_full(w)

    def full(x: Tensor) -> Tensor:
        out: Tensor = plain(x + TABLE[: x.shape[1]])
        return out

    return full


# Caches that grow.

State = tuple[Tensor, Tensor] | None


@collect(ALL, cached())
def growing_rotated_keys() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        past = 0 if state is None else state[0].shape[2]
        at = torch.arange(past, past + x.shape[1])
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        out = attend(q, k, v, causal(q.shape[2], k.shape[2]))
        return merge(out) @ w.o, (k, v)

    return Pair(rotary_full(w), step)


@collect(ALL, cached())
def growing_unrotated_keys() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        k, v = split(x @ w.k), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), -2), torch.cat((state[1], v), -2)
        at = torch.arange(k.shape[-2])
        q = rope(split(x @ w.q), at[-x.shape[1] :])
        out = attend(q, rope(k, at), v, causal(x.shape[1], len(at)))
        return merge(out) @ w.o, (k, v)

    return Pair(rotary_full(w), step)


@collect(ALL, cached(positions="none"))
def list_of_tokens() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: list[tuple[Tensor, Tensor]] | None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        state, outs = [] if state is None else list(state), []
        for token in x.unbind(1):  # (B, C)
            heads = (-1, 4, 4)
            state.append(((token @ w.k).view(heads), (token @ w.v).view(heads)))
            keys = torch.stack([k for k, _ in state], 2)  # (B, H, T, d)
            values = torch.stack([v for _, v in state], 2)
            scores = torch.einsum("bhd,bhtd->bht", (token @ w.q).view(heads), keys) / 2
            outs.append(torch.einsum("bht,bhtd->bhd", scores.softmax(-1), values).flatten(1))
        return torch.stack(outs, 1) @ w.o, state

    return Pair(plain_full(w), step)


@collect(ALL, cached(positions="none"))
def transposed_keys() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = split(x @ w.q), split(x @ w.k).transpose(-1, -2), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), -1), torch.cat((state[1], v), -2)
        scores = (q @ k) * 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool)
        future = future.triu(1 + k.shape[-1] - q.shape[-2])
        scores = scores.masked_fill(future, torch.finfo(scores.dtype).min)
        return merge(scores.softmax(-1) @ v) @ w.o, (k, v)

    return Pair(plain_full(w), step)


@collect(ALL, cached(n_kv_heads=2))
def grouped_heads() -> Pair:
    w = weights(4, 2)

    def step(x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        past = 0 if state is None else int(state["length"])
        at = torch.arange(past, past + x.shape[1])
        k, v = rope(split(x @ w.k), at), split(x @ w.v)
        if state is not None:
            k, v = torch.cat([state["k"], k], 2), torch.cat([state["v"], v], 2)
        q = torch.unflatten(rope(split(x @ w.q), at), 1, (2, 2))  # (B, Hkv, G, Tq, d)
        out = attend(q, k[:, :, None], v[:, :, None], causal(x.shape[1], k.shape[2]))
        return merge(out.flatten(1, 2)) @ w.o, {
            "k": k,
            "v": v,
            "length": torch.tensor(k.shape[2]),
        }

    return Pair(rotary_full(w), step)


@collect(ALL, cached(positions="alibi"))
def growing_alibi() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        bias = SLOPES[:, None, None] * torch.arange(k.shape[2])  # one row: right where causal
        return merge(attend(q, k, v, causal(q.shape[2], k.shape[2]), bias)) @ w.o, (k, v)

    return Pair(alibi_full(w), step)


@collect(ALL, cached(positions="t5"))
def growing_learned_distance() -> Pair:
    w = weights()

    def bias(n_queries: int, n_keys: int) -> Tensor:
        distance = torch.arange(n_keys - n_queries, n_keys)[:, None] - torch.arange(n_keys)
        return BUCKETS[distance.clamp(0, 7)].movedim(-1, 0)

    def full(x: Tensor) -> Tensor:
        return step(x, None)[0]

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        size = (q.shape[2], k.shape[2])
        return merge(attend(q, k, v, causal(*size), bias(*size))) @ w.o, (k, v)

    return Pair(full, step)


@collect(ALL, cached(positions="learned", max_length=64))
def learned_positions() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        past = 0 if state is None else state[0].size(-2)
        x = x + TABLE[past : past + x.shape[1]]
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(past)
        return merge(F.scaled_dot_product_attention(q, k, v, mask)) @ w.o, (k, v)

    return Pair(learned_full(w), step)


@collect(ALL, cached(positions="none", log_n=True))
def scaled_by_log_of_position() -> Pair:
    w = weights()

    def full(x: Tensor) -> Tensor:
        return step(x, None)[0]

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        past = 0 if state is None else state[0].shape[2]
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        q = q * (torch.log(4.0 + torch.arange(past, past + x.shape[1])) / math.log(4))[:, None]
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        return merge(attend(q, k, v, causal(q.shape[2], k.shape[2]))) @ w.o, (k, v)

    return Pair(full, step)


@collect(ALL, cached(positions="none", latent=6))
def latent_keys_and_values() -> Pair:
    w = weights()
    down, up_k, up_v = draw(16, 6, seed=80) / 3, draw(6, 16, seed=81), draw(6, 16, seed=82) / 2

    def full(x: Tensor) -> Tensor:
        c = x @ down
        q, k, v = split(x @ w.q), split(c @ up_k), split(c @ up_v)
        return merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)) @ w.o

    def step(x: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        c = x @ down if state is None else torch.cat((state, x @ down), 1)  # (B, T, 6)
        q = split(x @ w.q)
        absorbed = torch.einsum("bhqd,rhd->bhqr", q, up_k.view(6, 4, 4))
        scores = absorbed @ c[:, None].transpose(-1, -2) / 2
        allowed = causal(x.shape[1], c.shape[1])
        mixed = scores.masked_fill(~allowed, float("-inf")).softmax(-1) @ c[:, None]
        out = torch.einsum("bhqr,rhd->bqhd", mixed, up_v.view(6, 4, 4)).flatten(2)
        return out @ w.o, c

    return Pair(full, step)


# Caches of a fixed size.


@dataclass
class Buffer:
    k: Tensor
    v: Tensor
    length: int = 0

    @classmethod
    def empty(cls, batch: int, length: int = 64, heads: int = 4, fill: float = 0.0) -> "Buffer":
        shape = (batch, heads, length, 4)
        return cls(torch.full(shape, fill), torch.full(shape, fill))


def rope_pairs(x: Tensor, positions: Tensor) -> Tensor:
    """Neighbours, by complex numbers."""
    angles = positions[:, None] * 10000.0 ** -(torch.arange(2) / 2)
    z = torch.view_as_complex(torch.unflatten(x, -1, (-1, 2)).contiguous())
    return torch.view_as_real(z * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


@collect(ALL, cached(pairing="interleaved", max_length=64))
def preallocated_with_length() -> Pair:
    w = weights()

    def full(x: Tensor) -> Tensor:
        return step(x, None)[0]

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x)) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        at = torch.arange(start, end)
        state.k[:, :, start:end] = rope_pairs(split(x @ w.k), at)
        state.v[:, :, start:end] = split(x @ w.v)
        q = rope_pairs(split(x @ w.q), at)
        out = attend(q, state.k[:, :, :end], state.v[:, :, :end], causal(x.shape[1], end))
        return merge(out) @ w.o, Buffer(state.k, state.v, end)

    return Pair(full, step)


@collect(ALL, cached(max_length=64))
def all_slots_and_a_mask() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        if state is None:
            # What an allocator gives is anything: the mask has to do it.
            keys, values = torch.full((2, len(x), 4, 64, 4), 3.0)
            first = torch.zeros((), dtype=torch.long)
        else:
            keys, values, first = state
        at = first + torch.arange(x.shape[1])
        keys = keys.index_copy(2, at, rope(split(x @ w.k), at))
        values = values.index_copy(2, at, split(x @ w.v))
        mask = torch.ones(64, 64, dtype=torch.bool).tril()[at]
        q = rope(split(x @ w.q), at)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return merge(out) @ w.o, (keys, values, at[-1] + 1)

    return Pair(rotary_full(w), step)


class HoldsItsCache(nn.Module):
    k: Tensor
    v: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.w = weights()
        self.reset()

    def reset(self) -> None:
        self.k = self.v = torch.empty(0)
        self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(self.length, self.length + x.shape[1])
        q, k = rope(split(x @ self.w.q), at), rope(split(x @ self.w.k), at)
        v = split(x @ self.w.v)
        if self.length:
            k, v = torch.cat((self.k, k), 2), torch.cat((self.v, v), 2)
        self.k, self.v, self.length = k, v, k.shape[2]
        return merge(attend(q, k, v, causal(len(at), self.length))) @ self.w.o


@collect(ALL, cached(state="inside"))
def module_that_holds_its_cache() -> Pair:
    module = HoldsItsCache()
    return Pair(rotary_full(module.w), module, module.reset)


@dataclass
class Blocks:
    """Blocks of 4 tokens, of a pool, in any order."""

    k: Tensor  # (blocks, 4, H, d)
    v: Tensor
    tables: list[list[int]]
    free: list[int] = field(default_factory=list)
    length: int = 0


def pool(batch: int) -> Blocks:
    free = torch.randperm(16 * batch, generator=torch.Generator().manual_seed(3)).tolist()
    shape = (16 * batch, 4, 4, 4)
    return Blocks(torch.zeros(shape), torch.zeros(shape), [[] for _ in range(batch)], free)


@collect(ALL, cached(max_length=64))
def paged_blocks() -> Pair:
    w = weights()

    def step(x: Tensor, state: Blocks | None) -> tuple[Tensor, Blocks]:
        state = pool(len(x)) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        at = torch.arange(start, end)
        k, v = rope(split(x @ w.k), at).transpose(1, 2), torch.unflatten(x @ w.v, -1, (4, 4))
        for row, table in enumerate(state.tables):
            while 4 * len(table) < end:
                table.append(state.free.pop())
            for i, position in enumerate(at.tolist()):
                state.k[table[position // 4], position % 4] = k[row, i]
                state.v[table[position // 4], position % 4] = v[row, i]
        state.length = end
        tables = torch.tensor(state.tables)
        keys = state.k[tables].flatten(1, 2)[:, :end].transpose(1, 2)
        values = state.v[tables].flatten(1, 2)[:, :end].transpose(1, 2)
        out = attend(rope(split(x @ w.q), at), keys, values, causal(len(at), end))
        return merge(out) @ w.o, state

    return Pair(rotary_full(w), step)


# Windows.


@collect(ALL, cached(window=4))
def growing_seen_through_a_window() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        past = 0 if state is None else state[0].shape[2]
        at = torch.arange(past, past + x.shape[1])
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        return merge(attend(q, k, v, causal(len(at), k.shape[2], 4))) @ w.o, (k, v)

    return Pair(rotary_full(w, 4), step)


@collect(ALL, cached(window=4))
def cropped_to_the_window() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, int] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, int]]:
        past = 0 if state is None else state[2]
        at = torch.arange(past, past + x.shape[1])
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        out = attend(q, k, v, causal(len(at), k.shape[2], 4))
        return merge(out) @ w.o, (k[:, :, -3:], v[:, :, -3:], past + len(at))

    return Pair(rotary_full(w, 4), step)


@collect(ALL, cached(window=4))
def ring_buffer() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x), 4) if state is None else state
        first, n = state.length, x.shape[1]
        at = torch.arange(first, first + n)
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        # Slot s holds the last position before this chunk that is s modulo 4.
        slots = torch.arange(4)
        held = first - 1 - (first - 1 - slots) % 4
        where = torch.cat((held, at))
        distance = at[:, None] - where
        allowed = (where >= 0) & (distance >= 0) & (distance < 4)
        out = attend(q, torch.cat((state.k, k), 2), torch.cat((state.v, v), 2), allowed)
        state.k[:, :, at[-4:] % 4], state.v[:, :, at[-4:] % 4] = k[:, :, -4:], v[:, :, -4:]
        state.length = first + n
        return merge(out) @ w.o, state

    return Pair(rotary_full(w, 4), step)


@collect(ALL, cached(window=4))
def rolled_buffer_token_by_token() -> Pair:
    w = weights()

    def one(x: Tensor, state: Buffer) -> Tensor:
        at = torch.tensor([state.length])
        k, v = rope(split(x @ w.k), at), split(x @ w.v)
        if state.length >= 4:
            state.k, state.v = state.k.roll(-1, 2), state.v.roll(-1, 2)
        slot = min(state.length, 3)
        state.k[:, :, slot], state.v[:, :, slot] = k[:, :, 0], v[:, :, 0]
        state.length += 1
        allowed = torch.arange(4) < state.length
        out = attend(rope(split(x @ w.q), at), state.k, state.v, allowed)
        return merge(out) @ w.o

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x), 4) if state is None else state
        return torch.cat([one(token, state) for token in torch.split(x, 1, 1)], 1), state

    return Pair(rotary_full(w, 4), step)


@collect(ALL, cached(window=3, sinks=2))
def sinks_and_window() -> Pair:
    w = weights()

    def allowed(at: Tensor, where: Tensor) -> Tensor:
        distance = at[:, None] - where
        return (distance >= 0) & ((distance < 3) | (where < 2))

    def full(x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        q, k = rope(split(x @ w.q), at), rope(split(x @ w.k), at)
        return merge(attend(q, k, split(x @ w.v), allowed(at, at))) @ w.o

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        past = 0 if state is None else int(state[2][-1]) + 1
        at = torch.arange(past, past + x.shape[1])
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        where = at
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
            where = torch.cat((state[2], at))
        out = attend(q, k, v, allowed(at, where))
        kept = (where < 2) | (where > int(at[-1]) - 3)
        return merge(out) @ w.o, (k[:, :, kept], v[:, :, kept], where[kept])

    return Pair(full, step)


@collect(ALL, cached(window=3, sinks=2, positions="rotary in cache"))
def sinks_at_places_in_the_cache() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outs = []
        for token in torch.split(x, 1, 1):
            k, v = split(token @ w.k), split(token @ w.v)
            if state is not None:
                k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
            if k.shape[2] > 5:
                k, v = (torch.cat((t[:, :, :2], t[:, :, -3:]), 2) for t in (k, v))
            at = torch.arange(k.shape[2])
            q = rope(split(token @ w.q), at[-1:])
            outs.append(merge(attend(q, rope(k, at), v, torch.tensor(True))) @ w.o)
            state = (k, v)
        assert state is not None
        return torch.cat(outs, 1), state

    def full(x: Tensor) -> Tensor:
        return step(x, None)[0]

    return Pair(full, step)


# Left padding.

Padded = tuple[Tensor, Tensor, Tensor] | None


def padded_causal(mask: Tensor, n_queries: int) -> Tensor:
    """(B, 1, Tq, Tk); a padded query sees itself, so that nothing is NaN."""
    n_keys = mask.shape[1]
    itself = torch.eye(n_keys, dtype=torch.bool)[-n_queries:]
    return (causal(n_queries, n_keys) & mask[:, None, None, :]) | itself


@collect(ALL, cached(padding="left", positions="learned", max_length=64))
def left_padded_learned_positions() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((state[2], mask), 1)
        at = (seen.long().cumsum(1) - 1).clamp(min=0)[:, -n:]
        x = x + TABLE[at]
        q, k, v = split(x @ w.q), split(x @ w.k), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        return merge(attend(q, k, v, padded_causal(seen, n))) @ w.o, (k, v, seen)

    def full(x: Tensor, mask: Tensor) -> Tensor:
        return step(x, None, mask)[0]

    return Pair(full, step)


@collect(ALL, cached(padding="left"))
def left_padded_shared_rotary_positions() -> Pair:
    w = weights()

    # One count for all rows is right here: rotary scores know the difference only.
    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((state[2], mask), 1)
        at = torch.arange(seen.shape[1] - n, seen.shape[1])
        q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        return merge(attend(q, k, v, padded_causal(seen, n))) @ w.o, (k, v, seen)

    def full(x: Tensor, mask: Tensor) -> Tensor:
        return step(x, None, mask)[0]

    return Pair(full, step)


# More than one layer.


@collect(ALL, cached(layers=2, input="tokens", vocabulary=11))
def two_layers_of_tokens() -> Pair:
    layers = [weights(seed=0), weights(seed=1)]

    def full(ids: Tensor) -> Tensor:
        x = EMBEDDING[ids]
        for w in layers:
            x = x + rotary_full(w)(x)
        return x @ EMBEDDING.T

    def step(ids: Tensor, state: list[State] | None) -> tuple[Tensor, list[State]]:
        caches: list[State] = [None] * len(layers) if state is None else state
        first = caches[0]
        past = 0 if first is None else first[0].shape[2]
        at, x, new = torch.arange(past, past + ids.shape[1]), EMBEDDING[ids], list[State]()
        for w, cache in zip(layers, caches, strict=True):
            q, k, v = rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)
            if cache is not None:
                k, v = torch.cat((cache[0], k), 2), torch.cat((cache[1], v), 2)
            x = x + merge(attend(q, k, v, causal(len(at), k.shape[2]))) @ w.o
            new.append((k, v))
        return x @ EMBEDDING.T, new

    return Pair(full, step)
