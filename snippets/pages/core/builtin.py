"""What the page on PyTorch's own attention runs."""

import functools
import math
import os
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close

from snippets.attention import attention

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

# What these give is how the kernels of a machine round, and the page says so.
KERNELS_OWN = (
    "table_differences",
    "figure_differences",
    "table_growth",
    "table_tolerances",
    "table_bitwise",
    "table_seen",
)


def kernel_of(call: Callable[[], object]) -> list[str]:
    """Names of the attention kernels that a call ran, as the profiler saw them.

    Backward kernels are among them where the call runs a backward pass. An
    empty list: nothing was computed, or by plain matrix products.
    """
    # Otherwise the profiler of 2.13 writes two lines to stderr each time.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call()
    events = sorted(seen.events(), key=lambda event: event.time_range.start)
    prefix = "aten::_"  # aten::scaled_dot_product_attention only dispatches
    names = [e.name for e in events if e.name.startswith(prefix)]
    ran = (name[len(prefix) :] for name in names if "attention" in name)
    return list(dict.fromkeys(ran))


def why_not(call: Callable[[], object]) -> list[str]:
    """What keeps a call of the built-in from the flash kernel; [] if nothing.

    Runs the call with no other kernel allowed and gives the warnings, or the
    error where there are none.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                call()
        except RuntimeError as error:
            said = [str(w.message).split(" (Triggered")[0] for w in caught]
            return said[1:] or [str(error)]  # the first is a headline
    return []


def example_which():
    q = torch.randn(2, 4, 8, 16)  # (B, H, T, d)
    wide = torch.randn(2, 4, 8, 24)  # (B, H, T, dv)
    sdpa = F.scaled_dot_product_attention
    ran = {}
    for name, call in {
        "(B, H, T, d)": lambda: sdpa(q, q, q),
        "(H, T, d)": lambda: sdpa(q[0], q[0], q[0]),
        "dv != d": lambda: sdpa(q, q, wide),
        "dropout": lambda: sdpa(q, q, q, dropout_p=0.1),
    }.items():
        ran[name] = kernel_of(call)
        print(f"{name:12} {', '.join(ran[name])}")
        for reason in why_not(call):
            print(f"    {reason}")
    return {"four_dimensions": ran["(B, H, T, d)"][0]}


def builtin_calls(
    dtype: torch.dtype, gradients: bool
) -> dict[str, tuple[tuple[Tensor, ...], dict[str, Any]]]:
    """Name a call, and give the arguments of the built-in for it."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return x.to(dtype).requires_grad_(gradients)

    x = normal(2, 4, 8, 16)  # (B, H, T, d)
    short, wide, pair = (
        normal(2, 4, 5, 16),  # (B, H, Tk, d)
        normal(2, 4, 8, 24),  # (B, H, T, dv)
        normal(2, 2, 8, 16),  # (B, two heads, T, d)
    )
    across = normal(2, 8, 4, 16).transpose(1, 2)  # (B, H, T, d), a view
    columns = normal(2, 4, 16, 8).mT  # (B, H, T, d), last stride 8
    keep = x.new_ones(8, 8, dtype=torch.bool).tril()  # True = may attend
    bias = x.detach().new_zeros(8, 8)  # added to the logits
    learned = bias.clone().requires_grad_()
    grouped: dict[str, Any] = {"enable_gqa": True}
    causal: dict[str, Any] = {"is_causal": True}
    head, plane, block = x[0, 0], x[0], x[None]
    return {
        "`(B, H, T, d)`": ((x, x, x), {}),
        "`(T, d)`": ((head, head, head), {}),
        "`(H, T, d)`": ((plane, plane, plane), {}),
        "`(A, B, H, T, d)`": ((block, block, block), {}),
        "`dv` ≠ `d`": ((x, x, wide), {}),
        "`Tq` ≠ `Tk`": ((x, short, short), {}),
        "one query": ((x[:, :, :1], x, x), {}),
        "`d` = 1": ((x[..., :1],) * 3, {}),
        "`d` = 2048": ((normal(1, 1, 4, 2048),) * 3, {}),
        "`transpose(1, 2)` of `(B, T, H, d)`": ((across,) * 3, {}),
        "last stride of `q` not 1": ((columns, x, x), {}),
        "last stride of `v` not 1": ((x, x, columns), {}),
        "keys of one batch entry, broadcast": ((x, x[:1], x[:1]), {}),
        "keys of one head, broadcast": ((x, x[:, :1], x[:, :1]), {}),
        "no queries": ((x[:, :, :0], x, x), {}),
        "no keys": ((x, x[:, :, :0], x[:, :, :0]), {}),
        "empty batch": ((x[:0],) * 3, {}),
        "boolean mask `(Tq, Tk)`": ((x, x, x, keep), {}),
        "boolean mask `(1, 1, 1, Tk)`": ((x, x, x, keep[None, None, -1:]), {}),
        "boolean mask `(H, Tq, Tk)`": ((x, x, x, keep.expand(4, 8, 8)), {}),
        "float mask": ((x, x, x, bias), {}),
        "float mask that needs a gradient": ((x, x, x, learned), {}),
        "`is_causal=True`": ((x, x, x), causal),
        "`is_causal=True`, `Tq` ≠ `Tk`": ((x, short, short), causal),
        "`is_causal=True` and a mask": ((x, x, x, keep), causal),
        "`dropout_p=0.1`": ((x, x, x), {"dropout_p": 0.1}),
        "`scale=1.0`": ((x, x, x), {"scale": 1.0}),
        "grouped heads": ((x, pair, pair), grouped),
        "grouped heads, a mask": ((x, pair, pair, keep), grouped),
        "grouped heads, `(H, T, d)`": ((x[0], pair[0], pair[0]), grouped),
        "2 key heads, 1 value head": ((x, pair, pair[:, :1]), grouped),
    }


