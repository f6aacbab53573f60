import math
import shutil
from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from snippets.attention import attention
from tests.snippets.reference import DEVICES, DTYPES, assert_rounded, attention_by_hand, normal

Inputs = tuple[Tensor, Tensor, Tensor, Tensor | None]

HALF, SINGLE, DOUBLE = (torch.float16, torch.bfloat16), torch.float32, torch.float64
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
steady = settings(deadline=None, derandomize=True, max_examples=50)


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@st.composite
def lookups(draw: st.DrawFn, least: int = 0) -> Inputs:
    """Draw q, k, v and a mask or none, in shapes that broadcast and lengths from the least on."""
    lead = draw(st.lists(st.integers(least, 3), max_size=2))
    tq, tk, d, dv = (draw(st.integers(low, 5)) for low in (least, least, 1, 1))
    dtype = draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def part_of(shape: list[int]) -> list[int]:
        kept = shape[draw(st.integers(0, len(shape))) :]
        return [n if draw(st.booleans()) else 1 for n in kept]

    q, k, v = (
        torch.randn(*part_of(lead), *rest, generator=generator).to(dtype)
        for rest in ((tq, d), (tk, d), (tk, dv))
    )
    share = draw(st.sampled_from((None, 0.0, 0.4, 0.8, 1.0)))
    if share is None:
        return q, k, v, None
    logits = [*(q @ k.mT).shape]
    kept = draw(st.sampled_from((logits, logits[-2:])))
    mask = [n if draw(st.booleans()) else 1 for n in kept]
    return q, k, v, torch.rand(mask, generator=generator) < share


def placed(inputs: Inputs, device: str) -> Inputs:
    q, k, v, mask = inputs
    assume(device != "mps" or q.dtype != DOUBLE)
    return q.to(device), k.to(device), v.to(device), mask if mask is None else mask.to(device)


def causal(tq: int, tk: int, device: str) -> Tensor:
    return torch.ones(tq, tk, dtype=torch.bool, device=device).tril()


