"""What the room of the museum on mistakes in the numbers runs."""

import contextlib
import io
import itertools
import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets.attention import attention


def error(output: Tensor, expected: Tensor) -> float:
    """Largest difference of two tensors, or NaN if there is a NaN."""
    return (output.double() - expected.double()).abs().max().item()


def shown(value: float | str) -> str:
    """A measured word or error; below 1e-9 it is the rounding of float64."""
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "NaN"
    return f"{value:.3f}" if value >= 1e-9 else "below 1e-9"


def compare(expected: Tensor, **outputs: Tensor) -> dict[str, float]:
    """Print how far each output is from what is expected."""
    errors = {name: error(x, expected) for name, x in outputs.items()}
    for name, found in errors.items():
        print(f"{name}: error {shown(found)}")
    return errors


# --- Floors -------------------------------------------------------------------


def example_average():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 8).double().unbind()  # (B, T, d) each
    lengths = torch.tensor([2, 0])  # the second sequence is empty
    mask = (torch.arange(4) < lengths[:, None])[:, None]  # (B, 1, Tk)

    def wrong(q, k, v):
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, Tq, Tk)
        scores = scores.masked_fill(~mask, -1e6)
        return scores.softmax(-1) @ v  # (B, Tq, dv)

    def right(q, k, v):
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, Tq, Tk)
        alive = mask.any(-1, keepdim=True)  # (B, 1, 1)
        scores = scores.masked_fill(~mask & alive, -math.inf)
        return (scores.softmax(-1) * alive) @ v  # (B, Tq, dv)

    expected, _ = attention(q, k, v, mask)
    errors = compare(expected, wrong=wrong(q, k, v), right=right(q, k, v))
    mean = v[1].mean(0).expand(4, -1)  # (Tq, dv), of nothing but padding
    print("wrong, empty sequence: mean of its padding:", end=" ")
    print(torch.allclose(wrong(q, k, v)[1], mean))
    return dict(errors)


def example_floor_too_high():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 8, 64).double().unbind()  # (T, d) each
    q[:, 0], k[:, 0] = 400.0, -1800.0  # one channel outgrows the others
    mask = torch.ones(8, 8).tril().bool()  # (Tq, Tk)
    scores = q @ k.mT / math.sqrt(64)  # (Tq, Tk)

    wrong = scores.masked_fill(~mask, -1e4).softmax(-1)
    right = scores.masked_fill(~mask, -math.inf).softmax(-1)

    print(f"scores: from {scores.min():.0f} to {scores.max():.0f}")
    for name, weights in (("wrong", wrong), ("right", right)):
        future = weights.masked_fill(mask, 0.0).sum(-1)  # (Tq,)
        print(f"{name}: weight on the future {future[0].item():.3f}")
    expected, _ = attention(q, k, v, mask)
    errors = compare(expected, wrong=wrong @ v, right=right @ v)
    return dict(errors)


def example_floor_added():
    scores = torch.tensor([[1.0, 2.0], [-20.0, -18.0]]).half()  # (Tq, Tk)
    mask = torch.tensor([[True, False], [False, False]])

    def wrong(scores):
        floor = torch.finfo(scores.dtype).min
        bias = torch.where(mask, 0.0, floor).to(scores.dtype)  # (Tq, Tk)
        return (scores + bias).softmax(-1)

    def right(scores):
        alive = mask.any(-1, keepdim=True)  # (Tq, 1)
        hidden = ~mask & alive
        scores = scores.float().masked_fill(hidden, -math.inf)
        return (scores.softmax(-1) * alive).half()

    floor = torch.finfo(torch.float16).min
    print(f"{floor:.0f} - 18 in float16: {(scores[1, 1] + floor).item()}")
    for name, weights in (("wrong", wrong(scores)), ("right", right(scores))):
        print(f"{name}: weights {weights.tolist()}")
    expected = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    return {
        "wrong": shown(error(wrong(scores), expected)),
        "right": error(right(scores), expected),
    }


