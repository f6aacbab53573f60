"""What the page on softmax in finite precision runs."""

import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from snippets.softmax import masked_logsumexp, masked_softmax

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOORS = ("-1e4", "-1e9", "finfo.min", "-inf")


def name_of(dtype: torch.dtype) -> str:
    """Name of a dtype without the module: float16."""
    return str(dtype).removeprefix("torch.")


def floor_of(name: str, dtype: torch.dtype) -> float:
    """Number that a floor of that name stands for in a dtype."""
    return torch.finfo(dtype).min if name == "finfo.min" else float(name)


def weights_filled(
    scores: list[float], hidden: list[int], floor, dtype
) -> list[float]:
    """Weights of one row in which the floor replaces the hidden scores."""
    row = torch.tensor(scores, dtype=dtype)
    mask = torch.zeros(len(scores), dtype=torch.bool)
    mask[hidden] = True
    return row.masked_fill(mask, floor_of(floor, dtype)).softmax(-1).tolist()


def figure_floors() -> Figure:
    """Weight of a row's only key, by its score, for four floors and dtypes.

    A heat map from 0 to 1: one row for each floor in each dtype, one column
    for each power of ten of a negative score. With minus infinity the weight
    is 1 wherever the dtype has numbers. Below a floor of minus ten thousand or
    minus a billion it is 0. At the floor it is a quarter.
    float16 has no row for minus a billion: filling it in raises.
    """
    figure, axes = plt.subplots(figsize=(5.2, 5.0))
    picture, labels = [], []
    for dtype in DTYPES:
        least = torch.finfo(dtype).min
        for floor in FLOORS:
            row = []
            for power in range(40):
                # The last score of a dtype is its least number.
                score = max(-(10.0**power), least)
                beyond = power > 0 and -(10.0 ** (power - 1)) < least
                try:
                    scores = [score, 0.0, 0.0, 0.0]
                    weight, *_ = weights_filled(scores, [1, 2, 3], floor, dtype)
                except RuntimeError:  # the floor does not fit
                    weight = math.nan
                row.append(math.nan if beyond else weight)
            picture.append(row)
            labels.append(floor.replace("-inf", "−∞").replace("-", "−"))
            if all(math.isnan(weight) for weight in row):
                axes.text(0, len(picture) - 1, "raises", va="center")
    axes.text(7, 1.5, "float16 has no such numbers", va="center")
    image = axes.imshow(picture, vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(16), labels, fontsize=9)
    axes.set_xticks(
        range(0, 40, 9), [f"$-10^{{{x}}}$" for x in range(0, 40, 9)]
    )
    axes.set_xlabel("score of the only key that is not hidden")
    for i, dtype in enumerate(DTYPES):
        axes.text(40, 4 * i + 1.5, name_of(dtype), va="center", rotation=270)
        if i:
            axes.axhline(4 * i - 0.5, linewidth=1)
    colours = figure.colorbar(image, ax=axes, location="top", aspect=40)
    colours.set_label("its weight, which should be 1")
    return figure


def example_masked():
    scores = torch.tensor([[2.0, 1.0, 9.0], [1.0, 3.0, 2.0]])  # (Tq, Tk)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    weights = masked_softmax(scores, mask)  # (Tq, Tk)
    total = masked_logsumexp(scores, mask)  # (Tq,)
    print("weights:", [[f"{w:.3f}" for w in row] for row in weights.tolist()])
    print("log-sum-exp:", [f"{t:.3f}" for t in total.tolist()])
    try:
        masked_softmax(scores, mask, empty="error")
    except ValueError as error:
        print(error)
    return {"first": weights[0, 0].item(), "sum": weights[0].sum().item()}


def softmax(scores: list[float], shift: bool = True) -> list[float]:
    """Softmax of one row in plain Python."""
    highest = max(scores) if shift else 0.0
    powers = [math.exp(score - highest) for score in scores]
    return [power / sum(powers) for power in powers]


def example_shift():
    try:
        softmax([1000.0, 999.0], shift=False)
    except OverflowError as error:
        raised = type(error).__name__
        print(f"without the shift: {raised}: {error}")
    for scores in ([1000.0, 999.0], [101.0, 100.0], [1.0, 0.0]):
        first, second = softmax(scores)
        assert abs(first + second - 1) < 1e-15
        print(f"softmax{tuple(scores)} = {first:.6f}, {second:.6f}")
    same = softmax([101.0, 100.0]) == softmax([1.0, 0.0])
    print("(101, 100) and (1, 0), to the last bit:", same)
    return {
        "raised": raised,
        "large": (softmax([1000.0, 999.0])[0], 1e-12),
        "sum": sum(softmax([1000.0, 999.0])),
        "same": int(same),
    }