def batch(
    dtype: torch.dtype, device: str, dv: int = 8, tk: int = 7
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of two examples and three heads, five queries, that collect gradients."""
    q = normal(2, 3, 5, 8, dtype=dtype, device=device, seed=1)
    k = normal(2, 3, tk, 8, dtype=dtype, device=device, seed=2)
    v = normal(2, 3, tk, dv, dtype=dtype, device=device, seed=3)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def with_empty_rows(device: str, tk: int = 7) -> Tensor:
    """A causal mask of five queries, where the second has no key."""
    mask = causal(5, tk, device)
    mask[1] = False
    return mask


def gradients(results: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of a loss in which every entry of every result has a weight of its own."""
    loss = torch.zeros((), device=inputs[0].device)
    for seed, x in enumerate(results):
        loss = loss + (x * normal(*x.shape, dtype=x.dtype, device=str(x.device), seed=seed)).sum()
    return torch.autograd.grad(loss, inputs)


# The definition


@steady
@given(inputs=lookups())
def test_matches_the_definition(inputs: Inputs, device: str) -> None:
    q, k, v, mask = placed(inputs, device)
    output, weights = attention(q, k, v, mask)
    assert output.dtype == weights.dtype == q.dtype
    expected_output, expected_weights = attention_by_hand(q, k, v, mask)
    assert_rounded(weights, expected_weights)
    assert_rounded(output, expected_output)


@pytest.mark.parametrize("scale", [1.0, 0.3, 0.0, -0.5])
def test_scale_replaces_the_square_root(scale: float, device: str) -> None:
    q, k, v = batch(SINGLE, device)
    output, weights = attention(q, k, v, scale=scale)
    expected_output, expected_weights = attention_by_hand(q, k, v, scale=scale)
    assert_rounded(weights, expected_weights)
    assert_rounded(output, expected_output)


@steady
@given(inputs=lookups())
def test_rows_sum_to_one_or_to_zero(inputs: Inputs, device: str) -> None:
    q, k, v, mask = placed(inputs, device)
    weights = attention(q, k, v, mask)[1]
    seen = torch.ones_like(weights, dtype=torch.bool)
    seen = seen if mask is None else seen & mask
    assert (weights >= 0).all()
    assert (weights[~seen] == 0).all()
    tolerance = weights.shape[-1] * torch.finfo(q.dtype).eps
    expected = seen.any(-1).double().cpu()
    assert_close(weights.double().cpu().sum(-1), expected, rtol=0, atol=tolerance)


@steady
@given(inputs=lookups(least=1))
def test_output_lies_between_the_values_it_blends(inputs: Inputs, device: str) -> None:
    q, k, v, mask = placed(inputs, device)
    output, weights = attention(q, k, v, mask)
    seen = torch.ones_like(weights, dtype=torch.bool)
    seen = (seen if mask is None else seen & mask)[..., None]  # (..., Tq, Tk, 1)
    values = v[..., None, :, :]  # (..., 1, Tk, dv)
    least = torch.where(seen, values, math.inf).amin(-2)
    most = torch.where(seen, values, -math.inf).amax(-2)
    alive = seen.any(-2)
    slack = 4 * torch.finfo(q.dtype).eps * v.abs().max()
    assert ((output >= least - slack) & (output <= most + slack) | ~alive).all()


def test_output_length_follows_the_queries_and_its_width_the_values(device: str) -> None:
    q, k, v = batch(SINGLE, device, dv=11)
    output, weights = attention(q, k, v)
    assert output.shape == (2, 3, 5, 11)
    assert weights.shape == (2, 3, 5, 7)


def test_more_values_than_keys_in_the_batch_share_the_weights(device: str) -> None:
    q, k, v = batch(SINGLE, device)
    output, weights = attention(q[0], k[0], v)
    assert weights.shape == (3, 5, 7)
    assert_close(output[1], attention(q[0], k[0], v[1])[0])


# PyTorch's own


@pytest.mark.parametrize("dv", [8, 11])
@pytest.mark.parametrize("masked", ["all", "causal", "keys", "empty rows"])
def test_agrees_with_scaled_dot_product_attention(masked: str, dv: int, device: str) -> None:
    q, k, v = batch(SINGLE, device, dv=dv)
    mask = {
        "all": None,
        "causal": causal(5, 7, device),
        "keys": (torch.arange(7, device=device) < torch.tensor([[[[4]]], [[[6]]]], device=device)),
        "empty rows": with_empty_rows(device),
    }[masked]
    output = attention(q, k, v, mask)[0]
    builtin = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert_close(output, builtin)
    assert_close(gradients((output,), (q, k, v)), gradients((builtin,), (q, k, v)))


def test_a_lower_triangle_is_the_builtin_causal_mask(device: str) -> None:
    q, k, v = batch(SINGLE, device)
    builtin = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert_close(attention(q, k, v, causal(5, 7, device))[0], builtin)


# Gradients


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_match_finite_differences(masked: bool, device: str) -> None:
    q, k, v = (x[0, 0, :3, :2].detach().requires_grad_() for x in batch(DOUBLE, device, tk=3))
    mask = with_empty_rows(device, tk=3)[:3] if masked else None

    def masked_attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return attention(q, k, v, mask)

    assert all(x.requires_grad for x in masked_attention(q, k, v))
    assert torch.autograd.gradcheck(masked_attention, (q, k, v))
    assert torch.autograd.gradgradcheck(masked_attention, (q, k, v))


# A query without keys


@dtypes
def test_a_query_without_keys_gets_zeros_and_sends_none_back(
    dtype: torch.dtype, device: str
) -> None:
    q, k, v = batch(dtype, device)
    # Anomaly mode raises at the first NaN of the backward pass, even one that is masked later.
    with torch.autograd.set_detect_anomaly(True):
        output, weights = attention(q, k, v, with_empty_rows(device))
        q_gradient, k_gradient, v_gradient = gradients((output, weights), (q, k, v))
    assert (output[..., 1, :] == 0).all()
    assert (weights[..., 1, :] == 0).all()
    assert (q_gradient[..., 1, :] == 0).all()
    assert all(x.isfinite().all() for x in (q_gradient, k_gradient, v_gradient))


def test_the_other_queries_do_not_notice_a_query_without_keys(device: str) -> None:
    q, k, v = batch(SINGLE, device)
    others = [0, 2, 3, 4]
    with_empty = attention(q, k, v, with_empty_rows(device))[0][..., others, :]
    without = attention(q[..., others, :], k, v, causal(5, 7, device)[others])[0]
    assert_close(with_empty, without)
    assert_close(gradients((with_empty,), (q, k, v)), gradients((without,), (q, k, v)))


def test_no_key_at_all_gives_zeros(device: str) -> None:
    q, k, v = batch(SINGLE, device, tk=0)
    output, weights = attention(q, k, v)
    assert_close(output, torch.zeros(2, 3, 5, 8, device=device))
    assert weights.shape == (2, 3, 5, 0)
    assert_close(gradients((output,), (q, k, v)), tuple(map(torch.zeros_like, (q, k, v))))


def test_overflow_behind_the_mask_stays_behind_the_mask(device: str) -> None:
    q, k, v = batch(SINGLE, device)
    with torch.no_grad():
        q[..., 1, :] = k[..., 6, :] = 1e30
    output, weights = attention(q, k, v, with_empty_rows(device))
    results = (output, weights, *gradients((output, weights), (q, k, v)))
    assert all(x.isfinite().all() for x in results)


# Masks


@steady
@given(inputs=lookups(least=1), data=st.data())
def test_a_key_that_none_may_attend_to_can_be_anything(
    inputs: Inputs, data: st.DataObject, device: str
) -> None:
    q, k, v, mask = placed(inputs, device)
    at = data.draw(st.integers(0, k.shape[-2] - 1))
    hides = torch.arange(k.shape[-2], device=device)[None] != at
    mask = hides if mask is None else mask & hides
    before = attention(q, k, v, mask)
    k[..., at, :], v[..., at, :] = 100, -100
    assert_close(attention(q, k, v, mask), before, rtol=0, atol=0)


@dtypes
def test_editing_the_future_changes_the_past_by_exactly_nothing(
    dtype: torch.dtype, device: str
) -> None:
    q, k, v = (x.detach() for x in batch(dtype, device, tk=5))
    before = attention(q, k, v, causal(5, 5, device))[0][..., :3, :]
    k[..., 3:, :], v[..., 3:, :] = 100, -100
    after = attention(q, k, v, causal(5, 5, device))[0][..., :3, :]
    assert_close(after, before, rtol=0, atol=0)


def test_the_least_logit_still_beats_a_masked_key(device: str) -> None:
    least = torch.finfo(SINGLE).min
    q, k = torch.tensor([[1.0]], device=device), torch.tensor([[least], [0.0]], device=device)
    weights = attention(q, k, k, torch.tensor([[True, False]], device=device))[1]
    assert weights.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(
    "shape", [(1, 7), (5, 1), (5, 7), (1, 1, 5, 7), (2, 1, 1, 7), (1, 3, 5, 7)]
)
def test_a_mask_broadcasts_to_the_logits(shape: tuple[int, ...], device: str) -> None:
    q, k, v = batch(SINGLE, device)
    mask = normal(*shape, dtype=SINGLE, device=device) > -0.5
    assert_close(attention(q, k, v, mask), attention(q, k, v, mask.expand(2, 3, 5, 7)))


# Invariants


@steady
@given(inputs=lookups(), data=st.data())
def test_the_order_of_the_keys_does_not_matter(
    inputs: Inputs, data: st.DataObject, device: str
) -> None:
    q, k, v, mask = placed(inputs, device)
    order = data.draw(st.permutations(range(k.shape[-2])))
    seen = (q @ k.mT).isfinite() if mask is None else (q @ k.mT).isfinite() & mask
    output, weights = attention(q, k, v, mask)
    expected = (output, weights[..., order])
    shuffled = attention(q, k[..., order, :], v[..., order, :], seen[..., order])
    assert_close(shuffled, expected)


@dtypes
def test_examples_and_heads_do_not_touch_each_other(dtype: torch.dtype, device: str) -> None:
    q, k, v = batch(dtype, device)
    mask = normal(2, 3, 5, 7, dtype=dtype, device=device) > 0
    output, weights = attention(q, k, v, mask)
    for at in ((b, h) for b in range(2) for h in range(3)):
        alone = attention(q[at], k[at], v[at], mask[at])
        assert_close(alone, (output[at], weights[at]))


def test_queries_do_not_touch_each_other(device: str) -> None:
    q, k, v = batch(SINGLE, device)
    alone = [attention(q[..., i : i + 1, :], k, v)[0] for i in range(5)]
    assert_close(torch.cat(alone, -2), attention(q, k, v)[0])


def test_a_shift_of_every_key_changes_nothing(device: str) -> None:
    q, k, v = batch(DOUBLE, device)
    shift = normal(8, dtype=DOUBLE, device=device)
    assert_close(attention(q, k + shift, v), attention(q, k, v))


def test_a_shift_of_every_value_shifts_the_output(device: str) -> None:
    q, k, v = batch(DOUBLE, device)
    shift = normal(8, dtype=DOUBLE, device=device)
    mask = with_empty_rows(device)
    expected = attention(q, k, v, mask)[0] + shift * mask.any(-1, keepdim=True)
    assert_close(attention(q, k, v + shift, mask)[0], expected)


# Precision


@pytest.mark.parametrize(
    ("dtype", "size", "scale"),
    [(torch.float16, 250.0, None), (torch.bfloat16, 1e19, 1e-38), (torch.float32, 1e19, 1e-38)],
    ids=str,
)
def test_products_beyond_the_dtype_do_not_overflow(
    dtype: torch.dtype, size: float, scale: float | None, device: str
) -> None:
    signs = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, -1], [1, 1, -1, -1]], device=device)
    q, k = (size * signs[:1]).to(dtype), (size * signs).to(dtype)
    assert (q @ k.mT).isinf().any()
    v = torch.eye(3, dtype=dtype, device=device)
    output, weights = attention(q, k, v, scale=scale)
    expected_output, expected_weights = attention_by_hand(q, k, v, scale=scale)
    assert_rounded(weights, expected_weights)
    assert_rounded(output, expected_output)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_averages_many_values_in_float32(dtype: torch.dtype, device: str) -> None:
    q, k = (normal(4096, 4, dtype=dtype, device=device, seed=s) for s in (1, 2))
    v = 1 + normal(4096, 4, dtype=dtype, device=device, seed=3) / 64
    expected = attention(q[:8].float(), k.float(), v.float())
    assert_close(attention(q[:8], k, v), tuple(x.to(dtype) for x in expected), rtol=0, atol=0)