def example_floor_does_not_fit():
    torch.manual_seed(0)
    scores = torch.randn(3, 3)  # (Tq, Tk)
    mask = torch.ones(3, 3).tril().bool()
    seen = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for name, floor in (("wrong", -1e9), ("right", -math.inf)):
            try:
                filled = scores.to(dtype).masked_fill(~mask, floor)
                future = filled.softmax(-1)[~mask].sum().item()
                seen[name] = f"weight on the future {future:g}"
            except RuntimeError as refusal:
                seen[name] = f"raises {type(refusal).__name__}"
            print(f"{dtype!s:14} {name}, {floor:g}: {seen[name]}")
    return seen


# --- One pass over blocks of keys ---------------------------------------------


def example_start():
    torch.manual_seed(0)
    scores = torch.randn(3, 8).double() - 9e4  # (Tq, Tk): low, and finite
    v = torch.randn(8, 4).double()  # (Tk, dv)

    def streamed(scores, v, start):
        top = torch.full((len(scores), 1), start).double()  # (Tq, 1)
        total, output = torch.zeros_like(top), torch.zeros_like(top)
        for s, x in zip(scores.split(2, -1), v.split(2), strict=True):
            new = torch.maximum(top, s.amax(-1, keepdim=True))  # (Tq, 1)
            p, shrink = (s - new).exp(), (top - new).exp()  # (Tq, 2), (Tq, 1)
            total = total * shrink + p.sum(-1, keepdim=True)  # (Tq, 1)
            output = output * shrink + p @ x  # (Tq, dv)
            top = new
        return output / total.clamp_min(1e-30)

    wrong = streamed(scores, v, start=-5e4)
    right = streamed(scores, v, start=-math.inf)

    print("wrong: zeros" if (wrong == 0).all() else "wrong: not zeros")
    errors = compare(scores.softmax(-1) @ v, wrong=wrong, right=right)
    return dict(errors)


def example_first_block():
    torch.manual_seed(0)
    q, k = torch.randn(3, 16).double(), torch.randn(8, 16).double()
    v = torch.randn(8, 4).double()  # (Tk, dv)
    mask = torch.ones(3, 8).bool()  # (Tq, Tk)
    mask[1, :2] = False  # the second query may not attend to the first block
    mask[2] = False  # the third may attend to nothing
    scores = (q @ k.mT / 4).masked_fill(~mask, -math.inf)

    def streamed(scores, v, safe):
        top = torch.full((len(scores), 1), -math.inf).double()  # (Tq, 1)
        total, output = torch.zeros_like(top), torch.zeros_like(top)
        for s, x in zip(scores.split(2, -1), v.split(2), strict=True):
            new = torch.maximum(top, s.amax(-1, keepdim=True))  # (Tq, 1)
            shift = new.masked_fill(new == -math.inf, 0.0) if safe else new
            p, shrink = (s - shift).exp(), (top - shift).exp()
            total = total * shrink + p.sum(-1, keepdim=True)  # (Tq, 1)
            output = output * shrink + p @ x  # (Tq, dv)
            top = new
        return output / (total.masked_fill(total == 0, 1.0) if safe else total)

    wrong, right = streamed(scores, v, False), streamed(scores, v, True)

    print("wrong, rows with NaN:", wrong.isnan().any(-1).tolist())
    errors = compare(attention(q, k, v, mask)[0], wrong=wrong, right=right)
    return {"wrong": shown(errors["wrong"]), "right": errors["right"]}


