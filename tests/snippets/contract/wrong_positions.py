"""Wrong position schemes; `right_positions` says what the settings mean.

`settings` say what the author meant the code to be, so that right code under the same settings is
what each is held against. `situation` says where the difference is seen:

ordinary     positions 0 to 4                      offset         positions 7 to 11
far          positions 4000 to 4004                rows           rows at positions of their own
bfloat16     `far`, with bfloat16 inputs           second_call    offset 7 after a call at 0
after_long   `ordinary` after a call up to 2000    after_bfloat16 `far` after the same in bfloat16
after_calls  `ordinary` after two calls            beyond_table   past `max_positions`
single_after_calls   one token at position 3 after other calls
square       bias(6, 6)                            decode         bias(1, 6)
chunk        bias(3, 8)                            long           bias(1, 1000)
"""

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
from tests.snippets.contract.right_positions import (
    LLAMA3,
    embedding,
    inv_freq,
    offsets,
    paper_slopes,
    per_head,
    rotate_every_two,
    rotate_half,
    t5_bucket,
)

ALL: dict[str, Entry] = {}
SPEC = "specification"


def half(x: Tensor, angles: Tensor) -> Tensor:
    """Turn halves by angles (T, d / 2) or (B, T, d / 2)."""
    angles = per_head(torch.cat((angles, angles), -1))
    return (x * angles.cos() + rotate_half(x) * angles.sin()).to(x.dtype)


def pairs(x: Tensor, angles: Tensor) -> Tensor:
    """Turn neighbours by angles (T, d / 2) or (B, T, d / 2)."""
    angles = per_head(angles.repeat_interleave(2, -1))
    return (x * angles.cos() + rotate_every_two(x) * angles.sin()).to(x.dtype)


# Pairs of the two layouts mixed.


@collect(
    ALL,
    rotary(),
    mistake="pairs_mixed",
    also=("norm_kept", "relative_only"),
    source="https://github.com/raiyanyahya/how-to-train-your-gpt/issues/6",
)
def neighbour_angles_with_halves() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * inv_freq(x.shape[-1])
        angles = per_head(freqs.repeat_interleave(2, dim=-1))
        return (x * angles.cos() + rotate_half(x) * angles.sin()).to(x.dtype)

    return apply


@collect(
    ALL,
    rotary(pairing="interleaved"),
    mistake="pairs_mixed",
    also=("norm_kept", "relative_only"),
    source="https://github.com/huggingface/transformers/issues/40462",
)
def half_angles_with_neighbours() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * inv_freq(x.shape[-1])
        angles = per_head(torch.cat((freqs, freqs), dim=-1))
        return (x * angles.cos() + rotate_every_two(x) * angles.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(call="q, k, positions"), mistake="pairs_mixed", also=("relative_only",))
