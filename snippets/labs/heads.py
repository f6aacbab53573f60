# ---
# description: >-
#   Small models trained on tasks whose right attention map is known beforehand: how well their maps
#   agree with it, and four ways in which a map misleads.
# tags: [learn the basics, find a silent mistake]
# needs: [core/multi-head]
# ---

# %% [markdown]
# # What heads look at
#
# An attention map says where a head read. It does not say whether what it read
# was used, nor what stood at that position by then. To see the difference, one
# needs tasks whose right map is known before anything is trained. This lab
# trains eight models on each of a few such tasks and finds, in order:
#
# - where only one map can solve the task, every model finds it;
# - a head whose map is right may be removed without loss;
# - models that are equally right may look at different places;
# - the clearest line in a map may lie in rows that nothing reads;
# - a head may do its work by looking everywhere *except* at the place that
#   matters.

# %% [markdown]
# ## <a id="tasks-with-a-known-map"></a>Tasks with a known attention map
#
# Each task gives tokens, answers (−1 where none is asked for) and `right`, in
# which True marks a key that the row's answer stands at. *Reversal*: position
# $i$ answers with the token at $T-1-i$. *Twice*: the word is written twice, so
# that each answer stands at two places. *Induction*: a word of different
# letters, then some of its letters again, in another order; each of those
# answers with the letter that came after it in the word.

# %%
import math

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)  # tensors as small as these gain nothing from more
MODELS = 8


def reversal(count, length=10, letters=10):
    tokens = torch.randint(letters, (count, length))
    right = torch.eye(length, dtype=torch.bool).flip(-1)
    return tokens, tokens.flip(-1), right.expand(count, -1, -1)


def twice(count, half=6, letters=10):
    tokens = torch.randint(letters, (count, half)).repeat(1, 2)
    right = torch.eye(half, dtype=torch.bool).flip(-1).repeat(2, 2)
    return tokens, tokens.flip(-1), right.expand(count, -1, -1)


def induction(count, word=6, asked=4, letters=8):
    # Sorting noise shuffles: no letter comes twice in the word.
    first = torch.rand(count, letters).argsort(-1)[:, :word]
    place = torch.rand(count, word - 1).argsort(-1)[:, :asked]
    tokens = torch.cat([first, first.gather(1, place)], 1)
    none = torch.full((count, word), -1)
    answer = torch.cat([none, first.gather(1, place + 1)], 1)
    right = torch.zeros(count, word + asked, word + asked, dtype=torch.bool)
    right[:, word:].scatter_(-1, place[..., None] + 1, True)
    return tokens, answer, right


# %% [markdown]
# ## <a id="the-model"></a>A Transformer of attention layers only
#
# Embeddings of tokens and positions, then attention layers on a residual
# stream; no MLP and no normalisation, so that nothing but attention moves
# anything between positions. `edit` may replace a layer's weights while the
# model runs: this is how we shall ask what a map is worth.


