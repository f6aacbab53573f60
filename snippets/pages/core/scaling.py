"""What the page on the scale of dot-product attention runs."""

import functools
import math
from collections.abc import Callable

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from snippets.attention import attention
from snippets.diagnostics import effective_keys, entropy, peak

N_KEYS = 50
WIDTHS = (8, 64, 512)
QUANTILES = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)


def random_scores(d: int, n_rows: int, n_keys: int, seed: int = 0) -> Tensor:
    """Scores of standard normal q and k, (n_rows, n_keys); a row has one q.

    Given q, its scores with independent keys are independent normals of
    variance |q|², so the keys themselves need not be drawn.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    q = torch.randn(n_rows, d, dtype=torch.float64, generator=generator)
    z = torch.randn(n_rows, n_keys, dtype=torch.float64, generator=generator)
    return q.norm(dim=-1, keepdim=True) * z  # (n_rows, 1) * (n_rows, n_keys)


def example_saturation():
    torch.manual_seed(0)
    weights = {}
    for d in (8, 64, 512):
        rows = []
        for _ in range(200):
            q = torch.randn(1, d)
            k = torch.randn(50, d)
            rows.append(torch.softmax(q @ k.T, dim=-1))  # (1, 50), not scaled
        weights[d] = torch.cat(rows)  # (200, 50)

    print("              largest weight   entropy in nats")
    for d, w in weights.items():
        for name, average in (("median", torch.median), ("mean", torch.mean)):
            p, h = average(peak(w)).item(), average(entropy(w)).item()
            print(f"d = {d:3}, {name:6} {p:11.3f} {h:17.2f}")
    print(f"50 equal keys   {1 / 50:10.3f} {math.log(50):17.2f}")
    typical = {d: peak(w).median().item() for d, w in weights.items()}
    return {
        "typical": typical[512],
        "slope": (typical[512] * (1 - typical[512]), 1e-4),
        "mean_peak": peak(weights[512]).mean().item(),
        **{f"peak_{d}": (value, 2e-6) for d, value in typical.items()},
        **{
            f"entropy_{d}": entropy(w).median().item()
            for d, w in weights.items()
        },
    }


def example_one_row():
    rows = {}
    for d in (8, 64, 512):
        torch.manual_seed(1)
        q, k = torch.randn(1, d).double(), torch.randn(50, d).double()
        rows[d, "unscaled"] = torch.softmax(q @ k.T, dim=-1)  # (1, 50)
        rows[d, "scaled"] = torch.softmax(q @ k.T / math.sqrt(d), dim=-1)
    for (d, name), weights in rows.items():
        print(
            f"d = {d:3}, {name:8}: largest {peak(weights).item():.4f}, "
            f"entropy {entropy(weights).item():.3f}, "
            f"like {effective_keys(weights).item():.1f} equal keys"
        )
    values = {}
    for (d, name), weights in rows.items():
        values[f"peak_{d}_{name}"] = peak(weights).item()
        values[f"entropy_{d}_{name}"] = entropy(weights).item()
        values[f"share_{d}_{name}"] = entropy(weights).item() / math.log(50)
    return values


def nested_scores(seed: int) -> Tensor:
    """Scores of one query with 16 keys, (11, 16), at the widths 1, 2, ... 1024.

    The query and the keys are drawn once, 1024 wide, and cut to their first d
    coordinates.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    q = torch.randn(1024, dtype=torch.float64, generator=generator)
    k = torch.randn(16, 1024, dtype=torch.float64, generator=generator)
    return torch.stack([k[:, : 2**m] @ q[: 2**m] for m in range(11)])


def figure_collapse() -> Figure:
    """Weights of one query for 16 keys, as bars, at the widths 8, 64 and 512.

    Above, unscaled: some bars of different heights at 8, one bar that leads by
    far at 64, and a single bar of height one at 512. Below, scaled by one over
    the square root of d: low bars, all of them to be seen, at every width.
    """
    figure, grid = plt.subplots(2, 3, sharex=True, sharey=True)
    scores = nested_scores(0)
    for row, (axes_of_row, name) in enumerate(
        zip(grid, ("unscaled", "scaled"), strict=True)
    ):
        axes_of_row[0].set_ylabel(f"weight, {name}")
        for axes, d in zip(axes_of_row, WIDTHS, strict=True):
            scale = 1 / math.sqrt(d) if row else 1.0
            weights = (scores[int(math.log2(d))] * scale).softmax(-1)
            axes.bar(range(16), weights.tolist(), color=f"C{row}")
            axes.set(ylim=(0, 1.02), xticks=[0, 5, 10, 15])
            if row:
                axes.set_xlabel("key")
            else:
                axes.set_title(f"d = {d}")
    return figure