def queries_half_keys_interleaved() -> Apply:
    def apply(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * inv_freq(q.shape[-1])
        return half(q, angles), pairs(k, angles)

    return apply


@collect(
    ALL,
    rotary(pairing="interleaved"),
    mistake="pairs_mixed",
    also=("norm_kept", "relative_only"),
    source="https://github.com/Tongjilibo/bert4torch/issues/1",
)
def neighbours_taken_apart_and_joined_as_halves() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = per_head(
            (positions[..., None].float() * inv_freq(x.shape[-1])).repeat_interleave(2, dim=-1)
        )
        partner = torch.cat([-x[..., 1::2], x[..., ::2]], dim=-1)
        return (x * angles.cos() + partner * angles.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(max_positions=8192), mistake="pairs_mixed", also=("norm_kept",), listed=False)
def cosines_in_one_layout_sines_in_the_other() -> Apply:
    freqs = torch.outer(torch.arange(8192.0), inv_freq())
    cos_table = torch.cat((freqs, freqs), -1).cos()
    sin_table = freqs.repeat_interleave(2, -1).sin()

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = per_head(cos_table[positions]), per_head(sin_table[positions])
        return (x * cos + rotate_half(x) * sin).to(x.dtype)

    return apply


@collect(
    ALL,
    rotary(call="q, k, positions"),
    mistake="norm_kept",
    also=("pairs_mixed", "relative_only"),
    source="https://github.com/hpcaitech/ColossalAI/pull/6429",
    listed=False,
)
def halves_of_queries_and_keys_crossed() -> Apply:
    def apply(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = per_head(positions[..., None].float() * inv_freq(q.shape[-1]))
        cos, sin = angles.cos(), angles.sin()
        (q0, q1), (k0, k1) = q.chunk(2, -1), k.chunk(2, -1)
        out_q = torch.cat((q0 * cos - q1 * sin, k0 * sin + k1 * cos), -1)
        out_k = torch.cat((q0 * cos - q1 * sin, k0 * sin + k1 * cos), -1)
        return out_q.to(q.dtype), out_k.to(k.dtype)

    return apply


# Angles in low precision.


@collect(
    ALL,
    rotary(max_positions=8192),
    mistake="low_precision_angles",
    also=("relative_only",),
    situation="far",
    source="https://github.com/huggingface/transformers/issues/25681",
)
def table_in_bfloat16() -> Apply:
    at = torch.arange(8192, dtype=torch.bfloat16)
    angles = torch.outer(at, inv_freq().bfloat16())
    emb = torch.cat((angles, angles), -1)
    cos_table, sin_table = emb.cos(), emb.sin()

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = per_head(cos_table[positions]), per_head(sin_table[positions])
        return (x * cos + rotate_half(x) * sin).to(x.dtype)

    return apply


@collect(
    ALL,
    rotary(pairing="interleaved"),
    mistake="low_precision_angles",
    also=("relative_only",),
    situation="far",
)
def angles_rounded_to_float16() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = (positions[..., None].float() * inv_freq(x.shape[-1])).half().float()
        return pairs(x, angles)

    return apply


@collect(
    ALL,
    rotary(),
    mistake="low_precision_angles",
    also=("relative_only",),
    situation="bfloat16",
    source="https://github.com/huggingface/transformers/issues/29496",
)
def positions_in_the_dtype_of_the_input() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        at = positions.to(x.dtype)
        return half(x, at[..., None].float() * inv_freq(x.shape[-1]))

    return apply


@collect(
    ALL,
    rotary(),
    mistake="low_precision_angles",
    needs=SPEC,
    also=("frequencies",),
    situation="far",
    source="https://github.com/EleutherAI/gpt-neox/issues/1003",
)
def frequencies_rounded_with_the_weights() -> Apply:
    class Rotary(nn.Module):
        inv_freq: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("inv_freq", inv_freq())

        def forward(self, x: Tensor, positions: Tensor) -> Tensor:
            return half(x, positions[..., None].float() * self.inv_freq.float())

    return Rotary().to(torch.bfloat16)


# Partial width.


@collect(
    ALL,
    rotary(rotary_dim=4),
    mistake="partial_width",
    needs=SPEC,
    also=("frequencies",),
    source="https://github.com/pie-project/pie/issues/602",
)
def partial_with_frequencies_of_the_whole_head() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = inv_freq(x.shape[-1])[:2]
        turned = half(x[..., :4], positions[..., None].float() * freqs)
        return torch.cat((turned, x[..., 4:]), -1)

    return apply


@collect(ALL, rotary(rotary_dim=4), mistake="partial_width", needs=SPEC)
def partial_halved_twice() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        width = 4 // 2
        turned = half(x[..., :width], positions[..., None].float() * inv_freq(width))
        return torch.cat((turned, x[..., width:]), -1)

    return apply


@collect(
    ALL,
    rotary(rotary_dim=4),
    mistake="partial_width",
    also=("norm_kept", "relative_only", "pairs_mixed"),
)
def partial_partner_from_the_whole_head() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * inv_freq(4)
        angles = per_head(torch.cat((freqs, freqs), -1))
        turned = x[..., :4] * angles.cos() + rotate_half(x)[..., :4] * angles.sin()
        return torch.cat((turned.to(x.dtype), x[..., 4:]), -1)

    return apply


@collect(ALL, rotary(rotary_dim=4), mistake="partial_width", also=("norm_kept",))
def partial_without_the_rest() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        out[..., :4] = half(x[..., :4], positions[..., None].float() * inv_freq(4))
        return out

    return apply


@collect(ALL, rotary(rotary_dim=4), mistake="partial_width", needs=SPEC, listed=False)
def partial_on_the_last_features() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        turned = half(x[..., -4:], positions[..., None].float() * inv_freq(4))
        return torch.cat((x[..., :-4], turned), -1)

    return apply


@collect(ALL, rotary(rotary_dim=4), mistake="partial_width", needs=SPEC, also=("frequencies",))
def partial_asked_for_whole_head_turned() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, positions[..., None].float() * inv_freq(x.shape[-1]))

    return apply


# Offset ignored.


@collect(
    ALL,
    rotary(call="x, offset="),
    mistake="offset_ignored",
    situation="offset",
    source="https://github.com/pytorch/executorch/pull/2010",
)
def table_read_from_its_start() -> Apply:
    table = torch.outer(torch.arange(8192.0), inv_freq())

    def apply(x: Tensor, offset: int = 0) -> Tensor:
        total = offset + x.shape[-2]
        return half(x, table[:total][: x.shape[-2]])

    return apply


@collect(ALL, rotary(), mistake="offset_ignored", situation="offset")
def positions_counted_anew() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        at = torch.arange(positions.shape[-1])
        return half(x, at[:, None] * inv_freq(x.shape[-1]))

    return apply


@collect(
    ALL,
    rotary(),
    mistake="offset_ignored",
    also=("left_padding", "relative_only"),
    situation="rows",
)
def positions_of_the_first_row() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        at = positions[0] if positions.dim() == 2 else positions
        return half(x, at[:, None] * inv_freq(x.shape[-1]))

    return apply


@collect(
    ALL,
    rotary(call="x, offset=", pairing="interleaved"),
    mistake="offset_ignored",
    situation="offset",
)
def offset_added_twice() -> Apply:
    def angles(length: int, offset: int) -> Tensor:
        return (torch.arange(offset, offset + length) + offset)[:, None] * inv_freq()

    def apply(x: Tensor, offset: int = 0) -> Tensor:
        return pairs(x, angles(x.shape[-2], offset))

    return apply


@collect(ALL, rotary(call="x, offset="), mistake="offset_ignored", situation="offset")
def offset_one_short_while_decoding() -> Apply:
    def apply(x: Tensor, offset: int = 0) -> Tensor:
        start = offset - 1 if offset > 0 else 0
        at = torch.arange(start, start + x.shape[-2])
        return half(x, at[:, None] * inv_freq(x.shape[-1]))

    return apply


@collect(
    ALL,
    rotary(call="x, offset=", layout="(B, H, T, d)"),
    mistake="offset_ignored",
    also=("relative_only",),
    source="https://github.com/neuphonic/neucodec/issues/22",
    listed=False,
)
def heads_taken_for_time() -> Apply:
    def apply(x: Tensor, offset: int = 0) -> Tensor:
        at = torch.arange(x.shape[1]) + offset
        emb = torch.cat([at[:, None] * inv_freq(x.shape[-1])] * 2, -1)[None, :, None]
        return (x * emb.cos() + rotate_half(x) * emb.sin()).to(x.dtype)

    return apply


@collect(
    ALL,
    rotary(max_positions=64),
    mistake="relative_only",
    also=("offset_ignored",),
    situation="beyond_table",
    listed=False,
)
def positions_clamped_to_the_table() -> Apply:
    table = torch.outer(torch.arange(64.0), inv_freq())

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, table[positions.clamp(max=63)])

    return apply


