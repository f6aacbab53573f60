"""What the page on what attention costs runs."""

from collections.abc import Callable
from dataclasses import replace

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.autograd import profiler_legacy
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from snippets.attention import attention
from snippets.costs import (
    Layer,
    attention_operations,
    cache_bytes,
    crossover_length,
    matrix_bytes,
    moved_bytes,
    parameters,
    projection_operations,
)

# Sizes, layers and the length that is kept, from the sources of the page.
MODELS = {
    "GPT-2 small": (
        Layer(d_model=768, n_heads=12, n_kv_heads=12, d_k=64, bias=True),
        12,
        1024,
    ),
    "Llama 2 7B": (
        Layer(d_model=4096, n_heads=32, n_kv_heads=32, d_k=128, bias=False),
        32,
        4096,
    ),
    "Llama 3 8B": (
        Layer(d_model=4096, n_heads=32, n_kv_heads=8, d_k=128, bias=False),
        32,
        8192,
    ),
    "Mistral 7B": (
        Layer(d_model=4096, n_heads=32, n_kv_heads=8, d_k=128, bias=False),
        32,
        4096,
    ),
}


def figure_cost() -> Figure:
    """Operations of a layer for each token, by the length, on logarithmic axes.

    For each of two widths C, a level dashed line for the projections and a
    solid line for attention that rises in proportion to the length T. They
    cross at a dot at T = 2C, 2048 for the width 1024 and 8192 for 4096.
    """
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    lengths = [2**power for power in range(7, 18)]
    for n_heads, offset, side in (
        (8, (9, -15), "left"),
        (32, (-6, 6), "right"),
    ):
        layer = Layer(
            d_model=128 * n_heads,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_k=128,
            bias=False,
        )
        products = [attention_operations(layer, n, n) / n for n in lengths]
        (line,) = axes.plot(lengths, products)
        level, crossing = (
            projection_operations(layer, 1),
            crossover_length(layer),
        )
        colour = line.get_color()
        axes.plot(lengths, [level] * len(lengths), "--", color=colour)
        axes.plot(crossing, level, "o", color=colour)
        for text, place, shift, align in (
            (f"C = {layer.d_model}", (128, level), (0, 5), "left"),
            (f"T = {crossing:g}", (crossing, level), offset, side),
            ("projections", (lengths[-1], level), (5, -4), "left"),
            ("attention", (lengths[-1], products[-1]), (5, -4), "left"),
        ):
            axes.annotate(
                text,
                place,
                shift,
                textcoords="offset points",
                ha=align,
                color=colour,
            )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks([128, 1024, 8192, 65536], ["128", "1024", "8192", "65536"])
    axes.set(xlabel="length T", ylabel="operations a token")
    return figure


def example_layer():
    layer = Layer(d_model=768, n_heads=12, n_kv_heads=12, d_k=64, bias=True)
    width, n = 768, 1024  # C and T
    products = attention_operations(layer, n, n)
    causal = attention_operations(layer, n, n, causal=True)
    found = {
        "parameters": parameters(layer),
        "operations of the projections": projection_operations(layer, n),
        "operations of attention": products,
        "of these, for causal pairs": causal,
        "bytes of the parameters": 4 * parameters(layer),
        "bytes of the input, (T, C)": 4 * n * width,
        "bytes of the weights, (H, T, T)": matrix_bytes(
            layer, n, n, torch.float32
        ),
    }
    for name, number in found.items():
        print(f"{name:31} {number:13,}")
    print(f"attention costs more from T = {crossover_length(layer):g} on")

    assert parameters(layer) == 4 * width**2 + 4 * width
    assert projection_operations(layer, n) == 8 * n * width**2
    assert products == 4 * n**2 * width


def example_counter():
    layer = Layer(d_model=1024, n_heads=16, n_kv_heads=16, d_k=64, bias=True)
    module = nn.MultiheadAttention(1024, 16, batch_first=True, device="meta")
    assert parameters(layer) == sum(p.numel() for p in module.parameters())

    aten = torch.ops.aten
    print("   T     projections       attention   attention / projections")
    for n in (512, 1024, 2048, 4096):
        x = torch.empty(1, n, 1024, device="meta")  # (B, T, C), shapes only
        with FlopCounterMode(display=False) as counter:
            module(x, x, x, need_weights=False)
        counts = counter.get_flop_counts()["Global"]
        projections, products = counts[aten.addmm], counts[aten.bmm]
        assert projections == projection_operations(layer, n)
        assert products == attention_operations(layer, n, n)
        ratio = products / projections
        print(f"{n:4} {projections:15,} {products:15,} {ratio:8.2f}")
    return {"width": layer.d_model, "crossover": crossover_length(layer)}


def example_block():
    width = 256
    block = nn.TransformerEncoderLayer(
        width, 4, dim_feedforward=4 * width, batch_first=True, device="meta"
    )
    for times in (2, 6):
        x = torch.empty(1, times * width, width, device="meta")  # (B, T, C)
        with FlopCounterMode(display=False) as counter:
            block(x)
        counts = counter.get_flop_counts()["Global"]
        ratio = counts[torch.ops.aten.bmm] / counts[torch.ops.aten.addmm]
        print(f"T = {times}C: attention / linear layers = {ratio:.2f}")