def example_backward():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 5, 4).double().unbind()  # (T, d) each
    k, v, gradient = k[:3], v[:3], torch.randn(5, 4).double()
    mask = torch.ones(5, 3).tril(-2).bool()  # two queries have no key
    scores = (q @ k.mT / 2).masked_fill(~mask, -math.inf)  # (Tq, Tk)
    lse = scores.logsumexp(-1, keepdim=True)  # (Tq, 1), kept by the forward

    def backward(lse):
        p = (scores - lse).exp()  # (Tq, Tk), the weights once more
        dp = gradient @ v.mT  # (Tq, Tk)
        ds = p * (dp - (gradient * (p @ v)).sum(-1, keepdim=True))
        return ds @ k / 2, ds.mT @ q / 2, p.mT @ gradient  # dq, dk, dv

    wrong = backward(lse)
    right = backward(lse.masked_fill(lse == -math.inf, 0.0))

    for name, found in (("wrong", wrong), ("right", right)):
        nan = ", ".join(f"{x.isnan().double().mean():.0%}" for x in found)
        print(f"{name}: NaN in dq, dk, dv: {nan}")
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    output, _ = attention(*inputs, mask)
    expected = torch.cat(torch.autograd.grad(output, inputs, gradient))
    errors = compare(expected, wrong=torch.cat(wrong), right=torch.cat(right))
    return {"wrong": shown(errors["wrong"]), "right": errors["right"]}


# --- The scale ----------------------------------------------------------------


def example_model_width():
    torch.manual_seed(0)
    d_model, n_heads, d = 128, 8, 16
    x = torch.randn(3, 1, 6, d_model).double()  # q, k and v: (B, T, C) each
    q, k, v = x.unflatten(-1, (n_heads, d)).transpose(-2, -3)  # (B, H, T, d)

    def attend(q, k, v, width):
        scores = q @ k.mT * width**-0.5  # (B, H, T, T)
        return scores.softmax(-1) @ v  # (B, H, T, d)

    wrong = attend(q, k, v, width=d_model)
    right = attend(q, k, v, width=d)

    errors = compare(attention(q, k, v)[0], wrong=wrong, right=right)
    print(f"wrong: scores too small by a factor of {(d_model / d) ** 0.5:.2f}")
    return dict(errors)


def example_twice():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 64).double().unbind()  # (B, H, T, d)

    def wrong(q, k, v):
        q = q * q.shape[-1] ** -0.5
        return F.scaled_dot_product_attention(q, k, v)

    def right(q, k, v):
        q = q * q.shape[-1] ** -0.5
        return F.scaled_dot_product_attention(q, k, v, scale=1.0)

    expected, _ = attention(q, k, v)
    errors = compare(expected, wrong=wrong(q, k, v), right=right(q, k, v))
    return dict(errors)


def example_scale_dropped():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 64).double().unbind()  # (B, H, T, d)
    scale = 64**-0.5 / 3  # the third layer, which divides by its number, too

    def by_hand(q, k, v):
        return (q @ k.mT * scale).softmax(-1) @ v  # (B, H, T, d)

    def wrong(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    def right(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=scale)

    expected = by_hand(q, k, v)
    errors = compare(expected, wrong=wrong(q, k, v), right=right(q, k, v))
    return dict(errors)


def example_inverted():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 50, 64).double().unbind()  # (B, H, T, d)
    scale = 64**-0.5

    wrong = (q @ k.mT / scale).softmax(-1)  # (B, H, T, T)
    right = (q @ k.mT * scale).softmax(-1)

    for name, weights in (("wrong", wrong), ("right", right)):
        largest = weights.amax(-1).mean().item()
        print(f"{name}: largest weight of a row, on average {largest:.3f}")
    expected, _ = attention(q, k, v)
    errors = compare(expected, wrong=wrong @ v, right=right @ v)
    return dict(errors)


def example_after():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 50, 64).double().unbind()  # (B, H, T, d)
    scale = 64**-0.5

    wrong = (q @ k.mT).softmax(-1) * scale  # (B, H, T, T)
    right = (q @ k.mT * scale).softmax(-1)

    for name, weights in (("wrong", wrong), ("right", right)):
        total = weights.sum(-1).mean().item()
        print(f"{name}: weights of a row add up to {total:.3f}")
    expected, _ = attention(q, k, v)
    errors = compare(expected, wrong=wrong @ v, right=right @ v)
    return dict(errors)


# --- Dropout ------------------------------------------------------------------


