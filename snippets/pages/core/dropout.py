"""What the page on attention dropout runs."""

import inspect
import itertools
import math
import warnings
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from snippets.attention import attention


def drop(weights: Tensor, p: float) -> Tensor:
    """Zero each weight with probability p and divide the others by 1 - p.

    The mask comes from `torch.rand`, whose numbers are the same on every
    processor; those behind `F.dropout` need not be.
    """
    kept = torch.rand(weights.shape) >= p  # (..., Tq, Tk)
    return weights * kept / (1 - p)


def figure_rows() -> Figure:
    """Four bar charts of one row of eight weights: whole, and dropped thrice.

    Whole, the bars add up to one. Each dropped row lacks other bars; the bars
    that are left are higher than before, and the titles give sums below and
    above one.
    """
    torch.manual_seed(7)
    row = torch.tensor([6, 5, 4, 3, 2.5, 2, 1.5, 1]).double() / 25  # sums to 1
    figure, panels = plt.subplots(1, 4, sharey=True, figsize=(5.2, 2.3))
    rows = row, *(drop(row, 0.25) for _ in range(3))
    for i, (axes, weights) in enumerate(zip(panels, rows, strict=True)):
        axes.bar(range(8), row.tolist(), color="C0", alpha=0.45)
        axes.bar(range(8), weights.tolist(), color="C1" if i else "C0")
        axes.set_title(f"sum {weights.sum().item():.2f}")
        axes.set_xticks([])
        axes.set_xlabel("keys" if i == 0 else "dropped")
    panels[0].set_ylabel("weight")
    return figure


def example_rows():
    torch.manual_seed(1)
    q, k = torch.randn(1, 16).double(), torch.randn(8, 16).double()
    v = torch.randn(8, 4).double()  # (Tk, dv)
    _, weights = attention(q, k, v)  # (Tq, Tk) = (1, 8)
    for name, w in (
        ("whole", weights),
        ("dropped", drop(weights, p=0.25)),
        ("again", drop(weights, p=0.25)),
    ):
        output = w @ v  # (Tq, dv): what the layer returns
        shown = " ".join(f"{x:.2f}" for x in w[0].tolist())
        print(
            f"{name:7}: {shown}, sum {w.sum():.2f}, output {output[0, 0]:.2f}"
        )


def rows_to_drop() -> dict[str, Tensor]:
    """Rows of weights, from even to one key; each (Tk,), with the sum 1."""
    rows = {}
    for name, largest, n in (
        ("50 keys, even", 1 / 50, 50),
        ("8 keys, even", 1 / 8, 8),
        ("50 keys, half on one", 1 / 2, 50),
        ("50 keys, 90 % on one", 9 / 10, 50),
        ("1 key", 1.0, 1),
    ):
        others = [(1 - largest) / max(n - 1, 1)] * (n - 1)
        rows[name] = torch.tensor([largest, *others], dtype=torch.float64)
    return rows


def row_sums(row: Tensor, p: float, n: int = 20_000) -> Tensor:
    """Sums of a row of weights (Tk,) after n dropouts, (n,)."""
    torch.manual_seed(0)
    return drop(row.expand(n, -1), p).sum(-1)


def table_sums():
    rows, values = [], {}
    for p in (0.1, 0.5):
        for name, row in rows_to_drop().items():
            sums = row_sums(row, p)
            n, spread = len(sums), sums.std().item()
            theory = math.sqrt(p / (1 - p) * row.square().sum().item())
            fourth = (sums - sums.mean()).pow(4).mean().item()
            error = math.sqrt(max(fourth - spread**4, 0) / n) / (2 * spread)
            assert abs(sums.mean().item() - 1) < 4 * theory / math.sqrt(n)
            assert abs(spread - theory) <= 4 * error + 1e-3 * theory
            rows.append(
                {
                    "row": name,
                    "p": p,
                    "mean of the sums": f"{sums.mean().item():.4f}",
                    "error": f"{theory / math.sqrt(n):.4f}",
                    "deviation: theory": f"{theory:.4f}",
                    "measured": f"{spread:.4f}",
                    "error ": f"{error:.4f}",
                    "sums of 0": f"{(sums == 0).double().mean().item():.1%}",
                }
            )
            values[f"deviation_{row.max():.2f}_{len(row)}_{p}"] = spread
    return rows, values | {"n": n}


