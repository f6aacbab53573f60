"""The corpus against definitions in float64, written out once more as loops."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.snippets.contract import right_cache, right_positions, wrong_cache, wrong_positions
from tests.snippets.contract.entries import Apply, Entry, Pair, draw, weights

B, H, T = 2, 3, 5
Settings = Any


def named(entries: dict[str, Entry], **having: str) -> list[Any]:
    return [
        pytest.param(entry, id=name)
        for name, entry in entries.items()
        if all(entry.settings.get(key) == value for key, value in having.items())
    ]


# Rotary.


def frequencies(s: Settings) -> list[float]:
    """Radians a position, of every pair."""
    width, base, scaling = s["rotary_dim"], s["base"], s["scaling"]
    kind = scaling and scaling["kind"]
    if kind == "ntk":
        base = base * scaling["factor"] ** (width / (width - 2))
    found = [math.exp(-2 * i / width * math.log(base)) for i in range(width // 2)]
    if kind == "linear":
        found = [f / scaling["factor"] for f in found]
    if kind == "llama3":
        for i, f in enumerate(found):
            turns = scaling["original_length"] * f / (2 * math.pi)
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            kept = min(max((turns - low) / (high - low), 0), 1)
            found[i] = kept * f + (1 - kept) * f / scaling["factor"]
    if kind == "yarn":
        length = scaling["original_length"]
        ends = [
            width * math.log(length / (2 * math.pi * scaling[beta])) / (2 * math.log(base))
            for beta in ("beta_fast", "beta_slow")
        ]
        low, high = max(math.floor(ends[0]), 0), min(math.ceil(ends[1]), width - 1)
        for i, f in enumerate(found):
            ramp = min(max((i - low) / (high - low), 0), 1)
            found[i] = (1 - ramp) * f + ramp * f / scaling["factor"]
    return found


def turned_by_hand(x: Tensor, positions: Tensor, s: Settings) -> Tensor:
    """x (B, H, T, d) in float64, one pair and one position at a time."""
    x = x.double()
    out, width = x.clone(), s["rotary_dim"]
    rows = positions.expand(x.shape[0], -1)
    for pair, frequency in enumerate(frequencies(s)):
        a, b = (
            (2 * pair, 2 * pair + 1) if s["pairing"] == "interleaved" else (pair, pair + width // 2)
        )
        for row in range(x.shape[0]):
            for t in range(x.shape[2]):
                angle = (int(rows[row, t]) + s["position_shift"]) * s["direction"] * frequency
                first, second = x[row, :, t, a], x[row, :, t, b]
                out[row, :, t, a] = first * math.cos(angle) - second * math.sin(angle)
                out[row, :, t, b] = first * math.sin(angle) + second * math.cos(angle)
    if s["output_order"] == "half":
        out = torch.cat((out[..., 0::2], out[..., 1::2]), -1)
    out *= s["factor"]
    return out


TO_LAYOUT = {
    "(B, H, T, d)": (0, 1, 2, 3),
    "(B, T, H, d)": (0, 2, 1, 3),
    "(T, B, H, d)": (2, 0, 1, 3),
}
FROM_LAYOUT = {
    "(B, H, T, d)": (0, 1, 2, 3),
    "(B, T, H, d)": (0, 2, 1, 3),
    "(T, B, H, d)": (1, 2, 0, 3),
}


def turned_by(apply: Apply, q: Tensor, k: Tensor, positions: Tensor, s: Settings) -> list[Tensor]:
    """Queries and keys (B, H, T, d) through the subject as it is called."""
    q, k = (x.permute(TO_LAYOUT[s["layout"]]).contiguous() for x in (q, k))
    at = positions.clone()
    start = {"offset": int(positions.flatten()[0])}
    call = s["call"]
    if call.startswith("q, k"):
        found = apply(q, k, at) if call == "q, k, positions" else apply(q, k, **start)
    elif call == "x, positions":
        found = apply(q, at), apply(k, at)
    elif call == "x, offset=":
        found = apply(q, **start), apply(k, **start)
    elif call == "x":
        found = apply(q), apply(k)
    else:
        assert call == "x, seq_dim=, offset="
        found = apply(q, seq_dim=-2, **start), apply(k, seq_dim=-2, **start)
    for result, given in zip(found, (q, k), strict=True):
        assert result.shape == given.shape
        assert result.isfinite().all()
    return [result.permute(FROM_LAYOUT[s["layout"]]) for result in found]


def queries_and_keys(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    return draw(B, H, T, 8, seed=1).to(dtype), draw(B, H, T, 8, seed=2).to(dtype)


ORDINARY = torch.arange(T)
OWN_ROWS = torch.stack((torch.arange(T), torch.tensor([9, 0, 4, 2, 30])))


def rotary_error(entry: Entry, situation: str) -> float:
    """Largest difference from the definition in the situation."""
    s, apply = entry.settings, entry.make()
    dtype = torch.bfloat16 if situation == "bfloat16" else torch.float32
    q, k = queries_and_keys(dtype)
    at = ORDINARY
    if situation in ("offset", "second_call"):
        at = ORDINARY + 7
    elif situation in ("far", "bfloat16", "after_bfloat16"):
        at = ORDINARY + 4000
    elif situation == "beyond_table":
        at = ORDINARY + 2 * s["max_positions"] + 1
    elif situation == "rows":
        at = OWN_ROWS
    if situation == "second_call":
        turned_by(apply, q, k, ORDINARY, s)
    elif situation == "after_long":
        turned_by(apply, q, k, ORDINARY + 2000, s)
    elif situation == "after_bfloat16":
        turned_by(apply, q.bfloat16(), k.bfloat16(), at, s)
    elif situation == "after_calls":
        turned_by(apply, q, k, at, s)
    found = turned_by(apply, q, k, at, s)
    expected = [turned_by_hand(x, at, s) for x in (q, k)]
    return max(float((a.double() - b).abs().max()) for a, b in zip(found, expected, strict=True))


def general_properties(entry: Entry) -> list[str]:
    """What breaks of that which holds for every rotation, whatever its frequencies."""
    s, apply, broken = entry.settings, entry.make(), []
    at_once = s["call"] == "x"
    dtype = torch.bfloat16 if entry.situation == "bfloat16" else torch.float32
    slack = 0.3 if dtype == torch.bfloat16 else 0.01  # of float32 angles up to 4000, or 8 bits
    last = 62 if s["max_positions"] == 64 else 4000  # 62 to 66 cross the end of a short table
    one = [x[:1, :1, :1].expand(B, H, T, 8).to(dtype).contiguous() for x in queries_and_keys()]

    def scores(start: int) -> Tensor:
        q, k = turned_by(apply, one[0], one[1], torch.arange(start, start + T), s)
        return q.double() @ k.double().transpose(-1, -2)  # (B, H, T, T), of one q and one k

    starts = (0,) if at_once else (0, 9, last, 0, 9)
    found = [scores(start) for start in starts]
    for start, table in zip(starts, found, strict=True):
        if any(
            (table.diagonal(d, -2, -1) - table.diagonal(d, -2, -1)[..., :1]).abs().max() > slack
            for d in range(1 - T, T)
        ):
            broken.append(f"scores from {start} know more than the difference")
        if (table - found[0]).abs().max() > slack:
            broken.append(f"scores from {start} are not those from 0")
        if (table - table[:1]).abs().max() > slack:
            broken.append("batch rows differ")
    if (found[0].diff(dim=-1).abs() < 1e-4).all():
        broken.append("no position at all")
    q, _ = turned_by(apply, one[0], one[1], ORDINARY, s)
    if (q.double().norm(dim=-1) / one[0].double().norm(dim=-1) - s["factor"]).abs().max() > slack:
        broken.append("norm")
    if not at_once:
        shifted, _ = turned_by(apply, one[0], one[1], ORDINARY + 2, s)
        if (q[:, :, 2:] - shifted[:, :, :-2]).abs().max() > slack:
            broken.append("offset")
    if "positions" in s["call"]:
        rows, _ = turned_by(apply, one[0], one[1], OWN_ROWS, s)
        alone, _ = turned_by(apply, one[0][1:], one[1][1:], OWN_ROWS[1:], s)
        if (rows[1:] - alone).abs().max() > slack:
            broken.append("own positions of a row")
    if entry.situation in ("after_long", "after_bfloat16"):
        at = ORDINARY if entry.situation == "after_long" else ORDINARY + 4000
        used = entry.make()
        turned_by(used, one[0].bfloat16(), one[1].bfloat16(), ORDINARY + 4000, s)
        alone = turned_by(entry.make(), one[0], one[1], at, s)[0]
        if (turned_by(used, one[0], one[1], at, s)[0] - alone).abs().max() > slack:
            broken.append("earlier calls")
    if s["call"] == "x, positions":
        positions = ORDINARY.clone()
        apply(one[0].permute(TO_LAYOUT[s["layout"]]), positions)
        if not positions.equal(ORDINARY):
            broken.append("positions changed")
    return broken


ALL_ROTARY = named(right_positions.ALL, scheme="rotary")


@pytest.mark.parametrize("entry", ALL_ROTARY)
def test_right_rotations(entry: Entry) -> None:
    s = entry.settings
    situations = ["ordinary"]
    if s["call"] != "x":
        situations += ["offset", "far", "bfloat16", "second_call", "after_long", "after_bfloat16"]
        situations += ["after_calls"]
    if "positions" in s["call"]:
        situations += ["rows"]
    for situation in situations:
        tolerance = 5e-6
        if situation in ("far", "after_bfloat16"):
            tolerance = 4 * 4000 * 1.2e-7
        elif situation == "bfloat16":
            tolerance = 4 * 2.0**-8 * 4
        assert rotary_error(entry, situation) < tolerance, situation


@pytest.mark.parametrize("entry", ALL_ROTARY)
def test_right_rotations_take_float64(entry: Entry) -> None:
    q, k = queries_and_keys(torch.float64)
    found = turned_by(entry.make(), q, k, ORDINARY, entry.settings)
    expected = [turned_by_hand(x, ORDINARY, entry.settings) for x in (q, k)]
    torch.testing.assert_close(found[0].double(), expected[0], rtol=0, atol=3e-6)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=0, atol=3e-6)


@pytest.mark.parametrize("entry", named(wrong_positions.ALL, scheme="rotary"))
def test_wrong_rotations(entry: Entry) -> None:
    far = entry.situation in ("far", "bfloat16", "after_bfloat16")
    assert rotary_error(entry, entry.situation) > (0.2 if far else 1e-3)
    rotary_error(entry, "ordinary")  # runs, finite, of the right shape


@pytest.mark.parametrize("entry", ALL_ROTARY)
def test_right_rotations_break_no_general_property(entry: Entry) -> None:
    assert general_properties(entry) == []


@pytest.mark.parametrize("entry", named(wrong_positions.ALL, scheme="rotary"))
def test_what_needs_the_specification_breaks_no_general_property(entry: Entry) -> None:
    assert (general_properties(entry) == []) == (entry.needs != "")


# Added to the scores.


def slopes_by_hand(n: int) -> list[float]:
    power = 1 << (n.bit_length() - 1)
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return first + between[: n - power]


def bias_by_hand(n_queries: int, n_keys: int, s: Settings) -> Tensor:
    """(H, Tq, Tk) in float64."""
    heads, kind = s["n_heads"], s["bias"]
    table = None
    if kind == "t5":
        table = draw(s["buckets"], heads)
    elif kind == "learned":
        table = draw(2 * s["max_distance"] + 1, heads)
    out = torch.zeros(heads, n_queries, n_keys, dtype=torch.float64)
    slopes = slopes_by_hand(heads)
    for i in range(n_queries):
        for j in range(n_keys):
            ahead = j - (n_keys - n_queries + i)
            if table is not None:
                bucket = (
                    bucket_by_hand(ahead, s)
                    if kind == "t5"
                    else min(max(ahead, -s["max_distance"]), s["max_distance"]) + s["max_distance"]
                )
                out[:, i, j] = table[bucket].double()
                continue
            distance = abs(ahead) if s["symmetric"] else -ahead
            for h, slope in enumerate(slopes):
                out[h, i, j] = -slope * (math.log(1 + distance) if kind == "log" else distance)
    return out


def bucket_by_hand(ahead: int, s: Settings) -> int:
    buckets: int = s["buckets"]
    first = 0
    if s["causal"]:
        distance = max(-ahead, 0)
    else:
        buckets //= 2
        first, distance = (buckets if ahead > 0 else 0), abs(ahead)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(s["max_distance"] / exact)
    last: int = buckets - 1
    return first + min(exact + math.floor(share * (buckets - exact) + 1e-9), last)


SIZES = {"square": (6, 6), "decode": (1, 6), "chunk": (3, 8), "long": (1, 1000)}


def bias_error(entry: Entry, situation: str) -> float:
    s, (n_queries, n_keys) = entry.settings, SIZES[situation]
    found = entry.make()(n_queries, n_keys)
    if found.dim() == 4:
        found = found[0]
    assert found.shape in [(s["n_heads"], n, n_keys) for n in (1, n_queries)]
    found = found.double().expand(-1, n_queries, -1)
    expected = bias_by_hand(n_queries, n_keys, s)
    past = right_cache.causal(n_queries, n_keys)
    assert found[:, past].isfinite().all()
    if s["masked_future"]:
        assert (found[:, ~past] == float("-inf")).all()
    if s["row_constant"]:
        itself = past & ~right_cache.causal(n_queries, n_keys).cumsum(1).lt(past.sum(1)[:, None])
        at = itself.long().argmax(1)[None, :, None].expand(found.shape[0], -1, 1)
        found, expected = found - found.gather(2, at), expected - expected.gather(2, at)
    seen = past if s["causal"] else torch.ones_like(past)
    return float((found - expected)[:, seen].abs().max())


@pytest.mark.parametrize("situation", SIZES)
@pytest.mark.parametrize("entry", named(right_positions.ALL, scheme="additive"))
def test_right_biases(entry: Entry, situation: str) -> None:
    assert bias_error(entry, situation) < 1e-4 * (1 if situation == "long" else 0.01)


@pytest.mark.parametrize("entry", named(wrong_positions.ALL, scheme="additive"))
def test_wrong_biases(entry: Entry) -> None:
    assert bias_error(entry, entry.situation) > 1e-3
    for situation in SIZES:
        bias_error(entry, situation)


# Added to the inputs.


def table_by_hand(positions: Tensor, s: Settings) -> Tensor:
    width = s["d_model"]
    if s["table"] == "learned":
        return draw(512, width).double()[positions]
    out = torch.zeros(len(positions), width, dtype=torch.float64)
    for row, position in enumerate(positions.tolist()):
        for pair in range(width // 2):
            angle = position * s["base"] ** (-2 * pair / width)
            a, b = (2 * pair, 2 * pair + 1)
            if s["order"] == "half":
                a, b = pair, pair + width // 2
            out[row, a], out[row, b] = math.sin(angle), math.cos(angle)
    return out


def table_error(entry: Entry, situation: str) -> float:
    s, subject = entry.settings, entry.make()
    at = {
        "ordinary": ORDINARY,
        "offset": ORDINARY + 7,
        "far": ORDINARY + 4000,
        "single_after_calls": torch.tensor([3]),
    }[situation]
    x = draw(B, T, 16, seed=3)

    def through(x: Tensor, at: Tensor) -> Tensor:
        if s["call"] == "positions":
            table: Tensor = subject(at)
            return x + table
        if s["call"] == "x, offset=":
            added: Tensor = subject(x, offset=int(at[0]))
            return added
        by_rows: Tensor = subject(x, at.expand(len(x), -1))
        return by_rows

    if situation == "single_after_calls":
        through(x, ORDINARY + 7)
        x = x[:, :1]
    found = through(x, at)
    assert found.shape == x.shape
    assert found.isfinite().all()
    return float((found - x - table_by_hand(at, s)).abs().max())


@pytest.mark.parametrize("entry", named(right_positions.ALL, scheme="absolute"))
def test_right_tables(entry: Entry) -> None:
    s = entry.settings
    assert table_error(entry, "ordinary") < 5e-6
    assert table_error(entry, "offset") < 5e-6
    if s["max_positions"] is None:
        assert table_error(entry, "far") < 4000 * 2.4e-7
    if s["call"] != "positions":
        assert table_error(entry, "single_after_calls") < 5e-6


@pytest.mark.parametrize("entry", named(wrong_positions.ALL, scheme="absolute"))
def test_wrong_tables(entry: Entry) -> None:
    assert table_error(entry, entry.situation) > 1e-3
    table_error(entry, "ordinary")


# Caches.


def turned_head(x: Tensor, position: float, pairing: str) -> Tensor:
    """One head of width 4, turned."""
    given, out = x.tolist(), x.tolist()
    for pair, frequency in enumerate((1.0, 0.01)):
        a, b = (pair, pair + 2) if pairing == "half" else (2 * pair, 2 * pair + 1)
        cos, sin = math.cos(position * frequency), math.sin(position * frequency)
        out[a], out[b] = given[a] * cos - given[b] * sin, given[a] * sin + given[b] * cos
    return torch.tensor(out, dtype=torch.float64)


def layer_by_hand(x: Tensor, s: Settings, seed: int) -> Tensor:
    """One sequence (T, C), one query of one head at a time."""
    heads, kv_heads, kind, n = s["n_heads"], s["n_kv_heads"], s["positions"], len(x)
    w = weights(heads, kv_heads, seed)
    if kind == "learned":
        x = x + right_cache.TABLE[:n].double()
    q = (x @ w.q.double()).view(-1, heads, 4)
    if s["latent"]:
        c = x @ (draw(16, 6, seed=80) / 3).double()
        k = (c @ draw(6, 16, seed=81).double()).view(-1, kv_heads, 4)
        v = (c @ (draw(6, 16, seed=82) / 2).double()).view(-1, kv_heads, 4)
    else:
        k = (x @ w.k.double()).view(-1, kv_heads, 4)
        v = (x @ w.v.double()).view(-1, kv_heads, 4)
    shrink = 1.0
    if s["scaling"]:
        shrink = min(1.0, s["scaling"]["original_length"] / n)
    if kind == "rotary":
        for at in range(n):
            for rows in (q[at], k[at]):
                turns = [turned_head(row, at * shrink, s["pairing"]) for row in rows]
                rows.copy_(torch.stack(turns))
    out = torch.zeros(n, heads, 4, dtype=torch.float64)
    for i in range(n):
        window = n if s["window"] is None else s["window"]
        seen = [j for j in range(i + 1) if i - j < window or j < s["sinks"]]
        for h in range(heads):
            kv = h * kv_heads // heads
            query, keys = q[i, h], k[seen, kv]
            if kind == "rotary in cache":
                query = turned_head(query, len(seen) - 1, s["pairing"])
                turns = [turned_head(key, at, s["pairing"]) for at, key in enumerate(keys)]
                keys = torch.stack(turns)
            scores = keys @ query / 2
            if s["log_n"]:
                scores *= math.log(4 + i) / math.log(4)
            distance = i - torch.tensor(seen)
            if kind == "alibi":
                scores -= slopes_by_hand(heads)[h] * distance
            elif kind == "t5":
                scores += right_cache.BUCKETS[distance.clamp(max=7), h]
            shares = scores.softmax(0)
            out[i, h] = shares @ v[seen, kv]
    return out.flatten(1) @ w.o.double()


KNOWN: dict[tuple[str, bytes], Tensor] = {}


def full_by_hand(x: Tensor, s: Settings) -> Tensor:
    """Each sequence of the batch alone."""
    asked = {k: v for k, v in s.items() if k not in ("state", "max_length", "padding")}
    key = repr(sorted(asked.items())), x.numpy().tobytes()
    if key not in KNOWN:
        KNOWN[key] = freshly_by_hand(x, s)
    return KNOWN[key]


def freshly_by_hand(x: Tensor, s: Settings) -> Tensor:
    rows = []
    for row in x:
        if s["input"] == "tokens":
            table = right_cache.EMBEDDING.double()
            hidden = table[row]
            for seed in range(s["layers"]):
                hidden = hidden + layer_by_hand(hidden, s, seed)
            rows.append(hidden @ table.T)
        else:
            rows.append(layer_by_hand(row.double(), s, 0))
    return torch.stack(rows)


def sequence(s: Settings, length: int = 12, seed: int = 0) -> Tensor:
    if s["input"] == "tokens":
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(s["vocabulary"], (B, length), generator=generator)
    return draw(B, length, 16, seed=200 + seed)


class Steps:
    """One sequence through the steps."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.state = pair, None
        if pair.reset is not None:
            pair.reset()

    def __call__(self, x: Tensor, *mask: Tensor) -> Tensor:
        if self.pair.reset is not None:
            out: Tensor = self.pair.step(x)
        else:
            out, self.state = self.pair.step(x, self.state, *mask)
        assert out.shape[:2] == x.shape[:2]
        assert out.isfinite().all()
        return out


