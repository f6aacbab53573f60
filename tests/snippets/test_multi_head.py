import copy
import math
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile
from torch.testing import assert_close

from snippets.attention import attention
from snippets.multi_head import MultiHeadAttention
from tests.snippets.reference import DEVICES, DTYPES, assert_rounded, attention_by_hand, normal

SINGLE, DOUBLE = torch.float32, torch.float64
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)
# Query heads, key and value heads.
HEADS = [(4, 4), (4, 2), (4, 1), (1, 1)]
heads = pytest.mark.parametrize(("n_heads", "n_kv_heads"), HEADS)


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def built(
    n_heads: int = 4,
    n_kv_heads: int | None = None,
    *,
    dtype: torch.dtype = SINGLE,
    device: str = "cpu",
    **options: Any,
) -> MultiHeadAttention:
    """A module of width 8 whose weights and biases are all far from 0."""
    module = MultiHeadAttention(8, n_heads, n_kv_heads=n_kv_heads, **options)
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = normal(*parameter.shape, dtype=SINGLE, device="cpu", seed=seed) / 2
    if device == "mps" and dtype == DOUBLE:
        pytest.skip("mps has no float64")
    return module.to(device, dtype)


def inputs(
    dtype: torch.dtype = SINGLE, device: str = "cpu", b: int = 2, t_q: int = 5, t_k: int = 7
) -> tuple[Tensor, Tensor]:
    """x and a memory that collect gradients."""
    x = normal(b, t_q, 8, dtype=dtype, device=device, seed=10)
    memory = normal(b, t_k, 8, dtype=dtype, device=device, seed=11)
    return x.requires_grad_(), memory.requires_grad_()


def random_mask(*shape: int, device: str = "cpu", share: float = 0.0) -> Tensor:
    return normal(*shape, dtype=SINGLE, device=device, seed=12) > share


def causal(n: int, device: str = "cpu") -> Tensor:
    return torch.ones(n, n, dtype=torch.bool, device=device).tril()


def by_hand(
    module: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output and weights in float64, one head at a time, from rows of the weights."""
    x, memory = x.detach().double().cpu(), memory.detach().double().cpu()
    state = {name: y.double().cpu() for name, y in module.state_dict().items()}
    d, n_kv = 8 // module.n_heads, module.n_kv_heads
    shape = (len(x), module.n_heads, x.shape[1], memory.shape[1])
    mask = torch.ones(()).bool() if mask is None else mask.cpu()
    mask = mask.broadcast_to(shape)
    output = torch.zeros_like(x) + state.get("out.bias", torch.zeros(8))
    weights = torch.zeros(shape, dtype=DOUBLE)
    for h in range(module.n_heads):
        shared = h * n_kv // module.n_heads
        firsts = (h * d, 8 + shared * d, 8 + n_kv * d + shared * d)
        q, k, v = (
            y @ state["qkv.weight"][first : first + d].T
            + state.get("qkv.bias", torch.zeros(99))[first : first + d]
            for first, y in zip(firsts, (x, memory, memory), strict=True)
        )
        head, weights[:, h] = attention_by_hand(q, k, v, mask[:, h])
        output += head @ state["out.weight"][:, h * d : (h + 1) * d].T
    return output, weights


def gradients(results: tuple[Tensor, ...], wanted: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a loss in which every entry of every result has a weight of its own."""
    loss = torch.zeros((), device=wanted[0].device)
    for seed, x in enumerate(results):
        loss = loss + (x * normal(*x.shape, dtype=x.dtype, device=str(x.device), seed=seed)).sum()
    return torch.autograd.grad(loss, wanted)


# The definition

MASKS: dict[str, Callable[[int], Tensor | None]] = {
    "none": lambda _: None,
    "for all": lambda t_k: random_mask(5, t_k),
    "by example and head": lambda t_k: random_mask(2, 4, 5, t_k),
    "by head": lambda t_k: random_mask(1, 4, 5, t_k),
    "keys of examples": lambda t_k: torch.arange(t_k) < torch.tensor([3, 4])[:, None, None, None],
    "keys": lambda t_k: torch.arange(t_k)[None] != 1,
    "empty rows": lambda t_k: random_mask(5, t_k) & (torch.arange(5) != 2)[:, None],
    "nothing": lambda _: torch.tensor([[False]]),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize(("n_kv_heads", "bias"), [(4, True), (2, False), (1, True)])
def test_both_paths_match_the_definition(
    n_kv_heads: int, bias: bool, cross: bool, mask: str, device: str
) -> None:
    module = built(4, n_kv_heads, bias=bias, device=device, dtype=SINGLE)
    x, memory = inputs(device=device)
    memory = memory if cross else x
    chosen = MASKS[mask](memory.shape[1])
    chosen = chosen if chosen is None else chosen.to(device)
    arguments = (x, memory, chosen) if cross else (x, None, chosen)
    expected, expected_weights = by_hand(module, x, memory, chosen)
    fast, none = module(*arguments)
    output, weights = module(*arguments, need_weights=True)
    assert none is None
    assert_close(fast.double().cpu(), expected, rtol=1e-5, atol=3e-6)
    assert_close(output.double().cpu(), expected, rtol=1e-5, atol=3e-6)
    assert_close(weights.double().cpu(), expected_weights, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 4), (4, 2)])