def figure_sums() -> Figure:
    """Histograms of the sum of a row after dropout with p = 0.1, three rows.

    Even over 50 keys, the sums make one bell around one. Half on one key, a
    second, small bell lies near one half. With 90 percent on one key, nine
    sums in ten lie just above one and the tenth near a tenth.
    """
    figure, panels = plt.subplots(3, 1, sharex=True, figsize=(5.2, 3.8))
    edges = [(i - 0.5) / 45 for i in range(60)]  # a bin a sum of the even row
    rows = rows_to_drop()
    names = [name for name, row in rows.items() if len(row) == 50]
    for axes, name in zip(panels, names, strict=True):
        sums = row_sums(rows[name], 0.1).numpy()
        axes.hist(sums, bins=edges, weights=[100 / len(sums)] * len(sums))
        axes.axvline(1, color="C1", linewidth=1)
        axes.set_title(name)
    panels[1].set_ylabel("rows in a bin, %")
    panels[2].set_xlabel("sum of the row after dropout, p = 0.1")
    return figure


def example_holds():
    sdpa = F.scaled_dot_product_attention
    n, p = 20_000, 0.2
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 6, 8).double().unbind()  # (B, H, T, d) each
    v = torch.eye(6).double()[None, None]  # the output is the weights
    _, weights = attention(q, k, v)  # (1, 1, Tq, Tk)
    many = [x.expand(n, -1, -1, -1) for x in (q, k, v)]
    dropped = sdpa(*many, dropout_p=p)  # (n, 1, Tq, Tk): n masks

    kept = dropped != 0
    rescaled = torch.where(kept, weights / (1 - p), 0.0)
    assert (dropped - rescaled).abs().max() < 1e-14
    print("each weight is 0, or the weight / (1 - p) to within 1e-14")
    error = math.sqrt(p * (1 - p) / kept.numel())
    assert abs((~kept).double().mean().item() - p) < 4 * error
    print("share of zeros: p, within 4 standard errors")
    error = weights * math.sqrt(p / (1 - p) / n)  # (1, 1, Tq, Tk)
    assert ((dropped.mean(0) - weights).abs() < 5 * error).all()
    print("mean of each of the 36 weights: within 5 standard errors")


def table_first():
    torch.manual_seed(0)
    n, p = 40_000, 0.1
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    x = torch.randn(n, 4, 8)  # (B, T, d)
    _, weights = attention(x, x, x, causal)  # (B, Tq, Tk)
    lost = (drop(weights, p) == 0).all(-1).sum(0).double() / n  # (Tq,)
    rows = []
    for i, share in enumerate(lost.tolist()):
        theory = p ** (i + 1)
        error = math.sqrt(theory * (1 - theory) / n)
        assert abs(share - theory) < 4 * error
        rows.append(
            {
                "query": i + 1,
                "keys": i + 1,
                "loses all of them: theory": f"{theory:.3%}",
                "measured": f"{share:.3%}",
                "error": f"{error:.3%}",
            }
        )
    return rows, {"first": lost[0].item(), "rows": n, "p": p}


def example_evaluation():
    class Careless(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    class Careful(nn.Module):
        p = 0.1

        def forward(self, q, k, v):
            p = self.p if self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, dropout_p=p)

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 16, 8).unbind()  # (B, H, T, d) each
    for layer in (Careless().eval(), Careful().eval()):
        same = torch.equal(layer(q, k, v), layer(q, k, v))
        print(f"{type(layer).__name__}, evaluating: two calls agree: {same}")


def table_calls():
    torch.manual_seed(0)
    x = torch.randn(2, 16, 8)  # (B, T, C)
    _, weights = attention(x, x, x)
    layer = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
    module, p = nn.Dropout(0.1), 0.1
    sdpa = F.scaled_dot_product_attention
    calls: dict[str, Callable[[bool], Tensor]] = {
        "`sdpa(q, k, v, dropout_p=p)`": lambda _: sdpa(x, x, x, dropout_p=p),
        "`sdpa`, `dropout_p=p if training else 0.0`": (
            lambda training: sdpa(x, x, x, dropout_p=p if training else 0.0)
        ),
        "`F.dropout(weights, p) @ v`": lambda _: F.dropout(weights, p) @ x,
        "`F.dropout(weights, p, training) @ v`": (
            lambda training: F.dropout(weights, p, training) @ x
        ),
        "`nn.Dropout(p)(weights) @ v`": (
            lambda training: module.train(training)(weights) @ x
        ),
        "`nn.MultiheadAttention(C, H, dropout=p)`": (
            lambda training: layer.train(training)(x, x, x)[0]
        ),
    }
    rows = []
    for name, call in calls.items():
        training = torch.equal(call(True), call(True))
        evaluation = torch.equal(call(False), call(False))
        with torch.inference_mode():
            inference = torch.equal(call(False), call(False))
        said = {True: "agree", False: "differ"}
        rows.append(
            {
                "two calls": name,
                "training": said[training],
                "evaluation": said[evaluation],
                "evaluation, `inference_mode`": said[inference],
            }
        )
    return rows