def example_evaluation():
    class Wrong(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

    class Right(nn.Module):
        def forward(self, x):
            p = 0.5 if self.training else 0.0
            return F.scaled_dot_product_attention(x, x, x, dropout_p=p)

    torch.manual_seed(0)
    x = torch.randn(1, 1, 8, 8).double()  # (B, H, T, d)
    seen = {}
    for module in (Wrong().eval(), Right().eval()):
        name = type(module).__name__.lower()
        outputs = {tuple(module(x).flatten().tolist()) for _ in range(10)}
        seen[name] = len(outputs)
        print(f"{name}: {seen[name]} different outputs in ten calls")
    errors = compare(attention(x, x, x)[0], right=Right().eval()(x))
    assert errors["right"] < 1e-9
    return {name: str(count) for name, count in seen.items()}


def example_weights():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
    x = torch.randn(1, 50, 8)  # (B, T, C)
    seen = {}
    for name, training in (("wrong", True), ("right", False)):
        _, weights = layer.train(training)(x, x, x)  # (B, T, T), mean of heads
        whole = (weights.sum(-1) - 1).abs() < 1e-5  # (B, T)
        seen[name] = f"{whole.sum()} of 50 rows"
        print(f"{name}: {seen[name]} of the weights add up to 1")
    return seen


def example_denominator():
    torch.manual_seed(0)
    scores, v = torch.randn(3).double(), torch.randn(3, 2).double()
    e, p = scores.exp(), 0.5  # (Tk,), one query

    def wrong(kept):
        dropped = e * kept  # (Tk,)
        return dropped @ v / dropped.sum()  # (dv,)

    def right(kept):
        dropped = e * kept / (1 - p)  # (Tk,)
        return dropped @ v / e.sum()  # (dv,)

    expected = scores.softmax(-1) @ v
    found = {}
    for name, attend in (("wrong", wrong), ("right", right)):
        masks = torch.tensor([*itertools.product((0.0, 1.0), repeat=3)])
        outputs = torch.stack([attend(kept) for kept in masks.double()])
        nan = outputs.isnan().any(-1)  # (8,), one for each mask
        mean = outputs.mean(0) if name == "right" else outputs[~nan].mean(0)
        found[name] = error(mean, expected)
        print(f"{name}: NaN for {nan.sum()} of 8 masks;", end=" ")
        print(f"mean of the others: error {shown(found[name])}")
    return found


# --- Caps, sinks and axes -----------------------------------------------------


def example_soft_cap():
    torch.manual_seed(0)
    q, k = 2 * torch.randn(2, 6, 8).double()  # (T, d) each
    v = torch.randn(6, 4).double()  # (T, dv)
    mask = torch.ones(6, 6).tril().bool()
    scores = q @ k.mT / math.sqrt(8)  # (T, T)

    def cap(x):
        return 5 * torch.tanh(x / 5)

    wrong = cap(scores.masked_fill(~mask, -math.inf)).softmax(-1)
    right = cap(scores).masked_fill(~mask, -math.inf).softmax(-1)

    for name, weights in (("wrong", wrong), ("right", right)):
        future = weights.masked_fill(mask, 0.0).sum(-1)  # (T,)
        print(f"{name}: weight on the future, at most {future.max():.3f}")
    seen = [cap(row[: i + 1]).softmax(-1) for i, row in enumerate(scores)]
    expected = torch.stack([w @ v[: len(w)] for w in seen])  # (T, dv)
    errors = compare(expected, wrong=wrong @ v, right=right @ v)
    return dict(errors)


def example_sink():
    torch.manual_seed(0)
    scores, v = torch.randn(8).double(), torch.randn(8, 2).double()
    sink = torch.tensor(0.7).double()  # a logit without a value

    def merged(blocks, sink_in_each):
        total, output = torch.zeros(()).double(), torch.zeros(2).double()
        for s, x in blocks:
            e = s.exp()  # (Tk / blocks,)
            output = output + e @ x  # (dv,)
            total = total + e.sum() + (sink.exp() if sink_in_each else 0.0)
        return output / (total if sink_in_each else total + sink.exp())

    blocks = [*zip(scores.split(2), v.split(2), strict=True)]
    wrong, right = merged(blocks, True), merged(blocks, False)

    weights = torch.cat([scores, sink[None]]).softmax(-1)[:-1]  # (Tk,)
    errors = compare(weights @ v, wrong=wrong, right=right)
    print("right, no keys:", merged([], False).tolist())
    return dict(errors)


def example_sigmoid():
    torch.manual_seed(0)
    scores, v = 3 * torch.randn(3, 5).double(), torch.randn(5, 2).double()
    sink = torch.tensor(1.3).double()
    column = torch.cat([scores, sink.expand(3, 1)], -1)  # (Tq, Tk + 1)
    weights = column.softmax(-1)[:, :-1]  # (Tq, Tk): the sink's is dropped
    output = scores.softmax(-1) @ v  # (Tq, dv), as if there were no sink
    lse = scores.logsumexp(-1, keepdim=True)  # (Tq, 1)

    gated = output * torch.sigmoid(lse - sink)  # said to be wrong
    renormalised = output * torch.exp(lse - torch.logaddexp(lse, sink))
    again = weights / weights.sum(-1, keepdim=True) @ v  # the sink is lost

    errors = compare(
        weights @ v, gated=gated, renormalised=renormalised, again=again
    )
    print("again, from the output without a sink:", shown(error(again, output)))
    return {
        "wrong": errors["gated"],
        "right": errors["renormalised"],
        "again": errors["again"],
    }


def example_axis():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 6, 8).double().unbind()  # (B, H, T, d)
    scores = q @ k.mT / math.sqrt(8)  # (B, H, Tq, Tk)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that dim is not given
        implicit = F.softmax(scores)

    versions = {
        "wrong": scores.softmax(-2),  # over the queries
        "right": scores.softmax(-1),  # over the keys
        "implicit": implicit,  # over whatever it is without dim
    }

    outputs = {name: weights @ v for name, weights in versions.items()}
    errors = compare(attention(q, k, v)[0], **outputs)
    ones = torch.ones_like(v)  # an average of ones is one
    for name, weights in versions.items():
        print(f"{name}: ones become {(weights @ ones)[0, 0, 0, 0]:.3f}")
    heads = (implicit - scores.softmax(1)).abs().max().item()
    print("implicit, from a softmax over the heads:", shown(heads))
    return dict(errors)


