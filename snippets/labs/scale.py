# ---
# description: >-
#   A small transformer trained with and without the scale, at two widths and
#   from several starts: what it does to entropy, gradients and learning.
# tags: [learn the basics]
# needs: [core/scaling]
# ---

# %% [markdown]
# # Training with and without the scale
#
# [Why attention divides by the root of the width](../core/scaling.md) is shown
# there on random vectors. Here a small transformer learns a task, with
# $1/\sqrt{d_k}$, without it, and with $1/d_k$, from five starts each.
#
# - In a narrow head, $d_k = 8$, the scale hardly matters: without it
#   <data value="final.narrow_none">99.3 %</data> of the answers are right in the
#   end, with it <data value="final.narrow_root">99.9 %</data>.
# - In a wide head, $d_k = 256$, it does:
#   <data value="final.wide_none">70 %</data> against
#   <data value="final.wide_root">100 %</data>. Without it the attention
#   is decided from the first step on, about pairs that chance has picked.
# - The gradient does not vanish. Its mean is
#   <data value="gradient.mean_ratio">2.5</data> times *larger* without the
#   scale. It is small for most questions, and large for a few.
# - The scale is a matter of where the weights start and how fast they move:
#   smaller first weights and a smaller learning rate for $W_q$ and $W_k$ train
#   exactly like the scale. Smaller first weights alone come close.

# %% [markdown]
# ## <a id="the-task"></a>The task: look up the value of a key
#
# A question shows eight pairs of a key and a value, and asks for the value of
# one of the keys. Nothing but the right pair tells the answer: a model that
# guesses any of the 16 symbols is right once in 16, one that averages all pairs
# alike can only guess among the values shown. So the accuracy tells whether the
# attention has found the pair.

# %%
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from torch import Tensor

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)  # tensors as small as these gain nothing from more
STARTS, BATCH, STEPS = 5, 32, 200
PAIRS, SYMBOLS, WIDTH = 8, 16, 32