def example_returned():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2, dropout=0.3, batch_first=True).double()
    x = torch.randn(2, 6, 16).double()  # (B, T, C)
    v = F.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)[2]
    v = v.unflatten(-1, (2, 8)).transpose(1, 2)  # (B, T, C) -> (B, H, T, d)
    for name in ("training", "evaluating"):
        layer.train(name == "training")
        output, weights = layer(x, x, x, average_attn_weights=False)
        by_hand = layer.out_proj((weights @ v).transpose(1, 2).flatten(-2))
        assert (by_hand - output).abs().max() < 1e-14
        print(f"{name}: the weights returned make the output")
        ones = torch.ones(2, 2, 6).double()  # (B, H, Tq)
        print("    rows sum to 1:", torch.allclose(weights.sum(-1), ones))
        print("    zeros among them:", (weights == 0).any().item())


def table_unbiased():
    p, n = 0.1, 40_000
    torch.manual_seed(0)
    x = torch.randn(3, 8, 8, dtype=torch.float64)
    q, k, v = x[0, :1], x[1], x[2, :, :4]  # (1, d), (Tk, d), (Tk, dv)
    _, weights = attention(q, k, v)  # (1, Tk)
    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=8))).double()
    kept = masks.sum(-1)  # (256,): all the masks there are
    chances = (1 - p) ** kept * p ** (8 - kept)
    exact = (masks * weights / (1 - p)) @ v  # (256, dv)
    sampled = drop(weights.expand(n, -1), p) @ v  # (n, dv)
    whole = weights @ v  # (1, dv)

    rows, values = [], {}
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "first coordinate": lambda x: x[:, 0],
        "its square": lambda x: x[:, 0].square(),
        "norm of the output": lambda x: x.norm(dim=-1),
        "first coordinate of `F.layer_norm`": (
            lambda x: F.layer_norm(x, (4,))[:, 0]
        ),
    }
    for name, function in functions.items():
        expected = (chances * function(exact)).sum().item()
        sample = function(sampled)
        error = sample.std().item() / math.sqrt(n)
        without = function(whole).item()
        assert abs(sample.mean().item() - expected) < 4 * error
        rows.append(
            {
                "function of the output": name,
                "without dropout": f"{without:.4f}",
                "expected": f"{expected:.4f}",
                "mean": f"{sample.mean().item():.4f}",
                "error": f"{error:.4f}",
            }
        )
        values[name.split()[-1].strip("`").split(".")[-1]] = expected - without
    variance = p / (1 - p) * (weights.square() @ v.square())[0, 0].item()
    assert math.isclose(values["square"], variance, rel_tol=1e-9)
    assert abs(values["coordinate"]) < 1e-15
    return rows, values | {"n": n, "masks": len(masks), "variance": variance}


def table_wrong():
    torch.manual_seed(0)
    n, p = 40_000, 0.25
    q, k = torch.randn(2, 6, 8, dtype=torch.float64).unbind()
    logits = (q[:2] @ k.T / math.sqrt(8)).expand(n, -1, -1)  # (n, Tq, Tk)
    weights = logits.softmax(-1)
    each, key = torch.rand(n, 2, 6) >= p, torch.rand(n, 1, 6) >= p
    versions = {
        "right": weights * each / (1 - p),
        "not rescaled": weights * each,
        "p and 1 − p swapped": weights * ~each / p,
        "whole keys": weights * key / (1 - p),
        "logits to 0, rescaled": (logits * each / (1 - p)).softmax(-1),
        "logits to −∞": logits.masked_fill(~each, -math.inf).softmax(-1),
    }
    rows, values = [], {}
    for name, dropped in versions.items():
        bad = dropped.isnan().any(-1)  # (n, Tq)
        fine = dropped[~bad.any(-1)]  # both queries have a key left
        bias = (fine.mean(0) - weights[0]).abs()  # (Tq, Tk)
        error = fine.std(0) / math.sqrt(len(fine))
        sums, masks = fine.sum(-1), (fine == 0).double()
        together = masks - masks.mean(0)  # (n, Tq, Tk)
        first, second = together.unbind(1)
        spread = (first.square().mean() * second.square().mean()).sqrt()
        both = (first * second).mean() / spread if spread > 0 else spread
        rows.append(
            {
                "dropped": name,
                "mean of the sums": f"{sums.mean().item():.3f}",
                "largest bias of a weight": f"{bias.max().item():.3f}",
                "in errors": f"{(bias / error).max().item():.0f}",
                "weights of 0": f"{masks.mean().item():.0%}",
                "two queries' masks correlate": f"{abs(both.item()):.2f}",
                "rows of NaN": f"{bad.double().mean().item():.3%}",
            }
        )
        values[name.split()[-1].strip(",")] = bias.max().item()
    return rows, values | {"n": n, "nan": p**6, "p": p}