def test_the_paths_have_the_same_gradients(
    n_heads: int, n_kv_heads: int, is_causal: bool, mask: str, device: str
) -> None:
    module = built(n_heads, n_kv_heads, device=device)
    x, _ = inputs(device=device)
    chosen = MASKS[mask](5)
    if chosen is not None:
        chosen = chosen.to(device)
    wanted = [x, *module.parameters()]
    found = [
        gradients((module(x, None, chosen, is_causal=is_causal, need_weights=need)[0],), wanted)
        for need in (False, True)
    ]
    assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)
    assert all(bool(x.isfinite().all()) for pair in found for x in pair)


def test_gradients_match_finite_differences(device: str) -> None:
    module = built(4, 2, dtype=DOUBLE, device=device)
    x, memory = inputs(DOUBLE, device, b=1, t_q=2, t_k=3)
    mask = random_mask(1, 4, 2, 3, device=device, share=0.5)

    def run(x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        output, weights = module(x, memory, mask, need_weights=True)
        return output, weights

    assert torch.autograd.gradcheck(run, (x, memory), fast_mode=True)


def test_the_weights_have_second_derivatives_and_the_flash_kernel_has_none(device: str) -> None:
    module = built(4, 2, dtype=DOUBLE, device=device)
    x, memory = inputs(DOUBLE, device, b=1, t_q=2, t_k=3)
    mask = random_mask(1, 4, 2, 3, device=device, share=0.5)

    def run(x: Tensor, memory: Tensor) -> Tensor:
        output: Tensor = module(x, memory, mask, need_weights=True)[0]
        return output

    assert torch.autograd.gradgradcheck(run, (x, memory), fast_mode=True)

    def slope(kernel: SDPBackend | None) -> Tensor:
        with nullcontext() if kernel is None else sdpa_kernel(kernel):
            output: Tensor = module(x, memory, mask, need_weights=kernel is None)[0]
            (first,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), x)
        return second

    assert_close(slope(SDPBackend.MATH), slope(None))
    if device == "cpu":
        with pytest.raises(RuntimeError, match="flash_attention_for_cpu_backward"):
            slope(SDPBackend.FLASH_ATTENTION)


@pytest.mark.parametrize("need_weights", [False, True])
@dtypes
def test_a_query_without_keys_gets_the_bias_and_sends_nothing_back(
    dtype: torch.dtype, need_weights: bool, device: str
) -> None:
    module = built(dtype=dtype, device=device)
    x, memory = inputs(dtype, device)
    mask = torch.ones(5, 7, dtype=torch.bool, device=device)
    mask[1] = False
    with torch.autograd.set_detect_anomaly(True):
        output, weights = module(x, memory, mask, need_weights=need_weights)
        found = gradients((output,), [x, memory, *module.parameters()])
    assert_close(output[:, 1], module.out.bias.expand(2, 8))
    assert weights is None or bool((weights[:, :, 1] == 0).all())
    assert bool((found[0][:, 1] == 0).all())
    assert all(bool(x.isfinite().all()) for x in found)


def test_one_head_is_attention_between_two_projections(device: str) -> None:
    module = built(1, dtype=DOUBLE, device=device)
    x, _ = inputs(DOUBLE, device)
    q, k, v = module.qkv(x).chunk(3, dim=-1)
    inner, inner_weights = attention(q, k, v)
    output, weights = module(x, need_weights=True)
    assert_close(output, module.out(inner))
    assert_close(weights[:, 0], inner_weights)


