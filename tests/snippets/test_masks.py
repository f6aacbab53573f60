from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.testing import assert_close

from snippets.attention import attention
from snippets.masks import (
    Predicate,
    additive,
    all_of,
    any_of,
    below,
    causal,
    dense,
    describe,
    documents,
    multihead_arguments,
    negate,
    padding,
    prefix,
    same,
    sliding_window,
    up_to,
)
from tests.snippets.reference import DEVICES, normal

Rule = Callable[[int, int, int, int], bool]

steady = settings(deadline=None, derandomize=True, max_examples=60)


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def by_hand(shape: Sequence[int], rule: Rule) -> Tensor:
    """A mask one pair at a time."""
    cells = [rule(*at) for at in itertools.product(*map(range, shape))]
    return torch.tensor(cells, dtype=torch.bool).view(*shape)


# The masks, pair by pair

LENGTHS = [3, 0, 5]
IDS = [[7, 7, 2, 2, 2], [0, 1, 1, 0, 0]]


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (2, 5), (1, 5), (0, 3), (0, 0)])
@pytest.mark.parametrize("offset", [None, 0, 2, -2])
def test_causal(n_queries: int, n_keys: int, offset: int | None, device: str) -> None:
    before = n_keys - n_queries if offset is None else offset
    expected = by_hand((1, 1, n_queries, n_keys), lambda _b, _h, i, j: j <= i + before)
    mask = causal(n_queries, n_keys, offset, device=device)
    assert mask.device.type == device
    assert_close(mask.cpu(), expected)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_padding(kind: torch.dtype, device: str) -> None:
    mask = padding(torch.tensor(LENGTHS, dtype=kind, device=device), 5)
    assert mask.device.type == device
    assert_close(mask.cpu(), by_hand((3, 1, 1, 5), lambda b, _h, _i, j: j < LENGTHS[b]))
    assert mask.sum(-1).flatten().tolist() == LENGTHS


@pytest.mark.parametrize("window", [1, 2, 3, 9])
@pytest.mark.parametrize(("n_queries", "offset"), [(6, None), (2, None), (6, 0), (6, 1)])
def test_a_window_sees_exactly_as_many_keys_as_it_says(
    window: int, n_queries: int, offset: int | None, device: str
) -> None:
    before = 6 - n_queries if offset is None else offset
    mask = sliding_window(n_queries, 6, window, offset, device=device)
    positions = [i + before for i in range(n_queries)]
    expected = by_hand(
        (1, 1, n_queries, 6),
        lambda _b, _h, i, j: j in range(i + before - window + 1, i + before + 1),
    )
    assert_close(mask.cpu(), expected)
    inside = [(i, p) for i, p in enumerate(positions) if p < 6]
    counts = mask.sum(-1).flatten().tolist()
    assert [counts[i] for i, _ in inside] == [min(p + 1, window) for _, p in inside]


def test_a_window_as_long_as_the_keys_is_causal(device: str) -> None:
    assert_close(sliding_window(4, 6, 6, device=device), causal(4, 6, device=device))


@pytest.mark.parametrize(("n_queries", "offset"), [(5, None), (2, None), (5, 1)])
def test_prefix(n_queries: int, offset: int | None, device: str) -> None:
    before = 5 - n_queries if offset is None else offset
    mask = prefix(torch.tensor(LENGTHS, device=device), n_queries, 5, offset)
    assert mask.device.type == device
    expected = by_hand((3, 1, n_queries, 5), lambda b, _h, i, j: j < LENGTHS[b] or j <= i + before)
    assert_close(mask.cpu(), expected)


def test_documents(device: str) -> None:
    mask = documents(torch.tensor(IDS, device=device))
    assert mask.device.type == device
    assert_close(mask.cpu(), by_hand((2, 1, 5, 5), lambda b, _h, i, j: IDS[b][i] == IDS[b][j]))


def test_documents_from_lengths_as_the_docstring_says() -> None:
    lengths = torch.tensor([2, 0, 3])
    n = len(lengths)
    ids = torch.arange(n).repeat_interleave(lengths)[None]
    assert ids.tolist() == [[0, 0, 2, 2, 2]]
    assert documents(ids).sum(-1).tolist() == [[[2, 2, 3, 3, 3]]]


