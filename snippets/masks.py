"""Who may look at whom: masks as predicates, as tensors and in words.

Masks are boolean and True means *may attend*. Every tensor here has the four
dimensions of the logits, (B, H, Tq, Tk), with size 1 where it does not vary, so
that ``causal(t, t) & padding(lengths, t)`` is what it reads like.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def up_to(offset: int = 0) -> Predicate:
    """Query i may attend to key j when j <= i + offset.

    Parameters
    ----------
    offset : int
        How many keys come before the first query: 0 when queries and keys are
        the same tokens, the length of the cache when they follow it.

    Returns
    -------
    Predicate
        A function of four integer tensors that broadcast, the indices of
        example, head, query and key. It is also a mask_mod of FlexAttention:
        where it reads the example or the head, give create_block_mask their
        numbers, B and H, and not None.
    """

    def predicate(
        _b: Tensor, _h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return kv_idx <= q_idx + offset

    return predicate


def below(lengths: Tensor) -> Predicate:
    """Every query of example b may attend to its first ``lengths[b]`` keys.

    Parameters
    ----------
    lengths : Tensor of integers, shape (B,)
        One for each example.

    Returns
    -------
    Predicate
        As for `up_to`.

    Raises
    ------
    TypeError, ValueError
        When the lengths are not integers, one for each example.
    """
    check_integers(
        "lengths",
        lengths,
        "(B,)",
        "give one length for each example, for example torch.tensor([5, 3]); "
        "a boolean mask of keys (B, Tk), True = token, needs no lengths: "
        "use mask[:, None, None]",
    )

    def predicate(
        b: Tensor, _h: Tensor, _q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return kv_idx < lengths[b]

    return predicate


def same(ids: Tensor) -> Predicate:
    """Tokens of an example may attend to each other when their ids are equal.

    Parameters
    ----------
    ids : Tensor of integers, shape (B, T)
        For example the number of the document that a token belongs to.

    Returns
    -------
    Predicate
        As for `up_to`.

    Raises
    ------
    TypeError, ValueError
        When the ids are not integers of shape (B, T).
    """
    check_integers(
        "ids",
        ids,
        "(B, T)",
        "give one number for each token, and ids[None] for one sequence",
    )

    def predicate(
        b: Tensor, _h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        return ids[b, q_idx] == ids[b, kv_idx]

    return predicate


def all_of(first: Predicate, *more: Predicate) -> Predicate:
    """Keys that every one of the predicates allows."""

    def predicate(
        b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        allowed = first(b, h, q_idx, kv_idx)
        for other in more:
            allowed = allowed & other(b, h, q_idx, kv_idx)
        return allowed

    return predicate


def any_of(first: Predicate, *more: Predicate) -> Predicate:
    """Keys that at least one of the predicates allows."""

    def predicate(
        b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor
    ) -> Tensor:
        allowed = first(b, h, q_idx, kv_idx)
        for other in more:
            allowed = allowed | other(b, h, q_idx, kv_idx)
        return allowed

    return predicate


def negate(predicate: Predicate) -> Predicate:
    """Keys that the predicate does not allow."""

    def negated(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        return ~predicate(b, h, q_idx, kv_idx)

    return negated


def dense(
    predicate: Predicate,
    shape: Sequence[int],
    device: torch.device | str | None = None,
) -> Tensor:
    """Evaluate a predicate everywhere: the tensor that it stands for.

    Parameters
    ----------
    predicate : Predicate
        Called once, with indices that broadcast to the shape. With a shape of
        B = 1, a predicate that looks at the example sees the first one only.
    shape : four ints, (B, H, Tq, Tk)
        1 for B or H where the predicate does not look at them, and for Tq where
        it does not look at the query.
    device : torch.device or str, optional
        Where to build it: where the tensors that the predicate holds are.

    Returns
    -------
    Tensor of bool, shape (B, H, Tq, Tk)
        May be a view that repeats memory: clone it before writing to it.

    Raises
    ------
    ValueError
        When the shape is not four sizes.
    TypeError
        When the predicate returns something other than booleans.
    """
    if len(shape) != 4:
        raise ValueError(
            f"shape must be (B, H, Tq, Tk), got {tuple(shape)}: "
            "put a 1 where the mask does not vary, for example (1, 1, Tq, Tk)"
        )
    indices = (
        torch.arange(size, device=device).view([-1, *[1] * (3 - axis)])
        for axis, size in enumerate(shape)
    )  # (B, 1, 1, 1), (H, 1, 1), (Tq, 1) and (Tk,)
    allowed = predicate(*indices)
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
        tensor = isinstance(allowed, Tensor)
        given = allowed.dtype if tensor else type(allowed).__name__
        raise TypeError(
            f"a predicate must return a tensor of booleans, got {given}: "
            "return a comparison, for example kv_idx <= q_idx"
        )
    return allowed.expand(*shape)


def causal(
    n_queries: int,
    n_keys: int,
    offset: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """Mask of queries that see no key after their own.

    Query i sees the keys j <= i + offset. By default the last query sees the
    last key (bottom-right alignment, offset Tk - Tq): new tokens after a cache
    sit at the end of the keys, and with Tq = Tk both alignments are the same.
    The ``is_causal`` of PyTorch's function aligns at the top left, offset 0.

    Parameters
    ----------
    n_queries, n_keys : int
        Tq and Tk.
    offset : int, optional
        How many keys come before the first query; Tk - Tq unless given.
    device : torch.device or str, optional
        Where to build it; the CPU unless given.

    Returns
    -------
    Tensor of bool, shape (1, 1, Tq, Tk)

    Raises
    ------
    ValueError
        When there are more queries than keys and no offset is given.
    """
    offset = default_offset(n_queries, n_keys, offset)
    return dense(up_to(offset), (1, 1, n_queries, n_keys), device)


def padding(lengths: Tensor, n_keys: int) -> Tensor:
    """Mask of the keys that are tokens, where padding comes after them.

    Parameters
    ----------
    lengths : Tensor of integers, shape (B,)
        How many keys of each example are tokens. The values are not checked,
        which would wait for the GPU.
    n_keys : int
        Tk.

    Returns
    -------
    Tensor of bool, shape (B, 1, 1, Tk)
        On the device of the lengths. It hides keys and never queries: the
        outputs of padded queries mean nothing and are left to the loss to skip.

    Raises
    ------
    TypeError, ValueError
        When the lengths are not integers, one for each example.
    """
    predicate = below(lengths)
    return dense(predicate, (len(lengths), 1, 1, n_keys), lengths.device)


def sliding_window(
    n_queries: int,
    n_keys: int,
    window: int,
    offset: int | None = None,
    *,
    device: torch.device | str | None = None,
) -> Tensor:
    """Causal mask of the last ``window`` keys, the query's own among them.

    Query i sees the keys i + offset - window < j <= i + offset: exactly
    ``window`` keys, or as many as there are. A window of 1 is the own key only.

    Parameters
    ----------
    n_queries, n_keys, offset, device
        As for `causal`.
    window : int
        How many keys a query sees at most, 1 or more.

    Returns
    -------
    Tensor of bool, shape (1, 1, Tq, Tk)

    Raises
    ------
    ValueError
        When the window is less than 1, and as for `causal`.
    """
    if not isinstance(window, int) or window < 1:
        raise ValueError(
            f"window must be a whole number, 1 or more, got {window}: "
            "it counts the query's own key, so 1 is the least that sees any"
        )
    offset = default_offset(n_queries, n_keys, offset)
    predicate = all_of(up_to(offset), negate(up_to(offset - window)))
    return dense(predicate, (1, 1, n_queries, n_keys), device)


def prefix(
    lengths: Tensor, n_queries: int, n_keys: int, offset: int | None = None
) -> Tensor:
    """Causal mask, with a prefix that every query sees whole (prefix-LM).

    Parameters
    ----------
    lengths : Tensor of integers, shape (B,)
        How many keys of each example are its prefix.
    n_queries, n_keys, offset
        As for `causal`.

    Returns
    -------
    Tensor of bool, shape (B, 1, Tq, Tk)
        On the device of the lengths.

    Raises
    ------
    TypeError, ValueError
        As for `padding` and `causal`.
    """
    offset = default_offset(n_queries, n_keys, offset)
    predicate = any_of(up_to(offset), below(lengths))
    shape = len(lengths), 1, n_queries, n_keys
    return dense(predicate, shape, lengths.device)


def documents(ids: Tensor) -> Tensor:
    """Mask of packed sequences: tokens see the tokens of their own document.

    Parameters
    ----------
    ids : Tensor of integers, shape (B, T)
        The number of each token's document. From the lengths of the documents
        of one sequence: ``torch.arange(n).repeat_interleave(lengths)[None]``.

    Returns
    -------
    Tensor of bool, shape (B, 1, T, T)
        On the device of the ids. In both directions: ``& causal(T, T)`` for a
        language model.

    Raises
    ------
    TypeError, ValueError
        When the ids are not integers of shape (B, T).
    """
    predicate = same(ids)
    n_examples, n = ids.shape
    return dense(predicate, (n_examples, 1, n, n), ids.device)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Additive form of a mask: 0 where a query may attend, -inf where not.

    Parameters
    ----------
    mask : Tensor of bool, any shape
        True = may attend.
    dtype : torch.dtype
        A floating-point dtype: that of the logits.

    Returns
    -------
    Tensor, of the shape of the mask

    Raises
    ------
    TypeError
        When the mask is not boolean or the dtype not floating-point.
    """
    check_boolean(mask)
    if not dtype.is_floating_point:
        raise TypeError(
            f"dtype must be floating-point, got {dtype}: "
            "pass the dtype of the queries, for example q.dtype"
        )
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, -math.inf)


