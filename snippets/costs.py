"""What an attention layer costs: parameters, operations and bytes."""

import re
from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The sizes of one attention layer; values are as wide as keys.

    Nothing has a default, because guesses go wrong: heads need not be
    ``d_model / n_heads`` wide, and there may be fewer key and value heads than
    query heads.

    Attributes
    ----------
    d_model : int
        Width C of the layer's inputs and outputs.
    n_heads, n_kv_heads : int
        Query heads, and the key and value heads that they share.
    d_k : int
        Width of one head.
    bias : bool
        Whether each of the four projections adds a bias.

    Raises
    ------
    TypeError, ValueError
        When a size is not an integer of 1 or more, when the query heads cannot
        share the key and value heads evenly, or when bias is not a bool.
    """

    d_model: int
    n_heads: int
    n_kv_heads: int
    d_k: int
    bias: bool

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "n_kv_heads", "d_k"):
            check_size(name, getattr(self, name))
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                "n_heads must be a multiple of n_kv_heads, "
                f"got {self.n_heads} and {self.n_kv_heads}: "
                "give every key and value head the same number of query heads"
            )
        if not isinstance(self.bias, bool):
            raise TypeError(
                f"bias must be True or False, got {self.bias!r}: "
                "say whether the projections add one"
            )


def parameters(layer: Layer) -> int:
    """Parameters: 4C² + 4C with n_kv_heads = n_heads, n_heads · d_k = C."""
    queries = layer.n_heads * layer.d_k
    keys = layer.n_kv_heads * layer.d_k
    weights = layer.d_model * (2 * queries + 2 * keys)
    biases = queries + 2 * keys + layer.d_model
    return weights + layer.bias * biases


def projection_operations(layer: Layer, n_tokens: int) -> int:
    """Floating-point operations of the four projections of n_tokens tokens.

    A multiply-add is two operations. The additions of the biases are left out.
    The backward pass takes twice as many.
    """
    check_size("n_tokens", n_tokens)
    heads = 2 * layer.n_heads + 2 * layer.n_kv_heads
    return 2 * n_tokens * layer.d_model * heads * layer.d_k


def attention_operations(
    layer: Layer, n_queries: int, n_keys: int, *, causal: bool = False
) -> int:
    """Floating-point operations of q kᵀ and of the weights times v.

    Parameters
    ----------
    layer : Layer
        Its sizes.
    n_queries, n_keys : int
        Positions of one sequence. For a batch, multiply the result.
    causal : bool, optional
        Count only the pairs that a causal mask leaves, where the last query
        sees every key. What a kernel computes lies between this and all pairs.

    Returns
    -------
    int
        A multiply-add is two operations. The softmax is left out: a few
        operations a pair, where the products take 4 · d_k. The backward pass
        takes twice as many, or 2.5 times where the logits are computed again.

    Raises
    ------
    TypeError, ValueError
        When a length is not an integer of 1 or more, or when causal queries
        are more than the keys.
    """
    check_size("n_queries", n_queries)
    check_size("n_keys", n_keys)
    pairs = n_queries * n_keys
    if causal:
        if n_queries > n_keys:
            raise ValueError(
                "causal queries must be the last of the keys' positions, "
                f"got {n_queries} queries and {n_keys} keys: "
                "count the keys of the cache, too"
            )
        pairs -= n_queries * (n_queries - 1) // 2
    return 4 * layer.n_heads * layer.d_k * pairs


def crossover_length(layer: Layer) -> float:
    """Length at which attention costs as many operations as the projections.

    All pairs counted. It is C · (1 + n_kv_heads / n_heads), whatever the width
    of the heads: 2C without shared heads. With ``causal=True`` it is twice as
    long, less 1.
    """
    return layer.d_model * (1 + layer.n_kv_heads / layer.n_heads)


def matrix_bytes(
    layer: Layer, n_queries: int, n_keys: int, dtype: torch.dtype
) -> int:
    """Bytes of one matrix of weights (n_heads, n_queries, n_keys)."""
    check_size("n_queries", n_queries)
    check_size("n_keys", n_keys)
    return layer.n_heads * n_queries * n_keys * bytes_of(dtype)


def moved_bytes(
    layer: Layer,
    n_queries: int,
    n_keys: int,
    dtype: torch.dtype,
    *,
    batch: int = 1,
    fused: bool = True,
) -> int:
    """Bytes read and written, where each step moves its tensors once.

    The steps are the projection to q, k and v, attention, and the projection of
    its output. The weights are read once for the whole batch; the keys and
    values of each sequence are read once, not once a query head.

    Parameters
    ----------
    layer : Layer
        Its sizes.
    n_queries, n_keys : int
        Positions of one sequence: all of them in prefill, 1 query in decode.
    dtype : torch.dtype
        Of the parameters and of everything that is moved.
    batch : int, optional
        Sequences.
    fused : bool, optional
        Whether attention is one step. Otherwise it is three, and writes and
        reads the logits and the weights, a matrix each.

    Raises
    ------
    TypeError, ValueError
        When a size is not an integer of 1 or more, or dtype is no dtype.

    Notes
    -----
    A floor, not a measurement: caches that are too small and layouts that are
    copied move more. Operations over bytes are the arithmetic intensity.
    Source: Williams, Waterman and Patterson (2009), "Roofline: An Insightful
    Visual Performance Model for Multicore Architectures".
    """
    for name, size in (
        ("n_queries", n_queries),
        ("n_keys", n_keys),
        ("batch", batch),
    ):
        check_size(name, size)
    queries = layer.n_heads * layer.d_k
    keys = layer.n_kv_heads * layer.d_k
    # x in; q, k and v out; q in again; the output out and in; y out.
    token = 2 * layer.d_model + 4 * queries + 2 * keys
    sequence = n_queries * token + n_keys * 2 * keys
    moved = (parameters(layer) + batch * sequence) * bytes_of(dtype)
    if not fused:
        moved += 4 * batch * matrix_bytes(layer, n_queries, n_keys, dtype)
    return moved


def cache_bytes(
    layer: Layer,
    n_layers: int,
    length: int,
    dtype: torch.dtype,
    *,
    batch: int = 1,
) -> int:
    """Bytes of the keys and values that n_layers such layers keep.

    Parameters
    ----------
    layer : Layer
        Its sizes.
    n_layers : int
        Layers of these sizes.
    length : int
        Positions kept of each sequence; with a sliding window, at most its
        width.
    dtype : torch.dtype
        Of the keys and values.
    batch : int, optional
        Sequences.

    Raises
    ------
    TypeError, ValueError
        When a size is not an integer of 1 or more, or dtype is no dtype.
    """
    for name, size in (
        ("n_layers", n_layers),
        ("length", length),
        ("batch", batch),
    ):
        check_size(name, size)
    token = 2 * layer.n_kv_heads * layer.d_k  # a key and a value
    return n_layers * batch * length * token * bytes_of(dtype)


def bytes_of(dtype: torch.dtype) -> int:
    """Bytes of one element; refuses dtypes that pack several into a byte."""
    if not isinstance(dtype, torch.dtype):
        raise TypeError(
            f"dtype must be a torch.dtype, got {dtype!r}: "
            "for example torch.bfloat16"
        )
    if re.search(r"int[1-7]$|float4|bits\d+x|int\dx", str(dtype)):
        raise ValueError(
            f"dtype must take whole bytes, got {dtype}: compute with "
            "torch.int8 and divide by the elements in a byte"
        )
    return dtype.itemsize


def check_size(name: str, size: int) -> None:
    """Refuse a size that is not an integer of 1 or more."""
    if not isinstance(size, int) or isinstance(size, bool):
        raise TypeError(
            f"{name} must be an integer, got {size!r}: "
            "convert it, for example with int()"
        )
    if size < 1:
        raise ValueError(
            f"{name} must be 1 or more, got {size}: give a positive size"
        )