# --- Kernels ------------------------------------------------------------------


def example_strides():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 9, 4, 16).double().transpose(2, 3).unbind()
    q = q.requires_grad_()  # (B, H, T, d), as heads are split
    gradients = {"wrong": [], "right": []}
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            output = F.scaled_dot_product_attention(q, k, v)
        torch.manual_seed(1)
        wrong = torch.empty_like(output).uniform_()  # with output's strides
        torch.manual_seed(1)
        right = torch.rand(output.shape, dtype=output.dtype)  # contiguous

        for name, g in (("wrong", wrong), ("right", right)):
            gradients[name] += torch.autograd.grad(output, q, g, True)
        try:
            output.transpose(1, 2).view(2, 9, 64)  # (B, T, C)
            merged = "view merges the heads"
        except RuntimeError:
            merged = "view raises, reshape copies"
        print(f"{backend.name:15}: strides {output.stride()}, {merged}")
    errors = {name: error(*pair) for name, pair in gradients.items()}
    for name, found in errors.items():
        print(f"{name}: difference of the gradients {shown(found)}")
    return dict(errors)


def example_nan():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 16, 8).unbind()  # (B, H, T, d) each
    q[0, 0, 3] = math.nan  # an earlier layer has failed

    def wrong(q, k, v):
        output = F.scaled_dot_product_attention(q, k, v)
        return torch.nan_to_num(output)  # meant for queries without keys

    def right(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    seen = {}
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        for name, attend in (("wrong", wrong), ("right", right)):
            with sdpa_kernel(backend):
                row = attend(q, k, v)[0, 0, 3]  # (d,)
            zeros = "zeros" if (row == 0).all() else "numbers"
            seen[name] = "NaN" if row.isnan().all() else zeros
            print(f"{backend.name:15} {name}: the row is {seen[name]}")
    return seen


def example_tensor_scale():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 8, 8).double().unbind()  # (B, H, T, d)
    scale = nn.Parameter(torch.tensor(8**-0.5, dtype=torch.float64))

    def wrong(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=scale)

    def right(q, k, v):
        return F.scaled_dot_product_attention(q * scale, k, v, scale=1.0)

    expected, _ = attention(q, k, v)
    try:
        wrong(q, k, v)
    except TypeError as refusal:
        seen = f"raises {type(refusal).__name__}"
        print(f"wrong: {seen}")
    errors = compare(expected, right=right(q, k, v))
    scale.requires_grad_(False)
    unlearned = error(wrong(q, k, v), expected)
    print("wrong, the scale without a gradient: error", shown(unlearned))
    return {"wrong": seen, "right": errors["right"]}


