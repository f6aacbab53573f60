"""What right code gives, from the settings alone, in float64 and with loops."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def allowed_keys(
    settings: Mapping[str, Any],
    lead: tuple[int, int],
    tq: int,
    tk: int,
    mask: Tensor | None,
    causal: str,
    documents: Tensor | None,
) -> Tensor:
    """(B, H, Tq, Tk), True where the query may attend to the key."""
    allowed = torch.ones(*lead, tq, tk, dtype=torch.bool)
    if mask is not None:
        allowed &= mask
    for i in range(tq):
        for j in range(tk):
            back = i - j + (tk - tq if causal == "bottom-right" else 0)
            if causal and back < 0:
                allowed[:, :, i, j] = False
                continue
            if settings.get("window") is not None:
                back = i - j + tk - tq
                if not 0 <= back < settings["window"]:
                    allowed[:, :, i, j] = False
            for b in range(lead[0] if documents is not None else 0):
                assert documents is not None
                if documents[b, i] != documents[b, j]:
                    allowed[b, :, i, j] = False
    return allowed


def by_hand(
    settings: Mapping[str, Any],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    causal: str = "",
    documents: Tensor | None = None,
) -> Tensor:
    """Attention of (B, H, T, d); ``mask`` (True may attend) and ``bias`` broadcast."""
    q, k, v = q.double(), k.double(), v.double()
    (n_batch, n_heads, tq, d), tk = q.shape, k.shape[2]
    group = n_heads // k.shape[1]
    scale = settings["scale"] or 1 / math.sqrt(d)
    allowed = allowed_keys(
        settings, (n_batch, n_heads), tq, tk, mask, settings["causal"] or causal, documents
    )
    bias = None if bias is None else bias.double().broadcast_to(allowed.shape)
    output = torch.zeros(n_batch, n_heads, tq, v.shape[-1], dtype=torch.float64)
    columns = range(v.shape[-1])
    for b in range(n_batch):
        for h in range(n_heads):
            for i in range(tq):
                logits = {}
                row, keys = q[b, h, i].tolist(), k[b, h // group].tolist()
                for j in range(tk):
                    if not allowed[b, h, i, j]:
                        continue
                    logit = scale * math.fsum(x * y for x, y in zip(row, keys[j], strict=True))
                    if settings.get("soft_cap"):
                        logit = settings["soft_cap"] * math.tanh(logit / settings["soft_cap"])
                    if settings.get("alibi"):
                        logit -= 2 ** (-8 * (h + 1) / n_heads) * abs(i + tk - tq - j)
                    logits[j] = logit + (0 if bias is None else float(bias[b, h, i, j]))
                sink = settings.get("sink")
                if not logits:
                    if sink is None and settings["empty_rows"] != "zeros":
                        output[b, h, i] = math.nan
                    continue
                top = max([*logits.values(), *([] if sink is None else [sink])])
                total = math.fsum(math.exp(x - top) for x in logits.values())
                total += 0 if sink is None else math.exp(sink - top)
                shares = {j: math.exp(logit - top) / total for j, logit in logits.items()}
                values = v[b, h // group].tolist()
                output[b, h, i] = torch.tensor(
                    [math.fsum(w * values[j][c] for j, w in shares.items()) for c in columns],
                    dtype=torch.float64,
                )
    return output


def projected(x: Tensor, weight: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """(B, H, T, d) of x (B, T, C), row after row of the weight."""
    d = len(weight) // heads
    output = torch.zeros(len(x), heads, x.shape[1], d, dtype=torch.float64)
    for row, line in enumerate(weight.double()):
        part = (x * line).sum(-1) + (0 if bias is None else bias[row].double())
        output[:, row // d, :, row % d] = part
    return output


def rotated(x: Tensor, base: float) -> Tensor:
    """Rotary positions on halves, one pair of features at a time."""
    output = torch.zeros_like(x)
    half = x.shape[-1] // 2
    for t in range(x.shape[2]):
        for pair in range(half):
            angle = t * base ** (-pair / half)
            first, second = x[:, :, t, pair], x[:, :, t, pair + half]
            output[:, :, t, pair] = first * math.cos(angle) - second * math.sin(angle)
            output[:, :, t, pair + half] = second * math.cos(angle) + first * math.sin(angle)
    return output


def module_by_hand(
    settings: Mapping[str, Any],
    weights: Mapping[str, Tensor | None],
    x: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    causal: str = "",
    documents: Tensor | None = None,
) -> Tensor:
    """Output (B, T, C) of x (B, T, C) from the weights of a module."""
    x = x.double()
    memory = x if memory is None else memory.double()
    parts = []
    for name, source in (("q", x), ("k", memory), ("v", memory)):
        heads = settings["n_heads"] if name == "q" else settings["n_kv_heads"]
        weight = weights[name]
        assert weight is not None
        part = projected(source, weight, weights.get(f"{name}_bias"), heads)
        if settings["qk_norm"] is not None and name != "v":
            gain = weights[f"{name}_gain"]
            assert gain is not None
            part = part / (part.pow(2).mean(-1, keepdim=True) + settings["qk_norm"]).sqrt()
            part = part * gain.double()
        if settings["rotary"] is not None and name != "v":
            part = rotated(part, settings["rotary"])
        parts.append(part)
    q, k, v = parts
    heads_out = by_hand(settings, q, k, v, mask, causal=causal, documents=documents)
    merged = torch.cat(list(heads_out.unbind(1)), dim=-1)
    out, out_bias = weights.get("out"), weights.get("out_bias")
    if out is None:
        return merged
    return projected(merged, out, out_bias, 1)[:, 0]