def questions(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each start: keys, their values, the key asked for, the answer."""
    # Sorting noise shuffles: within a question no key comes twice.
    keys = torch.rand(STARTS, count, SYMBOLS).argsort(-1)[..., :PAIRS]
    values = torch.randint(SYMBOLS, (STARTS, count, PAIRS))
    place = torch.randint(PAIRS, (STARTS, count, 1))
    return keys, values, keys.gather(-1, place), values.gather(-1, place)


# %% [markdown]
# ## <a id="the-model"></a>A small Transformer with a scale to choose
#
# One layer, one head: embeddings, attention, a feed-forward part, both on a
# residual stream with a norm before each. Every tensor has the starts as its
# first dimension $S$, so that five models train at once. The query is the only
# position whose output is read, so it is the only one that is computed. The
# weights are drawn so that the coordinates of queries and keys have variance 1,
# which is what the derivation of the scale assumes.


# %%
def parameters(d: int) -> dict[str, Tensor]:
    """Draw all weights for every start; outputs have the inputs' variance."""

    def draw(*shape: int, fan_in: int) -> Tensor:
        return torch.randn(STARTS, *shape) / math.sqrt(fan_in)

    return {
        "key": draw(SYMBOLS, WIDTH, fan_in=1),
        "value": draw(SYMBOLS, WIDTH, fan_in=1),
        "ask": draw(1, WIDTH, fan_in=1),
        "wq": draw(WIDTH, d, fan_in=WIDTH),
        "wk": draw(WIDTH, d, fan_in=WIDTH),
        "wv": draw(WIDTH, WIDTH, fan_in=WIDTH),
        "wo": draw(WIDTH, WIDTH, fan_in=WIDTH),
        "up": draw(WIDTH, 2 * WIDTH, fan_in=WIDTH),
        "down": draw(2 * WIDTH, WIDTH, fan_in=2 * WIDTH),
        "out": draw(WIDTH, SYMBOLS, fan_in=WIDTH),
    }


def look_up(table: Tensor, symbols: Tensor) -> Tensor:
    """Take each start's own embeddings: (S, ...) gives (S, ..., C)."""
    start = torch.arange(STARTS).view(-1, *[1] * (symbols.ndim - 1))
    return table[start, symbols]


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def forward(
    p: dict[str, Tensor],
    keys: Tensor,
    values: Tensor,
    asked: Tensor,
    *,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of the answers, the attention weights and q."""
    pairs = norm(look_up(p["key"], keys) + look_up(p["value"], values))
    x = look_up(p["key"], asked[..., 0]) + p["ask"]  # (S, B, C)
    q = norm(x) @ p["wq"]  # (S, B, d)
    # q · (pair W_k) = (q W_kᵀ) · pair: the same, without a long key a pair.
    scores = (pairs @ (q @ p["wk"].mT)[..., None])[..., 0]  # (S, B, N)
    weights = (scale * scores).softmax(-1)
    seen = (weights[..., None, :] @ pairs)[..., 0, :]  # (S, B, C)
    x = x + seen @ p["wv"] @ p["wo"]
    x = x + (norm(x) @ p["up"]).relu() @ p["down"]
    return norm(x) @ p["out"], weights, q  # (S, B, symbols), (S, B, N)


def losses(logits: Tensor, answers: Tensor) -> Tensor:
    """Cross entropy of each question, (S, B)."""
    return -logits.log_softmax(-1).gather(-1, answers)[..., 0]


def entropy(weights: Tensor) -> Tensor:
    """Return each start's mean entropy, as a share of the largest, log N."""
    nats = torch.special.entr(weights).sum(-1)
    return nats.mean(-1) / math.log(weights.shape[-1])


# %% [markdown]
# ## <a id="before-the-first-step"></a>Entropy and gradient at initialisation
#
# The first look is at the untrained model: how decided the weights are, and
# what gradient reaches the queries. Behind the query stands a norm, so a
# question's gradient of $W_q$ is its gradient of $q$ times nearly the same
# number for every question.


# %%
def opening(d: int, scale: float) -> dict[str, float]:
    """Measure the untrained model on many questions."""
    torch.manual_seed(0)
    p = {name: w.requires_grad_() for name, w in parameters(d).items()}
    *asked, answers = questions(512)
    logits, weights, q = forward(p, *asked, scale=scale)
    loss = losses(logits, answers).sum()
    of_q, of_wq, of_wk = torch.autograd.grad(loss, [q, p["wq"], p["wk"]])
    each = of_q.norm(dim=-1)  # (S, B)
    sorted_ = each.sort(-1, descending=True).values
    return {
        "entropy": entropy(weights).mean().item(),
        "wq": of_wq.flatten(1).norm(dim=-1).mean().item() / 512,
        "wk": of_wk.flatten(1).norm(dim=-1).mean().item() / 512,
        "mean": each.mean().item(),
        "median": each.median(-1).values.mean().item(),
        "tenth": (sorted_[:, :51].sum(-1) / sorted_.sum(-1)).mean().item(),
    }


SCALES = {"root": "1/√d", "none": "1", "width": "1/d"}
start = {
    (d, name): opening(d, {"root": d**-0.5, "none": 1, "width": 1 / d}[name])
    for d in (8, 256)
    for name in SCALES
}
print("              entropy   gradient of   gradient of q   share of the")
print("  d   scale   /log N     W_q    W_k    mean  median   top tenth")
for (d, name), m in start.items():
    print(
        f"{d:3}   {SCALES[name]:5}   {m['entropy']:6.3f}  {m['wq']:6.3f} "
        f"{m['wk']:6.3f}  {m['mean']:6.3f}  {m['median']:6.3f}  "
        f"{m['tenth']:6.0%}"
    )
scaled, bare = start[256, "root"], start[256, "none"]
gradient = {
    "entropy": bare["entropy"],
    "mean_ratio": bare["mean"] / scaled["mean"],
    "median_ratio": scaled["median"] / bare["median"],
    "wq_ratio": bare["wq"] / scaled["wq"],
    "tenth_none": bare["tenth"],
    "tenth_root": scaled["tenth"],
    "width_ratio": scaled["wq"] / start[256, "width"]["wq"],
}

# %% [markdown]
# The wide head without the scale starts at
# <data value="gradient.entropy">8 %</data> of the largest entropy: nearly every
# question looks at one pair, and at a pair that chance has picked. The usual
# account goes on: a softmax that is so sure has no gradient. That is half of
# the truth. The gradient of $W_q$ is <data value="gradient.wq_ratio">4.2</data>
# times *larger* than with the scale, because every step back through the scores
# is $\sqrt{d_k}$ times as steep. But the gradient of the median question's query
# is <data value="gradient.median_ratio">15</data> times smaller. A tenth of the
# questions, those where two pairs happen to be close, have
# <data value="gradient.tenth_none">71 %</data> of the total, against
# <data value="gradient.tenth_root">22 %</data> with the scale. So the norm of a
# gradient does not show this fault; its spread over the batch does.
#
# With $1/d_k$ the attention starts out as an even average, and the gradient of
# $W_q$ is <data value="gradient.width_ratio">14</data> times smaller than with
# the root.

# %% [markdown]
# ## <a id="training"></a>Train a Transformer without scaling: accuracy by head width
#
# Adam, with the same questions and the same first weights for every run. Adam
# divides each gradient by its own running size, so a gradient that is small
# everywhere costs nothing here. Its `eps`, which would set a floor to that, is
# made negligible.
#
# After each step the weights are rounded to multiples of $2^{-20}$. Without
# that, two processors that add in another order, and so differ in the last bit,
# end with different models: attention that is nearly decided
# turns a rounding difference into another choice.


# %%
def train(
    d: int,
    scale: float,
    *,
    rate: float = 3e-3,
    shrink: float = 1,
    slow: float = 1,
) -> dict[str, Tensor]:
    """Train all starts; divide W_q and W_k by ``shrink``, their rate by ``slow``."""
    torch.manual_seed(0)
    p = parameters(d)
    for name in ("wq", "wk"):
        p[name] /= shrink
    inner = [p.pop(name).requires_grad_() for name in ("wq", "wk")]
    outer = [w.requires_grad_() for w in p.values()]
    p |= dict(zip(("wq", "wk"), inner, strict=True))
    adam = torch.optim.Adam(
        [
            {"params": outer, "lr": rate},
            {"params": inner, "lr": rate / slow},
        ],
        eps=1e-12,
    )
    torch.manual_seed(1)
    history = []
    for _ in range(STEPS):
        *asked, answers = questions(BATCH)
        logits, weights, _ = forward(p, *asked, scale=scale)
        loss = losses(logits, answers).mean(-1)  # one for each start
        adam.zero_grad()
        loss.sum().backward()
        adam.step()
        with torch.no_grad():
            for name, w in p.items():
                grid = 2**20 * (shrink if name in ("wq", "wk") else 1)
                w.copy_((w * grid).round() / grid)
        history.append(torch.stack([loss, entropy(weights)]).detach())
    torch.manual_seed(2)
    *asked, answers = questions(512)
    with torch.no_grad():
        logits, _, _ = forward(p, *asked, scale=scale)
    right = logits.argmax(-1, keepdim=True) == answers
    loss_, entropy_ = torch.stack(history, -1)  # (S, steps) each
    accuracy = right.double().mean((-2, -1))  # (S,)
    return {"loss": loss_, "entropy": entropy_, "accuracy": accuracy}


def row(name: str, run: dict[str, Tensor]) -> str:
    a = run["accuracy"]
    return (
        f"{name:28} {a.mean():6.1%}  ({a.min():4.0%} to {a.max():4.0%})"
        f"   {run['loss'][:, -10:].mean():.2f}"
    )


runs = {}
print("right answers                 mean    over the starts   last loss")
for d in (8, 256):
    for name, scale in (("root", d**-0.5), ("none", 1), ("width", 1 / d)):
        runs[d, name] = train(d, scale)
        print(row(f"d = {d}, scale {SCALES[name]}", runs[d, name]))

# %% figure="learning" alt="Loss against training steps, for heads of width 8 and 256, each with three scales and bands over five starts. At width 8 the three curves fall to nearly zero one soon after the other. At width 256 the scaled model falls to nearly zero by two thirds of the steps, the one scaled by 1/d a little later, and the unscaled one stays high for half of the steps and is far from zero at the end, with a wide band."
COLOURS = {"root": "C0", "none": "C1", "width": "C2"}


def draw(axes: Axes, curves: Tensor, colour: str, label: str) -> None:
    """Draw the mean over the starts, and a band from the least to the most."""
    means = curves.unflatten(-1, (-1, 10)).mean(-1)  # over ten steps
    middle, low, high = (
        [float(f"{value:.4g}") for value in line]
        for line in (means.mean(0), means.amin(0), means.amax(0))
    )
    steps = range(5, STEPS, 10)
    axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(steps, middle, color=colour, label=label)
    axes.set_xlabel("step")


def draw_both(key: str) -> tuple[Axes, Axes]:
    """Draw a curve of all three scales for each of the two widths."""
    figure, both = plt.subplots(1, 2, sharey=True, figsize=(5.2, 3.2))
    for axes, d in zip(both, (8, 256), strict=True):
        for name, colour in COLOURS.items():
            draw(axes, runs[d, name][key], colour, SCALES[name])
        axes.set_title(f"d = {d}")
    named = both[0].get_legend_handles_labels()
    figure.legend(*named, title="scale", ncols=3, loc="outside upper center")
    return both


both = draw_both("loss")
both[0].set_ylabel("loss")
both[0].set_ylim(bottom=0)

# %%
final = {
    f"{width}_{name}": runs[d, name]["accuracy"].mean().item()
    for width, d in (("narrow", 8), ("wide", 256))
    for name in SCALES
}
worst, best = runs[256, "none"]["accuracy"].aminmax()
final |= {"wide_none_worst": worst.item(), "wide_none_best": best.item()}
half = runs[256, "none"]["entropy"][:, STEPS // 2].mean().item()
setup = {"steps": STEPS, "half": STEPS // 2, "entropy_half": half}
print(f"wide, without the scale, halfway: entropy {half:.1%} of the largest")

# %% [markdown]
# Narrow, all three learn the task. Wide, the unscaled model stands almost still
# for <data value="setup.half">100</data> steps, and after
# <data value="setup.steps">200</data> its starts lie between
# <data value="final.wide_none_worst">42 %</data> and
# <data value="final.wide_none_best">91 %</data>. The start decides, so
# that one seed would tell nothing. The scaled model gets
# <data value="final.wide_root">100 %</data>, and the one with $1/d_k$
# <data value="final.wide_width">100 %</data>. Under Adam, too small a scale
# costs some steps; too large a scale costs the run.

# %% figure="entropy" alt="Entropy of the attention as a share of the largest, against training steps. At width 8 all three scales begin above four tenths and fall as the model learns. At width 256 the scaled model begins above eight tenths and falls, the one scaled by 1/d begins at one, and the unscaled one begins below one tenth and stays there throughout."
both = draw_both("entropy")
both[0].set_ylabel("entropy / log N")
both[0].set_ylim(0, 1.02)

# %% [markdown]
# A trained model is decided, too: it has to be, to answer. The unscaled one is
# decided from the first step, about the wrong pairs, and never passes through
# the undecided state in which all pairs are compared.
#
# ## <a id="is-it-the-scale-or-is-it-the-start"></a>Smaller initial weights or learning rate instead of the scale
#
# The unscaled model deserves its own learning rate, and first weights of its
# own. If $W_q$ and $W_k$ are both divided by $d_k^{1/4}$, the scores at
# the start are those of the scaled model, without any scale. The last two rows
# have the variance that `nn.Linear` gives its weights, a third of the one used
# here.

# %%
d, fourth = 256, 256**0.25
more = {
    "a third of the rate": train(d, 1, rate=1e-3),
    "three times the rate": train(d, 1, rate=1e-2),
    "small first weights": train(d, 1, shrink=fourth),
    "small weights, small rate": train(d, 1, shrink=fourth, slow=fourth),
    "as nn.Linear draws": train(d, 1, shrink=3**0.5),
    "as nn.Linear draws, 1/√d": train(d, d**-0.5, shrink=3**0.5),
}
print("right answers, d = 256        mean    over the starts   last loss")
print(row("scale 1/√d", runs[d, "root"]))
print(row("without", runs[d, "none"]))
for name, run in more.items():
    print(row(name, run))
folded = more["small weights, small rate"]["loss"]
apart = (folded - runs[d, "root"]["loss"]).abs().max().item()
print(f"small weights, small rate: as scaled to 1e-4: {apart < 1e-4}")
control = {
    "slower": more["a third of the rate"]["accuracy"].mean().item(),
    "faster": more["three times the rate"]["accuracy"].mean().item(),
    "small": more["small first weights"]["accuracy"].mean().item(),
    "linear": more["as nn.Linear draws"]["accuracy"].mean().item(),
    "linear_root": more["as nn.Linear draws, 1/√d"]["accuracy"].mean().item(),
    "same": str(apart < 1e-4),
}

# %% figure="controls" alt="Loss against training steps at width 256. Scaled, the loss falls to nearly zero by two thirds of the steps. Unscaled with small first weights it falls a little later. Unscaled with the weights of nn.Linear it falls later still and ends above zero. Unscaled it is the slowest, and its band is the widest."
figure, axes = plt.subplots(figsize=(5.2, 3.6))
draw(axes, runs[256, "root"]["loss"], "C0", "1/√d")
draw(
    axes, more["small first weights"]["loss"], "C2", "none, small first weights"
)
draw(axes, more["as nn.Linear draws"]["loss"], "C3", "none, as nn.Linear draws")
draw(axes, runs[256, "none"]["loss"], "C1", "none")
axes.set_ylabel("loss")
axes.set_ylim(bottom=0)
axes.legend(title="scale", ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))

# %% [markdown]
# - **The learning rate does not mend it.** A third of the rate gives
#   <data value="control.slower">29 %</data>, three times the rate
#   <data value="control.faster">22 %</data>.
# - **Small first weights nearly do**: <data value="control.small">97 %</data>.
#   So most of the harm is in the start. The rest is in the steps: a step of
#   $W_q$ or $W_k$ moves the scores further than it would with the scale.
# - **Small first weights and a smaller rate for them do exactly**: each loss at
#   each step is within $10^{-4}$ of the scaled model's
#   (<data value="control.same">True</data>). Adam's steps do not depend on the size of a gradient, so dividing the weights and
#   their rate by $d_k^{1/4}$ divides the whole path by it, and the scores by
#   $\sqrt{d_k}$.
# - **`nn.Linear`'s own weights hide some of it**:
#   <data value="control.linear">96 %</data> without the scale, and
#   <data value="control.linear_root">100 %</data> with it. They are smaller than
#   the derivation assumes, so the unscaled scores are smaller, too. That a model
#   without the scale learns all the same is no sign that the scale is useless.
#
# ## <a id="what-this-does-not-show"></a>Limits of this experiment
#
# - The unscaled runs are still learning when they stop. Whether they arrive
#   later is not measured.
# - One layer, one head, one task, five starts. Deep models have other ways to
#   fail and to recover, and a norm on queries and keys would replace the scale.
# - Adam only. Plain gradient descent feels the size of a gradient, so that both
#   too large and too small a scale would cost more there.
# - Both heads work on a model of the same width. In real models $d_k$ is
#   mostly 64 or more, between these two.