def table_draws():
    rows = []
    for seed in range(3):
        for m, scores in enumerate(nested_scores(seed)):
            printed = ", ".join(f"{score:.3f}" for score in scores.tolist())
            row = {"draw": seed, "d": 2**m, "scores": printed.replace("-", "−")}
            rows.append(row)
    return rows


def standard_error(sample: Tensor) -> float:
    """Standard error of the mean of a sample (n,)."""
    return (sample.std() / math.sqrt(sample.numel())).item()


def table_population():
    rows, values = [], {}
    for d in WIDTHS:
        scores = random_scores(d, 20_000, N_KEYS)
        for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(d))):
            weights = (scores / c).softmax(-1)
            peaks, entropies = peak(weights), entropy(weights)
            low, *_, high = entropies.quantile(QUANTILES).tolist()
            rows.append(
                {
                    "d": d,
                    "logits": name,
                    "largest weight: median": f"{peaks.median().item():.3f}",
                    "mean": f"{peaks.mean().item():.3f}",
                    "entropy: median": f"{entropies.median().item():.2f}",
                    "mean ": f"{entropies.mean().item():.3f}",
                    "error of the mean": f"{standard_error(entropies):.3f}",
                    "5 % of rows below": f"{low:.2f}",
                    "5 % above": f"{high:.2f}",
                }
            )
            values |= {
                f"peak_median_{d}_{name}": peaks.median().item(),
                f"peak_mean_{d}_{name}": peaks.mean().item(),
                f"entropy_high_{d}_{name}": high,
            }
    generator = torch.Generator("cpu").manual_seed(0)
    q = torch.randn(20_000, 8, dtype=torch.float64, generator=generator)
    values |= {
        "row_spread_8": (q.norm(dim=-1).std() / math.sqrt(8)).item(),
        "uniform": (math.log(N_KEYS), 1e-9),
        "limit": math.log(N_KEYS) - 0.5,
        "rows": len(scores),
    }
    return rows, values


def plot_bands(
    axes: Axes,
    statistic: Callable[[Tensor], Tensor],
    labels: tuple[tuple[str, float, float], ...],
) -> None:
    """Median and middle 90 % of a statistic of random rows, by width.

    ``statistic`` takes logits (n_rows, n_keys) and gives (n_rows,); ``labels``
    are the names, unscaled or scaled, each with its place.
    """
    widths = [2**power for power in range(11)]
    for name, x, y in labels:
        bands = []
        for d in widths:
            logits = random_scores(d, 4000, N_KEYS)
            if name == "scaled":
                logits /= math.sqrt(d)
            bands.append(statistic(logits).quantile(QUANTILES[[0, 2, 4]]))
        low, middle, high = torch.stack(bands, dim=-1).tolist()
        (line,) = axes.plot(widths, middle)
        colour = line.get_color()
        axes.fill_between(widths, low, high, color=colour, alpha=0.2, lw=0)
        axes.text(x, y, name, color=colour)
    axes.set_xscale("log", base=2)
    axes.set_xticks([1, 8, 64, 512], ["1", "8", "64", "512"])
    axes.set_xlabel("width d of queries and keys")


def figure_saturation() -> Figure:
    """Largest of 50 weights against the width d, on a logarithmic axis.

    Unscaled, the median climbs from less than a tenth to nearly one, and the
    band around it is wide. Scaled by one over the square root of d, it stays
    near a tenth from d = 8 on, with a narrow band.
    """
    figure, axes = plt.subplots()
    labels = ("unscaled", 7, 0.66), ("scaled", 180, 0.25)
    plot_bands(axes, lambda logits: peak(logits.softmax(-1)), labels)
    axes.set(ylabel="largest of 50 weights", ylim=(0, 1.02))
    return figure


def figure_entropy() -> Figure:
    """Entropy of 50 weights against the width d, on a logarithmic axis.

    A level line marks the entropy of even sharing, near four nats. Unscaled,
    the median falls from near that line to zero, in a wide band. Scaled, it
    stays a little below the line at every width, with a band that narrows.
    """
    figure, axes = plt.subplots()
    labels = ("unscaled", 40, 1.6), ("scaled", 40, 2.75)
    plot_bands(axes, lambda logits: entropy(logits.softmax(-1)), labels)
    axes.axhline(math.log(N_KEYS), color="C2", linewidth=1)
    axes.text(1, 4.0, "50 equal keys: ln 50", color="C2")
    axes.set(ylabel="entropy in nats", ylim=(0, 4.4))
    return figure


