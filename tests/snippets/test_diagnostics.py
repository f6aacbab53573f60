import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.attention import attention
from snippets.diagnostics import effective_keys, entropy, head_distance, largest_logit, peak
from tests.snippets.reference import (
    DEVICES,
    DTYPES,
    assert_rounded,
    entropy_by_hand,
    head_distance_by_hand,
    largest_logit_by_hand,
    normal,
)

ALL = (entropy, effective_keys, peak)
each = pytest.mark.parametrize("measure", ALL, ids=lambda measure: measure.__name__)


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@st.composite
def rows(draw: st.DrawFn) -> Tensor:
    """Draw rows of weights of any sharpness, some of zeros only, in every dtype."""
    shape = [*draw(st.lists(st.integers(0, 3), max_size=2)), draw(st.integers(1, 6))]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = draw(st.sampled_from((0, 1, 30, 1000))) * torch.randn(shape, generator=generator)
    alive = torch.rand(*shape[:-1], 1, generator=generator) < 0.8
    return (logits.softmax(-1) * alive).to(draw(st.sampled_from(DTYPES)))


@settings(deadline=None, derandomize=True, max_examples=100)
@given(weights=rows())
def test_matches_the_definition(weights: Tensor, device: str) -> None:
    assume(device != "mps" or weights.dtype != torch.float64)
    expected = entropy_by_hand(weights)
    found = [measure(weights.to(device)) for measure in ALL]
    assert all(x.dtype == weights.dtype for x in found)
    assert_rounded(found[0], expected)
    assert_rounded(found[1], expected.exp())
    assert_close(found[2].cpu(), weights.sort(-1).values[..., -1], rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 50, 1000])
def test_even_weights(n: int, device: str) -> None:
    weights = torch.full((3, n), 1 / n, device=device)
    every = torch.ones(3, dtype=torch.float64)
    assert_rounded(entropy(weights), every * math.log(n))
    assert_rounded(effective_keys(weights), every * n)
    assert_rounded(peak(weights), every / n)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_key_that_takes_all(dtype: torch.dtype, device: str) -> None:
    weights = (normal(4, 4, dtype=dtype, device=device) * 0 + torch.eye(4, device=device)).to(dtype)
    assert entropy(weights).tolist() == [0.0] * 4
    assert not entropy(weights).signbit().any()
    assert effective_keys(weights).tolist() == [1.0] * 4
    assert peak(weights).tolist() == [1.0] * 4


def test_a_query_without_keys(device: str) -> None:
    weights = torch.zeros(2, 5, device=device)
    assert [measure(weights).tolist() for measure in ALL] == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    assert not entropy(weights).signbit().any()


@each
def test_an_empty_batch(measure: Callable[[Tensor], Tensor], device: str) -> None:
    assert measure(torch.zeros(0, 3, 5, device=device)).shape == (0, 3)


@each
def test_gradients_match_finite_differences(
    measure: Callable[[Tensor], Tensor], device: str
) -> None:
    weights = normal(3, 5, dtype=torch.float64, device=device).softmax(-1).requires_grad_()
    assert torch.autograd.gradcheck(measure, weights)
    assert torch.autograd.gradgradcheck(measure, weights)


@each
def test_gradients_through_a_saturated_softmax_are_finite(
    measure: Callable[[Tensor], Tensor], device: str
) -> None:
    logits = torch.tensor([[0.0, -200.0, -math.inf], [0.0, 1.0, -math.inf]], device=device)
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(measure(logits.softmax(-1)).sum(), logits)
    assert gradient.isfinite().all()
    assert (gradient[0] == 0).all()
    assert (gradient[1, :2] != 0).all()


