from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from snippets.attention import attention
from snippets.costs import (
    Layer,
    attention_operations,
    cache_bytes,
    crossover_length,
    matrix_bytes,
    moved_bytes,
    parameters,
    projection_operations,
)

PLAIN = Layer(d_model=32, n_heads=4, n_kv_heads=4, d_k=8, bias=True)
GROUPED = Layer(d_model=24, n_heads=6, n_kv_heads=2, d_k=5, bias=False)  # 6 · 5 is not 24
steady = settings(deadline=None, derandomize=True, max_examples=50)
layers = st.builds(
    lambda d_model, n_kv_heads, group, d_k, bias: Layer(
        d_model=d_model, n_heads=group * n_kv_heads, n_kv_heads=n_kv_heads, d_k=d_k, bias=bias
    ),
    *(st.integers(1, 40), st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.booleans()),
)
each = pytest.mark.parametrize("layer", [PLAIN, GROUPED], ids=["plain", "grouped"])


class Projected(nn.Module):
    """Attention between four nn.Linear, by the recipe in the layer's sizes."""

    def __init__(self, layer: Layer, device: str = "cpu") -> None:
        super().__init__()
        self.layer = layer
        widths = (layer.n_heads * layer.d_k, layer.n_kv_heads * layer.d_k)
        options: dict[str, Any] = {"bias": layer.bias, "device": device}
        self.q = nn.Linear(layer.d_model, widths[0], **options)
        self.k = nn.Linear(layer.d_model, widths[1], **options)
        self.v = nn.Linear(layer.d_model, widths[1], **options)
        self.out = nn.Linear(widths[0], layer.d_model, **options)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, T, C) to q, k and v, (B, heads, T, d)."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.layer.d_k)).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        return q, k, v

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        output = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # (B, H, T, d)
        result: Tensor = self.out(output.transpose(1, 2).flatten(2))
        return result


def counted(run: Callable[[], object]) -> dict[str, int]:
    """Operations by PyTorch's own counter, by the name of the operator."""
    with FlopCounterMode(display=False) as counter:
        run()
    return {str(name): n for name, n in counter.get_flop_counts().get("Global", {}).items()}


# Parameters


@steady
@given(layer=layers)
def test_parameters_are_those_of_four_linear_layers(layer: Layer) -> None:
    assert parameters(layer) == sum(p.numel() for p in Projected(layer, "meta").parameters())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("d_model", "n_heads"), [(8, 1), (8, 8), (512, 8), (768, 12)])
def test_parameters_are_those_of_multihead_attention(
    d_model: int, n_heads: int, bias: bool
) -> None:
    layer = Layer(
        d_model=d_model, n_heads=n_heads, n_kv_heads=n_heads, d_k=d_model // n_heads, bias=bias
    )
    module = nn.MultiheadAttention(d_model, n_heads, bias=bias, device="meta")
    assert parameters(layer) == sum(p.numel() for p in module.parameters())
    assert parameters(layer) == 4 * d_model**2 + 4 * d_model * bias


# Operations


@each
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_operations_are_what_pytorch_counts(layer: Layer, device: str) -> None:
    x = torch.zeros(3, 7, layer.d_model, device=device)  # B = 3, T = 7
    with sdpa_kernel(SDPBackend.MATH):
        found = counted(lambda: Projected(layer, device)(x))
    projections = found.get("aten.addmm", 0) + found.get("aten.mm", 0)
    assert projections == projection_operations(layer, 3 * 7)
    assert found["aten.bmm"] == 3 * attention_operations(layer, 7, 7)


@steady
@given(layer=layers, n_queries=st.integers(1, 9), n_keys=st.integers(1, 9))
def test_attention_is_two_matrix_products(layer: Layer, n_queries: int, n_keys: int) -> None:
    q = torch.zeros(layer.n_heads, n_queries, layer.d_k)
    k = v = torch.zeros(layer.n_heads, n_keys, layer.d_k)
    found = counted(lambda: attention(q, k, v))
    assert sum(found.values()) == attention_operations(layer, n_queries, n_keys)
    shapes = (1, *q.shape), (1, layer.n_kv_heads, n_keys, layer.d_k)
    by_shapes = sdpa_flop_count(shapes[0], shapes[1], shapes[1])  # type: ignore[no-untyped-call]
    assert by_shapes == sum(found.values())