@functools.cache
def draw_variances(
    n_pairs: int = 400_000,
) -> tuple[tuple[int, float, float], ...]:
    """Width, variance and deviation of n_pairs products q·k, from one stream.

    The stream draws every q of a width before every k of that width. One
    generator runs ahead to the keys while a second, started where the first
    was, draws the queries again beside them, so that neither is ever whole in
    memory.
    """
    ahead, behind = np.random.default_rng(0), np.random.default_rng(0)
    found = []
    for d in (16, 64, 128, 512, 128):
        n_rows = 2**17 // d
        chunks = [min(n_rows, n_pairs - at) for at in range(0, n_pairs, n_rows)]
        behind.bit_generator.state = ahead.bit_generator.state
        for n in chunks:
            ahead.standard_normal((n, d))
        products = []
        for n in chunks:
            q, k = behind.standard_normal((n, d)), ahead.standard_normal((n, d))
            products.append((q * k).sum(axis=-1))  # (n,)
        scores = np.concatenate(products)  # (n_pairs,)
        found.append((d, float(scores.var()), float(scores.std())))
    return tuple(found)


def variance_error(d: int, n_pairs: int) -> float:
    """Standard error of the variance of n_pairs products of normal q and k.

    The fourth central moment of q·k is 3d² + 6d, so the variance of a squared
    product is 2d² + 6d.
    """
    return d * math.sqrt((2 + 6 / d) / n_pairs)


def table_variance():
    rows = []
    for d, variance, deviation in draw_variances()[:4]:
        error = variance_error(d, 400_000)
        rows.append(
            {
                "d": d,
                "variance: theory d": d,
                "measured": f"{variance:.2f}",
                "standard error": f"{error:.2f}",
                "errors off theory": f"{(variance - d) / error:.2f}".replace(
                    "-", "−"
                ),
                "standard deviation: theory √d": f"{math.sqrt(d):.2f}",
                "measured ": f"{deviation:.2f}",
            }
        )
    values: dict[str, object] = {"pairs": 400_000}
    for d, variance, deviation in draw_variances()[:4]:
        error = variance_error(d, 400_000)
        values[f"variance_{d}"] = variance, 1e-9
        values[f"deviation_{d}"] = deviation, 1e-9
        values[f"off_{d}"] = (variance - d) / error
    return rows, values


def table_divisor():
    d, variance, _ = draw_variances()[4]
    rows = []
    for name, c in (
        ("1", 1.0),
        ("4", 4.0),
        ("√128", math.sqrt(d)),
        ("−√128", -math.sqrt(d)),
        ("20", 20.0),
    ):
        rows.append(
            {
                "divisor c": name,
                "c": f"{c:.2f}".replace("-", "−"),
                "variance: theory d/c²": f"{d / c**2:.2f}",
                "measured": f"{variance / c**2:.2f}",
                "standard error": f"{variance_error(d, 400_000) / c**2:.4f}",
            }
        )
    scores = random_scores(d, 1000, N_KEYS)
    for c in (4, math.sqrt(d), 20):  # the rule itself, on scores of their own
        off = (scores / c).var() * c**2 / scores.var() - 1
        assert off.abs() < 1e-12
    return rows, {
        "deviation_20": math.sqrt(variance) / 20,
        "measured_1": (variance, 1e-9),
        "measured_4": (variance / 4**2, 1e-9),
        "measured_root": (variance / d, 1e-9),
        "measured_20": (variance / 20**2, 1e-9),
        "theory_1": d,
        "theory_4": d / 4**2,
        "theory_root": 1,
        "theory_20": d / 20**2,
        "rule": "equal to within 1e-12",
        "minus": (variance / (-math.sqrt(d)) ** 2, 1e-9),
    }


def figure_variance() -> Figure:
    """Variance of the score against the width, both axes logarithmic.

    Four measured points lie on the line of slope one, where the variance equals
    the width. The same points divided by the width lie on a level line at one.
    """
    figure, axes = plt.subplots()
    d, variance, _ = np.array(draw_variances()[:4]).T
    for measured, theory, label, x, y in (
        (variance, d, "unscaled: variance d", 18, 130),
        (variance / d, np.ones(4), "scaled: variance 1", 60, 1.6),
    ):
        (line,) = axes.plot(d, theory, linewidth=1)
        axes.plot(d, measured, "o", color=line.get_color())
        axes.text(x, y, label, color=line.get_color())
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(d, [f"{int(width)}" for width in d])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
    axes.minorticks_off()
    axes.set(xlabel="width d of queries and keys", ylabel="variance")
    axes.set_ylim(0.5, 1500)
    return figure


