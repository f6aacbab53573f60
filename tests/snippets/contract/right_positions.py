"""Right position schemes, in the styles that public code has.

Settings, by the scheme that `settings["scheme"]` names:

rotary
    call            "x, positions", "x, offset=", "q, k, positions", "q, k, offset=", "x"
                    (positions 0 to T - 1) or "x, seq_dim=, offset="; positions are integers, (T,) or (B, T)
    layout          "(B, H, T, d)", "(B, T, H, d)" or "(T, B, H, d)"
    pairing         "half" (i with i + rotary_dim / 2) or "interleaved" (2 i with 2 i + 1)
    head_width      d; the classes that hold a table take no other
    rotary_dim      how many of the first features turn
    base            pair i turns by position · base ** (-2 i / rotary_dim)
    scaling         None, or a dict with "kind": "linear", "ntk", "llama3" or "yarn" and its numbers
    direction       1, or -1 where every angle is negated (queries and keys alike: right)
    position_shift  added to every position (queries and keys alike: right)
    factor          the result is multiplied by it (YaRN)
    output_order    "half" where pairs come in interleaved and leave as halves (both alike: right)
    max_positions   the table ends here, None for no end

additive, `(n_queries, n_keys) -> (H, Tq, Tk)`, (1, H, Tq, Tk) or (H, 1, Tk); the last query is at the last key
    bias            "alibi", "t5", "learned" (clipped distance) or "log" (-slope · log(1 + distance))
    n_heads         H
    causal          True: nothing is promised about keys after the query
    symmetric       True: the distance is |i - j|
    row_constant    True: right up to a constant in each row, to which the softmax is blind
    masked_future   True: -inf after the query
    buckets, max_distance   of "t5" and "learned"

absolute
    call            "positions" (integers (T,) -> (T, C)), "x, offset=" or "x, positions" (x (B, T, C) -> x + table)
    table           "sinusoidal" or "learned"
    order           "interleaved" (sin, cos, sin, ...) or "half" (all sines, then all cosines)
    d_model, base, max_positions
"""  # noqa: E501

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.snippets.contract.entries import (
    Apply,
    Entry,
    absolute,
    additive,
    collect,
    draw,
    rotary,
)

ALL: dict[str, Entry] = {}


def embedding(table: Tensor) -> nn.Embedding:
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table, _freeze=True)