def in_chunks(pair: Pair, x: Tensor, sizes: list[int]) -> Tensor:
    steps = Steps(pair)
    return torch.cat([steps(chunk) for chunk in torch.split(x, sizes, 1)], 1)


SPLITS: dict[str, list[int]] = {
    "one_by_one": [1] * 12,
    "prefill": [4] + [1] * 8,
    "chunks": [3, 3, 1, 2, 3],
    "long_chunk": [4, 7, 1],
    "at_once": [12],
}
LENGTHS = torch.tensor([9, 6, 2])  # real tokens; three of them after the prefill


def left_padded(s: Settings, in_steps: bool) -> Callable[[Pair], tuple[Tensor, Tensor]]:
    def run(pair: Pair) -> tuple[Tensor, Tensor]:
        x = draw(3, 12, 16, seed=5)
        real = torch.cat((torch.arange(9) >= 9 - LENGTHS[:, None], torch.ones(3, 3).bool()), 1)
        if in_steps:
            steps = Steps(pair)
            sizes = [9, 1, 1, 1]
            outs = [
                steps(*both)
                for both in zip(torch.split(x, sizes, 1), torch.split(real, sizes, 1), strict=True)
            ]
            found = torch.cat(outs, 1)
        else:
            found = pair.full(x, real)
        expected = [full_by_hand(row[m][None], s)[0] for row, m in zip(x, real, strict=True)]
        return found[real].double(), torch.cat(expected)

    return run


