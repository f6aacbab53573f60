"""What the museum's room of masks runs: masks, empty rows, causal flags."""

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention.bias import causal_lower_right

from snippets.attention import attention

# What every entry is measured with


def apart(a: Tensor, b: Tensor) -> float:
    """Largest difference of two tensors of one shape; NaN where either is."""
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def amount(error: float) -> str:
    """NaN, or two decimals, or that float64 explains it."""
    if math.isnan(error):
        return "NaN"
    return "below 1e-12" if error < 1e-12 else f"{error:.2f}"


def outcome(call: Callable[[], Tensor]) -> str:
    """Whether a call runs, or what it raises."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return type(error).__name__
    return "runs"


def nan_rows(x: Tensor) -> int:
    """How many rows hold a NaN."""
    return int(x.isnan().any(-1).sum())


# A query without a key


def wrong_empty(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    logits = logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1) @ v  # (..., Tq, dv)


def right_empty(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    empty = ~mask.any(-1, keepdim=True)  # (..., Tq, 1)
    logits = logits.masked_fill(~mask & ~empty, -math.inf)
    weights = logits.softmax(-1).masked_fill(empty, 0)  # (..., Tq, Tk)
    return weights @ v  # (..., Tq, dv)


def example_empty():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 6, 8).double().unbind()  # (H, T, d) each
    real = torch.arange(6) >= 2  # (T,): two places of padding on the left
    mask = torch.ones(6, 6).bool().tril() & real  # True = may attend
    print("queries without a key:", int((~mask.any(-1)).sum()), "of 6")
    found = {}
    for name, run in (("wrong", wrong_empty), ("right", right_empty)):
        output = run(q, k, v, mask)  # (H, T, d)
        error = found[name] = apart(output, attention(q, k, v, mask)[0])
        rows = nan_rows(output[0])
        print(f"{name}: error {amount(error)}, rows of NaN {rows}")
    rows = nan_rows(F.scaled_dot_product_attention(q, k, v, mask)[0])
    print(f"the built-in: rows of NaN {rows}")
    layer = nn.MultiheadAttention(16, 2, batch_first=True).double()
    x = torch.randn(1, 6, 16).double()  # (B, T, C)
    for need in (True, False):
        output = layer(x, x, x, attn_mask=~mask, need_weights=need)[0]
        rows = found[f"layer_{need}"] = nan_rows(output[0])
        print(f"the layer, need_weights={need}: rows of NaN {rows}")
    return found


# The same, repaired too late


def wrong_repair(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    bias = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    output = (logits + bias).softmax(-1) @ v  # (..., Tq, dv)
    return output.nan_to_num(0.0)


def example_repair():
    torch.manual_seed(0)
    inputs = torch.randn(3, 6, 8).double().unbind()  # (T, d) each
    real = torch.arange(6) >= 2  # (T,): two places of padding on the left
    mask = torch.ones(6, 6).bool().tril() & real  # True = may attend

    def gradients(run):
        q, k, v = (x.clone().requires_grad_() for x in inputs)
        output = run(q, k, v, mask)  # (T, d)
        loss = output[real].square().sum()  # the padding is left out
        return torch.stack(torch.autograd.grad(loss, (q, k, v)))

    expected = gradients(lambda *given: attention(*given)[0])
    found = {}
    for name, run in (("wrong", wrong_repair), ("right", right_empty)):
        forward = apart(run(*inputs, mask), attention(*inputs, mask)[0])
        error = found[name] = apart(gradients(run), expected)
        print(f"{name}: outputs {amount(forward)}, gradients {amount(error)}")
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = inputs[0][None]  # (B, T, C)
    for need in (True, False):
        output = layer(x, x, x, attn_mask=~mask, need_weights=need)[0]
        weight = layer.in_proj_weight
        (gradient,) = torch.autograd.grad(output[0, real].sum(), weight)
        nans = found[f"layer_{need}"] = nan_rows(gradient)
        print(f"the layer, need_weights={need}: {nans} rows of 24 are NaN")
    return found


# NaN that passes from layer to layer


def wrong_layers(x: Tensor, real: Tensor, depth: int) -> Tensor:
    mask = real[:, :, None] & real[:, None]  # (B, T, T), queries hidden, too
    for _ in range(depth):
        x = wrong_empty(x, x, x, mask)  # (B, T, C)
    return x


def right_layers(x: Tensor, real: Tensor, depth: int) -> Tensor:
    mask = real[:, None]  # (B, 1, T): hides keys, never queries
    for _ in range(depth):
        x = wrong_empty(x, x, x, mask)  # (B, T, C)
    return x


def example_layers():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 8).double()  # (B, T, C)
    real = torch.arange(5) < torch.tensor([[5], [4]])  # (B, T)
    alone = x[1:, :4]  # the second sequence without its padding
    for _ in range(2):
        alone, _ = attention(alone, alone, alone)  # (1, 4, C)
    found = {}
    for name, run in (("wrong", wrong_layers), ("right", right_layers)):
        rows = [nan_rows(run(x, real, depth)[1]) for depth in (1, 2)]
        error = found[name] = apart(run(x, real, 2)[1:, :4], alone)
        print(f"{name}: NaN rows after layers 1 and 2: {rows} of 5,", end=" ")
        print(f"error {amount(error)}")
    return found


# Padding that was never written


def wrong_padding(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    mask = real[:, None, None]  # (B, 1, 1, Tk), True = may attend
    return F.scaled_dot_product_attention(q, k, v, mask)  # (B, H, Tq, dv)


def right_padding(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    unwritten = ~real[:, None, :, None]  # (B, 1, Tk, 1)
    k, v = (x.masked_fill(unwritten, 0) for x in (k, v))  # (B, H, Tk, d)
    mask = real[:, None, None]  # (B, 1, 1, Tk), True = may attend
    return F.scaled_dot_product_attention(q, k, v, mask)  # (B, H, Tq, dv)


def example_padding():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().unbind()  # (B, H, T, d)
    real = torch.arange(5)[None] < 3  # (B, T): the last two are padding
    expected = F.scaled_dot_product_attention(q, k[:, :, :3], v[:, :, :3])
    found = {}
    for content in (0.0, 1e30, math.nan):
        full = k.clone(), v.clone()
        for x in full:
            x[:, :, 3:] = content  # what torch.empty may hold
        for name, run in (("wrong", wrong_padding), ("right", right_padding)):
            error = found[name] = apart(run(q, *full, real), expected)
            print(f"{name}, the padding holds {content:g}: {amount(error)}")
    multiplied = (math.nan * real[:, None, :, None]).isnan().all()
    print("multiplied by 0, NaN is still NaN:", bool(multiplied))
    return found | {"word": amount(found["wrong"])}


# The mask upside down


def wrong_polarity(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = q.shape[-2]
    future = torch.ones(t, t).bool().triu(1)  # (T, T), True = hidden
    return F.scaled_dot_product_attention(q, k, v, attn_mask=future)


def right_polarity(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = q.shape[-2]
    future = torch.ones(t, t).bool().triu(1)  # (T, T), True = hidden
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~future)


def example_polarity():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().unbind()  # (B, H, T, d)
    past = torch.ones(5, 5).bool().tril()
    expected, _ = attention(q, k, v, past)
    found = {}
    for name, run in (("wrong", wrong_polarity), ("right", right_polarity)):
        output = run(q, k, v)  # (B, H, T, d)
        error = found[name] = apart(output, expected)
        first = torch.allclose(output[..., 0, :], v[..., 0, :])
        print(f"{name}: error {amount(error)},", end=" ")
        print("the first output is the first value:", first)
    return found


# A padding mask on the axis of the queries


def wrong_axis(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, Tq, Tk)
    hidden = ~real.unsqueeze(1).unsqueeze(3)  # (B, 1, T, 1)!
    return logits.masked_fill(hidden, -1e9).softmax(-1) @ v


def right_axis(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, Tq, Tk)
    hidden = ~real.unsqueeze(1).unsqueeze(2)  # (B, 1, 1, Tk)
    return logits.masked_fill(hidden, -math.inf).softmax(-1) @ v


def example_axis():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 5, 8).double().unbind()  # (B, H, T, d)
    real = torch.arange(5) < torch.tensor([[5], [3]])  # (B, T)
    alone, _ = attention(q[1, :, :3], k[1, :, :3], v[1, :, :3])  # (H, 3, d)
    found = {}
    for name, run in (("wrong", wrong_axis), ("right", right_axis)):
        error = found[name] = apart(run(q, k, v, real)[1, :, :3], alone)
        print(f"{name}: in the batch and alone, apart: {amount(error)}")
    both = real[:, None, :, None] & real[:, None, None]  # (B, 1, T, T)
    error = apart(right_empty(q, k, v, both)[1, :, :3], alone)
    print(f"padded queries hidden, too: {amount(error)}")
    return found


# Another sequence's mask


def wrong_heads(
    layer: nn.MultiheadAttention, x: Tensor, mask: Tensor
) -> Tensor:
    each = mask.repeat(layer.num_heads, 1, 1)  # (B, T, T) -> (H · B, T, T)!
    return layer(x, x, x, attn_mask=each, need_weights=False)[0]


def right_heads(
    layer: nn.MultiheadAttention, x: Tensor, mask: Tensor
) -> Tensor:
    each = mask.repeat_interleave(layer.num_heads, dim=0)  # (B · H, T, T)
    return layer(x, x, x, attn_mask=each, need_weights=False)[0]


def example_heads():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = torch.randn(3, 4, 8).double()  # (B, T, C)
    mask = torch.zeros(3, 4, 4).bool()  # (B, T, T), True = hidden
    mask[1, :, 2:] = mask[2, :, 3:] = True  # padding
    alone = torch.cat(
        [
            layer(y, y, y, attn_mask=m, need_weights=False)[0]
            for y, m in zip(x.split(1), mask, strict=True)
        ]
    )  # (B, T, C)
    found = {}
    for name, run in (("wrong", wrong_heads), ("right", right_heads)):
        error = found[name] = apart(run(layer, x, mask), alone)
        print(f"{name}: in the batch and alone, apart: {amount(error)}")
    numbers = torch.arange(3)  # one a sequence
    print("2 heads each read, wrong:", numbers.repeat(2).tolist())
    print("2 heads each read, right:", numbers.repeat_interleave(2).tolist())
    return found


# Zeros and ones that are added


def wrong_numbers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = q.shape[-2]
    mask = torch.ones(t, t, dtype=q.dtype).tril()  # 1 = may attend
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def right_numbers(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    t = q.shape[-2]
    mask = torch.ones(t, t, dtype=torch.bool).tril()  # True = may attend
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def example_numbers():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().unbind()  # (B, H, T, d)
    past = torch.ones(5, 5).bool().tril()
    expected, _ = attention(q, k, v, past)
    identity = torch.eye(5).double().expand(1, 2, 5, 5)  # gives the weights
    found = {}
    for name, run in (("wrong", wrong_numbers), ("right", right_numbers)):
        error = found[name] = apart(run(q, k, v), expected)
        future = (run(q, k, identity) * ~past).sum(-1).max().item()
        print(f"{name}: error {amount(error)}, weight on the future", end=" ")
        print(f"up to {future:.2f}")
    for dtype in (torch.int64, torch.uint8):
        does = found[f"{dtype}"[6:]] = outcome(
            lambda d=dtype: F.scaled_dot_product_attention(q, k, v, past.to(d))
        )
        print(f"{dtype}: {does}")
    return found


# A mask in another precision


def wrong_dtype(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    half = torch.zeros(mask.shape, dtype=torch.float16)
    half = half.masked_fill(~mask, -math.inf)  # (Tq, Tk)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=half)


def right_dtype(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def example_dtype():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).bfloat16().unbind()  # (B, H, T, d)
    past = torch.ones(5, 5).bool().tril()
    found = {}
    for name, run in (("wrong", wrong_dtype), ("right", right_dtype)):
        found[name] = outcome(lambda f=run: f(q, k, v, past))
        print(f"{name}, queries in bfloat16: {found[name]}")
    single = torch.zeros(5, 5).masked_fill(~past, -math.inf)  # (T, T)

    def autocast(need_weights):
        layer = nn.MultiheadAttention(16, 2, batch_first=True)
        x = torch.randn(1, 5, 16)  # (B, T, C)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x, x, x, attn_mask=single, need_weights=need_weights)[
                0
            ]

    for name, call in {
        "a float32 mask": lambda: F.scaled_dot_product_attention(
            q, k, v, single
        ),
        "the layer under autocast": lambda: autocast(False),
        "the same with weights": lambda: autocast(True),
    }.items():
        found[name.replace(" ", "_")] = outcome(call)
        print(f"{name}: {outcome(call)}")
    return found


# A bias that evaluation reads as a mask


def wrong_bias(
    layer: nn.TransformerEncoderLayer, x: Tensor, bias: Tensor
) -> Tensor:
    layer.eval()
    with torch.no_grad():
        return layer(x, src_mask=bias)  # (B, T, C)


def right_bias(
    layer: nn.TransformerEncoderLayer, x: Tensor, bias: Tensor
) -> Tensor:
    layer.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            return layer(x, src_mask=bias)  # (B, T, C)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def example_bias():
    torch.manual_seed(0)
    options = {"dropout": 0, "batch_first": True, "dtype": torch.float64}
    layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
    x = torch.randn(2, 5, 16).double()  # (B, T, C)
    place = torch.arange(5.0).double()
    bias = -(place[:, None] - place).abs()  # (T, T), nearer keys are favoured
    trained = layer.train()(x, src_mask=bias)
    found = {}
    for name, run in (("wrong", wrong_bias), ("right", right_bias)):
        error = found[name] = apart(run(layer, x, bias), trained)
        print(f"{name}: evaluated and trained, apart: {amount(error)}")
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    padding = torch.arange(5) >= torch.tensor([[5], [3]])  # (B, T), hidden
    additive = torch.zeros(2, 5).double().masked_fill(padding, -math.inf)
    for name, training in (("trained", True), ("evaluated", False)):
        encoder.train(training)
        with torch.set_grad_enabled(training):
            a, b = (
                encoder(x, src_key_padding_mask=p)[~padding]
                for p in (padding, additive)
            )
        print(f"padding as booleans, as -inf, {name}: {amount(apart(a, b))}")
    return found


# Two kinds of mask in one call


def wrong_mixed(
    encoder: nn.TransformerEncoder, x: Tensor, padding: Tensor
) -> Tensor:
    t = x.shape[1]
    causal = nn.Transformer.generate_square_subsequent_mask(t, dtype=x.dtype)
    return encoder(x, mask=causal, src_key_padding_mask=padding)  # (B, T, C)


def right_mixed(
    encoder: nn.TransformerEncoder, x: Tensor, padding: Tensor
) -> Tensor:
    t = x.shape[1]
    causal = torch.ones(t, t).bool().triu(1)  # (T, T), True = hidden
    return encoder(x, mask=causal, src_key_padding_mask=padding)  # (B, T, C)


def example_mixed():
    torch.manual_seed(0)
    options = {"dropout": 0, "batch_first": True, "dtype": torch.float64}
    layer = nn.TransformerEncoderLayer(16, 2, 32, **options)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = torch.randn(2, 5, 16).double()  # (B, T, C)
    padding = torch.arange(5) >= torch.tensor([[5], [3]])  # (B, T), hidden
    found, outputs = {}, []
    for name, run in (("wrong", wrong_mixed), ("right", right_mixed)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            outputs.append(run(encoder, x, padding)[~padding])
        texts = {str(w.message) for w in caught}
        found[name] = sum("mismatched" in text for text in texts)
        print(f"{name}: warnings of mismatched masks: {found[name]}")
    print("the outputs, apart:", amount(apart(*outputs)))
    decoder = nn.TransformerDecoderLayer(16, 2, 32, **options)
    masks = {"tgt_mask": torch.ones(5, 5).bool().triu(1)}  # True = hidden
    masks |= {"tgt_key_padding_mask": padding}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        decoder(x, x, **masks)
    found["decoder"] = len(caught)
    print(f"the decoder, two booleans: warnings {len(caught)}")
    return found


# Masked after the softmax


def wrong_after(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    weights = logits.softmax(-1).masked_fill(~mask, 0)
    return weights @ v  # (..., Tq, dv)


def right_after(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    weights = logits.masked_fill(~mask, -math.inf).softmax(-1)
    return weights @ v  # (..., Tq, dv)


def example_after():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 5, 8).double().unbind()  # (H, T, d) each
    past = torch.ones(5, 5).bool().tril()  # True = may attend
    expected, _ = attention(q, k, v, past)
    ones = torch.ones(2, 5, 1).double()  # gives the sums of the weights
    found = {}
    for name, run in (("wrong", wrong_after), ("right", right_after)):
        error = found[name] = apart(run(q, k, v, past), expected)
        least = run(q, k, ones, past).min().item()
        print(f"{name}: error {amount(error)}, least sum of weights", end=" ")
        print(f"{least:.2f}")
    again = wrong_after(q, k, v, past) / wrong_after(q, k, ones, past)
    print("divided by the sums:", amount(apart(again, expected)))
    return found


# Logits times the mask


def wrong_product(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    return (logits * mask).softmax(-1) @ v  # (..., Tq, dv)


def example_product():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 5, 8).double().unbind()  # (H, T, d) each
    past = torch.ones(5, 5).bool().tril()  # True = may attend
    expected, _ = attention(q, k, v, past)
    identity = torch.eye(5).double()  # gives the weights
    found = {}
    for name, run in (("wrong", wrong_product), ("right", right_after)):
        error = found[name] = apart(run(q, k, v, past), expected)
        hidden = (run(q, k, identity, past) * ~past).sum(-1).max().item()
        print(f"{name}: error {amount(error)}, weight on the future", end=" ")
        print(f"up to {hidden:.2f}")
    return found


# An additive mask times a triangle


def wrong_window(t: int, window: int) -> Tensor:
    floor = torch.finfo(torch.float64).min
    mask = torch.full((t, t), floor, dtype=torch.float64).triu(1)  # causal
    return mask * torch.ones(t, t).tril(-window)  # to cut off the far past


def right_window(t: int, window: int) -> Tensor:
    past = torch.ones(t, t).bool().tril()
    return past & ~past.tril(-window)  # (T, T), True = may attend


def example_window():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 8).double().unbind()  # (B, H, T, d)
    last = v.clone()
    last[:, :, -1] += 1  # the last token is another
    expected, _ = attention(q, k, v, right_window(6, 2))
    identity = torch.eye(6).double().expand(1, 2, 6, 6)  # gives the weights
    found = {}
    for name, build in (("wrong", wrong_window), ("right", right_window)):
        a, b, weights = (
            F.scaled_dot_product_attention(q, k, x, build(6, 2))
            for x in (v, last, identity)
        )
        error = found[name] = apart(a, expected)
        moved = amount(apart(a[:, :, :-1], b[:, :, :-1]))
        seen = (weights[0, 0] > 0).sum(-1).tolist()
        print(f"{name}: error {amount(error)}, the past moves: {moved}")
        print(f"  keys that each query sees: {seen}")
    return found


# A causal flag beside a cache


def wrong_cache(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def right_cache(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tq, tk = q.shape[-2], k.shape[-2]
    mask = torch.ones(tq, tk).bool().tril(tk - tq)  # the last sees the last
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def example_cache():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 8).double().unbind()  # (B, H, T, d)
    whole, _ = attention(q, k, v, torch.ones(6, 6).bool().tril())
    found = {}
    for new in (6, 2, 1):  # tokens in this step, the last of six
        for name, run in (("wrong", wrong_cache), ("right", right_cache)):
            output = run(q[:, :, -new:], k, v)  # (B, H, new, d)
            error = found[name] = apart(output, whole[:, :, -new:])
            print(f"{name}, {new} new of 6: {amount(error)}")
    output = wrong_cache(q[:, :, -1:], k, v)  # (B, H, 1, d)
    oldest = torch.equal(output, v[:, :, :1])
    print("wrong, 1 new: it is the value of the oldest key:", oldest)
    return found


# More queries than keys


def wrong_longer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def right_longer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tq, tk = q.shape[-2], k.shape[-2]
    with warnings.catch_warnings(action="ignore"):  # it warns of NaN
        mask = causal_lower_right(tq, tk)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def example_longer():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().unbind()  # (B, H, T, d)
    past = torch.ones(5, 5).bool().tril()
    past[:, :2] = False  # the two oldest keys are gone
    expected, _ = attention(q, k, v, past)  # (B, H, Tq, d)
    k, v = k[:, :, 2:], v[:, :, 2:]  # (B, H, Tk, d): three keys are left
    found = {}
    for name, run in (("wrong", wrong_longer), ("right", right_longer)):
        output = run(q, k, v)  # (B, H, Tq, d)
        error = found[name] = apart(output, expected)
        zeros = [str(i) for i in range(5) if not output[:, :, i].any()]
        zeros = found[f"{name}_zeros"] = " and ".join(zeros) or "none"
        print(f"{name}: error {amount(error)}, queries of zeros: {zeros}")
    by_hand = wrong_empty(q, k, v, past[:, 2:])[0, 0]  # (Tq, d)
    print("-inf and softmax by hand: rows of NaN", nan_rows(by_hand))
    return found


# A mask and a flag


def wrong_both(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float = 0.0
) -> Tensor:
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=True, dropout_p=dropout
    )


def right_both(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float = 0.0
) -> Tensor:
    tq, tk = q.shape[-2], k.shape[-2]
    past = torch.ones(tq, tk).bool().tril(tk - tq)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask & past, dropout_p=dropout
    )


def example_both():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().unbind()  # (B, H, T, d)
    mask = torch.tensor([True, False, True, True, True]).expand(5, 5)
    past = torch.ones(5, 5).bool().tril()
    expected, _ = attention(q, k, v, mask & past)
    found = {}
    for name, run in (("wrong", wrong_both), ("right", right_both)):
        does = outcome(lambda f=run: f(q, k, v, mask))
        if does == "runs":
            does = f"error {amount(apart(run(q, k, v, mask), expected))}"
        found[name] = outcome(lambda f=run: f(q, k, v, mask, 0.1))
        single = outcome(lambda f=run: f(q[0], k[0], v[0], mask))
        print(f"{name}: {does}, with dropout {found[name]}", end=", ")
        print(f"without a batch {single}")
    return found


# The hint that replaces the mask


def wrong_hint(
    layer: nn.MultiheadAttention, x: Tensor, window: Tensor
) -> Tensor:
    options = {"is_causal": True, "need_weights": False}
    return layer(x, x, x, attn_mask=~window, **options)[0]  # (B, T, C)


def right_hint(
    layer: nn.MultiheadAttention, x: Tensor, window: Tensor
) -> Tensor:
    options = {"need_weights": False}
    return layer(x, x, x, attn_mask=~window, **options)[0]  # (B, T, C)


def example_hint():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = torch.randn(1, 5, 8).double()  # (B, T, C)
    other = x.clone()
    other[:, 0] += 1  # the first token is another
    window = right_window(5, 2)  # (T, T), True = may attend
    found = {}
    for name, training in (("evaluated", False), ("trained", True)):
        layer.train(training)
        for side, run in (("wrong", wrong_hint), ("right", right_hint)):
            with torch.set_grad_enabled(training):
                a, b = (run(layer, y, window)[:, 2:] for y in (x, other))
            moved = found[side] = apart(a, b)  # queries that cannot see it
            print(f"{side}, {name}: the output moves: {amount(moved)}")
    return found


# The hint without a mask


def wrong_alone(layer: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return layer(x, x, x, is_causal=True, need_weights=False)[0]  # (B, T, C)


def right_alone(layer: nn.MultiheadAttention, x: Tensor) -> Tensor:
    t = x.shape[1]
    future = torch.ones(t, t).bool().triu(1)  # (T, T), True = hidden
    return layer(x, x, x, attn_mask=future, need_weights=False)[0]


def example_alone():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).double()
    x = torch.randn(1, 5, 8).double()  # (B, T, C)
    other = x.clone()
    other[:, -1] += 1  # the last token is another
    found = {}
    for side, run in (("wrong", wrong_alone), ("right", right_alone)):
        trained = found[f"{side}_trained"] = outcome(
            lambda f=run: f(layer.train(), x)
        )
        with torch.no_grad():
            a, b = (run(layer.eval(), y)[:, :-1] for y in (x, other))
        moved = found[side] = apart(a, b)
        print(f"{side}: trained: {trained},", end=" ")
        print(f"evaluated: the past moves: {amount(moved)}")
    return found


# A flag that one path forgets


def wrong_flag(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    if not need_weights:
        output = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return output, None
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    return weights @ v, weights  # (..., Tq, dv), (..., Tq, Tk)


def right_flag(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    mask = torch.ones(q.shape[-2], k.shape[-2]).bool()
    mask = mask.tril() if causal else mask  # once, before the paths part
    if not need_weights:
        return F.scaled_dot_product_attention(q, k, v, mask), None
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    weights = logits.masked_fill(~mask, -math.inf).softmax(-1)
    return weights @ v, weights  # (..., Tq, dv), (..., Tq, Tk)


def example_flag():
    torch.manual_seed(0)
    x = torch.randn(1, 2, 5, 8).double()  # (B, H, T, d)
    other = x.clone()
    other[:, :, -1] += 1  # the last token is another
    found = {}
    for name, run in (("wrong", wrong_flag), ("right", right_flag)):
        for need in (False, True):
            a, b = (run(y, y, y, True, need)[0] for y in (x, other))
            moved = found[name] = apart(a[:, :, :-1], b[:, :, :-1])
            moves = f"the past moves: {amount(moved)}"
            print(f"{name}, need_weights={need}: {moves}")
    return found


# Two masks of floors, added


def wrong_sum(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    floor, (t, d) = torch.finfo(q.dtype).min, q.shape[-2:]
    past = torch.full((t, t), floor, dtype=q.dtype).triu(1)
    padding = torch.zeros(t, dtype=q.dtype).masked_fill(~real, floor)
    logits = q @ k.mT / math.sqrt(d) + (past + padding)  # (..., T, T)
    return logits.softmax(-1) @ v  # (..., T, dv)


def right_sum(q: Tensor, k: Tensor, v: Tensor, real: Tensor) -> Tensor:
    t = q.shape[-2]
    mask = torch.ones(t, t).bool().tril() & real  # joined first
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def example_sum():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 8).double().unbind()  # (B, H, T, d)
    real = torch.arange(6) >= 3  # (T,): three places of padding on the left
    mask = torch.ones(6, 6).bool().tril() & real  # True = may attend
    expected, _ = attention(q, k, v, mask)
    identity = torch.eye(6).double().expand(1, 2, 6, 6)  # gives the weights
    found = {}
    for name, run in (("wrong", wrong_sum), ("right", right_sum)):
        error = found[name] = apart(run(q, k, v, real), expected)
        first = run(q, k, identity, real)[0, 0, 0].tolist()  # (Tk,)
        print(f"{name}: error {amount(error)}, the first query weighs", end=" ")
        print(*(f"{x:.2f}" for x in first))
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        floor = torch.tensor(torch.finfo(dtype).min, dtype=dtype)
        print(f"{dtype}: two floors add up to {(floor + floor).item()}")
    return found


# All entries at once

ENTRIES: list[tuple[str, str, str, Callable[[], dict[str, Any]]]] = [
    ("a query without a key", "empty-row", "error", example_empty),
    ("repaired too late", "late-repair", "gradients", example_repair),
    ("NaN through layers", "nan-layers", "error", example_layers),
    ("unwritten padding", "unwritten", "error", example_padding),
    ("mask upside down", "polarity", "error", example_polarity),
    ("mask on the queries", "query-axis", "against alone", example_axis),
    ("another one's mask", "other-mask", "against alone", example_heads),
    ("0 and 1 as floats", "zero-one", "error", example_numbers),
    ("mask in float16", "mask-dtype", "bfloat16 q", example_dtype),
    ("bias in evaluation", "lost-bias", "train, eval", example_bias),
    ("two kinds of mask", "mixed-masks", "warnings", example_mixed),
    ("after the softmax", "after-softmax", "error", example_after),
    ("logits times mask", "product", "error", example_product),
    ("floors times triangle", "triangle", "error", example_window),
    ("causal flag, cache", "cache-corner", "1 new of 6", example_cache),
    ("more queries than keys", "more-queries", "error", example_longer),
    ("mask and causal flag", "mask-and-flag", "dropout", example_both),
    ("hint for the mask", "hint", "out of reach", example_hint),
    ("hint and no mask", "hint-alone", "future", example_alone),
    ("flag forgotten", "forgotten-flag", "future", example_flag),
    ("two floors added", "two-floors", "error", example_sum),
]


def table_mistakes():
    rows, silent = [], 0
    for name, anchor, measured, example in ENTRIES:
        with contextlib.redirect_stdout(io.StringIO()):
            found = example()
        row = {"mistake": f"[{name}](#{anchor})", "measured": measured}
        for side in ("wrong", "right"):
            value = found[side]
            if isinstance(value, str):
                row[side] = value if value == "runs" else "raises"
            elif isinstance(value, int):
                row[side] = str(value)
            else:
                row[side] = amount(value)
        wrong = found["wrong"]
        silent += isinstance(wrong, float) and math.isfinite(wrong)
        rows.append(row)
    return rows, {"entries": len(rows), "silent": silent}


def weights_of(
    run: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor
) -> Tensor:
    """Weights (Tq, Tk) of one head, read off values that are the identity."""
    identity = torch.eye(k.shape[-2], dtype=k.dtype)
    return run(q[None, None], k[None, None], identity[None, None])[0, 0]


def panels(n: int, seed: int) -> Sequence[tuple[str, Tensor]]:
    """The right weights of causal attention, and what five mistakes give."""
    generator = torch.Generator("cpu").manual_seed(seed)
    shape = (2, n, 8)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64)
    q, k = draws.unbind()  # (T, d) each
    past = torch.ones(n, n).bool().tril()
    ways: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "right": right_polarity,
        "upside down": wrong_polarity,
        "0 and 1 added": wrong_numbers,
        "logits times mask": lambda q, k, v: wrong_product(q, k, v, past),
        "after the softmax": lambda q, k, v: wrong_after(q, k, v, past),
        "floors times triangle": lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, wrong_window(n, 2)
        ),
    }
    return [(name, weights_of(run, q, k)) for name, run in ways.items()]


def figure_weights() -> Figure:
    """Weights of one causal head of five tokens, right and with five mistakes.

    Six heat maps of five queries by five keys, on one scale from 0 to 1. The
    right one is a lower triangle. Upside down, the weight lies above the
    diagonal and the last row is empty. With 0 and 1 added, with the logits
    times the mask and with the floors times a triangle, all keys get weight.
    After the softmax it is a lower triangle that is too pale.
    """
    figure, grid = plt.subplots(
        2, 3, figsize=(5.2, 4.6), sharex=True, sharey=True
    )
    for axes, (name, weights) in zip(grid.flat, panels(5, 2), strict=True):
        image = axes.imshow(weights.numpy(), vmin=0, vmax=1)
        axes.set_title(name, fontsize="small")
        axes.set_yticks(range(5), [f"q{i}" for i in range(5)])
        axes.set_xticks(range(5), [f"k{i}" for i in range(5)])
    colours = figure.colorbar(image, ax=grid, location="bottom", aspect=40)
    colours.set_label("weight")
    return figure
