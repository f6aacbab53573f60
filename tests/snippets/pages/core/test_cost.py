"""The probes of the page measure what they say."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from snippets.costs import Layer, attention_operations
from snippets.pages.core import cost


@pytest.mark.parametrize("block", [1, 4, 16])
def test_the_probe_finds_the_pairs_that_a_kernel_multiplies(block: int) -> None:
    length, multiplied = 32, []

    def by_blocks(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outputs = []
        for query in range(length):
            seen = (query // block + 1) * block  # the keys of all blocks that it may see
            logits = q[..., query : query + 1, :] @ k[..., :seen, :].mT
            logits[..., query + 1 :] = -torch.inf
            outputs.append(logits.softmax(-1) @ v[..., :seen, :])
            multiplied.append(seen)
        return torch.cat(outputs, -2)

    found = cost.multiplied(by_blocks, length, n_probes=length)
    assert found == pytest.approx(sum(multiplied) / length**2)


def test_the_probe_sees_weights_of_zero() -> None:
    def whole(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    assert cost.multiplied(whole, 16) == 1
    assert cost.multiplied(lambda q, k, v: q + k, 16) == 0  # noqa: ARG005


@pytest.mark.parametrize("n", [100, 1000])
def test_the_largest_allocation_is_the_largest_block(n: int) -> None:
    def run() -> None:
        kept = torch.empty(n), torch.empty(7 * n), torch.empty(3 * n)
        del kept

    assert cost.largest_allocation(run) == 7 * n * 4


@pytest.mark.parametrize("key", list(cost.memory_calls(2, 8)))
def test_the_largest_allocation_is_what_the_newer_profiler_finds(key: str) -> None:
    call = cost.memory_calls(2, 256)[key][1]
    call()  # what is allocated once only is not compared
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as newer:
        call()
    blocks = [event.self_cpu_memory_usage for event in newer.events() or ()]
    assert cost.largest_allocation(call) == max(blocks)


def test_the_added_formulas_count_the_fused_kernel_of_the_cpu() -> None:
    layer = Layer(d_model=24, n_heads=3, n_kv_heads=3, d_k=8, bias=False)
    q = torch.zeros(2, 3, 5, 8, requires_grad=True)
    k = torch.zeros(2, 3, 7, 8)
    once = 2 * attention_operations(layer, 5, 7)

    def fused() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, k)

    assert cost.count(fused, cost.cpu_formulas()) == once
    both = cost.count(lambda: fused().sum().backward(), cost.cpu_formulas())
    assert both == 3.5 * once


def test_the_heads_of_the_models_make_up_their_width() -> None:
    for layer, _, _ in cost.MODELS.values():
        assert layer.n_heads * layer.d_k == layer.d_model


def test_the_fused_kernel_multiplies_all_pairs_but_for_the_causal_flag() -> None:
    _, values = cost.table_causal()
    assert values["unmasked_2048"] == 1
    assert values["flag_2048"] == 0.625
    assert all(values[f"flag_{n}"] >= (n + 1) / (2 * n) for n in (256, 512, 1024, 2048))


def test_attention_overtakes_the_whole_block_at_six_times_its_width(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cost.example_block()
    assert "T = 6C: attention / linear layers = 1.00" in capsys.readouterr().out
