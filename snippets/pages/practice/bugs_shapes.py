"""What the museum's room of shapes runs: heads, layouts, groups, batches."""

import contextlib
import io
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.ao.nn import quantizable
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

# What every entry is measured with


def textbook(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Softmax of the scaled products, times v; True = may attend."""
    logits = q @ k.mT / math.sqrt(q.shape[-1])  # (..., Tq, Tk)
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1) @ v  # (..., Tq, dv)


def apart(a: Tensor, b: Tensor) -> float:
    """Largest difference of two tensors of one shape."""
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def amount(error: float) -> str:
    """Two decimals, or that float64 explains it."""
    return "below 1e-12" if error < 1e-12 else f"{error:.2f}"


def outcome(call: Callable[[], Tensor]) -> str:
    """Whether a call runs, or what it raises."""
    try:
        call()
    except (AssertionError, AttributeError, RuntimeError) as error:
        return type(error).__name__
    return "runs"


# A bad split


def wrong_split(x: Tensor, n_heads: int) -> Tensor:
    b, t, width = x.shape
    return x.view(b, n_heads, t, width // n_heads)  # (B, H, T, d)!


def right_split(x: Tensor, n_heads: int) -> Tensor:
    b, t, width = x.shape
    x = x.view(b, t, n_heads, width // n_heads)  # (B, T, H, d)
    return x.transpose(1, 2)  # (B, H, T, d)


def example_split():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12).double()  # (B, T, C), for 3 heads of width 4
    changed = x.clone()
    changed[:, -1] += 1  # the last token
    causal = torch.ones(5, 5).bool().tril()
    heads = [x[:, :, 4 * h : 4 * h + 4] for h in range(3)]  # (B, T, d) each
    expected = torch.cat([textbook(q, q, q, causal) for q in heads], dim=-1)

    def layer(x, split):
        q = split(x, 3)  # (B, H, T, d)
        output = textbook(q, q, q, causal)
        return output.transpose(1, 2).reshape(2, 5, 12)  # (B, T, C)

    found = {}
    for name, split in (("wrong", wrong_split), ("right", right_split)):
        error = found[name] = apart(layer(x, split), expected)
        before, after = layer(x, split)[:, :-1], layer(changed, split)[:, :-1]
        moved = amount(apart(before, after))
        print(f"{name}: error {amount(error)}, earlier outputs move: {moved}")
    return found


# A bad merge


def wrong_merge(x: Tensor) -> Tensor:
    b, n_heads, t, d = x.shape
    return x.reshape(b, t, n_heads * d)  # (B, T, C)!


def right_merge(x: Tensor) -> Tensor:
    b, n_heads, t, d = x.shape
    x = x.transpose(1, 2)  # (B, T, H, d)
    return x.reshape(b, t, n_heads * d)  # (B, T, C)


def example_merge():
    torch.manual_seed(0)
    q = torch.randn(2, 3, 5, 4).double()  # (B, H, T, d)
    changed = q.clone()
    changed[:, :, -1] += 1  # the last token
    causal = torch.ones(5, 5).bool().tril()
    heads = [textbook(q[:, h], q[:, h], q[:, h], causal) for h in range(3)]
    expected = torch.cat(heads, dim=-1)  # (B, T, C)
    found = {}
    for name, merge in (("wrong", wrong_merge), ("right", right_merge)):
        output = merge(textbook(q, q, q, causal))  # (B, T, C)
        error = found[name] = apart(output, expected)
        after = merge(textbook(changed, changed, changed, causal))
        moved = amount(apart(output[:, :-1], after[:, :-1]))
        print(f"{name}: error {amount(error)}, earlier outputs move: {moved}")
    return found


def example_quantizable():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 12).double()  # (B, T, C), or (T, B, C)
    found = {}
    for batch_first in (True, False):
        layer = nn.MultiheadAttention(12, 3, batch_first=batch_first).double()
        layer.qconfig = None
        with warnings.catch_warnings(action="ignore"):  # it is deprecated
            copy = quantizable.MultiheadAttention.from_float(layer.eval())
            error = apart(copy.eval()(x, x, x)[0], layer(x, x, x)[0])
        found["wrong" if batch_first else "right"] = error
        print(f"batch_first={batch_first}: error {amount(error)}")
    return found


# view after a transpose


def wrong_view(x: Tensor) -> Tensor:
    b, n_heads, t, d = x.shape
    return x.transpose(1, 2).view(b, t, n_heads * d)  # (B, T, C)


def right_reshape(x: Tensor) -> Tensor:
    b, n_heads, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, n_heads * d)  # (B, T, C)


def example_view():
    torch.manual_seed(0)
    q = torch.randn(2, 5, 3, 4, device="cpu").transpose(1, 2)  # (B, H, T, d)
    bias = torch.zeros(5, 5, device="cpu")
    sdpa = F.scaled_dot_product_attention
    outputs = {
        "the built-in": sdpa(q, q, q),
        "with dropout": sdpa(q, q, q, dropout_p=0.1),
        "with a bias that learns": sdpa(q, q, q, bias.requires_grad_()),
        "softmax by hand": textbook(q, q, q),
    }  # (B, H, T, d) each
    for name, x in outputs.items():
        by_view = outcome(lambda x=x: wrong_view(x))
        by_reshape = outcome(lambda x=x: right_reshape(x))
        print(f"{name}: view {by_view}, reshape {by_reshape}")
    return {"wrong": by_view, "right": by_reshape}


# The batch taken for the time


def example_batch_first():
    torch.manual_seed(0)
    x = torch.randn(3, 5, 16).double()  # meant as (B, T, C)
    memory = torch.randn(3, 7, 16).double()  # (B, Tk, C)
    padding = torch.zeros(3, 5).bool()  # (B, T), True = hidden
    found = {}
    for name, options in (("wrong", {}), ("right", {"batch_first": True})):
        layer = nn.MultiheadAttention(16, 4, **options).double()
        alone = layer(x[:1], x[:1], x[:1])[0]  # (1, T, C)
        error = found[name] = apart(layer(x, x, x)[0][:1], alone)
        crossed = outcome(lambda f=layer: f(x, memory, memory)[0])
        masked = outcome(lambda f=layer: f(x, x, x, key_padding_mask=padding))
        print(f"{name}: one alone and in its batch: {amount(error)}")
        print(f"  a memory of another length: {crossed}")
        print(f"  a padding mask: {masked}")
        found |= {f"{name}_memory": crossed, f"{name}_mask": masked}
    return found


# Groups of heads


def wrong_groups(k: Tensor, n: int) -> Tensor:
    return k.repeat(1, n, 1, 1)  # (B, Hkv, T, d) -> (B, H, T, d)!


def right_groups(k: Tensor, n: int) -> Tensor:
    return k.repeat_interleave(n, dim=1)  # (B, Hkv, T, d) -> (B, H, T, d)


def example_groups():
    torch.manual_seed(0)
    q = torch.randn(2, 4, 5, 8).double()  # (B, H, T, d)
    k, v = torch.randn(2, 2, 2, 5, 8).double().unbind()  # (B, Hkv, T, d) each
    heads = [textbook(q[:, h], k[:, h // 2], v[:, h // 2]) for h in range(4)]
    expected = torch.stack(heads, dim=1)  # (B, H, T, d)
    numbers = torch.arange(2).view(1, 2, 1, 1)  # each key head's own number
    found = {}
    for name, groups in (("wrong", wrong_groups), ("right", right_groups)):
        output = textbook(q, groups(k, 2), groups(v, 2))
        error = found[name] = apart(output, expected)
        reads = groups(numbers, 2).flatten().tolist()
        print(f"{name}: key heads {reads}, error {amount(error)}")
    one = torch.equal(wrong_groups(k[:, :1], 4), right_groups(k[:, :1], 4))
    print("one key head: the two are equal:", one)
    return found


def example_flag():
    torch.manual_seed(0)
    options = {"dtype": torch.float64, "device": "cpu"}
    q = torch.randn(2, 6, 5, 8, **options)  # (B, H, T, d)
    sdpa = F.scaled_dot_product_attention
    only_flash = partial(sdpa_kernel, SDPBackend.FLASH_ATTENTION)
    found = {}
    for n in (1, 2, 3, 4):
        k = torch.randn(2, n, 5, 8, **options)  # (B, Hkv, T, d)
        for flag in (False, True):

            def call(k=k, flag=flag):
                return sdpa(q, k, k, enable_gqa=flag)

            does = outcome(call)
            if does == "runs":
                full = k.repeat_interleave(6 // n, dim=1)  # (B, H, T, d)
                assert apart(call(), textbook(q, full, full)) < 1e-12
                with warnings.catch_warnings(action="ignore"), only_flash():
                    does = f"right; flash kernel: {outcome(call)}"
            print(f"{n} key heads, enable_gqa={flag}: {does}")
            found[f"{n}_{flag}"] = does
    right, _, flash = found["2_True"].partition("; flash kernel: ")
    return {"wrong": found["2_False"], "right": right, "flash": flash}


# Weights that are an average


def example_average():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True).double()
    layer.in_proj_weight.data *= 4  # heads that have made up their minds
    x = torch.randn(4, 6, 16).double()  # (B, T, C)
    _, wrong = layer(x, x, x)  # (B, T, T)
    _, right = layer(x, x, x, average_attn_weights=False)  # (B, H, T, T)
    rows = layer.in_proj_weight.view(3, 4, 4, 16)  # (3, H, d, C)
    q, k = x[:1] @ rows[0].mT, x[:1] @ rows[1].mT  # (H, T, d) each
    expected = (q @ k.mT / 2).softmax(-1)  # (H, T, T), of the first example
    print("default:", tuple(wrong.shape), "per head:", tuple(right.shape))
    found = {}
    for name, weights in (("wrong", wrong), ("right", right[0])):
        error = found[name] = apart(weights, expected)
        peak = weights.amax(-1).mean().item()
        print(f"{name}: error {amount(error)}, largest weight {peak:.2f}")
    print("their mean:", amount(apart(right.mean(1), wrong)))
    return found


def example_unread():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True).double()
    found = {}
    for t in (64, 128):
        x = torch.randn(1, t, 16).double()  # (B, T, C)
        outputs = []
        for name, need in (("wrong", True), ("right", False)):
            kept = {}

            def keep(tensor, kept=kept, t=t):
                if tensor.shape[-2:] == (t, t):  # each memory once
                    kept[tensor.data_ptr()] = tensor.numel()
                return tensor

            with saved_tensors_hooks(keep, lambda tensor: tensor):
                outputs.append(layer(x, x, x, need_weights=need)[0])
            found[name] = sum(kept.values())
            print(f"T = {t}, {name}: {found[name]:,} weights kept")
        assert apart(*outputs) < 1e-12
    return found


# A mask for every head


def wrong_mask(mask: Tensor, n_heads: int) -> Tensor:
    return mask[:, None].repeat(1, n_heads, 1, 1)  # (B, T, T) -> (B, H, T, T)


def right_mask(mask: Tensor) -> Tensor:
    return mask[:, None]  # (B, T, T) -> (B, 1, T, T)


def example_mask():
    torch.manual_seed(0)
    q = torch.randn(2, 12, 64, 8).double()  # (B, H, T, d)
    mask = torch.rand(2, 64, 64) > 0.2  # (B, T, T), True = may attend
    found, outputs = {}, []
    both = {"wrong": wrong_mask(mask, 12), "right": right_mask(mask)}
    for name, wide in both.items():
        found[name] = wide.untyped_storage().nbytes()
        print(f"{name}: {tuple(wide.shape)}, {found[name]:,} bytes")
        outputs.append(F.scaled_dot_product_attention(q, q, q, wide))
    print("outputs:", amount(apart(*outputs)))
    return found


# Evaluation on the fast path


def wrong_pool(x: Tensor) -> Tensor:
    return x.mean(1)  # (B, T, C) -> (B, C)!


def right_pool(x: Tensor, real: Tensor) -> Tensor:
    x = x.masked_fill(~real[..., None], 0)  # (B, T, C)
    return x.sum(1) / real.sum(1, keepdim=True)  # (B, C)


def example_pool():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)
    with warnings.catch_warnings(action="ignore"):  # nested tensors warn
        encoder = nn.TransformerEncoder(layer, 2).double()
        x = torch.randn(2, 5, 16).double()  # (B, T, C)
        real = torch.arange(5) < torch.tensor([[5], [2]])  # (B, T)
        trained = encoder.train()(x, src_key_padding_mask=~real)
        with torch.no_grad():
            evaluated = encoder.eval()(x, src_key_padding_mask=~real)
    error = amount(apart(trained[real], evaluated[real]))
    print("trained and evaluated, at words:", error)
    for name, output in (("trained", trained), ("evaluated", evaluated)):
        size = output[~real].abs().mean().item()
        print(f"at padding, {name}: size {size:.2f}")
    wrong = apart(wrong_pool(trained), wrong_pool(evaluated))
    right = apart(right_pool(trained, real), right_pool(evaluated, real))
    print("wrong: means of trained and evaluated, apart:", amount(wrong))
    print("right: means of trained and evaluated, apart:", amount(right))
    return {"words": error, "wrong": wrong, "right": right}


def wrong_pad(nested: Tensor) -> Tensor:
    return nested.to_padded_tensor(0.0)  # (B, longest, C)!


def right_pad(nested: Tensor, shape: torch.Size) -> Tensor:
    return nested.to_padded_tensor(0.0, output_size=shape)  # (B, T, C)


def example_length():
    x = torch.ones(2, 6, 8)  # (B, T, C)
    lengths = 3, 2  # the last three places are padding everywhere
    words = [row[:n] for row, n in zip(x, lengths, strict=True)]
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    padding = torch.arange(6) >= torch.tensor([[3], [2]])  # (B, T)
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        nested = torch.nested.nested_tensor(words)
        encoder = nn.TransformerEncoder(layer, 1).eval()
        encoded = encoder(x, src_key_padding_mask=padding)
    wrong, right = wrong_pad(nested), right_pad(nested, x.shape)
    print("wrong:", tuple(wrong.shape), "right:", tuple(right.shape))
    print("PyTorch's encoder, evaluated:", tuple(encoded.shape))
    return {
        "encoder": str(tuple(encoded.shape)),
        "wrong": wrong.shape[1],
        "right": right.shape[1],
    }


def wrong_weights(layer: nn.MultiheadAttention, x: Tensor) -> Tensor:
    _, weights = layer(x, x, x)  # (B, T, T), or None
    return weights.sum(-1)  # (B, T)


def right_weights(layer: nn.MultiheadAttention, x: Tensor) -> Tensor:
    _, weights = layer(x, x, x)
    if weights is None:  # the fast path gives none for an empty input
        weights = x.new_zeros(x.shape[0], x.shape[1], x.shape[1])
    return weights.sum(-1)  # (B, T)


def example_empty():
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    found = {}
    for shape in ((2, 4, 8), (0, 4, 8), (2, 0, 8)):
        x = torch.ones(shape)  # (B, T, C)
        slow = tuple(layer(x, x, x)[1].shape)  # gradients are on
        with torch.no_grad():
            fast = layer(x, x, x)[1]
            wrong = outcome(lambda x=x: wrong_weights(layer, x))
            right = outcome(lambda x=x: right_weights(layer, x))
        fast = "None" if fast is None else str(tuple(fast.shape))
        print(f"{shape}: slow path {slow}, fast path {fast}")
        print(f"  wrong: {wrong}, right: {right}")
        found |= {"fast": fast, "wrong": wrong, "right": right}
    return found


# Cross-attention


def wrong_block(target: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
    """Pass one mask on to both: self-attention, then cross-attention."""
    x = target + textbook(target, target, target, mask)  # (B, Tq, C)
    return x + textbook(x, memory, memory, mask)  # (B, Tq, C)!


def right_block(
    target: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor
) -> Tensor:
    """Hide the padding of each sequence where it gives the keys."""
    x = target + textbook(target, target, target, mask)  # (B, Tq, C)
    return x + textbook(x, memory, memory, memory_mask)  # (B, Tq, C)


def example_cross():
    torch.manual_seed(0)
    target, memory = torch.randn(2, 2, 6, 8).double().unbind()  # (B, T, C)
    place = torch.arange(6)
    own = (place < torch.tensor([[4], [6]]))[:, None]  # (B, 1, Tq): words
    its = (place < torch.tensor([[6], [3]]))[:, None]  # (B, 1, Tk): words
    longer = torch.cat([memory, memory], dim=1)  # (B, 2 Tk, C)
    twice = torch.cat([its, its], dim=-1)  # (B, 1, 2 Tk)

    def alone(n, tq, tk):  # the n-th pair without its padding
        x, m = target[n, :tq], memory[n, :tk]
        x = x + textbook(x, x, x)  # (tq, C)
        return x + textbook(x, m, m)

    expected = torch.cat([alone(0, 4, 6), alone(1, 6, 3)])  # (words, C)
    found = {}
    for name, run, masks, other in (
        ("wrong", wrong_block, (own,), (own,)),
        ("right", right_block, (own, its), (own, twice)),
    ):
        output = run(target, memory, *masks)[own[:, 0]]  # (words, C)
        error = found[name] = apart(output, expected)
        does = outcome(lambda f=run, masks=other: f(target, longer, *masks))
        print(f"{name}: error {amount(error)}, another length: {does}")
        found[f"{name}_other"] = does
    return found


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool = True
) -> Tensor:
    """Attend to the past, unless told otherwise."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def example_causal():
    torch.manual_seed(0)
    q = torch.randn(1, 2, 4, 8).double()  # (B, H, Tq, d)
    memory = torch.randn(1, 2, 6, 8).double()  # (B, H, Tk, d)
    found = {}
    for name, options in (("wrong", {}), ("right", {"is_causal": False})):
        output = attend(q, memory, memory, **options)
        error = found[name] = apart(output, textbook(q, memory, memory))
        values = torch.eye(6).double().expand(1, 2, 6, 6)  # gives the weights
        weights = attend(q, memory, values, **options)  # (B, H, Tq, Tk)
        reads = (weights[0, 0] > 0).sum(-1).tolist()
        print(f"{name}: error {amount(error)}, words read: {reads}")
    return found


# All entries at once

ENTRIES: list[tuple[str, str, str, Callable[[], dict[str, Any]]]] = [
    ("heads cut by `view` alone", "head-split", "error", example_split),
    ("heads joined without a transpose", "head-merge", "error", example_merge),
    ("the same, in PyTorch", "head-merge", "error", example_quantizable),
    ("`view` after a transpose", "view", "softmax by hand", example_view),
    (
        "batch taken for time",
        "batch-first",
        "alone, batched",
        example_batch_first,
    ),
    ("key heads tiled", "groups", "error", example_groups),
    ("`enable_gqa` left out", "enable-gqa", "two key heads", example_flag),
    ("average taken for heads", "average", "error", example_average),
    (
        "weights made, not read",
        "unread-weights",
        "weights kept",
        example_unread,
    ),
    ("a mask for each head", "mask-memory", "bytes", example_mask),
    ("padding in the mean", "pooling", "train, eval", example_pool),
    ("padded to the longest", "shorter-output", "length", example_length),
    ("weights that are `None`", "empty-batch", "empty batch", example_empty),
    ("target's mask on memory", "memory-mask", "error", example_cross),
    ("causal cross-attention", "causal-memory", "error", example_causal),
]


def table_mistakes():
    rows = []
    for name, anchor, measured, example in ENTRIES:
        with contextlib.redirect_stdout(io.StringIO()):
            found = example()
        row = {"mistake": f"[{name}](#{anchor})", "measured": measured}
        for side in ("wrong", "right"):
            value = found[side]
            if isinstance(value, str):
                row[side] = f"`{value}`" if "Error" in value else value
            else:
                is_count = isinstance(value, int)
                row[side] = f"{value:,}" if is_count else amount(value)
        rows.append(row)
    return rows