def table_assumptions():
    d, n = 64, 50_000
    generator = torch.Generator("cpu").manual_seed(0)

    def normal() -> Tensor:
        return torch.randn(n, d, dtype=torch.float64, generator=generator)

    def uniform() -> Tensor:
        return torch.rand(n, d, dtype=torch.float64, generator=generator)

    def product(q: Tensor, k: Tensor) -> Tensor:
        return (q * k).sum(-1)

    q, other, root3 = normal(), normal(), math.sqrt(3)
    correlated = q / 2 + other * root3 / 2
    spread, spread2 = (root3 * (2 * uniform() - 1) for _ in "qk")
    signs, signs2 = normal().sign(), normal().sign()
    mostly = torch.where(uniform() < 0.75, signs, -signs)
    shifted, shifted2 = normal() + 0.5, normal() + 0.5
    alike, alike2 = (normal()[:, :1].sign().expand(n, d) for _ in "qk")
    rows, variances = [], {}
    for name, scores, mean, variance in (
        ("standard normal", product(q, other), 0, d),
        ("uniform on ±√3", product(spread, spread2), 0, d),
        ("+1 or −1", product(signs, signs2), 0, d),
        ("normal of mean ½", product(shifted, shifted2), d / 4, d * 3 / 2),
        ("normal, correlation ½", product(q, correlated), d / 2, d * 5 / 4),
        ("+1 or −1, correlation ½", product(signs, mostly), d / 2, d * 3 / 4),
        ("normal, q = k", product(q, q), d, 2 * d),
        ("+1 or −1, one sign for all", product(alike, alike2), 0, d**2),
    ):
        squares = (scores - scores.mean()) ** 2
        rows.append(
            {
                "coordinates of q and k": name,
                "mean: theory": f"{mean:g}",
                "measured": f"{scores.mean().item():.2f}".replace("-", "−"),
                "error": f"{standard_error(scores):.2f}",
                "variance: theory": f"{variance:g}",
                "measured ": f"{scores.var().item():.1f}",
                "error ": f"{standard_error(squares):.1f}",
            }
        )
        variances[name] = scores.var().item()
    return rows, {
        "uniform": variances["uniform on ±√3"],
        "signs": variances["+1 or −1"],
        "correlated": variances["normal, correlation ½"],
        "alike": variances["+1 or −1, one sign for all"],
    }


def example_initialisation():
    d_model, n_heads, n_tokens = 512, 8, 1024
    torch.manual_seed(0)
    x = torch.randn(n_tokens, d_model)  # unit variance, as after a LayerNorm
    linear = nn.Linear(d_model, 3 * d_model)
    mha = nn.MultiheadAttention(d_model, n_heads)
    fan_in = torch.randn(3 * d_model, d_model) / math.sqrt(d_model)
    started = {}
    for name, weight, bias in (
        ("nn.Linear", linear.weight, linear.bias),
        ("nn.MultiheadAttention", mha.in_proj_weight, mha.in_proj_bias),
        ("variance 1/d_model", fan_in, None),
    ):
        projected = F.linear(x, weight, bias).double()  # (T, 3 * d_model)
        q, k, _ = (
            t.view(n_tokens, n_heads, -1).transpose(0, 1)  # (H, T, d_k)
            for t in projected.chunk(3, dim=-1)
        )
        logits = q @ k.mT / math.sqrt(q.shape[-1])  # (H, T, T)
        share = entropy(logits.softmax(-1)).mean() / math.log(n_tokens)
        started[name] = q.var().item(), logits.var().item(), share.item()

    print("                        Var(q)  Var(logits)  entropy of uniform")
    for name, (of_q, of_logits, share) in started.items():
        print(f"{name:21} {of_q:8.2f} {of_logits:12.2f} {share:14.1%}")
    return {
        "linear_query": started["nn.Linear"][0],
        "linear_logits": started["nn.Linear"][1],
        "linear_share": started["nn.Linear"][2],
        "mha_query": started["nn.MultiheadAttention"][0],
        "mha_logits": started["nn.MultiheadAttention"][1],
        "mha_share": started["nn.MultiheadAttention"][2],
        "n_tokens": n_tokens,
    }