def test_a_shared_head_is_a_repeated_head(device: str) -> None:
    few = built(4, 2, device=device)
    q, k, v = (w.view(-1, 2, 8) for w in torch.split(few.qkv.weight, [8, 4, 4]))
    q_bias, k_bias, v_bias = (b.view(-1, 2) for b in torch.split(few.qkv.bias, [8, 4, 4]))
    order = [0, 0, 1, 1]  # query head h uses key head h // 2
    many = MultiHeadAttention(8, 4).to(device)
    many.load_state_dict(
        {
            "qkv.weight": torch.cat([q, k[order], v[order]]).flatten(0, 1),
            "qkv.bias": torch.cat([q_bias, k_bias[order], v_bias[order]]).flatten(),
            "out.weight": few.out.weight,
            "out.bias": few.out.bias,
        }
    )
    x, memory = inputs(device=device)
    for need_weights in (False, True):
        assert_close(
            few(x, memory, need_weights=need_weights), many(x, memory, need_weights=need_weights)
        )


@heads
def test_the_number_of_parameters(n_heads: int, n_kv_heads: int) -> None:
    count = sum(x.numel() for x in built(n_heads, n_kv_heads).parameters())
    width = 8 // n_heads * n_kv_heads
    assert count == 2 * 8 * 8 + 2 * 8 * width + 2 * 8 + 2 * width
    assert count == 4 * 8**2 + 4 * 8 or n_kv_heads < n_heads


# Invariants


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_editing_the_future_changes_the_past_by_exactly_nothing(
    masked: bool, need_weights: bool, device: str
) -> None:
    module = built(device=device)
    mask = random_mask(1, 4, 5, 5, device=device) if masked else None
    x = inputs(device=device)[0].detach()
    before = module(x, mask=mask, is_causal=True, need_weights=need_weights)[0]
    x[:, 3:] = 100
    after = module(x, mask=mask, is_causal=True, need_weights=need_weights)[0]
    assert_close(after[:, :3], before[:, :3], rtol=0, atol=0)
    assert not torch.allclose(after[:, 3:], before[:, 3:])


@pytest.mark.parametrize("need_weights", [False, True])
def test_is_causal_is_a_lower_triangle_and_both_masks_count(
    need_weights: bool, device: str
) -> None:
    module = built(device=device)
    x, memory = inputs(device=device, t_k=5)
    mask = random_mask(2, 1, 5, 5, device=device)
    triangle = causal(5, device)
    for given, equal in ((None, triangle), (mask, mask & triangle)):
        output = module(x, memory, given, is_causal=True, need_weights=need_weights)
        assert_close(output, module(x, memory, equal, need_weights=need_weights))


# Sizes that coincide would hide a mix-up of their dimensions.
@pytest.mark.parametrize(("b", "t"), [(4, 3), (3, 3), (3, 4), (2, 5)])
def test_examples_do_not_touch_each_other(b: int, t: int, device: str) -> None:
    module = built(device=device)
    x, memory = inputs(device=device, b=b, t_q=t, t_k=t)
    mask = random_mask(b, 4, t, t, device=device)
    output, weights = module(x, memory, mask, need_weights=True)
    fast, _ = module(x, memory, mask)
    for i in range(b):
        alone = module(x[i : i + 1], memory[i : i + 1], mask[i : i + 1], need_weights=True)
        assert_close(alone, (output[i : i + 1], weights[i : i + 1]))
        assert_close(alone[0], fast[i : i + 1])


def test_a_mask_of_one_head_changes_the_weights_of_that_head_only(device: str) -> None:
    module = built(device=device)
    x, _ = inputs(device=device)
    mask = torch.ones(1, 4, 5, 5, dtype=torch.bool, device=device)
    mask[:, 2, :, 0] = False
    before, after = (module(x, mask=m, need_weights=True)[1] for m in (None, mask))
    changed = (before != after).any(-1).any(-1).any(0)
    assert changed.tolist() == [False, False, True, False]


@heads
def test_order_comes_in_only_through_the_inputs(n_heads: int, n_kv_heads: int, device: str) -> None:
    module = built(n_heads, n_kv_heads, device=device)
    x, memory = inputs(device=device)
    order, places = torch.tensor([3, 0, 4, 1, 2]), torch.tensor([6, 0, 3, 1, 5, 2, 4])
    assert_close(module(x[:, order])[0], module(x)[0][:, order])
    assert_close(module(x, memory[:, places])[0], module(x, memory)[0])