def example_cuda_only():
    q = torch.randn(2, 4, 8, 16)  # (B, H, T, d)
    call = torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)
    for ask in (
        torch.backends.cuda.can_use_flash_attention,
        torch.backends.cuda.can_use_efficient_attention,
        torch.backends.cuda.can_use_cudnn_attention,
    ):
        try:
            answer = ask(call)
        except RuntimeError as error:  # a CUDA build without a driver
            answer = str(error).splitlines()[0]
        print(f"{ask.__name__}: {answer}")
    print(*kernel_of(lambda: F.scaled_dot_product_attention(q, q, q)))


def table_kernels():
    sdpa = F.scaled_dot_product_attention
    short = {
        "scaled_dot_product_flash_attention_for_cpu": "flash",
        "scaled_dot_product_attention_math": "math",
    }
    seen: dict[str, set[tuple[str, int]]] = {}
    runs = 0
    for dtype in DTYPES.values():
        for gradients in (False, True):
            calls = builtin_calls(dtype, gradients)
            for name, (tensors, options) in calls.items():
                call = functools.partial(sdpa, *tensors, **options)
                try:
                    kernel = (
                        "".join(short[k] for k in kernel_of(call)) or "none"
                    )
                except RuntimeError as error:  # as a newer release does
                    kernel = f"raises {type(error).__name__}"
                choice = torch._fused_sdp_choice(*tensors, **options)
                seen.setdefault(name, set()).add((kernel, choice))
                runs += 1
    rows = []
    for name, found in seen.items():
        ((kernel, choice),) = found  # the same in every dtype
        told = SDPBackend(choice).name.removesuffix("_ATTENTION").lower()
        rows.append(
            {
                "`q`, `k`, `v` are `(B, H, T, d)`, except": name,
                "kernel that ran": kernel,
                "`torch._fused_sdp_choice`": told,
            }
        )
    kernels = [row["kernel that ran"] for row in rows]
    return rows, {
        "runs": runs,
        "flash": kernels.count("flash"),
        "math": kernels.count("math"),
    }


def table_reasons():
    sdpa = F.scaled_dot_product_attention
    rows = []
    for name, (tensors, options) in builtin_calls(torch.float32, False).items():
        said = why_not(functools.partial(sdpa, *tensors, **options))
        for reason in said:
            rows.append({"call": name, "what PyTorch says": reason.strip()})
    return rows


def example_docstring():
    text = " ".join(F.scaled_dot_product_attention.__doc__.split())
    for words in (
        "For all other backends, the PyTorch implementation will be used",
        "may be different depending on what backend kernel is chosen",
        "An error is thrown if both attn_mask and is_causal are set",
    ):
        print(f"{words in text}: ...{words}...")

    x = torch.randn(1, 1, 4, 8)  # (B, H, T, d)
    keep = torch.ones(4, 4, dtype=torch.bool)  # (Tq, Tk)
    keep[:, 1] = False  # no query may attend to the second key
    both = F.scaled_dot_product_attention(x, x, x, keep & keep.tril())
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            try:
                output = F.scaled_dot_product_attention(
                    x, x, x, keep, is_causal=True
                )
                same = torch.allclose(output, both)
                print(f"{backend.name}: no error, applies both: {same}")
            except RuntimeError as error:
                print(f"{backend.name}: {type(error).__name__}")
    found = "depending on what backend kernel is chosen"
    return {"says": found if found in text else "not found"}


def example_priority():
    q = torch.randn(2, 4, 8, 16)  # (B, H, T, d)
    fused, plain = SDPBackend.FLASH_ATTENTION, SDPBackend.MATH
    ran = {}
    for order in ([fused, plain], [plain, fused], [plain]):
        names = ", ".join(backend.name for backend in order)
        with sdpa_kernel(order, set_priority=True):
            [ran[names]] = kernel_of(
                lambda: F.scaled_dot_product_attention(q, q, q)
            )
        print(f"{names}: {ran[names]}")
    return {"math_first": ran["MATH, FLASH_ATTENTION"], "alone": ran["MATH"]}


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The built-in, with its flash kernel or an error."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def math_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The built-in, with its math kernel."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, mask, scale=scale)


