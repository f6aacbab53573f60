"""Run plain code on another device with the random numbers that a CPU would draw."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CREATE = {torch.rand, torch.randn, torch.randint, torch.randperm}
_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like}
_SAMPLE = {torch.bernoulli, torch.multinomial, torch.poisson}
_FILL = {
    torch.Tensor.normal_,
    torch.Tensor.uniform_,
    torch.Tensor.bernoulli_,
    torch.Tensor.exponential_,
    torch.Tensor.random_,
    # These reach a mode whole, not as the Tensor methods that they call.
    torch.nn.init.uniform_,
    torch.nn.init.normal_,
    torch.nn.init.kaiming_uniform_,
}


class NoDeviceError(RuntimeError):
    """The device that was asked for is not on this machine."""


class _DrawnOnCpu(TorchFunctionMode):
    """Every draw happens on the CPU and is moved: a seed gives the same numbers anywhere."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _CREATE | _LIKE and kwargs.get("device") is None:
            # Moved before it may need a gradient: a moved tensor would be no leaf.
            needs_grad = kwargs.get("requires_grad", False)
            drawn = func(*args, **{**kwargs, "device": "cpu", "requires_grad": False})
            target = args[0].device if func in _LIKE else self.device
            return drawn.to(target).requires_grad_(needs_grad)
        if func in _SAMPLE:
            return func(args[0].cpu(), *args[1:], **kwargs).to(args[0].device)
        if func in _FILL:
            filled, *others = args or (kwargs.pop("tensor"),)
            drawn = func(torch.empty_like(filled, device="cpu"), *others, **kwargs)
            with torch.no_grad():
                return filled.copy_(drawn)
        return func(*args, **kwargs)


@contextlib.contextmanager
def on_device(name: str) -> Iterator[None]:
    """Make ``name`` the default device inside the block; raises NoDeviceError without one."""
    if name == "cpu":
        yield
        return
    there = torch.cuda if name == "cuda" else torch.backends.mps
    if name in ("cuda", "mps") and not there.is_available():
        raise NoDeviceError(f"no {name} device is available here: use --device cpu")
    device = torch.device(name)
    with device, _DrawnOnCpu(device):
        yield