def example_gap():
    gaps = torch.linspace(-30, 30, 61, dtype=torch.float64)
    pairs = torch.stack([gaps, torch.zeros_like(gaps)], dim=-1)  # (61, 2)
    logistic = 1 / (1 + torch.exp(-gaps))
    assert torch.allclose(pairs.softmax(-1)[:, 0], logistic, rtol=1e-13, atol=0)

    shares = {}
    for gap in (1.0, 3.0, 8.0, 50.0):
        pair = torch.tensor([gap, 0.0], dtype=torch.float64)
        first, second = shares[gap] = pair.softmax(-1).tolist()
        slope = first * second
        print(f"gap {gap:2.0f}: {first:.6f}, {second:.2e}, slope {slope:.1e}")
    assert first == 1.0  # in float64, at the gap of 50
    return {
        "logistic": "equal to within 1e-13",
        "three": shares[3.0][0],
        "eight": (shares[8.0][0], 1e-9),
        "loser": shares[50.0][1],
        "winner": int(shares[50.0][0]),
    }


def example_jacobian():
    x = torch.tensor([2.0, 1.0, 0.0, -1.0], dtype=torch.float64)
    p = x.softmax(-1)
    closed_form = p.diag() - torch.outer(p, p)  # (4, 4)
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), x)
    assert torch.allclose(jacobian, closed_form, rtol=0, atol=1e-15)
    print(closed_form)
    return {"equal": "equal to within 1e-15"}


def table_apart():
    rows, values = [], {}
    first, second = random_scores(512, 20_000, 2).unbind(dim=-1)  # one query
    for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(512))):
        gaps = (first - second).abs() / c
        deviation = gaps.square().mean().sqrt().item()
        row = {
            "d = 512": name,
            "standard deviation of the gap": f"{deviation:.2f}",
            "median gap": f"{gaps.median().item():.2f}",
        }
        for x in (10, 20, 50):
            over = (gaps > x).double().mean().item()
            row[f"over {x}"] = f"{over:.1%}"
            values[f"{name}_over_{x}"] = over
        rows.append(row)
    return rows, values


def example_gradient():
    norms = {}
    for d in (8, 64, 512):
        torch.manual_seed(1)
        q, k = torch.randn(1, d), torch.randn(50, d)
        for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(d))):
            logits = ((q @ k.T).double() / c).requires_grad_()  # (1, 50)
            logits.softmax(-1).max().backward()  # the largest weight
            norms[d, name] = logits.grad.norm().item()
    for (d, name), norm in norms.items():
        print(f"d = {d:3}, {name:8}: {norm:.1e}")
    ratio = norms[8, "unscaled"] / norms[512, "unscaled"]
    print(f"unscaled, d = 8 over d = 512: {ratio:.0f}")
    return {
        "ratio": ratio,
        "narrow": norms[8, "unscaled"],
        "wide": norms[512, "unscaled"],
        **{f"scaled_{d}": norms[d, "scaled"] for d in (8, 64, 512)},
    }


def gradient_norm(logits: Tensor) -> Tensor:
    """Norm of the gradient of each row's largest weight: (n, n_keys) -> (n,).

    With p the weights and m the largest, the gradient by the logits is
    p_m (e_m - p), row m of the Jacobian. Where p_m is near 1, 1 - p_m is
    taken as the sum of the other weights, so that no digits cancel.
    """
    p = logits.softmax(-1)
    others = p.scatter(-1, p.argmax(-1, keepdim=True), 0.0)
    left = torch.cat([others.sum(-1, keepdim=True), others], -1)
    return peak(p) * left.norm(dim=-1)


def table_gradients():
    rows, values = [], {}
    for d in WIDTHS:
        scores = random_scores(d, 20_000, N_KEYS, seed=d)
        for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(d))):
            norms = gradient_norm(scores / c)
            found = norms.quantile(QUANTILES).tolist()
            rows.append(
                {"gradient by the logits": f"d = {d}, {name}"}
                | {
                    f"{100 * q:.0f} %": f"{x:.1e}"
                    for q, x in zip(QUANTILES, found, strict=True)
                }
            )
            values[f"{name}_{d}"] = norms.median().item()
    return rows, values