def test_a_memory_equal_to_x_is_x(device: str) -> None:
    for module in (built(4, 2, device=device), built(4, 2, device=device, bias=False)):
        x, _ = inputs(device=device)
        wanted = [x, *module.parameters()]
        own, other = module(x)[0], module(x, x.clone())[0]
        assert_close(other, own)
        assert_close(gradients((other,), wanted), gradients((own,), wanted))


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("b", "t_q", "t_k"), [(0, 5, 7), (2, 0, 7), (2, 5, 0)])
def test_what_is_empty_gives_nothing(
    b: int, t_q: int, t_k: int, need_weights: bool, device: str
) -> None:
    module = built(device=device)
    x, memory = inputs(device=device, b=b, t_q=t_q, t_k=t_k)
    output, weights = module(x, memory, need_weights=need_weights)
    assert_close(output, module.out.bias.expand(b, t_q, 8))
    assert weights is None or weights.shape == (b, 4, t_q, t_k)


# PyTorch's own


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    ("cross", "masked"),
    [*product((True, False), ("nothing", "pairs", "keys")), (False, "causal")],
)
def test_agrees_with_the_layer_that_it_was_copied_from(
    cross: bool, masked: str, batch_first: bool, bias: bool, device: str
) -> None:
    torch.manual_seed(0)
    # In float64, since the gradient of the keys' bias is 0 and would be nothing but noise.
    layer = nn.MultiheadAttention(8, 4, bias=bias, batch_first=batch_first).to(device, DOUBLE)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    module = MultiHeadAttention.from_torch(layer)
    x, memory = inputs(DOUBLE, device)
    memory = memory if cross else x
    t_k = memory.shape[1]
    hidden: dict[str, Tensor] = {}
    mask, options = None, {}
    if masked == "pairs":
        hidden["attn_mask"] = random_mask(5, t_k, device=device, share=0.7)
        hidden["attn_mask"][:, 0] = False  # its rows without keys are NaN
        mask = ~hidden["attn_mask"]
    elif masked == "keys":
        hidden["key_padding_mask"] = torch.arange(t_k, device=device) > torch.tensor(
            [[2], [3]], device=device
        )
        mask = ~hidden["key_padding_mask"][:, None, None]
    elif masked == "causal":
        hidden["attn_mask"], options = ~causal(5, device), {"is_causal": True}

    def turned(x: Tensor) -> Tensor:
        return x if batch_first else x.transpose(0, 1)

    places = [turned(y) for y in (x, memory, memory)]
    expected, expected_weights = layer(*places, **hidden, average_attn_weights=False)
    output, weights = module(x, memory if cross else None, mask, need_weights=True, **options)
    fast, _ = module(x, memory if cross else None, mask, **options)
    assert_close(output, turned(expected))
    assert_close(weights, expected_weights)
    assert_close(fast, turned(expected))
    wanted = [x, memory] if cross else [x]
    theirs = gradients((turned(expected),), [*wanted, *layer.parameters()])
    # Both give parameters as in-projection, its bias, out-projection, its bias.
    for result in (output, fast):
        ours = gradients((result,), [*wanted, *module.parameters()])
        assert_close(ours, theirs)


def test_a_mask_for_each_example_and_head_of_the_layer_unflattens(device: str) -> None:
    layer = nn.MultiheadAttention(8, 4, batch_first=True).to(device)
    module = MultiHeadAttention.from_torch(layer)
    x, _ = inputs(device=device)
    hidden = random_mask(2 * 4, 5, 5, device=device, share=0.7)  # (B·H, Tq, Tk)
    hidden[..., 0] = False
    expected, _ = layer(x, x, x, attn_mask=hidden)
    assert_close(module(x, mask=~hidden.unflatten(0, (2, 4)))[0], expected)  # type: ignore[no-untyped-call]


def test_a_copy_has_its_own_weights_and_the_settings_of_the_layer(device: str) -> None:
    layer = nn.MultiheadAttention(8, 4, dropout=0.25, device=device, dtype=torch.bfloat16).eval()
    layer.requires_grad_(False)
    state = torch.get_rng_state()
    module = MultiHeadAttention.from_torch(layer)
    assert torch.equal(torch.get_rng_state(), state)
    assert not module.training
    assert module.dropout == 0.25
    assert module.qkv.weight.device == layer.in_proj_weight.device
    assert {x.dtype for x in module.parameters()} == {torch.bfloat16}
    assert all(x.requires_grad for x in module.parameters())
    before = layer.in_proj_weight.clone()
    nn.init.zeros_(module.qkv.weight)
    assert_close(layer.in_proj_weight, before)
    assert MultiHeadAttention.from_torch(layer.train()).training


def plain(x: Tensor, qkv: Tensor, out: Tensor, split: Callable[[Tensor], tuple[Tensor, ...]]):  # type: ignore[no-untyped-def]
    """Self-attention of 4 heads without biases; ``split`` gives q, k and v of (B, T, H, d)."""
    q, k, v = (y.transpose(1, 2) for y in split(x @ qkv.T))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape) @ out.T