def ours(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The output of `attention`."""
    return attention(q, k, v, mask, scale=scale)[0]


def bare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Product, softmax, product, all of it in the dtype of the inputs."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    logits = q @ k.mT * scale  # (..., Tq, Tk)
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1) @ v  # (..., Tq, dv)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "flash": flash,
    "math": math_kernel,
    "`attention`": ours,
    "bare": bare,
}


def draw(
    dtype: torch.dtype, n: int = 128, size: float = 1.0, n_draws: int = 4
) -> tuple[Tensor, ...]:
    """Standard normal q, k, v and a gradient, (n_draws, 2, n, 64) each.

    The logits of q and k have about the standard deviation ``size``.
    """
    generator = torch.Generator().manual_seed(0)
    shape = 4, n_draws, 2, n, 64
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    drawn[0] *= size
    return drawn.to(dtype).unbind()


def relative_error(result: Tensor, exact: Tensor) -> float:
    """Norm of the error over the norm of the exact tensor, in float64."""
    return ((result.double() - exact).norm() / exact.norm()).item()


@functools.cache
def errors(
    kernel: str,
    dtype: str,
    n: int = 128,
    size: float = 1.0,
    n_draws: int = 4,
) -> tuple[float, float, float]:
    """How far a kernel is from the same inputs in float64, in eps.

    The largest and the relative error of the output, and the relative error
    of the three gradients together.
    """
    inputs = draw(DTYPES[dtype], n, size, n_draws)
    results = []
    for call, wide in ((bare, torch.float64), (KERNELS[kernel], DTYPES[dtype])):
        q, k, v, gradient = (x.to(wide) for x in inputs)
        for x in (q, k, v):
            x.requires_grad_()
        output = call(q, k, v)
        gradients = torch.autograd.grad(output, (q, k, v), gradient)
        results.append((output.detach(), torch.stack(gradients)))
    (exact, exact_gradient), (output, gradient) = results
    eps = torch.finfo(DTYPES[dtype]).eps
    return (
        (output.double() - exact).abs().max().item() / eps,
        relative_error(output, exact) / eps,
        relative_error(gradient, exact_gradient) / eps,
    )


def power_above(x: float, step: int = 1) -> str:
    """A power of two that is not below x: the least, or of every step-th."""
    power = math.ceil((math.log2(x) + 1) / step) * step - 1
    return f"{2**power}" if power >= 0 else f"1/{2**-power}"


def table_seen():
    """How far a scale that is 1 % off stands out from flash's rounding."""
    rows, values = [], {}
    for size in (0.01, 0.1, 1, 8, 32):
        q, k, v, _ = draw(torch.float64, size=size)
        mistake = relative_error(bare(q, k, v, scale=1.01 / 8), bare(q, k, v))
        row = {"standard deviation of the logits": f"{size:g}"}
        for name, dtype in DTYPES.items():
            error = errors("flash", name, size=size)[1] * torch.finfo(dtype).eps
            row[name] = power_below(mistake / error)
            values[f"{name}_{size:g}"] = mistake / error
        rows.append(row)
    return rows, values


def power_below(x: float) -> str:
    """A power of two that is not above x: the largest, but 256 at most."""
    return (
        f"{2 ** math.floor(math.log2(min(x, 256)))} ×"
        if x >= 1
        else "below 1 ×"
    )


def table_differences():
    rows = []
    for dtype in DTYPES:
        for name in KERNELS:
            if dtype == "float64" and name in ("`attention`", "bare"):
                continue  # the reference itself
            largest, output, gradient = errors(name, dtype)
            rows.append(
                {
                    "dtype": dtype,
                    "kernel": name,
                    "output: largest error ≤": f"{power_above(largest, 2)} eps",
                    "output: relative ≤": f"{power_above(output)} eps",
                    "gradients: relative ≤": f"{power_above(gradient)} eps",
                }
            )
    return rows, {
        f"eps_{name}": torch.finfo(dtype).eps for name, dtype in DTYPES.items()
    }


def bug_errors() -> dict[str, float]:
    """Relative errors of two mistakes made in float64, by name."""
    causal = torch.ones(128, 128, dtype=torch.bool).tril()
    q, k, v, _ = draw(torch.float64)
    exact = bare(q, k, v, causal)
    wide = bare(q, k, v, causal | causal.roll(1, 1))
    return {
        "scale 1 % too large": relative_error(
            bare(q, k, v, causal, 1.01 / 8), exact
        ),
        "mask one key too wide": relative_error(wide, exact),
    }


def figure_differences() -> Figure:
    """Relative error of three kernels in four dtypes, on a logarithmic axis.

    The error falls with the dtype, from about a thousandth in bfloat16 to less
    than one in a million billion in float64, and in each dtype the kernels lie
    close together. Two level lines show mistakes: a mask that is one key too
    wide, and below it a scale that is one per cent too large. Only in bfloat16
    do the kernels come near the lower line.
    """
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    for name, shift, marker in (
        ("math", -0.2, "o"),
        ("flash", 0.0, "s"),
        ("bare", 0.2, "^"),
    ):
        places, heights = [], []
        for at, dtype in enumerate(DTYPES):
            error = errors(name, dtype)[1]
            if error > 0:  # bare in float64 is the reference
                eps = torch.finfo(DTYPES[dtype]).eps
                places.append(at + shift)
                heights.append(eps * 2.0 ** math.ceil(math.log2(error)))
        axes.plot(places, heights, marker, label=name)
    for name, height in bug_errors().items():
        axes.axhline(height, color="C3", linewidth=1, linestyle="--")
        axes.text(-0.3, height / 1.4, name, color="C3", va="top")
    axes.set_yscale("log")
    axes.set(ylabel="relative error of the output", ylim=(1e-16, 3))
    axes.set_xticks(range(4), list(DTYPES))
    axes.legend(loc="lower right")
    return figure


def table_growth():
    rows = []
    for n, n_draws in ((16, 32), (128, 4), (512, 2)):
        for size in (1, 8):
            q, k, *_ = draw(torch.float64, n, size, n_draws)
            logits = q @ k.mT / 8  # (..., T, T)
            peaks = logits.softmax(-1).amax(-1)  # (..., T)
            row = {
                "T": n,
                "standard deviation of the logits": size,
                "largest logit": f"{logits.abs().max():.0f}",
                "mean largest weight": f"{peaks.mean():.2f}",
            }
            for dtype, kernel, *parts in (
                ("float32", "flash", "output"),
                ("bfloat16", "math", "output"),
                ("bfloat16", "flash", "output", "gradients"),
                ("bfloat16", "bare", "output", "gradients"),
            ):
                found = errors(kernel, dtype, n, size, n_draws)
                for part in parts:
                    error = found[1] if part == "output" else found[2]
                    row[f"{dtype}, {kernel}, {part}"] = power_above(error)
            rows.append(row)
    return rows


def tolerances(dtype: torch.dtype, largest_logit: float) -> dict[str, float]:
    """Give rtol and atol for attention over values of size 1."""
    eps = torch.finfo(dtype).eps
    if dtype in (torch.float16, torch.bfloat16):
        return {"rtol": eps, "atol": eps if dtype == torch.float16 else eps / 2}
    return {"rtol": eps, "atol": 8 * eps * max(1.0, largest_logit)}


def table_tolerances():
    causal = torch.ones(128, 128, dtype=torch.bool).tril()
    wide = causal | causal.roll(1, 1)  # one key too many in each row
    n_draws, rows = 10, []
    tests = (1, "default"), (1, "recommended"), (8, "recommended")
    for dtype in DTYPES:
        for size, test in tests:
            q, k, v, _ = draw(DTYPES[dtype], size=size, n_draws=n_draws)
            exact = bare(q.double(), k.double(), v.double(), causal)
            largest = (q.double() @ k.mT.double() / 8).abs().max().item()
            recommended = tolerances(DTYPES[dtype], largest)
            results = {name: f(q, k, v, causal) for name, f in KERNELS.items()}
            results["scale 1 % too large"] = flash(q, k, v, causal, 1.01 / 8)
            results["mask one key too wide"] = flash(q, k, v, wide)
            row = {"dtype": dtype, "logits": size, "tolerances": test}
            for name, result in results.items():
                passed = 0
                for actual, expected in zip(result, exact, strict=True):
                    try:
                        if test == "default":
                            assert_close(actual, expected.to(actual.dtype))
                        else:
                            assert_close(
                                actual.double(), expected, **recommended
                            )
                        passed += 1
                    except AssertionError:
                        pass
                row[name] = {0: "fail", n_draws: "pass"}.get(
                    passed, "some pass"
                )
            rows.append(row)
    return rows, {"draws": n_draws}


def example_tolerance():
    def verdict(actual, expected, **tolerance):
        try:
            assert_close(actual, expected, **tolerance)
            return "passes"
        except AssertionError:
            return "fails"

    torch.manual_seed(0)
    eps = torch.finfo(torch.bfloat16).eps
    for size, n in ((1, 128), (8, 16)):
        drawn = torch.randn(3, 1, 2, n, 64)
        drawn[0] *= size
        q, k, v = drawn.bfloat16().unbind()  # (B, H, T, d) each
        exact = bare(q.double(), k.double(), v.double())
        largest = (q.double() @ k.mT.double() / 8).abs().max().item()
        tolerance = tolerances(q.dtype, largest)
        print(f"T = {n}, logits of standard deviation {size}")
        for name, scale in (("right", 1 / 8), ("scale 1 % off", 1.01 / 8)):
            output = flash(q, k, v, scale=scale)
            error = relative_error(output, exact)
            print(f"    {name}, defaults:", verdict(output, exact.bfloat16()))
            found = verdict(output.double(), exact, **tolerance)
            print(f"    {name}, recommended:", found)
            print(f"    {name}, relative error below eps/2:", error < eps / 2)


def example_derivatives():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 4, 8).double().unbind()  # (B, H, T, d) each
    q.requires_grad_()

    def twice(call):
        loss = call(q, k, v).square().sum()
        (first,) = torch.autograd.grad(loss, q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), q)[0]

    def forward_mode(call):
        # PyTorch's forward mode uses a part of PyTorch that is deprecated.
        with warnings.catch_warnings(action="ignore"):
            return torch.func.jvp(lambda q: call(q, k, v), (q,), (q,))[1]

    calls = {"default": F.scaled_dot_product_attention, "math": math_kernel}
    for derivative in (twice, forward_mode):
        for name, call in calls.items():
            print(f"{derivative.__name__}, {name}:", end=" ")
            try:
                off = (derivative(call) - derivative(ours)).abs().max()
                print("as `attention`, to within 1e-12:", bool(off < 1e-12))
            except RuntimeError as error:
                print(type(error).__name__)
                print("   ", str(error).splitlines()[0])