# Predicates

PREDICATES: dict[str, tuple[Predicate, Rule]] = {
    "up to": (up_to(), lambda _b, _h, i, j: j <= i),
    "up to 2 on": (up_to(2), lambda _b, _h, i, j: j <= i + 2),
    "below": (below(torch.tensor(LENGTHS[:2])), lambda b, _h, _i, j: j < LENGTHS[b]),
    "same": (same(torch.tensor(IDS)), lambda b, _h, i, j: IDS[b][i] == IDS[b][j]),
    "not": (negate(same(torch.tensor(IDS))), lambda b, _h, i, j: IDS[b][i] != IDS[b][j]),
    "one": (all_of(up_to()), lambda _b, _h, i, j: j <= i),
    "and": (
        all_of(same(torch.tensor(IDS)), up_to(), below(torch.tensor([4, 5]))),
        lambda b, _h, i, j: j <= i and IDS[b][i] == IDS[b][j] and j < [4, 5][b],
    ),
    "or": (
        any_of(same(torch.tensor(IDS)), negate(up_to(2)), below(torch.tensor([1, 0]))),
        lambda b, _h, i, j: IDS[b][i] == IDS[b][j] or j > i + 2 or j < [1, 0][b],
    ),
    "head": (lambda _b, h, q_idx, kv_idx: kv_idx <= q_idx - h, lambda _b, h, i, j: j <= i - h),
}  # fmt: skip
each = pytest.mark.parametrize("name", PREDICATES)


@each
def test_a_predicate_becomes_the_mask_that_it_says(name: str) -> None:
    predicate, rule = PREDICATES[name]
    mask = dense(predicate, (2, 3, 5, 5))
    assert mask.shape == (2, 3, 5, 5)
    assert_close(mask, by_hand((2, 3, 5, 5), rule))


@each
def test_a_predicate_is_a_mask_mod(name: str) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    predicate, _ = PREDICATES[name]
    theirs = flex.create_mask(predicate, 2, 3, 5, 5, device="cpu")
    assert_close(dense(predicate, (2, 3, 5, 5)), theirs)


@pytest.mark.parametrize("name", ["and", "or", "head"])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_masks_as_the_tensor_does(name: str) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    predicate, _ = PREDICATES[name]
    q, k, v = (normal(2, 3, 5, 8, dtype=torch.float32, device="cpu", seed=s) for s in range(3))
    block_mask = flex.create_block_mask(predicate, 2, 3, 5, 5, device="cpu")
    theirs = flex.flex_attention(q, k, v, block_mask=block_mask)
    assert isinstance(theirs, Tensor)
    assert_close(theirs, attention(q, k, v, dense(predicate, (2, 3, 5, 5)))[0])


lengths, ids = torch.tensor([3, 1]), torch.tensor(IDS)


@pytest.mark.parametrize(
    ("mask", "predicate"),
    [
        (causal(3, 5), up_to(2)),
        (padding(lengths, 5), below(lengths)),
        (causal(3, 5) & padding(lengths, 5), all_of(up_to(2), below(lengths))),
        (sliding_window(3, 5, 2), all_of(up_to(2), negate(up_to(0)))),
        (prefix(lengths, 3, 5), any_of(up_to(2), below(lengths))),
        (documents(ids)[..., :3, :], same(ids)),
        (~causal(3, 5), negate(up_to(2))),
    ],
    ids=["causal", "padding", "both", "window", "prefix", "documents", "not"],
)
def test_tensors_are_what_create_mask_makes_of_the_predicates(
    mask: Tensor, predicate: Predicate
) -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention")
    theirs = flex.create_mask(predicate, 2, 3, 3, 5, device="cpu")
    assert_close(mask.expand(2, 3, 3, 5), theirs)


def test_dense_leaves_the_dimensions_that_do_not_vary_at_one() -> None:
    assert dense(up_to(), (1, 1, 4, 5)).shape == (1, 1, 4, 5)
    assert dense(below(lengths), (2, 1, 1, 5)).shape == (2, 1, 1, 5)
    assert dense(up_to(), (0, 1, 4, 5)).shape == (0, 1, 4, 5)