def test_fused_rows_load_as_they_are_and_rows_by_head_once_reordered(device: str) -> None:
    x, _ = inputs(device=device)
    fused = normal(24, 8, dtype=SINGLE, device=device, seed=3)
    out = normal(8, 8, dtype=SINGLE, device=device, seed=4)
    by_parts = plain(x, fused, out, lambda y: torch.unflatten(y, -1, (3, 4, 2)).unbind(2))
    by_head = plain(x, fused, out, lambda y: torch.unflatten(y, -1, (4, 3, 2)).unbind(3))
    module = MultiHeadAttention(8, 4, bias=False).to(device)
    module.load_state_dict({"qkv.weight": fused, "out.weight": out})
    assert_close(module(x)[0], by_parts)
    assert not torch.allclose(module(x)[0], by_head)
    # As the notes of the class say.
    reordered = torch.unflatten(fused, 0, (4, 3, 2)).transpose(0, 1).flatten(0, 2)
    module.load_state_dict({"qkv.weight": reordered, "out.weight": out})
    assert_close(module(x)[0], by_head)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernels of a GPU")
def test_runs_on_a_gpu_in_half_precision_with_fewer_heads() -> None:
    module = built(4, 2, dtype=torch.bfloat16, device="cuda")
    x, _ = inputs(torch.bfloat16, "cuda")
    expected, _ = by_hand(module, x, x)
    assert_close(module(x)[0].double().cpu(), expected, rtol=0.02, atol=0.1)


@pytest.mark.parametrize("shape", [None, (5, 5), (1, 4, 5, 5), (1, 5), (2, 1, 1, 5)])
@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_no_mask_and_no_sharing_keeps_it_from_the_fused_kernel(
    n_kv_heads: int, shape: tuple[int, ...] | None
) -> None:
    module, (x, _) = built(4, n_kv_heads), inputs()
    mask = None if shape is None else torch.ones(shape, dtype=torch.bool)
    with profile() as ran:
        module(x, mask=mask)
    names = {event.key for event in ran.key_averages()}
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
    assert "aten::_scaled_dot_product_attention_math" not in names


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_only_shared_heads_set_the_flag_that_costs_a_gpu_its_fused_kernel(n_kv_heads: int) -> None:
    with patch.object(
        F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention
    ) as ran:
        built(4, n_kv_heads)(inputs()[0])
    (call,) = ran.call_args_list
    assert call.kwargs["enable_gqa"] == (n_kv_heads == 2)


# What it starts at


@pytest.mark.parametrize("n_heads", [1, 8, 64])
def test_logits_start_at_variance_one_for_any_number_of_heads(n_heads: int) -> None:
    torch.manual_seed(0)
    module = MultiHeadAttention(256, n_heads, n_kv_heads=1)
    for linear in (module.qkv, module.out):
        assert linear.weight.var().item() == pytest.approx(1 / 256, rel=0.02)
        assert linear.weight.abs().max().item() <= math.sqrt(3 / 256)
        assert (linear.bias == 0).all()
    x = torch.randn(1, 512, 256)
    q, k, _ = module._project(x, x)
    logits = q @ k.mT / math.sqrt(256 / n_heads)
    assert q.var().item() == pytest.approx(1, rel=0.1)
    # Few key coordinates, few draws: with one head, d = 256 of them.
    assert logits.var().item() == pytest.approx(1, rel=0.15 if n_heads < 64 else 0.6)


def test_weights_can_be_drawn_anew() -> None:
    module = MultiHeadAttention(8, 2)
    before = copy.deepcopy(module.state_dict())
    nn.init.ones_(module.out.bias)
    module.reset_parameters()
    assert not torch.equal(module.qkv.weight, before["qkv.weight"])
    assert not torch.equal(module.out.weight, before["out.weight"])
    assert (module.out.bias == 0).all()