def example_gaps():
    for gap in range(-30, 31):  # two scores: the logistic of their gap
        logistic = 1 / (1 + math.exp(-gap))
        assert abs(softmax([float(gap), 0.0])[0] - logistic) < 1e-14
    weights = {gap: softmax([gap, 0.0]) for gap in (1.0, 3.0, 8.0, 50.0)}
    for gap, (winner, loser) in weights.items():
        print(f"gap {gap:2.0f}: winner {winner:.6f}, loser {loser:.2e}")
    print("a gap of 50: the winner's weight is", weights[50.0][0])
    return {
        "one": (weights[1.0][0], 1e-12),
        "three": (weights[3.0][0], 1e-12),
        "eight": (weights[8.0][0], 1e-12),
        "fifty": weights[50.0][0],
        "fifty_loser": weights[50.0][1],
    }


def example_remedies():
    raw = [8.0, 0.0]  # q·k for two keys, d = 64
    rows = {
        "as they are": raw,
        "less the largest": [score - max(raw) for score in raw],
        "over √64": [score / math.sqrt(64) for score in raw],
    }
    for name, scores in rows.items():
        first, second = softmax(scores, shift=False)
        slope = first * second
        print(f"{name:16}: {scores}: {first:.6f}, slope {slope:.1e}")
    assert math.isclose(softmax(raw, shift=False)[0], softmax(raw)[0])
    return {
        "raw": (softmax(raw, shift=False)[0], 1e-12),
        "shifted": (softmax(raw)[0], 1e-12),
        "scaled": (softmax([1.0, 0.0])[0], 1e-12),
    }


def table_reach():
    rows, values = [], {}
    for dtype in DTYPES:
        info = torch.finfo(dtype)
        top = math.log(info.max)
        powers = torch.tensor([top - 0.5, top + 0.5], dtype=dtype).exp()
        assert powers.isfinite().tolist() == [True, False]
        gap = next(
            n
            for n in range(1, 1000)
            if torch.tensor([0.0, -n], dtype=dtype).softmax(-1)[1] == 0
        )
        rows.append(
            {
                "dtype": name_of(dtype),
                "largest number": f"{info.max:.3g}",
                "exp overflows above": f"{top:.2f}",
                "a weight is 0 from a gap of": gap,
                "steps near 10,000": step_at(1e4, dtype),
            }
        )
        values[f"overflow_{name_of(dtype)}"] = top
        values[f"gap_{name_of(dtype)}"] = gap
    return rows, values


def step_at(number: float, dtype: torch.dtype) -> str:
    """Distance from a number, as a dtype stores it, to its neighbour near 0."""
    stored = torch.tensor(number, dtype=dtype)
    if stored.isinf():
        return "none"
    below = stored.nextafter(torch.zeros_like(stored))
    return f"{(stored.double() - below.double()).abs().item():.2g}"


def table_agreement():
    generator = torch.Generator("cpu").manual_seed(0)
    scores = torch.randn(64, 50, dtype=torch.float64, generator=generator) * 8
    mask = torch.rand(64, 50, generator=generator) < 0.7  # (Tq, Tk)
    mask[7] = False  # a row without keys
    rows = []
    for dtype, bound in (
        (torch.float64, 1e-14),
        (torch.float32, 1e-5),
        (torch.float16, 1e-3),
        (torch.bfloat16, 1e-2),
    ):
        given = scores.to(dtype)
        weights = masked_softmax(given, mask).tolist()
        totals = masked_logsumexp(given, mask).tolist()
        for i, row in enumerate(given.tolist()):
            keys = mask[i].nonzero()[:, 0].tolist()
            expected = softmax([row[j] for j in keys]) if keys else []
            by_key = dict(zip(keys, expected, strict=True))
            for j in range(50):
                assert abs(weights[i][j] - by_key.get(j, 0.0)) < bound
            total = -math.inf
            if keys:
                total = row[keys[0]] - math.log(expected[0])
            assert math.isclose(totals[i], total, rel_tol=bound), (dtype, i)
        rows.append(
            {
                "dtype": name_of(dtype),
                "weights": f"within {bound:.0e}",
                "log-sum-exp": f"within {bound:.0e} of itself",
            }
        )
    return rows


