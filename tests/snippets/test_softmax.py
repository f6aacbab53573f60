import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from snippets.attention import attention
from snippets.softmax import masked_logsumexp, masked_softmax
from tests.snippets.reference import DEVICES, DTYPES, assert_rounded, normal

Rows = tuple[Tensor, Tensor | None]

SINGLE, DOUBLE = torch.float32, torch.float64
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
steady = settings(deadline=None, derandomize=True, max_examples=60)
both = pytest.mark.parametrize("function", [masked_softmax, masked_logsumexp])


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@st.composite
def rows(draw: st.DrawFn, least: int = 0) -> Rows:
    """Draw logits of any size, and a mask of all of their dimensions, of two or none."""
    shape = [*draw(st.lists(st.integers(least, 3), max_size=2)), draw(st.integers(least, 6))]
    dtype = draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    size = draw(st.sampled_from((0, 1, 30, 10_000)))
    logits = (size * torch.randn(shape, generator=generator)).to(dtype)
    if draw(st.booleans()):
        logits = logits.masked_fill(torch.rand(shape, generator=generator) < 0.3, -math.inf)
    share = draw(st.sampled_from((None, 0.0, 0.4, 0.8, 1.0)))
    if share is None:
        return logits, None
    kept = draw(st.sampled_from((shape, shape[-2:])))
    part = [n if draw(st.booleans()) else 1 for n in kept]
    return logits, torch.rand(part, generator=generator) < share


def placed(inputs: Rows, device: str) -> Rows:
    logits, mask = inputs
    assume(device != "mps" or logits.dtype != DOUBLE)
    return logits.to(device), None if mask is None else mask.to(device)