def example_agreement():
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 8, 16) for _ in "qkv")  # (B, H, T, d) each
    causal = torch.ones(8, 8, dtype=torch.bool).tril()  # (T, T)
    sdpa = F.scaled_dot_product_attention
    found = {}
    for name, difference in {
        "default": (ours(q, k, v) - sdpa(q, k, v)).abs().max(),
        "is_causal": (ours(q, k, v, causal) - sdpa(q, k, v, is_causal=True))
        .abs()
        .max(),
        "math": (ours(q, k, v) - math_kernel(q, k, v)).abs().max(),
        "kernels": (flash(q, k, v) - math_kernel(q, k, v)).abs().max(),
    }.items():
        assert difference < 2e-5
        found[name] = "bit for bit" if difference == 0 else "below 2e-05, not 0"
        print(f"{name:9}: {found[name]}")
    return found


def identity_layer(
    d_model: int, n_heads: int, dtype: torch.dtype
) -> nn.MultiheadAttention:
    """nn.MultiheadAttention whose four projections change nothing."""
    layer = nn.MultiheadAttention(d_model, n_heads, bias=False, dtype=dtype)
    eye = torch.eye(d_model)
    with torch.no_grad():
        layer.in_proj_weight.copy_(eye.repeat(3, 1))  # (3 C, C)
        layer.out_proj.weight.copy_(eye)
    return layer