def multihead_arguments(
    mask: Tensor, shape: Sequence[int]
) -> dict[str, Tensor]:
    """Keyword arguments that give the mask to nn.MultiheadAttention.

    There True means *hidden*. A mask of keys becomes key_padding_mask (B, Tk),
    one that is the same for all examples and heads attn_mask (Tq, Tk), and any
    other attn_mask (B · H, Tq, Tk), where the heads of an example are adjacent.
    Join masks with ``&`` first: with one query, every mask is one of keys. A
    query without keys is NaN in that layer unless ``need_weights=False``, and
    then, too, in evaluation.

    Parameters
    ----------
    mask : Tensor of bool, broadcastable to the shape
        True = may attend. Two dimensions, (Tq, Tk), or all four.
    shape : four ints, (B, H, Tq, Tk)
        Of the logits: nn.MultiheadAttention broadcasts nothing.

    Returns
    -------
    dict of Tensor of bool
        With one entry.

    Raises
    ------
    TypeError, ValueError
        When the mask is not boolean or does not broadcast to the shape.
    """
    check_boolean(mask)
    whole = broadcast(mask, shape)  # (B, H, Tq, Tk)
    given = (1, 1, *mask.shape)[-4:]
    if given[1:3] == (1, 1):
        return {"key_padding_mask": ~whole[:, 0, 0]}  # (B, Tk)
    if given[:2] == (1, 1):
        return {"attn_mask": ~whole[0, 0]}  # (Tq, Tk)
    return {"attn_mask": ~whole.flatten(0, 1)}  # (B · H, Tq, Tk)


