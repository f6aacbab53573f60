"""What the page on claims of others runs: common faults, in our own code."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def moved(call, x: Tensor) -> list[int]:
    """Positions whose output changes when the last position of x is edited.

    ``call`` maps x (T, C) to an output with T rows; only the last may change
    where attention is causal.
    """
    edited = x.clone()
    edited[-1] += 1
    change = (call(edited) - call(x)).abs().amax(-1)  # (T,)
    return change.nonzero().flatten().tolist()


def example_evaluation():
    class Causal(nn.Module):
        def forward(self, x):  # (T, C)
            # Right for dropout; the mask must not depend on the mode.
            q = x[None, None]  # (B, H, T, d)
            y = F.scaled_dot_product_attention(q, q, q, is_causal=self.training)
            return y[0, 0]  # (T, C)

    torch.manual_seed(0)
    x = torch.randn(6, 8).double()
    module = Causal()
    seen = {}
    for mode in (True, False):
        module.train(mode)
        seen[mode] = moved(module, x)
        name = "training" if mode else "evaluation"
        print(f"{name}: editing the last token changes rows {seen[mode]}")
    assert seen[True] == [5]  # the test, which has to run in both modes
    return {"training": len(seen[True]), "evaluation": len(seen[False])}


def example_multiplied():
    torch.manual_seed(0)
    q, k = torch.randn(2, 6, 8).double().unbind()  # (T, d) each
    causal = torch.ones(6, 6).double().tril()  # 1 = may attend
    scores = q @ k.T / 8**0.5  # (Tq, Tk)
    wrong = (scores * causal).softmax(-1)  # a hidden score is 0, not -inf
    right = scores.masked_fill(causal == 0, -torch.inf).softmax(-1)
    for name, weights in (("multiplied", wrong), ("−inf", right)):
        leak = (weights * (1 - causal)).sum(-1)  # (Tq,): weight on the future
        print(f"{name:10}: {' '.join(f'{x:.2f}' for x in leak.tolist())}")
    return {"first": wrong[0, 1:].sum().item()}


def example_inverted():
    future = torch.ones(5, 5).triu(1).bool()  # True = hide, as some APIs want
    q = torch.zeros(1, 1, 5, 5)  # equal scores: a query averages what it sees
    v = torch.eye(5)[None, None]  # so that the output is the weights
    for name, mask in (("triu", future), ("~triu", ~future)):
        weights = F.scaled_dot_product_attention(q, q, v, mask)[0, 0]
        print(f"attn_mask={name}, keys that each query sees:")
        for row in (weights > 0).int().tolist():
            print("   ", *row)


def example_after():
    torch.manual_seed(0)
    q, k = torch.randn(2, 6, 8).double().unbind()  # (T, d) each
    causal = torch.ones(6, 6).double().tril()
    weights = (q @ k.T / 8**0.5).softmax(-1) * causal  # masked too late
    sums = weights.sum(-1)
    print("rows sum to:", " ".join(f"{x:.2f}" for x in sums.tolist()))
    edited = k.clone()
    edited[-1] += 1  # a key that the first five queries must not see
    late = (q @ edited.T / 8**0.5).softmax(-1) * causal
    change = (late - weights)[:5].abs().amax(-1)  # (5,)
    print("rows that the future changes:", change.nonzero().flatten().tolist())
    return {"first": sums[0].item(), "changed": int((change > 0).sum())}
