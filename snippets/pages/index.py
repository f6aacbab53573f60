"""What the home page runs."""

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