def table_bitwise():
    rows = []
    for dtype in ("float64", "float32"):
        q, k, v = (
            x.view(2, 4, 32, 64)  # (B, H, T, d)
            for x in draw(DTYPES[dtype], n_draws=1)[:3]
        )
        q16, k16, v16 = (x[..., :16].contiguous() for x in (q, k, v))
        keep = torch.ones(32, 32, dtype=torch.bool).tril()
        bias = torch.zeros(32, 32, dtype=q.dtype).masked_fill(~keep, -math.inf)
        one, odd = q[:, :, :1], draw(DTYPES[dtype], 33, n_draws=2)[:3]
        sdpa = F.scaled_dot_product_attention

        def many(call: Callable[..., Tensor], x=(q, k, v)) -> Tensor:
            n = torch.get_num_threads()
            torch.set_num_threads(3 - min(n, 2))  # 2 for 1, 1 for more
            output = call(*x)
            torch.set_num_threads(n)
            return output

        def padded(q: Tensor, k: Tensor, v: Tensor, left: bool) -> Tensor:
            n = k.shape[2]
            keep = torch.arange(n + 3).roll(3 * left) < n  # False for 3 keys
            parts = ((x[:, :, :3] + 1, x)[:: 1 if left else -1] for x in (k, v))
            keys, values = (torch.cat(x, dim=2) for x in parts)
            return flash(q, keys, values, keep.expand(q.shape[2], n + 3))

        def layer(
            need_weights: bool, x=(q, k, v), d=64, dtype=q.dtype
        ) -> Tensor:
            narrow = (t[..., :d].permute(2, 0, 1, 3) for t in x)
            mixed = (t.flatten(2) for t in narrow)  # (T, B, C)
            module = identity_layer(4 * d, 4, dtype)
            output, _ = module(*mixed, need_weights=need_weights)
            return output.unflatten(-1, (4, d)).permute(1, 2, 0, 3)

        shared = k[:, :2], v[:, :2]
        repeated = (x.repeat_interleave(2, dim=1) for x in shared)
        blockwise = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        pairs = {
            "flash, run again": (flash(q, k, v), flash(q, k, v)),
            "flash, 32 queries, 1 thread and more": (
                flash(q, k, v),
                many(flash),
            ),
            "flash, one query, 1 thread and more": (
                flash(one, k, v),
                many(flash, (one, k, v)),
            ),
            "flash, an example alone and in its batch": (
                flash(q[:1], k[:1], v[:1]),
                flash(q, k, v)[:1],
            ),
            "math, an example alone and in its batch": (
                math_kernel(q[:1], k[:1], v[:1]),
                math_kernel(q, k, v)[:1],
            ),
            "flash, one query alone and with the others": (
                torch.cat([flash(x, k, v) for x in q.split(1, 2)], 2),
                flash(q, k, v),
            ),
            "math, one query alone and with the others": (
                torch.cat([math_kernel(x, k, v) for x in q.split(1, 2)], 2),
                math_kernel(q, k, v),
            ),
            "flash, 3 hidden keys after 32, and none": (
                padded(q, k, v, left=False),
                flash(q, k, v),
            ),
            "flash, 3 hidden keys after 33, and none": (
                padded(*odd, left=False),
                flash(*odd),
            ),
            "flash, 3 hidden keys before 32, and none": (
                padded(q, k, v, left=True),
                flash(q, k, v),
            ),
            "flash, boolean mask and 0 or −∞": (
                flash(q, k, v, keep),
                flash(q, k, v, bias),
            ),
            "flash, causal mask and `is_causal`": (
                flash(q, k, v, keep),
                sdpa(q, k, v, is_causal=True),
            ),
            "flash, grouped heads and repeated heads": (
                sdpa(q, *shared, enable_gqa=True),
                sdpa(q, *repeated),
            ),
            "flash, in memory as `(B, H, T, d)` and `(B, T, H, d)`": (
                flash(q, k, v),
                flash(*(x.transpose(1, 2) for x in blockwise)),
            ),
            "flash and math": (flash(q, k, v), math_kernel(q, k, v)),
            "math and `attention`, `d` = 16": (
                math_kernel(q16, k16, v16),
                ours(q16, k16, v16),
            ),
            "math and `attention`, `d` = 64": (
                math_kernel(q, k, v),
                ours(q, k, v),
            ),
            "`nn.MultiheadAttention` and bare, `d` = 64": (
                layer(True),
                bare(q, k, v),
            ),
            "`nn.MultiheadAttention` and bare, `d` = 32": (
                layer(True, d=32),
                bare(*(x[..., :32].contiguous() for x in (q, k, v))),
            ),
            "the same, `need_weights=False`, and flash, `d` = 64": (
                layer(False),
                flash(q, k, v),
            ),
        }
        for at, (name, (first, second)) in enumerate(pairs.items()):
            assert_close(first, second)
            if dtype == "float64":
                rows.append({"two outputs": name})
            same = torch.equal(first, second)
            rows[at][dtype] = "the same bits" if same else "differ"
    return rows


