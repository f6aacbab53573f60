"""The corpus as subjects of the contract: its settings in the words of `snippets.contract`."""

from typing import Any

import torch
from torch import Tensor

from snippets.contract import Attention, MultiHead
from tests.snippets.contract.entry import Entry

SHAPES = {"(B, Tk)": "(B, Tk)", "(B, Tq, Tk)": "(B, Tq, Tk)", "(Tq, Tk)": "(Tq, Tk)"}
POLICIES = {"zeros": "zeros", "nan": None, "": None}  # NaN is a hazard, not a promise


def alibi(n_queries: int, n_keys: int, n_heads: int = 4) -> Tensor:
    slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1, dtype=torch.float64) / n_heads)
    i = torch.arange(n_queries)[:, None] + n_keys - n_queries
    distance = (i - torch.arange(n_keys)).abs()
    return -slopes[:, None, None] * distance


def shared(settings: Any) -> dict[str, Any]:
    """What functions and modules have in common."""
    result: dict[str, Any] = {
        "mask": settings["mask"] or "none",
        "empty": POLICIES[settings["empty_rows"]],
        "scale": settings["scale"],
        "window": settings["window"],
        "soft_cap": settings.get("soft_cap"),
        "documents": "document_ids" if settings["documents"] else None,
    }
    if settings["causal"] or settings["window"]:
        result["causal"] = "always"
    elif settings["causal_argument"]:
        result["causal"] = settings["causal_argument"]
    return result


def attention(entry: Entry, *, seed: int = 0) -> Attention:
    """Subject with every setting that the entry gives."""
    s = entry.settings
    given = shared(s)
    given["layout"] = s["layout"]
    given["mask_shape"] = SHAPES.get(s["mask_shape"])
    given["sink"] = s["sink"]
    if s["causal"] or s["causal_argument"]:
        given["alignment"] = s["causal"] or s["alignment"]
    if s["window"]:
        given["alignment"] = "bottom-right"
    if s["groups"] > 1:
        given["n_kv_heads"] = 4 // s["groups"]
    if s["alibi"]:
        given["bias"] = alibi
    if s["half"]:
        given["dtypes"] = (torch.float16,)
    given["hidden_nan"] = entry.situation == "NaN hidden"
    if s["dropout_argument"]:
        given["dropout"] = s["dropout_argument"]
        given["training"] = s["training_argument"] or None
    return Attention(entry.make(), seed=seed, **given)


def rotated(base: float) -> Any:
    """Rotary positions on halves, from 0."""

    def rotate(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequencies
        first, second = x[..., :half], x[..., half:]
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    return rotate


def multi_head(entry: Entry, *, seed: int = 0, weights: bool = True) -> MultiHead:
    """Subject with every setting that the entry gives."""
    s = entry.settings
    given = shared(s)
    given["mask_shape"] = s["mask_shape"] if s["mask"] else None
    given["mask_argument"] = s["mask_argument"] or None
    if not s["mask_argument"] or not s["mask"]:
        given |= {"mask": "none", "mask_argument": None, "mask_shape": None}
    for name in ("d_model", "n_heads", "n_kv_heads", "batch_first", "d_memory"):
        given[name] = s[name]
    if s["memory"]:
        given["memory"] = True
    given["memory_mask"] = s["memory_mask_argument"] or None
    if s["rotary"]:
        given["rotate"] = rotated(s["rotary"])
        given["positions"] = True
    if s["dtype"] == torch.float16:
        given["dtypes"] = (torch.float16,)
    if entry.weights and weights and not s["qk_norm"]:
        given["weights"] = entry.weights
    return MultiHead(entry.make(), seed=seed, **given)