def describe(
    mask: Tensor,
    shape: Sequence[int] | None = None,
    *,
    offset: int | None = None,
) -> str:
    """Say in words what a mask does.

    Examples and heads with the same mask are described together, and so are
    queries that follow one rule: in "keys 0 to i", i is the number of the
    query. Each description says which keys each query sees, which queries have
    none, which see the future and which keys nobody sees.

    Parameters
    ----------
    mask : Tensor of bool, at most four dimensions
        True = may attend.
    shape : four ints, (B, H, Tq, Tk), optional
        Of the logits, for a mask of (Tq, Tk) or with dimensions of size 1; the
        shape of the mask unless given.
    offset : int, optional
        The future of query i is the keys after i + offset; Tk - Tq unless
        given.

    Returns
    -------
    str
        Meant for small masks: of a large one, describe a piece.

    Raises
    ------
    TypeError, ValueError
        When the mask is not boolean, does not broadcast to the shape, or has
        nothing in it.
    """
    check_boolean(mask)
    whole = broadcast(mask, mask.shape if shape is None else shape)
    n_examples, n_heads, n_queries, n_keys = whole.shape
    if whole.numel() == 0:
        raise ValueError(
            f"there is nothing to describe in shape {tuple(whole.shape)}: "
            "give a mask in which every size is 1 or more"
        )
    offset = n_keys - n_queries if offset is None else offset
    # Examples and heads, as (b, h), by their mask.
    groups: dict[tuple[tuple[bool, ...], ...], list[tuple[int, int]]] = {}
    for b, h in itertools.product(range(n_examples), range(n_heads)):
        rows = tuple(tuple(row) for row in whole[b, h].tolist())
        groups.setdefault(rows, []).append((b, h))
    lines = []
    for rows, members in groups.items():
        seen, n = sum(map(sum, rows)), n_queries * n_keys
        empty = [i for i, row in enumerate(rows) if not any(row)]
        later = [
            sum(row[max(0, i + offset + 1) :]) for i, row in enumerate(rows)
        ]
        early = [i for i, count in enumerate(later) if count]
        unseen = [j for j in range(n_keys) if not any(row[j] for row in rows)]
        future = f"{sum(later)}, of queries {name_numbers(early)}"
        lines += [
            f"{name_members(members, n_examples, n_heads)}: "
            f"{seen} of {n} pairs may attend ({seen / n:.1%})",
            *(f"    {line}" for line in describe_rows(rows)),
            f"    queries without keys: {name_numbers(empty)}",
            f"    pairs in the future, j > {name_relative(offset)}: "
            f"{future if early else 'none'}",
            f"    keys that nobody sees: {name_numbers(unseen)}",
        ]
    return "\n".join(lines)


