"""The helpers of the page on cross-attention, against other ways to get the same."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from snippets.pages.core import cross_attention as page
from tests.snippets.reference import attention_by_hand


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def layer() -> page.CrossAttention:
    return page.CrossAttention(d_model=12, n_heads=3, d_memory=10).double()


def test_the_output_is_as_long_as_the_queries(layer: page.CrossAttention) -> None:
    output, weights = layer(normal(2, 5, 12), *layer.project(normal(2, 9, 10)))
    assert output.shape == (2, 5, 12)
    assert weights.shape == (2, 3, 5, 9)


def test_a_layer_is_attention_by_head(layer: page.CrossAttention) -> None:
    target, memory = normal(2, 5, 12), normal(2, 7, 10)
    mask = torch.rand(2, 1, 5, 7) < 0.7
    output, weights = layer(target, *layer.project(memory), mask)
    q, k, v = layer.to_q(target), layer.to_k(memory), layer.to_v(memory)
    heads = []
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        out, w = attention_by_hand(q[..., part], k[..., part], v[..., part], mask[:, 0])
        torch.testing.assert_close(weights[:, h], w, rtol=1e-12, atol=1e-14)
        heads.append(out)
    torch.testing.assert_close(output, layer.to_out(torch.cat(heads, -1)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shared", [True, False])
def test_a_layer_is_pytorchs(shared: bool) -> None:
    d_memory = 12 if shared else 10
    layer = page.CrossAttention(12, 3, d_memory).double()
    width = None if shared else d_memory
    theirs = nn.MultiheadAttention(12, 3, kdim=width, vdim=width, batch_first=True).double()
    parts = layer.to_q, layer.to_k, layer.to_v
    if shared:
        theirs.in_proj_weight.data = torch.cat([part.weight for part in parts])
    else:
        theirs.q_proj_weight.data = layer.to_q.weight.data
        theirs.k_proj_weight.data = layer.to_k.weight.data
        theirs.v_proj_weight.data = layer.to_v.weight.data
    theirs.in_proj_bias.data = torch.cat([part.bias for part in parts])
    theirs.out_proj.load_state_dict(layer.to_out.state_dict())
    target, memory = normal(2, 5, 12), normal(2, 7, d_memory)
    real = torch.arange(7) < torch.tensor([[7], [4]])
    output, weights = layer(target, *layer.project(memory), real[:, None, None])
    expected, shares = theirs(
        target, memory, memory, key_padding_mask=~real, average_attn_weights=False
    )
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(weights, shares, rtol=1e-12, atol=1e-14)


def test_words_read_are_those_that_the_mask_allows(layer: page.CrossAttention) -> None:
    target, memory = normal(3, 4, 12), normal(3, 8, 10)
    allowed = torch.rand(3, 8) < 0.5

    def run(memory: Tensor) -> Tensor:
        output: Tensor = layer(target, *layer.project(memory), allowed[:, None, None])[0]
        return output

    assert torch.equal(page.words_read(run, memory), allowed)
    assert not memory.requires_grad


def test_words_read_are_those_of_the_first_query(layer: page.CrossAttention) -> None:
    target, memory = normal(1, 4, 12), normal(1, 8, 10)
    causal = torch.ones(4, 8, dtype=torch.bool).tril()

    def run(memory: Tensor) -> Tensor:
        output: Tensor = layer(target, *layer.project(memory), causal)[0]
        return output

    assert page.words_read(run, memory)[0].tolist() == [True] + [False] * 7


@pytest.mark.parametrize(("tk", "d_model"), [(1, 8), (100, 512), (7, 64)])
def test_multiply_adds_are_those_that_pytorch_counts(tk: int, d_model: int) -> None:
    layer = page.CrossAttention(d_model, 4, d_model)
    memory, target = torch.zeros(1, tk, d_model), torch.zeros(1, 1, d_model)
    with FlopCounterMode(display=False) as projecting, torch.no_grad():
        k, v = layer.project(memory)
    with FlopCounterMode(display=False) as stepping, torch.no_grad():
        layer(target, k, v)
    counted = projecting.get_total_flops(), stepping.get_total_flops()
    # The counter takes a multiplication and an addition for two operations.
    assert tuple(2 * n for n in page.multiply_adds(tk, d_model)) == counted


class TestAdditive:
    """Scores of a small network on each pair."""

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        return normal(6, 3), normal(6, 5), normal(6)

    def test_is_a_loop_over_pairs(self) -> None:
        q, k, v, (w_q, w_k, w) = normal(2, 4, 3), normal(2, 7, 5), normal(2, 7, 2), self.weights()
        mask = torch.rand(2, 4, 7) < 0.6
        mask[1, 2] = False
        output, weights = page.additive_attention(q, k, v, w_q, w_k, w, mask)
        for b in range(2):
            for i in range(4):
                seen = [j for j in range(7) if mask[b, i, j]]
                scores = [
                    math.fsum(
                        w[h].item() * math.tanh((w_q[h] @ q[b, i] + w_k[h] @ k[b, j]).item())
                        for h in range(6)
                    )
                    for j in seen
                ]
                total = math.fsum(map(math.exp, scores))
                expected = torch.zeros(7, dtype=torch.float64)
                for j, score in zip(seen, scores, strict=True):
                    expected[j] = math.exp(score) / total
                torch.testing.assert_close(weights[b, i], expected, rtol=1e-12, atol=1e-14)
                torch.testing.assert_close(output[b, i], expected @ v[b], rtol=1e-12, atol=1e-14)

    def test_a_query_without_keys_gets_zeros_and_no_nan_in_gradients(self) -> None:
        inputs = [x.requires_grad_() for x in (normal(2, 3), normal(4, 5), normal(4, 2))]
        mask = torch.tensor([[True] * 4, [False] * 4])
        q, k, v = inputs
        output, weights = page.additive_attention(q, k, v, *self.weights(), mask)
        assert not output[1].any()
        assert not weights[1].any()
        gradients = torch.autograd.grad(output.square().sum(), inputs)
        assert all(x.isfinite().all() for x in gradients)
        assert not gradients[0][1].any()

    def test_scores_stay_within_the_norm_at_any_width(self) -> None:
        w_q, w_k, w = self.weights()
        huge = 1e6
        _, weights = page.additive_attention(
            huge * normal(4, 3), huge * normal(7, 5), normal(7, 2), w_q, w_k, w
        )
        spread = weights.log().amax(-1) - weights.log().amin(-1)
        assert (spread <= 2 * w.abs().sum() + 1e-9).all()

    def test_gradients_are_right(self) -> None:
        mask = torch.tensor([[True, True, False, True], [False, True, True, True]])

        def output(q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w: Tensor) -> Tensor:
            averaged: Tensor = page.additive_attention(q, k, v, w_q, w_k, w, mask)[0]
            return averaged

        inputs = normal(2, 3), normal(4, 5), normal(4, 2), *self.weights()
        assert torch.autograd.gradcheck(output, [x.requires_grad_() for x in inputs])


def test_kept_counts_what_backward_needs_and_no_input() -> None:
    x, y = (torch.randn(5, 7).requires_grad_() for _ in range(2))
    assert page.kept(lambda a, b: a * b, x, y) == 0  # needs both inputs
    assert page.kept(lambda a: a.exp(), x) == 35  # needs its result
    assert page.kept(lambda a: a.exp().exp(), x) == 70
    assert page.kept(lambda a: (e := a.exp()) * e, x) == 35  # one tensor, kept thrice
    assert page.kept(lambda a: a.sum(), x) == 0


def test_the_table_leaves_the_inputs_out_and_says_what_they_change() -> None:
    rows, values = page.table_kept()
    n, d = 512, 64
    dot, additive = n * n + n * d, n * n * (d + 1)  # weights and scaled queries; tanh and weights
    assert rows[-1]["dot product"] == f"{dot:,}"
    assert rows[-1]["additive"] == f"{additive:,}"
    assert values["ratio_512"] == additive / dot
    # With them: keys and values; queries, keys, values and the three weights.
    dot, additive = dot + 2 * n * d, additive + 3 * n * d + 2 * d * d + d
    assert values["with_inputs_512"] == additive / dot


def test_sentences_have_their_roles_once_and_padding_last() -> None:
    roles, words, real, where = page.sentences(200, torch.Generator().manual_seed(3))
    lengths = real.sum(-1)
    assert set(lengths.tolist()) == set(range(4, 9))
    for i, n in enumerate(lengths.tolist()):
        assert real[i].tolist() == [True] * n + [False] * (8 - n)
        assert sorted(roles[i, :n].tolist()) == list(range(n))
        assert roles[i, where[i]].tolist() == list(range(8))
    assert words.min() == 0
    assert words.max() == page.N_WORDS - 1


def test_handing_on_moves_words_by_one_in_a_ring() -> None:
    x = torch.arange(8).expand(2, 8)
    real = torch.arange(8) < torch.tensor([[5], [8]])
    moved = page.hand_on(x, real)
    assert moved[0].tolist() == [4, 0, 1, 2, 3, 5, 6, 7]
    assert moved[1].tolist() == [7, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_alignment_is_found_from_other_seeds(seed: int) -> None:
    model, dictionary = page.train(additive=False, handed_on=False, seed=seed)
    roles, words, real, where = page.sentences(300, torch.Generator().manual_seed(seed + 10))
    with torch.no_grad():
        logits, weights = model(roles, words, real[:, None])
    right = dictionary[words.gather(-1, where)]
    assert (logits.argmax(-1) == right)[real].double().mean() > 0.99
    assert (weights.argmax(-1) == where)[real].double().mean() > 0.99


def test_training_leaves_the_number_of_threads() -> None:
    before = torch.get_num_threads()
    page.train(additive=False, handed_on=False, seed=1)
    assert torch.get_num_threads() == before