def test_a_weight_of_exactly_0_has_no_gradient_in_the_entropy(device: str) -> None:
    rows = torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75], [0.0, 0.0, 0.0]], device=device)
    rows.requires_grad_()
    (gradient,) = torch.autograd.grad(entropy(rows).sum(), rows)
    # The derivative of -w ln w is -1 - ln w.
    expected = [
        [-1 - math.log(w) if w else 0.0 for w in row]
        for row in ([0, 1, 0], [0.25, 0, 0.75], [0] * 3)
    ]
    assert_close(gradient.cpu(), torch.tensor(expected))


def test_weights_that_tie_share_the_gradient_of_the_peak(device: str) -> None:
    weights = torch.tensor([0.4, 0.2, 0.4], device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(peak(weights), weights)
    assert gradient.tolist() == [0.5, 0.0, 0.5]


def test_random_scores_sharpen_with_the_width() -> None:
    torch.manual_seed(0)
    found = []
    for d in (8, 64, 512):
        weights = torch.cat(
            [(torch.randn(1, d) @ torch.randn(50, d).mT).softmax(-1) for _ in range(200)]
        )
        clamped = -(weights * weights.clamp_min(1e-12).log()).sum(-1)
        assert_close(entropy(weights), clamped, rtol=0, atol=1e-6)
        median = peak(weights).median().item(), entropy(weights).median().item()
        found.append(f"{median[0]:.3f} {median[1]:.2f}")
    assert found == ["0.403 2.05", "0.852 0.56", "0.998 0.01"]


@each
@pytest.mark.parametrize(
    ("weights", "error", "parts"),
    [
        ([0.5, 0.5], TypeError, ["floating-point tensor", "got list", ".float()"]),
        (torch.tensor([1, 0]), TypeError, ["floating-point tensor", "got torch.int64", ".float()"]),
        (torch.tensor(1.0), ValueError, ["(..., Tk)", "got shape ()"]),
        (torch.zeros(3, 0), ValueError, ["one key or more", "got shape (3, 0)"]),
    ],
    ids=["list", "integers", "scalar", "no key"],
)
def test_refuses_what_is_not_weights(
    measure: Callable[[object], Tensor], weights: object, error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        measure(weights)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


# How different heads are


@st.composite
def maps(draw: st.DrawFn) -> Tensor:
    """Draw the maps of heads, of any sharpness, some rows of zeros only, in every dtype."""
    lead = draw(st.lists(st.integers(0, 2), max_size=2))
    shape = [*lead, *(draw(st.integers(0, 4)) for _ in range(2)), draw(st.integers(1, 5))]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    logits = draw(st.sampled_from((0, 1, 30, 1000))) * torch.randn(shape, generator=generator)
    alive = torch.rand(*shape[:-1], 1, generator=generator) < draw(st.sampled_from((0.0, 0.5, 1.0)))
    return (logits.softmax(-1) * alive).to(draw(st.sampled_from(DTYPES)))


@settings(deadline=None, derandomize=True, max_examples=100)
@given(weights=maps())
def test_head_distance_matches_the_definition_and_is_a_distance(
    weights: Tensor, device: str
) -> None:
    assume(device != "mps" or weights.dtype != torch.float64)
    found = head_distance(weights.to(device))
    assert found.dtype == weights.dtype
    assert_rounded(found, head_distance_by_hand(weights))
    slack = 2 * torch.finfo(weights.dtype).eps
    assert ((found >= 0) & (found <= 1 + slack)).all()
    assert_close(found, found.mT, rtol=0, atol=0)
    assert (found.diagonal(dim1=-2, dim2=-1) == 0).all()
    direct, detour = found[..., :, None, :], found[..., :, :, None] + found[..., None, :, :]
    assert (direct <= detour + 2 * slack).all()


def test_equal_heads_are_at_0_and_heads_that_share_no_key_at_1(device: str) -> None:
    first, second = torch.eye(4, device=device), torch.eye(4, device=device).roll(1, -1)
    even = torch.full((4, 4), 0.25, device=device)
    found = head_distance(torch.stack([first, first, second, even]))
    expected = [[0, 0, 1, 0.75], [0, 0, 1, 0.75], [1, 1, 0, 0.75], [0.75, 0.75, 0.75, 0]]
    assert found.tolist() == expected


def test_a_query_without_keys_is_left_out_or_at_distance_1(device: str) -> None:
    weights = torch.tensor(
        [
            [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]],
            [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
            [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]],
        ],
        device=device,
    )
    assert head_distance(weights).tolist() == [[0.0, 0.5, 1.0], [0.5, 0.0, 0.5], [1.0, 0.5, 0.0]]
    assert head_distance(weights[:, 2:]).tolist() == [[0.0] * 3] * 3


def test_the_distance_bounds_how_far_apart_the_outputs_are(device: str) -> None:
    logits = normal(5, 200, 6, dtype=torch.float64, device=device)
    values = normal(6, 3, dtype=torch.float64, device=device, seed=1)
    weights = logits.softmax(-1)  # (5, 200, 6)
    width = values.amax(0) - values.amin(0)
    for i in range(200):
        row = weights[:, i : i + 1]
        outputs = (row @ values)[:, 0]  # (5, 3)
        apart = (outputs - outputs.roll(1, 0)).abs()
        distance = head_distance(row)
        bound = torch.stack([distance[h, h - 1] for h in range(5)])[:, None] * width
        assert (apart <= bound + 1e-12).all()


def test_heads_in_another_order_have_their_distances_in_that_order(device: str) -> None:
    weights = normal(2, 4, 5, 6, dtype=torch.float64, device=device).softmax(-1)
    order = [2, 0, 3, 1]
    expected = head_distance(weights)[:, order][:, :, order]
    assert_close(head_distance(weights[:, order]), expected)
    assert_close(head_distance(weights[1]), head_distance(weights)[1])


def test_half_precision_averages_many_queries_in_float32(device: str) -> None:
    weights = normal(2, 4096, 8, dtype=torch.float16, device=device).softmax(-1)
    expected = head_distance(weights.double())
    assert_rounded(head_distance(weights), expected.cpu())


def test_gradients_of_the_distance_match_finite_differences(device: str) -> None:
    logits = normal(3, 2, 4, dtype=torch.float64, device=device).requires_grad_()

    def measure(logits: Tensor) -> Tensor:
        return head_distance(logits.softmax(-1))

    assert torch.autograd.gradcheck(measure, logits)
    assert torch.autograd.gradgradcheck(measure, logits)


@pytest.mark.parametrize(
    ("weights", "error", "parts"),
    [
        ([[[0.5]]], TypeError, ["floating-point tensor", "got list"]),
        (torch.zeros(2, 3, 0), ValueError, ["one key or more", "got shape (2, 3, 0)"]),
        (torch.ones(3, 3), ValueError, ["(..., H, Tq, Tk)", "got shape (3, 3)", "averaged"]),
    ],
    ids=["list", "no key", "one head"],
)
def test_head_distance_refuses_what_is_not_maps_of_heads(
    weights: Any, error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        head_distance(weights)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


# The largest logit

Pairs = tuple[Tensor, Tensor, Tensor | None]


@st.composite
def pairs(draw: st.DrawFn) -> Pairs:
    """Draw q, k and a mask or none, in shapes that broadcast and lengths from 0 on."""
    lead = draw(st.lists(st.integers(0, 3), max_size=2))
    tq, tk, d = draw(st.integers(0, 5)), draw(st.integers(0, 5)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def part_of(shape: list[int]) -> list[int]:
        kept = shape[draw(st.integers(0, len(shape))) :]
        return [n if draw(st.booleans()) else 1 for n in kept]

    dtype = draw(st.sampled_from(DTYPES))
    q, k = (torch.randn(*part_of(lead), n, d, generator=generator).to(dtype) for n in (tq, tk))
    share = draw(st.sampled_from((None, 0.0, 0.4, 1.0)))
    if share is None:
        return q, k, None
    logits = [*(q @ k.mT).shape]
    kept = draw(st.sampled_from((logits, logits[-2:])))
    mask = [n if draw(st.booleans()) else 1 for n in kept]
    return q, k, torch.rand(mask, generator=generator) < share


@settings(deadline=None, derandomize=True, max_examples=100)
@given(inputs=pairs(), scale=st.sampled_from((None, 1.0, 0.0, -0.5)))
def test_largest_logit_matches_the_definition(
    inputs: Pairs, scale: float | None, device: str
) -> None:
    q, k, mask = inputs
    assume(device != "mps" or q.dtype != torch.float64)
    moved = None if mask is None else mask.to(device)
    found = largest_logit(q.to(device), k.to(device), moved, scale=scale)
    assert found.dtype == torch.promote_types(q.dtype, torch.float32)
    assert_rounded(found, largest_logit_by_hand(q, k, mask, scale))


@pytest.mark.parametrize("tq", [127, 128, 129, 300])
@pytest.mark.parametrize("rows", ["one row of the mask", "a row for each query"])
def test_many_queries_are_all_looked_at(tq: int, rows: str, device: str) -> None:
    q = normal(2, 3, tq, 8, dtype=torch.float64, device=device)
    k = normal(2, 1, 50, 8, dtype=torch.float64, device=device, seed=1)
    shape = (2, 1, tq if "each" in rows else 1, 50)
    mask = normal(*shape, dtype=torch.float64, device=device, seed=2) > 1
    logits = (q @ k.mT / math.sqrt(8)).abs()
    expected = torch.where(mask, logits, 0.0).flatten(-2).amax(-1)
    assert_close(largest_logit(q, k, mask), expected)
    last = mask.clone().expand(2, 1, tq, 50).clone()
    last[..., :-1, :] = False
    expected = torch.where(last, logits, 0.0).flatten(-2).amax(-1)
    assert_close(largest_logit(q, k, last), expected)


def test_the_logits_of_every_query_are_never_there_at_once(device: str) -> None:
    class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
        numbers = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            for x in result if isinstance(result, tuple | list) else [result]:
                if isinstance(x, Tensor):
                    self.numbers = max(self.numbers, x.untyped_storage().nbytes() // x.itemsize)
            return result

    n = 2048
    q, k = (
        normal(n, 8, dtype=torch.float32, device=device, seed=s).requires_grad_() for s in (0, 1)
    )
    with Largest() as seen:  # type: ignore[no-untyped-call]
        largest_logit(q, k)
    assert seen.numbers == 128 * n


def test_it_is_where_the_softmax_saturates(device: str) -> None:
    q, k = (normal(2, 64, 16, dtype=torch.float64, device=device, seed=s) for s in (0, 1))
    small, large = largest_logit(q, k), largest_logit(30 * q, k)
    assert_close(large, 30 * small)
    peaks = [peak(attention(x, k, k)[1]).mean() for x in (q, 30 * q)]
    assert peaks[0] < 0.2 < 0.8 < peaks[1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_not_lowered_by_autocast_nor_cut_off_by_the_dtype(
    dtype: torch.dtype, device: str
) -> None:
    q, k = (normal(3, 16, dtype=dtype, device=device, seed=s) * 200 for s in (0, 1))
    expected = largest_logit(q, k, scale=1.0)
    assert expected.isfinite()
    assert expected > torch.finfo(torch.float16).max
    with torch.autocast(device, dtype=torch.bfloat16):
        assert_close(largest_logit(q, k, scale=1.0), expected, rtol=0, atol=0)


def test_nan_counts_where_it_may_be_attended_to(device: str) -> None:
    q, k = (normal(2, 4, 3, dtype=torch.float32, device=device, seed=s) for s in (0, 1))
    k[0, 3] = math.nan
    seen = torch.arange(4, device=device)[None] < 3
    assert largest_logit(q, k).isnan().tolist() == [True, False]
    assert_close(largest_logit(q, k, seen), largest_logit(q, k[:, :3]))


def test_it_carries_no_gradient(device: str) -> None:
    q = normal(4, 3, dtype=torch.float32, device=device).requires_grad_()
    assert not largest_logit(q, q).requires_grad


def test_both_compile_in_one_graph(device: str) -> None:
    torch.compiler.reset()
    q, k = (normal(2, 130, 4, dtype=torch.float32, device=device, seed=s) for s in (0, 1))
    mask = torch.ones(130, 130, dtype=torch.bool, device=device).tril()

    def both(q: Tensor, k: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return largest_logit(q, k, mask), head_distance((q @ k.mT).softmax(-1))

    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
    assert_close(compiled(q, k, mask), both(q, k, mask))


def test_both_map_over_a_batch(device: str) -> None:
    q, k = (normal(3, 2, 5, 4, dtype=torch.float32, device=device, seed=s) for s in (0, 1))
    mask = normal(3, 1, 5, 5, dtype=torch.float32, device=device) > 0
    mapped = torch.func.vmap(largest_logit)(q, k, mask)
    assert_close(mapped, largest_logit(q, k, mask))
    weights = attention(q, k, k, mask)[1]
    assert_close(torch.func.vmap(head_distance)(weights), head_distance(weights))


def test_the_meta_device_gives_the_shapes() -> None:
    q, k = torch.empty(2, 3, 5, 4, device="meta"), torch.empty(2, 1, 7, 4, device="meta")
    assert largest_logit(q, k).shape == (2, 3)
    assert head_distance(torch.empty(2, 3, 5, 7, device="meta")).shape == (2, 3, 3)


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("inputs", "error", "parts"),
    [
        (([[1.0]], ones(2, 3)), TypeError, ["q must be a tensor of float16", "got list"]),
        ((ones(2, 3), ones(2, 3).long()), TypeError, ["k must be", "got torch.int64", ".float()"]),
        ((ones(2, 3), ones(2, 3).double()), TypeError, ["one dtype", "and torch.float64"]),
        ((ones(3), ones(2, 3)), ValueError, ["(..., length, width)", "got shape (3,)", "q[None]"]),
        ((ones(2, 3), ones(2, 4)), ValueError, ["one width, got 3 and 4", "project them"]),
        ((ones(2, 0), ones(5, 0)), ValueError, ["width of 1 or more", "q (2, 0), k (5, 0)"]),
        (
            (ones(8, 4, 3), ones(2, 4, 3)),
            ValueError,
            ["must broadcast", "q (8, 4, 3), k (2, 4, 3)", "repeat_interleave"],
        ),
        (
            (ones(2, 8, 4, 3), ones(2, 3, 4, 3)),
            ValueError,
            ["must broadcast", "q (2, 8, 4, 3), k (2, 3, 4, 3)", "repeat_interleave"],
        ),
        ((ones(2, 3), ones(5, 3), [[True]]), TypeError, ["True = may attend", "got list"]),
        ((ones(2, 3), ones(5, 3), ones(2, 5)), TypeError, ["got torch.float32", "mask == 0"]),
        *(
            (
                (ones(2, 3), ones(5, 3), ones(*shape, dtype=torch.bool)),
                ValueError,
                ["broadcast to (..., Tq, Tk) = (2, 5)", f"got {shape}", "mask[:, None, None]"],
            )
            for shape in ((2, 4), (3, 5), (1, 2, 5), (2, 0), (5,), ())
        ),
        *(
            (
                (ones(3, 3, 4, 8), ones(3, 3, 4, 8), ones(*shape, dtype=torch.bool)),
                ValueError,
                ["2 of its dimensions or all", f"got {shape}", "mask[None] for (H, Tq, Tk)"],
            )
            for shape in ((3, 4, 4), (3, 1, 4), (4,), ())
        ),
    ],
)  # fmt: skip
def test_largest_logit_refuses_what_does_not_fit(
    inputs: Any, error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        largest_logit(*inputs)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)