def example_wrong_shift():
    def whole_tensor(scores):
        powers = (scores - scores.max()).exp()
        return powers / powers.sum(-1, keepdim=True)

    def before_the_mask(scores, mask):
        powers = (scores - scores.amax(-1, keepdim=True)).exp() * mask
        return powers / powers.sum(-1, keepdim=True)

    scores = torch.tensor([[1.0, 0.0], [-1000.0, -1001.0]]).double()  # (Tq, Tk)
    for name, function in (
        ("one shift for the tensor", whole_tensor),
        ("one shift a row", masked_softmax),
    ):
        print(name, [f"{x:.4f}" for x in function(scores)[1].tolist()])
    hidden = torch.tensor([[1.0, 0.0, 1000.0]]).double()  # the last is padding
    mask = torch.tensor([[True, True, False]])
    for name, function in (
        ("largest score, hidden ones too", before_the_mask),
        ("largest score that is not hidden", masked_softmax),
    ):
        weights = function(hidden, mask)[0]
        print(name, [f"{x:.4f}" for x in weights.tolist()])
    moved = scores + torch.tensor([[0.0], [5000.0]])  # one test: move one row
    assert torch.allclose(masked_softmax(moved), masked_softmax(scores))
    assert not torch.allclose(whole_tensor(moved), whole_tensor(scores))
    raised = hidden + 5000 * ~mask  # the other: raise a hidden score
    assert masked_softmax(raised, mask).equal(masked_softmax(hidden, mask))
    assert before_the_mask(raised, mask).isnan().all()


def example_logs():
    scores = torch.tensor([0.0, -200.0], requires_grad=True)  # float32
    for name, logs in (
        ("log of softmax", scores.softmax(-1).log()),
        ("less log-sum-exp", scores - masked_logsumexp(scores)),
        ("F.log_softmax", F.log_softmax(scores, dim=-1)),
    ):
        (gradient,) = torch.autograd.grad(logs[1], scores)
        print(f"{name:16}: {logs.tolist()}, gradient {gradient.tolist()}")
    large = torch.tensor([1000.0, 1000.0], dtype=torch.float64)
    print("log of the sum of exp:", large.exp().sum().log().item())
    print(f"log-sum-exp: {masked_logsumexp(large):.4f}")
    return {"large": masked_logsumexp(large).item()}


def example_blocks():
    torch.manual_seed(0)
    scores = torch.randn(3, 6).double()  # (Tq, Tk)
    v = torch.randn(6, 2).double()  # (Tk, dv)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[0, 3:] = mask[1] = False  # no key in the second block; no key at all
    parts, totals = [], []
    for block in (slice(0, 3), slice(3, 6)):
        part = scores[:, block], mask[:, block]
        parts.append(masked_softmax(*part) @ v[block])  # (Tq, dv)
        totals.append(masked_logsumexp(*part))  # (Tq,)
    # The shares of the blocks are a softmax of their log-sum-exp.
    shares = masked_softmax(torch.stack(totals, dim=-1))  # (Tq, 2)
    joined = sum(shares[:, [i]] * parts[i] for i in range(2))  # (Tq, dv)
    whole = masked_softmax(scores, mask) @ v
    print("log-sum-exp of the second block:", [f"{t:.3f}" for t in totals[1]])
    print("shares of the blocks:", [[f"{s:.3f}" for s in r] for r in shares])
    print("joined as in one piece:", torch.allclose(joined, whole, 0, 1e-15))


def example_empty_sum():
    scores = torch.tensor([[1.0, 2.0], [1.0, 2.0]], requires_grad=True)
    mask = torch.tensor([[True, True], [False, False]])  # (Tq, Tk)
    filled = scores.masked_fill(~mask, -math.inf)
    added = scores + mask.float().log()  # 0 and -inf
    for name, totals in (
        ("torch.logsumexp, filled", filled.logsumexp(-1)),
        ("torch.logsumexp, added", added.logsumexp(-1)),
        ("masked_logsumexp", masked_logsumexp(added)),
    ):
        (gradient,) = torch.autograd.grad(totals[0], scores)  # the first alone
        values = [f"{total:.4f}" for total in totals.tolist()]
        print(f"{name:23}: {values}, gradient 2: {gradient[1].tolist()}")


