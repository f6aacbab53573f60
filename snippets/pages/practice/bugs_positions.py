"""What the page on mistakes with positions and caches runs."""

import contextlib
import io
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn


def draw(*shape: int, seed: int = 0) -> Tensor:
    """Independent normal numbers in float64, the same on every machine."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None):
    """PyTorch's attention, (T, d) each; True = may attend, floats are added."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def causal(n_queries: int, n_keys: int) -> Tensor:
    """True = may attend, (Tq, Tk); the last query sees the last key."""
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool)
    return ones.tril(n_keys - n_queries)


def angles(positions: Tensor, width: int) -> Tensor:
    """Rotary angle of each pair at each position, (T,) -> (T, width / 2)."""
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
    return positions[:, None] * 10_000**-exponents


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """Turn the pairs (i, i + d/2) of x, (T, d), by the angles, (T, d / 2)."""
    first, second = x.chunk(2, -1)  # (T, d / 2) each
    cos, sin = angle.cos(), angle.sin()
    turned = first * cos - second * sin, first * sin + second * cos
    return torch.cat(turned, -1)


def rope(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions on queries or keys, (T, d) and (T,) -> (T, d)."""
    return rotate(x, angles(positions, x.shape[-1]))


def apart(a: Tensor, b: Tensor) -> float:
    """Largest difference between two tensors."""
    return (a - b).abs().max().item()


def say(error: float) -> str:
    """Two places, or that it is no more than rounding."""
    return f"{error:.2f}" if error > 1e-12 else "below 1e-12"


def example_layouts():
    def interleaved(x, positions):  # pairs (0, 1), (2, 3), ...
        angle = angles(positions, x.shape[-1])  # (T, d / 2)
        numbers = torch.view_as_complex(x.unflatten(-1, (-1, 2)))  # (T, d / 2)
        turned = numbers * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).flatten(-2)  # (T, d)

    def scores(turn, w_q, w_k):
        return turn(x @ w_q.T, t) @ turn(x @ w_k.T, t).T  # (T, T)

    x, t = draw(6, 16), torch.arange(6)  # (T, C) and (T,)
    w_q, w_k = draw(2, 8, 16, seed=1) / 4  # (d, C) each: the checkpoint's
    trained = scores(interleaved, w_q, w_k)
    order = torch.cat([torch.arange(0, 8, 2), torch.arange(1, 8, 2)])

    loaded = scores(rope, w_q, w_k)  # pairs (0, 4), (1, 5), ...
    permuted = scores(rope, w_q[order], w_k[order])
    wrong, right = apart(loaded, trained), apart(permuted, trained)
    itself = apart(loaded.diagonal(), trained.diagonal())
    print("wrong, loaded as it is: error", say(wrong))
    print("    of a token's score with itself:", say(itself))
    print("right, rows permuted: error", say(right))
    return {"wrong": wrong, "right": right, "itself": say(itself)}


def example_recipes():
    def rotate_half(x):
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)

    q, k = draw(2, 1, 8).expand(2, 12, 8)  # one query, one key, 12 places
    angle = angles(torch.arange(12), 8)  # (T, d / 2)
    recipes = {
        "wrong, repeat_interleave": angle.repeat_interleave(2, -1),  # (T, d)
        "right, cat": torch.cat([angle, angle], -1),  # (T, d)
    }
    found = []
    for name, full in recipes.items():
        cos, sin = full.cos(), full.sin()
        turned_q, turned_k = (x * cos + rotate_half(x) * sin for x in (q, k))
        norm = apart(turned_q.norm(dim=-1), q.norm(dim=-1))
        scores = turned_q @ turned_k.T  # (T, T)
        bands = [scores.diagonal(i) for i in range(-11, 12)]
        spread = max((band.max() - band.min()).item() for band in bands)
        found.append(spread)
        print(f"{name}: error of the norms {say(norm)},")
        print(f"    spread of the scores at one distance {say(spread)}")
    return {"wrong": found[0], "right": found[1]}


class Rotary(nn.Module):
    """Cosines of the rotary angles, from frequencies that are a buffer."""

    frequencies: Tensor

    def __init__(self, width: int):
        super().__init__()
        exponents = torch.arange(0, width, 2, dtype=torch.float64) / width
        frequencies = (10_000**-exponents).float()  # (width / 2,)
        self.register_buffer("frequencies", frequencies)

    def forward(self, positions: Tensor) -> Tensor:
        """(T,) -> (T, width / 2)."""
        positions = positions.to(self.frequencies.dtype)
        return (positions[:, None] * self.frequencies).cos()


def example_precision():
    t = torch.arange(4096)
    exact = angles(t, 64).cos()  # (T, d / 2), float64
    cast = Rotary(64).bfloat16()(t)  # as model.bfloat16() does
    late = Rotary(64)(t).bfloat16()
    wrong, right = apart(cast, exact), apart(late, exact)
    assert right < 2**-8  # cosines have a last place of 2⁻⁸ in bfloat16
    print(f"wrong, angles in bfloat16: error {wrong:.2f}")
    print("right, angles in float32, cosines cast: error below 2^-8")
    places = t.bfloat16().unique().numel()
    print(f"{len(t)} positions in bfloat16: {places} different numbers")
    return {"wrong": wrong, "right": right, "places": places}


def example_partial():
    x, t = draw(64, 16), torch.arange(64)  # (T, d), 8 of 16 features turn

    def wrong_partial(x):
        angle = angles(t, 16)  # (T, 8): the width of the head
        angle[:, 4:] = 0.0
        return rotate(x, angle)  # pairs (i, i + 8)

    def right_partial(x):
        turned, rest = x.split(8, -1)  # (T, 8) each
        return torch.cat([rope(turned, t), rest], -1)  # pairs (i, i + 4)

    q, k = x, draw(64, 16, seed=1)
    errors = []
    for partial in (wrong_partial, right_partial):
        scores = partial(q) @ partial(k).T  # (T, T)
        turned = rope(q[:, :8], t) @ rope(k[:, :8], t).T
        off = (scores - turned - q[:, 8:] @ k[:, 8:].T).abs()
        errors.append(off.max().item())
        by_distance = [say(off.diagonal(-n).max().item()) for n in (0, 1, 8)]
        print(f"{partial.__name__}: error {say(errors[-1])},")
        print("    at distances of 0, 1 and 8:", ", ".join(by_distance))
    half = torch.arange(0, 8) / 8
    same = torch.equal(half, torch.arange(0, 16, 2) / 16)
    print("arange(d/2) / (d/2) is arange(0, d, 2) / d:", same)

    inv_freq = 10_000.0 ** -(torch.arange(0, 8, 2).double() / 16)  # (4,)
    inv_freq = F.pad(inv_freq, (0, 4))  # (d / 2,): the rest does not turn
    angle = (t[:, None] * inv_freq).repeat(1, 2)  # (T, d)
    halves = torch.cat([-x[:, 8:], x[:, :8]], -1)  # rotate_half
    proportional = x * angle.cos() + halves * angle.sin()
    equal = torch.allclose(proportional, wrong_partial(x), atol=1e-12)
    print("rope_type='proportional' is wrong_partial:", equal)
    return {
        "wrong": errors[0],
        "right": errors[1],
        "same": str(same),
        "proportional": str(equal),
    }


def example_restart():
    q, k, v = draw(3, 6, 8)  # (T, d) each
    t = torch.arange(6)
    full = attend(rope(q, t), rope(k, t), v, causal(6, 6))
    table = angles(torch.arange(32), 8)  # (32, d / 2), made once

    def decode(restart):
        keys, outputs = k[:0], []
        for i in range(6):
            angle = table[:1] if restart else table[i : i + 1]  # (1, d / 2)
            keys = torch.cat([keys, rotate(k[i : i + 1], angle)])
            query = rotate(q[i : i + 1], angle)  # (1, d)
            outputs.append(attend(query, keys, v[: i + 1]))
        return torch.cat(outputs)  # (T, d)

    restarted = decode(restart=True)
    wrong, right = apart(restarted, full), apart(decode(restart=False), full)
    print("wrong, every token at position 0: error", say(wrong))
    blind = apart(restarted, attend(q, k, v, causal(6, 6)))
    print("    difference from no positions:", say(blind))
    print("right, from the start position: error", say(right))
    return {"wrong": wrong, "right": right, "blind": say(blind)}


def example_twice():
    q, k, v = draw(3, 6, 8)  # (T, d) each
    t = torch.arange(6)
    full = attend(rope(q, t), rope(k, t), v, causal(6, 6))

    def decode(again):
        keys, outputs = k[:0], []
        for i in range(6):
            keys = torch.cat([keys, rope(k[i : i + 1], t[i : i + 1])])
            if again:
                keys = rope(keys, t[: i + 1])
            query = rope(q[i : i + 1], t[i : i + 1])  # (1, d)
            outputs.append(attend(query, keys, v[: i + 1]))
        return torch.cat(outputs)  # (T, d)

    wrong, right = (apart(decode(again), full) for again in (True, False))
    print("wrong, the cache turned at every step: error", say(wrong))
    print("right, each key turned once: error", say(right))
    cached, moved = rope(k, t), rope(k, t + 3)
    left, turned = cached, rope(cached, torch.full((6,), 3))
    print("moved by 3 places, left as they are:", say(apart(left, moved)))
    print("moved by 3 places, turned by 3 more:", say(apart(turned, moved)))
    return {"wrong": wrong, "right": right, "moved": apart(left, moved)}


def example_learned():
    words, places = draw(10, 8, seed=1), draw(8, 8, seed=2)  # two embeddings

    def last(ids, positions, real):
        x = words[ids] + places[positions]  # (T, d)
        mask = causal(len(ids), len(ids)) & real  # (T, T)
        return attend(x, x, x, mask)[-1]

    alone = last(torch.tensor([3, 4, 5]), torch.arange(3), torch.tensor(True))
    ids = torch.tensor([0, 0, 3, 4, 5])  # 0 is padding
    real = ids != 0
    counted = torch.arange(5)
    own = (real.cumsum(0) - 1).clamp(min=0)
    wrong = apart(last(ids, counted, real), alone)
    right = apart(last(ids, own, real), alone)
    print("wrong, positions", counted.tolist(), "error", say(wrong))
    print("right, positions", own.tolist(), "error", say(right))
    return {"wrong": wrong, "right": right}


def example_two_counts():
    q, k, v = draw(3, 8, 8)  # three slots of padding, a prompt, a new token
    real = torch.arange(8) >= 3
    t = torch.arange(5)
    alone = attend(rope(q[3:], t)[-1:], rope(k[3:], t), v[3:])  # (1, d)
    own = (real.cumsum(0) - 1).clamp(min=0)  # 0, 0, 0, 0, 1, 2, 3, 4
    new_by_slot = own.clone()
    new_by_slot[-1] = 7  # the length of the cache
    versions = {
        "wrong, the new token by slot": new_by_slot,
        "right, all by token": own,
        "right, too: all by slot": torch.arange(8),
    }
    errors = []
    for name, p in versions.items():
        output = attend(rope(q, p)[-1:], rope(k, p), v, real[None])
        errors.append(apart(output, alone))
        print(f"{name}: error {say(errors[-1])}")
    values = {"wrong": errors[0], "right": errors[1]}
    return values | {"slots": say(errors[2])}


def example_slopes():
    def geometric(n):
        return [2 ** (-8 * h / n) for h in range(1, n + 1)]

    def slopes(n):
        whole = 2 ** int(math.log2(n))  # the power of two below
        return geometric(whole) + geometric(2 * whole)[::2][: n - whole]

    halves = [2.0**-h for h in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5]
    published = torch.tensor([*halves, 2**-3.5])  # of 12 heads
    errors = []
    for name, found in {"wrong": geometric(12), "right": slopes(12)}.items():
        errors.append(apart(torch.tensor(found), published))
        print(f"{name}: error {say(errors[-1])}")
        print("   ", " ".join(f"{slope:.3f}" for slope in found))
    print("8 heads, the same by both:", geometric(8) == slopes(8))
    return {"wrong": errors[0], "right": errors[1]}


def example_exponent():
    n_heads = 8
    from_0 = [2 ** (-8 * h / n_heads) for h in range(n_heads)]
    from_1 = [2 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)]
    published = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    versions = {"wrong, from 0": from_0, "right, from 1": from_1}
    errors = []
    for name, slopes in versions.items():
        gaps = [abs(a - b) for a, b in zip(slopes, published, strict=True)]
        errors.append(max(gaps))
        print(f"{name}: first {slopes[0]:g}, last {slopes[-1]:g},", end=" ")
        print("error", say(errors[-1]))
    return {"wrong": errors[0], "right": errors[1]}


def example_sign():
    t, slope = torch.arange(5, dtype=torch.float64), 0.5
    shares = [math.exp(-slope * (4 - j)) for j in range(5)]
    nearest_most = torch.tensor(shares, dtype=torch.float64) / sum(shares)
    versions = {
        "wrong, + slope · distance": slope * (t[:, None] - t),  # (Tq, Tk)
        "right, − slope · distance": slope * (t - t[:, None]),  # (Tq, Tk)
    }
    errors = []
    for name, bias in versions.items():
        weights = bias[-1].softmax(-1)  # (Tk,): all scores are equal
        errors.append(apart(weights, nearest_most))
        print(f"{name}:", " ".join(f"{x:.2f}" for x in weights.tolist()))
    return {"wrong": errors[0], "right": errors[1]}


def example_decoding():
    q, k, v = draw(3, 6, 8)  # (T, d) each

    def bias(n_queries, n_keys, slope=0.5):
        past = n_keys - n_queries
        i = torch.arange(past, n_keys)[:, None]  # (Tq, 1)
        return slope * (torch.arange(n_keys) - i).double()  # (Tq, Tk)

    full = attend(q, k, v, bias(6, 6).masked_fill(~causal(6, 6), -math.inf))
    by_query = attend(q[-1:], k, v, bias(1, 1))  # (1, 1) fits (1, 6)
    by_cache = attend(q[-1:], k, v, bias(1, 6))
    wrong, right = (apart(x, full[-1:]) for x in (by_query, by_cache))
    print("wrong, bias(1, 1): error", say(wrong))
    blind = apart(by_query, attend(q[-1:], k, v))
    print("    difference from no bias:", say(blind))
    print("right, bias(1, 6): error", say(right))
    return {"wrong": wrong, "right": right, "blind": say(blind)}


def example_one_row():
    q, k, v = draw(3, 6, 8)  # (T, d) each
    t, slope = torch.arange(6).double(), 0.5
    triangle = -slope * (t[:, None] - t).abs()  # (Tq, Tk), the paper's
    row = slope * (t - 5)[None]  # (1, Tk), for every query
    hidden = torch.zeros(6, 6).double().masked_fill(~causal(6, 6), -math.inf)
    past = apart(
        attend(q, k, v, row + hidden), attend(q, k, v, triangle + hidden)
    )
    both = apart(attend(q, k, v, row.expand(6, 6)), attend(q, k, v, triangle))
    print("under a causal mask, one row and the triangle:", say(past))
    print("without a mask:", say(both))
    return {"wrong": both, "right": past, "causal": say(past)}


def example_prefill():
    q, k, v = draw(3, 6, 8)  # (T, d) each

    def step(q, k, v, cache, by_cache):
        if cache is not None:
            k, v = torch.cat([cache[0], k]), torch.cat([cache[1], v])
        masked = cache is None if by_cache else len(q) > 1
        return attend(q, k, v, causal(len(q), len(k)) if masked else None)

    full = attend(q, k, v, causal(6, 6))  # as in training
    empty = k[:0], v[:0]
    wrong, right = (
        apart(step(q, k, v, empty, by_cache), full)
        for by_cache in (True, False)
    )
    print("wrong, masked if there is no cache: error", say(wrong))
    print("right, masked if several queries: error", say(right))
    later = k[:3], v[:3]
    chunk = step(q[3:], k[3:], v[3:], later, by_cache=False)
    print("right, a second chunk: error", say(apart(chunk, full[3:])))

    window = 3
    near = attend(q, k, v, causal(6, 6).triu(1 - window))  # (T, d)
    last = q[5:], near[5:]  # one new token, and what it should get
    uncut = apart(attend(last[0], k, v), last[1])
    cut = apart(attend(last[0], k[-window:], v[-window:]), last[1])
    print("under a window, one token without a mask: error", say(uncut))
    print("    with the cache cut to the window: error", say(cut))
    right = max(right, apart(chunk, full[3:]), cut)
    return {"wrong": wrong, "right": right, "uncut": uncut}


def example_window():
    q, k, v = draw(3, 6, 8)  # (T, d) each
    window = 3
    parts = [slice(max(0, i + 1 - window), i + 1) for i in range(6)]
    last_3 = [attend(q[i : i + 1], k[p], v[p]) for i, p in enumerate(parts)]
    versions = {
        "wrong, triu(-window)": causal(6, 6).triu(-window),
        "right, triu(1 - window)": causal(6, 6).triu(1 - window),
    }
    errors = []
    for name, mask in versions.items():
        errors.append(apart(attend(q, k, v, mask), torch.cat(last_3)))
        print(f"{name}: keys of each query {mask.sum(-1).tolist()},")
        print("    error", say(errors[-1]))
    return {"wrong": errors[0], "right": errors[1]}


def example_unwritten():
    q, k, v = draw(3, 6, 8)  # (T, d) each
    full = attend(q, k, v, causal(6, 6))
    keys, values = torch.zeros(2, 16, 8).double()  # made for 16 tokens
    all_slots, written_slots = [], []
    for i in range(6):
        keys[i], values[i] = k[i], v[i]
        all_slots.append(attend(q[i : i + 1], keys, values))
        written = torch.arange(16)[None] <= i  # (1, 16)
        written_slots.append(attend(q[i : i + 1], keys, values, written))
    wrong, right = (
        apart(torch.cat(x), full) for x in (all_slots, written_slots)
    )
    print("wrong, all slots: error", say(wrong))
    print("right, the written slots: error", say(right))
    weights = (q[5] @ keys.T / math.sqrt(8)).softmax(-1)  # (16,)
    lost = weights[6:].sum().item()
    print(f"weight on the 10 empty slots at the last step: {lost:.2f}")
    return {"wrong": wrong, "right": right, "lost": lost}


def example_rolled():
    q, k, v = draw(3, 10, 8)  # (T, d) each
    window = 4
    full = attend(q, k, v, causal(10, 10).triu(1 - window))

    def decode(full_at):
        keys, values = torch.zeros(2, window, 8).double()
        outputs = []
        for i in range(10):
            if i >= full_at:
                keys, values = keys.roll(-1, 0), values.roll(-1, 0)
            slot = min(i, window - 1)
            keys[slot], values[slot] = k[i], v[i]
            written = torch.arange(window)[None] <= i  # (1, window)
            outputs.append(attend(q[i : i + 1], keys, values, written))
        return torch.cat(outputs)  # (T, d)

    found = {}
    for name, full_at in {"wrong": window - 1, "right": window}.items():
        off = (decode(full_at) - full).abs().amax(-1)  # (T,)
        tokens = (off > 1e-12).nonzero().flatten().tolist()
        found[name] = off.max().item(), tokens
        print(f"{name}, rolled from token {full_at} on: ", end="")
        print(f"error {say(found[name][0])}, tokens {tokens}")
    (wrong, tokens), (right, _) = found.values()
    return {"wrong": wrong, "right": right, "count": len(tokens)}


def example_chunk():
    q, k, v = draw(3, 9, 8)  # (T, d) each
    window, t = 4, torch.arange(9)
    full = attend(q, k, v, causal(9, 9).triu(1 - window))

    def prefill(cut_first):
        kept, outputs = t[:0], []  # positions whose keys are in the cache
        for chunk in t.split(3):
            kept = torch.cat([kept, chunk])
            if cut_first:
                kept = kept[-window:]
            distance = chunk[:, None] - kept  # (Tq, Tk)
            mask = (distance >= 0) & (distance < window)
            outputs.append(attend(q[chunk], k[kept], v[kept], mask))
            kept = kept[-window:]
        return torch.cat(outputs)  # (T, d)

    errors = []
    for cut_first in (True, False):
        off = (prefill(cut_first) - full).abs().amax(-1)  # (T,)
        errors.append(off.max().item())
        tokens = (off > 1e-12).nonzero().flatten().tolist()
        name = "wrong, cut, then read" if cut_first else "right, read, then cut"
        print(f"{name}: error {say(errors[-1])}, tokens {tokens}")
    return {"wrong": errors[0], "right": errors[1]}


def example_packed():
    q, k, v = draw(3, 5, 8)  # (T, d) each
    document = torch.tensor([0, 0, 0, 1, 1])
    t = torch.tensor([0, 1, 2, 0, 1])  # begins anew in each document
    q, k = rope(q, t), rope(k, t)
    alone = attend(q[3:], k[3:], v[3:], causal(2, 2))
    same = document[:, None] == document  # (T, T)
    versions = {
        "wrong, positions only": causal(5, 5),
        "right, and the mask": causal(5, 5) & same,
    }
    errors = []
    for name, mask in versions.items():
        second = attend(q, k, v, mask)[3:]
        errors.append(apart(second, alone))
        print(f"{name}: error {say(errors[-1])}")
    return {"wrong": errors[0], "right": errors[1]}


MISTAKES = (
    ("Weights of one layout, rotation of the other", "scores", example_layouts),
    ("Angles of one recipe, rotation of the other", "scores", example_recipes),
    ("Angles in bfloat16", "cosines", example_precision),
    ("Part of a head, frequencies of all of it", "scores", example_partial),
    ("Every new token at position 0", "outputs", example_restart),
    ("Cached keys turned again", "outputs", example_twice),
    ("Padding counted by learned positions", "outputs", example_learned),
    ("Prompt by token, new token by slot", "outputs", example_two_counts),
    ("A geometric sequence for 12 heads", "slopes", example_slopes),
    ("Slopes that start at 1", "slopes", example_exponent),
    ("Distance rewarded", "weights", example_sign),
    ("A bias as long as the query", "outputs", example_decoding),
    ("One row of biases, no causal mask", "outputs", example_one_row),
    ("No mask because there is a cache", "outputs", example_prefill),
    ("A window that is one too long", "outputs", example_window),
    ("Slots that nobody wrote", "outputs", example_unwritten),
    ("A ring rolled before it is full", "outputs", example_rolled),
    ("A chunk that pushes out its own keys", "outputs", example_chunk),
    ("Packed documents, positions reset", "outputs", example_packed),
)


def table_mistakes():
    rows = []
    for title, unit, example in MISTAKES:
        with contextlib.redirect_stdout(io.StringIO()):
            found = example()
        anchor = example.__name__.removeprefix("example_").replace("_", "-")
        right = (
            "below 2^-8"
            if example is example_precision
            else say(found["right"])
        )
        rows.append(
            {
                "the mistake": f"[{title}](#{anchor})",
                "error of": unit,
                "wrong": say(found["wrong"]),
                "right": right,
            }
        )
    return rows


def figure_precision() -> Figure:
    """Cosine of one rotary angle at positions 2000 to 2063.

    The exact curve is a smooth wave. Computed in bfloat16 it is a staircase of
    steps up to sixteen positions wide that does not follow the wave: all
    positions of a step look the same.
    """
    t = torch.arange(2000, 2064)
    figure, axes = plt.subplots(figsize=(5.2, 2.7))
    axes.plot(t, angles(t, 64)[:, 4].cos())  # the fifth of 32 pairs
    axes.plot(t, Rotary(64).bfloat16()(t)[:, 4].float(), ".")
    axes.text(2000, 1.2, "exact", color="C0")
    axes.text(2024, 1.2, "angles in bfloat16", color="C1")
    axes.set(xlabel="position", ylabel="cosine of the angle", ylim=(-1.2, 1.6))
    return figure
