"""The parts of the lab on the scale, against PyTorch's own; the training runs when it is built."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scripts.project import HOME

SCRIPT = HOME / "snippets" / "labs" / "scale.py"


def definitions() -> dict[str, Any]:
    """The script's imports, constants in capitals and functions, without its experiments."""
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    kept: list[ast.stmt] = [
        node
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("(")[:2].isupper())
    ]
    names: dict[str, Any] = {}
    exec(compile(ast.Module(kept, []), str(SCRIPT), "exec"), names)
    return names


@pytest.fixture
def lab() -> Iterator[dict[str, Any]]:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(3)
    yield definitions()
    torch.set_default_dtype(torch.float32)


def test_a_question_is_about_one_of_its_pairs(lab: dict[str, Any]) -> None:
    keys, values, asked, answers = lab["questions"](200)
    assert keys.shape == values.shape == (5, 200, 8)
    ordered = keys.sort(-1).values
    assert (ordered[..., 1:] > ordered[..., :-1]).all()
    at = keys == asked
    assert (at.sum(-1) == 1).all()
    assert torch.equal(values[at].view(5, 200, 1), answers)
    assert len(at.double().argmax(-1).unique()) == 8
    assert not torch.equal(keys[0], keys[1])


@pytest.mark.parametrize("scale", [1.0, 0.25, 1 / 16])
def test_each_start_is_the_model_that_modules_make(lab: dict[str, Any], scale: float) -> None:
    p = lab["parameters"](16)
    keys, values, asked, _ = lab["questions"](20)
    logits, weights, q = lab["forward"](p, keys, values, asked, scale=scale)
    for s in range(5):
        norm = nn.LayerNorm(32)
        linear = {}
        for name in ("wq", "wk", "wv", "wo", "up", "down", "out"):
            rows, columns = p[name][s].shape
            linear[name] = nn.Linear(rows, columns, bias=False)
            linear[name].weight.data = p[name][s].T
        pairs = norm(F.embedding(keys[s], p["key"][s]) + F.embedding(values[s], p["value"][s]))
        x = F.embedding(asked[s], p["key"][s]) + p["ask"][s]  # (B, 1, C)
        query, key = linear["wq"](norm(x)), linear["wk"](pairs)
        value = linear["wv"](pairs)
        x = x + linear["wo"](F.scaled_dot_product_attention(query, key, value, scale=scale))
        x = x + linear["down"](F.relu(linear["up"](norm(x))))
        torch.testing.assert_close(logits[s], linear["out"](norm(x))[:, 0])
        torch.testing.assert_close(q[s], query[:, 0])
        eye = torch.eye(8).expand(20, 8, 8)
        expected = F.scaled_dot_product_attention(query, key, eye, scale=scale)
        torch.testing.assert_close(weights[s], expected[:, 0])


def test_queries_and_keys_have_variance_1(lab: dict[str, Any]) -> None:
    p = lab["parameters"](256)
    x = lab["norm"](torch.randn(5, 500, 32))
    for name in ("wq", "wk"):
        assert abs((x @ p[name]).var().item() - 1) < 0.05


def test_losses_and_entropies_are_those_of_torch(lab: dict[str, Any]) -> None:
    logits, answers = torch.randn(5, 7, 16), torch.randint(16, (5, 7, 1))
    expected = F.cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none")
    torch.testing.assert_close(lab["losses"](logits, answers).flatten(), expected)
    weights = torch.randn(5, 7, 8).softmax(-1)
    nats = torch.distributions.Categorical(weights).entropy().mean(-1)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(lab["entropy"](weights), nats / torch.tensor(8.0).log())
    assert lab["entropy"](torch.eye(8)[None]).item() == 0


def test_smaller_weights_and_a_smaller_rate_are_the_scale(lab: dict[str, Any]) -> None:
    lab["STEPS"] = 6
    scaled = lab["train"](16, 0.25)
    folded = lab["train"](16, 1, shrink=2, slow=2)
    torch.testing.assert_close(folded["loss"], scaled["loss"])
    torch.testing.assert_close(folded["entropy"], scaled["entropy"])
    for other in ({}, {"shrink": 2}, {"slow": 2}):
        assert not torch.allclose(lab["train"](16, 1, **other)["loss"], scaled["loss"])


def test_training_does_what_adam_does_to_each_start_alone(lab: dict[str, Any]) -> None:
    lab["STEPS"] = 4
    together = lab["train"](8, 0.5)["loss"]
    torch.manual_seed(0)
    p = {name: w.requires_grad_() for name, w in lab["parameters"](8).items()}
    adam = torch.optim.Adam(p.values(), lr=3e-3, eps=1e-12)
    torch.manual_seed(1)
    for step in range(4):
        *asked, answers = lab["questions"](32)
        logits, _, _ = lab["forward"](p, *asked, scale=0.5)
        loss = F.cross_entropy(logits[2], answers[2, :, 0])  # the others get no gradient
        torch.testing.assert_close(loss.detach(), together[2, step])
        adam.zero_grad()
        torch.autograd.backward(loss)
        adam.step()
        for w in p.values():
            w.data = (w.data * 2**20).round() / 2**20