# %%
class Attention(nn.Module):
    """Multi-head self-attention: x (B, T, C) to (B, T, C)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, mask, edit=None):
        """Return what the heads add, and their weights (B, H, T, T)."""
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, T, d)
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        used = edit(weights) if edit else weights
        seen = (used @ v).transpose(1, 2).reshape(batch, length, width)
        return self.out(seen), weights


class Model(nn.Module):
    """Embeddings, attention layers that add to them, and a read-out."""

    def __init__(self, letters, length, heads, layers, causal, width=24):
        super().__init__()
        self.token = nn.Embedding(letters, width)
        self.place = nn.Embedding(length, width)
        for table in (self.token, self.place):
            nn.init.normal_(table.weight, std=0.5)
        self.layers = nn.ModuleList(
            Attention(width, heads) for _ in range(layers)
        )
        self.read = nn.Linear(width, letters, bias=False)
        mask = torch.ones(length, length, dtype=torch.bool)
        self.register_buffer("mask", mask.tril() if causal else mask)

    def embed(self, tokens):
        """What enters layer 1: (B, T, C)."""
        return self.token(tokens) + self.place.weight

    def forward(self, tokens, edit=None):
        """Return logits (B, T, letters) and maps (layers, B, H, T, T)."""
        x, maps = self.embed(tokens), []
        for number, layer in enumerate(self.layers):
            change = edit and (lambda w, number=number: edit(number, w))
            seen, weights = layer(x, self.mask, change)
            x = x + seen
            maps.append(weights)
        return self.read(x), torch.stack(maps)


# %% [markdown]
# Eight models, each from its own seed and on its own examples, train at once:
# `vmap` runs the one model over stacked parameters, and Adam treats every
# element by itself, so that none knows of the others.


# %%
def train(task, steps, heads=1, layers=1, causal=False, batch=16):
    tokens, answer, _ = task(1000)
    models = []
    for seed in range(MODELS):
        torch.manual_seed(seed)
        size = tokens.max().item() + 1, tokens.shape[1]
        models.append(Model(*size, heads, layers, causal))
    state, buffers = stack_module_state(models)

    def loss(state, buffers, tokens, answer):
        logits, _ = functional_call(models[0], (state, buffers), (tokens,))
        return F.cross_entropy(logits.mT, answer, ignore_index=-1)

    # With a larger eps, steps stay small where the loss is nearly zero.
    adam = torch.optim.Adam(state.values(), 0.015, (0.9, 0.99), eps=1e-4)
    fade = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: min(1, (step + 1) / 20) * (1 - step / steps)
    )
    torch.manual_seed(MODELS)
    for _ in range(steps):
        tokens, answer, _ = task(MODELS * batch)
        tokens = tokens.unflatten(0, (MODELS, batch))
        answer = answer.unflatten(0, (MODELS, batch))
        adam.zero_grad()
        vmap(loss)(state, buffers, tokens, answer).sum().backward()
        adam.step()
        fade.step()
    for number, model in enumerate(models):
        model.load_state_dict(
            {name: value[number].detach() for name, value in state.items()}
            | {"mask": buffers["mask"][number]}
        )
    return models


# %% [markdown]
# Two measures of agreement with the right map: the *mass* that a row gives to
# its right keys, and the share of rows whose largest weight is on one (*hits*).
# Both count only rows that have a right key. Everything below is measured on
# fresh examples.


# %%
@torch.no_grad()
def run(model, tokens, edit=None):
    return model(tokens, edit)


def accuracy(model, tokens, answer, edit=None):
    guess = run(model, tokens, edit)[0].argmax(-1)
    return (guess == answer)[answer >= 0].double().mean().item()


def agreement(weights, right):
    """Mass on right keys and share of hits: weights and right (B, T, T)."""
    rows = right.any(-1)
    mass = (weights * right).sum(-1)[rows]
    hits = right.gather(-1, weights.argmax(-1, keepdim=True))[..., 0][rows]
    return mass.mean().item(), hits.double().mean().item()


def spread(values):
    low, *_, high = sorted(values)
    mean = sum(values) / len(values)
    return {"mean": mean, "low": low, "high": high}


def show(title, values):
    mean, low, high = spread(values).values()
    print(f"{title:36} {mean:.2f}   ({low:.2f} to {high:.2f})")


def rounded(values, decimals=4):
    """What is drawn then has no rounding noise."""
    return torch.as_tensor(values).round(decimals=decimals).tolist()


def heat(axis, weights):
    axis.imshow(rounded(weights), vmin=0, vmax=1)


def draw_maps(right, title, models, tokens):
    """The right map of the first sequence, and those of three models."""
    panels = [right[0].double()]
    panels += [run(m, tokens)[1][0, :, 0].mean(0) for m in models[:3]]
    titles = [title, "model 1", "model 2", "model 3"]
    _, axes = plt.subplots(1, 4, figsize=(5.2, 1.9), sharey=True)
    for axis, panel, name in zip(axes, panels, titles, strict=True):
        heat(axis, panel)
        ends = [0, len(panel) - 1]
        axis.set(title=name, xticks=ends, yticks=ends, xlabel="key")
    axes[0].set_ylabel("query")


# %% [markdown]
# ## <a id="where-one-map-is-possible-the-map-is-right"></a>Only one map is possible: every model finds it
#
# One layer with one head can get a distant token only by looking at it. For an
# ideal read-out the weights of the row are votes: the letter with the most
# weight wins, so a row is right on every input only if it puts more than half
# of its weight on the right key. Accuracy leaves no choice here.

# %%
torch.manual_seed(100)
tokens, answer, right = reversal(512)
ones = train(reversal, steps=150)
alone = [agreement(run(m, tokens)[1][0, :, 0], right) for m in ones]


def remove(layer, head):
    """An edit after which the head adds nothing."""

    def edit(number, weights):
        keep = torch.ones(weights.shape[1], 1, 1)
        keep[head] = 0
        return weights * keep if number == layer else weights

    return edit


def blind(layer, head):
    """An edit after which the head looks at every key alike."""

    def edit(number, weights):
        if number == layer:
            weights = weights.clone()
            weights[:, head] = 1 / weights.shape[-1]
        return weights

    return edit


lone = {
    "accuracy": [accuracy(m, tokens, answer) for m in ones],
    "removed": [accuracy(m, tokens, answer, remove(0, 0)) for m in ones],
    "blinded": [accuracy(m, tokens, answer, blind(0, 0)) for m in ones],
    "mass": [mass for mass, _ in alone],
    "hits": [hits for _, hits in alone],
}
print(f"{'reversal, one head':36} mean   (lowest to highest)")
for title, values in lone.items():
    show(title, values)
forced = {key: spread(values)["mean"] for key, values in lone.items()}
forced["low"] = min(lone["mass"])

# %% figure="reversal" alt="Four square heat maps of weights, 10 queries by 10 keys, from 0 (dark) to 1 (bright). The first is the right map, a bright line from the top right to the bottom left. The maps of models 1, 2 and 3 show the same line and nothing else."
draw_maps(right, "right map", ones, tokens)

# %% [markdown]
# All eight models find it: mean mass <data value="forced.mass">0.98</data> on
# the right key (at least <data value="forced.low">0.96</data> in each model).
# And the map matters: made blind, with uniform weights in place of its own, the
# head gets <data value="forced.blinded">0.22</data> of the answers right; with
# the head removed, the models guess (<data value="forced.removed">0.10</data>).

# %% [markdown]
# ## <a id="a-right-map-that-does-not-matter"></a>Prune attention heads with a right map: no loss
#
# The same task and width, now with four heads of a quarter of the width. Four
# heads in each of eight models: which of them look right, and what does each
# one's removal cost?

# %%
fours = train(reversal, steps=150, heads=4)
four: dict[str, list[float]] = {
    "mass": [],
    "hits": [],
    "removed": [],
    "only": [],
}
for model in fours:
    maps = run(model, tokens)[1][0]
    for head in range(4):
        mass, hits = agreement(maps[:, head], right)
        four["mass"].append(mass)
        four["hits"].append(hits)
        four["removed"].append(accuracy(model, tokens, answer, remove(0, head)))

        def only(_, weights, head=head):
            return weights * (torch.arange(4) == head)[:, None, None]

        four["only"].append(accuracy(model, tokens, answer, only))
print(f"{'reversal, 32 heads of 8 models':36} mean   (lowest to highest)")
show("accuracy", [accuracy(m, tokens, answer) for m in fours])
show("mass", four["mass"])
show("hits", four["hits"])
show("accuracy, this head removed", four["removed"])
show("accuracy, this head alone left", four["only"])
many = {key: spread(values)["mean"] for key, values in four.items()}
many["least"] = min(four["removed"])
many["fewest"] = min(four["only"])

# %% [markdown]
# Most heads look right in most rows (mean hits <data value="many.hits">0.90</data>),
# and no head is needed: without any one of them the model still gets at least
# <data value="many.least">0.97</data> right. They share the work rather than
# hold copies of it: a head left alone gets <data value="many.only">0.75</data>
# on average and <data value="many.fewest">0.42</data> at worst. So the map of a
# head says nothing about what the model would lose with it; that takes a
# removal. The same was found in trained translation models, where most heads
# can be removed one at a time ([Michel, Levy and Neubig,
# 2019](https://arxiv.org/abs/1905.10650)).

# %% [markdown]
# ## <a id="different-maps-the-same-answers"></a>Different attention maps, the same answers
#
# With the word written twice, every answer stands at two places, half the
# length apart. One layer, one head, as before. We compare models with each
# other, as [Wiegreffe and Pinter (2019)](https://arxiv.org/abs/1908.04626) ask:
# for each pair of models, the total variation between their maps,
# $\frac12\sum_j |a_{ij}-b_{ij}|$, averaged over rows (0: the same map, 1: no
# key in common).


# %%
def between(models, tokens):
    maps = [run(m, tokens)[1][0, :, 0] for m in models]
    return [
        (a - b).abs().sum(-1).mean().item() / 2
        for number, a in enumerate(maps)
        for b in maps[:number]
    ]


def swap(_, weights):
    """Give each key's weight to the key half a sequence away."""
    return weights.roll(weights.shape[-1] // 2, -1)


torch.manual_seed(101)
tokens2, answer2, right2 = twice(512)
doubles = train(twice, steps=150)
apart = {"reversal": between(ones, tokens), "twice": between(doubles, tokens2)}
double = {
    "accuracy": [accuracy(m, tokens2, answer2) for m in doubles],
    "mass on both": [
        agreement(run(m, tokens2)[1][0, :, 0], right2)[0] for m in doubles
    ],
    "accuracy, halves swapped": [
        accuracy(m, tokens2, answer2, swap) for m in doubles
    ],
    "moved by the swap": [
        (w - w.roll(6, -1)).abs().sum(-1).mean().item() / 2
        for m in doubles
        for w in [run(m, tokens2)[1][0, :, 0]]
    ],
}
print(f"{'twice, one head':36} mean   (lowest to highest)")
for title, values in double.items():
    show(title, values)
for task, values in apart.items():
    show(f"between two models, {task}", values)
choice = {
    "mass": spread(double["mass on both"])["mean"],
    "accuracy": min(double["accuracy"]),
    "swapped": spread(double["accuracy, halves swapped"])["mean"],
    "worst": min(double["accuracy, halves swapped"]),
    "moved": spread(double["moved by the swap"])["mean"],
    "apart": spread(apart["twice"])["mean"],
    "same": spread(apart["reversal"])["mean"],
}

# %% figure="twice" alt="Four square heat maps of weights, 12 queries by 12 keys. The right map has two bright keys in each row, half a sequence apart. Models 1, 2 and 3 are bright on one of the two in most rows, each model on its own choice from row to row."
draw_maps(right2, "right keys", doubles, tokens2)

# %% [markdown]
# Every model puts its mass on the two right keys
# (<data value="choice.mass">0.99</data>), and how it divides it is up to the
# seed: two models' maps differ by <data value="choice.apart">0.47</data>,
# against <data value="choice.same">0.03</data> for reversal, though each of
# them gets at least <data value="choice.accuracy">1.00</data> of the answers
# right. Swapping the two halves of every row moves
# <data value="choice.moved">0.74</data> of the weight to other keys and leaves
# <data value="choice.swapped">1.00</data> of the answers right
# (<data value="choice.worst">0.98</data> in the worst model). This is the point
# of [Jain and Wallace (2019)](https://arxiv.org/abs/1902.10186), made by hand:
# a quite different map gives the same answer. It holds *here* because the two
# keys carry the same token. In reversal there is no such key, and the objection
# has no hold: whether maps can be trusted depends on the task.

# %% [markdown]
# ## <a id="two-layers-induction"></a>Induction heads take two layers
#
# With a causal mask, two layers of one head each, and the last letters asked
# for. The textbook solution: in layer 1 each letter of the word looks at the
# one before it and notes it; in layer 2 an asked letter looks for the key that
# has noted it, and reads the letter there ([Elhage et al.,
# 2021](https://transformer-circuits.pub/2021/framework/); [Olsson et al.,
# 2022](https://arxiv.org/abs/2209.11895)). As a control, one layer trained as
# long.

# %%
WORD = 6
torch.manual_seed(102)
tokens3, answer3, right3 = induction(512)
length = tokens3.shape[1]
previous = torch.eye(length).roll(-1, -1)  # row i: key i - 1
previous[0] = 0
previous[WORD:] = 0  # rows of the word alone
noted = previous.bool().expand_as(right3)


def measure(models):
    maps = [run(m, tokens3)[1][:, :, 0] for m in models]
    return {
        "accuracy": [accuracy(m, tokens3, answer3) for m in models],
        "layer 1: mass on the previous key": [
            agreement(m[0], noted)[0] for m in maps
        ],
        "layer 2: mass on the right key": [
            agreement(m[-1], right3)[0] for m in maps
        ],
        "layer 2: hits": [agreement(m[-1], right3)[1] for m in maps],
    }


shallow = train(induction, steps=250, causal=True)
deep = train(induction, steps=250, layers=2, causal=True)
masked = measure(deep)
control = [accuracy(m, tokens3, answer3) for m in shallow]
print(f"{'induction, causal mask':36} mean   (lowest to highest)")
show("accuracy, one layer", control)
for title, values in masked.items():
    show(title, values)
chain = dict(
    zip(
        ["accuracy", "previous", "right", "hits"],
        [spread(values)["mean"] for values in masked.values()],
        strict=True,
    ),
    one=spread(control)["mean"],
)

# %% figure="induction" alt="Two heat maps, layer 1 and layer 2 of one model, for the ten letters of one example, written along both axes. In layer 1, rows two to six are bright on the key just before them. In layer 2, each of the last four rows is bright on the key after the earlier place of the same letter, which a ring marks."
letters = ["ABCDEFGH"[token] for token in tokens3[0].tolist()]
maps = run(deep[0], tokens3)[1][:, 0, 0]
figure, axes = plt.subplots(1, 2, figsize=(5.2, 3.0), sharey=True)
for number, (axis, panel, mark) in enumerate(
    zip(axes, maps, [noted[0], right3[0]], strict=True), 1
):
    heat(axis, panel)
    rows, keys = mark.nonzero().T.tolist()
    axis.plot(keys, rows, "o", mfc="none", mec="red", ms=13, mew=1.5)
    axis.set(title=f"layer {number}", xlabel="key")
    axis.set_xticks(range(length), letters)
    axis.set_yticks(range(length), letters)
axes[0].set_ylabel("query")

# %% [markdown]
# The rings are the textbook's map, and the models agree with it: mean mass
# <data value="chain.previous">0.98</data> in layer 1,
# <data value="chain.right">0.99</data> in layer 2, at accuracy
# <data value="chain.accuracy">1.00</data>. One layer reaches
# <data value="chain.one">0.25</data>, about what a guess gives among the
# letters of the word that are neither its first nor the one asked; [Sanford,
# Hsu and Telgarsky (2024)](https://arxiv.org/abs/2408.14332) prove that one
# layer needs a far larger model.
#
# Note what layer 2's map says: "the letter after the earlier one". It does
# *not* say how the head knew which that was. The reason was put there by layer
# 1, and layer 2's map shows no trace of it.

# %% [markdown]
# ## <a id="the-negative-of-a-map"></a>A head that attends to everything but the right key
#
# Now the same task and model without the causal mask, a little longer. Nothing
# about the answer has changed.

# %%
free = train(induction, steps=400, layers=2)
unmasked = measure(free)
print(f"{'induction, no mask':36} mean   (lowest to highest)")
for title, values in unmasked.items():
    show(title, values)
uniform = 1 / length
print(f"\nuniform weights would give mass {uniform:.2f}")

# %% figure="negative" alt="Eight heat maps of layer 1, averaged over examples, one a model, six rows of the word by ten keys. A few show the bright line of the previous key. Most show its opposite: the keys of the word unevenly lit, and dark where the previous key is."
figure, axes = plt.subplots(2, 4, figsize=(5.2, 2.6), sharex=True, sharey=True)
for number, (axis, model) in enumerate(zip(axes.flat, free, strict=True), 1):
    panel = run(model, tokens3)[1][0, :, 0, :WORD].mean(0)
    heat(axis, panel)
    axis.set(title=f"model {number}", xticks=[0, 9], yticks=[0, 5])
figure.supxlabel("key", fontsize="medium")
figure.supylabel("query", fontsize="medium")

# %% [markdown]
# More than half of the models solve the task with the *negative* of the right
# map. The head spreads
# its weight over the letters of the word, unevenly, and leaves out the
# previous one. By
# agreement with the right map it scores below uniform weights; anyone hunting
# for "previous-token heads" would pass it over.
#
# Why it works: let the head spread its weight evenly over the other $n-1$
# letters of the word, whose values sum to $S$. It then notes
# $(S - v_{i-1})/(n-1)$. Layer 2's scores are linear in the notes, and $S$ is
# the same at every key of the word; softmax ignores what all keys share. What
# is left is $-v_{i-1}$: the previous letter, with its sign turned, which layer
# 2's key and query matrices turn back.
#
# If that is so, the model should not mind being given the exact negative, and
# should fail with the textbook's map. We put each of the two in place of the
# word's rows of layer 1. In the table, "it" is the previous key: the mass that
# the model's own map gives to it, then the accuracy with the model's own map,
# with all weight on it, and with all but it alike.

# %%
negative = torch.zeros(length, length)
negative[:WORD, :WORD] = 1 - previous[:WORD, :WORD]
negative /= negative.sum(-1, keepdim=True).clamp(min=1)


def put(pattern):
    """An edit that gives rows 1 to 5 of layer 1 the pattern's weights."""

    def edit(number, weights):
        if number == 0:
            weights = weights.clone()
            weights[..., 1:WORD, :] = pattern[1:WORD]
        return weights

    return edit


columns = ["mass on it", "own map", "previous", "all but it"]
print(f"{'':9}" + "".join(f"{column:>12}" for column in columns))
trial: dict[str, list[float]] = {"previous": [], "negative": []}
mass = unmasked["layer 1: mass on the previous key"]
for number, model in enumerate(free):
    own = unmasked["accuracy"][number]
    trial["previous"].append(accuracy(model, tokens3, answer3, put(previous)))
    trial["negative"].append(accuracy(model, tokens3, answer3, put(negative)))
    values = [mass[number], own, *(v[-1] for v in trial.values())]
    print(
        f"model {number + 1}  " + "".join(f"{value:12.2f}" for value in values)
    )

# %%
turns = [n > p for p, n in zip(*trial.values(), strict=True)]


def among(values, chosen=True):
    return [v for v, turn in zip(values, turns, strict=True) if turn == chosen]


def value_norms(model, tokens):
    """Length of what each key would add to a row, were its weight 1: (B, T)."""
    layer, width = model.layers[0], model.token.embedding_dim
    value, out = layer.qkv.weight[2 * width :], layer.out.weight
    return (model.embed(tokens) @ value.T @ out.T).norm(dim=-1)


normed = []
for model in free:
    with torch.no_grad():
        sizes = value_norms(model, tokens3)[:, None]  # (B, 1, T)
        sized = run(model, tokens3)[1][0, :, 0] * sizes
    normed.append(agreement(sized / sized.sum(-1, keepdim=True), noted)[0])
turned = {
    "count": sum(turns),
    "mass": spread(among(mass))["mean"],
    "normed": spread(among(normed))["mean"],
    "own": min(unmasked["accuracy"]),
    "hits": min(unmasked["layer 2: hits"]),
    "textbook": spread(among(trial["previous"]))["mean"],
    "exact": spread(among(trial["negative"]))["mean"],
    "others_textbook": spread(among(trial["previous"], False))["mean"],
    "others_exact": spread(among(trial["negative"], False))["mean"],
}
print(f"{turned['count']} of {MODELS} models work by the negative")
show("mass on the previous key, theirs", among(mass))
show("the same, weights times value norms", among(normed))

# %% [markdown]
# <data value="turned.count">5</data> of the eight models do better with the
# negative, and for them the trial is plain: with the exact negative they get
# <data value="turned.exact">0.95</data> right, with the textbook's map
# <data value="turned.textbook">0.17</data>. For the other models it is the
# reverse (<data value="turned.others_exact">0.03</data> and
# <data value="turned.others_textbook">1.00</data>). All eight solve the task
# with their own maps (at least <data value="turned.own">1.00</data>), even the
# one whose largest weight in layer 2 is on the right key in only
# <data value="turned.hits">0.60</data> of its rows.
#
# A known remedy does not help here: weights times the length of what each key
# adds ([Kobayashi et al., 2020](https://arxiv.org/abs/2004.10102)) give the
# previous key <data value="turned.normed">0.04</data> where weights alone give
# it <data value="turned.mass">0.03</data>. A key with hardly any weight adds
# hardly anything; it is its absence that counts.
#
# All eight models with the causal mask took the textbook's way. Which way a
# model takes is a matter of setting and seed; we claim that both occur, not how
# often.

# %% [markdown]
# ## <a id="lines-in-rows-that-nothing-reads"></a>Clear lines in rows of the map that nothing reads
#
# Layer 2 of these models also shows a clear line in the *word's* rows: each
# looks at its next key. But no answer is asked for there, and after the last
# layer a row is read at its own position alone. So it cannot matter. We give
# all of those rows uniform weights:


# %%
def level(number, weights):
    """Layer 2 looks at every key alike, in the word's rows."""
    if number == 1:
        weights = weights.clone()
        weights[..., :WORD, :] = uniform
    return weights


line, change = [], []
for model in free:
    logits, maps = run(model, tokens3)
    line.append(maps[1, :, 0, : WORD - 1].diagonal(1, 1, 2).mean().item())
    levelled, _ = run(model, tokens3, level)
    change.append((levelled - logits)[:, WORD:].abs().max().item())
unread = spread(line)
show("layer 2: word's rows, next key", line)
print("largest change of a logit that is asked for:", max(change))

# %% [markdown]
# Mean mass <data value="unread.mean">0.66</data> on the next key (up to
# <data value="unread.high">0.93</data>), and not one bit of an answer depends
# on it. These rows are what the shared matrices do with inputs that training
# never judged. In a language model every row is judged, in the last layer; the
# rows of padding, and those before a prompt's last token when only its next
# token is wanted, are not.

# %% [markdown]
# ## <a id="agreement-against-need"></a>Head importance: right map against the loss when pruned
#
# All the heads of this lab in one picture: how much mass the head gives to the
# expected key, and how much accuracy its removal costs.


# %%
def lost(models, layer):
    return [
        accuracy(m, tokens3, answer3)
        - accuracy(m, tokens3, answer3, remove(layer, 0))
        for m in models
    ]


accuracies = [accuracy(m, tokens, answer) for m in fours for _ in range(4)]
heads = {
    "reversal, one head": (
        lone["mass"],
        [a - b for a, b in zip(lone["accuracy"], lone["removed"], strict=True)],
    ),
    "reversal, four heads": (
        four["mass"],
        [a - b for a, b in zip(accuracies, four["removed"], strict=True)],
    ),
    "induction, causal": (
        masked["layer 1: mass on the previous key"],
        lost(deep, 0),
    ),
    "induction, no mask": (mass, lost(free, 0)),
}
for title, (agrees, costs) in heads.items():
    show(f"{title}: mass", agrees)
    show(f"{title}: accuracy lost", costs)

# %% figure="need" alt="Scatter plot of all heads: mass on the expected key against the accuracy lost when the head is removed. Heads of one-head reversal and of causal induction lie at the top right: they agree and are needed. The 32 heads of four-head reversal lie along the bottom right: they agree and are not needed. Most induction heads without a mask lie at the top left: they disagree and are needed."
figure, axis = plt.subplots(figsize=(5.2, 3.4))
for (title, (agrees, costs)), marker in zip(heads.items(), "osD^", strict=True):
    places = rounded(agrees), rounded(costs, 2)
    axis.plot(*places, marker, label=title, alpha=0.7)
axis.set(
    xlabel="mass on the expected key",
    ylabel="accuracy lost without the head",
    xlim=(-0.03, 1.03),
    ylim=(-0.05, 1),
)
axis.legend(loc="center left", bbox_to_anchor=(0.02, 0.4), fontsize="small")

# %% [markdown]
# If agreement told need, the points would lie on a rising line. Three corners
# of the square are taken instead.
#
# ## <a id="what-a-map-tells"></a>Is attention explanation? What a map tells, and what it does not
#
# | question | does the map tell? | what tells |
# |---|---|---|
# | Where did the head read? | yes, exactly | the map |
# | Is what it read used? | no: four heads, each right, none needed | remove the head, or make it blind |
# | Would another map do as well? | no: *twice* | put another map there; compare seeds |
# | What stood at the key it read? | no: layer 2 of induction | the layers below |
# | Does the little that it did not read matter? | no: the negative | put both maps there |
# | Does anything read this row? | no: the word's rows | level the row |
#
# **How far this goes.** The models are tiny, without MLP and normalisation, and
# trained on tasks made to have one right map. Removal by zero and uniform
# weights take a model out of what it has seen in training, so that a loss
# may be larger than a gentler edit's; that they show *none* for
# the four heads, and
# that models do better on a map put there than with a head removed, does not
# rest on it. Counts of seeds are of this setting alone.
#
# ## Sources
#
# - Jain and Wallace, [*Attention is not Explanation*
#   (2019)](https://arxiv.org/abs/1902.10186): other maps with the same
#   prediction.
# - Wiegreffe and Pinter, [*Attention is not not Explanation*
#   (2019)](https://arxiv.org/abs/1908.04626): uniform weights and variance over
#   seeds as the measure for such claims.
# - Michel, Levy and Neubig, [*Are Sixteen Heads Really Better than One?*
#   (2019)](https://arxiv.org/abs/1905.10650).
# - Kobayashi, Kuribayashi, Yokoi and Inui, [*Attention is Not Only a Weight:
#   Analyzing Transformers with Vector Norms*
#   (2020)](https://arxiv.org/abs/2004.10102).
# - Elhage et al., [*A Mathematical Framework for Transformer Circuits*
#   (2021)](https://transformer-circuits.pub/2021/framework/).
# - Olsson et al., [*In-context Learning and Induction Heads*
#   (2022)](https://arxiv.org/abs/2209.11895).
# - Sanford, Hsu and Telgarsky, [*One-layer transformers fail to solve the
#   induction heads task* (2024)](https://arxiv.org/abs/2408.14332).