@each
def test_training_takes_three_times_the_forward_pass(layer: Layer) -> None:
    module = Projected(layer)
    x = torch.zeros(3, 7, layer.d_model, requires_grad=True)
    with sdpa_kernel(SDPBackend.MATH):
        found = counted(lambda: module(x).sum().backward())
    assert found["aten.bmm"] == 3 * 3 * attention_operations(layer, 7, 7)
    rest = found.get("aten.addmm", 0) + found.get("aten.mm", 0)
    assert rest == 3 * projection_operations(layer, 3 * 7)


@each
def test_a_backward_pass_that_computes_the_logits_again_takes_five_products(layer: Layer) -> None:
    q, k = ((3, n, 7, layer.d_k) for n in (layer.n_heads, layer.n_kv_heads))
    backward = sdpa_backward_flop_count(q, q, k, k)  # type: ignore[no-untyped-call]
    assert 2 * backward == 5 * 3 * attention_operations(layer, 7, 7)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (5, 5), (1, 8), (3, 8)])
def test_causal_counts_the_pairs_that_the_mask_leaves(n_queries: int, n_keys: int) -> None:
    pairs = sum(
        key <= query + n_keys - n_queries for query in range(n_queries) for key in range(n_keys)
    )
    expected = 4 * PLAIN.n_heads * PLAIN.d_k * pairs
    assert attention_operations(PLAIN, n_queries, n_keys, causal=True) == expected


def test_causal_prefill_is_the_sum_of_its_decoding_steps() -> None:
    steps = sum(attention_operations(GROUPED, 1, n) for n in range(1, 12))
    assert attention_operations(GROUPED, 11, 11, causal=True) == steps


@steady
@given(layer=layers)
def test_at_the_crossover_attention_costs_what_the_projections_cost(layer: Layer) -> None:
    # Multiplied by n_heads the length is whole, so that the comparison is exact.
    layer = replace(layer, d_model=layer.d_model * layer.n_heads)
    length = crossover_length(layer)
    assert length == int(length)
    n = int(length)
    assert attention_operations(layer, n, n) == projection_operations(layer, n)
    n = 2 * n - 1
    assert attention_operations(layer, n, n, causal=True) == projection_operations(layer, n)


def test_the_crossover_is_twice_the_width_without_shared_heads() -> None:
    assert crossover_length(PLAIN) == 2 * PLAIN.d_model
    assert crossover_length(replace(PLAIN, d_k=3)) == 2 * PLAIN.d_model
    assert crossover_length(replace(PLAIN, n_kv_heads=1)) == 1.25 * PLAIN.d_model


# Bytes


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [4, 8])
def test_the_matrix_is_the_weights_that_attention_returns(n: int, dtype: torch.dtype) -> None:
    q, k = (torch.zeros(GROUPED.n_heads, m, GROUPED.d_k, dtype=dtype) for m in (n, n + 3))
    assert matrix_bytes(GROUPED, n, n + 3, dtype) == attention(q, k, k)[1].nbytes
    assert matrix_bytes(GROUPED, 2 * n, 2 * n, dtype) == 4 * matrix_bytes(GROUPED, n, n, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8], ids=str)
@each
def test_the_cache_is_the_keys_and_values_of_every_layer(layer: Layer, dtype: torch.dtype) -> None:
    shape = (3, layer.n_kv_heads, 11, layer.d_k)  # (B, H, T, d)
    cache = [(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)) for _ in range(5)]
    expected = sum(k.nbytes + v.nbytes for k, v in cache)
    assert cache_bytes(layer, 5, 11, dtype, batch=3) == expected


def test_without_a_batch_the_bytes_are_those_of_one_sequence() -> None:
    k = v = torch.zeros(GROUPED.n_kv_heads, 11, GROUPED.d_k)
    assert cache_bytes(GROUPED, 1, 11, torch.float32) == k.nbytes + v.nbytes
    one = moved_bytes(GROUPED, 6, 6, torch.float32, batch=1)
    assert moved_bytes(GROUPED, 6, 6, torch.float32) == one