# Dropout


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_drops_in_training_only(need_weights: bool, device: str) -> None:
    module, (x, _) = built(dropout=0.5, device=device), inputs(device=device)
    expected, _ = built(device=device)(x)
    for mode in (module.train(), module.eval()):
        first, second = (mode(x, need_weights=need_weights)[0] for _ in range(2))
        assert torch.equal(first, second) == (not mode.training)
    assert_close(module(x, need_weights=need_weights)[0], expected)


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_is_right_on_average(need_weights: bool, device: str) -> None:
    torch.manual_seed(0)
    module = built(4, 2, dropout=0.25, device=device)
    x = inputs(device=device)[0].detach()[:1].expand(20_000, -1, -1)
    mask = random_mask(5, 5, device=device)
    # With dropout PyTorch's function refuses a mask beside is_causal.
    output, _ = module(x, mask=mask, is_causal=True, need_weights=need_weights)
    expected, _ = module.eval()(x[:1], mask=mask, is_causal=True)
    error = output.std(0) / math.sqrt(len(x))
    assert ((output.mean(0) - expected[0]).abs() < 5 * error + 1e-6).all()
    assert output.std(0).max() > 0.1


def test_returned_weights_are_those_that_were_used(device: str) -> None:
    module, (x, memory) = built(dropout=0.5, device=device), inputs(device=device)
    torch.manual_seed(0)
    output, dropped = module(x, memory, need_weights=True)
    _, weights = module.eval()(x, memory, need_weights=True)
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    assert_close(dropped, torch.where(kept, 2 * weights, 0.0))
    v = module._project(x, memory)[2]
    assert_close(output, module.out((dropped @ v).transpose(1, 2).flatten(2)))


# Precision, transforms, saving


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_stays_close(dtype: torch.dtype, need_weights: bool, device: str) -> None:
    module = built(4, 2, dtype=dtype, device=device)
    x, memory = inputs(dtype, device)
    output, weights = module(x, memory, need_weights=need_weights)
    expected, expected_weights = by_hand(module, x, memory)
    assert output.dtype == dtype
    slack = 30 * torch.finfo(dtype).eps
    assert_close(output.double().cpu(), expected, rtol=slack, atol=slack)
    if weights is not None:
        assert weights.dtype == dtype
        assert_close(weights.double().cpu(), expected_weights, rtol=slack, atol=slack)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("given", [SINGLE, torch.bfloat16], ids=str)
def test_autocast_gives_its_dtype_and_keeps_the_gradients_of_the_weights(
    given: torch.dtype, need_weights: bool, device: str
) -> None:
    module = built(4, 2, device=device)
    x, memory = inputs(given, device)
    with torch.autocast(device, torch.bfloat16):
        output, weights = module(x, memory, need_weights=need_weights)
    expected, _ = by_hand(module, x, memory)
    assert output.dtype == torch.bfloat16
    assert weights is None or weights.dtype == torch.bfloat16
    assert_close(output.double().cpu(), expected, rtol=0.1, atol=0.2)
    wanted = [x, *module.parameters()]
    exact = gradients((module(x.float(), memory.float())[0],), wanted)
    for ours, theirs in zip(gradients((output.float(),), wanted), exact, strict=True):
        assert_close(ours.float(), theirs.float(), rtol=0.1, atol=0.1 * theirs.abs().max().item())


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_weights_in_half_precision_are_rounded_once(
    dtype: torch.dtype, autocast: bool, device: str
) -> None:
    module = built(4, 2, dtype=SINGLE if autocast else dtype, device=device)
    x, memory = inputs(dtype, device)
    with torch.autocast(device, dtype, enabled=autocast):
        q, k, _ = module._project(x, memory)
        _, weights = module(x, memory, need_weights=True)
    assert q.dtype == dtype
    assert_rounded(weights, attention_by_hand(q, k.repeat_interleave(2, dim=1), k[:, :1])[1])


no_compiler = not any(map(shutil.which, ("g++", "clang++", "c++")))


@pytest.mark.parametrize(
    ("mask", "cross", "options"),
    [
        ("none", False, {}),
        ("by head", True, {}),
        ("by example and head", False, {"is_causal": True, "need_weights": True}),
    ],
)
def test_compiles_in_one_graph(
    mask: str, cross: bool, options: dict[str, bool], device: str
) -> None:
    torch.compiler.reset()
    module = built(4, 2, device=device)
    x, memory = inputs(device=device)
    chosen = MASKS[mask](7 if cross else 5)
    chosen = chosen if chosen is None else chosen.to(device)
    arguments = (x, memory if cross else None, chosen)
    expected = module(*arguments, **options)
    results = torch.compile(module, backend="aot_eager", fullgraph=True)(*arguments, **options)
    assert_close(results, expected)
    wanted = [x, *module.parameters()]
    assert_close(gradients(results[:1], wanted), gradients(expected[:1], wanted))


