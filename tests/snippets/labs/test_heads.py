"""What the lab rests on: its tasks and their right maps, its model and its measures."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from scripts.project import HOME

SCRIPT = HOME / "snippets" / "labs" / "heads.py"


@pytest.fixture(scope="module")
def lab() -> Iterator[Any]:
    """Only what the lab defines: importing it would train its models."""
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    names: dict[str, Any] = {}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    exec(compile(tree, SCRIPT, "exec"), names)
    yield SimpleNamespace(**names)
    torch.set_default_dtype(before)


def test_reversal_and_its_map(lab: Any) -> None:
    tokens, answer, right = lab.reversal(20, length=7)
    for row, said, keys in zip(tokens.tolist(), answer.tolist(), right, strict=True):
        assert said == row[::-1]
        assert keys.nonzero().tolist() == [[i, 6 - i] for i in range(7)]


def test_twice_and_its_two_keys(lab: Any) -> None:
    tokens, answer, right = lab.twice(20, half=4)
    for row, said, keys in zip(tokens.tolist(), answer.tolist(), right, strict=True):
        assert row[:4] == row[4:]
        assert said == row[::-1]
        expected = [[i, j] for i in range(8) for j in range(8) if j % 4 == (7 - i) % 4]
        assert keys.nonzero().tolist() == expected


def test_induction_and_its_map_by_search(lab: Any) -> None:
    tokens, answer, right = lab.induction(50, word=6, asked=4, letters=8)
    for row, said, keys in zip(tokens.tolist(), answer.tolist(), right, strict=True):
        word = row[:6]
        assert len(set(word)) == 6
        assert len(set(row[6:])) == 4
        assert said[:6] == [-1] * 6
        expected = []
        for i in range(6, 10):
            key = word.index(row[i]) + 1
            assert said[i] == word[key]
            expected.append([i, key])
        assert keys.nonzero().tolist() == expected
    assert tokens.max() == 7


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_the_layer_is_pytorchs_own(lab: Any, heads: int, causal: bool) -> None:
    torch.manual_seed(0)
    layer = lab.Attention(24, heads)
    own = nn.MultiheadAttention(24, heads, bias=False, batch_first=True)
    with torch.no_grad():
        own.in_proj_weight.copy_(layer.qkv.weight)
        own.out_proj.weight.copy_(layer.out.weight)
    x = torch.randn(3, 5, 24)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask = mask.tril() if causal else mask
    output, weights = layer(x, mask)
    right, map_ = own(x, x, x, attn_mask=~mask, average_attn_weights=False)
    torch.testing.assert_close(output, right, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(weights, map_, rtol=1e-12, atol=1e-12)


def test_the_model_adds_its_layers_to_the_stream(lab: Any) -> None:
    torch.manual_seed(0)
    model = lab.Model(letters=5, length=6, heads=2, layers=2, causal=True)
    tokens = torch.randint(5, (3, 6))
    logits, maps = model(tokens)
    x = model.token.weight[tokens] + model.place.weight
    for layer in model.layers:
        x = x + layer(x, torch.ones(6, 6, dtype=torch.bool).tril())[0]
    torch.testing.assert_close(logits, x @ model.read.weight.T)
    assert maps.shape == (2, 3, 2, 6, 6)
    changed = tokens.clone()
    changed[:, 4] = (tokens[:, 4] + 1) % 5
    same = (model(changed)[0] == logits).all(-1)
    assert same[:, :4].all()
    assert not same[:, 4:].any()


def test_edits_reach_their_head_and_no_other(lab: Any) -> None:
    torch.manual_seed(0)
    model = lab.Model(letters=5, length=6, heads=2, layers=2, causal=False)
    tokens = torch.randint(5, (3, 6))
    logits = model(tokens)[0]
    twin = lab.Model(letters=5, length=6, heads=2, layers=2, causal=False)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():  # a head whose values are zero adds nothing
        twin.layers[1].qkv.weight[2 * 24 + 12 :] = 0
    removed = model(tokens, lab.remove(1, 1))[0]
    torch.testing.assert_close(removed, twin(tokens)[0])
    assert not torch.allclose(removed, logits)
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():  # a head whose queries are zero looks at every key alike
        twin.layers[0].qkv.weight[:12] = 0
    blinded = model(tokens, lab.blind(0, 0))[0]
    torch.testing.assert_close(blinded, twin(tokens)[0])
    assert not torch.allclose(blinded, logits)


def test_agreement_on_maps_made_by_hand(lab: Any) -> None:
    weights = torch.tensor([[[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.0, 0.5, 0.5]]])
    right = torch.tensor([[[1, 0, 0], [1, 1, 0], [0, 0, 0]]], dtype=torch.bool)
    mass, hits = lab.agreement(weights, right)
    assert mass == pytest.approx((0.7 + 0.6) / 2)
    assert hits == 0.5  # the last row has no right key, and does not count
    assert lab.agreement(right.double(), right)[1] == 1


def test_accuracy_counts_asked_rows_alone(lab: Any) -> None:
    logits = torch.eye(3).expand(2, 3, 3)  # guesses 0, 1, 2

    def model(tokens: torch.Tensor, _: object) -> tuple[torch.Tensor, None]:
        return logits[: len(tokens)], None

    answer = torch.tensor([[0, -1, 2], [1, 1, -1]])
    assert lab.accuracy(model, torch.zeros(2, 3), answer) == 3 / 4


def test_value_norms_are_what_a_lone_key_adds(lab: Any) -> None:
    torch.manual_seed(0)
    model = lab.Model(letters=5, length=6, heads=1, layers=1, causal=False)
    tokens = torch.randint(5, (3, 6))
    everyone = torch.ones(6, 6, dtype=torch.bool)
    for key in range(6):
        lone = torch.zeros(6, 6)
        lone[:, key] = 1
        added, _ = model.layers[0](model.embed(tokens), everyone, lambda w, m=lone: m.expand_as(w))
        torch.testing.assert_close(lab.value_norms(model, tokens)[:, key], added.norm(dim=-1)[:, 0])


def test_training_stacked_models_is_training_each(
    lab: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(7)
    example = lab.reversal(2 * 16, length=4, letters=5)
    example[0][0, 0] = 4  # the largest letter tells how many there are
    monkeypatch.setitem(lab.train.__globals__, "MODELS", 2)
    trained = lab.train(lambda _: example, steps=5)
    for seed, model in enumerate(trained):
        torch.manual_seed(seed)
        alone = lab.Model(letters=5, length=4, heads=1, layers=1, causal=False)
        tokens, answer, _ = (each[16 * seed : 16 * (seed + 1)] for each in example)
        adam = torch.optim.Adam(alone.parameters(), betas=(0.9, 0.99), eps=1e-4)
        for step in range(5):
            adam.param_groups[0]["lr"] = 0.015 * min(1, (step + 1) / 20) * (1 - step / 5)
            logits = alone(tokens)[0]
            chosen = logits.log_softmax(-1).gather(-1, answer[..., None])
            adam.zero_grad()
            (-chosen.mean()).backward()
            adam.step()
        torch.testing.assert_close(model.state_dict(), alone.state_dict(), rtol=1e-9, atol=1e-9)
