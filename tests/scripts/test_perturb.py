from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.bias import CausalBias, causal_lower_right
from torch.nn.attention.flex_attention import flex_attention
from torch.profiler import ProfilerActivity, profile

from scripts.perturb import Perturbed
from scripts.project import Project
from tests.spoil import TINY, TINY_MODULE, alter, problems, said

SIZES = {torch.float32: 2e-6, torch.float64: 1e-15}
CLOSE = {torch.float32: 3e-6, torch.float64: 2e-15}  # a move, and the rounding of what moved


@cache
def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def moved(call: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What the call gives outside the mode and inside, from the same seed and the same draws."""
    torch.manual_seed(0)
    outside = call()
    torch.manual_seed(0)
    with Perturbed():
        return outside, call()


def heads(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = draw(3, 2, 4, 32, 8, dtype=dtype).unbind()  # (B, H, T, d) each
    return q, k, v


def gradient(dtype: torch.dtype) -> Tensor:
    x = draw(64, dtype=dtype).clone().requires_grad_()
    x.exp().sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    return x.grad


def values_gradient(dtype: torch.dtype) -> Tensor:
    q, k, v = heads(dtype)
    v = v.clone().requires_grad_()
    F.scaled_dot_product_attention(q, k, v).sum().backward()  # type: ignore[no-untyped-call]
    assert v.grad is not None
    return v.grad


INEXACT: dict[str, Callable[[torch.dtype], Tensor]] = {
    "randn": lambda dtype: torch.randn(1000, dtype=dtype),
    "in place": lambda dtype: torch.empty(1000, dtype=dtype).normal_(),
    "out": lambda dtype: torch.exp(draw(1000, dtype=dtype), out=torch.empty(1000, dtype=dtype)),
    "exp": lambda dtype: draw(1000, dtype=dtype).exp(),
    "softmax": lambda dtype: draw(20, 50, dtype=dtype).softmax(-1),
    "sum": lambda dtype: draw(200, 50, dtype=dtype).sum(-1),
    "matmul": lambda dtype: draw(20, 8, dtype=dtype) @ draw(8, 20, dtype=dtype),
    "attention": lambda dtype: F.scaled_dot_product_attention(*heads(dtype)),
    "add with alpha": lambda dtype: draw(99, dtype=dtype).add(draw(99, dtype=dtype) + 1, alpha=0.3),
    "index_add with alpha": lambda dtype: draw(9, 9, dtype=dtype).index_add(
        0, torch.arange(9), draw(81, dtype=dtype).view(9, 9) + 1, alpha=0.3
    ),
    "backward": gradient,
    "backward of attention": values_gradient,
    "foreach": lambda dtype: torch._foreach_exp([draw(99, dtype=dtype)])[0],
    "complex": lambda dtype: torch.view_as_real(
        torch.polar(draw(99, dtype=dtype).abs(), draw(99, dtype=dtype))
    ),
    "not contiguous": lambda dtype: draw(50, 30, dtype=dtype).t().exp(),
}
EXACT: dict[str, Callable[[torch.dtype], Tensor]] = {
    "rand": lambda dtype: torch.rand(1000, dtype=dtype),
    "add": lambda dtype: draw(99, dtype=dtype) + draw(99, dtype=dtype) / 3,
    "multiply in place": lambda dtype: draw(99, dtype=dtype).clone().mul_(1 / 3),
    "square root": lambda dtype: draw(99, dtype=dtype).abs().sqrt(),
    "views": lambda dtype: draw(9, 11, dtype=dtype).t()[1:].reshape(3, -1).contiguous().flatten(),
    "a number": lambda dtype: torch.where(draw(99) > 0, -1e9, 0.1).to(dtype),
    "dropout that is off": lambda dtype: F.dropout(draw(99, dtype=dtype), 0.5, training=False),
    "a count": lambda dtype: (draw(1000, dtype=dtype) > 0).to(dtype).sum(),
    "whole numbers": lambda dtype: (
        torch.full((1, 64), 40.0, dtype=dtype) @ draw(64, 9).round().to(dtype)
    ),
    "quarters": lambda dtype: (
        torch.full((1, 64), 39.75, dtype=dtype) @ draw(64, 9).round().to(dtype)
    ),
    "no number": lambda dtype: torch.tensor([0.0, -1.0], dtype=dtype).log(),
}


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", INEXACT)
def test_what_kernels_round_in_their_own_way_moves_a_little(name: str, dtype: torch.dtype) -> None:
    outside, inside = moved(lambda: INEXACT[name](dtype))
    far = ((inside - outside).abs() / outside.abs().clamp(min=1e-30)).flatten()
    # A sum that cancels moves by more of itself, since its terms moved.
    bound = SIZES[dtype] if name in ("randn", "exp", "in place", "out") else 100 * SIZES[dtype]
    assert far.median() > SIZES[dtype] / 20, f"{far.median():.1e} in the middle"
    assert far.max() < 1.5 * bound, f"{far.max():.1e} at most"


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", EXACT)
def test_what_all_kernels_give_stays(name: str, dtype: torch.dtype) -> None:
    outside, inside = moved(lambda: EXACT[name](dtype))
    torch.testing.assert_close(inside, outside, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", SIZES)
def test_the_largest_number_stays_finite(dtype: torch.dtype) -> None:
    largest = torch.full((9, 1), torch.finfo(dtype).max, dtype=dtype) * (1 - SIZES[dtype] / 2)
    _, inside = moved(lambda: largest.cumsum(1))
    assert inside.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_since_its_own_rounding_is_coarser(dtype: torch.dtype) -> None:
    outside, inside = moved(lambda: draw(1000).to(dtype).exp())
    assert torch.equal(outside, inside)


def test_what_is_equal_stays_equal_and_a_second_run_gives_the_same() -> None:
    def twins() -> Tensor:
        x = draw(4, 7)
        return torch.stack([x.softmax(-1), x.clone().softmax(-1), x.repeat(2, 1).softmax(-1)[4:]])

    _, inside = moved(twins)
    assert torch.equal(inside[0], inside[1])
    assert torch.equal(inside[0], inside[2])
    assert torch.equal(moved(twins)[1], inside)


def test_neighbours_move_apart() -> None:
    bits = torch.arange(0x3F800001, 0x3F800001 + 4000, dtype=torch.int32)
    outside, inside = moved(lambda: bits.view(torch.float32).double().float() ** 1.0)
    steps = (inside.double() - outside.double()).sign()
    assert (steps[1:] != steps[:-1]).double().mean() > 0.4


def test_a_view_that_is_handed_back_moves_once() -> None:
    def chain() -> Tensor:
        with torch.inference_mode():
            x = torch.exp(draw(99))
            return F.dropout(x, 0.5, training=False).reshape(9, 11).contiguous().flatten()

    outside, inside = moved(chain)
    assert ((inside - outside).abs() / outside).max() < CLOSE[torch.float32]


def test_the_backward_pass_of_attention_keeps_what_its_forward_pass_noted() -> None:
    def backward() -> Tensor:
        q, k, v = (x.clone().requires_grad_() for x in heads(torch.float32))
        floor = torch.full((32, 32), torch.finfo(torch.float32).min)
        F.scaled_dot_product_attention(q, k, v, floor).sum().backward()  # type: ignore[no-untyped-call]
        assert v.grad is not None
        return v.grad

    outside, inside = moved(backward)
    torch.testing.assert_close(inside, outside, rtol=1e-4, atol=1e-4)


def test_a_profile_and_a_compiler_see_what_they_see_outside() -> None:
    def profiled() -> list[str]:
        x = draw(9)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            x.exp()
        names = dict.fromkeys(event.name for event in seen.events())
        return [name for name in names if name.startswith("aten")]

    outside = profiled()
    with Perturbed():
        assert profiled() == outside
        with warnings.catch_warnings():  # that it is not compiled
            warnings.simplefilter("ignore")
            flex = flex_attention(*heads(torch.float64))
    built_in = F.scaled_dot_product_attention(*heads(torch.float64))
    assert isinstance(flex, Tensor)
    assert 0 < (flex - built_in).abs().max() < 1e-12


def test_what_is_made_of_other_memory_can_be_made() -> None:
    def lower() -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bias = causal_lower_right(2, 32)
        q, k, v = heads(torch.float32)
        return F.scaled_dot_product_attention(q[:, :, :2], k, v, bias)

    outside, inside = moved(lower)
    assert 0 < (outside - inside).abs().max() < 1e-4
    assert type(causal_lower_right(2, 2)).__name__ == "CausalBias"
    with warnings.catch_warnings():  # that an import of PyTorch's uses what is deprecated
        warnings.simplefilter("ignore")
        _, forward = moved(lambda: torch.func.jvp(torch.exp, (draw(9),), (torch.ones(9),))[1])
    assert forward.isfinite().all()
    assert moved(lambda: nn.Linear(3, 2).weight)[1].requires_grad


# One number at a time

WIDTHS = {torch.float32: 32, torch.float64: 64}
MULTIPLIERS = {32: 2654435761, 64: 11400714819323198485}  # Knuth's prime; 2**64 / golden ratio


def move(*numbers: float, dtype: torch.dtype = torch.float64) -> list[float]:
    """What the numbers are after one operation that is not exact, and gives them as they are."""
    given = torch.tensor(numbers, dtype=dtype)
    with Perturbed():
        moved_numbers: list[float] = (given**1.0).tolist()
    return moved_numbers


def by_hand(number: float, dtype: torch.dtype) -> float:
    """The number moved as the mode's documentation says, in Python's own integers."""
    width = WIDTHS[dtype]
    code = "fI" if width == 32 else "dQ"
    [bits] = struct.unpack(code[1], struct.pack(code[0], number))
    share: float = (MULTIPLIERS[width] * bits % 2**width >> width - 16) / (2**16 - 1)  # from 0 to 1
    return number * (1 + SIZES[dtype] * (2 * share - 1))


@pytest.mark.parametrize("dtype", SIZES)
def test_the_bits_of_a_number_decide_how_far_it_moves(dtype: torch.dtype) -> None:
    numbers = draw(999, dtype=dtype).tolist()
    unit = torch.finfo(dtype).eps
    for number, told in zip(numbers, move(*numbers, dtype=dtype), strict=True):
        # The factor is rounded to the dtype, and so is the product.
        assert abs(told - by_hand(number, dtype)) <= 1.01 * unit * abs(number), number


def test_each_block_of_a_long_array_moves() -> None:
    numbers = draw(70_000, dtype=torch.float64).tolist()
    assert move(*numbers)[-9:] == move(*numbers[-9:]) != numbers[-9:]


@pytest.mark.parametrize(("dtype", "last"), [(torch.float32, 13), (torch.float64, 40)])
def test_a_number_with_few_bits_stays(dtype: torch.dtype, last: int) -> None:
    mantissa = {torch.float32: 23, torch.float64: 52}[dtype]
    for place in (1, 5, last):
        few = [sign * 2.0**n * (1 + 2.0**-place) for n in range(-40, -9) for sign in (1, -1)]
        assert move(*few, dtype=dtype) == few, place
    for place in (last + 1, mantissa):
        many = [sign * 2.0**n * (1 + 2.0**-place) for n in range(-40, -9) for sign in (1, -1)]
        far = sum(a != b for a, b in zip(move(*many, dtype=dtype), many, strict=True))
        assert far > len(many) / 2, place


@pytest.mark.parametrize("sign", [1, -1])
def test_a_small_count_of_eighths_stays(sign: int) -> None:
    counts = [sign * (2**20 - n) / 8 for n in (1, 3, 5, 7)]
    assert move(*counts, dtype=torch.float32) == counts
    more = [sign * (2**20 + n) / 8 for n in range(1, 64, 2)]
    far = [a != b for a, b in zip(move(*more, dtype=torch.float32), more, strict=True)]
    assert sum(far) > len(far) / 2


# The mode


def test_the_mode_ends_where_its_block_ends() -> None:
    made, mode = CausalBias.__new__, Perturbed()
    with mode as entered:
        assert entered is mode
        assert CausalBias.__new__ is not made
    assert CausalBias.__new__ is made
    assert torch.equal(draw(99).exp(), draw(99).exp())
    assert not torch.equal(*moved(draw(99).exp))


def test_an_operation_may_be_given_without_keywords() -> None:
    given = Perturbed().__torch_dispatch__(torch.ops.aten.exp.default, (), (draw(99),))
    assert torch.equal(given, moved(draw(99).exp)[1])


def test_what_attention_notes_for_its_backward_pass_stays() -> None:
    run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    outside, noted = run(*heads(torch.float32))
    with Perturbed():
        inside, then_noted = run(*heads(torch.float32))
    assert not torch.equal(outside, inside)
    assert torch.equal(noted, then_noted)


def test_all_that_an_operation_gives_moves() -> None:
    with Perturbed():
        inside = torch.var_mean(draw(9, 50, dtype=torch.float64), dim=1)
    for far, value in zip(
        inside, torch.var_mean(draw(9, 50, dtype=torch.float64), dim=1), strict=True
    ):
        assert not torch.equal(far, value)


# The command

DRAWN = """\
def example_doubled():
    torch.manual_seed(0)
    x = torch.randn(16)[5]"""
SPOILT = {
    "an output": ("{x:.3f} is {y:.3f}", "{x:.3f} is {y:.8f}"),
    "a number": ("y.item()}", "y.item() * 1e5 % 1}"),
    "a table": ('"one", "twice x": 2}', '"one", "twice x": torch.randn(16)[5].item()}'),
    "a figure": ("[0, 1], [0, 2]", "torch.randn(16).tolist()"),
}


@pytest.fixture
def drawing(small_site: Project) -> Project:
    """A site that prints what it draws in float32, in few digits."""
    alter(
        small_site,
        TINY_MODULE,
        "def example_doubled():\n    x = torch.tensor(1 / 3, dtype=torch.float64)",
        DRAWN,
    )
    return small_site


def test_few_digits_of_a_draw_stay_on_any_processor(drawing: Project) -> None:
    assert said(drawing)[0] == 0
    assert said(drawing, "--check", TINY)[0] == 0
    assert said(drawing, "--check", "--perturbed", TINY)[0] == 0


@pytest.mark.parametrize("what", SPOILT)
def test_what_depends_on_the_processor_is_named(drawing: Project, what: str) -> None:
    alter(drawing, TINY_MODULE, *SPOILT[what])
    said(drawing)
    said(drawing)  # a number is rounded at the second build only if the first one wrote its text
    assert said(drawing, "--check", TINY)[0] == 0
    found = problems(drawing, "--check", "--perturbed", TINY)
    assert found
    assert all(line.startswith(f"{TINY}:") for line in found)
    assert all("printed" in line for line in found), found


def test_what_a_page_calls_a_kernels_own_runs_as_it_is(drawing: Project) -> None:
    alter(drawing, TINY_MODULE, *SPOILT["a table"])
    alter(drawing, TINY_MODULE, "", '\n\nKERNELS_OWN = ("table_doubles",)\n')
    assert said(drawing)[0] == 0
    assert said(drawing, "--check", "--perturbed", TINY)[0] == 0


def test_a_kernels_own_result_has_to_exist(small_site: Project) -> None:
    alter(small_site, TINY_MODULE, "", '\n\nKERNELS_OWN = ("table_halves",)\n')
    [line] = problems(small_site, "--check", TINY)
    message = "KERNELS_OWN names table_halves, which the module does not define"
    assert line == f"{TINY_MODULE}:1: {message}"


@pytest.mark.parametrize("more", [[], ["--check", "--device", "cuda"]])
def test_only_a_check_on_the_cpu_is_perturbed(
    small_site: Project, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        said(small_site, "--perturbed", *more)
    assert "give --check, and no other --device" in capsys.readouterr().err