class Traffic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes that each step takes and gives; views and copies are free."""

    steps = "addmm", "mm", "bmm", "_softmax", "_scaled_dot_product_flash_attention_for_cpu"

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moved = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        results = func(*args, **kwargs or {})
        if func.overloadpacket.__name__ in self.steps:
            # A fused kernel gives the logarithms of its sums, too, which are left out.
            given = results[0] if isinstance(results, tuple) else results
            tensors = [x for x in (*args, given) if isinstance(x, Tensor)]
            self.moved += sum(x.nbytes for x in tensors)
        return results


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(("n_queries", "n_keys", "batch"), [(6, 6, 1), (6, 6, 3), (1, 9, 3)])
@each
def test_moved_bytes_are_what_the_steps_take_and_give(
    layer: Layer, n_queries: int, n_keys: int, batch: int, fused: bool
) -> None:
    queries, keys = layer.n_heads * layer.d_k, layer.n_kv_heads * layer.d_k
    into = nn.Linear(layer.d_model, queries + 2 * keys, bias=layer.bias)
    out = nn.Linear(queries, layer.d_model, bias=layer.bias)
    x = torch.zeros(batch, n_queries, layer.d_model)
    k, v = torch.zeros(2, batch, layer.n_kv_heads, n_keys, layer.d_k)  # the cache
    group = layer.n_heads // layer.n_kv_heads
    with torch.no_grad(), Traffic() as traffic:
        q = into(x)[..., :queries].unflatten(-1, (-1, layer.d_k)).transpose(1, 2)
        if fused:
            output = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        else:  # the queries that share keys are rows of one product
            rows = q.reshape(-1, group * n_queries, layer.d_k)
            weights = torch.bmm(rows, k.flatten(0, 1).mT).softmax(-1)
            output = torch.bmm(weights, v.flatten(0, 1)).view(q.shape)
        out(output.transpose(1, 2).flatten(2))
    expected = moved_bytes(layer, n_queries, n_keys, torch.float32, batch=batch, fused=fused)
    assert traffic.moved == expected


def test_decoding_alone_does_half_an_operation_a_byte_and_element() -> None:
    wide = Layer(d_model=4096, n_heads=32, n_kv_heads=32, d_k=128, bias=False)
    length = 10**6  # the cache outweighs the parameters
    operations = attention_operations(wide, 1, length) + projection_operations(wide, 1)
    intensity = operations / moved_bytes(wide, 1, length, torch.bfloat16)
    assert intensity == pytest.approx(1, rel=1e-3)
    shared = replace(wide, n_kv_heads=8)
    operations = attention_operations(shared, 1, length) + projection_operations(shared, 1)
    intensity = operations / moved_bytes(shared, 1, length, torch.bfloat16)
    assert intensity == pytest.approx(4, rel=2e-2)


# Refusals


def test_a_layer_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        PLAIN.d_k = 4  # type: ignore[misc]


def resized(**sizes: Any) -> Layer:
    return replace(PLAIN, **sizes)


BF16 = torch.bfloat16
refusals: list[tuple[Callable[[], object], type[Exception], list[str]]] = [
    (lambda: resized(d_model=0), ValueError, ["d_model must be 1 or more", "got 0"]),
    (lambda: resized(n_heads=-4), ValueError, ["n_heads must be 1 or more", "got -4"]),
    (lambda: resized(d_k=8.0), TypeError, ["d_k must be an integer", "got 8.0", "int()"]),
    (lambda: resized(n_kv_heads=True), TypeError, ["n_kv_heads must be an", "got True"]),
    (lambda: resized(n_kv_heads=None), TypeError, ["n_kv_heads must be an", "got None"]),
    (lambda: resized(n_kv_heads=3), ValueError, ["n_heads must be a multiple", "4 and 3"]),
    (lambda: resized(n_kv_heads=8), ValueError, ["n_heads must be a multiple", "4 and 8"]),
    (lambda: resized(bias=1), TypeError, ["bias must be True or False", "got 1"]),
    (lambda: projection_operations(PLAIN, 0), ValueError, ["n_tokens", "got 0"]),
    (lambda: attention_operations(PLAIN, 0, 3), ValueError, ["n_queries", "got 0"]),
    (lambda: attention_operations(PLAIN, 3, 1.5), TypeError, ["n_keys", "got 1.5"]),  # type: ignore[arg-type]
    (
        lambda: attention_operations(PLAIN, 4, 3, causal=True),
        ValueError,
        ["last of the keys' positions", "got 4 queries and 3 keys", "keys of the cache"],
    ),
    (lambda: matrix_bytes(PLAIN, 0, 3, BF16), ValueError, ["n_queries", "got 0"]),
    (lambda: matrix_bytes(PLAIN, 3, 0, BF16), ValueError, ["n_keys", "got 0"]),
    (
        lambda: matrix_bytes(PLAIN, 3, 3, 2),  # type: ignore[arg-type]
        TypeError,
        ["dtype must be a torch.dtype", "got 2", "torch.bfloat16"],
    ),
    (lambda: moved_bytes(PLAIN, 0, 3, BF16), ValueError, ["n_queries", "got 0"]),
    (lambda: moved_bytes(PLAIN, 3, 0, BF16), ValueError, ["n_keys", "got 0"]),
    (lambda: moved_bytes(PLAIN, 3, 3, BF16, batch=0), ValueError, ["batch", "got 0"]),
    (lambda: moved_bytes(PLAIN, 3, 3, "bf16"), TypeError, ["torch.dtype", "got 'bf16'"]),  # type: ignore[arg-type]
    (lambda: cache_bytes(PLAIN, 0, 3, BF16), ValueError, ["n_layers", "got 0"]),
    (lambda: cache_bytes(PLAIN, 2, 0, BF16), ValueError, ["length", "got 0"]),
    (lambda: cache_bytes(PLAIN, 2, 3, BF16, batch=-1), ValueError, ["batch", "got -1"]),
    (lambda: cache_bytes(PLAIN, 2, 3, float), TypeError, ["torch.dtype", "float"]),  # type: ignore[arg-type]
    (
        lambda: cache_bytes(PLAIN, 2, 3, torch.float4_e2m1fn_x2),
        ValueError,
        ["whole bytes", "got torch.float4_e2m1fn_x2", "torch.int8"],
    ),
    (lambda: cache_bytes(PLAIN, 2, 3, "float4"), TypeError, ["torch.dtype, got 'float4'"]),  # type: ignore[arg-type]
    (
        lambda: moved_bytes(PLAIN, 3, 3, torch.quint4x2),
        ValueError,
        ["whole bytes", "got torch.quint4x2"],
    ),
]


def bits_of(name: str) -> int:
    """How many bits an element of a dtype has, read from its name."""
    found = re.search(r"\d+", name)
    return int(found.group()) if found else 8  # torch.bool


def test_refuses_every_dtype_with_less_than_a_byte_for_an_element_and_no_other() -> None:
    dtypes = {x for x in vars(torch).values() if isinstance(x, torch.dtype)}
    assert {bits_of(str(x)) for x in dtypes} >= {1, 4, 8, 16, 32, 64, 128}
    for dtype in dtypes:
        if bits_of(str(dtype)) < 8:
            with pytest.raises(ValueError, match=f"whole bytes, got {dtype}:"):
                cache_bytes(GROUPED, 1, 3, dtype)
        else:
            elements = 2 * 3 * GROUPED.n_kv_heads * GROUPED.d_k
            assert 8 * cache_bytes(GROUPED, 1, 3, dtype) == elements * bits_of(str(dtype))


@pytest.mark.parametrize(("call", "error", "parts"), refusals)
def test_refuses_what_is_no_size(
    call: Callable[[], object], error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        call()
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)
    assert re.search(r": [a-z]", str(raised.value)), "says what to change"


def test_every_size_has_to_be_said() -> None:
    for name in asdict(PLAIN):
        sizes = {key: value for key, value in asdict(PLAIN).items() if key != name}
        with pytest.raises(TypeError, match=name):
            Layer(**sizes)