def cache_error(entry: Entry, situation: str) -> float:
    s, pair = entry.settings, entry.make()
    if situation in ("left_padded", "left_padded_full"):
        found, expected = left_padded(s, situation == "left_padded")(pair)
        return float((found - expected).abs().max())
    x = sequence(s)
    if situation == "full":
        found = pair.full(x)
    elif situation in SPLITS:
        found = in_chunks(pair, x, SPLITS[situation])
    elif situation == "second_sequence":
        in_chunks(pair, sequence(s, 12, 1), SPLITS["prefill"])
        found = in_chunks(pair, x, SPLITS["prefill"])
    elif situation == "after_longer":
        longer = 12 + 3 if s["max_length"] is not None and s["max_length"] < 20 else 20
        in_chunks(pair, sequence(s, longer, 1), [1] * longer)
        found = in_chunks(pair, x, SPLITS["prefill"])
    elif situation == "after_full":
        steps = Steps(pair)
        first = steps(x[:, :4])
        pair.full(sequence(s, 6, 1))
        found = torch.cat([first, *(steps(token) for token in torch.split(x[:, 4:], 1, 1))], 1)
    else:
        assert situation == "in_turns"
        other = sequence(s, 12, 1)
        steps, others = Steps(pair), Steps(pair)
        outs = []
        for mine, theirs in zip(torch.split(x, 1, 1), torch.split(other, 1, 1), strict=True):
            outs.append(steps(mine))
            others(theirs)
        found = torch.cat(outs, 1)
    return float((found.double() - full_by_hand(x, s)).abs().max())


