"""How sharp attention is, how its heads differ, and how large its logits."""

import math
from itertools import zip_longest

import torch
from torch import Tensor


def entropy(weights: Tensor) -> Tensor:
    """Entropy of each row in nats: 0 for one key, ln Tk for keys that share.

    A weight of exactly 0 counts as absent (0 · ln 0 = 0) and its gradient is 0,
    so that the entropy of a softmax that has saturated or that was masked can
    be differentiated. A row of zeros, a query without keys, has entropy 0.

    Parameters
    ----------
    weights : Tensor, shape (..., Tk)
        Rows that are not negative and sum to 1 (or 0), which is not checked.
        float16 and bfloat16 are computed in float32.

    Returns
    -------
    Tensor, shape (...)
        In the dtype of the weights.

    Raises
    ------
    TypeError
        When the weights are not a floating-point tensor.
    ValueError
        When they have no last dimension to sum over, or an empty one.

    Notes
    -----
    Source: Shannon (1948), "A Mathematical Theory of Communication", section 6.
    """
    check_weights(weights)
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    logs = torch.where(wide > 0, wide, 1.0).log()  # (..., Tk)
    # 0 - x rather than -x: a row with one key prints 0 and not -0.
    return (0 - (wide * logs).sum(-1)).to(weights.dtype)  # (...)


def effective_keys(weights: Tensor) -> Tensor:
    """How many keys, sharing evenly, have the entropy of each row: its exp.

    Between 1 and Tk. A row of zeros has entropy 0 and so reads 1; `peak` tells
    it from a row with one key.

    Parameters
    ----------
    weights : Tensor, shape (..., Tk)
        As for `entropy`, with the same errors.

    Returns
    -------
    Tensor, shape (...)
        In the dtype of the weights.
    """
    check_weights(weights)
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    return entropy(wide).exp().to(weights.dtype)  # (...)


def peak(weights: Tensor) -> Tensor:
    """Largest weight of each row: 1 for one key, 1 / Tk for keys that share.

    Weights that tie for the largest share its gradient.

    Parameters
    ----------
    weights : Tensor, shape (..., Tk)
        As for `entropy`, with the same errors.

    Returns
    -------
    Tensor, shape (...)
        In the dtype of the weights.
    """
    check_weights(weights)
    return weights.amax(-1)  # (...)


def head_distance(weights: Tensor) -> Tensor:
    """Share of the weight that two heads give to different keys, 0 to 1.

    The total variation distance between the rows that two heads give to the
    same query, averaged over the queries: 0 for heads with equal maps, 1 for
    heads that never share a key. It is symmetric and keeps the triangle
    inequality. Where two heads have keys and average the same values, no
    coordinate of their outputs differs by more than the row's distance times
    the range of the values.

    A query without keys in any head is left out of the average. Among the
    others, one without keys in both of two heads counts as distance 0, and in
    only one of them as 1. Without queries the distance is 0.

    Parameters
    ----------
    weights : Tensor, shape (..., H, Tq, Tk)
        As for `entropy`, with the same errors, and a dimension of heads.

    Returns
    -------
    Tensor, shape (..., H, H)
        In the dtype of the weights, up to rounding between 0 and 1.

    Raises
    ------
    TypeError, ValueError
        As `entropy` does, and without the three dimensions above.

    Notes
    -----
    One head at a time is compared with all, so that, without gradients, memory
    grows with H and not with H².

    Source: Levin, Peres and Wilmer (2009), "Markov Chains and Mixing Times",
    section 4.1, for the distance. Maps of heads are compared row by row as in
    Clark et al. (2019), "What Does BERT Look At?", arXiv:1906.04341, who sum
    the Jensen-Shannon divergence instead.
    """
    check_weights(weights)
    if weights.ndim < 3:
        raise ValueError(
            "weights must be (..., H, Tq, Tk) to compare heads, "
            f"got shape {tuple(weights.shape)}: "
            "pass the weights of every head, before they are averaged"
        )
    wide = weights.to(torch.promote_types(weights.dtype, torch.float32))
    alive = weights.any(-1)  # (..., H, Tq)
    queries = alive.any(-2).sum(-1).clamp_min(1)  # (...)
    columns = []
    for head in range(weights.shape[-3]):
        at = slice(head, head + 1)
        apart = (wide - wide[..., at, :, :]).abs().sum(-1) / 2  # (..., H, Tq)
        apart = torch.where(alive == alive[..., at, :], apart, 1.0)
        columns.append(apart.sum(-1) / queries[..., None])  # (..., H)
    if not columns:
        return weights.new_zeros(*weights.shape[:-3], 0, 0)
    return torch.stack(columns, -1).to(weights.dtype)  # (..., H, H)