@collect(
    ALL,
    rotary(max_positions=64),
    mistake="relative_only",
    also=("offset_ignored",),
    situation="beyond_table",
    listed=False,
)
def positions_start_again_after_the_table() -> Apply:
    table = torch.outer(torch.arange(64.0), inv_freq())

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, table[positions % 64])

    return apply


# Dependent on earlier calls.


class StaleTable:
    """Rebuilt only where the length changes."""

    def __init__(self) -> None:
        self.length, self.angles = -1, torch.empty(0)

    def __call__(self, x: Tensor, offset: int = 0) -> Tensor:
        if x.shape[-2] != self.length:
            self.length = x.shape[-2]
            at = torch.arange(offset, offset + self.length)
            self.angles = at[:, None] * inv_freq(x.shape[-1])
        return half(x, self.angles)


@collect(
    ALL,
    rotary(call="x, offset="),
    mistake="calls_remembered",
    also=("offset_ignored",),
    situation="second_call",
)
def table_kept_by_length() -> Apply:
    return StaleTable()


class Counting:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, x: Tensor, offset: int = 0) -> Tensor:
        start = self.seen + offset
        self.seen += x.shape[-2]
        at = torch.arange(start, start + x.shape[-2])
        return half(x, at[:, None] * inv_freq(x.shape[-1]))