def test_masks_are_built_where_they_are_asked_for() -> None:
    on_meta, ids_on_meta = lengths.to("meta"), ids.to("meta")
    for mask in (
        dense(up_to(), (1, 1, 3, 5), "meta"),
        causal(3, 5, device="meta"),
        sliding_window(3, 5, 2, device="meta"),
        padding(on_meta, 5),
        prefix(on_meta, 3, 5),
        documents(ids_on_meta),
        additive(causal(3, 5, device="meta"), torch.float32),
    ):
        assert mask.device.type == "meta"


def test_masks_compile_in_one_graph(device: str) -> None:
    torch.compiler.reset()
    counts, numbers = torch.tensor([3, 1], device=device), torch.tensor(IDS, device=device)

    def build(counts: Tensor, numbers: Tensor) -> Tensor:
        mask = sliding_window(5, 5, 2, device=device) | prefix(counts, 5, 5)
        return mask & documents(numbers) & padding(counts + 1, 5) & causal(5, 5, device=device)

    compiled = torch.compile(build, backend="aot_eager", fullgraph=True)
    assert_close(compiled(counts, numbers), build(counts, numbers))


# In attention


def inputs(n_queries: int, n_keys: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    q = normal(2, 3, n_queries, 8, dtype=torch.float32, device=device, seed=1)
    k = normal(2, 3, n_keys, 8, dtype=torch.float32, device=device, seed=2)
    v = normal(2, 3, n_keys, 8, dtype=torch.float32, device=device, seed=3)
    return q, k, v


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (2, 5), (5, 2)])
def test_causal_at_the_top_left_is_the_builtins(n_queries: int, n_keys: int, device: str) -> None:
    q, k, v = inputs(n_queries, n_keys, device)
    mask = causal(n_queries, n_keys, offset=0, device=device)
    sdpa = F.scaled_dot_product_attention
    assert_close(sdpa(q, k, v, mask), sdpa(q, k, v, is_causal=True))
    assert_close(sdpa(q, k, v, mask), sdpa(q, k, v, attn_mask=causal_upper_left(n_queries, n_keys)))


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (2, 5), (1, 5)])
def test_causal_by_default_is_the_lower_right_of_pytorch(
    n_queries: int, n_keys: int, device: str
) -> None:
    q, k, v = inputs(n_queries, n_keys, device)
    sdpa = F.scaled_dot_product_attention
    theirs = sdpa(q, k, v, attn_mask=causal_lower_right(n_queries, n_keys))
    assert_close(sdpa(q, k, v, causal(n_queries, n_keys, device=device)), theirs)


def test_decoding_with_a_cache_gives_the_rows_of_one_pass(device: str) -> None:
    q, k, v = inputs(5, 5, device)
    whole, _ = attention(q, k, v, causal(5, 5, device=device))
    last, _ = attention(q[..., 3:, :], k, v, causal(2, 5, device=device))
    assert_close(last, whole[..., 3:, :])


MASKS: dict[str, Callable[[str], Tensor]] = {
    "causal": lambda device: causal(5, 5, device=device),
    "window": lambda device: sliding_window(5, 5, 2, device=device),
    "padding": lambda device: padding(torch.tensor([3, 5], device=device), 5),
    "both": lambda device: (
        causal(5, 5, device=device) & padding(torch.tensor([3, 5], device=device), 5)
    ),
    "prefix": lambda device: prefix(torch.tensor([3, 0], device=device), 5, 5),
    "documents": lambda device: documents(torch.tensor(IDS, device=device)),
    "future": lambda device: ~causal(5, 5, device=device),
}


@pytest.mark.parametrize("name", MASKS)
def test_what_a_mask_hides_can_be_edited_and_what_it_shows_cannot(name: str, device: str) -> None:
    q, k, v = inputs(5, 5, device)
    mask = MASKS[name](device).expand(2, 3, 5, 5)
    before, _ = attention(q, k, v, mask)
    for j in range(5):
        edited_k, edited_v = k.clone(), v.clone()
        edited_k[..., j, :] += 1
        edited_v[..., j, :] -= 1
        after, _ = attention(q, edited_k, edited_v, mask)
        assert_close((after != before).any(-1), mask[..., j])