def count(run: Callable[[], object], formulas=None) -> int:
    """Floating-point operations of run(), by PyTorch's counter."""
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        run()
    return counter.get_total_flops()


def cpu_formulas():
    """What the counter of PyTorch 2.13 lacks: the fused kernel of the CPU."""
    aten = torch.ops.aten
    forward = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return {
        forward: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
        backward: lambda gradient, q, k, v, *_, **__: sdpa_backward_flop_count(
            gradient, q, k, v
        ),
    }


def table_counted():
    sdpa, heads, n, d = F.scaled_dot_product_attention, 4, 64, 16
    width = heads * d
    q = torch.zeros(1, heads, n, d, device="cpu", requires_grad=True)
    x = torch.zeros(1, n, width, device="cpu")  # (B, T, C)
    module = nn.MultiheadAttention(width, heads, batch_first=True, device="cpu")
    module.eval()

    def math(causal=False):
        with sdpa_kernel(SDPBackend.MATH):
            return sdpa(q, q, q, is_causal=causal)

    def fused():
        return sdpa(q, q, q)

    def inference():
        with torch.no_grad():
            module(x, x, x, need_weights=False)

    layer = Layer(
        d_model=width, n_heads=heads, n_kv_heads=heads, d_k=d, bias=True
    )
    attends = attention_operations(layer, n, n)
    whole = attends + projection_operations(layer, n)
    added = cpu_formulas()
    calls = {
        "math": ("SDPA, math path", attends, math),
        "causal": ("… `is_causal=True`", attends, lambda: math(True)),
        "both": ("… backward, too", attends, lambda: math().sum().backward()),
        "fused": ("SDPA, fused on the CPU", attends, fused),
        "added": ("… formula added", attends, fused, added),
        "five": (
            "… backward, too",
            attends,
            lambda: fused().sum().backward(),
            added,
        ),
        "module": ("`nn.MultiheadAttention`", whole, lambda: module(x, x, x)),
        "fast": ("… in `no_grad`", whole, inference),
    }
    rows, values = [], {}
    for key, (name, expected, *how) in calls.items():
        values[key] = count(*how) / expected
        rows.append({"call": name, "counted / formula": f"{values[key]:.1f}"})
    return rows, values