@pytest.mark.parametrize("scale", [None, 0.9])
@dtypes
def test_autocast_lowers_nothing_and_keeps_the_scale(
    dtype: torch.dtype, scale: float | None, device: str
) -> None:
    q, k, v = batch(dtype, device)
    mask = with_empty_rows(device)
    expected = attention(q, k, v, mask, scale=scale)
    with torch.autocast(device, dtype=torch.bfloat16):
        results = attention(q, k, v, mask, scale=scale)
    by_hand = attention_by_hand(q, k, v, mask, scale)
    assert_rounded(results[1], by_hand[1])
    assert_close(results, expected, rtol=0, atol=0)
    assert_close(gradients(results, (q, k, v)), gradients(expected, (q, k, v)), rtol=0, atol=0)


# Transforms


no_compiler = not any(map(shutil.which, ("g++", "clang++", "c++")))


# What inductor imports still uses torch.jit.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "backend",
    [
        "aot_eager",
        pytest.param("inductor", marks=pytest.mark.skipif(no_compiler, reason="no C++ compiler")),
    ],
)
def test_compiles_in_one_graph(
    backend: str, device: str, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    # Inductor's cache does not tell apart what it compiled under another ATEN_CPU_CAPABILITY.
    cache = pytestconfig.rootpath / ".cache" / "inductor" / torch.backends.cpu.get_cpu_capability()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    torch.compiler.reset()
    q, k, v = batch(SINGLE, device)
    mask = with_empty_rows(device)
    expected = attention(q, k, v, mask)
    results = torch.compile(attention, backend=backend, fullgraph=True)(q, k, v, mask)
    assert_close(results, expected)
    assert_close(gradients(results, (q, k, v)), gradients(expected, (q, k, v)))


@dtypes
def test_compiles_in_one_graph_under_autocast(dtype: torch.dtype, device: str) -> None:
    torch.compiler.reset()
    q, k, v = batch(dtype, device)
    expected = attention(q, k, v)
    # Unless told otherwise, AOTAutograd computes gradients under the autocast around the call.
    with patch("torch._functorch.config.backward_pass_autocast", "off"), torch.autocast(device):
        results = torch.compile(attention, backend="aot_eager", fullgraph=True)(q, k, v)
    assert_close(results, expected)
    assert_close(gradients(results, (q, k, v)), gradients(expected, (q, k, v)))


def test_maps_over_a_batch(device: str) -> None:
    q, k, v = batch(SINGLE, device)
    mask = normal(2, 5, 7, dtype=SINGLE, device=device) > 0
    mapped = torch.func.vmap(attention)(q, k, v, mask)
    assert_close(mapped, attention(q, k, v, mask[:, None]))


def test_the_meta_device_gives_the_shapes() -> None:
    q, k, v = batch(SINGLE, "meta", dv=11)
    output, weights = attention(q, k, v, causal(5, 7, "meta"))
    assert output.shape == (2, 3, 5, 11)
    assert weights.shape == (2, 3, 5, 7)


# Refusals


def ones(*shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("inputs", "error", "parts"),
    [
        (
            ([[1.0]], ones(2, 3), ones(2, 3)),
            TypeError,
            ["q must be a tensor", "got list", "torch.tensor"],
        ),
        (
            (ones(2, 3), ones(2, 3, dtype=torch.int64), ones(2, 3)),
            TypeError,
            ["k must be float16, bfloat16, float32 or float64", "got torch.int64", "k.float()"],
        ),
        (
            (ones(2, 3), ones(2, 3), ones(2, 3, dtype=torch.complex64)),
            TypeError,
            ["v must be float16", "got torch.complex64", "v.float()"],
        ),
        (
            (ones(2, 3), ones(2, 3), ones(2, 3, dtype=DOUBLE)),
            TypeError,
            ["one dtype", "torch.float32, torch.float32 and torch.float64", "to(q.dtype)"],
        ),
        (
            (ones(3), ones(2, 3), ones(2, 3)),
            ValueError,
            ["q must be (..., length, width)", "got shape (3,)", "q[None]"],
        ),
        (
            (ones(2, 3), ones(2, 4), ones(2, 4)),
            ValueError,
            ["one width, got 3 and 4", "q (2, 3), k (2, 4)", "project them"],
        ),
        (
            (ones(2, 0), ones(5, 0), ones(5, 3)),
            ValueError,
            ["width of 1 or more, got 0", "q (2, 0), k (5, 0)", "nothing to match"],
        ),
        (
            (ones(2, 3), ones(5, 3), ones(6, 3)),
            ValueError,
            ["one length, got 5 and 6", "k (5, 3), v (6, 3)", "one value for each key"],
        ),
        (
            (ones(2, 4, 3), ones(5, 4, 3), ones(4, 3)),
            ValueError,
            ["must broadcast", "q (2, 4, 3), k (5, 4, 3), v (4, 3)", "equal or 1"],
        ),
        (
            (ones(2, 4, 3), ones(4, 3), ones(5, 4, 3)),
            ValueError,
            ["must broadcast", "q (2, 4, 3), k (4, 3), v (5, 4, 3)", "equal or 1"],
        ),
        *(
            (
                tuple(ones(*shape) for shape in shapes),
                ValueError,
                ["must broadcast", "q {}, k {}, v {}".format(*shapes), "equal or 1"],
            )
            for shapes in (
                # One of two dimensions fits.
                ((2, 6, 4, 3), (5, 6, 4, 3), (1, 6, 4, 3)),
                ((6, 2, 4, 3), (6, 5, 4, 3), (6, 1, 4, 3)),
                # Two of the three are equal.
                ((2, 4, 3), (5, 4, 3), (5, 4, 3)),
                ((5, 4, 3), (2, 4, 3), (5, 4, 3)),
                ((5, 4, 3), (5, 4, 3), (2, 4, 3)),
                # Equal but for one leading dimension more, or for a length that is taken for one.
                ((2, 4, 7, 3), (2, 7, 3), (2, 7, 3)),
                ((2, 7, 3), (2, 4, 7, 3), (2, 7, 3)),
                ((2, 7, 3), (2, 7, 3), (2, 4, 7, 3)),
                ((2, 7, 3), (2, 7, 7, 3), (2, 7, 7, 3)),
                ((2, 7, 7, 3), (2, 7, 3), (2, 7, 7, 3)),
                ((2, 7, 7, 3), (2, 7, 7, 3), (2, 7, 3)),
            )
        ),
        (
            (ones(2, 3), ones(5, 3), ones(5, 3), [[True]]),
            TypeError,
            ["boolean tensor (True = may attend)", "got list"],
        ),
        (
            (ones(2, 3), ones(5, 3), ones(5, 3), ones(2, 5)),
            TypeError,
            ["got torch.float32", "additive", "nn.MultiheadAttention", "pass mask == 0"],
        ),
        (
            (ones(2, 3), ones(5, 3), ones(5, 3), ones(2, 5, dtype=torch.int64)),
            TypeError,
            ["True = may attend", "got torch.int64", "1 means attend pass mask != 0"],
        ),
        *(
            (
                (ones(2, 3), ones(5, 3), ones(5, 3), ones(*shape, dtype=torch.bool)),
                ValueError,
                ["broadcast to (..., Tq, Tk) = (2, 5)", f"got {shape}", "mask[:, None, None]"],
            )
            for shape in ((2, 4), (3, 5), (1, 2, 5), (2, 0), (5,), ())
        ),
    ],
)  # fmt: skip
def test_refuses_what_does_not_fit(
    inputs: Inputs, error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        attention(*inputs)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


# With B = H = 3 a mask of three dimensions could be one for each example or one for each head.
@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 1, 4), (1, 4, 4), (4,), ()])
def test_refuses_a_mask_that_could_be_read_in_two_ways(shape: tuple[int, ...]) -> None:
    q = ones(3, 3, 4, 8)
    with pytest.raises(ValueError, match="2 of its dimensions or all") as raised:
        attention(q, q, q, torch.ones(shape, dtype=torch.bool))
    assert f"got {shape}: on (B, H, Tq, Tk) pass mask[:, None] for (B, Tq, Tk), " in str(
        raised.value
    )
    assert "mask[None] for (H, Tq, Tk), mask[:, None, None] for (B, Tk)" in str(raised.value)