@collect(ALL, rotary(call="x, offset="), mistake="calls_remembered", situation="after_calls")
def offset_grows_with_every_call() -> Apply:
    return Counting()


class FirstDtype:
    def __init__(self) -> None:
        self.table: Tensor | None = None

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.table is None or len(self.table) <= int(positions.max()):
            at = torch.arange(int(positions.max()) + 1)
            self.table = (at[:, None] * inv_freq(x.shape[-1])).to(x.dtype)
        return half(x, self.table[positions].float())


@collect(
    ALL,
    rotary(),
    mistake="calls_remembered",
    also=("low_precision_angles",),
    situation="after_bfloat16",
    listed=False,
)
def table_keeps_the_first_dtype() -> Apply:
    return FirstDtype()


class DynamicNtk:
    """The base grows with a long call and stays."""

    def __init__(self) -> None:
        self.freqs, self.longest = inv_freq(), 1024

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        length = int(positions.max()) + 1
        if length > self.longest:
            self.longest = length
            growth = 2.0 * length / 1024 - 1.0
            self.freqs = inv_freq(8, 10000.0 * growth ** (8 / 6))
        return half(x, positions[..., None].float() * self.freqs)


@collect(
    ALL,
    rotary(),
    mistake="calls_remembered",
    situation="after_long",
    source="https://github.com/huggingface/transformers/pull/27227",
    listed=False,
)
def base_never_scaled_back() -> Apply:
    return DynamicNtk()


class InPlaceScaling:
    def __init__(self) -> None:
        self.freqs = inv_freq()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * self.freqs
        self.freqs /= 4.0
        return half(x, angles / 4.0)


@collect(
    ALL,
    rotary(scaling={"kind": "linear", "factor": 4.0}),
    mistake="calls_remembered",
    situation="after_calls",
    listed=False,
)
def scaled_again_with_every_call() -> Apply:
    return InPlaceScaling()


class ShiftsTheCallersPositions:
    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        positions += 1
        return half(x, (positions - 1)[..., None].float() * inv_freq(x.shape[-1]))


@collect(
    ALL,
    rotary(),
    mistake="calls_remembered",
    also=("inputs_changed", "relative_only"),
    situation="after_calls",
    listed=False,
)
def positions_changed_in_place() -> Apply:
    return ShiftsTheCallersPositions()


# Frequencies.


@collect(ALL, rotary(base=500000.0), mistake="frequencies", needs=SPEC)
def base_left_at_its_default() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, positions[..., None].float() * inv_freq(x.shape[-1]))

    return apply


