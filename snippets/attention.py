"""Attention as a soft lookup: averages of the values, weighted by match."""

import math
from itertools import zip_longest

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Average the values, weighted by how well each query matches their keys.

    The weights are the softmax of the logits, scale · q kᵀ, over the keys that
    a query may attend to. A query that may attend to none gets zero weights, a
    zero output and zero gradients.

    Parameters
    ----------
    q : Tensor, shape (..., Tq, d)
        Queries. The leading dimensions of q, k and v broadcast.
    k : Tensor, shape (..., Tk, d)
        Keys.
    v : Tensor, shape (..., Tk, dv)
        Values, one for each key.
    mask : Tensor of bool, broadcastable to the logits (..., Tq, Tk), optional
        True = may attend. Two dimensions, (Tq, Tk), or as many as the logits.
        Without a mask every query may attend to every key.
    scale : float, optional
        ``1 / sqrt(d)`` unless given. For a learned scale, multiply q by it and
        pass ``scale=1``.

    Returns
    -------
    output : Tensor, shape (..., Tq, dv)
    weights : Tensor, shape (..., Tq, Tk)
        Each row sums to 1, or to 0 for a query without keys.

    Raises
    ------
    TypeError, ValueError
        When the inputs do not fit: see `check_inputs` and `check_mask`.

    Notes
    -----
    float16 and bfloat16 are computed in float32, under autocast too, and
    returned as they came. Inputs must be finite, and so must the logits in
    float32, which is not checked: a NaN in a masked value reaches every output,
    because 0 · NaN is NaN.

    Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.1,
    arXiv:1706.03762. What a query without keys gets is decided here; the paper
    does not say.
    """
    check_inputs(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    # The meta device, which holds shapes only, has no autocast of its own.
    device = "cpu" if q.is_meta else q.device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return attention(q, k, v, mask, scale=scale)
    if q.dtype in (torch.float16, torch.bfloat16):
        wide = q.float(), k.float(), v.float()
        output, weights = attention(*wide, mask, scale=scale)
        return output.to(q.dtype), weights.to(q.dtype)
    # q is scaled, and not the product, which could overflow.
    logits = (q * scale) @ k.mT  # (..., Tq, Tk)
    if mask is None:
        weights = logits.softmax(-1)
    else:
        check_mask(mask, logits.shape)
        alive = mask.any(-1, keepdim=True)  # (..., Tq, 1)
        # A row of nothing but -inf would have NaN weights and gradients.
        hidden = torch.where(alive, -math.inf, 0.0).to(logits.dtype)
        weights = torch.where(mask, logits, hidden).softmax(-1) * alive
    return weights @ v, weights  # (..., Tq, dv), (..., Tq, Tk)


def check_inputs(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Refuse queries, keys and values that do not fit; only d may not be 0."""
    floats = torch.float16, torch.bfloat16, torch.float32, torch.float64
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name} must be a tensor, got {type(x).__name__}: "
                "use torch.tensor"
            )
        if x.dtype not in floats:
            raise TypeError(
                f"{name} must be float16, bfloat16, float32 or float64, "
                f"got {x.dtype}: convert it, for example {name}.float()"
            )
        if x.ndim < 2:
            raise ValueError(
                f"{name} must be (..., length, width), "
                f"got shape {tuple(x.shape)}: "
                f"add a dimension, for example {name}[None] for one vector"
            )
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            "q, k and v must have one dtype, "
            f"got {q.dtype}, {k.dtype} and {v.dtype}: "
            "convert them, for example k.to(q.dtype)"
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            "q and k must have one width, "
            f"got {q.shape[-1]} and {k.shape[-1]} "
            f"(q {tuple(q.shape)}, k {tuple(k.shape)}): "
            "project them to the same width"
        )
    if q.shape[-1] == 0:
        raise ValueError(
            "q and k must have a width of 1 or more, "
            f"got 0 (q {tuple(q.shape)}, k {tuple(k.shape)}): "
            "without features there is nothing to match"
        )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(
            "k and v must have one length, "
            f"got {k.shape[-2]} and {v.shape[-2]} "
            f"(k {tuple(k.shape)}, v {tuple(v.shape)}): "
            "give one value for each key"
        )
    if q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        return
    leads = (reversed(x.shape[:-2]) for x in (q, k, v))
    if any(len({1, *sizes}) > 2 for sizes in zip_longest(*leads, fillvalue=1)):
        raise ValueError(
            "the leading dimensions must broadcast, got "
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}: "
            "make them equal or 1, for example with unsqueeze"
        )


def check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Refuse a mask that is not boolean or could be read in two ways.

    Three dimensions on (B, H, Tq, Tk) would be heads where examples are meant.
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be a boolean tensor (True = may attend), got {given}: "
            "where 0 means attend (additive masks, nn.MultiheadAttention's "
            "inverted masks) pass mask == 0, "
            "where 1 means attend pass mask != 0"
        )
    sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
    if mask.ndim not in (2, len(shape)) or any(
        m not in (1, n) for m, n in sizes
    ):
        raise ValueError(
            f"mask must broadcast to (..., Tq, Tk) = {tuple(shape)} and have "
            f"2 of its dimensions or all, got {tuple(mask.shape)}: on "
            "(B, H, Tq, Tk) pass mask[:, None] for (B, Tq, Tk), mask[None] for "
            "(H, Tq, Tk), mask[:, None, None] for (B, Tk)"
        )