def describe_rows(rows: Sequence[Sequence[bool]]) -> list[str]:
    """One line for each run of queries whose keys follow one rule.

    In a rule, each end of a range of keys stands still or moves with the query.
    """
    ranges = [
        find_ranges([j for j, seen in enumerate(row) if seen]) for row in rows
    ]
    ends = [[end for pair in found for end in pair] for found in ranges]
    lines, start = [], 0
    while start < len(rows):
        stop, rule = start + 1, [0] * len(ends[start])
        while stop < len(rows) and len(ends[stop]) == len(rule):
            pairs = zip(ends[stop - 1], ends[stop], strict=True)
            moves = [after - before for before, after in pairs]
            if stop == start + 1 and {0, 1}.issuperset(moves):
                rule = moves
            if moves != rule:
                break
            stop += 1
        names = [
            name_relative(end - start) if move else str(end)
            for end, move in zip(ends[start], rule, strict=True)
        ]
        keys = ", ".join(
            first if first == last else f"{first} to {last}"
            for first, last in zip(names[::2], names[1::2], strict=True)
        )
        query = "query" if stop == start + 1 else "queries"
        key = "key" if len(set(names)) == 1 else "keys"
        queries = name_numbers(range(start, stop))
        lines.append(
            f"{query} {queries}: " + (f"{key} {keys}" if keys else "no key")
        )
        start = stop
    return lines


def find_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def name_numbers(numbers: Sequence[int]) -> str:
    """Say numbers in order, for example "0 to 2, 5"."""
    return (
        ", ".join(
            str(first) if first == last else f"{first} to {last}"
            for first, last in find_ranges(numbers)
        )
        or "none"
    )


def name_relative(distance: int) -> str:
    """Say where a key is, seen from query i."""
    if distance == 0:
        return "i"
    return f"i {'-' if distance < 0 else '+'} {abs(distance)}"


def name_members(
    members: Sequence[tuple[int, int]], n_examples: int, n_heads: int
) -> str:
    """Say which examples and heads the (b, h) are."""
    bs, hs = (sorted(set(numbers)) for numbers in zip(*members, strict=True))
    if len(members) < len(bs) * len(hs):
        return ", ".join(f"example {b} head {h}" for b, h in members)
    example = "every example"
    head = "every head"
    if len(bs) < n_examples:
        example = f"example {name_numbers(bs)}"
    if len(hs) < n_heads:
        head = f"head {name_numbers(hs)}"
    return f"{example}, {head}"


def broadcast(mask: Tensor, shape: Sequence[int]) -> Tensor:
    """Give a mask the shape (B, H, Tq, Tk), or refuse it."""
    whole = [*[1] * (4 - len(shape)), *shape]
    sizes = zip(reversed(mask.shape), reversed(whole), strict=False)
    if (
        len(whole) > 4
        or mask.ndim not in (2, len(shape))
        or any(m not in (1, n) for m, n in sizes)
    ):
        raise ValueError(
            f"mask must broadcast to (B, H, Tq, Tk) = {tuple(whole)} and have "
            f"2 of its dimensions or all, got {tuple(mask.shape)}: pass "
            "mask[:, None] for (B, Tq, Tk), mask[None] for (H, Tq, Tk), "
            "mask[:, None, None] for (B, Tk)"
        )
    return mask.expand(whole)


def default_offset(n_queries: int, n_keys: int, offset: int | None) -> int:
    """Align the last query with the last key, unless told where."""
    if offset is None and n_queries > n_keys:
        raise ValueError(
            "with more queries than keys the offset must be given, got "
            f"{n_queries} queries and {n_keys} keys: pass offset=0 to align "
            "the first query with the first key, or "
            f"offset={n_keys - n_queries} to align the last ones, which leaves "
            f"the first {n_queries - n_keys} queries without keys"
        )
    return n_keys - n_queries if offset is None else offset


def check_boolean(mask: Tensor) -> None:
    """Refuse a mask that is not a tensor of booleans."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        given = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be a boolean tensor (True = may attend), got {given}: "
            "where 0 means attend pass mask == 0, "
            "where 1 means attend pass mask != 0"
        )


def check_integers(name: str, numbers: Tensor, shape: str, advice: str) -> None:
    """Refuse what is not a tensor of integers with the dimensions named."""
    tensor = isinstance(numbers, Tensor)
    given = (
        f"{numbers.dtype} of shape {tuple(numbers.shape)}"
        if tensor
        else type(numbers).__name__
    )
    integers = tensor and numbers.dtype in (torch.int32, torch.int64)
    if not integers or numbers.ndim != len(shape.split(", ")):
        error = ValueError if integers else TypeError
        raise error(
            f"{name} must be a tensor of int32 or int64 of shape "
            f"{shape}, got {given}: {advice}"
        )
