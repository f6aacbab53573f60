"""Attention functions with one fault each, written as people write them."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.snippets.contract.entry import FUNCTION, Registry

WRONG = Registry(FUNCTION)
ALL = WRONG.entries

INF = float("inf")
Mask = Tensor | None


def scaled(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


def hidden(scores: Tensor, mask: Mask) -> Tensor:
    return scores if mask is None else scores.masked_fill(~mask, -INF)


# The mask is lost, turned round, late or too weak.


@WRONG.function("mask_ignored", mask="ones")
def fill_thrown_away(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores.masked_fill(mask == 0, -1e9)  # no underscore, no assignment
    return scores.softmax(-1) @ v


@WRONG.function("mask_ignored")
def mask_never_used(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:  # noqa: ARG001
    return F.scaled_dot_product_attention(q, k, v)


@WRONG.function("mask_ignored", mask="ones")
def masked_scores_unused(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        masked = scores.masked_fill(mask == 0, -1e9)
        assert masked.shape == scores.shape
    return F.softmax(scores, dim=-1) @ v


@WRONG.function("mask_ignored")
def mask_only_with_one_query(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None and q.size(-2) == 1:  # meant for decoding, forgets the prefill
        scores = hidden(scores, mask)
    return scores.softmax(-1) @ v


@WRONG.function("mask_polarity")
def hides_what_may_attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return scores.softmax(-1) @ v


@WRONG.function("mask_polarity", mask="hide")
def hide_mask_to_sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@WRONG.function("mask_polarity", mask="ones")
def one_is_hidden(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores + mask * -1e9
    return scores.softmax(-1) @ v


@WRONG.function("mask_after_softmax")
def weights_zeroed(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    weights = scaled(q, k).softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v


@WRONG.function("mask_after_softmax", mask="ones")
def weights_times_mask(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    attn = F.softmax(scaled(q, k), dim=-1)
    if mask is not None:
        attn = attn * mask
    return attn @ v


@WRONG.function("mask_multiplied", mask="ones")
def scores_times_mask(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores * mask
    return scores.softmax(-1) @ v


@WRONG.function("mask_multiplied")
def fill_with_zero(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, 0.0)
    return scores.softmax(-1) @ v


@WRONG.function("mask_multiplied", mask="ones")
def keys_times_mask(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    if mask is not None:
        seen = mask.expand(*q.shape[:-1], k.shape[-2])
        scores = torch.einsum("bhqd,bhqkd->bhqk", q, k.unsqueeze(2) * seen.unsqueeze(-1))
        return (scores / math.sqrt(q.shape[-1])).softmax(-1) @ v
    return scaled(q, k).softmax(-1) @ v


@WRONG.function("mask_ignored", mask="ones")
def ones_added(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    bias = None if mask is None else mask.to(q.dtype)  # a float mask is added, not applied
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@WRONG.function("mask_floor", mask="ones")
def fill_1e_minus_9(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, 1e-9)
    return scores.softmax(-1) @ v


@WRONG.function("mask_floor", mask="ones")
def fill_minus_1e_minus_9(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e-9)
    return scores.softmax(-1) @ v


@WRONG.function("mask_floor", mask="ones", situation="low logits")
def fill_minus_100(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -100.0)
    return scores.softmax(-1) @ v


@WRONG.function("mask_floor", mask="ones", situation="giant hidden logit")
def minus_1e4_added(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores + (1.0 - mask) * -10000.0
    return scores.softmax(-1) @ v


@WRONG.function("mask_floor", situation="low logits")
def fill_smallest_positive(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).tiny)
    return scores.softmax(-1) @ v


@WRONG.function("mask_floor", situation="half low logits", half=True)
def floor_of_minus_1e4_in_half(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = (q / math.sqrt(q.size(-1))) @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e4 if q.dtype == torch.float16 else -INF)
    return scores.softmax(-1) @ v


@WRONG.function("mask_floor", mask="ones", situation="low logits")
def floor_before_the_scale(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    energy = q @ k.transpose(-2, -1)
    if mask is not None:
        energy = energy.masked_fill(mask == 0, -20.0)
    return torch.softmax(energy / math.sqrt(q.size(-1)), dim=-1) @ v


@WRONG.function("mask_on_query_axis", mask="ones", mask_shape="(B, Tk)", situation="square")
def padding_on_query_axis(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, :, None] == 0, -1e9)
    return scores.softmax(-1) @ v


@WRONG.function("mask_on_query_axis", mask="ones", mask_shape="(B, Tk)", situation="square")
def repeated_for_heads_then_unsqueezed(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None
) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        mask = mask.unsqueeze(1).repeat(1, q.size(1), 1).unsqueeze(-1)
        scores = scores.masked_fill(mask == 0, -1e9)
    return scores.softmax(-1) @ v


@WRONG.function("mask_on_query_axis", mask_shape="(B, Tq, Tk)", situation="square")
def mask_transposed(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), None if mask is None else mask.mT.unsqueeze(1)).softmax(-1) @ v


@WRONG.function("mask_broadcast", mask_shape="(B, Tq, Tk)", situation="B = H")
def sample_mask_lands_on_heads(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("mask_broadcast", mask_shape="(B, Tk)", situation="B = T")
def padding_lands_on_queries(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("mask_broadcast", mask_shape="(B, Tk)", situation="B = H")
def padding_lands_on_heads(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), None if mask is None else mask.unsqueeze(1)).softmax(-1) @ v


@WRONG.function("mask_broadcast", mask_shape="(B, Tq, Tk)")
def mask_tiled_over_heads(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h = q.shape[:2]
    scores = scaled(q, k).flatten(0, 1)
    if mask is not None:
        scores = scores.masked_fill(~mask.repeat(h, 1, 1), -INF)
    return (scores.softmax(-1) @ v.flatten(0, 1)).view(b, h, *q.shape[2:])


@WRONG.function("mask_broadcast", mask_shape="(B, Tq, Tk)")
def mask_of_first_sample(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), None if mask is None else mask[:1, None]).softmax(-1) @ v


@WRONG.function("masks_summed", causal="top-left", situation="square")
def causal_plus_padding(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    t = q.size(-2)
    allowed = torch.ones(t, k.size(-2)).tril()
    if mask is not None:
        allowed = allowed + mask.float()  # should be the product
    return scaled(q, k).masked_fill(allowed == 0, -INF).softmax(-1) @ v


@WRONG.function("masks_summed", causal="top-left", empty_rows="zeros", situation="first key hidden")
def floors_added(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    low = torch.finfo(q.dtype).min
    shape = (q.size(-2), k.size(-2))
    bias = torch.full(shape, low, dtype=q.dtype).triu(1)
    if mask is not None:
        bias = bias + torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, low)
    return ((q / math.sqrt(q.size(-1))) @ k.mT + bias).softmax(-1) @ v


@WRONG.function("masks_summed", causal="top-left", situation="square")
def causal_or_padding(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    allowed = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    if mask is not None:
        allowed = allowed | mask
    return hidden(scaled(q, k), allowed).softmax(-1) @ v


# Rows without keys, and NaN.


@WRONG.function("empty_rows", empty_rows="zeros", situation="empty row")
def empty_row_gives_nan(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("empty_rows", empty_rows="zeros", situation="empty row")
def empty_row_gives_mean(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


@WRONG.function("empty_rows", empty_rows="zeros", situation="empty row")
def empty_row_spoils_its_head(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    powers = (scores - scores.amax((-2, -1), keepdim=True)).exp()
    weights = powers / powers.sum(-1, keepdim=True)
    if weights.isnan().any():
        weights = torch.zeros_like(weights)
    return weights @ v


backward: dict[str, Any] = {
    "empty_rows": "zeros",
    "empty_gradients": True,
    "situation": "empty row gradient",
}


@WRONG.function("empty_rows_backward", mask="additive", **backward)
def nan_to_num_of_softmax(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1).nan_to_num(0.0) @ v


@WRONG.function("empty_rows_backward", mask="additive", **backward)
def where_after_softmax(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is None:
        return scores.softmax(-1) @ v
    some = (mask > -INF).any(-1, keepdim=True)
    return torch.where(some, (scores + mask).softmax(-1), 0.0) @ v


@WRONG.function("empty_rows_backward", **backward)
def output_replaced_after_product(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    output = hidden(scaled(q, k), mask).softmax(-1) @ v
    if mask is not None:
        output = output.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return output


@WRONG.function("empty_rows_backward", **backward)
def output_without_nan(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return (hidden(scaled(q, k), mask).softmax(-1) @ v).nan_to_num(0.0)


@WRONG.function("nan_spreads", situation="NaN hidden", empty_rows="")
def shift_by_largest_of_all(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    scores = hidden(scores - scores.max(), mask)
    return scores.softmax(-1) @ v.nan_to_num(0.0)


@WRONG.function("nan_spreads", mask="ones", situation="NaN hidden", empty_rows="")
def floor_added_to_nan(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores + (1.0 - mask) * torch.finfo(scores.dtype).min
    return scores.softmax(-1) @ v.nan_to_num(0.0)


@WRONG.function("nan_spreads", situation="NaN hidden", empty_rows="")
def zero_times_nan(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k.nan_to_num(0.0)), mask).softmax(-1) @ v


# Causality.


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def one_key_of_the_future(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    future = torch.triu(torch.ones(q.size(-2), k.size(-2)), diagonal=2).bool()
    return scaled(q, k).masked_fill(future, -INF).softmax(-1) @ v


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def triangle_upside_down(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    past = torch.tril(torch.ones(q.size(-2), k.size(-2)), diagonal=-1).bool()
    return scaled(q, k).masked_fill(past, -INF).softmax(-1) @ v


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def zeros_of_tril_kept(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled(q, k).tril().softmax(-1) @ v


@WRONG.function("causal_leak", causal_argument="is_causal", situation="causal flag")
def flag_dropped_without_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    scores = scaled(q, k)
    if is_causal and mask is not None:
        mask = mask & torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return hidden(scores, mask).softmax(-1) @ v


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def causal_per_chunk_of_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    rows = []
    for start in range(0, q.size(-2), 2):
        scores = scaled(q[..., start : start + 2, :], k)
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(start + 1)  # start is right
        rows.append(hidden(scores, seen).softmax(-1) @ v)
    return torch.cat(rows, dim=-2)


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def causal_by_block(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    i, j = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))
    return hidden(scaled(q, k), i // 2 >= j // 2).softmax(-1) @ v


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def shift_and_normaliser_see_the_future(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = scaled(q, k).softmax(-1).tril()
    return weights @ v


@WRONG.function("causal_leak", causal="top-left", mask="", situation="square")
def diagonal_hidden_too(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    future = torch.triu(torch.ones(q.size(-2), k.size(-2)), diagonal=0).bool()
    return scaled(q, k).masked_fill(future, -1e9).softmax(-1) @ v


@WRONG.function(
    "causal_alignment",
    causal_argument="is_causal",
    alignment="bottom-right",
    situation="causal flag, Tq < Tk",
)
def top_left_while_decoding(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    if is_causal:
        mask = mask & torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(q, k, v, mask)


@WRONG.function(
    "causal_alignment",
    causal_argument="is_causal",
    alignment="bottom-right",
    situation="causal flag, Tq < Tk",
)
def offset_one_short(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    tq, tk = q.size(-2), k.size(-2)
    seen = torch.ones(tq, tk, dtype=torch.bool)
    if is_causal:
        seen = seen.tril(max(tk - tq - 1, 0))
    return hidden(scaled(q, k), seen if mask is None else seen & mask).softmax(-1) @ v


@WRONG.function("causal_alignment", causal_argument="is_causal", situation="causal flag, Tq < Tk")
def bottom_right_for_top_left(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    tq, tk = q.size(-2), k.size(-2)
    seen = torch.ones(tq, tk, dtype=torch.bool)
    if is_causal:
        seen = seen.tril(tk - tq)
    return hidden(scaled(q, k), seen if mask is None else seen & mask).softmax(-1) @ v


@WRONG.function("causal_and_mask", causal_argument="is_causal", situation="causal flag and mask")
def mask_replaces_causal(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    if mask is not None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


@WRONG.function("causal_and_mask", causal_argument="is_causal", situation="causal flag and mask")
def causal_replaces_mask(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    if is_causal:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# The scale, biases and range.


@WRONG.function("scale")
def scale_missing(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(q @ k.mT, mask).softmax(-1) @ v


@WRONG.function("scale")
def scale_twice(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    q = q * q.size(-1) ** -0.5
    return F.scaled_dot_product_attention(q, k, v, mask)


@WRONG.function("scale")
def scale_inverted(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scale = q.size(-1) ** -0.5
    return hidden(q @ k.mT / scale, mask).softmax(-1) @ v


@WRONG.function("scale")
def scale_by_model_width(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    d_model = q.size(1) * q.size(-1)
    return hidden(q @ k.mT / d_model**0.5, mask).softmax(-1) @ v


@WRONG.function("scale")
def scale_without_root(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(q @ k.mT / q.size(-1), mask).softmax(-1) @ v


@WRONG.function("scale")
def scale_one_half_by_precedence(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(q @ k.mT / q.size(-1) ** 1 / 2, mask).softmax(-1) @ v


@WRONG.function("scale")
def scale_by_number_of_keys(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(q @ k.mT / math.sqrt(k.size(-2)), mask).softmax(-1) @ v


@WRONG.function("scale")
def scale_after_softmax(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(q @ k.mT, mask).softmax(-1) / math.sqrt(q.size(-1)) @ v


@WRONG.function("scale", mask="ones")
def mask_brings_back_unscaled(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = torch.matmul(q, k.transpose(-2, -1))
    logits = scores / math.sqrt(q.size(-1))
    if mask is not None:
        logits = scores.masked_fill(mask == 0, -1e9)
    return logits.softmax(-1) @ v


@WRONG.function("bias_scaled", mask="additive", situation="bias")
def bias_under_the_scale(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT
    if mask is not None:
        scores = scores + mask
    return (scores / math.sqrt(q.size(-1))).softmax(-1) @ v


@WRONG.function("bias_scaled", mask="additive", situation="bias")
def bias_without_log2e(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT * (q.size(-1) ** -0.5 * 1.44269504)
    if mask is not None:
        scores = scores + mask
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return powers @ v / powers.sum(-1, keepdim=True)


@WRONG.function("scale", mask="additive")
def exp2_without_log2e(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores + mask
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return powers @ v / powers.sum(-1, keepdim=True)


@WRONG.function("half_overflow", situation="half large", half=True)
def product_overflows_before_scale(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(q @ k.mT * q.size(-1) ** -0.5, mask).softmax(-1) @ v


@WRONG.function("half_overflow", situation="half large", half=True)
def float_after_the_product(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = torch.matmul(q, k.mT).float() / math.sqrt(q.size(-1))
    return hidden(scores, mask).softmax(-1).to(v.dtype) @ v


@WRONG.function("overflow", situation="large logits")
def exp_without_shift(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    powers = hidden(scaled(q, k), mask).exp()
    return powers @ v / powers.sum(-1, keepdim=True)


@WRONG.function("overflow", situation="very low logits")
def powers_with_epsilon(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    powers = hidden(scaled(q, k), mask).clamp(max=50.0).exp()
    return powers @ v / (powers.sum(-1, keepdim=True) + 1e-6)


@WRONG.function("overflow", situation="uneven rows")
def shift_by_largest_of_head(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    powers = (scores - scores.amax((-2, -1), keepdim=True)).exp()
    return powers @ v / (powers.sum(-1, keepdim=True) + torch.finfo(q.dtype).tiny)


@WRONG.function("overflow", situation="large logits")
def logits_clamped(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k).clamp(-10, 10), mask).softmax(-1) @ v


# Axes.


@WRONG.function("softmax_axis")
def softmax_over_queries(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(-2) @ v


@WRONG.function("softmax_axis")
def softmax_over_heads(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return F.softmax(scores, dim=1) @ v


@WRONG.function("softmax_axis", layout="(B, T, d)")
def softmax_over_batch(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return scores.softmax(0) @ v


@WRONG.function("softmax_axis")
def softmax_over_queries_and_keys(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    return scores.flatten(-2).softmax(-1).view(scores.shape) @ v


@WRONG.function("batch_time_exchanged", layout="(B, T, d)", mask="", situation="square")
def attends_over_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("qbd,kbd->bqk", q, k) / math.sqrt(q.size(-1))  # meant for (T, B, d)
    return torch.einsum("bqk,kbd->qbd", scores.softmax(-1), v)


@WRONG.function("batch_leak", layout="(B, T, H, d)", mask="", situation="square")
def heads_attend_over_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled(q, k).softmax(-1) @ v  # (B, T, H, H): no transpose


@WRONG.function("batch_leak")
def scores_of_whole_batch_normalised(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT
    scores = scores / scores.std()  # instead of sqrt(d)
    return hidden(scores, mask).softmax(-1) @ v


@WRONG.function("batch_leak")
def rounded_by_largest_of_batch(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    step = k.abs().max() / 7  # four bits, one step for the whole batch
    return hidden(scaled(q, (k / step).round() * step), mask).softmax(-1) @ v


@WRONG.function("batch_leak")
def output_reshaped_over_batch(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h = q.shape[:2]
    output = (hidden(scaled(q, k), mask).softmax(-1) @ v).flatten(0, 1)
    return output.view(h, b, *output.shape[1:]).transpose(0, 1)  # (B·H) was B-major


@WRONG.function("key_order")
def keys_and_values_out_of_step(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), mask).softmax(-1) @ v.roll(1, dims=-2)


@WRONG.function("key_order")
def last_short_block_dropped(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    n_blocks = k.size(-2) // 4  # floor
    scores = hidden(scaled(q, k), mask)[..., : max(n_blocks, 1) * 4]
    scores = scores.masked_fill((scores == -INF).all(-1, keepdim=True), 0.0)
    return scores.softmax(-1) @ v[..., : scores.shape[-1], :]


@WRONG.function("softmax_axis")
def short_block_padded_with_zero_keys(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    short = -k.size(-2) % 4
    scores = F.pad(hidden(scaled(q, k), mask), (0, short))  # logit 0 is not hidden
    return scores.softmax(-1) @ F.pad(v, (0, 0, 0, short))


@WRONG.function("softmax_axis")
def sigmoid_for_softmax(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), mask).sigmoid() @ v


@WRONG.function("value_mixed")
def key_in_place_of_value(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:  # noqa: ARG001
    return hidden(scaled(q, k), mask).softmax(-1) @ k


@WRONG.function("softmax_axis")
def added_zero_key(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers @ v / (1 + powers.sum(-1, keepdim=True))  # softmax with one more, unshifted


@WRONG.function("value_mixed")
def residual_inside(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k), mask).softmax(-1) @ v + q


@WRONG.function("value_mixed")
def output_normalised(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return F.layer_norm(hidden(scaled(q, k), mask).softmax(-1) @ v, v.shape[-1:])


@WRONG.function("value_mixed")
def features_attended(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    weights = hidden(scaled(q, k), mask).softmax(-1)
    return (weights @ v).softmax(-1)


@WRONG.function("reference", situation="square")
def query_and_key_exchanged(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    if q.shape[-2] == k.shape[-2]:
        q, k = k, q
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("reference", needs="specification")
def cosine_for_product(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * math.sqrt(q.size(-1))
    return hidden(scores, mask).softmax(-1) @ v


@WRONG.function("reference", needs="specification")
def relu_on_scores(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(scaled(q, k).relu(), mask).softmax(-1) @ v


@WRONG.function("reference", needs="specification")
def softmax_twice(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    weights = hidden(scaled(q, k), mask).softmax(-1)
    return hidden(weights, mask).softmax(-1) @ v


@WRONG.function("grouped_heads", groups=2)
def grouped_tiled(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    n_rep = q.size(1) // k.size(1)
    return hidden(scaled(q, k.repeat(1, n_rep, 1, 1)), mask).softmax(-1) @ v.repeat(1, n_rep, 1, 1)


@WRONG.function("grouped_heads", groups=2)
def grouped_tiled_by_expand(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    n_rep = q.size(1) // k.size(1)
    k, v = (x[:, None].expand(-1, n_rep, -1, -1, -1).flatten(1, 2) for x in (k, v))
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("grouped_heads", groups=2)
def grouped_queries_split_wrong_way(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h, tq, d = q.shape
    n_kv = k.size(1)
    q = q.view(b, h // n_kv, n_kv, tq, d)  # (B, G, Hkv, T, d): should be (B, Hkv, G, T, d)
    scores = torch.einsum("bgnqd,bnkd->bgnqk", q, k) / math.sqrt(d)
    if mask is not None:
        scores = hidden(scores, mask.expand(b, h, tq, k.size(2)).reshape(scores.shape))
    return torch.einsum("bgnqk,bnkd->bgnqd", scores.softmax(-1), v).reshape(b, h, tq, -1)


@WRONG.function("grouped_heads", groups=2)
def time_repeated_for_heads(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h = q.shape[:2]
    n_rep = h // k.size(1)
    # repeats along time, and the view then cuts heads out of it
    k, v = (x.repeat_interleave(n_rep, dim=2).reshape(b, h, x.size(2), -1) for x in (k, v))
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("grouped_heads", groups=2)
def values_tiled_keys_repeated(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    n_rep = q.size(1) // k.size(1)
    weights = hidden(scaled(q, k.repeat_interleave(n_rep, 1)), mask).softmax(-1)
    return weights @ v.repeat(1, n_rep, 1, 1)


# Dropout.

dropping: dict[str, Any] = {"dropout_argument": "dropout_p", "training_argument": "training"}


@WRONG.function("dropout_in_evaluation", situation="evaluation", **dropping)
def drops_in_evaluation(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout_p: float = 0.0,
    training: bool = False,  # noqa: ARG001
) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p)


@WRONG.function("dropout_in_evaluation", situation="evaluation", **dropping)
def functional_dropout_default(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout_p: float = 0.0,
    training: bool = False,  # noqa: ARG001
) -> Tensor:
    return F.dropout(hidden(scaled(q, k), mask).softmax(-1), dropout_p) @ v


@WRONG.function("dropout_rescaled", situation="training mean", **dropping)
def dropped_weights_not_rescaled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout_p: float = 0.0,
    training: bool = False,
) -> Tensor:
    weights = hidden(scaled(q, k), mask).softmax(-1)
    if training:
        weights = weights * (torch.rand_like(weights) >= dropout_p)
    return weights @ v


@WRONG.function("dropout_rescaled", situation="training mean", **dropping)
def rescaled_by_p(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout_p: float = 0.0,
    training: bool = False,
) -> Tensor:
    weights = hidden(scaled(q, k), mask).softmax(-1)
    if training and dropout_p > 0:
        weights = weights * (torch.rand_like(weights) >= dropout_p) / dropout_p
    return weights @ v


@WRONG.function("dropout_rescaled", situation="training spread", **dropping)
def dropout_on_logits(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout_p: float = 0.0,
    training: bool = False,
) -> Tensor:
    scores = F.dropout(scaled(q, k), dropout_p, training)
    return hidden(scores, mask).softmax(-1) @ v


@WRONG.function("dropout_rescaled", situation="training spread", **dropping)
def dropout_before_the_sum(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout_p: float = 0.0,
    training: bool = False,
) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    powers = F.dropout(powers, dropout_p, training)
    return powers @ v / powers.sum(-1, keepdim=True).clamp_min(1e-9)


# Soft caps, sinks, windows, documents.


@WRONG.function("soft_cap_after_mask", soft_cap=2.0)
def cap_after_mask(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    return (2.0 * torch.tanh(scores / 2.0)).softmax(-1) @ v


@WRONG.function("soft_cap_after_mask", mask="additive", soft_cap=2.0)
def cap_after_additive_mask(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k)
    if mask is not None:
        scores = scores + mask
    return (2.0 * torch.tanh(scores / 2.0)).softmax(-1) @ v


@WRONG.function("reference", needs="specification", soft_cap=2.0)
def cap_without_division(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return hidden(2.0 * torch.tanh(scaled(q, k)), mask).softmax(-1) @ v


@WRONG.function("reference", needs="specification", soft_cap=2.0)
def cap_before_scale(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = 2.0 * torch.tanh(q @ k.mT / 2.0) / math.sqrt(q.size(-1))
    return hidden(scores, mask).softmax(-1) @ v


@WRONG.function("sink_counted_twice", sink=0.5, empty_rows="zeros")
def sink_in_every_block(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    outputs, sums = [], []
    for part in range(0, k.size(-2), 3):
        block = scores[..., part : part + 3]
        block = F.pad(block, (0, 1), value=0.5)  # once for all blocks would be right
        sums.append(block.logsumexp(-1, keepdim=True))
        outputs.append(block.softmax(-1)[..., :-1] @ v[..., part : part + 3, :])
    share = torch.stack(sums).softmax(0)
    return (share * torch.stack(outputs)).sum(0)


@WRONG.function("sink_counted_twice", sink=0.5, empty_rows="zeros")
def sink_as_column_and_renormalised(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = F.pad(hidden(scaled(q, k), mask), (0, 1), value=0.5)
    output = scores.softmax(-1)[..., :-1] @ v
    return output * torch.sigmoid(scores.logsumexp(-1, keepdim=True) - 0.5)


@WRONG.function("sink_counted_twice", sink=0.5, empty_rows="", needs="specification")
def sink_subtracted_the_wrong_way(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k), mask)
    lse = scores.logsumexp(-1, keepdim=True)
    return torch.sigmoid(0.5 - lse) * (scores.softmax(-1) @ v)


def _online(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
    *,
    start_at: float = -INF,
    floor: float = -INF,
    rescale_output: bool = True,
    rescale_sum: bool = True,
) -> Tensor:
    """Tiles of two keys; the running maximum starts at ``start_at``."""
    top = q.new_full((*q.shape[:-1], 1), start_at)
    total = torch.zeros_like(top)
    output = q.new_zeros(*q.shape[:-1], v.shape[-1])
    scores = scaled(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask, floor)
    for start in range(0, k.shape[-2], 2):
        block = scores[..., start : start + 2]
        higher = torch.maximum(top, block.amax(-1, keepdim=True))
        powers, decay = torch.exp(block - higher), torch.exp(top - higher)
        total = total * (decay if rescale_sum else 1) + powers.sum(-1, keepdim=True)
        output = output * (decay if rescale_output else 1) + powers @ v[..., start : start + 2, :]
        top = higher
    return output / total


@WRONG.function("empty_first_block", situation="first block hidden")
def first_block_empty_gives_nan(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _online(q, k, v, mask)


@WRONG.function("overflow", situation="very low logits")
def running_max_starts_at_minus_100(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _online(q, k, v, mask, start_at=-100.0)


@WRONG.function("overflow", situation="very low logits")
def running_max_starts_at_zero(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _online(q, k, v, mask, start_at=0.0)


@WRONG.function("mask_floor", situation="first block hidden, low logits")
def first_block_weighs_with_floor(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _online(q, k, v, mask, floor=-100.0)


@WRONG.function("empty_first_block", situation="first block hidden")
def stops_at_empty_block(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    total = q.new_zeros(*q.shape[:-1], 1)
    output = q.new_zeros(*q.shape[:-1], v.shape[-1])
    scores = hidden(scaled(q, k), mask)
    shift = scores.amax(-1, keepdim=True)
    for start in range(0, k.shape[-2], 2):
        block = scores[..., start : start + 2]
        if (block == -INF).all():
            break  # continue
        powers = (block - shift).exp()
        total = total + powers.sum(-1, keepdim=True)
        output = output + powers @ v[..., start : start + 2, :]
    return output / total.clamp_min(1e-9)


@WRONG.function("key_order", mask="")
def output_not_rescaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _online(q, k, v, None, rescale_output=False)


@WRONG.function("key_order", mask="")
def sum_not_rescaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _online(q, k, v, None, rescale_sum=False)


@WRONG.function("key_order", mask="")
def blocks_averaged(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    outputs = [
        scaled(q, k[..., i : i + 4, :]).softmax(-1) @ v[..., i : i + 4, :]
        for i in range(0, k.size(-2), 4)
    ]
    return torch.stack(outputs).mean(0)


def _windowed(q: Tensor, k: Tensor, v: Tensor, mask: Mask, near: Callable[[Tensor], Tensor]) -> Any:
    tq, tk = q.size(-2), k.size(-2)
    back = torch.arange(tk - tq, tk)[:, None] - torch.arange(tk)
    return hidden(hidden(scaled(q, k), near(back)), mask).softmax(-1) @ v


@WRONG.function("window_length", window=3, empty_rows="")
def window_one_too_long(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Any:
    return _windowed(q, k, v, mask, lambda back: (back >= 0) & (back <= 3))


@WRONG.function("window_length", window=3, empty_rows="")
def window_one_too_short(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Any:
    return _windowed(q, k, v, mask, lambda back: (back >= 0) & (back < 2))


@WRONG.function("causal_leak", window=3, empty_rows="", situation="causal window")
def window_on_both_sides(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Any:
    return _windowed(q, k, v, mask, lambda back: back.abs() < 3)


@WRONG.function("causal_leak", window=3, empty_rows="", situation="causal window")
def window_by_tril_of_additive(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    tq, tk = q.size(-2), k.size(-2)
    bias = torch.full((tq, tk), -INF).triu(tk - tq + 1)
    near = torch.ones(tq, tk, dtype=torch.bool).triu(tk - tq - 2)
    bias = torch.where(torch.ones_like(near).tril(tk - tq), bias, 0.0)  # undoes the causal part
    return hidden(hidden(scaled(q, k) + bias, near), mask).softmax(-1) @ v


def _packed(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    allowed = allowed & torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return hidden(scaled(q, k), allowed).softmax(-1) @ v


packed: dict[str, Any] = {
    "documents": True,
    "causal": "top-left",
    "mask": "",
    "situation": "documents",
}


@WRONG.function("documents_leak", **packed)
def documents_ignored(q: Tensor, k: Tensor, v: Tensor, *, document_ids: Tensor) -> Tensor:
    return _packed(q, k, v, document_ids[:, None, None, :] >= 0)


@WRONG.function("documents_leak", **packed)
def earlier_documents_seen(q: Tensor, k: Tensor, v: Tensor, *, document_ids: Tensor) -> Tensor:
    ids = document_ids[:, None]
    return _packed(q, k, v, ids[..., :, None] >= ids[..., None, :])


@WRONG.function("documents_leak", **packed)
def documents_of_first_sample(q: Tensor, k: Tensor, v: Tensor, *, document_ids: Tensor) -> Tensor:
    ids = document_ids[:1, None]
    return _packed(q, k, v, ids[..., :, None] == ids[..., None, :])


@WRONG.function("documents_leak", **packed)
def boundary_token_in_both(q: Tensor, k: Tensor, v: Tensor, *, document_ids: Tensor) -> Tensor:
    ids = document_ids[:, None]
    previous = ids.roll(1, dims=-1)
    previous[..., 0] = ids[..., 0]
    same = ids[..., :, None] == ids[..., None, :]
    return _packed(q, k, v, same | (previous[..., :, None] == ids[..., None, :]))


# Gradients, inputs, repetition, dtypes, strides.


@WRONG.function("gradients", situation="gradient")
def scores_detached(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q, k).detach(), mask)
    return scores.softmax(-1) @ v


@WRONG.function("gradients", situation="gradient")
def weights_through_data(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    weights = hidden(scaled(q, k), mask).softmax(-1)
    return weights.data @ v


@WRONG.function("gradients", situation="gradient")
def cached_keys_without_gradient(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    with torch.no_grad():
        kept = k.clone()
    return hidden(scaled(q, kept), mask).softmax(-1) @ v


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, fault: str) -> Tensor:
        weights = hidden(scaled(q, k), mask).softmax(-1)
        ctx.save_for_backward(q, k, v, weights)
        ctx.fault = fault
        return weights @ v

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        q, k, v, weights = ctx.saved_tensors
        d_weights = grads[0] @ v.mT
        delta = (d_weights * weights).sum(-1, keepdim=True)
        d_scores = weights * (d_weights - (0 if ctx.fault == "delta" else delta))
        scale = q.size(-1) ** -0.5
        d_q = d_scores @ k * (1 if ctx.fault == "scale" else scale)
        return d_q, d_scores.mT @ q * scale, weights.mT @ grads[0], None, None


def _by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Mask, fault: str) -> Tensor:
    if mask is None:
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool)
    output: Tensor = _Backward.apply(q, k, v, mask, fault)  # type: ignore[no-untyped-call]
    return output


@WRONG.function("gradients", situation="gradient")
def backward_without_delta(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _by_hand(q, k, v, mask, "delta")


@WRONG.function("gradients", situation="gradient")
def backward_without_scale(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _by_hand(q, k, v, mask, "scale")


@WRONG.function("inputs_changed", situation="inputs")
def query_scaled_in_place(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    with torch.no_grad():
        q *= q.size(-1) ** -0.5
    return hidden(q @ k.mT, mask).softmax(-1) @ v


@WRONG.function("inputs_changed", mask="additive", situation="inputs")
def scores_added_into_mask(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = scaled(q, k).detach()
    if mask is not None and mask.shape == scores.shape:
        scores = mask.add_(scores)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


@WRONG.function("inputs_changed", causal="top-left", situation="inputs")
def caller_mask_made_causal(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    causal = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    if mask is None:
        mask = causal
    elif mask.shape[-2:] == causal.shape:
        mask &= causal
    else:
        mask = mask & causal
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("inputs_changed", situation="inputs")
def hidden_values_zeroed(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    if mask is not None:
        seen = mask.broadcast_to(*q.shape[:-1], k.size(-2)).any(-2)
        v.data[~seen] = 0.0
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.factory("calls_remembered", situation="twice")
def mask_of_first_call_kept() -> Callable[..., Tensor]:
    kept: list[Tensor] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
        scores = scaled(q, k)
        if mask is not None and not any(m.shape == mask.shape for m in kept):
            kept.append(mask)
        if mask is not None:
            mask = next(m for m in kept if m.shape == mask.shape)
        return hidden(scores, mask).softmax(-1) @ v

    return attend


@WRONG.factory("calls_remembered", situation="twice")
def keys_kept_between_calls() -> Callable[..., Tensor]:
    kept: list[Tensor] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
        running = k.detach().mean()
        if kept:
            running = 0.9 * kept.pop() + 0.1 * running
        kept.append(running)
        scores = scaled(q, k) * (1 + running.abs())
        return hidden(scores, mask).softmax(-1) @ v

    return attend


@WRONG.function("dropout_in_evaluation", situation="twice")
def random_features(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    projection = torch.randn(q.size(-1), 64, dtype=q.dtype) / 8
    return hidden(scaled(q @ projection, k @ projection) * 1.0, mask).softmax(-1) @ v


@WRONG.function("dtype_kept", situation="dtype")
def float32_comes_back(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    weights = hidden(scaled(q, k).float(), mask).softmax(-1)
    return weights @ v.float()


@WRONG.function("dtype_kept", situation="dtype")
def always_half_inside(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
    return hidden(scaled(q, k), mask).softmax(-1) @ v


@WRONG.function("softmax_axis", situation="ordinary")
def weights_rounded_to_half(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = hidden(scaled(q.bfloat16(), k.bfloat16()), mask)
    return scores.softmax(-1).to(v.dtype) @ v


@WRONG.function("non_contiguous", situation="strided")
def strides_assumed(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h, tk, d = k.shape
    keys = k.as_strided((b, h, d, tk), (h * tk * d, tk * d, 1, d))  # as a raw pointer would
    return hidden(q @ keys / math.sqrt(d), mask).softmax(-1) @ v


@WRONG.function("non_contiguous", situation="strided")
def memory_read_in_order(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    values = v.as_strided(v.shape, torch.empty(v.shape, device="meta").stride())
    return hidden(scaled(q, k), mask).softmax(-1) @ values
