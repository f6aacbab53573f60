"""What the corpus of position schemes and caches is written with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Make = Callable[[], Any]
Apply = Callable[..., Any]


@dataclass(frozen=True)
class Entry:
    """One subject: `make()` gives it, `settings` say how it is called."""

    make: Make
    settings: Mapping[str, Any]
    mistake: str = ""  # the check that should find it
    needs: str = ""  # "specification" where no general property is broken
    also: tuple[str, ...] = ()  # other checks that may find it
    situation: str = "ordinary"  # where it differs from right code
    source: str = ""  # a public report of the kind
    listed: bool = True  # False: a kind that is not among those asked for


def collect(
    into: dict[str, Entry], settings: Mapping[str, Any], **rest: Any
) -> Callable[[Make], Make]:
    """Put the factory that follows into the registry, under its own name."""

    def put(make: Make) -> Make:
        name = make.__name__
        assert name not in into, name
        into[name] = Entry(make, settings, **rest)
        return make

    return put


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Normal draws that the subject and its reference share."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rotary(**changes: Any) -> dict[str, Any]:
    """Settings of a rotary scheme."""
    usual: dict[str, Any] = {
        "scheme": "rotary",
        "call": "x, positions",
        "layout": "(B, H, T, d)",
        "pairing": "half",
        "head_width": 8,
        "rotary_dim": 8,
        "base": 10000.0,
        "scaling": None,
        "direction": 1,
        "position_shift": 0,
        "factor": 1.0,
        "output_order": None,
        "max_positions": None,
    }
    assert changes.keys() <= usual.keys(), changes
    return usual | changes


def additive(**changes: Any) -> dict[str, Any]:
    """Settings of a bias that is added to the scores."""
    usual: dict[str, Any] = {
        "scheme": "additive",
        "call": "n_queries, n_keys",
        "bias": "alibi",
        "n_heads": 8,
        "causal": True,
        "symmetric": False,
        "row_constant": False,
        "masked_future": False,
        "buckets": None,
        "max_distance": None,
    }
    assert changes.keys() <= usual.keys(), changes
    return usual | changes


def absolute(**changes: Any) -> dict[str, Any]:
    """Settings of a table that is added to the inputs."""
    usual: dict[str, Any] = {
        "scheme": "absolute",
        "call": "positions",
        "table": "sinusoidal",
        "order": "interleaved",
        "d_model": 16,
        "base": 10000.0,
        "max_positions": None,
    }
    assert changes.keys() <= usual.keys(), changes
    return usual | changes


def cached(**changes: Any) -> dict[str, Any]:
    """Settings of a decoder with a cache."""
    usual: dict[str, Any] = {
        "d_model": 16,
        "n_heads": 4,
        "n_kv_heads": 4,
        "head_width": 4,
        "layers": 1,
        "positions": "rotary",
        "pairing": "half",
        "scaling": None,
        "window": None,
        "sinks": 0,
        "state": "argument",
        "input": "features",
        "vocabulary": None,
        "padding": None,
        "max_length": None,
        "log_n": False,
        "latent": None,
        "dtype": "float32",
    }
    assert changes.keys() <= usual.keys(), changes
    return usual | changes


@dataclass(frozen=True)
class Pair:
    """One causal pass, and the same in steps; `reset` where the cache is held inside."""

    full: Apply
    step: Apply
    reset: Callable[[], None] | None = None


@dataclass(frozen=True)
class Weights:
    """One attention layer."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor


def weights(n_heads: int = 4, n_kv_heads: int = 4, seed: int = 0) -> Weights:
    """Weights (C, width) of heads of width 4 at C = 16."""
    width, kv_width = 4 * n_heads, 4 * n_kv_heads
    return Weights(
        draw(16, width, seed=4 * seed + 1) / 3,
        draw(16, kv_width, seed=4 * seed + 2) / 3,
        draw(16, kv_width, seed=4 * seed + 3) / 4,
        draw(width, 16, seed=4 * seed + 4) / 4,
    )