def example_half():
    d = 64
    q = torch.full((1, d), 40.0)  # (Tq, d)
    k = torch.full((3, d), 40.0)  # (Tk, d): near in score, and far
    k[1, 0], k[2] = 39.75, 1.0
    exact = (q.double() @ k.double().T / 8).softmax(-1)[0]  # (Tk,)
    print("scores q·k:", (q @ k.T)[0].tolist())

    def show(name, logits):
        weights = logits.softmax(-1)[0].tolist()
        print(f"{name:25}: {', '.join(f'{w:.3f}' for w in weights)}")

    for dtype in (torch.float16, torch.bfloat16):
        q_half, k_half = q.to(dtype), k.to(dtype)
        name = str(dtype).removeprefix("torch.")
        show(f"{name}, divided after", (q_half @ k_half.T) / 8)
        show(f"{name}, divided before", (q_half / 8) @ k_half.T)
    show("float32", (q / 8) @ k.T)
    inputs = (x[None, None].half() for x in (q, k, torch.eye(3)))
    built_in = F.scaled_dot_product_attention(*inputs)[0, 0, 0]
    off = (built_in - exact).abs().max()
    assert off < 2**-6
    print("built-in, float16: within 2^-6 of float64")
    return {
        "score": int((q @ k.T)[0, 0]),
        "largest": int(torch.finfo(torch.float16).max),
        "logit": int((q @ k.T)[0, 0] / 8),
        "exact": exact[0].item(),
        "rounded": int(torch.tensor([8190.0, 8191.0]).half().unique().item()),
    }


def cell(weights: list[float]) -> str:
    """Weights in few digits, in one word where they are all alike."""
    if any(math.isnan(weight) for weight in weights):
        return "NaN"
    if len(weights) > 1 and len(set(weights)) == 1:
        return f"{weights[0]:g} each"
    return ", ".join(
        f"{weight:.2f}".rstrip("0").rstrip(".") for weight in weights
    )


def try_cell(run: Callable[..., list[float] | str], *arguments: object) -> str:
    """What a run gives, as text: weights, NaN, or what it raises."""
    try:
        found = run(*arguments)
    except RuntimeError as error:
        return f"raises `{type(error).__name__}`"
    return found if isinstance(found, str) else cell(found)


def weights_added(
    scores: list[float], times: list[int], floor, dtype
) -> list[float]:
    """Weights of one row to which masks of 0 and the floor are added.

    ``times`` says how many of the masks hide each key.
    """
    one = torch.full((len(scores),), floor_of(floor, dtype), dtype=dtype)
    total = torch.zeros_like(one)
    for turn in range(max(times)):
        hidden = torch.tensor([n > turn for n in times])
        total = total + torch.where(hidden, one, 0.0)  # the masks, summed
    row = torch.tensor(scores, dtype=dtype)
    return (row + total).softmax(-1).tolist()


def table_floors():
    rows, values = [], {}
    for dtype in DTYPES:
        for floor in FLOORS:
            least = torch.finfo(dtype).min
            given = floor_of(floor, dtype)
            row = {"dtype": name_of(dtype), "filled with": f"`{floor}`"}
            row["stored as"] = try_cell(stored, given, dtype)
            for name, score in (
                ("only key at 0", 0.0),
                ("at −20,000", -2e4),
                ("at `finfo.min`", least),
            ):
                scores = [score, 0.0, 0.0, 0.0]
                row[name] = try_cell(
                    lambda *given: weights_filled(*given)[:1],
                    scores,
                    [1, 2, 3],
                    floor,
                    dtype,
                )
            row["no key"] = try_cell(
                weights_filled, [2.0, 1.0, 0.0, 3.0], [0, 1, 2, 3], floor, dtype
            )
            rows.append(row)
            values[f"{name_of(dtype)} {floor}"] = row["at `finfo.min`"]
    return rows, values


def stored(number: float, dtype: torch.dtype) -> str:
    """Number that a dtype keeps for the one that was filled in."""
    everything = torch.tensor(True)
    kept = torch.zeros((), dtype=dtype).masked_fill(everything, number).item()
    return f"{kept:.5g}".replace("-", "−").replace("inf", "∞")


def table_added():
    rows, values = [], {"twice": 0}
    near, low = [2.0, 1.0, 0.0, 3.0], [-18.0, -19.0, -20.0, -17.0]
    for dtype in DTYPES:
        least = torch.tensor(torch.finfo(dtype).min, dtype=dtype)
        values["twice"] += int((least + least).item() == -math.inf)
        values[name_of(dtype)] = score_past(least)
        unmasked = cell(torch.tensor(near, dtype=dtype).softmax(-1).tolist())
        for floor in FLOORS:
            row = {"dtype": name_of(dtype), "added": f"`{floor}`"}
            row["its steps"] = try_cell(step_at, floor_of(floor, dtype), dtype)
            for name, scores, times in (
                ("no key, scores 2, 1, 0, 3", near, [1, 1, 1, 1]),
                ("no key, scores 20 lower", low, [1, 1, 1, 1]),
                ("no key, the last two hidden twice", near, [1, 1, 2, 2]),
            ):
                found = try_cell(weights_added, scores, times, floor, dtype)
                row[name] = "as if unmasked" if found == unmasked else found
            rows.append(row)
    return rows, values


