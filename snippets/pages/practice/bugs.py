"""What the page on real mistakes runs: what PyTorch itself does, by release.

It runs on old releases too: what they lack is imported where it is used.
"""

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

SDPA: Callable[..., Tensor] = F.scaled_dot_product_attention
REFUSALS = AssertionError, RuntimeError, TypeError, ValueError
RECORD = Path(__file__).with_name("versions.json")
COMMAND = "python scripts/versions.py"
BY_RELEASE = "#what-pytorch-does-by-release"


# What the functions below share


def tokens(n: int = 4) -> Tensor:
    """Draw x, (B, T, C) = (2, n, 8)."""
    return torch.randn(2, n, 8).double()


def three(tq: int = 4, tk: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Draw q, k and v, (B, H, T, d) = (1, 2, T, 8), that need gradients."""
    q, k, v = (torch.randn(1, 2, n, 8).double() for n in (tq, tk, tk))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def layer(**options: Any) -> nn.MultiheadAttention:
    """Make a layer of two heads and width 8."""
    options = {"batch_first": True, **options}
    return nn.MultiheadAttention(8, 2, **options).double()


def stack(**options: Any) -> nn.TransformerEncoder:
    """Make two encoder layers of width 8, without dropout."""
    block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    return nn.TransformerEncoder(block, 2, **options).double()


def causal(tq: int = 4, tk: int = 4, shift: int = 0) -> Tensor:
    """Make the causal mask (Tq, Tk), True = may attend."""
    return torch.ones(tq, tk, dtype=torch.bool).tril(shift)


def padding() -> Tensor:
    """Mark the last two of four tokens of the second example, (B, Tk)."""
    return torch.tensor([[False] * 4, [False, False, True, True]])


def one_empty_row() -> Tensor:
    """Make the causal mask (4, 4) with a last row that hides every key."""
    mask = causal()
    mask[-1] = False
    return mask


def plain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | float = 0.0,
) -> Tensor:
    """Product, softmax, product; True in the mask = may attend."""
    logits = q @ k.mT / math.sqrt(q.shape[-1]) + bias  # (..., Tq, Tk)
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1) @ v  # (..., Tq, dv)


def through(kernel: str, *inputs: Tensor, **options: Any) -> Tensor:
    """Call the built-in with one kernel, FLASH_ATTENTION or MATH."""
    with sdpa_kernel(getattr(SDPBackend, kernel)):
        return SDPA(*inputs, **options)


def which(result: Tensor, meanings: dict[str, Tensor]) -> str:
    """Name the meaning that a result equals; NaN and zeros have names."""
    if result.isnan().any():
        return "NaN"
    if not result.any():
        return "zeros"
    for name, meant in meanings.items():
        if result.shape == meant.shape and torch.allclose(result, meant):
            return name
    return "something else"


def finite(*tensors: Tensor) -> str:
    """Say whether a NaN or an infinity is in one of the tensors."""
    return "finite" if all(x.isfinite().all() for x in tensors) else "NaN"


def tried(call: Callable[[], str]) -> str:
    """Give what the call says, or the name of the error that it raises."""
    try:
        return call()
    except REFUSALS as error:
        return f"raises {type(error).__name__}"


# Masks


def status_polarity_builtin() -> str:
    """Built-in: True in a boolean mask."""
    q, k, v = three()
    return which(SDPA(q, k, v, itself()), readings(q, k, v))


def itself() -> Tensor:
    """Make the mask (4, 4) that marks for each query its own key."""
    return torch.eye(4, dtype=torch.bool)


def readings(q: Tensor, k: Tensor, v: Tensor) -> dict[str, Tensor]:
    """Read that mask in both ways."""
    return {
        "attends": plain(q, k, v, itself()),
        "hides": plain(q, k, v, ~itself()),
    }


def status_polarity_flex() -> str:
    """FlexAttention: True from `mask_mod`."""
    q, k, v = three()
    found = flexed(q, k, v, itself())
    return "no such API" if found is None else which(found, readings(q, k, v))


def flexed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor | None:
    """Call FlexAttention with a mask; None where it does not exist."""
    try:
        from torch.compiler import set_stance
        from torch.nn.attention import flex_attention as flex
    except ImportError:
        return None

    def attend(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return mask[i, j]

    blocks = flex.create_block_mask(attend, None, None, 4, 4, "cpu")
    q, k, v = q.detach(), k.detach(), v.detach()  # no gradient on a CPU
    with set_stance("force_eager"):  # tracing takes a while
        return flex.flex_attention(q, k, v, block_mask=blocks)


def status_polarity_layer() -> str:
    """Layer: True in a boolean mask."""
    x, attend = tokens(), layer()
    weights = attend(x, x, x, attn_mask=itself())[1]  # (B, Tq, Tk)
    return (
        "hides" if (weights == 0).equal(itself().expand(2, 4, 4)) else "attends"
    )


def status_ones_float() -> str:
    """Built-in: a float mask of 0 and 1."""
    q, k, v = three()
    mask = causal()
    meanings = {
        "added": plain(q, k, v, bias=mask.double()),
        "masks": plain(q, k, v, mask),
    }
    return which(SDPA(q, k, v, mask.double()), meanings)


def status_ones_integer() -> str:
    """Built-in: an integer mask of 0 and 1."""
    q, k, v = three()
    mask = causal()
    meanings = {
        "added": plain(q, k, v, bias=mask.double()),
        "masks": plain(q, k, v, mask),
    }
    return tried(lambda: which(SDPA(q, k, v, mask.long()), meanings))


def status_padding_float() -> str:
    """Encoder: float padding of 0 and −∞."""
    x, encode = tokens(), stack()
    added = torch.zeros(2, 4).double().masked_fill(padding(), -math.inf)
    meanings = {
        "masks": encode(x, src_key_padding_mask=padding())[:, :2],
        "ignored": encode(x)[:, :2],
    }
    return which(encode(x, src_key_padding_mask=added)[:, :2], meanings)


def status_bias_fast() -> str:
    """Encoder, evaluated: a bias as its mask."""
    x, encode = tokens(), stack(enable_nested_tensor=False)
    distance = torch.arange(4)[:, None] - torch.arange(4)  # (T, T)
    bias = -0.5 * distance.abs().double()
    meanings = {"added": encode(x, mask=bias)}
    encode.eval()
    with torch.no_grad():
        meanings["hides where not 0"] = encode(x, mask=distance != 0)
        return which(encode(x, mask=bias), meanings)


def status_dtype_float32() -> str:
    """Built-in in bfloat16: a float32 mask."""
    x = torch.randn(1, 2, 4, 8).bfloat16()
    return tried(lambda: taken(SDPA(x, x, x, torch.zeros(4, 4)), x))


def status_dtype_float16() -> str:
    """Built-in in bfloat16: a float16 mask."""
    x = torch.randn(1, 2, 4, 8).bfloat16()
    return tried(lambda: taken(SDPA(x, x, x, torch.zeros(4, 4).half()), x))


def taken(result: Tensor, x: Tensor) -> str:
    """Say whether a result has the dtype of the inputs."""
    return "taken" if result.dtype == x.dtype else f"gives {result.dtype}"


def status_dtype_autocast() -> str:
    """Layer under autocast: a float32 mask."""
    x, attend = tokens().float(), layer().float()
    options = {"attn_mask": torch.zeros(4, 4), "need_weights": False}
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        return tried(lambda: taken(attend(x, x, x, **options)[0].float(), x))


def status_warning_same() -> str:
    """Encoder: a boolean mask and boolean padding."""
    return warned(~causal())


def status_warning_mixed() -> str:
    """Encoder: a float mask and boolean padding."""
    return warned(torch.zeros(4, 4).double())


def warned(mask: Tensor) -> str:
    """Say whether an encoder warns of this mask beside boolean padding."""
    x, encode = tokens(), stack()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encode(x, mask=mask, src_key_padding_mask=padding())
    found = any("mismatched" in str(w.message) for w in caught)
    return "warns" if found else "no warning"


def status_three_dimensions() -> str:
    """Layer: a mask `(B, T, T)`."""
    x, attend = tokens(), layer()
    mask = ~causal().expand(2, 4, 4)
    return tried(lambda: finite(attend(x, x, x, attn_mask=mask)[0]))


def status_three_repeated() -> str:
    """Layer: a mask `(B, T, T)`, by `mask.repeat`."""
    x, attend = tokens(), layer()
    hidden = padding()[:, None].expand(2, 4, 4)  # (B, Tq, Tk)
    weights = attend(
        x,
        x,
        x,
        attn_mask=hidden.repeat(2, 1, 1),
        average_attn_weights=False,
    )[1]  # (B, H, Tq, Tk)
    right = (weights == 0).equal(hidden[:, None].expand(2, 2, 4, 4))
    return "masks" if right else "masks other examples"


# A query without keys


def status_empty_math() -> str:
    """Built-in, math: a row that hides every key."""
    return which(through("MATH", *three(), one_empty_row())[:, :, 3], {})


def status_empty_flash() -> str:
    """Built-in, flash: a row that hides every key."""
    mask = one_empty_row()
    return which(through("FLASH_ATTENTION", *three(), mask)[:, :, 3], {})


def status_empty_additive() -> str:
    """Built-in: a float row of −∞."""
    mask = torch.zeros(4, 4).double().masked_fill(~one_empty_row(), -math.inf)
    return which(SDPA(*three(), mask)[:, :, 3], {})


def status_empty_flex() -> str:
    """FlexAttention: a row that hides every key."""
    found = flexed(*three(), one_empty_row())
    return "no such API" if found is None else which(found[:, :, 3], {})


def status_empty_weights() -> str:
    """Layer: a row that hides every key."""
    x, attend = tokens(), layer()
    return which(attend(x, x, x, attn_mask=~one_empty_row())[0][:, 3], {})


def status_empty_no_weights() -> str:
    """Layer, `need_weights=False`: such a row."""
    x, attend = tokens(), layer()
    options = {"attn_mask": ~one_empty_row(), "need_weights": False}
    return which(attend(x, x, x, **options)[0][:, 3], {})


def status_empty_fast() -> str:
    """Layer, evaluated: such a row."""
    x, attend = tokens(), layer().eval()
    options = {"attn_mask": ~one_empty_row(), "need_weights": False}
    with torch.no_grad():
        return which(attend(x, x, x, **options)[0][:, 3], {})


def status_empty_lower_right() -> str:
    """Built-in: `causal_lower_right`, 5 queries, 3 keys: first rows."""
    return which(SDPA(*three(5, 3), causal_lower_right(5, 3))[:, :, :2], {})


def status_backward_builtin() -> str:
    """Built-in: gradients of the other rows."""
    inputs = three()
    loss = SDPA(*inputs, one_empty_row())[:, :, :3].sum()
    return finite(*torch.autograd.grad(loss, inputs))


def status_backward_weights() -> str:
    """Layer: gradients of the other rows."""
    return gradients_of_others(need_weights=True)


def status_backward_no_weights() -> str:
    """Layer, `need_weights=False`: such gradients."""
    return gradients_of_others(need_weights=False)


def gradients_of_others(*, need_weights: bool) -> str:
    """Say what a loss that leaves the empty row out gives the layer."""
    x, attend = tokens(), layer()
    options = {"attn_mask": ~one_empty_row(), "need_weights": need_weights}
    loss = attend(x, x, x, **options)[0][:, :3].sum()
    return finite(*torch.autograd.grad(loss, attend.in_proj_weight))


def status_floor_forward() -> str:
    """Built-in: a row of `finfo.min`."""
    q, k, v = three()
    mean = {"average of all": v.mean(2).detach()}
    return which(SDPA(q, k, v, floored())[:, :, 3], mean)


def floored() -> Tensor:
    """Make a float mask (4, 4) whose last row is `finfo.min`."""
    mask = torch.zeros(4, 4).double()
    mask[3] = torch.finfo(torch.float64).min
    return mask


def status_floor_backward_math() -> str:
    """Built-in, math: its gradient of v."""
    return factor("MATH")


def status_floor_backward_flash() -> str:
    """Built-in, flash: its gradient of v."""
    return factor("FLASH_ATTENTION")


def factor(kernel: str) -> str:
    """Compare the gradient of v from the averaging row with 1 / Tk."""
    q, k, v = three()
    loss = through(kernel, q, k, v, floored())[:, :, 3].sum()
    (gradient,) = torch.autograd.grad(loss, v)
    right = torch.full_like(v, 1 / 4)
    meanings = {"right": right, "Tk times too large": 4 * right}
    return which(gradient, meanings)


def status_floor_half() -> str:
    """`masked_fill` with `-1e9` in float16."""
    logits = torch.zeros(4, 4).half()
    return tried(lambda: finite(logits.masked_fill(~causal(), -1e9)))


def status_half_math() -> str:
    """Built-in, math: q·k of 102,400 in float16."""
    return large("MATH")


def status_half_flash() -> str:
    """Built-in, flash: q·k of 102,400 in float16."""
    return large("FLASH_ATTENTION")


def large(kernel: str) -> str:
    """Say what a kernel makes of a product that float16 cannot hold."""
    x = torch.full((1, 2, 4, 64), 40.0).half()  # q·k is 102,400, scaled 12,800
    return which(through(kernel, x, x, x), {"right": x})


# NaN


def status_nan_value() -> str:
    """Built-in: a NaN in a hidden value."""
    q, k, v = (x.detach() for x in three())
    v[:, :, 3] = math.nan  # which the first three queries do not see
    return finite(SDPA(q, k, v, causal())[:, :, :3])


def status_nan_key() -> str:
    """Built-in, mask tensor: a NaN in a hidden key."""
    q, k, v = (x.detach() for x in three())
    k[:, :, 3] = math.nan
    return finite(SDPA(q, k, v, causal())[:, :, :3])


def status_nan_key_math() -> str:
    """Built-in, math, `is_causal`: a NaN in a hidden key."""
    return flagged("MATH")


def status_nan_key_flash() -> str:
    """Built-in, flash, `is_causal`: a NaN in a hidden key."""
    return flagged("FLASH_ATTENTION")


def flagged(kernel: str) -> str:
    """Say what is_causal does for three queries that precede a NaN key."""
    q, k, v = (x.detach() for x in three())
    k[:, :, 3] = math.nan
    return finite(through(kernel, q, k, v, is_causal=True)[:, :, :3])


def status_nan_query() -> str:
    """Built-in, flash: NaN for the queries."""
    q, k, v = (x.detach() for x in three(16, 16))
    q[:] = math.nan
    return which(through("FLASH_ATTENTION", q, k, v), {})


# Causal flags


def status_alignment_flag() -> str:
    """Built-in: `is_causal=True`, 2 queries, 6 keys."""
    return alignment(is_causal=True)


def status_alignment_lower() -> str:
    """Built-in: `causal_lower_right`, 2 queries, 6 keys."""
    return alignment(attn_mask=causal_lower_right(2, 6))


def alignment(**options: Any) -> str:
    """Say at which corner two queries and six keys are aligned."""
    q, k, v = three(2, 6)
    meanings = {
        "top left": plain(q, k, v, causal(2, 6)),
        "bottom right": plain(q, k, v, causal(2, 6, 4)),
    }
    return which(SDPA(q, k, v, **options), meanings)


def status_both_math() -> str:
    """Built-in, math: a mask and `is_causal=True`."""
    return both("MATH")


def status_both_flash() -> str:
    """Built-in, flash: a mask and `is_causal=True`."""
    return both("FLASH_ATTENTION")


def both(kernel: str) -> str:
    """Say what a kernel makes of a mask together with `is_causal`."""
    q, k, v = three()
    mask = torch.tensor([True, False, True, True]).expand(4, 4)
    meanings = {
        "both apply": plain(q, k, v, mask & causal()),
        "mask alone": plain(q, k, v, mask),
        "causal alone": plain(q, k, v, causal()),
    }
    options = {"attn_mask": mask, "is_causal": True}
    return tried(lambda: which(through(kernel, q, k, v, **options), meanings))


def status_hint_weights() -> str:
    """Layer: a window and `is_causal=True`."""
    return hinted(training=True, need_weights=True)


def status_hint_no_weights() -> str:
    """Layer, `need_weights=False`: the same."""
    return hinted(training=True, need_weights=False)


def status_hint_fast() -> str:
    """Layer, `need_weights=False`, evaluated: the same."""
    return hinted(training=False, need_weights=False)


def status_hint_alone() -> str:
    """Layer: `is_causal=True`, no mask."""
    return hinted(training=True, need_weights=False, window=False)


def status_hint_alone_fast() -> str:
    """Layer, evaluated: `is_causal=True`, no mask."""
    return hinted(training=False, need_weights=False, window=False)


def hinted(*, training: bool, need_weights: bool, window: bool = True) -> str:
    """Say which mask a layer applies that is told `is_causal=True`."""
    x, attend = tokens(), layer()
    hidden = ~(causal() & ~causal(shift=-2))  # all but itself and one before
    meanings = {
        name: attend(x, x, x, attn_mask=mask)[0]
        for name, mask in (
            ("mask applies", hidden),
            ("causal alone", ~causal()),
            ("nothing hidden", None),
        )
    }
    options: dict[str, Any] = {
        "is_causal": True,
        "need_weights": need_weights,
    }
    if window:
        options["attn_mask"] = hidden
    attend.train(training)
    with torch.set_grad_enabled(training):
        return tried(lambda: which(attend(x, x, x, **options)[0], meanings))


# Heads and layout


def status_quantizable() -> str:
    """Quantizable layer, `batch_first=True`."""
    try:
        from torch.ao.nn.quantizable import MultiheadAttention
    except ImportError:
        return "no such API"
    x = tokens(5)
    attend: Any = layer().eval()
    q, k, v = F.linear(x, attend.in_proj_weight).chunk(3, -1)  # (B, T, C) each
    split = [y.unflatten(-1, (2, 4)).transpose(1, 2) for y in (q, k, v)]
    outputs = plain(*split)  # (B, H, T, d)
    attend.qconfig = None  # from_float asks for it
    other = MultiheadAttention.from_float(attend)
    other.batch_first = True  # which from_float forgets
    meanings = {
        "right": attend(x, x, x)[0],
        "heads merged wrong": attend.out_proj(outputs.reshape(2, 5, 8)),
    }
    return which(other.eval()(x, x, x)[0], meanings)


def status_batch_first() -> str:
    """Layer: the axis of time, unless told."""
    x, attend = tokens(), nn.MultiheadAttention(8, 2).double()
    alone = attend(x[:1], x[:1], x[:1])[0]  # one step of the first axis
    same = torch.allclose(attend(x, x, x)[0][:1], alone)
    return "second" if same else "first"


def status_view_math() -> str:
    """Built-in, math: its heads joined by `view`."""
    return viewed("MATH")


def status_view_flash() -> str:
    """Built-in, flash: its heads joined by `view`."""
    return viewed("FLASH_ATTENTION")


def viewed(kernel: str) -> str:
    """Say whether the heads of transposed inputs can be joined by a view."""
    x = torch.randn(2, 5, 2, 8).transpose(1, 2)  # (B, H, T, d)
    output = through(kernel, x, x, x)
    return tried(
        lambda: finite(output.transpose(1, 2).view(2, 5, 16)) and "works"
    )


def status_grouped_flag() -> str:
    """Built-in, `enable_gqa=True`: key heads are."""
    q = torch.randn(1, 4, 3, 8).double()  # (B, H, T, d)
    k, v = torch.randn(2, 1, 2, 3, 8).double()  # (B, two heads, T, d) each
    if "enable_gqa" not in (SDPA.__doc__ or ""):
        return "no such API"
    meanings = {
        "repeated": plain(q, *(x.repeat_interleave(2, 1) for x in (k, v))),
        "tiled": plain(q, *(x.repeat(1, 2, 1, 1) for x in (k, v))),
    }
    return which(SDPA(q, k, v, enable_gqa=True), meanings)


def status_grouped_without() -> str:
    """Built-in: 4 heads on 2, no flag."""
    q, k = torch.randn(1, 4, 3, 8), torch.randn(1, 2, 3, 8)
    return tried(lambda: finite(SDPA(q, k, k)))


def status_grouped_one() -> str:
    """Built-in: 4 heads on 1, no flag."""
    q, k = torch.randn(1, 4, 3, 8).double(), torch.randn(1, 1, 3, 8).double()
    return tried(lambda: which(SDPA(q, k, k), {"broadcasts": plain(q, k, k)}))


def status_strides() -> str:
    """Built-in: strides of its outputs, flash and math."""
    x = torch.randn(2, 5, 2, 8).transpose(1, 2)  # (B, H, T, d)
    flash, math_ = (through(n, x, x, x) for n in ("FLASH_ATTENTION", "MATH"))
    return "equal" if flash.stride() == math_.stride() else "differ"


def status_mask_strides() -> str:
    """Built-in: a mask that is a slice, expanded."""
    q, k, v = three()
    bias = torch.randn(1, 1, 4, 8).double()[..., :4].expand(1, 2, 4, 4)
    return tried(
        lambda: which(SDPA(q, k, v, bias), {"right": plain(q, k, v, bias=bias)})
    )


# Weights and dropout


def status_weights_heads() -> str:
    """Layer: the weights it returns, unless told."""
    x, attend = tokens(), layer()
    each = attend(x, x, x, average_attn_weights=False)[1]  # (B, H, Tq, Tk)
    meanings = {"average of heads": each.mean(1), "each head": each}
    return which(attend(x, x, x)[1], meanings)


def status_weights_dropped() -> str:
    """Layer, dropout in training: sums of its weights."""
    x, attend = tokens(16), layer(dropout=0.5)
    sums = attend(x, x, x)[1].sum(-1)
    return "to 1" if torch.allclose(sums, torch.ones_like(sums)) else "not to 1"


def status_weights_empty_batch() -> str:
    """Layer, evaluated, empty batch: the weights."""
    x, attend = tokens()[:0], layer().eval()
    with torch.no_grad():
        weights = attend(x, x, x)[1]
    return "None" if weights is None else "a tensor"


def status_dropout_evaluation() -> str:
    """Built-in, `dropout_p=0.5` in an evaluated module."""

    class Module(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return SDPA(x, x, x, dropout_p=0.5)

    module, x = Module().eval(), torch.randn(1, 2, 16, 8)
    return "keeps all" if module(x).equal(module(x)) else "drops"


# The encoder's fast path, and derivatives


def status_encoder_length() -> str:
    """Encoder, evaluated: every example ends in padding."""
    x, encode, hidden = tokens(), stack(), padding()
    hidden[0, 2:] = True
    encode.eval()
    with torch.no_grad():
        length = encode(x, src_key_padding_mask=hidden).shape[1]
    return "length kept" if length == 4 else "cut"


def status_encoder_padded() -> str:
    """Encoder, evaluated: outputs at padding."""
    x, encode = tokens(), stack()
    trained = encode(x, src_key_padding_mask=padding())[padding()]
    encode.eval()
    with torch.no_grad():
        output = encode(x, src_key_padding_mask=padding())[padding()]
    return which(output, {"as in training": trained})


def status_second_derivative() -> str:
    """Built-in, flash: a second derivative."""
    q, k, v = three()

    def twice() -> str:
        loss = through("FLASH_ATTENTION", q, k, v).square().sum()
        (first,) = torch.autograd.grad(loss, q, create_graph=True)
        return finite(*torch.autograd.grad(first.square().sum(), q))

    return tried(twice)


# The museum


@dataclass(frozen=True)
class Entry:
    """A class of mistake: what it is, what shows, and a check that finds it.

    `statuses` name the functions above that say what PyTorch does about it;
    where there are none, `whose` says where the mistake lies.
    """

    name: str
    mistake: str
    symptom: str
    check: str
    statuses: tuple[str, ...] = ()
    whose: str = "your code"


ENTRIES = (
    # Masks
    Entry(
        "polarity",
        "True read the other way round",
        "tokens see the future alone, or padding alone",
        "mask_polarity",
        ("polarity_builtin", "polarity_flex", "polarity_layer"),
    ),
    Entry(
        "ones",
        "Ones and zeros as numbers for a mask",
        "nothing is hidden: logits move by 1",
        "mask_ignored",
        ("ones_float", "ones_integer"),
    ),
    Entry(
        "mixed_masks",
        "Two kinds of mask in one call",
        "a warning, and once padding that was dropped",
        "",
        (
            "padding_float",
            "warning_same",
            "warning_mixed",
        ),
    ),
    Entry(
        "bias_fast",
        "A bias read as a mask",
        "right in training, wrong once evaluated",
        "training_and_evaluation",
        ("bias_fast",),
    ),
    Entry(
        "mask_dtype",
        "A mask in another precision",
        "an error in bfloat16 or under autocast",
        "mask_floor",
        (
            "dtype_float32",
            "dtype_float16",
            "dtype_autocast",
        ),
    ),
    Entry(
        "after_softmax",
        "The mask after the softmax",
        "rows sum to less than 1, the future still counts",
        "mask_after_softmax",
    ),
    Entry(
        "multiplied",
        "Logits multiplied by the mask",
        "hidden keys keep the weight of a logit of 0",
        "mask_multiplied",
    ),
    Entry(
        "window_multiplied",
        "An additive mask multiplied by a pattern",
        "the loss collapses: 0 times −∞ hides nothing",
        "causal_leak",
    ),
    Entry(
        "query_axis",
        "Padding masked on the query axis",
        "outputs of real tokens change with the padding",
        "mask_on_query_axis",
    ),
    Entry(
        "broadcast",
        "A mask laid along the wrong axis",
        "an example is masked as another one is",
        "mask_broadcast",
        ("three_dimensions", "three_repeated"),
    ),
    Entry(
        "summed",
        "Two floors added",
        "−∞ beside a floor: hidden rows see the future",
        "masks_summed",
    ),
    Entry(
        "floor_high",
        "A floor that real scores reach",
        "hidden keys keep weight",
        "mask_floor",
    ),
    Entry(
        "floor_half",
        "A floor that does not fit into float16",
        "an error",
        "mask_floor",
        ("floor_half",),
    ),
    Entry(
        "floor_added",
        "A floor that is added",
        "−∞ after all in float16: NaN for a hidden row",
        "empty_rows",
    ),
    Entry(
        "floor_row",
        "A row of nothing but the floor",
        "an average of padding, and its gradient too large",
        "empty_rows",
        (
            "floor_forward",
            "floor_backward_math",
            "floor_backward_flash",
        ),
    ),
    Entry(
        "soft_cap",
        "The soft cap after the mask",
        "−∞ becomes −cap: the future has weight",
        "soft_cap_after_mask",
    ),
    Entry(
        "mask_memory",
        "A mask repeated for every head",
        "memory grows with the heads; results are right",
        "",
    ),
    Entry(
        "mask_strides",
        "A mask that is a slice",
        "an error on some GPU kernels; right on a CPU",
        "",
        ("mask_strides",),
    ),
    # Causal flags
    Entry(
        "alignment",
        "A causal flag for fewer queries than keys",
        "a new token sees the oldest key alone",
        "causal_alignment",
        ("alignment_flag", "alignment_lower"),
    ),
    Entry(
        "more_queries",
        "A causal mask for more queries than keys",
        "the first rows see nothing",
        "causal_alignment",
        ("empty_lower_right",),
    ),
    Entry(
        "both",
        "A mask and the causal flag together",
        "an error, or both apply: it depends on the kernel",
        "",
        ("both_math", "both_flash"),
    ),
    Entry(
        "hint",
        "The causal flag as a hint that replaces the mask",
        "a window goes when no weights are asked for",
        "training_and_evaluation",
        ("hint_weights", "hint_no_weights", "hint_fast"),
    ),
    Entry(
        "hint_alone",
        "The causal flag of a layer without a mask",
        "an error in training, the future in evaluation",
        "runs",
        ("hint_alone", "hint_alone_fast"),
    ),
    Entry(
        "flag_lost",
        "A causal flag that one path drops",
        "a leak with dropout, or when weights are asked for",
        "causal_leak",
    ),
    # Queries without keys, and NaN
    Entry(
        "empty",
        "A query without keys",
        "NaN, or an average of what is hidden",
        "empty_rows",
        (
            "empty_math",
            "empty_flash",
            "empty_additive",
            "empty_flex",
            "empty_weights",
            "empty_no_weights",
            "empty_fast",
        ),
    ),
    Entry(
        "empty_backward",
        "An empty row that the loss leaves out",
        "every gradient is NaN from the first step",
        "empty_rows_backward",
        ("backward_builtin", "backward_weights", "backward_no_weights"),
    ),
    Entry(
        "late_repair",
        "NaN set to 0 after the softmax",
        "outputs are finite, gradients are NaN",
        "empty_rows_backward",
    ),
    Entry(
        "nan_spreads",
        "NaN in what is hidden",
        "one bad padding vector, then NaN everywhere",
        "nan_spreads",
        ("nan_value", "nan_key", "nan_key_math", "nan_key_flash"),
    ),
    Entry(
        "padding_unwritten",
        "Padding that was never written",
        "NaN in some runs, none in others",
        "nan_spreads",
    ),
    Entry(
        "nan_swallowed",
        "NaN that comes back as zeros",
        "a broken input goes unnoticed",
        "",
        ("nan_query",),
    ),
    # Softmax, scale and precision
    Entry(
        "softmax_axis",
        "The softmax over the queries",
        "columns sum to 1; with values of 1, not 1",
        "softmax_axis",
    ),
    Entry(
        "scale_model",
        "The scale of the model's width",
        "flat weights, slow learning",
        "scale",
    ),
    Entry(
        "scale_twice",
        "The query scaled, and scaled again",
        "a ported checkpoint gives other text",
        "scale",
    ),
    Entry(
        "scale_dropped",
        "A scale of the model's own that is dropped",
        "a ported checkpoint gives other text",
        "scale",
    ),
    Entry(
        "scale_inverted",
        "The scale upside down",
        "each query takes one key",
        "scale",
    ),
    Entry(
        "scale_after",
        "The scale after the softmax",
        "rows sum to little",
        "scale",
    ),
    Entry(
        "half_overflow",
        "q·k past the range of float16",
        "NaN in float16, none in float32",
        "half_overflow",
        ("half_math", "half_flash"),
    ),
    Entry(
        "first_block",
        "Online softmax whose first block is hidden",
        "NaN for a row, from there on",
        "empty_first_block",
    ),
    Entry(
        "finite_start",
        "Online softmax that starts at a finite maximum",
        "zeros where all logits are lower",
        "overflow",
    ),
    Entry(
        "online_backward",
        "Online backward of a row without keys",
        "NaN in the gradient of q",
        "empty_rows_backward",
    ),
    Entry(
        "sink_counted",
        "A sink counted in every split",
        "outputs too small, the more the more splits",
        "sink_counted_twice",
    ),
    Entry(
        "second_derivative",
        "A second derivative through the fast kernel",
        "an error in a gradient penalty",
        "",
        ("second_derivative",),
    ),
    Entry(
        "compiled_scale",
        "A tensor for the scale, compiled",
        "an error in the compiler",
        "",
        whose="PyTorch's compiler: not measured here",
    ),
    Entry(
        "compiled_digits",
        "Compiled attention compared bit for bit",
        "a test that fails in the last digits",
        "",
        whose="PyTorch's compiler: not measured here",
    ),
    # Dropout and weights
    Entry(
        "dropout_evaluation",
        "Dropout in evaluation",
        "two calls of an evaluated model differ",
        "dropout_in_evaluation",
        ("dropout_evaluation",),
    ),
    Entry(
        "dropout_rescaled",
        "Dropout before the denominator",
        "wrong on average, and NaN where all is dropped",
        "dropout_rescaled",
    ),
    Entry(
        "weights_dropped",
        "Returned weights taken before, or after, dropout",
        "rows do not sum to 1 in training",
        "",
        ("weights_dropped",),
    ),
    Entry(
        "weights_averaged",
        "An average taken for the weights of a head",
        "one map where there should be one a head",
        "",
        ("weights_heads",),
    ),
    Entry(
        "weights_unread",
        "Weights that are made and not read",
        "slow: the fused kernel is not used",
        "",
    ),
    Entry(
        "weights_none",
        "Weights of an empty batch",
        "None, though weights were asked for",
        "",
        ("weights_empty_batch",),
    ),
    # Heads and layout
    Entry(
        "head_split",
        "Heads split without a transpose",
        "right shape; tokens and features mixed",
        "head_split",
    ),
    Entry(
        "head_merge",
        "Heads merged without a transpose",
        "right shape; tokens mixed, the future leaks",
        "head_merge",
        ("quantizable",),
    ),
    Entry(
        "batch_time",
        "Batch and time exchanged",
        "an output depends on the rest of the batch",
        "batch_time_exchanged",
        ("batch_first",),
    ),
    Entry(
        "view",
        "A view of what is not contiguous",
        "an error on some kernels only",
        "runs",
        ("view_math", "view_flash", "strides"),
    ),
    Entry(
        "grouped_tiled",
        "Grouped heads tiled instead of repeated",
        "a checkpoint gives other text",
        "grouped_heads",
        ("grouped_flag",),
    ),
    Entry(
        "grouped_without",
        "Grouped heads without the flag",
        "an error, but not with one key head",
        "",
        ("grouped_without", "grouped_one"),
    ),
    Entry(
        "memory_mask",
        "Cross-attention with the target's mask",
        "an error, or the wrong keys hidden",
        "cross_mask",
    ),
    Entry(
        "memory_causal",
        "Cross-attention that is causal",
        "a query sees the start of the memory alone",
        "cross_mask",
    ),
    Entry(
        "encoder_padded",
        "Outputs at padding, pooled",
        "a mean over time differs in evaluation",
        "training_and_evaluation",
        ("encoder_padded",),
    ),
    Entry(
        "encoder_length",
        "Outputs as long as the longest example",
        "a shape that differs in evaluation",
        "runs",
        ("encoder_length",),
    ),
    # Positions and caches
    Entry(
        "rotary_layout",
        "The two layouts of rotary pairs mixed",
        "a checkpoint gives other text",
        "pairs_mixed",
    ),
    Entry(
        "rotary_recipe",
        "The table of one rotary recipe, the rotation of the other",
        "norms change: it is no rotation",
        "norm_kept",
    ),
    Entry(
        "rotary_precision",
        "Angles in half precision",
        "neighbours share a position far out",
        "low_precision_angles",
    ),
    Entry(
        "rotary_partial",
        "Partial rotary with the whole width",
        "right at position 0, worse with each step",
        "partial_width",
    ),
    Entry(
        "rotary_offset",
        "Each new token rotated as position 0",
        "generation is garbage, training is fine",
        "offset_ignored",
    ),
    Entry(
        "rotated_twice",
        "Cached keys rotated again",
        "generation gets worse with each token",
        "rotated_twice",
    ),
    Entry(
        "positions_learned",
        "Learned positions that count the padding",
        "short prompts of a batch go wrong",
        "left_padding",
    ),
    Entry(
        "positions_two_counts",
        "A prompt that counts tokens, then slots",
        "generation goes wrong behind left padding",
        "left_padding",
    ),
    Entry(
        "cache_unmasked",
        "A mask only where there is no cache",
        "a prompt of many tokens sees its future",
        "chunks_differ",
    ),
    Entry(
        "cache_unwritten",
        "Slots of a cache that nobody wrote",
        "attention to zeros, or to what was there",
        "unwritten_slots",
    ),
    Entry(
        "cache_rolled",
        "A ring rolled before it is full",
        "the first tokens are lost",
        "rolled_early",
    ),
    Entry(
        "cache_chunk",
        "A chunk that pushes out keys it needs",
        "chunks differ from one pass",
        "chunks_differ",
    ),
    Entry(
        "alibi_decoding",
        "ALiBi over the length of the queries",
        "no bias at all while decoding",
        "alibi_while_decoding",
    ),
    Entry(
        "alibi_slopes",
        "ALiBi slopes for a number of heads that is no power of 2",
        "a checkpoint gives other text",
        "alibi_slopes",
    ),
    Entry(
        "alibi_exponent",
        "ALiBi slopes that start at 1",
        "a checkpoint gives other text",
        "alibi_slopes",
    ),
    Entry(
        "alibi_sign",
        "ALiBi with the wrong sign",
        "far keys win",
        "alibi_sign",
    ),
    Entry(
        "window",
        "A window that is one key off",
        "small differences past the window's length",
        "window_length",
    ),
    Entry(
        "packed",
        "Packed documents that see each other",
        "positions begin anew, and yet they leak",
        "documents_leak",
    ),
)

# The entries that a page shows in full, by name; one line each.
LINKS: dict[str, str] = {
    "polarity": "bugs-masks.md#polarity",
    "ones": "bugs-masks.md#zero-one",
    "mixed_masks": "bugs-masks.md#mixed-masks",
    "bias_fast": "bugs-masks.md#lost-bias",
    "mask_dtype": "bugs-masks.md#mask-dtype",
    "after_softmax": "bugs-masks.md#after-softmax",
    "multiplied": "bugs-masks.md#product",
    "window_multiplied": "bugs-masks.md#triangle",
    "query_axis": "bugs-masks.md#query-axis",
    "broadcast": "bugs-masks.md#other-mask",
    "summed": "bugs-masks.md#two-floors",
    "alignment": "bugs-masks.md#cache-corner",
    "more_queries": "bugs-masks.md#more-queries",
    "both": "bugs-masks.md#mask-and-flag",
    "hint": "bugs-masks.md#hint",
    "hint_alone": "bugs-masks.md#hint-alone",
    "flag_lost": "bugs-masks.md#forgotten-flag",
    "empty": "bugs-masks.md#empty-row",
    "empty_backward": "bugs-masks.md#late-repair",
    "late_repair": "bugs-masks.md#late-repair",
    "nan_spreads": "bugs-masks.md#nan-layers",
    "padding_unwritten": "bugs-masks.md#unwritten",
    "floor_row": "bugs-numbers.md#average",
    "floor_high": "bugs-numbers.md#floor-too-high",
    "floor_added": "bugs-numbers.md#floor-added",
    "floor_half": "bugs-numbers.md#floor-does-not-fit",
    "finite_start": "bugs-numbers.md#start",
    "first_block": "bugs-numbers.md#first-block",
    "online_backward": "bugs-numbers.md#backward",
    "scale_model": "bugs-numbers.md#model-width",
    "scale_twice": "bugs-numbers.md#twice",
    "scale_dropped": "bugs-numbers.md#scale-dropped",
    "scale_inverted": "bugs-numbers.md#inverted",
    "scale_after": "bugs-numbers.md#after",
    "dropout_evaluation": "bugs-numbers.md#evaluation",
    "weights_dropped": "bugs-numbers.md#weights",
    "dropout_rescaled": "bugs-numbers.md#denominator",
    "soft_cap": "bugs-numbers.md#soft-cap",
    "sink_counted": "bugs-numbers.md#sink",
    "softmax_axis": "bugs-numbers.md#axis",
    "compiled_scale": "bugs-numbers.md#tensor-scale",
    "compiled_digits": "bugs-numbers.md#last-digits",
    "mask_strides": "bugs-numbers.md#mask-stride",
    "nan_swallowed": "bugs-numbers.md#nan",
    "head_split": "bugs-shapes.md#head-split",
    "head_merge": "bugs-shapes.md#head-merge",
    "view": "bugs-shapes.md#view",
    "batch_time": "bugs-shapes.md#batch-first",
    "grouped_tiled": "bugs-shapes.md#groups",
    "grouped_without": "bugs-shapes.md#enable-gqa",
    "weights_averaged": "bugs-shapes.md#average",
    "weights_unread": "bugs-shapes.md#unread-weights",
    "mask_memory": "bugs-shapes.md#mask-memory",
    "encoder_padded": "bugs-shapes.md#pooling",
    "encoder_length": "bugs-shapes.md#shorter-output",
    "weights_none": "bugs-shapes.md#empty-batch",
    "memory_mask": "bugs-shapes.md#memory-mask",
    "memory_causal": "bugs-shapes.md#causal-memory",
    "rotary_layout": "bugs-positions.md#layouts",
    "rotary_recipe": "bugs-positions.md#recipes",
    "rotary_precision": "bugs-positions.md#precision",
    "rotary_partial": "bugs-positions.md#partial",
    "rotary_offset": "bugs-positions.md#restart",
    "rotated_twice": "bugs-positions.md#twice",
    "positions_learned": "bugs-positions.md#learned",
    "positions_two_counts": "bugs-positions.md#two-counts",
    "alibi_slopes": "bugs-positions.md#slopes",
    "alibi_exponent": "bugs-positions.md#exponent",
    "alibi_sign": "bugs-positions.md#sign",
    "alibi_decoding": "bugs-positions.md#decoding",
    "cache_unmasked": "bugs-positions.md#prefill",
    "window": "bugs-positions.md#window",
    "cache_unwritten": "bugs-positions.md#unwritten",
    "cache_rolled": "bugs-positions.md#rolled",
    "cache_chunk": "bugs-positions.md#chunk",
    "packed": "bugs-positions.md#packed",
}


def summary(entry: Entry, record: dict[str, dict[str, Any]]) -> str:
    """Say in a few words what PyTorch does about a mistake."""
    if not entry.statuses:
        return entry.whose
    here = record[running()]["words"]
    words = dict.fromkeys(here[name] for name in entry.statuses)
    columns = [column["words"] for column in record.values()]
    same = all(
        column.get(name) == here[name]
        for column in columns
        for name in entry.statuses
    )
    said = f"[PyTorch]({BY_RELEASE}): {', '.join(words)}"
    return said if same else f"{said} (varies)"


# The table by release


def statuses() -> dict[str, Callable[[], str]]:
    """Every function above that names what PyTorch does, by its name."""
    return {
        name.removeprefix("status_"): function
        for name, function in globals().items()
        if name.startswith("status_")
    }


def measure() -> dict[str, str]:
    """Run them all, each from the same seed, and quietly."""
    words = {}
    for name, function in statuses().items():
        # No torch.device("cpu"): it would close the layers' fast path.
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            words[name] = function()
    return words


def running() -> str:
    """Name the release of torch that runs, such as 2.13.0."""
    return torch.__version__.partition("+")[0]


def read_record() -> dict[str, dict[str, Any]]:
    """Read what was measured, by release, the newest first.

    Raises ValueError where the release that runs is not among them.
    """
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    if running() not in record:
        raise ValueError(
            f"torch {running()} is not in {RECORD.name}, which has "
            f"{', '.join(record) or 'none'}: run {COMMAND} {running()}"
        )
    order = sorted(record, key=lambda name: [*map(int, name.split("."))])
    return {name: record[name] for name in reversed(order)}


def compare(recorded: dict[str, str], measured: dict[str, str]) -> None:
    """Refuse words that differ from those on record for this release."""
    for name in [*measured, *(set(recorded) - set(measured))]:
        old = recorded.get(name, "nothing")
        new = measured.get(name, "nothing")
        if old != new:
            raise ValueError(
                f"{name}: torch {running()} has {old!r} on record, measured "
                f"is {new!r}: run {COMMAND} {running()} and look at the change"
            )


def table_status():
    record = read_record()
    words = measure()
    compare(record[running()]["words"], words)
    rows = []
    for entry in ENTRIES:
        for name in entry.statuses:
            what = (statuses()[name].__doc__ or "").removesuffix(".")
            row = {"mistake": entry.mistake, "what PyTorch is asked": what}
            for release, column in record.items():
                row[release] = column["words"].get(name, "not measured")
            rows.append(row)
    same = sum(len(set(list(row.values())[2:])) == 1 for row in rows)
    return rows, {
        "rows": len(rows),
        "same": same,
        "empty_nan": releases_with("empty_flash", "NaN", record),
        "empty_zeros": releases_with("empty_flash", "zeros", record),
        **words,
    }


def releases_with(
    name: str, word: str, record: dict[str, dict[str, Any]]
) -> str:
    """Releases on record in which a status is the word, oldest first."""
    return ", ".join(
        release
        for release, column in record.items()
        if column["words"].get(name) == word
    )


def table_measured():
    return [
        {
            "PyTorch": release,
            "build": f"`{column['build']}`",
            "measured on": column["measured"],
            "Python": column["python"],
            "platform": column["platform"],
        }
        for release, column in read_record().items()
    ]


def table_mistakes():
    record = read_record()
    checks = "contract.md#what-each-check-finds"
    rows = []
    for entry in ENTRIES:
        link = LINKS.get(entry.name)
        found = f"[`{entry.check}`]({checks})" if entry.check else "no check"
        rows.append(
            {
                "mistake": f"[{entry.mistake}]({link})"
                if link
                else entry.mistake,
                "what you see": entry.symptom,
                "found by": found,
                "today": summary(entry, record),
            }
        )
    return rows


# Trying it, and what proved right


def example_try():
    print("PyTorch", torch.__version__.partition("+")[0])
    for status in (status_empty_weights, status_bias_fast, status_both_flash):
        torch.manual_seed(0)
        print(f"{status.__doc__} {status()}")
    torch.manual_seed(0)
    with torch.device("cpu"):  # which closes the fast path
        print(f"The encoder again: {status_bias_fast()}")


def table_disproved():
    q, k, v = three(6, 6)
    logits = q @ k.mT / math.sqrt(8)  # (B, H, Tq, Tk)

    sink = torch.tensor(0.7).double()  # one more logit, whose value is zero
    column = torch.cat([logits, sink.expand(1, 2, 6, 1)], -1).softmax(-1)
    kept = torch.sigmoid(logits.logsumexp(-1, keepdim=True) - sink)
    gated = logits.softmax(-1) @ v * kept
    sinks = (column[..., :-1] @ v - gated).abs().max()

    keys = torch.arange(6).double()
    triangle = -0.5 * (keys[:, None] - keys).abs()  # (Tq, Tk)
    one_row = 0.5 * keys  # the same for each query
    seen, all_seen = (
        (plain(q, k, v, mask, triangle) - plain(q, k, v, mask, one_row))
        .abs()
        .max()
        .item()
        for mask in (causal(6, 6), None)
    )

    d = 64
    halves = torch.arange(d // 2).double() / (d // 2)
    steps = torch.arange(0, d, 2).double() / d
    assert max(sinks, seen) < 1e-14
    return [
        {
            "reported as wrong": "a sink as `output * sigmoid(lse - sink)`",
            "measured": "a column for the sink gives the same to within 1e-14",
        },
        {
            "reported as wrong": "ALiBi with one row of biases for all queries",
            "measured": "the triangle gives the same to within 1e-14 under a "
            f"causal mask; without one it differs by {all_seen:.2f}",
        },
        {
            "reported as wrong": "exponents `arange(d / 2) / (d / 2)`",
            "measured": "those of `arange(0, d, 2) / d`, bit for bit: "
            f"{halves.equal(steps)}",
        },
    ]