def by_hand(logits: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Softmax and log-sum-exp in float64, one row of Python floats at a time."""
    x = logits.double().cpu()
    allowed = torch.ones(()).bool() if mask is None else mask.cpu()
    allowed = allowed.broadcast_to(x.shape)
    weights, sums = torch.zeros_like(x), torch.full(x.shape[:-1], -math.inf, dtype=DOUBLE)
    for at in itertools.product(*map(range, x.shape[:-1])):
        row = x[at].tolist()
        seen = [j for j, a in enumerate(row) if allowed[at][j] and a > -math.inf]
        for j in seen:
            others = math.fsum(math.exp(min(row[i] - row[j], 700)) for i in seen)
            weights[at][j] = 1 / others
            if row[j] == max(row[i] for i in seen):
                sums[at] = row[j] + math.log(others)
    return weights, sums


def batch(dtype: torch.dtype, device: str) -> tuple[Tensor, Tensor]:
    """Logits (2, 3, 4, 5) that collect gradients, and a mask whose second row is empty."""
    logits = normal(2, 3, 4, 5, dtype=dtype, device=device).requires_grad_()
    mask = torch.ones(4, 5, dtype=torch.bool, device=device).tril()
    mask[1] = False
    return logits, mask


# The definition


@steady
@given(inputs=rows())
def test_matches_the_definition(inputs: Rows, device: str) -> None:
    logits, mask = placed(inputs, device)
    weights, sums = masked_softmax(logits, mask), masked_logsumexp(logits, mask)
    assert weights.dtype == sums.dtype == logits.dtype
    assert weights.shape == logits.shape
    assert sums.shape == logits.shape[:-1]
    expected_weights, expected_sums = by_hand(logits, mask)
    assert_rounded(weights, expected_weights)
    assert_rounded(sums, expected_sums)


@steady
@given(inputs=rows(least=1))
def test_rows_sum_to_one_or_to_zero(inputs: Rows, device: str) -> None:
    logits, mask = placed(inputs, device)
    weights = masked_softmax(logits, mask)
    seen = logits > -math.inf if mask is None else (logits > -math.inf) & mask
    assert (weights[~seen] == 0).all()
    tolerance = logits.shape[-1] * torch.finfo(logits.dtype).eps
    expected = seen.any(-1).double().cpu()
    assert_close(weights.double().cpu().sum(-1), expected, rtol=0, atol=tolerance)


@steady
@given(inputs=rows(least=1))
def test_the_logarithms_of_the_weights_are_the_logits_less_their_sum(
    inputs: Rows, device: str
) -> None:
    logits, mask = placed(inputs, device)
    wide = logits.double()
    weights = masked_softmax(wide, mask)
    again = (wide - masked_logsumexp(wide, mask)[..., None]).exp()
    assert_close(again[weights > 0], weights[weights > 0], rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_agrees_with_torch_where_every_row_has_a_key(dtype: torch.dtype, device: str) -> None:
    logits, mask = batch(dtype, device)
    mask[1, :2] = True
    plain = logits.masked_fill(~mask, -math.inf)
    assert_close(masked_softmax(logits, mask), plain.softmax(-1))
    assert_close(masked_logsumexp(logits, mask), plain.logsumexp(-1))


def test_gives_the_weights_of_attention(device: str) -> None:
    q, k = (normal(2, 3, n, 8, dtype=DOUBLE, device=device, seed=n) for n in (4, 5))
    mask = batch(DOUBLE, device)[1]
    assert_close(masked_softmax(q @ k.mT / math.sqrt(8), mask), attention(q, k, k, mask)[1])


def test_a_shift_of_a_row_moves_its_sum_and_not_its_weights(device: str) -> None:
    logits, mask = batch(SINGLE, device)
    shift = torch.tensor([0.0, 1e4, -1e4, 512.0], device=device)[:, None]
    whole = logits.detach().mul(8).round()  # exact in float32, before and after the shift
    assert_close(masked_softmax(whole + shift, mask), masked_softmax(whole, mask), rtol=0, atol=0)
    sums = masked_logsumexp(whole, mask) + shift[:, 0]
    assert_close(masked_logsumexp(whole + shift, mask), sums, rtol=1e-6, atol=0)


@both
def test_the_order_of_the_keys_does_not_matter(
    function: Callable[..., Tensor], device: str
) -> None:
    logits, mask = batch(DOUBLE, device)
    order = [3, 0, 4, 1, 2]
    shuffled, straight = function(logits[..., order], mask[:, order]), function(logits, mask)
    assert_close(shuffled, straight[..., order] if function is masked_softmax else straight)


@both
def test_rows_do_not_touch_each_other(function: Callable[..., Tensor], device: str) -> None:
    logits = normal(5, 5, 5, dtype=DOUBLE, device=device)
    mask = normal(5, 5, 5, dtype=DOUBLE, device=device, seed=1) > 0.5
    together = function(logits, mask)
    for b, t in itertools.product(range(5), range(5)):
        assert_close(function(logits[b, t], mask[b, t]), together[b, t])


def test_sums_of_two_blocks_join_to_the_sum_of_all(device: str) -> None:
    logits, mask = batch(DOUBLE, device)  # row 0 has no key in the second block, row 1 in neither
    left = masked_logsumexp(logits[..., :2], mask[:, :2])
    right = masked_logsumexp(logits[..., 2:], mask[:, 2:])
    assert (right[..., 0] == -math.inf).all()
    assert_close(torch.logaddexp(left, right), masked_logsumexp(logits, mask))


# Masks


@both
@pytest.mark.parametrize(
    "shape", [(1, 5), (4, 1), (4, 5), (1, 1, 4, 5), (2, 1, 1, 5), (1, 3, 4, 5)]
)
def test_a_mask_broadcasts_to_the_logits(
    function: Callable[..., Tensor], shape: tuple[int, ...], device: str
) -> None:
    logits = batch(SINGLE, device)[0]
    mask = normal(*shape, dtype=SINGLE, device=device, seed=3) > -0.5
    expected = function(logits, mask.expand(2, 3, 4, 5))
    assert_close(function(logits, mask), expected, rtol=0, atol=0)


@both
@pytest.mark.parametrize("garbage", [math.nan, math.inf, 1e30])
def test_what_is_hidden_can_be_anything(
    function: Callable[..., Tensor], garbage: float, device: str
) -> None:
    logits, mask = batch(SINGLE, device)
    bad = logits.detach().masked_fill(~mask, garbage).requires_grad_()
    kept = torch.tensor([0, 2, 3], device=device)
    results = function(bad, mask)
    assert_close(results, function(logits, mask), rtol=0, atol=0)
    rows = -2 if function is masked_softmax else -1
    (gradient,) = torch.autograd.grad(results.index_select(rows, kept).square().sum(), bad)
    assert gradient.isfinite().all()
    assert (gradient.masked_select(~mask) == 0).all()


@both
def test_minus_infinity_in_the_logits_hides_like_the_mask(
    function: Callable[..., Tensor], device: str
) -> None:
    logits, mask = batch(DOUBLE, device)
    added = logits + torch.zeros(4, 5, device=device).masked_fill(~mask, -math.inf).double()
    results, expected = function(added), function(logits, mask)
    assert_close(results, expected, rtol=0, atol=0)
    # What flows back is the exponential of log-sum-exp, since -inf has no useful gradient.
    shape = (lambda x: x * logits.detach()) if function is masked_softmax else torch.exp
    (got,) = torch.autograd.grad(shape(results).sum(), logits)
    (wanted,) = torch.autograd.grad(shape(expected).sum(), logits)
    assert_close(got, wanted)


@both
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("alone", [True, False])
def test_a_logit_that_is_not_finite_is_not_taken_for_an_empty_row(
    function: Callable[..., Tensor], bad: float, alone: bool, device: str
) -> None:
    logits = torch.tensor([[bad, -math.inf if alone else 0.0], [0.0, 0.0]], device=device)
    results = function(logits)
    expected = bad if function is masked_logsumexp else math.nan
    assert_close(results[0].flatten()[:1], results.new_tensor([expected]), equal_nan=True)
    assert results[1].isfinite().all()


@dtypes
def test_the_least_logit_still_beats_a_hidden_key(dtype: torch.dtype, device: str) -> None:
    least = torch.finfo(dtype).min
    logits = normal(4, dtype=dtype, device=device).mul(0).index_fill(0, torch.tensor(0), least)
    mask = torch.tensor([True, False, False, False], device=device)
    assert masked_softmax(logits, mask).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert masked_logsumexp(logits, mask).item() == least


# Rows without keys


@dtypes
def test_an_empty_row_gets_zeros_and_sends_none_back(dtype: torch.dtype, device: str) -> None:
    logits, mask = batch(dtype, device)
    # Anomaly mode raises at the first NaN of the backward pass, even one that is masked later.
    with torch.autograd.set_detect_anomaly(True):
        weights, sums = masked_softmax(logits, mask), masked_logsumexp(logits, mask)
        loss = (weights * normal(4, 5, dtype=dtype, device=device)).sum() + sums.exp().sum()
        (gradient,) = torch.autograd.grad(loss, logits)
    assert (weights[..., 1, :] == 0).all()
    assert (sums[..., 1] == -math.inf).all()
    assert (gradient[..., 1, :] == 0).all()
    assert gradient.isfinite().all()
    assert (gradient[..., [0, 2, 3], :] != 0).any(-1).all()


@both
@pytest.mark.parametrize("flows_back", [math.nan, math.inf, 1.0])
def test_an_empty_row_has_zero_gradients_whatever_flows_back(
    function: Callable[..., Tensor], flows_back: float, device: str
) -> None:
    logits, mask = batch(SINGLE, device)
    results = function(logits, mask)
    upstream = torch.zeros_like(results)
    upstream[..., 1, :] = flows_back
    if function is masked_logsumexp:
        upstream = torch.zeros_like(results)
        upstream[..., 1] = flows_back
    (gradient,) = torch.autograd.grad(results, logits, upstream)
    assert (gradient == 0).all()


@both
def test_gradients_match_finite_differences_twice(
    function: Callable[..., Tensor], device: str
) -> None:
    logits, mask = (x[..., :3, :3] for x in batch(DOUBLE, device))
    logits = logits[0, 0].detach().requires_grad_()

    def shaped(logits: Tensor) -> Tensor:
        # Differences of -inf are NaN, differences of its exponential 0.
        results = function(logits, mask)
        return results.exp() if function is masked_logsumexp else results

    assert torch.autograd.gradcheck(shaped, logits)
    assert torch.autograd.gradgradcheck(shaped, logits)


@both
def test_the_second_derivative_is_finite_at_an_empty_row(
    function: Callable[..., Tensor], device: str
) -> None:
    logits, mask = batch(DOUBLE, device)
    with torch.autograd.set_detect_anomaly(True):
        results = function(logits, mask)
        (first,) = torch.autograd.grad(results, logits, torch.ones_like(results), create_graph=True)
        uneven = normal(4, 5, dtype=DOUBLE, device=device)
        (second,) = torch.autograd.grad((first * uneven).sum(), logits)
    assert second.isfinite().all()
    assert (second[..., 1, :] == 0).all()
    assert (first[..., 1, :] == 0).all()


def test_torch_itself_sends_nan_back_from_an_empty_row(device: str) -> None:
    logits, mask = batch(DOUBLE, device)
    added = logits + mask.double().log()  # 0 and -inf
    assert_close(added.logsumexp(-1), masked_logsumexp(logits, mask))
    for results in (added.softmax(-1)[..., 2:, :], added.logsumexp(-1)[..., 2:]):
        (gradient,) = torch.autograd.grad(results.square().sum(), logits)
        assert gradient[..., 1, :].isnan().all()


@dtypes
def test_the_policy_nan_is_plain_softmax(dtype: torch.dtype, device: str) -> None:
    logits, mask = batch(dtype, device)
    weights = masked_softmax(logits, mask, empty="nan")
    assert weights.dtype == dtype
    assert weights[..., 1, :].isnan().all()
    others = weights[..., [0, 2, 3], :]
    assert_close(others, masked_softmax(logits, mask)[..., [0, 2, 3], :], rtol=0, atol=0)
    plain = logits.float() if dtype != DOUBLE else logits
    expected = plain.masked_fill(~mask, -math.inf).softmax(-1).to(dtype)
    assert_close(weights, expected, rtol=0, atol=0, equal_nan=True)


def test_the_policy_error_names_the_first_empty_row(device: str) -> None:
    logits, mask = batch(SINGLE, device)
    whole = mask.clone()
    whole[1, 0] = True
    assert_close(masked_softmax(logits, whole, empty="error"), masked_softmax(logits, whole))
    with pytest.raises(
        ValueError, match="6 without among 24, the first at \\(0, 0, 1\\)"
    ) as raised:
        masked_softmax(logits, mask, empty="error")
    assert "every row must have a key" in str(raised.value)
    assert "empty='zeros'" in str(raised.value)
    with pytest.raises(ValueError, match="1 without among 1, the first at \\(\\)"):
        masked_softmax(logits[0, 0, 0], mask[1], empty="error")


def test_no_key_at_all(device: str) -> None:
    logits = torch.zeros(2, 3, 0, device=device, requires_grad=True)
    assert masked_softmax(logits).shape == (2, 3, 0)
    assert masked_logsumexp(logits).tolist() == [[-math.inf] * 3] * 2
    assert masked_softmax(logits[:0]).shape == (0, 3, 0)
    (gradient,) = torch.autograd.grad(masked_logsumexp(logits).exp().sum(), logits)
    assert gradient.shape == logits.shape
    with pytest.raises(ValueError, match="6 without among 6"):
        masked_softmax(logits, empty="error")


# Precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_rounded_once(dtype: torch.dtype, device: str) -> None:
    logits = normal(8, 4096, dtype=dtype, device=device) * 3
    mask = normal(8, 4096, dtype=SINGLE, device=device, seed=1) > -1
    for function in (masked_softmax, masked_logsumexp):
        wide = function(logits.float(), mask)
        assert_close(function(logits, mask), wide.to(dtype), rtol=0, atol=0)


@dtypes
def test_autocast_lowers_nothing(dtype: torch.dtype, device: str) -> None:
    logits, mask = batch(dtype, device)
    expected = masked_softmax(logits, mask), masked_logsumexp(logits, mask)
    with torch.autocast(device, dtype=torch.bfloat16):
        results = masked_softmax(logits, mask), masked_logsumexp(logits, mask)
    assert_close(results, expected, rtol=0, atol=0)


# Transforms


@both
@dtypes
def test_compiles_in_one_graph(
    function: Callable[..., Tensor], dtype: torch.dtype, device: str
) -> None:
    torch.compiler.reset()
    logits, mask = batch(dtype, device)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    results = compiled(logits, mask)
    expected = function(logits, mask)
    assert_close(results, expected)
    (got,) = torch.autograd.grad(results.exp().sum(), logits)
    (wanted,) = torch.autograd.grad(expected.exp().sum(), logits)
    assert_close(got, wanted)


@both
def test_maps_over_a_batch(function: Callable[..., Tensor], device: str) -> None:
    logits = batch(SINGLE, device)[0].detach()
    mask = normal(2, 4, 5, dtype=SINGLE, device=device) > 0
    mapped = torch.func.vmap(function)(logits, mask)
    assert_close(mapped, function(logits, mask[:, None]))


@both
def test_the_meta_device_gives_the_shapes(function: Callable[..., Tensor]) -> None:
    logits, mask = batch(SINGLE, "cpu")
    expected = function(logits, mask).shape
    assert function(logits.to("meta"), mask.to("meta")).shape == expected


# Refusals


@both
@pytest.mark.parametrize(
    ("inputs", "error", "parts"),
    [
        (([1.0],), TypeError, ["logits must be a tensor", "got list", ".float()"]),
        ((torch.ones(2).long(),), TypeError, ["float64", "got torch.int64", "convert"]),
        ((torch.ones(2) + 0j,), TypeError, ["got torch.complex64"]),
        ((torch.ones(()),), ValueError, ["(..., Tk)", "without dimensions", "logits[None]"]),
        (
            (torch.ones(2), torch.ones(2)),
            TypeError,
            ["boolean tensor (True = may attend)", "got torch.float32", "pass mask == 0"],
        ),
        ((torch.ones(2), [True, False]), TypeError, ["mask must be a boolean", "got list"]),
        *(
            (
                (torch.ones(2, 5), torch.ones(shape, dtype=torch.bool)),
                ValueError,
                ["broadcast to the logits (2, 5)", f"got {shape}", "mask[:, None, None]"],
            )
            for shape in ((4,), (3, 5), (1, 2, 5), (2, 0), (5,), ())
        ),
        *(
            (
                (torch.ones(3, 3, 4, 5), torch.ones(shape, dtype=torch.bool)),
                ValueError,
                ["2 of their dimensions or all", f"got {shape}", "mask[None] for (H, Tq, Tk)"],
            )
            for shape in ((3, 4, 5), (3, 1, 5), (5,), ())
        ),
        ((torch.ones(5), torch.ones(1, 5).bool()), ValueError, ["logits (5,)", "got (1, 5)"]),
        ((torch.ones(5), torch.ones(()).bool()), ValueError, ["logits (5,)", "got ()"]),
    ],
)
def test_refuses_what_does_not_fit(
    function: Callable[..., Tensor],
    inputs: tuple[object, ...],
    error: type[Exception],
    parts: list[str],
) -> None:
    with pytest.raises(error) as raised:
        function(*inputs)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


def test_refuses_a_policy_that_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="'zeros', 'nan' or 'error', got 'mean'"):
        masked_softmax(torch.ones(2), empty="mean")  # type: ignore[arg-type]