@pytest.mark.parametrize(("n_examples", "n_heads"), [(2, 3), (3, 3), (5, 1), (5, 5)])
def test_examples_do_not_touch_each_other_whatever_sizes_are_equal(
    n_examples: int, n_heads: int, device: str
) -> None:
    q, k, v = (
        normal(n_examples, n_heads, 5, 8, dtype=torch.float32, device=device, seed=s)
        for s in range(3)
    )
    counts = [3, 5, 1, 2, 4][:n_examples]
    mask = causal(5, 5, device=device) & padding(torch.tensor(counts, device=device), 5)
    output, _ = attention(q, k, v, mask)
    for b, n in enumerate(counts):
        one_q, one_k, one_v = (x[b : b + 1, :, :n] for x in (q, k, v))
        alone, _ = attention(one_q, one_k, one_v, causal(n, n, device=device))
        assert_close(output[b : b + 1, :, :n], alone)


# Conversions


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_additive(dtype: torch.dtype, device: str) -> None:
    if device == "mps" and dtype == torch.float64:
        pytest.skip("mps has no float64")
    bias = additive(torch.tensor([[True, False]], device=device), dtype)
    assert (bias.dtype, bias.device.type, bias.tolist()) == (dtype, device, [[0.0, -math.inf]])


@pytest.mark.parametrize("name", MASKS)
def test_the_builtin_reads_both_forms_alike(name: str, device: str) -> None:
    q, k, v = inputs(5, 5, device)
    mask = MASKS[name](device)
    sdpa = F.scaled_dot_product_attention
    assert_close(sdpa(q, k, v, mask), sdpa(q, k, v, additive(mask, q.dtype)))


@pytest.mark.parametrize("n_examples", [2, 3, 4])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["causal", "padding", "both", "apart", "heads", "two dimensions"])
def test_multihead_attention_hides_what_the_mask_hides(
    kind: str, need_weights: bool, n_examples: int, device: str
) -> None:
    n_heads, t = 3, 4
    counts = torch.tensor([4, 2, 3, 1][:n_examples], device=device)
    pad, past = padding(counts, t), causal(t, t, device=device)
    # No row is empty, where nn.MultiheadAttention would be NaN.
    per_head = dense(lambda _b, h, i, j: (j <= i) & (j >= i - h), (1, n_heads, t, t), device)
    masks = {
        "causal": [past],
        "padding": [pad],
        "both": [past & pad],
        "apart": [past, pad],
        "heads": [per_head | (past & pad)],
        "two dimensions": [past[0, 0]],
    }[kind]
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(12, n_heads, batch_first=True).to(device)
    x = normal(n_examples, t, 12, dtype=torch.float32, device=device)
    shape = (n_examples, n_heads, t, t)
    arguments = [multihead_arguments(mask, shape) for mask in masks]
    given = {name: mask for each in arguments for name, mask in each.items()}
    assert len(given) == len(masks)
    theirs, _ = layer(x, x, x, need_weights=need_weights, **given)
    whole = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, dim=-1)
    q, k, v = (part.view(n_examples, t, n_heads, 4).transpose(1, 2) for part in whole)
    mask = masks[0] if len(masks) == 1 else masks[0] & masks[1]
    ours = layer.out_proj(attention(q, k, v, mask)[0].transpose(1, 2).flatten(2))
    assert_close(theirs, ours)


@pytest.mark.parametrize(
    ("mask", "name", "shape"),
    [
        (causal(4, 4), "attn_mask", (4, 4)),
        (causal(4, 4)[0, 0], "attn_mask", (4, 4)),
        (padding(torch.tensor([1, 2]), 4), "key_padding_mask", (2, 4)),
        (padding(torch.tensor([1]), 4), "key_padding_mask", (2, 4)),
        (causal(4, 4) & padding(torch.tensor([1, 2]), 4), "attn_mask", (6, 4, 4)),
        (causal(4, 4).expand(1, 3, 4, 4), "attn_mask", (6, 4, 4)),
    ],
)
def test_multihead_masks_have_the_shapes_that_it_takes(
    mask: Tensor, name: str, shape: tuple[int, ...]
) -> None:
    found = multihead_arguments(mask, (2, 3, 4, 4))
    assert {key: tuple(x.shape) for key, x in found.items()} == {name: shape}


