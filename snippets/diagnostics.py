"""How sharp attention is: three numbers for each row of its weights."""

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
