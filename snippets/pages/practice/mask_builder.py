"""What the page that builds masks runs."""

import warnings
from collections.abc import Callable

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.attention.flex_attention import (
    create_block_mask,
    create_mask,
    flex_attention,
)

from snippets.attention import attention


def figure_batch() -> Figure:
    """Masks of two examples, six queries by six keys; a filled cell may attend.

    Numbers on the right count the keys of each query. Example 0 has six tokens:
    the lower triangle, with one to six keys. Example 1 has four tokens and two
    positions of padding: the triangle is cut off after the fourth column, and
    the last two queries have four keys, as the one before them has.
    """
    i, j = torch.arange(6)[:, None], torch.arange(6)
    mask = (j <= i) & (j < torch.tensor([6, 4])[:, None, None])  # (B, Tq, Tk)
    figure, grid = plt.subplots(1, 2, figsize=(5.2, 2.9))
    filled = ListedColormap(["none", "C0"])
    line = plt.rcParams["axes.edgecolor"]
    for b, axes in enumerate(grid):
        axes.imshow(mask[b].tolist(), cmap=filled, vmin=0, vmax=1)
        for edge in range(7):
            axes.axhline(edge - 0.5, color=line, lw=0.8)
            axes.axvline(edge - 0.5, color=line, lw=0.8)
        for query, count in enumerate(mask[b].sum(-1).tolist()):
            axes.text(5.8, query, str(count), va="center")
        axes.set_title(f"example {b}")
        axes.set(xlabel="key", xticks=range(6), yticks=range(6))
        axes.set(xlim=(-0.5, 5.5), ylim=(5.5, -0.5))
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    grid[0].set_ylabel("query")
    return figure


def example_three():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 8).double().unbind()  # (B, H, T, d) each
    lengths = torch.tensor([6, 4])  # tokens in each example
    i = torch.arange(6)[:, None]  # (Tq, 1)
    j = torch.arange(6)  # (Tk,)
    past = j <= i  # (Tq, Tk): True = may attend
    tokens = j < lengths[:, None]  # (B, Tk)
    mask = past & tokens[:, None, None]  # (B, 1, Tq, Tk)
    expected, _ = attention(q, k, v, mask)  # (B, H, Tq, d)

    built_in = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def mask_mod(b, _h, q_idx, kv_idx):
        return (kv_idx <= q_idx) & (kv_idx < lengths[b])

    blocks = create_block_mask(mask_mod, 2, None, 6, 6, device="cpu")
    with warnings.catch_warnings():  # that it is not compiled
        warnings.simplefilter("ignore")
        flex = flex_attention(q, k, v, block_mask=blocks)

    # This layer projects, so it is given projections that change nothing.
    layer = nn.MultiheadAttention(32, 4, bias=False, batch_first=True).double()
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(32).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(32))
    merged = [x.transpose(1, 2).flatten(2) for x in (q, k, v)]  # (B, T, C)
    output, _ = layer(
        *merged,
        key_padding_mask=~tokens,  # (B, Tk), True: hidden
        attn_mask=~past,  # (Tq, Tk), True: hidden
        need_weights=False,
    )
    heads = output.unflatten(-1, (4, 8)).transpose(1, 2)  # (B, H, Tq, d)

    for name, found in (
        ("F.scaled_dot_product_attention", built_in),
        ("FlexAttention", flex),
        ("nn.MultiheadAttention", heads),
    ):
        equal = torch.allclose(found, expected, rtol=0, atol=1e-12)
        print(f"{name:30}: equal to within 1e-12: {equal}")