# What inductor imports still uses torch.jit.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.skipif(no_compiler, reason="no C++ compiler")
def test_compiles_to_kernels(
    device: str, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    # Inductor's cache does not tell apart what it compiled under another ATEN_CPU_CAPABILITY.
    cache = pytestconfig.rootpath / ".cache" / "inductor" / torch.backends.cpu.get_cpu_capability()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(cache))
    torch.compiler.reset()
    module, (x, _) = built(4, 2, device=device), inputs(device=device)
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True)
        assert_close(compiled(x, is_causal=True), module(x, is_causal=True))


def test_compiles_under_autocast_for_any_length(device: str) -> None:
    torch.compiler.reset()
    module = built(4, 2, device=device)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, dynamic=True)
    for length in (5, 9):
        x, _ = inputs(device=device, t_q=length)
        with torch.no_grad(), torch.autocast(device, torch.bfloat16):
            assert_close(compiled(x, need_weights=True), module(x, need_weights=True))


@heads
def test_a_saved_state_gives_the_same_module(n_heads: int, n_kv_heads: int) -> None:
    module, (x, memory) = built(n_heads, n_kv_heads), inputs()
    other = MultiHeadAttention(8, n_heads, n_kv_heads=n_kv_heads)
    other.load_state_dict(module.state_dict())
    assert list(module.state_dict()) == ["qkv.weight", "qkv.bias", "out.weight", "out.bias"]
    assert_close(other(x, memory)[0], module(x, memory)[0], rtol=0, atol=0)


def test_the_meta_device_gives_the_shapes() -> None:
    with torch.device("meta"):
        module = MultiHeadAttention(8, 4, n_kv_heads=2)
        x, memory = torch.empty(2, 5, 8), torch.empty(2, 7, 8)
    output, weights = module(x, memory, need_weights=True)
    assert output.shape == (2, 5, 8)
    assert weights.shape == (2, 4, 5, 7)


def test_the_meta_device_refuses_another_dtype() -> None:
    with torch.device("meta"):
        module, x = MultiHeadAttention(8, 4), torch.empty(2, 5, 8, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="x must have the dtype of the weights"):
        module(x)


def test_a_value_that_is_not_finite_reaches_past_the_mask(device: str) -> None:
    module, (x, memory) = built(device=device), inputs(device=device)
    memory = memory.detach().clone()
    memory[:, 6] = math.nan
    mask = torch.arange(7, device=device)[None] < 6
    assert module(x, memory, mask, need_weights=True)[0].isnan().all()


# Refusals


