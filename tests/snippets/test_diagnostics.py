import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from snippets.diagnostics import effective_keys, entropy, peak
from tests.snippets.reference import DEVICES, DTYPES, assert_rounded, entropy_by_hand, normal

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