def test_a_size_of_one_is_like_any_other_to_multihead_masks() -> None:
    pad = multihead_arguments(padding(torch.tensor([1, 2]), 3), (2, 1, 1, 3))
    assert {key: x.tolist() for key, x in pad.items()} == {
        "key_padding_mask": [[False, True, True], [False, False, True]]
    }
    past = multihead_arguments(causal(2, 2), (1, 1, 2, 2))
    assert {key: x.tolist() for key, x in past.items()} == {
        "attn_mask": [[False, True], [False, False]]
    }


@pytest.mark.parametrize("mask", [torch.tensor(False), torch.tensor([True, False, True])])
def test_fewer_than_two_dimensions_are_a_mask_of_keys_or_refused(mask: Tensor) -> None:
    hidden = [not seen for seen in mask.expand(3).tolist()]
    with suppress(ValueError):
        found = multihead_arguments(mask, (2, 4, 5, 3))
        given = {key: x.tolist() for key, x in found.items()}
        assert given == {"key_padding_mask": [hidden, hidden]}


# In words


def said(mask: Tensor, shape: Sequence[int] | None = None, offset: int | None = None) -> list[str]:
    return [line.strip() for line in describe(mask, shape, offset=offset).split("\n")]


def test_describe_causal() -> None:
    assert describe(causal(4, 6)) == "\n".join(
        [
            "every example, every head: 18 of 24 pairs may attend (75.0%)",
            "    queries 0 to 3: keys 0 to i + 2",
            "    queries without keys: none",
            "    pairs in the future, j > i + 2: none",
            "    keys that nobody sees: none",
        ]
    )


@pytest.mark.parametrize(
    ("mask", "lines"),
    [
        (
            sliding_window(5, 5, 2),
            ["queries 0 to 1: keys 0 to i", "queries 2 to 4: keys i - 1 to i"],
        ),
        (
            prefix(torch.tensor([3]), 5, 5),
            ["queries 0 to 2: keys 0 to 2", "queries 3 to 4: keys 0 to i"],
        ),
        (
            documents(torch.tensor([[0, 0, 1, 0, 2]])),
            [
                "queries 0 to 1: keys 0 to 1, 3",
                "query 2: key 2",
                "query 3: keys 0 to 1, 3",
                "query 4: key 4",
            ],
        ),
        (
            torch.tensor([[1, 0, 1, 1, 0, 1, 1]]).bool(),
            ["query 0: keys 0, 2 to 3, 5 to 6"],
        ),
        (torch.eye(3).bool(), ["queries 0 to 2: key i"]),
        (~torch.eye(2).bool(), ["query 0: key 1", "query 1: key 0"]),
        (torch.zeros(2, 3).bool(), ["queries 0 to 1: no key"]),
        (torch.tensor([[0, 1], [0, 1]]).bool(), ["queries 0 to 1: key 1"]),
    ],
)
def test_describe_says_which_keys_each_query_sees(mask: Tensor, lines: list[str]) -> None:
    assert said(mask)[1:-3] == lines