def example_layout():
    def attend(x, p):
        x = x.view(2, 8, 4, 16).transpose(1, 2)  # (B, H, T, d), a view
        return F.scaled_dot_product_attention(x, x, x, dropout_p=p)

    x = torch.randn(2, 8, 64)  # (B, T, C)
    for name, p in (("evaluation", 0.0), ("training", 0.1)):
        print(f"{name}: {kernel_of(functools.partial(attend, x, p))[0]}")
        heads = attend(x, p)  # (B, H, T, d)
        print(f"    strides {heads.stride()}")
        try:
            heads.transpose(1, 2).view(2, 8, 64)  # (B, T, C)
            print("    transpose(1, 2).view(B, T, C): merges")
        except RuntimeError as error:
            print(f"    transpose(1, 2).view(B, T, C): {type(error).__name__}")
        merged = heads.transpose(1, 2).flatten(2)  # (B, T, C)
        print("    transpose(1, 2).flatten(2):", tuple(merged.shape))


def recover_weights(call: Callable[[Tensor], Tensor], k: Tensor) -> Tensor:
    """Weights of an attention of which only the output can be had.

    Attention over one-hot values returns columns of the weights. The values
    are as wide as the keys, so that the same kernel runs.

    Parameters
    ----------
    call : function
        Takes values, shape (..., Tk, d), and gives the output, (..., Tq, d).
    k : Tensor, shape (..., Tk, d)
        The keys that the call attends to.

    Returns
    -------
    Tensor, shape (..., Tq, Tk)
    """
    *lead, n_keys, d = k.shape
    columns = []
    for start in range(0, n_keys, d):
        hot = torch.zeros(n_keys, d, dtype=k.dtype, device=k.device)
        hot[start : start + d].fill_diagonal_(1)
        columns.append(call(hot.expand(*lead, n_keys, d)))  # (..., Tq, d)
    return torch.cat(columns, dim=-1)[..., :n_keys]


def example_recover():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 100, 16).double().unbind()  # (B, H, T, d) each
    causal = torch.ones(100, 100, dtype=torch.bool).tril()
    calls = []

    def call(v):  # any call whose weights you want
        calls.append(v)
        return F.scaled_dot_product_attention(q, k, v, causal)

    weights = recover_weights(call, k)  # (B, H, Tq, Tk)
    exact = (q @ k.mT / 4).masked_fill(~causal, -math.inf).softmax(-1)
    assert (weights - exact).abs().max() < 1e-14
    print("kernel:", *kernel_of(lambda: call(k)))
    print("weights:", tuple(weights.shape), "equal to within 1e-14")
    print("calls:", len(calls) - 1, "for 100 keys of width 16")
    return {"calls": len(calls) - 1}


def example_groups():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 100, 16).double().unbind()  # (B, H, T, d) each
    positions = torch.arange(100).double()
    v = torch.zeros(1, 2, 100, 16).double()  # (B, H, Tk, d)
    v[..., 0] = positions < 1  # 1 for the first key
    v[..., 1] = positions >= 90  # 1 for the last ten
    v[..., 2] = positions
    output = F.scaled_dot_product_attention(q, k, v)  # (B, H, Tq, d)
    first, last, centre = output[0, 0, -1, :3].tolist()
    print(f"last query, first head: {first:.4f} on the first key,")
    print(f"{last:.3f} on the last ten, mean position {centre:.1f}")


def example_encoder_weights():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).double().eval()
    x = torch.randn(3, 4, 8).double()  # (B, T, C)
    _, first = encoder.layers[0].self_attn(x, x, x)  # (B, T, T), the mean
    found = []

    def keep(_module, _inputs, outputs):
        found.append(outputs[1])  # the weights, or None

    def ask(_module, inputs, options):
        asked = {"need_weights": True, "average_attn_weights": False}
        return inputs, options | asked

    for block in encoder.layers:
        block.self_attn.register_forward_hook(keep)
    with torch.no_grad():
        before = encoder(x)
    alone = found.copy()
    print("forward hook:", alone)
    found.clear()
    for block in encoder.layers:
        block.self_attn.register_forward_pre_hook(ask, with_kwargs=True)
    with torch.no_grad():
        after = encoder(x)
    shapes = [tuple(weights.shape) for weights in found]  # (B, H, T, T)
    print("forward hook and pre-hook:", shapes)
    assert torch.allclose(found[0].mean(1), first)  # mean over heads
    print("the output is the same:", torch.allclose(before, after))
    return {"alone": str(alone[0]), "shape": str(shapes[0])}