@collect(
    ALL,
    rotary(),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/rasbt/LLMs-from-scratch/issues/410",
)
def exponent_without_its_two() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        freqs = 1.0 / 10000.0 ** (torch.arange(0, d // 2) / d)
        return half(x, positions[..., None].float() * freqs)

    return apply


@collect(
    ALL,
    rotary(pairing="interleaved"),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/bkitano/llama-from-scratch/issues/8",
)
def exponent_one_short() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        theta = 10000.0 ** (-2.0 * (torch.arange(d // 2) - 1) / d)
        return pairs(x, positions[..., None].float() * theta)

    return apply


@collect(
    ALL,
    rotary(),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/stanford-cs336/assignment1-basics/issues/22",
    listed=False,
)
def exponent_of_odd_numbers() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        freqs = 10000.0 ** -((2 * torch.arange(1, d // 2 + 1) - 1) / d)
        return half(x, positions[..., None].float() * freqs)

    return apply


@collect(ALL, rotary(), mistake="frequencies", needs=SPEC, listed=False)
def exponent_by_integer_division() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        freqs = 1.0 / 10000.0 ** (torch.arange(0, d, 2) // d).float()
        return half(x, positions[..., None].float() * freqs)

    return apply


@collect(
    ALL,
    rotary(),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/313",
    listed=False,
)
def exponent_without_its_sign() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        d = x.shape[-1]
        freqs = 10000.0 ** (torch.arange(0, d, 2).double() / d)
        return half(x, positions[..., None] * freqs)

    return apply


@collect(ALL, rotary(), mistake="frequencies", needs=SPEC, listed=False)
def angles_taken_for_degrees() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, torch.deg2rad(positions[..., None].float() * inv_freq(x.shape[-1])))

    return apply


@collect(
    ALL,
    rotary(),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/ggml-org/llama.cpp/issues/1234",
    listed=False,
)
def whole_turns_for_radians() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = 2 * math.pi * positions[..., None].float() * inv_freq(x.shape[-1])
        return half(x, angles)

    return apply


@collect(
    ALL,
    rotary(scaling={"kind": "linear", "factor": 4.0}),
    mistake="frequencies",
    needs=SPEC,
    listed=False,
)
def scaling_upside_down() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, positions[..., None].float() * 4.0 * inv_freq(x.shape[-1]))

    return apply


@collect(
    ALL,
    rotary(),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/lablup/mlxcel/issues/1324",
    listed=False,
)
def positions_doubled_by_a_default() -> Apply:
    def apply(x: Tensor, positions: Tensor, scale: float = 2.0) -> Tensor:
        return half(x, positions[..., None].float() * scale * inv_freq(x.shape[-1]))

    return apply


@collect(ALL, rotary(), mistake="frequencies", needs=SPEC, also=("rotated_twice",))
def turned_twice() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions[..., None].float() * inv_freq(x.shape[-1])
        return half(half(x, angles), angles)

    return apply


@collect(
    ALL,
    rotary(scaling={"kind": "ntk", "factor": 4.0}),
    mistake="frequencies",
    needs=SPEC,
    listed=False,
)
def ntk_without_its_exponent() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, positions[..., None].float() * inv_freq(x.shape[-1], 10000.0 * 4.0))

    return apply


@collect(
    ALL,
    rotary(base=500000.0, scaling=LLAMA3),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/Lightning-AI/litgpt/pull/1745",
    listed=False,
)
def llama3_bands_exchanged() -> Apply:
    freqs = inv_freq(8, 500000.0)
    wavelength = 2 * math.pi / freqs
    freqs = torch.where(wavelength < 1024, freqs / 8.0, freqs)

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return half(x, positions[..., None].float() * freqs)

    return apply


@collect(ALL, rotary(), mistake="frequencies", needs=SPEC, listed=False)
def cosine_and_sine_exchanged() -> Apply:
    def cos_sin(positions: Tensor, d: int) -> tuple[Tensor, Tensor]:
        freqs = positions[..., None].float() * inv_freq(d)
        emb = per_head(torch.cat((freqs, freqs), -1))
        return emb.sin(), emb.cos()

    def apply(x: Tensor, positions: Tensor) -> Tensor:
        cos, sin = cos_sin(positions, x.shape[-1])
        return (x * cos + rotate_half(x) * sin).to(x.dtype)

    return apply


# Not a rotation, or not of the difference.


@collect(ALL, rotary(), mistake="norm_kept", also=("relative_only", "pairs_mixed"), listed=False)
def partner_without_its_sign() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * inv_freq(x.shape[-1])
        angles = per_head(torch.cat((freqs, freqs), -1))
        a, b = x.chunk(2, -1)
        return (x * angles.cos() + torch.cat((b, a), -1) * angles.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(), mistake="norm_kept", also=("relative_only", "pairs_mixed"), listed=False)
def no_partner() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        freqs = positions[..., None].float() * inv_freq(x.shape[-1])
        angles = per_head(torch.cat((freqs, freqs), -1))
        return (x * angles.cos() + x * angles.sin()).to(x.dtype)

    return apply


@collect(ALL, rotary(), mistake="norm_kept", also=("relative_only", "pairs_mixed"), listed=False)
def first_half_overwritten_too_soon() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        angles = per_head(positions[..., None].float() * inv_freq(x.shape[-1])).to(x.dtype)
        out, d = x.clone(), x.shape[-1] // 2
        out[..., :d] = out[..., :d] * angles.cos() - out[..., d:] * angles.sin()
        out[..., d:] = out[..., d:] * angles.cos() + out[..., :d] * angles.sin()
        return out

    return apply


@collect(ALL, rotary(), mistake="norm_kept", also=("relative_only",), listed=False)
def added_to_the_input() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        return x + half(x, positions[..., None].float() * inv_freq(x.shape[-1]))

    return apply


@collect(ALL, rotary(call="q, k, positions"), mistake="relative_only", listed=False)
def only_queries_turned() -> Apply:
    def apply(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return half(q, positions[..., None].float() * inv_freq(q.shape[-1])), k

    return apply


@collect(
    ALL,
    rotary(call="q, k, positions", pairing="interleaved"),
    mistake="relative_only",
    listed=False,
)
def keys_turned_backwards() -> Apply:
    def apply(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None].float() * inv_freq(q.shape[-1])
        turns = per_head(torch.polar(torch.ones_like(angles), angles))

        def turn(x: Tensor, by: Tensor) -> Tensor:
            z = torch.view_as_complex(torch.unflatten(x.float(), -1, (-1, 2)))
            return torch.view_as_real(z * by).flatten(-2).to(x.dtype)

        return turn(q, turns), turn(k, turns.conj())

    return apply


@collect(ALL, rotary(), mistake="norm_kept", also=("frequencies", "relative_only"), listed=False)
def turned_before_the_heads_were_split() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        n_heads = x.shape[1]
        whole = x.transpose(1, 2).flatten(2)  # (B, T, H * d)
        freqs = positions[..., None].float() * inv_freq(whole.shape[-1])
        emb = torch.cat((freqs, freqs), -1)
        whole = (whole * emb.cos() + rotate_half(whole) * emb.sin()).to(x.dtype)
        return torch.unflatten(whole, -1, (n_heads, -1)).transpose(1, 2)

    return apply


@collect(
    ALL,
    rotary(pairing="interleaved"),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/Lightricks/LTX-Video/issues/224",
    listed=False,
)
def frequencies_of_the_whole_width() -> Apply:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        n_heads = x.shape[1]
        whole = x.transpose(1, 2).flatten(2)
        emb = (positions[..., None].float() * inv_freq(whole.shape[-1])).repeat_interleave(2, -1)
        whole = (whole * emb.cos() + rotate_every_two(whole) * emb.sin()).to(x.dtype)
        return torch.unflatten(whole, -1, (n_heads, -1)).transpose(1, 2)

    return apply


# ALiBi: slopes, sign, and while decoding.


@collect(
    ALL,
    additive(n_heads=12),
    mistake="alibi_slopes",
    needs=SPEC,
    situation="square",
    source="https://github.com/ml-explore/mlx/issues/343",
)
def slopes_of_a_power_of_two_at_12_heads() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        slopes = 2.0 ** (-8.0 * torch.arange(1, 13) / 12)
        return slopes[:, None, None] * offsets(n_queries, n_keys)

    return bias


@collect(ALL, additive(n_heads=12), mistake="alibi_slopes", needs=SPEC, situation="square")
def slopes_between_taken_in_a_row() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        slopes = torch.cat((paper_slopes(8), paper_slopes(16)[:4]))
        return slopes[:, None, None] * offsets(n_queries, n_keys)

    return bias


@collect(ALL, additive(), mistake="alibi_slopes", needs=SPEC, situation="square")
def slopes_from_one() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        slopes = 2.0 ** (-8.0 / 8 * torch.arange(8))
        return slopes[:, None, None] * offsets(n_queries, n_keys)

    return bias


@collect(ALL, additive(n_heads=12), mistake="alibi_slopes", situation="square")
def slopes_all_alike() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        slopes = 2.0 ** (-(8 // 12) * torch.arange(1, 13))
        return slopes[:, None, None] * offsets(n_queries, n_keys)

    return bias


@collect(
    ALL,
    additive(),
    mistake="alibi_sign",
    situation="square",
    source="https://github.com/meta-pytorch/attention-gym/pull/86",
)
def far_keys_rewarded() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        return paper_slopes(8)[:, None, None] * -offsets(n_queries, n_keys)

    return bias


@collect(
    ALL,
    additive(n_heads=4, causal=False, symmetric=True),
    mistake="alibi_sign",
    situation="square",
)
def far_keys_rewarded_both_ways() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        return paper_slopes(4)[:, None, None] * offsets(n_queries, n_keys).abs()

    return bias


@collect(
    ALL, additive(), mistake="alibi_sign", also=("relative_only",), situation="square", listed=False
)
def bias_on_the_future_only() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        ahead = offsets(n_queries, n_keys).clamp(min=0)
        return -paper_slopes(8)[:, None, None] * ahead

    return bias


@collect(
    ALL,
    additive(n_heads=4, causal=False, symmetric=True),
    mistake="alibi_sign",
    situation="square",
    source="https://github.com/mosaicml/llm-foundry/issues/186",
    listed=False,
)
def one_row_where_both_ways_are_seen() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        row = paper_slopes(4)[:, None, None] * torch.arange(1 - n_keys, 1)
        return row.expand(4, n_queries, n_keys)

    return bias


@collect(
    ALL,
    additive(),
    mistake="alibi_while_decoding",
    situation="decode",
    source="https://github.com/keras-team/keras-hub/issues/2861",
)
def built_over_the_queries() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        row = paper_slopes(8)[:, None, None] * torch.arange(1 - n_queries, 1)
        row = F.pad(row, (n_keys - n_queries, 0)) if n_keys > n_queries else row
        return row.expand(8, n_queries, n_keys)

    return bias


@collect(
    ALL,
    additive(n_heads=4, causal=False, symmetric=True),
    mistake="alibi_while_decoding",
    situation="decode",
)
def queries_counted_from_the_first_key() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:
        distance = torch.arange(n_queries)[:, None] - torch.arange(n_keys)[None]
        return -paper_slopes(4)[:, None, None] * distance.abs()

    return bias


@collect(
    ALL,
    additive(n_heads=4, causal=False, symmetric=True),
    mistake="alibi_while_decoding",
    situation="chunk",
)
def first_rows_of_the_table() -> Apply:
    at = torch.arange(1024)
    table = -paper_slopes(4)[:, None, None] * (at[None] - at[:, None]).abs()

    def bias(n_queries: int, n_keys: int) -> Tensor:
        return table[:, :n_queries, :n_keys]

    return bias


@collect(
    ALL,
    additive(bias="t5", n_heads=4, buckets=8, max_distance=16),
    mistake="alibi_while_decoding",
    situation="decode",
    source="https://github.com/huggingface/candle/pull/899",
    listed=False,
)
def t5_without_the_cached_length() -> Apply:
    table = draw(8, 4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        relative = torch.arange(n_keys)[None] - torch.arange(n_queries)[:, None]
        return table[t5_bucket(relative, False, 8, 16)].permute(2, 0, 1)

    return bias


@collect(
    ALL,
    additive(bias="learned", n_heads=4, causal=False, max_distance=3),
    mistake="alibi_while_decoding",
    situation="decode",
    listed=False,
)
def learned_distance_one_off_while_decoding() -> Apply:
    table = draw(7, 4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        first = 0 if n_queries == n_keys else n_keys - n_queries + 1
        at = torch.arange(first, first + n_queries)
        return table[(torch.arange(n_keys) - at[:, None]).clamp(-3, 3) + 3].permute(2, 0, 1)

    return bias


@collect(
    ALL,
    additive(bias="t5", n_heads=4, buckets=8, max_distance=16),
    mistake="alibi_sign",
    also=("relative_only",),
    situation="square",
    listed=False,
)
def t5_query_minus_key() -> Apply:
    table = draw(8, 4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        relative = -offsets(n_queries, n_keys)
        return table[t5_bucket(relative, False, 8, 16)].permute(2, 0, 1)

    return bias


@collect(
    ALL,
    additive(row_constant=True),
    mistake="low_precision_angles",
    also=("relative_only",),
    situation="long",
    listed=False,
)
def row_of_key_positions_in_bfloat16() -> Apply:
    def bias(n_queries: int, n_keys: int) -> Tensor:  # noqa: ARG001
        slopes = paper_slopes(8).bfloat16()[:, None, None]
        return (slopes * torch.arange(n_keys, dtype=torch.bfloat16)).float()

    return bias


@collect(
    ALL,
    additive(bias="learned", n_heads=4, causal=False, max_distance=5),
    mistake="relative_only",
    situation="square",
    source="https://github.com/ZhengkunTian/OpenTransformer/issues/25",
    listed=False,
)
def shift_that_leaks_the_next_row() -> Apply:
    table = draw(11, 4)

    def bias(n_queries: int, n_keys: int) -> Tensor:
        # One row of distances a query, then the shift by padding that was made for causal use.
        back = torch.arange(1 - n_keys, 1).clamp(-5, 0) + 5
        rows = table[back].T[:, None].expand(4, n_queries, n_keys)
        padded = F.pad(rows, (1, 0)).reshape(4, n_keys + 1, n_queries)
        shifted = padded[:, 1:].reshape(4, n_queries, n_keys)
        return shifted if n_queries == n_keys else rows

    return bias


# Tables added to the inputs.


@collect(
    ALL,
    absolute(call="x, offset=", max_positions=512),
    mistake="offset_ignored",
    situation="offset",
)
def table_added_from_its_start() -> Apply:
    table = torch.arange(512)[:, None] * inv_freq(16)
    table = torch.stack((table.sin(), table.cos()), -1).flatten(-2)

    def add(x: Tensor, offset: int = 0) -> Tensor:  # noqa: ARG001
        return x + table[: x.shape[1]]

    return add


@collect(
    ALL,
    absolute(call="x, offset=", max_positions=512),
    mistake="offset_ignored",
    also=("batch_time_exchanged",),
    source="https://github.com/KasperGroesLudvigsen/influenza_transformer/issues/9",
    listed=False,
)
def table_added_along_the_batch() -> Apply:
    table = torch.arange(512)[:, None] * inv_freq(16)
    table = torch.stack((table.sin(), table.cos()), -1).flatten(-2)[:, None]  # (T, 1, C)

    def add(x: Tensor, offset: int = 0) -> Tensor:
        return x + table[offset : offset + x.size(0)]

    return add


@collect(
    ALL,
    absolute(),
    mistake="frequencies",
    needs=SPEC,
    source="https://github.com/Kyubyong/transformer/issues/38",
    listed=False,
)
def exponent_of_the_feature_not_the_pair() -> Apply:
    def table(positions: Tensor) -> Tensor:
        angles = positions[:, None].float() / 10000.0 ** (2.0 * torch.arange(16) / 16)
        out = torch.empty_like(angles)
        out[:, 0::2], out[:, 1::2] = angles[:, 0::2].sin(), angles[:, 1::2].cos()
        return out

    return table


@collect(ALL, absolute(), mistake="low_precision_angles", situation="far")
def sinusoids_of_float16_positions() -> Apply:
    def table(positions: Tensor) -> Tensor:
        angles = positions[:, None].half() * inv_freq(16).half()
        return torch.stack((angles.float().sin(), angles.float().cos()), -1).flatten(-2)

    return table


class LearnedWithCounter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = embedding(draw(512, 16))
        self.next = 0

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if x.shape[1] == 1:
            positions = torch.full_like(positions, self.next)
        self.next = int(positions.max()) + 1
        added: Tensor = x + self.table(positions)
        return added


@collect(
    ALL,
    absolute(call="x, positions", table="learned", max_positions=512),
    mistake="calls_remembered",
    also=("offset_ignored",),
    situation="single_after_calls",
    listed=False,
)
def single_tokens_at_a_counter() -> Apply:
    return LearnedWithCounter()