@pytest.mark.parametrize(
    ("arguments", "options", "parts"),
    [
        ((10, 3), {}, ["d_model must be divisible by n_heads, got 10 and 3", "d_model=12"]),
        ((8, 4), {"n_kv_heads": 3}, ["n_heads must be divisible by n_kv_heads, got 4 and 3"]),
        ((8, 2), {"n_kv_heads": 4}, ["got 2 and 4", "n_kv_heads=1 always fits"]),
        ((8, 0), {}, ["n_heads must be an int, 1 or more, got 0"]),
        ((-8, 4), {}, ["d_model must be an int", "got -8"]),
        ((8, 4), {"n_kv_heads": 0}, ["n_kv_heads must be", "got 0"]),
        ((8, 8 / 2), {}, ["n_heads must be an int", "got 4.0", "//"]),
        ((8, torch.tensor(4)), {}, ["n_heads must be an int", "got tensor(4)", "numbers int"]),
        ((8, 4), {"dropout": 1.0}, ["0 or more and below 1", "got 1.0"]),
        ((8, 4), {"dropout": -0.1}, ["dropout must be", "got -0.1"]),
    ],
)
def test_refuses_sizes_that_do_not_fit(
    arguments: tuple[Any, ...], options: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(ValueError, match="got") as raised:
        MultiHeadAttention(*arguments, **options)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


def ones(*shape: int, dtype: torch.dtype = SINGLE) -> Tensor:
    return torch.ones(shape, dtype=dtype)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "parts"),
    [
        (([[1.0]],), {}, TypeError, ["x must be a tensor, got list", "torch.tensor"]),
        ((ones(5, 8),), {}, ValueError, ["x must be (B, T, d_model)", "got (5, 8)", "x[None]"]),
        ((ones(2, 5, 9),), {}, ValueError, ["d_model = 8, got (2, 5, 9)", "project"]),
        ((ones(2, 5, 8), ones(7, 8)), {}, ValueError, ["memory must be", "memory[None]"]),
        (
            (ones(2, 5, 8, dtype=DOUBLE),),
            {},
            TypeError,
            ["x must have the dtype of the weights, torch.float32, got torch.float64", "autocast"],
        ),
        ((ones(2, 5, 8, dtype=torch.int64),), {}, TypeError, ["x must have", "got torch.int64"]),
        (
            (ones(2, 5, 8), ones(2, 5, 8, dtype=torch.bool)),
            {},
            TypeError,
            ["memory must have the dtype", "got torch.bool"],
        ),
        (
            (ones(2, 5, 8), ones(5, 2, 8)),
            {},
            ValueError,
            ["one batch size, got 2 and 5", "x (2, 5, 8), memory (5, 2, 8)", "batch first"],
        ),
        (
            (ones(2, 1, 8), ones(2, 7, 8)),
            {"is_causal": True},
            ValueError,
            ["as many keys as queries", "Tq = 1 and Tk = 7", "top left", ".tril(Tk - Tq)"],
        ),
        (
            (ones(2, 5, 8), ones(2, 5, 8), ones(2, 5, 8)),
            {},
            TypeError,
            [
                "mask must be a boolean tensor (True = may attend), got torch.float32",
                "mask == 0",
                "the third argument is the mask: keys and values both come from memory",
            ],
        ),
        ((ones(2, 5, 8),), {"mask": [[True]]}, TypeError, ["mask must be", "got list"]),
        *(
            (
                (ones(2, 5, 8),),
                {"mask": ones(*shape, dtype=torch.bool)},
                ValueError,
                [
                    "broadcast to (B, H, Tq, Tk) = (2, 4, 5, 5)",
                    f"got {shape}",
                    "[:, None, None]",
                    "mask.unflatten(0, (B, H))",
                ],
            )
            for shape in (
                *((2, 5), (2, 5, 5), (5, 6), (1, 2, 4, 5, 5), (8, 5, 5)),
                *((4, 5, 5), (1, 5, 5), (4, 1, 5), (5,), ()),
            )
        ),
        (  # with B = H three dimensions could be examples or heads
            (ones(4, 5, 8),),
            {"mask": ones(4, 5, 5, dtype=torch.bool)},
            ValueError,
            [
                "2 of its dimensions or all, got (4, 5, 5)",
                "pass mask[:, None] for (B, Tq, Tk), mask[None] for (H, Tq, Tk)",
            ],
        ),
    ],
)
def test_refuses_inputs_that_do_not_fit(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        built()(*arguments, **options)
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


def test_only_a_mask_of_floats_may_be_the_values() -> None:
    x = ones(2, 5, 8)
    with pytest.raises(TypeError, match="mask must be a boolean tensor") as raised:
        built()(x, x, ones(5, 5, dtype=torch.int64))
    assert "third argument" not in str(raised.value)


@pytest.mark.parametrize(
    ("own", "given"), [(SINGLE, DOUBLE), (DOUBLE, SINGLE), (SINGLE, torch.int64)], ids=str
)
def test_autocast_does_not_excuse_what_it_leaves_alone(
    own: torch.dtype, given: torch.dtype, device: str
) -> None:
    module = built(dtype=own, device=device)
    with torch.autocast(device, torch.bfloat16), pytest.raises(TypeError, match="x must have"):
        module(ones(2, 5, 8, dtype=given).to(device))


def test_the_advice_on_causal_masks_gives_the_mask_that_was_meant(device: str) -> None:
    module, (x, _) = built(device=device), inputs(device=device)
    t_q, t_k = 2, 5
    mask = torch.ones(t_q, t_k, dtype=torch.bool, device=device).tril(t_k - t_q)
    last = module(x[:, -t_q:], x, mask)[0]  # as in decoding, the keys of all, the last queries
    assert_close(last, module(x, is_causal=True)[0][:, -t_q:])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"kdim": 6}, "kdim or vdim other than embed_dim"),
        ({"vdim": 6}, "vdim 6"),
        ({"add_bias_kv": True}, "add_bias_kv=True"),
        ({"add_zero_attn": True}, "add_zero_attn=True"),
    ],
)
def test_refuses_layers_that_it_cannot_represent(options: dict[str, Any], part: str) -> None:
    layer = nn.MultiheadAttention(8, 4, **options)
    with pytest.raises(ValueError, match="cannot be represented") as raised:
        MultiHeadAttention.from_torch(layer)
    assert part in str(raised.value)
    assert "keep nn.MultiheadAttention for it" in str(raised.value)


def test_refuses_to_copy_another_module() -> None:
    with pytest.raises(TypeError, match="got Linear: load other fused weights"):
        MultiHeadAttention.from_torch(nn.Linear(8, 8))  # type: ignore[arg-type]