def test_describe_counts_empty_rows_the_future_and_unseen_keys() -> None:
    mask = torch.tensor([[0, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()
    assert said(mask)[0] == "every example, every head: 4 of 16 pairs may attend (25.0%)"
    assert said(mask)[-3:] == [
        "queries without keys: 0, 2",
        "pairs in the future, j > i: 1, of queries 1",
        "keys that nobody sees: 2",
    ]
    assert said(mask, offset=-1)[-2] == "pairs in the future, j > i - 1: 2, of queries 1"
    assert said(mask, offset=2)[-2] == "pairs in the future, j > i + 2: none"
    assert said(mask, offset=-5)[-2] == "pairs in the future, j > i - 5: 4, of queries 1, 3"


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        (causal(2, 2).expand(3, 2, 2, 2), ["every example, every head"]),
        (
            padding(torch.tensor([1, 2, 1]), 2),
            ["example 0, 2, every head", "example 1, every head"],
        ),
        (
            torch.tensor([[[1]], [[0]], [[1]]]).bool().expand(2, 3, 1, 1),
            ["every example, head 0, 2", "every example, head 1"],
        ),
        (
            padding(torch.tensor([2, 1, 2, 2, 2, 2, 2, 2, 1]), 2),
            ["example 0, 2 to 7, every head", "example 1, 8, every head"],
        ),
        (
            torch.eye(2).bool()[..., None, None],
            ["example 0 head 0, example 1 head 1", "example 0 head 1, example 1 head 0"],
        ),
    ],
)
def test_describe_names_examples_and_heads_that_share_a_mask(
    mask: Tensor, names: list[str]
) -> None:
    heads = [line.split(":")[0] for line in describe(mask).split("\n") if line[0] != " "]
    assert heads == names


def test_describe_reads_missing_dimensions_as_broadcasting_does() -> None:
    keys = padding(torch.tensor([1, 2]), 2)[:, 0, 0]  # (B, Tk) where B = Tq
    assert said(keys, (2, 1, 2, 2))[1] == "queries 0 to 1: keys 0 to i"
    right = [line for line in said(keys[:, None, None], (2, 1, 2, 2)) if line[:5] == "queri"]
    assert right == [
        "queries 0 to 1: key 0",
        "queries without keys: none",
        "queries 0 to 1: keys 0 to 1",
        "queries without keys: none",
    ]


@st.composite
def masks(draw: st.DrawFn) -> Tensor:
    shape = [draw(st.integers(1, n)) for n in (2, 2, 5, 5)]
    cells = draw(st.lists(st.booleans(), min_size=math.prod(shape), max_size=math.prod(shape)))
    return torch.tensor(cells).view(shape)


def seen(text: str, i: int) -> set[int]:
    """Keys of query i, read from the words."""
    found: set[int] = set()
    for keys in text.split(", ") if text else []:
        first, last = (keys.split(" to ") * 2)[:2]
        ends = [eval(end, {"i": i}) for end in (first, last)]
        found |= set(range(ends[0], ends[1] + 1))
    return found


@steady
@given(mask=masks())
def test_the_words_can_be_read_back_into_the_mask(mask: Tensor) -> None:
    again = torch.zeros_like(mask)
    members: list[tuple[int, int]] = []
    for line in describe(mask).split("\n"):
        who, _, what = line.strip().partition(": ")
        if not line.startswith(" "):
            every = itertools.product(range(mask.shape[0]), range(mask.shape[1]))
            members = [(b, h) for b, h in every if belongs(who, b, h)]
        elif who.startswith("quer") and "without" not in who:
            for i in seen(who.split(" ", 1)[1], 0):
                keys = seen("" if what == "no key" else what.split(" ", 1)[1], i)
                for b, h in members:
                    again[b, h, i, list(keys)] = True
    assert_close(again, mask)


def belongs(who: str, b: int, h: int) -> bool:
    if f"example {b} head {h}" in who:
        return True
    example, _, head = who.partition(", ")
    if "head" in example or "example" in head:
        return False
    return example in ("every example", f"example {b}") and head in ("every head", f"head {h}")


# Refusals


def test_more_queries_than_keys_need_an_offset() -> None:
    builds: list[Callable[[], Tensor]] = [
        lambda: causal(5, 3),
        lambda: sliding_window(5, 3, 2),
        lambda: prefix(torch.tensor([1]), 5, 3),
    ]
    for build in builds:
        with pytest.raises(ValueError, match="5 queries and 3 keys") as raised:
            build()
        for part in ("offset=0", "offset=-2", "first 2 queries without keys"):
            assert part in str(raised.value)
    assert said(causal(5, 3, -2))[-3] == "queries without keys: 0 to 1"


WRONG = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "error", "parts"),
    [
        (lambda: dense(up_to(), (3, 3)), ValueError, ["(B, H, Tq, Tk)", "got (3, 3)", "put a 1"]),
        (
            lambda: dense(lambda _b, _h, i, j: i - j, (1, 1, 3, 3)),
            TypeError,
            ["must return a tensor of booleans", "got torch.int64", "kv_idx <= q_idx"],
        ),
        (
            lambda: dense(lambda _b, _h, _i, _j: True, (1, 1, 3, 3)),  # type: ignore[arg-type, return-value]
            TypeError,
            ["must return a tensor of booleans", "got bool", "kv_idx <= q_idx"],
        ),
        (
            lambda: sliding_window(6, 6, 2.5),  # type: ignore[arg-type]
            ValueError,
            ["whole number", "got 2.5"],
        ),
        (
            lambda: padding([3, 2], 4),  # type: ignore[arg-type]
            TypeError,
            ["lengths must be a tensor of int32 or int64 of shape (B,)", "got list"],
        ),
        (
            lambda: padding(WRONG > 0, 3),
            TypeError,
            ["lengths must be", "got torch.bool of shape (2, 3)", "mask[:, None, None]"],
        ),
        (
            lambda: prefix(torch.tensor([[1]]), 3, 3),
            ValueError,
            ["lengths must be", "of shape (B,)", "got torch.int64 of shape (1, 1)"],
        ),
        (
            lambda: documents(torch.tensor([0, 0, 1])),
            ValueError,
            ["ids must be", "of shape (B, T)", "got torch.int64 of shape (3,)", "ids[None]"],
        ),
        (lambda: same(WRONG), TypeError, ["ids must be", "got torch.float32 of shape (2, 3)"]),
        (lambda: sliding_window(3, 3, 0), ValueError, ["1 or more", "got 0", "own key"]),
        (
            lambda: additive(WRONG, torch.float32),
            TypeError,
            ["True = may attend", "got torch.float32", "mask == 0", "mask != 0"],
        ),
        (
            lambda: additive(WRONG > 0, torch.int64),
            TypeError,
            ["floating-point", "got torch.int64", "q.dtype"],
        ),
        (
            lambda: multihead_arguments(WRONG > 0, (2, 1, 4, 3)),
            ValueError,
            ["(B, H, Tq, Tk) = (2, 1, 4, 3)", "got (2, 3)", "mask[:, None, None]"],
        ),
        (lambda: describe([[True]]), TypeError, ["boolean tensor", "got list"]),  # type: ignore[arg-type]
        (lambda: describe(WRONG), TypeError, ["got torch.float32"]),
        (
            lambda: describe(WRONG[None, None, None] > 0),
            ValueError,
            ["must broadcast", "got (1, 1, 1, 2, 3)"],
        ),
        (
            lambda: describe(WRONG > 0, (1, 1, 1, 2, 3)),
            ValueError,
            ["(B, H, Tq, Tk) = (1, 1, 1, 2, 3)", "got (2, 3)"],
        ),
        (
            lambda: describe(WRONG[None, None, None] > 0, (1, 1, 2, 3)),
            ValueError,
            ["(B, H, Tq, Tk) = (1, 1, 2, 3)", "got (1, 1, 1, 2, 3)"],
        ),
        (
            lambda: multihead_arguments(WRONG, (1, 1, 2, 3)),
            TypeError,
            ["True = may attend", "got torch.float32"],
        ),
        (lambda: describe(WRONG > 0, (1, 1, 3)), ValueError, ["= (1, 1, 1, 3)", "got (2, 3)"]),
        *(
            (
                lambda call=call, shape=shape: call(torch.ones(shape).bool(), (2, 2, 3, 3)),
                ValueError,
                ["2 of its dimensions or all", f"got {shape}", "mask[None] for (H, Tq, Tk)"],
            )
            for call in (describe, multihead_arguments)
            for shape in ((2, 3, 3), (2, 1, 3), (3,), ())
        ),
        (lambda: describe(causal(0, 3)), ValueError, ["nothing to describe", "(1, 1, 0, 3)"]),
    ],
)  # fmt: skip
def test_refuses_what_does_not_fit(
    call: Callable[[], object], error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as raised:
        call()
    assert [part for part in parts if part not in str(raised.value)] == [], str(raised.value)


def test_the_advice_for_a_boolean_mask_of_keys_is_the_padding_mask() -> None:
    counts = torch.tensor([3, 1])
    mask = torch.arange(4) < counts[:, None]  # (B, Tk), True = token
    assert_close(mask[:, None, None], padding(counts, 4))
