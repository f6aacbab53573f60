"""Splits and merges against indexing, the count of leaks against counting, and tests that see."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from snippets.attention import attention
from snippets.pages.core import head_layout as page

SIZES = [(1, 1), (1, 4), (8, 1), (2, 2), (5, 3), (8, 4), (4, 8), (3, 3)]
sizes = pytest.mark.parametrize(("t", "n_heads"), SIZES)


def numbered(t: int, n_heads: int, d: int = 2) -> Tensor:
    return torch.arange(2 * t * n_heads * d).view(2, t, n_heads * d)


@sizes
def test_a_head_has_its_columns_of_every_token(t: int, n_heads: int) -> None:
    x = numbered(t, n_heads)
    heads = page.split(x, n_heads)
    for b, h, i in itertools.product(range(2), range(n_heads), range(t)):
        assert torch.equal(heads[b, h, i], x[b, i, 2 * h : 2 * h + 2])
    assert torch.equal(page.merge(heads), x)


@sizes
def test_a_bad_split_cuts_memory_in_its_order(t: int, n_heads: int) -> None:
    x = numbered(t, n_heads)
    heads = page.bad_split(x, n_heads)
    for b, h, i in itertools.product(range(2), range(n_heads), range(t)):
        token, block = divmod(h * t + i, n_heads)
        assert torch.equal(heads[b, h, i], x[b, token, 2 * block : 2 * block + 2])
    assert torch.equal(page.bad_merge(heads), x)
    assert torch.equal(heads, page.split(x, n_heads)) == (1 in (t, n_heads))


@pytest.mark.parametrize(
    ("cut", "join"),
    [(page.dealt_split, page.dealt_merge), (page.swapped_split, page.swapped_merge)],
)
def test_a_merge_undoes_its_split(
    cut: Callable[[Tensor, int], Tensor], join: Callable[[Tensor], Tensor]
) -> None:
    x = numbered(5, 3)
    assert torch.equal(join(cut(x, 3)), x)


def counted(name: str, t: int, n_heads: int) -> tuple[int, int]:
    """Future pairs that are connected and past pairs that are not, by following the pieces."""
    # The token that piece (h, i) is cut from, and the token that it is joined to.
    origin = {
        (h, i): i if name in ("right", "bad merge") else (h * t + i) // n_heads
        for h, i in itertools.product(range(n_heads), range(t))
    }
    target = {
        (h, i): i if name in ("right", "bad split") else (h * t + i) // n_heads
        for h, i in itertools.product(range(n_heads), range(t))
    }
    connected = {
        (target[h, i], origin[h, j])
        for h, i in itertools.product(range(n_heads), range(t))
        for j in range(i + 1)
    }
    leaked = sum(source > sink for sink, source in connected)
    return leaked, t * (t + 1) // 2 - (len(connected) - leaked)


@sizes
@pytest.mark.parametrize("name", page.PAIRS)
def test_what_reaches_what_is_what_the_pieces_say(name: str, t: int, n_heads: int) -> None:
    x, weight = page.draw_layer(t, 2 * n_heads)
    cut, join = page.PAIRS[name]
    seen = page.reach(lambda x: page.run_heads(x, weight, cut, join, n_heads=n_heads), x[0])
    found = seen.triu(1).sum().item(), (~seen).tril().sum().item()
    assert found == counted(name, t, n_heads)


def test_the_published_counts_of_leaks() -> None:
    _, values = page.table_leaks()
    assert [values[f"future_{name}"] for name in ("right", "bad_split", "bad_merge")] == [0, 16, 16]
    assert (values["future_both_bad"], values["lost_both_bad"]) == (0, 24)


def test_heads_run_as_one_head_at_a_time() -> None:
    x, weight = page.draw_layer()
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    outputs = []
    for h in range(4):
        q, k, v = (x @ weight[16 * part + 4 * h : 16 * part + 4 * h + 4].T for part in range(3))
        outputs.append(attention(q, k, v, mask)[0])
    found = page.run_heads(x, weight, page.split, page.merge)
    torch.testing.assert_close(found, torch.cat(outputs, -1))


def test_only_the_right_layout_passes_every_test_and_only_the_spec_fails_every_bug() -> None:
    rows = page.table_tests()
    failed = {row["layout"]: {k for k, cell in row.items() if "fails" in cell} for row in rows}
    assert failed.pop("right") == set()
    assert set.intersection(*failed.values()) == {"spec by indexing"}
    assert failed["features dealt in turn"] == {"spec by indexing"}
    assert set.union(*failed.values()) == {*rows[0]} - {"layout", "shape"}


def test_the_wrong_split_has_the_published_tokens_and_difference() -> None:
    assert page.example_split()["coincide"] == pytest.approx(0.2, abs=1e-12)
    tokens = page.example_tokens()
    assert tokens == {"head_0": "[0, 1]", "head_1": "[1, 2, 3]", "head_2": "[3, 4]"}
    assert f"{page.example_downstream()['difference'][0]:.4f}" == "4.0305"


def test_the_wrong_split_cuts_a_sequence_into_one_run_for_each_head() -> None:
    x = torch.arange(2 * 6 * 8).view(2, 6, 8)  # (B, T, C)
    heads = page.bad_split(x, 2)  # (B, H, T, d)
    for b, h in ((0, 0), (0, 1), (1, 0), (1, 1)):
        run = x[b, 3 * h : 3 * h + 3]  # whole tokens
        assert heads[b, h].flatten().tolist() == run.flatten().tolist()
