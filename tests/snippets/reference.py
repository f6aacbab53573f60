"""The definitions once more, as loops over Python floats, and what the tests here share."""

import itertools
import math

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]


# One rounding to the dtype, after the noise of the float32 or float64 that it was computed in.
TOLERANCE = {
    torch.float16: (2**-11 + 1e-5, 2e-6),
    torch.bfloat16: (2**-8 + 1e-5, 2e-6),
    torch.float32: (1e-5, 2e-6),
    torch.float64: (1e-12, 1e-14),
}


def assert_rounded(actual: Tensor, expected: Tensor) -> None:
    """Hold a result against a float64 tensor, as closely as its dtype allows."""
    relative, absolute = TOLERANCE[actual.dtype]
    torch.testing.assert_close(actual.double().cpu(), expected, rtol=relative, atol=absolute)


def normal(*shape: int, dtype: torch.dtype, device: str, seed: int = 0) -> Tensor:
    """Standard normal draws, the same numbers on every device."""
    if device == "mps" and dtype == torch.float64:
        pytest.skip("mps has no float64")
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)


def attention_by_hand(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Output and weights in float64, one query at a time."""
    q, k, v = q.double().cpu(), k.double().cpu(), v.double().cpu()
    (tq, d), (tk, dv) = q.shape[-2:], v.shape[-2:]
    scale = 1 / math.sqrt(d) if scale is None else scale
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])  # type: ignore[no-untyped-call]
    allowed = torch.ones(()).bool() if mask is None else mask.cpu()
    allowed = allowed.broadcast_to(*lead, tq, tk)
    weights = torch.zeros(*lead, tq, tk, dtype=torch.float64)
    queries, keys = q.broadcast_to(*lead, tq, d), k.broadcast_to(*lead, tk, d)
    for at in itertools.product(*map(range, (*lead, tq))):
        seen = [j for j in range(tk) if allowed[at][j]]
        logits = {
            j: math.fsum(
                scale * a * b
                for a, b in zip(queries[at].tolist(), keys[at[:-1]][j].tolist(), strict=True)
            )
            for j in seen
        }
        for j in seen:
            others = [min(logits[i] - logits[j], 700) for i in seen]
            weights[at][j] = 1 / math.fsum(map(math.exp, others))
    lead = torch.broadcast_shapes(lead, v.shape[:-2])  # type: ignore[no-untyped-call]
    output = torch.zeros(*lead, tq, dv, dtype=torch.float64)
    shares, values = weights.broadcast_to(*lead, tq, tk), v.broadcast_to(*lead, tk, dv)
    for at in itertools.product(*map(range, (*lead, tq, dv))):
        column = values[at[:-2]][:, at[-1]].tolist()
        output[at] = math.fsum(w * x for w, x in zip(shares[at[:-1]].tolist(), column, strict=True))
    return output, weights


def head_distance_by_hand(weights: Tensor) -> Tensor:
    """Mean total variation distance between heads, where no key is one key more, in float64."""
    maps = weights.double().cpu()
    *lead, n_heads, n_queries, n_keys = maps.shape
    found = torch.zeros(*lead, n_heads, n_heads, dtype=torch.float64)
    for at in itertools.product(*map(range, (*lead, n_heads, n_heads))):
        example, first, second = maps[at[:-2]], at[-2], at[-1]
        distances = []
        for i in range(n_queries):
            rows = [
                [*example[h, i].tolist(), float(not example[h, i].any())] for h in (first, second)
            ]
            if any(example[h, i].any() for h in range(n_heads)):
                distances.append(
                    math.fsum(abs(rows[0][j] - rows[1][j]) for j in range(n_keys + 1)) / 2
                )
        found[at] = math.fsum(distances) / max(len(distances), 1)
    return found


def largest_logit_by_hand(
    q: Tensor, k: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> Tensor:
    """Largest size of a logit that may attend, in float64, one pair at a time."""
    q, k = q.double().cpu(), k.double().cpu()
    (tq, d), tk = q.shape[-2:], k.shape[-2]
    scale = 1 / math.sqrt(d) if scale is None else scale
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])  # type: ignore[no-untyped-call]
    allowed = torch.ones(()).bool() if mask is None else mask.cpu()
    allowed = allowed.broadcast_to(*lead, tq, tk)
    queries, keys = q.broadcast_to(*lead, tq, d), k.broadcast_to(*lead, tk, d)
    found = torch.zeros(lead, dtype=torch.float64)
    for at in itertools.product(*map(range, lead)):
        found[at] = max(
            (
                abs(scale * math.fsum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True)))
                for (i, x), (j, y) in itertools.product(enumerate(queries[at]), enumerate(keys[at]))
                if allowed[(*at, i, j)]
            ),
            default=0.0,
        )
    return found


def entropy_by_hand(weights: Tensor) -> Tensor:
    """Entropy of each row in float64."""
    rows = weights.double().cpu()
    found = torch.zeros(rows.shape[:-1], dtype=torch.float64)
    for at in itertools.product(*map(range, rows.shape[:-1])):
        found[at] = math.fsum(-w * math.log(w) for w in rows[at].tolist() if w > 0)
    return found