def table_ratio():
    narrow, wide = (
        gradient_norm(random_scores(d, 20_000, N_KEYS, seed=d))
        for d in (8, 512)
    )
    ratios = narrow / wide
    rows = []
    for share in QUANTILES.tolist():
        error = math.sqrt(share * (1 - share) / len(ratios))
        steps = torch.tensor([share - error, share, share + error]).double()
        low, middle, high = ratios.quantile(steps).tolist()
        rows.append(
            {
                "pairs below": f"{100 * share:.0f} %",
                "ratio": f"{middle:.1e}",
                "a standard error lower": f"{low:.1e}",
                "and higher": f"{high:.1e}",
            }
        )
    return rows, {
        "pairs": len(ratios),
        "hundredfold": (ratios > 100).double().mean().item(),
        "quarter": ratios.quantile(0.25).item(),
    }


def table_by_query():
    rows, values = [], {}
    generator = torch.Generator("cpu").manual_seed(0)
    for d in (8, 64, 128, 512):
        q, k = (
            torch.randn(1000, n, d, dtype=torch.float64, generator=generator)
            for n in (1, N_KEYS)
        )  # (n_rows, 1, d) and (n_rows, n_keys, d)
        for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(d))):
            query = q.clone().requires_grad_()
            weights = (query @ k.mT / c).softmax(-1)  # (n_rows, 1, n_keys)
            (gradient,) = torch.autograd.grad(peak(weights).sum(), query)
            norms = gradient.norm(dim=-1)  # (n_rows, 1)
            low, middle, high = norms.quantile(QUANTILES[[0, 2, 4]]).tolist()
            rows.append(
                {
                    "gradient by the query": f"d = {d}, {name}",
                    "5 %": f"{low:.1e}",
                    "50 %": f"{middle:.1e}",
                    "95 %": f"{high:.1e}",
                }
            )
            values[f"{name}_{d}"] = middle
    return rows, values


def figure_gradient() -> Figure:
    """Gradient that reaches the logits through the largest weight, by width.

    Scaled, it stays near a tenth from d = 8 on. Unscaled, it is larger than
    that at small widths and smaller at large ones, and its band reaches down
    by many powers of ten, past the lower edge of the picture.
    """
    figure, axes = plt.subplots()
    labels = ("unscaled", 40, 4e-6), ("scaled", 4, 1.4e-2)
    plot_bands(axes, gradient_norm, labels)
    axes.set_yscale("log")
    axes.set(ylabel="norm of the gradient", ylim=(1e-8, 1))
    return figure


def example_holds():
    sdpa = F.scaled_dot_product_attention
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 8, 10, 64).double().unbind()  # (B, H, T, d_k)
    output, weights = attention(q, k, v)
    by_hand = (q @ k.mT / math.sqrt(64)).softmax(-1)  # (B, H, T, T)
    unscaled = (q @ k.mT).softmax(-1) @ v
    root = 64**0.25  # its square is √64
    few_k, few_v = k[:, :2], v[:, :2]  # two key and value heads for eight
    repeated = [x.repeat_interleave(4, dim=1) for x in (few_k, few_v)]
    grouped = sdpa(q, few_k, few_v, enable_gqa=True)
    same = {
        "weights by hand": (weights, by_hand),
        "built-in": (sdpa(q, k, v), output),
        "built-in, scale=1.0": (sdpa(q, k, v, scale=1.0), unscaled),
        "q and k / d^¼": (sdpa(q / root, k / root, v, scale=1.0), output),
        "grouped heads": (grouped, attention(q, *repeated)[0]),
    }
    for name, (got, expected) in same.items():
        assert (got - expected).abs().max() < 1e-12, name
        print(f"{name}: equal to within 1e-12")
    return {"scale_1": "equal to within 1e-12"}


def scale_of(function, d=64, dtype=torch.float64) -> float:
    """Scale that ``function(q, k, v)`` gives to the scores of heads of width d.

    Of two weights whose scores q·k are 1 and 0, the ratio is exp(scale).
    """
    q = torch.zeros(1, 1, 1, d, dtype=dtype)  # (B, H, Tq, d)
    k = torch.zeros(1, 1, 2, d, dtype=dtype)  # (B, H, Tk, d)
    q[..., 0] = k[..., 0, 0] = 1.0
    v = torch.eye(2, dtype=dtype)[None, None]  # the output is the weights
    first, second = function(q, k, v).flatten().double().tolist()
    return math.log(first / second)