@torch.no_grad()
def largest_logit(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Largest |scale · q·k| of each head, over the pairs that may attend.

    A number to watch while training: in the runs of the sources below it grew
    before the loss diverged. It is 0 without a pair that may attend, and
    carries no gradient.

    Parameters
    ----------
    q : Tensor, shape (..., Tq, d)
        Queries. The leading dimensions of q and k broadcast.
    k : Tensor, shape (..., Tk, d)
        Keys.
    mask : Tensor of bool, broadcastable to the logits (..., Tq, Tk), optional
        True = may attend. Two dimensions, (Tq, Tk), or as many as the logits.
    scale : float, optional
        ``1 / sqrt(d)`` unless given.

    Returns
    -------
    Tensor, shape (...)
        float64 for float64, else float32: the maximum that is looked for may
        be beyond float16. NaN where a pair that may attend has a NaN, or
        products that overflow with both signs.

    Raises
    ------
    TypeError, ValueError
        When q, k and the mask do not fit: see `check_logits`.

    Notes
    -----
    128 queries are compared with the keys at a time, so that memory grows with
    Tk and not with Tq · Tk.

    Source: Wortsman et al. (2023), "Small-scale proxies for large-scale
    Transformer training instabilities", section 3.1.1, arXiv:2309.14322, and
    Dehghani et al. (2023), "Scaling Vision Transformers to 22 Billion
    Parameters", arXiv:2302.05442.
    """
    shape = check_logits(q, k, mask)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    wide = torch.promote_types(q.dtype, torch.float32)
    largest = torch.zeros(shape[:-2], dtype=wide, device=q.device)  # (...)
    if shape[-1] == 0:  # there is no largest of no keys
        return largest
    q, k = q.to(wide) * scale, k.to(wide)
    mask = None if mask is None else mask.broadcast_to(shape)
    # The meta device, which holds shapes only, has no autocast of its own.
    device = "cpu" if q.is_meta else q.device.type
    with torch.autocast(device, enabled=False):
        for start in range(0, shape[-2], 128):
            rows = slice(start, start + 128)
            sizes = (q[..., rows, :] @ k.mT).abs()  # (..., 128 or fewer, Tk)
            if mask is not None:
                sizes = torch.where(mask[..., rows, :], sizes, 0.0)
            largest = torch.maximum(largest, sizes.amax((-2, -1)))  # (...)
    return largest


def check_weights(weights: Tensor) -> None:
    """Refuse what is not rows of weights, saying what to pass instead."""
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        tensor = isinstance(weights, Tensor)
        given = weights.dtype if tensor else type(weights).__name__
        raise TypeError(
            f"weights must be a floating-point tensor, got {given}: "
            "pass the weights that attention returned, or convert with .float()"
        )
    if weights.ndim == 0 or weights.shape[-1] == 0:
        raise ValueError(
            "weights must be (..., Tk) with one key or more, "
            f"got shape {tuple(weights.shape)}: "
            "a row without keys has no weights to describe"
        )


def check_logits(q: Tensor, k: Tensor, mask: Tensor | None) -> torch.Size:
    """Refuse queries, keys and masks that do not fit; else (..., Tq, Tk)."""
    floats = torch.float16, torch.bfloat16, torch.float32, torch.float64
    for name, x in (("q", q), ("k", k)):
        if not isinstance(x, Tensor) or x.dtype not in floats:
            given = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(
                f"{name} must be a tensor of float16, bfloat16, float32 or "
                f"float64, got {given}: convert it, for example with .float()"
            )
        if x.ndim < 2:
            raise ValueError(
                f"{name} must be (..., length, width), "
                f"got shape {tuple(x.shape)}: "
                f"add a dimension, for example {name}[None] for one vector"
            )
    if q.dtype != k.dtype:
        raise TypeError(
            f"q and k must have one dtype, got {q.dtype} and {k.dtype}: "
            "convert one, for example k.to(q.dtype)"
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
            "without features there are no logits"
        )
    leads = (reversed(x.shape[:-2]) for x in (q, k))
    pairs = list(zip_longest(*leads, fillvalue=1))
    if any(a != b and 1 not in (a, b) for a, b in pairs):
        raise ValueError(
            "the leading dimensions must broadcast, got "
            f"q {tuple(q.shape)}, k {tuple(k.shape)}: make them equal or 1, "
            "for example with repeat_interleave for heads that share keys"
        )
    lead = [b if a == 1 else a for a, b in reversed(pairs)]
    shape = torch.Size([*lead, q.shape[-2], k.shape[-2]])
    if mask is None:
        return shape
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be a boolean tensor (True = may attend), got {given}: "
            "where 0 means attend pass mask == 0, "
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
    return shape