def test_the_advice_on_dimensions_gives_the_mask_that_was_meant(device: str) -> None:
    q, k, v = (normal(3, 3, 4, 8, dtype=SINGLE, device=device, seed=s) for s in range(3))
    mask = normal(3, 4, 4, dtype=SINGLE, device=device, seed=3) > 0
    by_example, by_head = attention(q, k, v, mask[:, None]), attention(q, k, v, mask[None])
    for n in range(3):  # without leading dimensions, or with one, nothing is missing
        assert_close([x[n] for x in by_example], [*attention(q[n], k[n], v[n], mask[n])])
        assert_close([x[:, n] for x in by_head], [*attention(q[:, n], k[:, n], v[:, n], mask[n])])
    assert_close([x[:, 0] for x in by_example], [*attention(q[:, 0], k[:, 0], v[:, 0], mask)])


@pytest.mark.parametrize(
    ("convert", "mask"),
    [
        (lambda mask: mask == 0, torch.tensor([[0.0, -math.inf]])),
        (lambda mask: mask == 0, torch.tensor([[False, True]])),
        (lambda mask: mask != 0, torch.tensor([[1, 0]])),
    ],
    ids=["additive", "inverted", "one is attend"],
)
def test_the_advice_on_masks_gives_the_mask_that_was_meant(
    convert: Callable[[Tensor], Tensor], mask: Tensor
) -> None:
    q, k = ones(1, 3), ones(2, 3)
    assert attention(q, k, k, convert(mask))[1].tolist() == [[1.0, 0.0]]


def test_a_value_that_is_not_finite_reaches_past_the_mask(device: str) -> None:
    q, k, v = (x.detach() for x in batch(SINGLE, device))
    mask = torch.arange(7, device=device)[None] < 6
    v[..., 6, 0] = math.nan
    output = attention(q, k, v, mask)[0]
    assert output[..., 0].isnan().all()
    assert output[..., 1:].isfinite().all()