def example_twice():
    d, n_heads = 64, 8
    sdpa = F.scaled_dot_product_attention
    by_model = 1 / math.sqrt(n_heads * d)
    versions = {
        "right": sdpa,
        "divided twice": lambda q, k, v: sdpa(q / math.sqrt(d), k, v),
        "by √d_model": lambda q, k, v: sdpa(q, k, v, scale=by_model),
        "not divided": lambda q, k, v: sdpa(q, k, v, scale=1.0),
        "multiplied": lambda q, k, v: sdpa(q, k, v, scale=math.sqrt(d)),
    }
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 50, d).double().unbind()  # (B, H, T, d) each
    v = torch.eye(50).double()[None, None]  # the output is the weights
    seen = {
        name: (
            scale_of(run) * math.sqrt(d),
            entropy(run(q, k, v)).mean().item(),
        )
        for name, run in versions.items()
    }
    for name, (factor, h) in seen.items():
        print(f"{name:13}: scale · √d_k = {factor:6.3f}, mean entropy {h:.2f}")
    assert math.isclose(scale_of(sdpa, d), 1 / math.sqrt(d))  # the test
    return {
        "uniform": math.log(50),
        "entropy": seen["right"][1],
        "entropy_twice": seen["divided twice"][1],
        "twice": seen["divided twice"][0],
        "model": seen["by √d_model"][0],
        "none": seen["not divided"][0],
        "multiplied": seen["multiplied"][0],
    }


def example_four_tokens():
    def softmax(x):
        return x.softmax(-1)

    scores = torch.tensor([26.0, 21.0, 24.0, 17.0], dtype=torch.float64)
    logits = {"unscaled": scores, "scaled": scores / math.sqrt(128)}
    norms = {
        name: torch.autograd.functional.jacobian(softmax, x).norm().item()
        for name, x in logits.items()
    }
    for name, x in logits.items():
        shares = ", ".join(f"{weight:.4f}" for weight in softmax(x).tolist())
        print(f"{name:8}: {shares}; norm of the Jacobian {norms[name]:.4f}")
        assert torch.equal(x.argsort(), scores.argsort())
    print(f"standard deviation of the scores: {scores.std():.1f}")
    names = "first", "second", "third", "last"
    shares = {name: softmax(x).tolist() for name, x in logits.items()}
    return {
        **{
            f"{place}_{name}": (share, 1e-9)
            for name, row in shares.items()
            for place, share in zip(names, row, strict=True)
        },
        "order": "the same",
        "norm_unscaled": norms["unscaled"],
        "norm_scaled": norms["scaled"],
        "deviation": scores.std().item(),
        "expected": (math.sqrt(128), 1e-9),
        "by_score": norms["scaled"] / math.sqrt(128),
    }


def table_four_random():
    scores = random_scores(128, 20_000, 4)
    rows, values = [], {}
    for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(128))):
        largest = peak((scores / c).softmax(-1))
        found = largest.quantile(QUANTILES).tolist()
        rows.append(
            {"largest of four weights, d = 128": name}
            | {
                f"{100 * q:.0f} %": f"{x:.3f}"
                for q, x in zip(QUANTILES, found, strict=True)
            }
        )
        values[name] = largest.median().item()
    return rows, values


def example_ties():
    scores = random_scores(512, 20_000, 50)  # (20000, 50), float64
    for name, c in (("unscaled", 1.0), ("scaled", math.sqrt(512))):
        logits = scores / c
        zero = (logits.float().softmax(-1) == 0).any(-1)  # (20000,)
        half = logits.bfloat16()
        tied = (half == half.amax(-1, keepdim=True)).sum(-1) > 1  # (20000,)
        zeros, ties = zero.double().mean(), tied.double().mean()
        print(f"{name:8}: a weight is 0 in float32 in {zeros:.1%} of rows,")
        print(f"    logits tie for the largest in bfloat16 in {ties:.1%}")


def example_stability():
    def softmax(scores, shift=True):
        highest = max(scores) if shift else 0.0
        exponentials = [math.exp(score - highest) for score in scores]
        return [e / sum(exponentials) for e in exponentials]

    try:
        softmax([1000.0, 999.0], shift=False)
    except OverflowError as error:
        refusal = type(error).__name__
        print(f"not shifted: softmax(1000, 999) raises {refusal}")
    for scores in ([1000.0, 999.0], [8.0, 0.0], [8 / math.sqrt(64), 0.0]):
        first, second = softmax(scores)
        assert math.isclose(first + second, 1.0)
        print(f"shifted: softmax{tuple(scores)} = {first:.6f}, {second:.6f}")
    shifted = softmax([101, 100]) == softmax([1, 0])
    print("softmax(101, 100) is softmax(1, 0):", shifted)
    return {
        "naive": refusal,
        "shifted": (softmax([1000.0, 999.0])[0], 1e-9),
        "eight": (softmax([8.0, 0.0])[0], 1e-9),
        "one": (first, 1e-9),
        "asserted": "bitwise equal" if first == 0.7310585786300049 else "not",
        "sums": "equal to 1 to within 1e-9",
        "invariant": "bitwise equal" if shifted else "not",
    }