def score_past(least: Tensor) -> float:
    """Highest score that takes the least number of its dtype to -inf."""
    score = (
        least - least.nextafter(torch.zeros_like(least))
    ) / 2  # half a step
    above = score.nextafter(torch.zeros_like(score))
    assert (least + score).isinf()
    assert (least + above).isfinite()
    return score.item()


def table_writings():
    scores = torch.zeros(2).half()
    hidden = torch.tensor([False, True])
    calls: dict[str, Callable[[], Tensor]] = {
        "scores.masked_fill(hidden, -1e9)": lambda: scores.masked_fill(
            hidden, -1e9
        ),
        "torch.full((2,), -1e9, dtype=torch.half)": lambda: torch.full(
            (2,), -1e9, dtype=torch.half
        ),
        "torch.where(hidden, -1e9, scores)": lambda: torch.where(
            hidden, -1e9, scores
        ),
        "scores + hidden.half() * -1e9": lambda: scores + hidden.half() * -1e9,
        "scores + (hidden.float() * -1e9).half()": lambda: (
            scores + (hidden.float() * -1e9).half()
        ),
    }
    rows = []
    for name, call in calls.items():
        try:
            found = str(call().tolist()).replace("-0.0", "0.0")
        except RuntimeError as error:
            found = f"{type(error).__name__}: {error}"
        rows.append({"in float16": f"`{name}`", "gives": f"`{found}`"})
    return rows


def example_tie():
    least = torch.finfo(torch.float32).min
    scores = torch.full((4,), least)  # real scores, as low as float32 goes
    hidden = torch.tensor([False, True, True, True])
    kept = {}
    for name, floor in (("finfo.min", least), ("-inf", -math.inf)):
        weights = scores.masked_fill(hidden, floor).softmax(-1)
        kept[name] = weights[0].item()
        print(f"{name:9}: {weights.tolist()}")
    return {"finite": kept["finfo.min"], "infinite": kept["-inf"]}


def example_summed():
    least = torch.finfo(torch.float32).min
    pad = torch.tensor([True, True, False, False])  # two of left padding, (Tk,)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)  # (Tq, Tk)
    as_floats = [
        torch.zeros(4, 4).masked_fill(mask, least) for mask in (pad, future)
    ]
    scores = torch.zeros(4, 4)  # (Tq, Tk): all alike
    summed = (scores + (as_floats[0] + as_floats[1])).softmax(-1)
    joined = masked_softmax(scores, ~pad & ~future)
    print("masks of finfo.min, summed:")
    print(summed)
    print("boolean masks, joined with &:")
    print(joined)
    return {"future": summed[0, 2:].sum().item()}


def example_bias():
    distance = torch.tensor([3.0, 2.0, 1.0, 0.0])  # (Tk,), in tokens
    scores = torch.zeros(4)
    every = torch.ones(4, dtype=torch.bool)  # all hidden: no key
    bias = -10 * distance  # a penalty by distance
    for dtype in (torch.float16, torch.float32):
        for floor in (-1e4, torch.finfo(dtype).min):
            low = torch.zeros(4).masked_fill(every, floor)
            logits = scores.to(dtype) + low.to(dtype) + bias.to(dtype)
            weights = [f"{w:.3f}" for w in logits.softmax(-1).tolist()]
            print(f"{str(dtype)[6:]}, {floor:.5g}: {', '.join(weights)}")


def example_question_large():
    scores = torch.tensor([1e9, 1e9 - 1])
    print("float32:", scores.softmax(-1).tolist())
    print(
        "float64:", [f"{w:.6f}" for w in scores.double().softmax(-1).tolist()]
    )
    exact = torch.tensor([1e9, 1e9 - 1], dtype=torch.float64)
    print("from float64:", [f"{w:.6f}" for w in exact.softmax(-1).tolist()])


def example_question_average():
    torch.manual_seed(0)
    x = torch.randn(3, 4).double()  # (T, d)
    mask = torch.tensor([True, True, False])  # the last is padding
    for name, floor in (("-1e9", -1e9), ("-inf", -math.inf)):
        logits = (x @ x.T / 2).masked_fill(~mask, floor)
        print(f"{name}: weight of the padding", logits.softmax(-1)[0, 2].item())
