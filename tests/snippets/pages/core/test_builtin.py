"""The helpers of the page see the kernels, the weights and the errors that are there."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from snippets.attention import attention
from snippets.pages.core import builtin
from tests.snippets.reference import DTYPES, attention_by_hand, normal

FLASH = "scaled_dot_product_flash_attention_for_cpu"
MATH = "scaled_dot_product_attention_math"

sdpa: Callable[..., Tensor] = F.scaled_dot_product_attention
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def inputs(
    dtype: torch.dtype, tq: int = 5, tk: int = 7, d: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    q = normal(2, 3, tq, d, dtype=dtype, device="cpu", seed=1)
    k = normal(2, 3, tk, d, dtype=dtype, device="cpu", seed=2)
    v = normal(2, 3, tk, d, dtype=dtype, device="cpu", seed=3)
    return q, k, v


# Which kernel


@pytest.mark.parametrize(
    ("backend", "name"), [(SDPBackend.FLASH_ATTENTION, FLASH), (SDPBackend.MATH, MATH)]
)
def test_the_kernel_that_was_asked_for_is_seen(backend: SDPBackend, name: str) -> None:
    with sdpa_kernel(backend):
        assert builtin.kernel_of(partial(sdpa, *inputs(torch.float32))) == [name]


def test_kernels_are_named_in_the_order_in_which_they_ran() -> None:
    q, k, v = inputs(torch.float32)

    def both() -> None:
        sdpa(q[0], k[0], v[0])
        sdpa(q, k, v)
        attention(q, k, v)  # products and a softmax: no kernel of its own

    assert builtin.kernel_of(both) == [MATH, FLASH]


def test_the_kernel_of_the_backward_pass_is_seen() -> None:
    q, k, v = (x.requires_grad_() for x in inputs(torch.float32))
    ran = builtin.kernel_of(lambda: sdpa(q, k, v).sum().backward())
    assert ran == [FLASH, f"{FLASH}_backward"]


def test_no_kernel_is_seen_where_none_ran() -> None:
    q, k, v = inputs(torch.float32)
    assert builtin.kernel_of(lambda: attention(q, k, v)) == []
    assert builtin.kernel_of(lambda: sdpa(q[:, :, :0], k, v)) == []


def test_nothing_keeps_a_plain_call_from_the_flash_kernel() -> None:
    assert builtin.why_not(partial(sdpa, *inputs(torch.float32))) == []


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"dropout_p": 0.1}, "dropout"),
        ({"attn_mask": torch.ones(3, 5, 7).bool()}, "mask shapes"),
        ({"attn_mask": torch.zeros(5, 7, requires_grad=True)}, "No available kernel"),
    ],
)
def test_what_keeps_a_call_from_the_flash_kernel_is_told(
    options: dict[str, Any], part: str
) -> None:
    call = partial(sdpa, *inputs(torch.float32), **options)
    (reason,) = builtin.why_not(call)
    assert part in reason
    assert "Triggered" not in reason
    assert builtin.kernel_of(call) == [MATH]  # and the other kernels are allowed again


def test_every_line_of_the_table_computes_attention() -> None:
    for name, (tensors, options) in builtin.builtin_calls(torch.float64, False).items():
        if "dropout_p" in options or "is_causal" in options or 0 in tensors[0].shape:
            continue
        q, k, v, *mask = tensors
        if options.get("enable_gqa"):
            k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        keep = mask[0] if mask and mask[0].dtype == torch.bool else None
        if keep is not None and keep.ndim == 3:  # (H, Tq, Tk), as the built-in broadcasts it
            keep = keep[None]
        expected = attention(q, k, v, keep, scale=options.get("scale"))[0]
        assert_close(sdpa(*tensors, **options), expected, msg=name)


def test_the_table_gives_inputs_of_the_kind_that_was_asked_for() -> None:
    for gradients in (False, True):
        for name, (tensors, _) in builtin.builtin_calls(torch.bfloat16, gradients).items():
            for x in tensors[:3]:
                assert (x.dtype, x.requires_grad) == (torch.bfloat16, gradients), name


# Errors


def test_the_relative_error_is_a_ratio_of_norms() -> None:
    exact = torch.tensor([3.0, 4.0], dtype=torch.float64)
    assert builtin.relative_error(exact.float() + torch.tensor([0.0, 1.0]), exact) == 0.2


@pytest.mark.parametrize(
    ("x", "step", "text"),
    [
        (0.21, 1, "1/4"),
        (0.25, 1, "1/4"),
        (0.26, 1, "1/2"),
        (1.0, 1, "1"),
        (2.9, 1, "4"),
        (0.3, 2, "1/2"),
        (1.0, 2, "2"),
        (2.1, 2, "8"),
        (8.0, 2, "8"),
    ],
)
def test_a_bound_is_the_next_power_of_two(x: float, step: int, text: str) -> None:
    assert builtin.power_above(x, step) == text


def test_the_reference_of_the_errors_is_the_definition() -> None:
    q, k, v, _ = (x[:1] for x in builtin.draw(torch.float64, 20))
    expected, _ = attention_by_hand(q, k, v)
    assert builtin.relative_error(builtin.bare(q, k, v), expected) < 8 * 2**-52


@dtypes
def test_an_error_of_a_known_size_is_measured(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(dtype).removeprefix("torch.")

    def off(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return builtin.bare(q, k, v) * 1.5

    monkeypatch.setitem(builtin.KERNELS, "off", off)
    eps = torch.finfo(dtype).eps
    largest, output, gradient = builtin.errors("off", name, 20)
    assert output * eps == pytest.approx(0.5, rel=0.02)
    assert gradient * eps == pytest.approx(0.5, rel=0.02)
    q, k, v, _ = (x.double() for x in builtin.draw(dtype, 20))
    half = builtin.bare(q, k, v).abs().max().item() / 2
    assert largest * eps == pytest.approx(half, rel=0.02)


def test_the_size_of_the_logits_is_what_was_asked_for() -> None:
    for size in (1.0, 8.0):
        q, k, *_ = builtin.draw(torch.float64, 128, size)
        assert (q @ k.mT / 8).std().item() == pytest.approx(size, rel=0.05)


@dtypes
@pytest.mark.parametrize("size", [1.0, 8.0])
@pytest.mark.parametrize("kernel", [builtin.flash, builtin.math_kernel, builtin.ours])
def test_right_kernels_are_within_the_tolerances_and_wrong_ones_are_not(
    kernel: Callable[..., Tensor], size: float, dtype: torch.dtype
) -> None:
    q, k, v, _ = builtin.draw(dtype, 100, size)  # draws that the page does not use
    wide = q.double(), k.double(), v.double()
    exact = builtin.bare(*wide)
    largest = (wide[0] @ wide[1].mT / 8).abs().max().item()
    tolerance = builtin.tolerances(dtype, largest)
    rtol, atol = tolerance["rtol"], tolerance["atol"]
    assert_close(kernel(q, k, v).double(), exact, rtol=rtol, atol=atol)
    for actual, expected in zip(kernel(q, k, v, scale=1.01 / 8), exact, strict=True):
        assert not torch.allclose(actual.double(), expected, rtol=rtol, atol=atol)


def test_a_relative_bound_misses_a_wrong_scale_that_the_tolerances_see() -> None:
    eps = torch.finfo(torch.bfloat16).eps
    q, k, v, _ = builtin.draw(torch.bfloat16, 16, 8.0, 20)
    exact = builtin.bare(q.double(), k.double(), v.double())
    tolerance = builtin.tolerances(torch.bfloat16, 40.0)
    rtol, atol = tolerance["rtol"], tolerance["atol"]
    wrong = builtin.flash(q, k, v, scale=1.01 / 8).double()
    for actual, expected in zip(wrong, exact, strict=True):
        assert builtin.relative_error(actual, expected) < eps / 2
        assert not torch.allclose(actual, expected, rtol=rtol, atol=atol)


# Weights and log-sum-exp


@dtypes
@pytest.mark.parametrize(("tk", "d"), [(7, 8), (8, 8), (17, 8), (3, 1)])
def test_recovered_weights_are_the_weights(tk: int, d: int, dtype: torch.dtype) -> None:
    q, k, _ = inputs(dtype, tk=tk, d=d)
    mask = normal(5, tk, dtype=dtype, device="cpu") > -0.5
    mask[2] = False
    _, expected = attention(q, k, k, mask)
    weights = builtin.recover_weights(lambda v: builtin.flash(q, k, v, mask), k)
    eps = torch.finfo(dtype).eps
    assert_close(weights, expected, rtol=4 * eps, atol=8 * eps)
    assert (weights[..., ~mask] == 0).all()


def test_recovered_weights_take_one_call_for_d_keys_and_have_gradients() -> None:
    q, k, _ = inputs(torch.float64, tk=17)
    q.requires_grad_()
    calls: list[Tensor] = []

    def call(v: Tensor) -> Tensor:
        calls.append(v)
        return sdpa(q, k, v)

    weights = builtin.recover_weights(call, k)
    assert [tuple(v.shape) for v in calls] == [(2, 3, 17, 8)] * 3
    loss = torch.arange(17).double()
    (gradient,) = torch.autograd.grad((weights * loss).sum(), q)
    (expected,) = torch.autograd.grad((attention(q, k, k)[1] * loss).sum(), q)
    assert_close(gradient, expected)


def test_the_log_sum_exp_is_that_of_the_logits() -> None:
    q, k, _ = inputs(torch.float64)
    expected = (q @ k.mT / math.sqrt(8)).logsumexp(-1)
    assert_close(builtin.log_sum_exp(q, k), expected)
    assert builtin.kernel_of(lambda: builtin.log_sum_exp(q, k)) == [FLASH]


@pytest.mark.parametrize(
    ("exact", "found"),
    [(-20, -math.inf), (-15, -15), (-9, -9), (0, 0), (95, 95), (102, 102), (105, math.inf)],
)
def test_where_the_log_sum_exp_ends_in_float32(exact: float, found: float) -> None:
    q, k = torch.full((1, 1, 1, 1), float(exact)), torch.ones(1, 1, 1, 1)
    inexact = exact < -10 or exact > 95
    result = builtin.log_sum_exp(q, k).item()
    assert result == pytest.approx(found, abs=0.3 if inexact else 1e-3)


# nn.MultiheadAttention


def test_the_identity_layer_is_attention() -> None:
    layer = builtin.identity_layer(12, 3, torch.float64)
    x = normal(5, 2, 12, dtype=torch.float64, device="cpu")  # (T, B, C)
    q = x.view(5, 2, 3, 4).permute(1, 2, 0, 3)  # (B, H, T, d)
    expected = attention(q, q, q)[0].permute(2, 0, 1, 3).flatten(2)
    assert_close(layer(x, x, x)[0], expected)


def test_the_fast_path_is_on_again_after_the_table_that_switches_it_off() -> None:
    builtin.table_padded()
    assert torch.backends.mha.get_fastpath_enabled()


# The lead's conditions


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (0.9, "below 1 ×"),
        (1.0, "1 ×"),
        (3.9, "2 ×"),
        (4.0, "4 ×"),
        (256.0, "256 ×"),
        (1e9, "256 ×"),
    ],
)
def test_a_lower_bound_is_a_power_of_two(x: float, text: str) -> None:
    assert builtin.power_below(x) == text


def test_rounding_hides_a_scale_that_is_one_per_cent_off_in_half_precision_only() -> None:
    _, values = builtin.table_seen()
    sizes = ("0.01", "0.1", "1", "8", "32")
    for dtype in ("float32", "float64"):
        found = {size: values[f"{dtype}_{size}"] for size in sizes}
        assert min(found.values()) > 200, f"{dtype}: {found}"
    narrow = [values[f"bfloat16_{size}"] for size in sizes]
    assert narrow[0] < narrow[1] < 1 < narrow[4] < narrow[3] < narrow[2] < 8
    q, k, v, _ = builtin.draw(torch.bfloat16, size=0.1)  # and it is hidden there in fact
    exact, _ = attention(q.double(), k.double(), v.double())
    right = builtin.relative_error(builtin.flash(q, k, v), exact)
    wrong = builtin.relative_error(builtin.flash(q, k, v, scale=1.01 / 8), exact)
    assert wrong < 1.2 * right


def test_the_priority_of_backends_changes_nothing_on_a_cpu() -> None:
    assert builtin.example_priority() == {"math_first": FLASH, "alone": MATH}


# Transformer layers


def test_the_hooks_give_the_weights_that_the_projections_make() -> None:
    found = builtin.example_encoder_weights()
    assert found == {"alone": "None", "shape": "(3, 2, 4, 4)"}
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    own = nn.TransformerEncoder(layer, 2).double().eval().layers[0].self_attn
    x = torch.randn(3, 4, 8).double()
    kept: list[Tensor] = []

    def ask(_module: nn.Module, given: Any, options: dict[str, Any]) -> Any:
        return given, options | {"need_weights": True, "average_attn_weights": False}

    own.register_forward_pre_hook(ask, with_kwargs=True)
    own.register_forward_hook(lambda _m, _i, outputs: kept.append(outputs[1]))
    own(x, x, x, need_weights=False)
    q, k, v = (
        y.unflatten(-1, (2, 4)).transpose(1, 2)
        for y in F.linear(x, own.in_proj_weight, own.in_proj_bias).chunk(3, -1)
    )
    assert_close(kept[0].detach(), attention_by_hand(q.detach(), k.detach(), v.detach())[1])


def test_the_fast_path_bypasses_the_attention_unless_there_is_a_hook(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert builtin.example_encoder_bypass() == {"bypassed": 0}
    counts = [int(line.split()[-2]) for line in capsys.readouterr().out.splitlines()]
    assert counts == [1, 0, 1]


def test_the_warning_says_what_keeps_nested_tensors_out() -> None:
    rows = builtin.table_nested()
    said = {row["layer"]: row["the warning, after *because*"] for row in rows}
    silent = {layer for layer, words in said.items() if words == "no warning"}
    assert silent == {"`batch_first=True`", '`activation="gelu"`'}
    for layer, word in (
        ("`batch_first=False`, the default", "batch_first was not True"),
        ("`norm_first=True`", "norm_first was True"),
        ("an odd number of heads", "num_heads is odd"),
        ("`bias=False`", "bias=False"),
        ("another activation", "activation_relu_or_gelu"),
    ):
        assert word in said[layer]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_skip_padding_and_only_without_the_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    builtin.example_nested()
    warned, silent, same = capsys.readouterr().out.splitlines()
    assert (warned[-1], silent[-1], same[-4:]) == ("1", "0", "True")
    x, hidden = torch.randn(2, 4, 8), torch.arange(4) >= torch.tensor([[4], [2]])
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    for nested in (True, False):
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()
        with torch.no_grad():
            output = encoder(x, src_key_padding_mask=hidden)
        assert bool(output[hidden].any()) is not nested


def test_a_cuda_build_without_a_driver_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: object) -> bool:
        raise RuntimeError("CUDA error: the driver is too old\nCompile with ...")

    monkeypatch.setattr(torch.backends.cuda, "can_use_flash_attention", refuse)
    builtin.example_cuda_only()
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "refuse: CUDA error: the driver is too old"
    assert second == "can_use_efficient_attention: False"