def rotate_half(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def rotate_every_two(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def inv_freq(width: int = 8, base: float = 10000.0) -> Tensor:
    return 1.0 / base ** (torch.arange(0, width, 2).float() / width)


def per_head(angles: Tensor) -> Tensor:
    return angles[:, None] if angles.dim() == 3 else angles


@collect(ALL, rotary())
def half_recomputed() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * inv_freq(x.shape[-1])
        angles = per_head(torch.cat((freqs, freqs), dim=-1))
        return (x * angles.cos() + rotate_half(x) * angles.sin()).type_as(x)

    return apply


@collect(ALL, rotary(pairing="interleaved"))
def interleaved_float64() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        theta = torch.logspace(0, -(d - 2) / d, d // 2, base=10000.0, dtype=torch.float64)
        angles = per_head(positions[..., None] * theta)
        cos, sin = angles.cos(), angles.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    return apply


@collect(ALL, rotary(pairing="interleaved", max_positions=8192))
def complex_table() -> Apply:
    table = torch.polar(torch.ones(()), torch.outer(torch.arange(8192.0), inv_freq()))

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        turns = per_head(table[positions])
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2).type_as(x)

    return apply


@collect(
    ALL,
    rotary(pairing="interleaved", call="q, k, offset=", layout="(B, T, H, d)", max_positions=8192),
)
def complex_queries_and_keys() -> Apply:
    turns = torch.polar(torch.ones(()), torch.outer(torch.arange(8192.0), inv_freq()))

    def apply(q: Tensor, k: Tensor, offset: int = 0) -> tuple[Tensor, Tensor]:
        def turn(x: Tensor) -> Tensor:
            pairs = torch.view_as_complex(torch.unflatten(x.float(), -1, (-1, 2)))
            here = turns[offset : offset + x.shape[1]].view(1, x.shape[1], 1, -1)
            return torch.view_as_real(pairs * here).flatten(3).type_as(x)

        return turn(q), turn(k)

    return apply


class HalfTable(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, width: int = 8, length: int = 8192) -> None:
        super().__init__()
        angles = torch.arange(length)[:, None] * inv_freq(width).repeat(2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = per_head(self.cos[positions]), per_head(self.sin[positions])
        return (x * cos + rotate_half(x) * sin).to(x.dtype)


@collect(ALL, rotary(max_positions=8192))
def half_table_module() -> Apply:
    return HalfTable()


class Growing:
    def __init__(self) -> None:
        self.cos = self.sin = torch.empty(0, 8)

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        needed = int(positions.max()) + 1
        if needed > len(self.cos):
            angles = torch.outer(torch.arange(2 * needed).float(), inv_freq())
            angles = torch.cat((angles, angles), -1)
            self.cos, self.sin = angles.cos(), angles.sin()
        cos = per_head(F.embedding(positions, self.cos))
        sin = per_head(F.embedding(positions, self.sin))
        return (x * cos + rotate_half(x) * sin).to(x.dtype)


@collect(ALL, rotary())
def growing_table() -> Apply:
    return Growing()


@collect(ALL, rotary(layout="(B, T, H, d)"))
def time_before_heads() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = torch.einsum("...t,f->...tf", positions.float(), inv_freq(x.shape[-1]))
        cos, sin = angles.cos().unsqueeze(-2), angles.sin().unsqueeze(-2)
        a, b = x.tensor_split(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    return apply


@collect(ALL, rotary(layout="(T, B, H, d)"))
def time_first() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        at = positions[:, None] if positions.dim() == 1 else positions.T  # (T, 1) or (T, B)
        freqs = at[..., None, None] * inv_freq(x.shape[-1])
        emb = torch.cat((freqs, freqs), -1)
        return (x * emb.cos() + rotate_half(x) * emb.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(rotary_dim=4))
def partial_half() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        rot, rest = x[..., :4], x[..., 4:]
        angles = per_head((positions[..., None] * inv_freq(4)).repeat_interleave(1, -1))
        angles = torch.cat((angles, angles), -1)
        rot = (rot * angles.cos() + rotate_half(rot) * angles.sin()).to(x.dtype)
        return torch.cat((rot, rest), -1)

    return apply


@collect(ALL, rotary(rotary_dim=4, pairing="interleaved", layout="(B, T, H, d)"))
def partial_interleaved() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        sinusoid = torch.einsum("...i,j->...ij", positions.float(), inv_freq(4))
        sin = sinusoid.sin().repeat_interleave(2, -1).unsqueeze(-2)
        cos = sinusoid.cos().repeat_interleave(2, -1).unsqueeze(-2)
        out = x.clone()
        out[..., :4] = x[..., :4] * cos + rotate_every_two(x[..., :4]) * sin
        return out

    return apply


@collect(ALL, rotary(base=500000.0))
def large_base() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        exponents = torch.arange(x.shape[-1] // 2, dtype=torch.float64) / (x.shape[-1] // 2)
        angles = per_head(positions[..., None] * torch.exp(-exponents * math.log(500000.0)))
        cos, sin = angles.cos().repeat(*[1] * (angles.dim() - 1), 2), angles.sin()
        sin = torch.cat((sin, sin), -1)
        return (x * cos + rotate_half(x) * sin).to(x.dtype)

    return apply


@collect(ALL, rotary(call="q, k, positions"))
def queries_and_keys_together() -> Apply:
    def cos_sin(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        freqs = position_ids[..., None].float() @ inv_freq(x.shape[-1])[None]
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(x.dtype), emb.sin().to(x.dtype)

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = cos_sin(q, positions if positions.dim() == 2 else positions[None])
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    return apply


@collect(ALL, rotary(call="x, offset="))
def half_by_offset() -> Apply:
    def apply(x: Tensor, offset: int = 0) -> Tensor:
        at = torch.arange(offset, offset + x.shape[-2]).float()
        freqs = torch.outer(at, inv_freq(x.shape[-1]))
        emb = torch.cat([freqs, freqs], dim=-1)
        return (x * emb.cos() + rotate_half(x) * emb.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(call="x"))
def half_from_zero() -> Apply:
    def apply(x: Tensor) -> Tensor:
        freqs = torch.arange(x.shape[-2])[:, None] * inv_freq(x.shape[-1])
        a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
        cos, sin = freqs.cos(), freqs.sin()
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)

    return apply


class BySequenceAxis(nn.Module):
    def forward(self, x: Tensor, seq_dim: int = -2, offset: int = 0) -> Tensor:
        at = torch.arange(x.shape[seq_dim]) + offset
        freqs = (at[:, None] * inv_freq(x.shape[-1])).repeat_interleave(2, -1)
        if seq_dim in (-3, 1):
            freqs = freqs[:, None]
        return (x * freqs.cos() + rotate_every_two(x) * freqs.sin()).to(x.dtype)


@collect(ALL, rotary(call="x, seq_dim=, offset=", pairing="interleaved"))
def module_with_sequence_axis() -> Apply:
    return BySequenceAxis()


@collect(ALL, rotary(scaling={"kind": "linear", "factor": 4.0}))
def linear_scaled() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = (positions.float() / 4.0)[..., None] * inv_freq(x.shape[-1])
        angles = per_head(torch.cat((angles, angles), -1))
        return (x * angles.cos() + rotate_half(x) * angles.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(scaling={"kind": "ntk", "factor": 4.0}, pairing="interleaved"))
def ntk_scaled() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        freqs = positions[..., None] * inv_freq(d, 10000.0 * 4.0 ** (d / (d - 2)))
        angles = per_head(freqs.repeat_interleave(2, -1))
        return (x * angles.cos() + rotate_every_two(x) * angles.sin()).to(x.dtype)

    return apply


LLAMA3 = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_length": 1024,
}


@collect(ALL, rotary(base=500000.0, scaling=LLAMA3))
def llama3_scaled() -> Apply:
    def scaled() -> Tensor:
        freqs = inv_freq(8, 500000.0)
        wavelength = 2 * math.pi / freqs
        smooth = (1024 / wavelength - 1.0) / (4.0 - 1.0)
        between = (1 - smooth) * freqs / 8.0 + smooth * freqs
        freqs = torch.where(wavelength > 1024 / 1.0, freqs / 8.0, freqs)
        inside = (wavelength <= 1024 / 1.0) & (wavelength >= 1024 / 4.0)
        return torch.where(inside, between, freqs)

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * scaled()
        emb = per_head(torch.cat((freqs, freqs), -1))
        return (x * emb.cos() + rotate_half(x) * emb.sin()).to(x.dtype)

    return apply


YARN = {"kind": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_length": 1024}


@collect(ALL, rotary(scaling=YARN, factor=0.1 * math.log(4.0) + 1.0))
def yarn_scaled() -> Apply:
    def correction(turns: float) -> float:
        return 8 * math.log(1024 / (turns * 2 * math.pi)) / (2 * math.log(10000.0))

    low, high = max(math.floor(correction(32.0)), 0), min(math.ceil(correction(1.0)), 7)
    ramp = ((torch.arange(4).float() - low) / (high - low)).clamp(0, 1)
    freqs = inv_freq() / 4.0 * ramp + inv_freq() * (1 - ramp)
    attention_factor = 0.1 * math.log(4.0) + 1.0

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * freqs
        emb = per_head(torch.cat((angles, angles), -1))
        cos, sin = emb.cos() * attention_factor, emb.sin() * attention_factor
        return (x * cos + rotate_half(x) * sin).to(x.dtype)

    return apply


@collect(ALL, rotary(direction=-1, layout="(B, T, H, d)"))
def turned_the_other_way() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = (positions[..., None] * inv_freq(x.shape[-1])).unsqueeze(-2)
        cos, sin = angles.cos(), angles.sin()
        d = x.shape[-1] // 2
        first, second = x[..., :d], x[..., d:]
        out = torch.cat([first * cos + second * sin, second * cos - first * sin], -1)
        return out.to(x.dtype)

    return apply


@collect(ALL, rotary(position_shift=1))
def counted_from_one() -> Apply:
    right: Apply = half_recomputed()

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        turned: Tensor = right(x, positions + 1)
        return turned

    return apply


@collect(ALL, rotary(pairing="interleaved", output_order="half"))
def interleaved_in_halves_out() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        *lead, d = x.shape
        x = x.view(*lead, d // 2, 2).transpose(-1, -2).reshape(*lead, d)
        freqs = positions[..., None].float() * inv_freq(d)
        emb = per_head(torch.cat((freqs, freqs), -1))
        return (x * emb.cos() + rotate_half(x) * emb.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(pairing="interleaved"))
def rotation_matrices() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].double() * inv_freq(x.shape[-1]).double()
        matrix = torch.zeros(*positions.shape, x.shape[-1], x.shape[-1], dtype=torch.float64)
        for i in range(x.shape[-1] // 2):
            matrix[..., 2 * i, 2 * i] = matrix[..., 2 * i + 1, 2 * i + 1] = angles[..., i].cos()
            matrix[..., 2 * i, 2 * i + 1] = -angles[..., i].sin()
            matrix[..., 2 * i + 1, 2 * i] = angles[..., i].sin()
        if positions.dim() == 2:
            matrix = matrix[:, None]
        return (matrix @ x[..., None].double())[..., 0].to(x.dtype)

    return apply


@collect(ALL, rotary(layout="(B, T, H, d)", call="q, k, positions", max_positions=8192))
def packed_cos_and_sin() -> Apply:
    freqs = torch.einsum("i,j->ij", torch.arange(8192.0), inv_freq())
    cache = torch.cat((freqs.cos(), freqs.sin()), dim=-1)

    def apply(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        here = cache.index_select(0, positions.flatten()).view(*positions.shape, 1, -1)
        cos, sin = here.chunk(2, dim=-1)

        def turn(x: Tensor) -> Tensor:
            a, b = x.chunk(2, dim=-1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

        return turn(q), turn(k)

    return apply


# Added to the scores.


def paper_slopes(n_heads: int) -> Tensor:
    def power_of_two(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(n_heads).is_integer():
        return torch.tensor(power_of_two(n_heads))
    closest = 2 ** math.floor(math.log2(n_heads))
    more = power_of_two(2 * closest)[0::2][: n_heads - closest]
    return torch.tensor(power_of_two(closest) + more)


def offsets(n_queries: int, n_keys: int) -> Tensor:
    """Key minus query, the last query at the last key."""
    return torch.arange(n_keys) - torch.arange(n_keys - n_queries, n_keys)[:, None]


@collect(ALL, additive())
def alibi_8_heads() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        slopes = 2.0 ** -torch.arange(1, 9).float()
        return slopes[:, None, None] * offsets(n_queries, n_keys)

    return bias


@collect(ALL, additive(n_heads=12))
def alibi_12_heads() -> Apply:
    slopes = paper_slopes(12)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        queries = torch.arange(n_queries).view(1, -1, 1) + (n_keys - n_queries)
        keys = torch.arange(n_keys).view(1, 1, -1)
        return -(queries - keys) * slopes.view(-1, 1, 1)

    return bias


@collect(ALL, additive(n_heads=4, causal=False, symmetric=True))
def alibi_symmetric() -> Apply:
    slopes = paper_slopes(4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        distance = offsets(n_queries, n_keys).abs()
        return (-slopes.view(-1, 1, 1) * distance)[None]

    return bias


@collect(ALL, additive(row_constant=True))
def alibi_one_row() -> Apply:
    slopes = paper_slopes(8)

    def bias(n_queries: int, n_keys: int) -> Tensor:  # noqa: ARG001
        return slopes[:, None, None] * torch.arange(n_keys)[None, None, :]

    return bias


@collect(ALL, additive(row_constant=True))
def alibi_last_rows_of_a_table() -> Apply:
    at = torch.arange(1024)
    table = paper_slopes(8)[:, None, None] * (at[None, :] - at[:, None])

    def bias(n_queries: int, n_keys: int) -> Tensor:
        return table[:, -n_queries:, :n_keys]

    return bias


@collect(ALL, additive(masked_future=True, row_constant=True))
def alibi_and_mask() -> Apply:
    slopes = paper_slopes(8)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        future = torch.full((n_queries, n_keys), float("-inf"))
        future = future.triu(1 + n_keys - n_queries)
        return future + slopes[:, None, None] * torch.arange(1 - n_keys, 1)[None, None, :]

    return bias


def t5_bucket(relative: Tensor, bidirectional: bool, buckets: int, max_distance: int) -> Tensor:
    """Bucket of key minus query."""
    result = torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        result = result + (relative > 0).long() * buckets
        relative = relative.abs()
    else:
        relative = -torch.min(relative, torch.zeros_like(relative))
    exact = buckets // 2
    far = torch.log(relative.clamp(min=1).double() / exact) / math.log(max_distance / exact)
    large = (exact + (far * (buckets - exact)).long()).clamp(max=buckets - 1)
    return result + torch.where(relative < exact, relative, large)


@collect(
    ALL, additive(bias="t5", n_heads=4, causal=False, symmetric=False, buckets=8, max_distance=16)
)
def t5_both_ways() -> Apply:
    table = embedding(draw(8, 4))

    def bias(n_queries: int, n_keys: int) -> Tensor:
        context = torch.arange(n_keys)[-n_queries:, None]
        relative = torch.arange(n_keys)[None, :] - context
        values: Tensor = table(t5_bucket(relative, True, 8, 16))
        return values.permute(2, 0, 1).unsqueeze(0)

    return bias


@collect(ALL, additive(bias="t5", n_heads=4, buckets=8, max_distance=16))
def t5_causal() -> Apply:
    table = draw(8, 4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        return table[t5_bucket(offsets(n_queries, n_keys), False, 8, 16)].movedim(-1, 0)

    return bias


@collect(ALL, additive(bias="learned", n_heads=4, causal=False, max_distance=3))
def learned_distance() -> Apply:
    table = draw(7, 4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        index = offsets(n_queries, n_keys).clamp(-3, 3) + 3
        return table[index].permute(2, 0, 1)

    return bias


@collect(ALL, additive(bias="log", n_heads=4, causal=False, symmetric=True))
def logarithmic_distance() -> Apply:
    slopes = paper_slopes(4).view(-1, 1, 1)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        return -slopes * torch.log1p(offsets(n_queries, n_keys).abs().float())

    return bias


# Added to the inputs.


@collect(ALL, absolute())
def sinusoidal_interleaved() -> Apply:
    def table(positions: Tensor) -> Tensor:
        div = torch.exp(torch.arange(0, 16, 2).float() * (-math.log(10000.0) / 16))
        out = torch.zeros(len(positions), 16)
        out[:, 0::2] = torch.sin(positions[:, None] * div)
        out[:, 1::2] = torch.cos(positions[:, None] * div)
        return out

    return table


@collect(ALL, absolute(order="half"))
def sinusoidal_halves() -> Apply:
    def table(positions: Tensor) -> Tensor:
        angles = positions[:, None].double() * inv_freq(16).double()
        return torch.cat((angles.sin(), angles.cos()), -1).float()

    return table


class Sinusoidal(nn.Module):
    pe: Tensor

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(512)[:, None] * inv_freq(16)
        self.register_buffer("pe", torch.stack((angles.sin(), angles.cos()), -1).flatten(-2))

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        return x + self.pe[offset : offset + x.shape[1]].to(x.dtype)


@collect(ALL, absolute(call="x, offset=", max_positions=512))
def sinusoidal_module() -> Apply:
    return Sinusoidal()


@collect(ALL, absolute(call="x, positions", table="learned", max_positions=512))
def learned_absolute() -> Apply:
    table = embedding(draw(512, 16))

    def add(x: Tensor, positions: Tensor) -> Tensor:
        added: Tensor = x + table(positions).to(x.dtype)
        return added

    return add
