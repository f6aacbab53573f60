"""Softmax and log-sum-exp under a mask, with a policy for rows without keys."""

import math
from typing import Literal

import torch
from torch import Tensor


def masked_softmax(
    logits: Tensor,
    mask: Tensor | None = None,
    *,
    empty: Literal["zeros", "nan", "error"] = "zeros",
) -> Tensor:
    """Softmax over the last dimension, of the keys that each row may attend to.

    Parameters
    ----------
    logits : Tensor, shape (..., Tk)
        Where they are -inf, the key is hidden too, as if by the mask.
    mask : Tensor of bool, broadcastable to the logits, optional
        True = may attend. Two dimensions, (Tq, Tk), or as many as the logits.
    empty : {"zeros", "nan", "error"}
        What a row without keys gets. "zeros": zero weights, and its logits get
        zero gradients whatever flows back to it. "nan": NaN, as from
        `torch.softmax`, in the row and in the gradients behind it. "error": a
        ValueError that names the row; it waits for the device and breaks a
        compiled graph.

    Returns
    -------
    Tensor, shape (..., Tk)
        In the dtype of the logits. Each row that has a key sums to 1.

    Raises
    ------
    TypeError
        When the logits are no floating-point tensor or the mask is not boolean.
    ValueError
        When the logits have no dimension, the mask does not broadcast to them,
        the policy is unknown, or it is "error" and a row is empty.

    Notes
    -----
    float16 and bfloat16 are computed in float32 and returned as they came. A
    logit that is NaN or +inf makes its row NaN, unless the mask hides it.

    There is no policy that shares a row without keys evenly: its output would
    be an average of the values that the mask was to hide.

    Source: Blanchard, Higham and Higham (2021), "Accurately computing the
    log-sum-exp and softmax functions", doi:10.1093/imanum/draa038, for the
    shift by the largest logit, which `torch.softmax` does.
    """
    if empty not in ("zeros", "nan", "error"):
        raise ValueError(
            f"empty must be 'zeros', 'nan' or 'error', got {empty!r}: "
            "choose what a row without keys gets"
        )
    hidden, alive = hide(logits, mask)
    if empty == "nan":
        return hidden.softmax(-1).to(logits.dtype)
    if empty == "error" and not alive.all():
        first = tuple((~alive[..., 0]).nonzero()[0].tolist())
        raise ValueError(
            f"every row must have a key, got {int((~alive).sum())} without "
            f"among {alive.numel()}, the first at {first}: correct the mask, "
            "or pass empty='zeros'"
        )
    # Replaced before the softmax, so that no NaN arises to flow back either.
    weights = hidden.masked_fill(~alive, 0.0).softmax(-1)  # (..., Tk)
    return weights.masked_fill(~alive, 0.0).to(logits.dtype)


def masked_logsumexp(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Logarithm of the sum of exp over the keys that each row may attend to.

    A row without keys has the logarithm of an empty sum, -inf, and zero
    gradients; `torch.logsumexp` has the same value and sends NaN back.

    Parameters
    ----------
    logits, mask : Tensor
        As for `masked_softmax`, with the same errors.

    Returns
    -------
    Tensor, shape (...)
        In the dtype of the logits. Half precision as in `masked_softmax`.
    """
    hidden, alive = hide(logits, mask)
    sums = hidden.masked_fill(~alive, 0.0).logsumexp(-1)  # (...)
    return sums.masked_fill(~alive[..., 0], -math.inf).to(logits.dtype)


def hide(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits in float32 or wider, -inf where hidden; which rows have a key.

    Shapes (..., Tk) and (..., 1).
    """
    check_rows(logits, mask)
    hidden = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if mask is not None:
        hidden = hidden.masked_fill(~mask, -math.inf)
    # Not equal, rather than greater: a row of NaN is wrong and not empty.
    return hidden, (hidden != -math.inf).any(-1, keepdim=True)


def check_rows(logits: Tensor, mask: Tensor | None) -> None:
    """Refuse logits and masks that do not fit, saying what to change."""
    floats = torch.float16, torch.bfloat16, torch.float32, torch.float64
    if not isinstance(logits, Tensor) or logits.dtype not in floats:
        tensor = isinstance(logits, Tensor)
        given = logits.dtype if tensor else type(logits).__name__
        raise TypeError(
            "logits must be a tensor of float16, bfloat16, float32 or float64, "
            f"got {given}: convert them with .float(), or make them with "
            "torch.tensor"
        )
    if logits.ndim == 0:
        raise ValueError(
            "logits must be (..., Tk), got a tensor without dimensions: "
            "give a row, for example logits[None]"
        )
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be a boolean tensor (True = may attend), got {given}: "
            "where 0 means attend (additive masks, nn.MultiheadAttention's "
            "inverted masks) pass mask == 0, "
            "where 1 means attend pass mask != 0"
        )
    sizes = zip(reversed(mask.shape), reversed(logits.shape), strict=False)
    if mask.ndim not in (min(2, logits.ndim), logits.ndim) or any(
        m not in (1, n) for m, n in sizes
    ):
        raise ValueError(
            f"mask must broadcast to the logits {tuple(logits.shape)} and have "
            f"2 of their dimensions or all, got {tuple(mask.shape)}: on "
            "(B, H, Tq, Tk) pass mask[:, None] for (B, Tq, Tk), mask[None] for "
            "(H, Tq, Tk), mask[:, None, None] for (B, Tk)"
        )