@pytest.mark.parametrize("entry", named(right_cache.ALL))
def test_right_caches(entry: Entry) -> None:
    if entry.settings["padding"]:
        assert cache_error(entry, "left_padded_full") < 2e-5
        assert cache_error(entry, "left_padded") < 2e-5
        return
    situations = [*SPLITS, "full", "second_sequence", "after_longer", "after_full"]
    if entry.settings["state"] == "argument":
        situations += ["in_turns"]
    for situation in situations:
        assert cache_error(entry, situation) < 2e-5, situation


@pytest.mark.parametrize("entry", named(wrong_cache.ALL))
def test_wrong_caches(entry: Entry) -> None:
    assert cache_error(entry, entry.situation) > 1e-3
    if entry.settings["padding"]:
        return
    if not entry.needs:
        assert cache_error(entry, "full") < 2e-5
    for situation in SPLITS:
        cache_error(entry, situation)


# The registries.


def test_every_check_has_an_entry() -> None:
    positions = {entry.mistake for entry in wrong_positions.ALL.values()}
    assert positions == {
        "relative_only",
        "norm_kept",
        "pairs_mixed",
        "low_precision_angles",
        "partial_width",
        "offset_ignored",
        "calls_remembered",
        "frequencies",
        "alibi_slopes",
        "alibi_sign",
        "alibi_while_decoding",
    }
    assert {entry.mistake for entry in wrong_cache.ALL.values()} == {
        "chunks_differ",
        "unwritten_slots",
        "window_length",
        "rolled_early",
        "left_padding",
        "rotated_twice",
        "sequences_mixed",
        "calls_remembered",
    }


def test_names_are_unique() -> None:
    names = [n for module in MODULES for n in module.ALL]
    assert len(names) == len(set(names))


MODULES = (right_positions, right_cache, wrong_positions, wrong_cache)
