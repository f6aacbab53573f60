"""Doubling."""

import torch


def double(x: torch.Tensor) -> torch.Tensor:
    """Return twice ``x``."""
    return 2 * x