def example_kernel():
    sdpa = F.scaled_dot_product_attention
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 16, 8, device="cpu").unbind()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            sdpa(q, k, v)  # the fused kernel runs without dropout
            try:
                sdpa(q, k, v, dropout_p=0.1)
            except RuntimeError:
                print("fused, with dropout: RuntimeError")
    print(str(caught[-1].message).partition(" (")[0])

    torch.manual_seed(1)
    default = sdpa(q, k, v, dropout_p=0.1)
    with sdpa_kernel(SDPBackend.MATH):
        torch.manual_seed(1)
        same = torch.equal(sdpa(q, k, v, dropout_p=0.1), default)
    print("default equals the math path to the last bit:", same)


def bytes_kept(function: Callable[..., object], *inputs: Tensor) -> int:
    """Count the bytes that autograd keeps for the backward pass, inputs not."""
    given = {x.data_ptr() for x in inputs}
    sizes: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        if x.data_ptr() not in given:
            sizes[x.data_ptr()] = x.untyped_storage().nbytes()
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        result = function(*inputs)  # kept, so that no address is used again
    del result
    return sum(sizes.values())


def table_kept():
    sdpa = F.scaled_dot_product_attention
    torch.manual_seed(0)
    rows = []
    for n in (256, 512, 1024):
        inputs = [
            torch.randn(1, 1, n, 64, device="cpu").requires_grad_()
            for _ in range(3)
        ]  # (B, H, T, d) each
        without = bytes_kept(sdpa, *inputs)
        dropped = bytes_kept(
            lambda q, k, v: sdpa(q, k, v, dropout_p=0.1), *inputs
        )
        rows.append(
            {
                "T": n,
                "KiB without dropout": f"{without / 1024:.0f}",
                "with": f"{dropped / 1024:,.0f}",
                "three matrices (T, T)": f"{3 * n * n * 4 / 1024:,.0f}",
            }
        )
    return rows


def example_seeds():
    def masked(seed, n_keys):
        torch.manual_seed(seed)
        q, k = torch.ones(1, 1, 8, 4), torch.ones(1, 1, n_keys, 4)
        v = torch.eye(n_keys)[None, None]  # the output is the weights
        w = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        return w == 0  # (1, 1, Tq, Tk)

    mask = masked(0, 16)
    print("same seed, same call:", torch.equal(masked(0, 16), mask))
    print("another seed:", torch.equal(masked(1, 16), mask))
    longer = masked(0, 17)[..., :16]
    print("same seed, one key more:", torch.equal(longer, mask))


def example_checkpoint():
    torch.manual_seed(0)
    x = torch.randn(1, 2, 16, 8).double()  # (B, H, T, d)

    def block(x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    def gradient(run):
        torch.manual_seed(1)
        y = x.clone().requires_grad_()
        return torch.autograd.grad(run(y).square().sum(), y)[0]

    plain = gradient(block)
    for keep in (True, False):
        options = {"use_reentrant": False, "preserve_rng_state": keep}
        again = gradient(
            lambda y, options=options: checkpoint(block, y, **options)
        )
        right = torch.allclose(again, plain, rtol=1e-12, atol=0)
        print(f"preserve_rng_state={keep}: gradient right: {right}")


def example_defaults():
    def default(function, name):
        return inspect.signature(function).parameters[name].default

    encoder = nn.TransformerEncoderLayer(16, 2, batch_first=True)
    print("sdpa: dropout_p=0.0")  # a builtin without a signature
    print("F.dropout: training =", default(F.dropout, "training"))
    print(
        "nn.MultiheadAttention: p =", default(nn.MultiheadAttention, "dropout")
    )
    print("inside nn.TransformerEncoderLayer: p =", encoder.self_attn.dropout)


def example_question_p():
    before, after = torch.full((4,), 0.25), 0.3125  # what is not zero
    print(f"p = {1 - before[0].item() / after:.2f}")


def example_question_two():
    torch.manual_seed(0)
    dropped = drop(torch.full((40_000, 2), 0.5), p=0.5)  # rows of two keys
    print(f"rows that lose both: {(dropped.sum(-1) == 0).float().mean():.2f}")