def multiplied(
    call: Callable[..., Tensor], length: int, n_probes: int = 8
) -> float:
    """Share of all (query, key) pairs in which call multiplies the value.

    A NaN in a value reaches every query that multiplies it, with whatever
    weight: 0 · NaN is NaN. So one value in each example is spoilt, at evenly
    spaced keys, and the outputs that became NaN are counted.
    """
    q, k = torch.zeros(2, n_probes, 1, length, 8, device="cpu").unbind()
    v = torch.zeros_like(q)  # (B, H, T, d)
    for example in range(n_probes):
        v[example, :, example * length // n_probes] = torch.nan
    return call(q, k, v).isnan().any(-1).double().mean().item()


def table_causal():
    sdpa = F.scaled_dot_product_attention

    def flag(q, k, v):
        return sdpa(q, k, v, is_causal=True)

    def mask(q, k, v):
        n = q.shape[-2]
        causal = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
        return sdpa(q, k, v, causal)

    def math(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return sdpa(q, k, v, is_causal=True)

    rows, values = [], {"whole_until": 0}
    for n in (256, 512, 1024, 2048):
        shares = {
            call.__name__: multiplied(call, n) for call in (flag, mask, math)
        }
        rows.append(
            {
                "T": n,
                "left by the mask": f"{(n + 1) / (2 * n):.1%}",
                "fused, `is_causal=True`": f"{shares['flag']:.1%}",
                "fused, boolean mask": f"{shares['mask']:.1%}",
                "math path, `is_causal=True`": f"{shares['math']:.1%}",
            }
        )
        values[f"flag_{n}"] = shares["flag"]
        values[f"unmasked_{n}"] = multiplied(sdpa, n)
        if shares["flag"] == 1:
            values["whole_until"] = n
    return rows, values


def table_matrix():
    layer = MODELS["Llama 3 8B"][0]
    rows, elements = [], {}
    for n in (1024, 2048, 4096, 8192, 131_072):
        # (B, H, T, d), on a device that holds shapes only
        q = torch.empty(1, 32, n, 128, dtype=torch.bfloat16, device="meta")
        weights = attention(q, q, q)[1]  # (B, H, T, T)
        assert weights.nbytes == matrix_bytes(layer, n, n, torch.bfloat16)
        elements[n] = weights.numel()
        rows.append(
            {
                "T": f"{n:,}",
                "weights of a head": f"{n**2:,}",
                "of 32 heads": f"{weights.nbytes / 2**20:,.0f} MiB",
                "their queries": f"{q.nbytes / 2**20:,.0f} MiB",
            }
        )
    return rows, {
        "growth": elements[2048] / elements[1024],
        "longest": n,
        "tebibytes": weights.nbytes / 2**40,
    }


def largest_allocation(run: Callable[[], object]) -> int:
    """Bytes of the largest block that PyTorch allocates on the CPU in run().

    ``torch.profiler`` with ``profile_memory=True`` says the same; this older
    one does not write to the standard error stream.
    """
    with profiler_legacy.profile(profile_memory=True) as profile:
        run()
    return max(event.self_cpu_memory_usage for event in profile.function_events)


def memory_calls(heads, length):
    """Calls of attention over one sequence, by key, each with its name."""
    q = torch.zeros(1, heads, length, 8, device="cpu")  # (B, H, T, d)
    leaf = q.clone().requires_grad_()
    x = torch.zeros(1, length, heads * 8, device="cpu")  # (B, T, C)
    mask = torch.ones(length, length, dtype=torch.bool, device="cpu")
    module = nn.MultiheadAttention(
        heads * 8, heads, batch_first=True, device="cpu"
    )
    sdpa = F.scaled_dot_product_attention

    def math():
        with sdpa_kernel(SDPBackend.MATH):
            sdpa(q, q, q)

    return {
        "math": ("SDPA, math path", math),
        "fused": ("SDPA, fused", lambda: sdpa(q, q, q)),
        "causal": (
            "… `is_causal=True`",
            lambda: sdpa(q, q, q, is_causal=True),
        ),
        "training": (
            "… backward, too",
            lambda: sdpa(leaf, q, q).sum().backward(),
        ),
        "masked": ("… boolean mask `(T, T)`", lambda: sdpa(q, q, q, mask)),
        "module": ("`nn.MultiheadAttention`", lambda: module(x, x, x)),
        "lean": (
            "… `need_weights=False`",
            lambda: module(x, x, x, need_weights=False),
        ),
    }


def table_memory():
    heads, n = 2, 2048
    sizes = {
        4 * heads * n**2: "the weights, `(H, T, T)`",
        4 * n**2: "the mask as float32, `(T, T)`",
    }
    half = memory_calls(heads, n // 2)
    rows, values = [], {}
    for key, (name, call) in memory_calls(heads, n).items():
        largest = largest_allocation(call)
        values[key] = largest / largest_allocation(half[key][1])
        rows.append(
            {
                "call": name,
                "largest block": sizes.get(largest, "scratch space"),
                "at twice the length": f"× {values[key]:.1f}",
            }
        )
    return rows, values


def table_phases():
    shared = MODELS["Llama 3 8B"][0]
    apart = replace(shared, n_kv_heads=shared.n_heads)
    n, dtype = 4096, torch.bfloat16
    rows, values = [], {"length": n}
    for key, name, layer, n_queries, batch in (
        ("prefill", "prefill, one sequence", shared, n, 1),
        ("decode", "decode, one sequence", shared, 1, 1),
        ("batch", "decode, 64 sequences", shared, 1, 64),
        ("apart", "… with 32 key and value heads", apart, 1, 64),
    ):
        n_tokens = batch * n_queries
        operations = projection_operations(layer, n_tokens)
        operations += batch * attention_operations(
            layer, n_queries, n, causal=True
        )
        moved = moved_bytes(layer, n_queries, n, dtype, batch=batch)
        values[key] = operations / moved
        read = cache_bytes(layer, 1, n, dtype)
        values[f"cache_{key}"] = attention_operations(layer, 1, n) / read
        rows.append(
            {
                "step": name,
                "operations a token": f"{operations / n_tokens / 1e6:.0f} M",
                "bytes a token": f"{moved / n_tokens / 1e6:.2f} M",
                "operations a byte": f"{values[key]:,.1f}",
            }
        )
    return rows, values


def table_models():
    rows, values = [], {}
    for name, (layer, n_layers, length) in MODELS.items():
        token = cache_bytes(layer, n_layers, 1, torch.bfloat16)
        whole = cache_bytes(layer, n_layers, length, torch.bfloat16)
        rows.append(
            {
                "model": name.replace(" ", "\N{NO-BREAK SPACE}"),
                "layers": n_layers,
                "query heads": layer.n_heads,
                "key and value heads": layer.n_kv_heads,
                "d_k": layer.d_k,
                "a token": f"{token / 2**10:g}\N{NO-BREAK SPACE}KiB",
                "length": f"{length:,}",
                "cache": f"{whole / 2**20:,g}\N{NO-BREAK SPACE}MiB",
            }
        )
        key = name.lower().replace(" ", "_").replace("-", "_")
        values[key] = token / 2**10
    return rows, values


def example_question_shared():
    layer = Layer(d_model=4096, n_heads=32, n_kv_heads=8, d_k=128, bias=False)
    n = round(crossover_length(layer))
    equal = attention_operations(layer, n, n) == projection_operations(layer, n)
    print(f"T = {n}, equal: {equal}")


def example_question_fit():
    layer = Layer(d_model=4096, n_heads=32, n_kv_heads=8, d_k=128, bias=False)
    for n_kv_heads in (8, 32):
        sizes = replace(layer, n_kv_heads=n_kv_heads)
        one = cache_bytes(sizes, 32, 8192, torch.bfloat16)
        print(f"{n_kv_heads:2} key and value heads: {16 * 2**30 // one} fit")