def example_encoder_bypass():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).eval()
    x = torch.randn(3, 4, 8)  # (B, T, C)
    own, calls = layer.self_attn, {}
    with patch.object(own, "forward", wraps=own.forward) as forward:
        for name, gradients, hooked in (
            ("gradients on", True, False),
            ("no_grad", False, False),
            ("no_grad, a hook on any submodule", False, True),
        ):
            if hooked:
                layer.norm1.register_forward_hook(lambda *_: None)
            forward.reset_mock()
            with torch.set_grad_enabled(gradients):
                layer(x)
            calls[name] = forward.call_count
            print(f"evaluated, {name}: self_attn ran {calls[name]} times")
    return {"bypassed": calls["no_grad"]}


def log_sum_exp(q: Tensor, k: Tensor) -> Tensor:
    """Log-sum-exp of each row of logits, from the built-in's output alone.

    A key of zeros has logit 0. Given the only value that is not 0, it gets a
    weight w with w / (1 - w) = exp(-lse). All of it is one call.

    Parameters
    ----------
    q : Tensor, shape (B, H, Tq, d)
        Queries.
    k : Tensor, shape (B, H, Tk, d)
        Keys.

    Returns
    -------
    Tensor, shape (B, H, Tq)
        In float32: inexact below -10 or above 95, -inf below about -16, where
        w rounds to 1, and inf above about 103, where w is 0.
    """
    k = F.pad(k, (0, 0, 0, 1))  # (B, H, Tk + 1, d)
    v = torch.zeros_like(k)
    v[..., -1, 0] = 1
    w = F.scaled_dot_product_attention(q, k, v)[..., 0]  # (B, H, Tq)
    return (1 - w).log() - w.log()


def example_log_sum_exp():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 100, 16).double().unbind()  # (B, H, T, d) each
    exact = (q @ k.mT / 4).logsumexp(-1)  # (B, H, Tq)
    private = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    _, kept = private(q, k, k)  # the kernel has it, and keeps it for backward
    for name, found in (("one more key", log_sum_exp(q, k)), ("private", kept)):
        assert (found - exact).abs().max() < 1e-12
        print(f"{name}: equal to within 1e-12")


def multi_head_cases() -> dict[
    str, tuple[nn.MultiheadAttention, tuple[Tensor, ...], dict[str, Any]]
]:
    """Name a case, and give a layer in evaluation, its inputs and options."""

    def layer(
        d_model: int = 16, n_heads: int = 4, **options: Any
    ) -> nn.MultiheadAttention:
        options = {"batch_first": True} | options
        return nn.MultiheadAttention(d_model, n_heads, **options).eval()

    x = torch.randn(2, 5, 16)  # (B, T, C)
    half = x.bfloat16()
    hides = torch.ones(5, 5, dtype=torch.bool).triu(1)  # True = may NOT attend
    padding = torch.zeros(2, 5, dtype=torch.bool)  # True = may NOT attend
    three = x[..., :15].contiguous()
    return {
        "`layer(x, x, x)`": (layer(), (x, x, x), {}),
        "in bfloat16": (layer(dtype=half.dtype), (half, half, half), {}),
        "`dropout=0.1` at construction": (layer(dropout=0.1), (x, x, x), {}),
        "boolean `attn_mask`": (layer(), (x, x, x), {"attn_mask": hides}),
        "boolean `key_padding_mask`": (
            layer(),
            (x, x, x),
            {"key_padding_mask": padding},
        ),
        "float `attn_mask`": (layer(), (x, x, x), {"attn_mask": hides * 1.0}),
        "`batch_first=False`": (layer(batch_first=False), (x, x, x), {}),
        "`bias=False`": (layer(bias=False), (x, x, x), {}),
        "three heads": (layer(15, 3), (three, three, three), {}),
        "`add_zero_attn=True`": (layer(add_zero_attn=True), (x, x, x), {}),
        "not batched, `(T, C)`": (layer(), (x[0],) * 3, {}),
        "three equal tensors": (layer(), (x, x.clone(), x.clone()), {}),
    }


def table_multi_head():
    short = {
        (): "matrix products",
        ("scaled_dot_product_flash_attention_for_cpu",): "flash",
        ("scaled_dot_product_attention_math",): "math",
        ("native_multi_head_attention",): "fast path",
    }
    first, *rest = cases = multi_head_cases().items()
    dropping = next(case for case in cases if "dropout" in case[0])
    ordered = [("evaluation", first), ("evaluation, gradients on", first)]
    ordered += [("training", first), ("training", dropping)]
    ordered += [("evaluation", case) for case in rest]
    rows = []
    for mode, (name, (layer, inputs, options)) in ordered:
        layer.train(mode == "training")
        row = {"mode": mode, "call": name}
        for need_weights in (True, False):
            options["need_weights"] = need_weights
            with torch.set_grad_enabled(mode != "evaluation"):
                ran = kernel_of(functools.partial(layer, *inputs, **options))
            row[f"`need_weights={need_weights}`"] = short[tuple(ran)]
        rows.append(row)
    return rows


def table_padded():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 5, 16)  # (B, T, C)
    padding = torch.zeros(2, 5, dtype=torch.bool)  # True = may NOT attend
    padding[1] = True  # an example that is nothing but padding
    rows = []
    for mode, fast in (
        ("training", True),
        ("evaluation", True),
        ("evaluation, fast path switched off", False),
    ):
        layer.train(mode == "training")
        torch.backends.mha.set_fastpath_enabled(fast)
        row = {"mode": mode}
        for need_weights in (True, False):
            with torch.set_grad_enabled(mode == "training"):
                output, _ = layer(
                    x,
                    x,
                    x,
                    key_padding_mask=padding,
                    need_weights=need_weights,
                )
            nans = output.isnan().any(-1).sum(-1).tolist()  # of 5 rows each
            assert nans in ([0, 0], [0, 5])
            row[f"`need_weights={need_weights}`"] = (
                "NaN" if nans[1] else "finite"
            )
        rows.append(row)
    torch.backends.mha.set_fastpath_enabled(True)
    return rows