def example_bound():
    generator = torch.Generator("cpu").manual_seed(0)
    q, k = torch.randn(2, 200_000, 64, dtype=torch.float64, generator=generator)
    largest = {}
    for times in (1, 10, 100):
        logits = (times * q * k).sum(-1) / math.sqrt(64)  # (200000,)
        bound = (times * q).norm(dim=-1) * k.norm(dim=-1) / math.sqrt(64)
        assert (logits.abs() <= bound).all()
        largest[times] = logits.abs().max().item()
        print(f"{times:3} q: largest |logit| {largest[times]:.2f}")
    return {"largest": largest[1], "pairs": len(q)}


def example_temperature():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 10, 64).double().unbind()  # (T, d_k) each
    vocabulary = torch.randn(64, 5).double()  # a head for five tokens
    print("entropy of:  next token  attention  attention with 1/(τ√d_k)")
    for tau in (0.5, 1.0, 2.0):
        output, weights = attention(q, k, v)
        token = torch.softmax(output @ vocabulary / tau, dim=-1)  # (T, 5)
        _, inside = attention(q, k, v, scale=1 / (tau * math.sqrt(64)))
        found = (entropy(x).mean().item() for x in (token, weights, inside))
        print(f"τ = {tau}    {{:11.2f}} {{:10.2f}} {{:17.2f}}".format(*found))


def example_learned():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 10, 64).double().unbind()  # (B, H, T, d_k)
    scale = nn.Parameter(torch.tensor(1 / math.sqrt(64), dtype=torch.float64))
    output = F.scaled_dot_product_attention(scale * q, k, v, scale=1.0)
    output.square().sum().backward()
    print(
        "starts as the default:", torch.allclose(output, attention(q, k, v)[0])
    )
    print(f"gradient of the scale: {scale.grad.item():.2f}")
    try:
        F.scaled_dot_product_attention(q, k, v, scale=scale)
    except TypeError:
        print("given as scale=: TypeError")


def table_heads():
    torch.manual_seed(0)
    torch.randn(1, 4, 8)  # the published digits start after this draw
    rows, values = [], {}
    for d in (8, 32, 64, 512):
        q, k = torch.randn(50_000, d), torch.randn(50_000, d)
        variance = (q * k).sum(-1).var().item()
        scaled = random_scores(d, 20_000, N_KEYS) / math.sqrt(d)
        weights = scaled.softmax(-1)
        rows.append(
            {
                "head width d_k": d,
                "variance: unscaled": f"{variance:.1f}",
                "scaled": f"{variance / d:.4f}",
                "error": f"{variance_error(d, 50_000) / d:.4f}",
                "mean entropy": f"{entropy(weights).mean().item():.3f}",
                "error ": f"{standard_error(entropy(weights)):.3f}",
                "median largest weight": f"{peak(weights).median().item():.2f}",
            }
        )
        values[f"variance_{d}"] = variance
        values[f"scaled_{d}"] = variance / d, 2e-6
        values[f"entropy_{d}"] = entropy(weights).mean().item()
    return rows, values


def example_question_width():
    torch.manual_seed(0)
    q = torch.randn(1, 10, 512).view(1, 10, 8, -1).transpose(1, 2)  # 8 heads
    k = v = torch.randn(1, 2, 10, q.shape[-1])  # (B, H, T, d_k), 2 heads
    print(f"d_k = {q.shape[-1]}, √d_k = {math.sqrt(q.shape[-1]):g}")

    default = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    eighth = F.scaled_dot_product_attention(
        q, k, v, enable_gqa=True, scale=1 / 8
    )
    print(
        "2 key and value heads, scale=1/8 as by default:", default.equal(eighth)
    )


def example_question_doubled():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 10, 64).double().unbind()
    _, weights = attention(q, k, v)
    _, doubled = attention(2 * q, k, v, scale=1 / (2 * math.sqrt(64)))
    print("largest difference:", (weights - doubled).abs().max().item())