def example_mask_stride():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 8).double().unbind()  # (B, H, T, d)
    mask = torch.ones(5, 5).tril().bool()  # (Tq, Tk)
    bias = torch.zeros(5, 5).double().masked_fill(~mask, -math.inf)

    wrong = bias
    right = F.pad(bias, (0, -5 % 8))[:, :5]  # rows of 8 in memory

    outputs = {}
    for name, x in (("wrong", wrong), ("right", right)):
        print(f"{name}: {x.stride(0)} numbers from row to row")
        outputs[name] = F.scaled_dot_product_attention(q, k, v, attn_mask=x)
    errors = compare(attention(q, k, v, mask)[0], **outputs)
    assert max(errors.values()) < 1e-9
    return {"wrong": str(wrong.stride(0)), "right": str(right.stride(0))}


# --- All at once --------------------------------------------------------------

FROM_REFERENCE = "largest error"
MISTAKES = (
    ("average", "An empty row averages padding", FROM_REFERENCE),
    ("floor_too_high", "A floor that real scores go below", FROM_REFERENCE),
    ("floor_added", "`finfo.min` is added", FROM_REFERENCE),
    ("floor_does_not_fit", "`-1e9` in float16", "float16"),
    ("start", "A running maximum with a finite start", FROM_REFERENCE),
    ("first_block", "A first block without a key", FROM_REFERENCE),
    ("backward", "The backward of an empty row", FROM_REFERENCE),
    ("model_width", "The model's width in the scale", FROM_REFERENCE),
    ("twice", "The scale applied twice", FROM_REFERENCE),
    ("scale_dropped", "The model's own scale dropped", FROM_REFERENCE),
    ("inverted", "The scale upside down", FROM_REFERENCE),
    ("after", "The scale after the softmax", FROM_REFERENCE),
    ("evaluation", "Dropout in evaluation", "outputs of ten calls"),
    ("weights", "Weights read in training", "add up to 1"),
    ("denominator", "Dropout in the denominator", "error of the mean"),
    ("soft_cap", "The soft cap after the mask", FROM_REFERENCE),
    ("sink", "The sink in every block", FROM_REFERENCE),
    ("sigmoid", "The sink as a sigmoid: no mistake", FROM_REFERENCE),
    ("axis", "A softmax over the queries", FROM_REFERENCE),
    ("strides", "Strides taken for granted", "gradients, two kernels"),
    ("nan", "NaN cleaned away", "output for a NaN query"),
    ("tensor_scale", "A tensor for a scale", FROM_REFERENCE),
    ("mask_stride", "Rows of a mask without alignment", "row stride"),
)


def table_mistakes():
    rows = []
    for name, mistake, measured in MISTAKES:
        with contextlib.redirect_stdout(io.StringIO()):
            found = globals()[f"example_{name}"]()
        anchor = name.replace("_", "-")
        rows.append(
            {
                "mistake": f"[{mistake}](#{anchor})",
                "measured": measured,
                "wrong": shown(found["wrong"]),
                "right": shown(found["right"]),
            }
        )
    return rows
