"""What the home page runs."""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from snippets.attention import attention


def example_first():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 8, 10, 64).double().unbind()  # (B, H, T, d)
    causal = torch.ones(10, 10, dtype=torch.bool).tril()  # True = may attend
    output, weights = attention(q, k, v, causal)  # (B, H, T, d), (B, H, T, T)

    builtin = F.scaled_dot_product_attention(q, k, v, attn_mask=causal)
    future = weights.masked_select(~causal)
    print(
        "as the built-in, within 1e-14:",
        torch.allclose(output, builtin, 0, 1e-14),
    )
    print("weight on the future:", future.abs().max().item())


def figure_widths():
    """Bars at head widths from 4 to 2048: weights of a query on eight keys.

    The bars are sorted, each a mean over a thousand random queries. Divided by
    the square root of the width, they fall off gently, the same at every
    width. Not divided, the first bar grows with the width until the others
    all but vanish.
    """
    torch.manual_seed(0)
    widths = 4, 32, 256, 2048
    figure, axes = plt.subplots(
        2, len(widths), sharex=True, sharey=True, figsize=(5.2, 2.5)
    )
    for column, width in zip(axes.T, widths, strict=True):
        q = torch.randn(1000, 1, width, dtype=torch.float64)
        k = torch.randn(1000, 8, width, dtype=torch.float64)
        logits = (q @ k.mT).squeeze(1)
        for axis, scale, colour in zip(
            column, (width**-0.5, 1), ("C1", "C0"), strict=True
        ):
            weights = (
                (logits * scale)
                .softmax(-1)
                .sort(descending=True)
                .values.mean(0)
            )
            axis.bar(range(8), weights.tolist(), color=colour)
            axis.set(xticks=[], yticks=[0, 1], ylim=(0, 1))
        column[0].set_title(f"d = {width}")
    axes[0, 0].set_ylabel("÷ √d")
    axes[1, 0].set_ylabel("not divided")
    return figure
