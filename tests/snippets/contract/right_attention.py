"""Attention functions that are right, in the styles of public code."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.snippets.contract.entry import FUNCTION, Registry

RIGHT = Registry(FUNCTION)
ALL = RIGHT.entries

INF = float("inf")
Mask = Tensor | None


@RIGHT.function()
def einsum_where(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -INF)
    return torch.einsum("bhqk,bhkd->bhqd", scores.softmax(-1), v)


@RIGHT.function(mask="ones")
def annotated(query: Tensor, key: Tensor, value: Tensor, mask: Mask = None) -> Tensor:
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -INF)
    p_attn = F.softmax(scores, dim=-1)
    return torch.matmul(p_attn, value)


@RIGHT.function(mask="ones", empty_rows="", empty_gradients=True)
def annotated_floor(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1) @ v


@RIGHT.function(mask="additive")
def additive_float(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    logits: Tensor = q @ k.mT * q.shape[-1] ** -0.5
    if mask is not None:
        logits = logits + mask.to(logits.dtype)
    return logits.softmax(dim=-1) @ v


@RIGHT.function(mask="hide")
def hide_convention(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    energy = torch.matmul(q, k.permute(0, 1, 3, 2)) / math.sqrt(k.size(3))
    if mask is not None:
        energy.masked_fill_(mask, float("-inf"))
    attention = torch.nn.Softmax(dim=3)(energy)
    return torch.matmul(attention, v)


@RIGHT.function(empty_rows="zeros", empty_gradients=True)
def zeros_for_empty_rows(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = (q / math.sqrt(q.shape[-1])) @ k.mT
    if mask is None:
        return scores.softmax(-1) @ v
    mask = mask.broadcast_to(scores.shape)
    some = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask & some, -INF)
    weights = torch.where(some, scores.softmax(-1), 0.0)
    return weights @ v


@RIGHT.function(empty_rows="zeros", empty_gradients=True)
def nan_to_zero(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return scores.softmax(-1).nan_to_num(0.0) @ v


@RIGHT.function()
def log_sum_exp_by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = (q.unsqueeze(-2) * k.unsqueeze(-3)).sum(-1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -INF)
    highest = scores.max(dim=-1, keepdim=True).values
    powers = torch.exp(scores - highest)
    lse = highest + powers.sum(-1, keepdim=True).log()
    return torch.exp(scores - lse) @ v


@RIGHT.function(empty_rows="zeros", empty_gradients=True)
def exp_mask_sum(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    allowed = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
    scores = scores.masked_fill(allowed == 0, torch.finfo(scores.dtype).min)
    powers = torch.exp(scores - scores.amax(-1, keepdim=True).detach()) * allowed
    return powers @ v / powers.sum(-1, keepdim=True).clamp_min(1e-9)


@RIGHT.function(mask="additive", half=True)
def baddbmm_heads_in_batch(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    n_batch, n_heads, tq, d = q.shape
    tk = k.shape[2]
    bias = q.new_zeros(1) if mask is None else mask.to(q.dtype)
    bias = bias.expand(n_batch, n_heads, tq, tk).reshape(-1, tq, tk)
    scores = torch.baddbmm(
        bias, q.reshape(-1, tq, d), k.reshape(-1, tk, d).transpose(1, 2), alpha=d**-0.5
    )
    output = torch.bmm(scores.softmax(-1), v.reshape(-1, tk, v.shape[-1]))
    return output.view(n_batch, n_heads, tq, -1)


@RIGHT.function(layout="(B, T, H, d)")
def heads_after_time(queries: Tensor, keys: Tensor, values: Tensor, mask: Mask = None) -> Tensor:
    energy = torch.einsum("nqhd,nkhd->nhqk", [queries, keys])
    if mask is not None:
        energy = energy.masked_fill(mask == 0, float("-inf"))
    attention = torch.softmax(energy / queries.shape[-1] ** (1 / 2), dim=3)
    return torch.einsum("nhql,nlhd->nqhd", [attention, values])


@RIGHT.function(layout="(B, T, d)")
def single_head_bmm(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    attn = torch.bmm(q, k.transpose(1, 2)) / (k.size(2) ** 0.5)
    if mask is not None:
        attn = attn.masked_fill(~mask, -INF)
    return torch.bmm(F.softmax(attn, dim=2), v)


def _tiled(q: Tensor, k: Tensor, v: Tensor, mask: Mask, block: int) -> Tensor:
    q = q * q.shape[-1] ** -0.5
    top = q.new_full((*q.shape[:-1], 1), -INF)
    total = torch.zeros_like(top)
    output = q.new_zeros(*q.shape[:-1], v.shape[-1])
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.shape[-2])
    for start in range(0, k.shape[-2], block):
        part = slice(start, start + block)
        scores = q @ k[..., part, :].mT
        if mask is not None:
            scores = scores.masked_fill(~mask[..., part], -INF)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        safe = higher.masked_fill(higher == -INF, 0.0)
        powers, decay = torch.exp(scores - safe), torch.exp(top - safe)
        total = total * decay + powers.sum(-1, keepdim=True)
        output = output * decay + powers @ v[..., part, :]
        top = higher
    return output / total.masked_fill(total == 0, 1.0)


@RIGHT.function(empty_rows="zeros", empty_gradients=True, half=True)
def tiled_in_blocks_of_2(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _tiled(q, k, v, mask, 2)


@RIGHT.function(empty_rows="zeros", empty_gradients=True, half=True)
def tiled_in_blocks_of_4(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    return _tiled(q, k, v, mask, 4)


@RIGHT.function()
def chunked_queries(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    rows = []
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.shape[2])
    for start in range(0, q.shape[2], 3):
        scores = q[:, :, start : start + 3] @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[:, :, start : start + 3], -INF)
        rows.append(scores.softmax(-1) @ v)
    return torch.cat(rows, dim=2)


@RIGHT.function(mask="additive")
def softmax_in_float32(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(weights, v)


@RIGHT.function(half=True)
def query_scaled_first(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    q = q * (q.size(-1) ** -0.5)
    attn = q @ k.transpose(-2, -1)
    if mask is not None:
        attn = attn.masked_fill(mask == False, -torch.inf)  # noqa: E712
    return attn.softmax(dim=-1) @ v


@RIGHT.function(mask="hide", half=True)
def key_scaled(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ (k / math.sqrt(k.shape[-1])).transpose(-1, -2)
    if mask is not None:
        scores = scores.masked_fill(mask, -INF)
    return torch.softmax(scores, -1) @ v


@RIGHT.function(half=True)
def both_scaled(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scale = 1 / math.sqrt(math.sqrt(q.shape[-1]))
    weight = torch.einsum("bhtc,bhsc->bhts", q * scale, k * scale)
    if mask is not None:
        weight = weight.masked_fill(~mask, -INF)
    weight = torch.softmax(weight.float(), dim=-1).type(weight.dtype)
    return torch.einsum("bhts,bhsc->bhtc", weight, v)


@RIGHT.function(scale=1.0)
def unscaled(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(groups=2)
def grouped_repeat_interleave(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    k = k.repeat_interleave(q.size(1) // k.size(1), dim=1)
    v = v.repeat_interleave(q.size(1) // v.size(1), dim=1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(groups=2, mask="additive")
def grouped_expand_reshape(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    def repeat_kv(x: Tensor, n_rep: int) -> Tensor:
        b, h, t, d = x.shape
        return x[:, :, None].expand(b, h, n_rep, t, d).reshape(b, h * n_rep, t, d)

    n_rep = q.shape[1] // k.shape[1]
    k, v = repeat_kv(k, n_rep), repeat_kv(v, n_rep)
    scores: Tensor = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


@RIGHT.function(groups=2)
def grouped_einsum(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h, tq, d = q.shape
    q = q.reshape(b, k.shape[1], h // k.shape[1], tq, d)
    scores = torch.einsum("bngqd,bnkd->bngqk", q, k) / math.sqrt(d)
    if mask is not None:
        mask = mask.expand(b, h, tq, k.shape[2]).reshape(scores.shape)
        scores = scores.masked_fill(~mask, -INF)
    return torch.einsum("bngqk,bnkd->bngqd", scores.softmax(-1), v).reshape(b, h, tq, -1)


@RIGHT.function(soft_cap=2.0)
def soft_capped(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = 2.0 * torch.tanh(scores / 2.0)
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(sink=0.5, empty_rows="zeros", empty_gradients=True)
def sink_column(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    sink = scores.new_full((*scores.shape[:-1], 1), 0.5)
    weights = torch.cat([scores, sink], dim=-1).softmax(-1)[..., :-1]
    return weights @ v


@RIGHT.function(sink=0.5, empty_rows="")
def sink_by_renormalising(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    lse = scores.logsumexp(-1, keepdim=True)
    return torch.sigmoid(lse - 0.5) * (scores.softmax(-1) @ v)


@RIGHT.function(window=3, empty_rows="")
def sliding_window_inside(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    tq, tk = q.shape[-2], k.shape[-2]
    distance = torch.arange(tq)[:, None] + (tk - tq) - torch.arange(tk)
    near = (distance >= 0) & (distance < 3)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~near, -INF)
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(causal_argument="is_causal", alignment="top-left")
def causal_top_left(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, is_causal: bool = False
) -> Tensor:
    tq, tk = q.size(-2), k.size(-2)
    allowed = torch.ones(tq, tk, dtype=torch.bool)
    if is_causal:
        allowed = allowed.tril()
    if mask is not None:
        allowed = allowed & mask
    scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~allowed, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(mask="hide", causal_argument="causal", alignment="bottom-right")
def causal_bottom_right(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask = None, *, causal: bool = False
) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.size(-1))
    tq, tk = scores.shape[-2:]
    if causal:
        future = torch.ones(tq, tk, dtype=torch.bool).triu(tk - tq + 1)
        scores = scores.masked_fill(future, -INF)
    if mask is not None:
        scores = scores.masked_fill(mask, -INF)
    return F.softmax(scores, dim=-1) @ v


@RIGHT.function(mask="", causal="top-left", layout="(B, T, d)")
def always_causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
    tril = torch.tril(torch.ones(q.shape[1], k.shape[1]))
    wei = wei.masked_fill(tril == 0, float("-inf"))
    return F.softmax(wei, dim=-1) @ v


@RIGHT.function(empty_rows="", empty_gradients=True)
def gather_allowed_keys(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h, tq, d = q.shape
    allowed = torch.ones(()).bool() if mask is None else mask
    allowed = allowed.broadcast_to(b, h, tq, k.shape[2])
    rows = []
    for at in torch.cartesian_prod(torch.arange(b), torch.arange(h), torch.arange(tq)).tolist():
        seen = allowed[tuple(at)].nonzero().flatten()
        keys, values = k[at[0], at[1]][seen], v[at[0], at[1]][seen]
        rows.append((keys @ q[tuple(at)] / math.sqrt(d)).softmax(0) @ values)
    return torch.stack(rows).view(b, h, tq, -1)


@RIGHT.function(alibi=True)
def alibi_inside(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    h, tq, tk = q.shape[1], q.shape[2], k.shape[2]
    slopes = torch.tensor([2 ** (-8 * (i + 1) / h) for i in range(h)], dtype=q.dtype)
    distance = (torch.arange(tk)[None] - torch.arange(tk - tq, tk)[:, None]).abs()
    scores = q @ k.mT / math.sqrt(q.shape[-1]) - slopes[:, None, None] * distance
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(dropout_argument="dropout", training_argument="training")
def dropout_on_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask = None,
    dropout: float = 0.0,
    training: bool = True,
) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    return F.dropout(scores.softmax(-1), dropout, training) @ v


RIGHT.function(
    causal_argument="is_causal",
    dropout_argument="dropout_p",
    empty_rows="zeros",
    empty_gradients=True,
    half=True,
)(F.scaled_dot_product_attention)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~mask, -INF)
        lse = scores.logsumexp(-1, keepdim=True)
        lse = lse.masked_fill(lse == -INF, INF)  # an empty row has weights 0
        output = torch.exp(scores - lse) @ v
        ctx.save_for_backward(q, k, v, mask, output, lse)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (grad,) = grads
        q, k, v, mask, output, lse = ctx.saved_tensors
        scale = q.shape[-1] ** -0.5
        weights = torch.exp((q @ k.mT * scale).masked_fill(~mask, -INF) - lse)
        delta = (grad * output).sum(-1, keepdim=True)
        d_scores = weights * (grad @ v.mT - delta) * scale
        return d_scores @ k, d_scores.mT @ q, weights.mT @ grad, None


@RIGHT.function(empty_rows="zeros", empty_gradients=True)
def backward_by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    if mask is None:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
    output: Tensor = _Flash.apply(q, k, v, mask)  # type: ignore[no-untyped-call]
    return output


@RIGHT.function(mask="ones", mask_shape="(B, Tk)")
def padding_only(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(mask="attend", mask_shape="(B, Tq, Tk)")
def mask_for_each_sample(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    b, h, _, d = q.shape
    scores = (q @ k.mT / math.sqrt(d)).flatten(0, 1)
    if mask is not None:
        scores = scores.masked_fill(~mask.repeat_interleave(h, dim=0), -INF)
    return (scores.softmax(-1) @ v.flatten(0, 1)).view(b, h, *q.shape[2:])


@RIGHT.function(documents=True, causal="top-left", mask="")
def packed_documents(q: Tensor, k: Tensor, v: Tensor, *, document_ids: Tensor) -> Tensor:
    same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
    allowed = same & torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~allowed, -INF)
    return scores.softmax(-1) @ v


@RIGHT.function(mask="additive", mask_shape="broadcast")
def exp2_kernel_style(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    log2e = math.log2(math.e)
    scores = q @ k.mT * (q.shape[-1] ** -0.5 * log2e)
    if mask is not None:
        scores = scores + mask * log2e
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True))
    return powers @ v / powers.sum(-1, keepdim=True)


@RIGHT.function(mask="ones", empty_rows="", empty_gradients=True)
def bert_extended(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)) * torch.finfo(scores.dtype).min
    return torch.nn.functional.softmax(scores, dim=-1) @ v


@RIGHT.function(empty_rows="", empty_gradients=True)
def unnormalised_then_divided(q: Tensor, k: Tensor, v: Tensor, mask: Mask = None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.full_like(scores, -1e30))
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    ones = v.new_ones(*v.shape[:-1], 1)
    both = powers @ torch.cat([v, ones], dim=-1)
    return both[..., :-1] / both[..., -1:]