# Of a mask: the shape (B, Tq, Tk), what the tensor is called with, True = may
# attend, what the layer takes, True = hidden, the mask_mod, and the settings.
# In a cell of a table no | can stand, not even in code: hence logical_or.
MASKS = {
    "causal, Tq = Tk": (
        (1, 4, 4),
        "j <= i",
        "attn_mask=~(j <= i)",
        "kv_idx <= q_idx",
        "tq=4&tk=4&padding=none",
    ),
    "causal, after a cache": (
        (1, 2, 6),
        "j <= i + Tk - Tq",
        "attn_mask=~(j <= i + Tk - Tq)",
        "kv_idx <= q_idx + Tk - Tq",
        "tq=2&padding=none",
    ),
    "padding on the right": (
        (2, 6, 6),
        "j < lengths[:, None, None, None]",
        "key_padding_mask=~(j < lengths[:, None])",
        "kv_idx < lengths[b]",
        "causal=0",
    ),
    "padding on the left": (
        (2, 6, 6),
        "j >= Tk - lengths[:, None, None, None]",
        "key_padding_mask=~(j >= Tk - lengths[:, None])",
        "kv_idx >= Tk - lengths[b]",
        "causal=0&padding=left",
    ),
    "a window of 3, causal": (
        (1, 6, 6),
        "(j <= i) & (j > i - 3)",
        "attn_mask=~((j <= i) & (j > i - 3))",
        "(kv_idx <= q_idx) & (kv_idx > q_idx - 3)",
        "window=3&padding=none",
    ),
    "a window of 3 with 1 sink, causal": (
        (1, 6, 6),
        "(j <= i) & torch.logical_or(j > i - 3, j < 1)",
        "attn_mask=~((j <= i) & torch.logical_or(j > i - 3, j < 1))",
        "(kv_idx <= q_idx) & torch.logical_or(kv_idx > q_idx - 3, kv_idx < 1)",
        "window=3&sinks=1&padding=none",
    ),
    "documents, causal": (
        (1, 6, 6),
        "(j <= i) & (document[i] == document)",
        "attn_mask=~((j <= i) & (document[i] == document))",
        "(kv_idx <= q_idx) & (document[q_idx] == document[kv_idx])",
        "padding=none&documents=2,3,1",
    ),
    "a prefix for each example": (
        (2, 6, 6),
        "torch.logical_or(j <= i, j < prefix[:, None, None, None])",
        "attn_mask=~torch.logical_or(j <= i, j < prefix[:, None, None, None])"
        "[:, 0].repeat_interleave(H, 0)",
        "torch.logical_or(kv_idx <= q_idx, kv_idx < prefix[b])",
        "padding=none&prefix=3,1",
    ),
}


def table_forms():
    rows = []
    for name, (shape, tensor, layer, rule, settings) in MASKS.items():
        n_examples, n_queries, n_keys = shape
        names = {
            "torch": torch,
            "i": torch.arange(n_queries)[:, None],
            "j": torch.arange(n_keys),
            "Tq": n_queries,
            "Tk": n_keys,
            "H": 3,
            "lengths": torch.tensor([6, 4]),
            "prefix": torch.tensor([3, 1]),
            "document": torch.tensor([0, 0, 1, 1, 1, 2]),
        }
        whole = n_examples, 3, n_queries, n_keys
        mask = eval(tensor, names)  # noqa: S307
        mask = mask.expand(whole)  # (B, H, Tq, Tk)
        mask_mod: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
        mask_mod = eval(f"lambda b, h, q_idx, kv_idx: {rule}", names)  # noqa: S307
        assert torch.equal(create_mask(mask_mod, *whole, device="cpu"), mask)
        ((_, hidden),) = eval(f"dict({layer})", names).items()  # noqa: S307
        if hidden.shape == (n_examples, n_keys) and "key_" in layer:
            hidden = hidden[:, None, None]  # (B, 1, 1, Tk)
        elif hidden.ndim == 3:
            hidden = hidden.unflatten(0, (n_examples, 3))
        assert torch.equal((~hidden).expand(whole), mask)
        rows.append(
            {
                "mask": f"[{name}](mask-builder.md?{settings})",
                "F.scaled_dot_product_attention: attn_mask": f"`{tensor}`",
                "nn.MultiheadAttention": f"`{layer}`",
                "FlexAttention: mask_mod returns": f"`{rule}`",
            }
        )
    return rows