def example_train_eval():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 5, 16)  # (B, T, C)
    trained, _ = layer.train()(x, x, x)
    with torch.no_grad():
        evaluated, weights = layer.eval()(x, x, x)
        _, each = layer(x, x, x, average_attn_weights=False)
    assert (trained - evaluated).abs().max() < 1e-5
    print("training and evaluation: equal to within 1e-05")
    print("weights:", tuple(weights.shape))  # (B, T, T), averaged over heads
    print("average_attn_weights=False:", tuple(each.shape))  # (B, H, T, T)
    assert (each.mean(1) - weights).abs().max() < 1e-5
    print("their mean over heads: the default, to within 1e-05")


def example_fast_path():
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    x = torch.randn(2, 5, 16)  # (B, T, C)
    cpu = [ProfilerActivity.CPU]
    with torch.no_grad(), profile(activities=cpu, record_shapes=True) as seen:
        layer(x, x, x, need_weights=False)
    for event in seen.events():
        if event.name in ("aten::bmm", "aten::_softmax"):
            print(event.name, *event.input_shapes[:2])


def table_nested():
    rows = []
    for name, heads, changed in (
        ("`batch_first=True`", 2, {}),
        ("`batch_first=False`, the default", 2, {"batch_first": False}),
        ("`norm_first=True`", 2, {"norm_first": True}),
        ("an odd number of heads", 1, {}),
        ("`bias=False`", 2, {"bias": False}),
        ('`activation="gelu"`', 2, {"activation": "gelu"}),
        ("another activation", 2, {"activation": F.silu}),
    ):
        options = {"batch_first": True, **changed}
        layer = nn.TransformerEncoderLayer(8, heads, 16, 0.0, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            nn.TransformerEncoder(layer, 2)
        said = [str(w.message).partition(" because ")[2] for w in caught]
        because = f"`{said[0]}`" if said else "no warning"
        rows.append({"layer": name, "the warning, after *because*": because})
    return rows


def example_nested():
    torch.manual_seed(0)
    options = {"batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, **options).double()
    x = torch.randn(2, 4, 8).double()  # (B, T, C)
    hidden = torch.arange(4) >= torch.tensor([[4], [2]])  # True = padding
    outputs = []
    for nested in ({}, {"enable_nested_tensor": False}):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            encoder = nn.TransformerEncoder(layer, 2, **nested).eval()
        print(nested, "warnings:", len(caught))
        with torch.no_grad():
            outputs.append(encoder(x, src_key_padding_mask=hidden))
    print("the output is the same:", torch.equal(*outputs))


def example_batch_first():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16)  # meant as (B, T, C)
    for batch_first in (False, True):
        layer = nn.MultiheadAttention(16, 4, batch_first=batch_first).eval()
        together, weights = layer(x, x, x)
        alone, _ = layer(x[:1], x[:1], x[:1])
        same = torch.allclose(together[:1], alone, atol=1e-5)
        print(f"batch_first={batch_first}: weights {tuple(weights.shape)},")
        print(f"    the first example alone gets the same: {same}")


def example_scale():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 8, 64).double().unbind()  # (B, H, T, d)
    sdpa = F.scaled_dot_product_attention
    off = {
        "default": (sdpa(q, k, v), (q @ k.mT / 8).softmax(-1) @ v),
        "scale=1.0": (sdpa(q, k, v, scale=1.0), (q @ k.mT).softmax(-1) @ v),
    }
    for name, (built_in, by_hand) in off.items():
        assert (built_in - by_hand).abs().max() < 1e-13
        print(f"{name}: equal to the formula to within 1e-13")

    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)  # QK normalisation
    for name, scale in (("default", None), ("1.0", 1.0), ("10.0", 10.0)):
        output = sdpa(q, k, torch.eye(8, 64).double().expand_as(v), scale=scale)
        peak = output.amax(-1).mean()  # the largest of 8 weights
        print(f"unit q and k, scale {name}: mean largest weight {peak:.3f}")
    built_in, by_hand = off["scale=1.0"]
    return {"off": (built_in - by_hand).abs().max().item()}


def example_question_kernel():
    q = torch.randn(1, 8, 6, 64)  # (B, H, T, d)
    k = v = torch.randn(1, 1, 6, 64)  # one head for all queries
    sdpa = F.scaled_dot_product_attention
    print("broadcast:", *kernel_of(lambda: sdpa(q, k, v)))
    print("expanded:", *kernel_of(lambda: sdpa(q, *(k.expand_as(q),) * 2)))
    print("grouped:", *kernel_of(lambda: sdpa(q, k, v, enable_gqa=True)))


def example_question_bits():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 32, 64) for _ in "qkv")  # (B, H, T, d) each
    same = math_kernel(q, k, v).equal(ours(q, k, v))
    print("d = 64:", same)
    print("√(1/16) and √(1/64) in float32:", 16**-0.25, 64**-0.25)
