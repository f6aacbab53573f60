"""Run code as on a processor with other kernels, whose results differ in the last digits.

Kernels (default, AVX2, AVX-512) draw, sum and approximate in different ways, and no machine has all
of them. Inside ``Perturbed`` every result that is not exact moves by a few units in the last place.
Its own bits decide by how much: equal values stay equal, and a second run gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, cast
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._ops import HigherOrderOperator
from torch.nn.attention.bias import CausalBias
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

# What gives the same number on any processor: IEEE 754 rounds it, or it chooses, moves, compares.
_EXACT = frozenset(
    """
    abs add amax amin bernoulli cat clamp clone constant_pad_nd copy cummax cummin div dropout
    embedding empty empty_like empty_strided fill flip full full_like gather index index_add
    index_copy index_fill index_put index_select kthvalue lift_fresh_copy masked_fill masked_scatter
    masked_select max maximum median min minimum mode mul nan_to_num native_dropout neg new_empty
    new_full new_ones new_zeros nextafter ones ones_like rand rand_like reciprocal relu repeat roll
    rsub scalar_tensor scatter scatter_add select_backward select_scatter sign slice_backward
    slice_scatter sort sqrt stack sub topk tril triu where zeros zeros_like _index_put_impl _to_copy
    """.split()  # noqa: SIM905 (read as one text, it is six lines and not sixty)
)
_EIGHTHS = 2**20  # fewer of them are a sum of such, which any order gives
_BLOCK = 2**16  # numbers at a time, which stay in the processor's cache


@dataclass(frozen=True)
class _Form:
    """How numbers of one dtype move: by up to ``size`` of themselves."""

    whole: type[np.unsignedinteger[Any]]  # their bits, read as one integer
    golden: int  # odd, near 2**width / golden ratio: multiplied by it, neighbours part
    exact: int  # where these bits are 0, as in a half, any order of a sum gives the same
    size: float

    @cached_property
    def factors(self) -> NDArray[Any]:
        """What numbers are multiplied by, one for each value of 16 bits."""
        shares = np.linspace(-1, 1, 2**16)
        return (1 + self.size * shares).astype(f"f{np.dtype(self.whole).itemsize}")

    def move(self, numbers: NDArray[Any]) -> None:
        """Move each number in place, but for exact ones and past the largest."""
        packed = np.ascontiguousarray(numbers)
        flat = packed.reshape(-1)
        width = 8 * packed.itemsize
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            bits: NDArray[Any] = block.view(self.whole)
            with np.errstate(all="ignore"):
                mixed = (bits * self.whole(self.golden)) >> self.whole(width - 16)
                moved = block * self.factors[mixed]
                eighths = 8 * block
                counts = (np.rint(eighths) == eighths) & (np.abs(eighths) < _EIGHTHS)
            inexact = (bits & self.whole(self.exact) != 0) & ~counts
            np.copyto(block, moved, where=inexact & np.isfinite(moved))
        if not np.may_share_memory(packed, numbers):
            numbers[...] = packed


# The draws of two kernels differ by up to 1.8e-6 in float32. In float64 they are the same, and sums
# and exponentials differ by a few units in the last place.
_FORMS = {
    torch.float32: _Form(np.uint32, 0x9E3779B1, 2**10 - 1, 2e-6),
    torch.float64: _Form(np.uint64, 0x9E3779B97F4A7C15, 2**12 - 1, 1e-15),
}


class Perturbed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What runs inside gets floats, random draws included, as another CPU might give them."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # A CausalBias has to be made of a tensor that no mode has seen.
        self._patch = mock.patch.object(CausalBias, "__new__", _new_outside)

    def __enter__(self) -> Self:
        """Enter the mode."""
        self._patch.start()
        return cast(Self, super().__enter__())  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        """Leave the mode."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._patch.stop()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operation, then move what it computed."""
        kwargs = kwargs or {}
        given = func(*args, **kwargs)
        for value in _computed(func, args, kwargs, given):
            for tensor in tree_leaves(value):
                for form, numbers in _numbers(tensor):
                    form.move(numbers)
        return given

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let the compiler compile as it does outside."""
        return True


def _new_outside(cls: type[CausalBias], *_: object) -> CausalBias:
    with _disable_current_modes():
        return torch.Tensor.__new__(cls)


def _computed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> list[Any]:
    """Give what the operation computed anew, in other memory or in an argument's; not views."""
    if isinstance(func, HigherOrderOperator):
        return [given]
    schema = func._schema
    name = schema.name.removeprefix("aten::").removeprefix("_foreach_").removesuffix("_")
    # With an alpha, some kernels round a sum once and others twice.
    if name in _EXACT and kwargs.get("alpha", 1) == 1:
        return []
    returns = given
    if name.startswith("_scaled_dot_product") and not name.endswith("_backward"):
        returns = given[0]  # the rest is its own notes for the backward pass
    old = {_memory(tensor) for tensor in tree_leaves((args, kwargs))}
    new = [tensor for tensor in tree_leaves(returns) if _memory(tensor) not in old]
    positional = zip(schema.arguments, args, strict=False)
    named = ((form, kwargs[form.name]) for form in schema.arguments if form.name in kwargs)
    for form, value in (*positional, *named):
        if form.alias_info is not None and form.alias_info.is_write:
            new.append(value)
    return new


def _memory(given: object) -> int | None:
    """Where the memory of a plain tensor on the CPU begins; None for anything else."""
    if type(given) not in (torch.Tensor, torch.nn.Parameter):
        return None
    assert isinstance(given, torch.Tensor)
    if is_functorch_wrapped_tensor(given) or given._is_zerotensor():  # which have no memory
        return None
    plain = given.device.type == "cpu" and given.layout == torch.strided and not given.is_nested
    return given.untyped_storage().data_ptr() if plain else None


def _numbers(given: object) -> Iterator[tuple[_Form, NDArray[Any]]]:
    """Give a tensor's numbers, to be changed in place; a complex one's are two arrays."""
    if not _memory(given):
        return
    assert isinstance(given, torch.Tensor)
    form = _FORMS.get(given.dtype.to_real() if given.is_complex() else given.dtype)
    if form:
        array = np.asarray(_Memory(given))
        for part in (array.real, array.imag) if given.is_complex() else (array,):
            yield form, part


class _Memory:
    """A tensor's memory as NumPy finds it; ``Tensor.numpy`` would show in a profile."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor  # which keeps the memory
        width = tensor.element_size()
        self.__array_interface__ = {
            "version": 3,
            "shape": tuple(tensor.shape),
            "strides": tuple(step * width for step in tensor.stride()),
            "typestr": f"<{'c' if tensor.is_complex() else 'f'}{width}",
            "data": (tensor.data_ptr(), False),
        }
