"""The right code of the corpus is right, and each wrong piece is wrong where it says so."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.snippets.contract import (
    right_attention,
    right_multi_head,
    wrong_attention,
    wrong_multi_head,
)
from tests.snippets.contract.entry import Entry
from tests.snippets.contract.reference import allowed_keys, by_hand, module_by_hand

DOCUMENTS = torch.tensor([[0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 1, 1]])
Settings = Mapping[str, Any]


@dataclass
class Call:
    """Inputs of a function as (B, H, T, d), with a mask of True where a query may attend."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    bias: Tensor | None = None
    causal: bool = False
    documents: Tensor | None = None
    keywords: dict[str, Any] | None = None


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_mask(shape: str, lead: tuple[int, int], tq: int, tk: int, seed: int) -> Tensor:
    """A mask that leaves the first key and the query's own, in the shape that the code takes."""
    generator = torch.Generator().manual_seed(seed + 100)
    sizes = {
        "broadcast": (lead[0], 1, tq, tk),
        "(B, 1, Tq, Tk)": (lead[0], 1, tq, tk),
        "(B, 1, 1, Tk)": (lead[0], 1, 1, tk),
        "(B, Tk)": (lead[0], tk),
        "(B, Tq, Tk)": (lead[0], tq, tk),
        "(Tq, Tk)": (tq, tk),
    }
    mask = torch.rand(sizes[shape], generator=generator) > 0.5
    mask[..., 0] = True
    if mask.shape[-1:] != mask.shape and mask.shape[-2] == tq and shape != "(B, Tk)":
        for i in range(tq):
            mask[..., i, max(i + tk - tq, 0)] = True
            mask[..., i, (i + 1) % tk] = False
            mask[..., 0, 0] = True
    else:
        mask[..., -1] = False
    return mask


def spread(mask: Tensor, shape: str) -> Tensor:
    """The mask as it broadcasts to (B, H, Tq, Tk)."""
    if shape == "(B, Tk)":
        return mask[:, None, None]
    if shape == "(B, Tq, Tk)":
        return mask[:, None]
    return mask


def inputs(settings: Settings, situation: str, seed: int = 0) -> Call:
    """What a situation puts in."""
    n_heads = 1 if settings["layout"] == "(B, T, d)" else 4
    n_batch, tq, tk = 2, 4, 6
    if settings["causal"] or situation in {"square", "causal flag", "causal window", "inputs"}:
        tq = tk = 5
    if situation == "causal flag and mask":
        tq = tk = 5
    if situation == "documents" or settings["documents"]:
        tq = tk = 6
    if situation == "B = H":
        n_batch = n_heads
    if situation == "B = T":
        n_batch = tq
    if situation.startswith("training"):
        tq = tk = 40
    q = normal(n_batch, n_heads, tq, 8, seed=seed) * 1.5
    k = normal(n_batch, n_heads // settings["groups"], tk, 8, seed=seed + 1) * 1.5
    v = normal(n_batch, n_heads // settings["groups"], tk, 8, seed=seed + 2)
    call = Call(q, k, v)
    if situation.startswith("training"):
        call.v = torch.ones_like(v)
        return call
    if settings["mask"] and situation not in {"no mask", "causal flag", "causal flag, Tq < Tk"}:
        call.mask = random_mask(settings["mask_shape"], (n_batch, n_heads), tq, tk, seed)
    if settings["documents"]:
        call.documents = DOCUMENTS
    if situation.startswith("causal flag"):
        call.causal = True
    if "low logits" in situation:
        middle = {"low logits": 8.0, "very low logits": 40.0, "half low logits": 84.0}
        size = middle.get(situation, 10.0)
        call.q, call.k = size + 0.1 * q, -size + 0.1 * k
    if situation in {"empty row", "empty row gradient"}:
        assert call.mask is not None
        call.mask[0, ..., 1, :] = False
    if situation == "first key hidden":
        assert call.mask is not None
        call.mask[..., 0] = False
    if situation.startswith("first block hidden"):
        call.mask = torch.ones(tq, tk, dtype=torch.bool)
        call.mask[:, :4] = False
    if situation == "giant hidden logit":
        assert call.mask is not None
        call.mask[..., -1] = False
        call.q = 10 + 0.1 * q
        call.k[:, :, -1] = 700.0
    if situation == "bias":
        call.mask, call.bias = None, normal(n_batch, 1, tq, tk, seed=seed + 3) * 2
    if situation == "large logits":
        call.q = q * 2000
    if situation == "uneven rows":
        call.q[:, :, 0] *= 2000
    if situation == "NaN hidden":
        assert call.mask is not None
        call.mask[..., -1] = False
        call.k[:, :, -1] = call.v[:, :, -1] = math.nan
    if situation == "half large":
        steps = torch.arange(tk, dtype=torch.float64)[:, None].expand_as(k)
        call.q, call.k = torch.full_like(q, 110), 110 - 2 * steps
    if situation == "inputs" and call.mask is not None:
        call.mask[..., -1] = False
        call.mask[..., 0, 2] = True
        call.mask = call.mask.expand(n_batch, n_heads, tq, tk).clone()
    if situation == "strided":
        call.q, call.k, call.v = (x.mT.contiguous().mT for x in (q, k, v))
    if situation in {"half large", "half low logits"}:
        call.q, call.k, call.v = call.q.half(), call.k.half(), v.half()
    if settings["dropout_argument"] and settings["training_argument"]:
        call.keywords = {settings["dropout_argument"]: 0.5, settings["training_argument"]: False}
    return call


def convention(mask: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
    if kind == "hide":
        return ~mask
    if kind == "additive":
        return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)
    return mask.to(dtype) if kind == "ones" else mask.clone()


def arguments(settings: Settings, call: Call) -> tuple[list[Any], dict[str, Any]]:
    layout = settings["layout"]
    change: Callable[[Tensor], Tensor] = {
        "(B, H, T, d)": lambda x: x,
        "(B, T, H, d)": lambda x: x.transpose(1, 2),
        "(B, T, d)": lambda x: x[:, 0],
    }[layout]
    positional = [change(x) for x in (call.q, call.k, call.v)]
    if call.bias is not None:
        positional.append(call.bias)
    elif call.mask is not None:
        mask = convention(call.mask, settings["mask"], call.q.dtype)
        single = layout == "(B, T, d)" and mask.dim() == 4
        positional.append(mask[:, 0] if single else mask)
    keywords = dict(call.keywords or {})
    if call.causal:
        keywords[settings["causal_argument"]] = True
    if call.documents is not None:
        keywords["document_ids"] = call.documents
    return positional, keywords


def back(settings: Settings, output: Tensor) -> Tensor:
    if settings["layout"] == "(B, T, H, d)":
        return output.transpose(1, 2)
    return output[:, None] if settings["layout"] == "(B, T, d)" else output


def run(settings: Settings, fn: Any, call: Call) -> Tensor:
    positional, keywords = arguments(settings, call)
    return back(settings, fn(*positional, **keywords))


def full_mask(settings: Settings, call: Call) -> Tensor | None:
    return None if call.mask is None else spread(call.mask, settings["mask_shape"])


def expected(settings: Settings, call: Call) -> Tensor:
    return by_hand(
        settings,
        call.q,
        call.k.nan_to_num(0.0),
        call.v.nan_to_num(0.0),
        full_mask(settings, call),
        call.bias,
        causal=settings["alignment"] if call.causal else "",
        documents=call.documents,
    )


def in_torch(settings: Settings, call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same in differentiable operations; empty rows give 0."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    (n_batch, n_heads, tq, d), tk = q.shape, k.shape[2]
    logits = q @ k.mT * (settings["scale"] or d**-0.5)
    if settings["soft_cap"]:
        logits = settings["soft_cap"] * torch.tanh(logits / settings["soft_cap"])
    if settings["alibi"]:
        slopes = 2 ** (-8 * torch.arange(1, n_heads + 1, dtype=torch.float64) / n_heads)
        steps = torch.arange(tk) - torch.arange(tk - tq, tk)[:, None]
        logits = logits - slopes[:, None, None] * steps.abs()
    mask = full_mask(settings, call)
    allowed = allowed_keys(
        settings, (n_batch, n_heads), tq, tk, mask, settings["causal"], call.documents
    )
    some = allowed.any(-1, keepdim=True)
    logits = logits.masked_fill(~allowed & some, -math.inf)
    if settings["sink"] is not None:
        sink = torch.full_like(logits[..., :1], settings["sink"])
        weights = torch.cat([logits, sink], -1).softmax(-1)[..., :-1]
    else:
        weights = logits.softmax(-1)
    return torch.where(some, weights, 0.0) @ v


def gradients(settings: Settings, fn: Any, call: Call, rows: Tensor | None = None) -> list[Tensor]:
    q, k, v = (x.clone().requires_grad_() for x in (call.q, call.k, call.v))
    leaves = [q, k, v]
    if fn is None:
        output = in_torch(settings, call, q, k, v)
    else:
        changed = Call(q, k, v, call.mask, call.bias, call.causal, call.documents, call.keywords)
        output = run(settings, fn, changed)
    if rows is not None:
        output = output[rows]
    loss = (output * torch.linspace(-1, 1, output.shape[-1], dtype=torch.float64)).sum()
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def far(one: Tensor, other: Tensor) -> float:
    """Largest difference; NaN against a number is infinitely far."""
    assert one.shape == other.shape
    one, other = one.double(), other.double()
    if (one.isnan() != other.isnan()).any():
        return math.inf
    gap = torch.where(one == other, 0.0, (one - other).abs()).nan_to_num(0.0, posinf=math.inf)
    return gap.max().item()


def not_empty(settings: Settings, call: Call) -> Tensor:
    lead, tq, tk = call.q.shape[:2], call.q.shape[2], call.k.shape[2]
    allowed = allowed_keys(
        settings,
        (lead[0], lead[1]),
        tq,
        tk,
        full_mask(settings, call),
        settings["causal"],
        call.documents,
    )
    return allowed.any(-1)


def tolerance(name: str) -> float:
    return 1e-6 if "float32" in name or name == "both_scaled" else 1e-10


named_right = pytest.mark.parametrize(
    ("name", "entry"), right_attention.ALL.items(), ids=list(right_attention.ALL)
)


@named_right
@pytest.mark.parametrize("seed", range(2))
def test_right_function(name: str, entry: Entry, seed: int) -> None:
    settings = entry.settings
    situations = ["ordinary", "strided"]
    if settings["mask"]:
        situations += ["no mask", "large logits", "uneven rows"]
    if settings["mask"] == "additive" and name != "bert_extended":
        situations.append("bias")
    if settings["causal_argument"]:
        situations += ["causal flag", "causal flag, Tq < Tk"]
        if name != "scaled_dot_product_attention":  # refuses both
            situations.append("causal flag and mask")
    if settings["mask_shape"] == "broadcast":
        situations += ["very low logits"] if settings["mask"] else []
    if tolerance(name) > 1e-10:  # float32 rounds large logits
        situations = [s for s in situations if s in {"ordinary", "strided", "no mask", "bias"}]
    for situation in situations:
        call = inputs(settings, situation, seed)
        output = run(settings, entry.make(), call)
        assert output.dtype == torch.float64
        assert far(output, expected(settings, call)) < tolerance(name), situation
    if settings["half"]:
        call = inputs(settings, "half large", seed)
        assert far(run(settings, entry.make(), call), expected(settings, call)) < 2e-3


@named_right
def test_right_function_gradients(name: str, entry: Entry) -> None:
    call = inputs(entry.settings, "ordinary")
    for found, right in zip(
        gradients(entry.settings, entry.make(), call),
        gradients(entry.settings, None, call),
        strict=True,
    ):
        assert far(found, right) < tolerance(name) * 10


@named_right
def test_right_function_empty_rows(name: str, entry: Entry) -> None:
    settings = entry.settings
    if not settings["mask"] or settings["mask_shape"] != "broadcast":
        pytest.skip("this mask leaves no single row empty")
    call = inputs(settings, "empty row")
    output, right, rows = (
        run(settings, entry.make(), call),
        expected(settings, call),
        not_empty(settings, call),
    )
    assert far(output[rows], right[rows]) < tolerance(name)
    if settings["empty_rows"]:
        assert far(output, right) < tolerance(name)
    found = gradients(settings, entry.make(), call, rows)
    assert all(g.isfinite().all() for g in found) == settings["empty_gradients"]


def test_differentiable_reference_is_the_loops() -> None:
    for name, entry in right_attention.ALL.items():
        call = inputs(entry.settings, "ordinary")
        output = in_torch(entry.settings, call, call.q, call.k, call.v)
        assert far(output, expected(entry.settings, call)) < 1e-12, name


def test_right_dropout() -> None:
    entry = right_attention.ALL["dropout_on_weights"]
    call = inputs(entry.settings, "training mean")
    call.keywords = {"dropout": 0.25, "training": True}
    torch.manual_seed(0)
    output = run(entry.settings, entry.make(), call)
    assert abs(output.mean().item() - 1) < 0.05
    assert output.std() > 0.01


def fault(entry: Entry) -> float:
    """How far the wrong code is from right code in its situation."""
    settings, situation, fn = entry.settings, entry.situation, entry.make()
    call = inputs(settings, situation)
    if situation.startswith("training"):
        call.keywords = {settings["dropout_argument"]: 0.25, settings["training_argument"]: True}
        torch.manual_seed(0)
        output = run(settings, fn, call)
        if situation == "training mean":
            return max(abs(output.mean().item() - 1) - 0.05, 0)
        return 1.0 if output.std() < 1e-6 else 0.0
    if situation == "gradient":
        pairs = zip(gradients(settings, fn, call), gradients(settings, None, call), strict=True)
        return max(far(*pair) for pair in pairs)
    if situation == "empty row gradient":
        output = run(settings, fn, call)
        assert far(output, expected(settings, call)) < 1e-10
        found = gradients(settings, fn, call, not_empty(settings, call))
        return math.inf if any(g.isnan().any() for g in found) else 0.0
    if situation == "inputs":
        positional, keywords = arguments(settings, call)
        kept = [x.clone() for x in positional]
        fn(*positional, **keywords)
        gap = [far(a.double(), b.double()) for a, b in zip(positional, kept, strict=True)]
        return max(gap)
    if situation == "twice":
        run(settings, fn, inputs(settings, "ordinary", seed=7))
        return far(
            run(settings, fn, inputs(settings, "ordinary")),
            run(settings, entry.make(), inputs(settings, "ordinary")),
        )
    if situation == "dtype":
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            call.q, call.k, call.v = call.q.to(dtype), call.k.to(dtype), call.v.to(dtype)
            if run(settings, fn, call).dtype != dtype:
                return math.inf
        return 0.0
    return far(run(settings, fn, call), expected(settings, call))


named_wrong = pytest.mark.parametrize(
    ("name", "entry"), wrong_attention.ALL.items(), ids=list(wrong_attention.ALL)
)
SHAPES = {"B = H", "B = T", "square", "causal flag"}


@named_wrong
def test_wrong_function(name: str, entry: Entry) -> None:
    assert fault(entry) > 1e-3, name
    where = entry.situation if entry.situation in SHAPES else "ordinary"
    output = run(entry.settings, entry.make(), inputs(entry.settings, where))
    assert output.isfinite().all()
    assert output.shape == inputs(entry.settings, where).q.shape


# Modules.


@dataclass
class Step:
    """Inputs of a module, batch first."""

    x: Tensor
    memory: Tensor | None = None
    mask: Tensor | None = None
    memory_mask: Tensor | None = None
    causal: bool = False
    documents: Tensor | None = None


def step(settings: Settings, situation: str, seed: int = 0) -> Step:
    n_batch, t = 2, 6
    if situation == "B = H":
        n_batch = settings["n_heads"]
    if situation == "B = T":
        n_batch = t
    found = Step(normal(n_batch, t, settings["d_model"], seed=seed) * 1.5)
    lead = (n_batch, 1)
    if settings["memory"] in {"required", "triple"} or situation == "memory":
        s = t if situation == "cross, S = T" else 8
        found.memory = normal(n_batch, s, settings["d_memory"], seed=seed + 1)
    tk = t if found.memory is None else found.memory.shape[1]
    if settings["mask"] and settings["mask_argument"] and situation != "no mask":
        found.mask = random_mask(settings["mask_shape"], lead, t, tk, seed)
    if settings["memory_mask_argument"] and found.memory is not None:
        found.memory_mask = random_mask("(B, Tk)", lead, t, tk, seed + 50)
        if settings["memory"] == "required" and found.mask is not None:
            found.mask = random_mask("(B, Tk)", lead, t, t, seed)
    if settings["documents"]:
        found.documents = DOCUMENTS
    if situation == "causal flag":
        found.causal = True
    if situation in {"empty row", "empty row gradient"}:
        assert found.mask is not None
        found.mask[0] = False
    if situation == "half large":
        found.x = (found.x * 100).half()
    if situation == "strided":
        found.x = found.x.mT.contiguous().mT
    return found


def put(settings: Settings, given: Step) -> tuple[list[Any], dict[str, Any]]:
    def order(x: Tensor) -> Tensor:
        return x if settings["batch_first"] else x.transpose(0, 1)

    positional: list[Any] = [order(given.x)]
    keywords: dict[str, Any] = {}
    if given.memory is not None:
        positional += [order(given.memory)] * (2 if settings["memory"] == "triple" else 1)
    elif settings["memory"] == "triple":
        positional *= 3
    if given.mask is not None:
        mask = convention(given.mask, settings["mask"], given.x.dtype)
        keywords[settings["mask_argument"]] = mask
    if given.memory_mask is not None:
        keywords[settings["memory_mask_argument"]] = convention(
            given.memory_mask, settings["mask"], given.x.dtype
        )
    if given.causal:
        keywords[settings["causal_argument"]] = True
    if given.documents is not None:
        keywords["document_ids"] = given.documents
    return positional, keywords


def run_module(settings: Settings, module: nn.Module, given: Step) -> Tensor:
    positional, keywords = put(settings, given)
    output = module(*positional, **keywords)
    if settings["returns"] == "tuple":
        output = output[0]
    elif settings["returns"] != "output":
        output = output[settings["returns"]]
    assert isinstance(output, Tensor)
    return output if settings["batch_first"] else output.transpose(0, 1)


def expected_of_module(entry: Entry, module: nn.Module, given: Step) -> Tensor:
    assert entry.weights is not None
    settings = entry.settings
    mask = None if given.mask is None else spread(given.mask, settings["mask_shape"])
    if given.memory is not None and settings["memory_mask_argument"]:
        mask = None if given.memory_mask is None else given.memory_mask[:, None, None]
    return module_by_hand(
        settings,
        entry.weights(module),
        given.x,
        given.memory,
        mask,
        causal="top-left" if given.causal else "",
        documents=given.documents,
    ).detach()


named_right_module = pytest.mark.parametrize(
    ("name", "entry"), right_multi_head.ALL.items(), ids=list(right_multi_head.ALL)
)


@named_right_module
def test_right_module(name: str, entry: Entry) -> None:
    settings, module = entry.settings, entry.make().eval()
    assert next(module.parameters()).dtype == settings["dtype"]
    situations = ["ordinary", "no mask", "B = T", "B = H"]
    if settings["documents"]:
        situations = ["ordinary"]
    if settings["causal_argument"]:
        situations.append("causal flag")
    if settings["memory"] == "optional":
        situations.append("memory")
    for situation in situations:
        for seed in range(2 if situation == "ordinary" else 1):
            given = step(settings, situation, seed)
            doubled = entry.make().eval().double()
            right = expected_of_module(entry, doubled, given)
            single = name in {"T5Attention", "LlamaAttention", "BfloatParameters"}
            close = 2e-6 if single else 1e-10
            assert far(run_module(settings, doubled, given), right) < close, situation
            given.x = given.x.to(settings["dtype"])
            given.memory = None if given.memory is None else given.memory.to(settings["dtype"])
            output = run_module(settings, module, given)
            assert output.dtype == settings["dtype"]
            close = 0.1 if settings["dtype"] == torch.bfloat16 else 2e-5
            assert far(output, right) < close


def mean_output(settings: Settings, module: nn.Module, given: Step) -> Tensor:
    """Over 1000 draws, as one batch."""
    mask, memory = given.mask, given.memory
    if mask is not None and settings["mask_shape"] != "(Tq, Tk)":
        mask = mask.repeat(1000, *[1] * (mask.dim() - 1))
    memory = None if memory is None else memory.repeat(1000, 1, 1)
    output = run_module(settings, module, Step(given.x.repeat(1000, 1, 1), memory, mask))
    return output.view(1000, *given.x.shape).mean(0)


@named_right_module
def test_right_module_in_training(name: str, entry: Entry) -> None:
    settings, module = entry.settings, entry.make().double()
    given = step(settings, "ordinary")
    right = expected_of_module(entry, module, given)
    if not settings["dropout"] and not settings["output_dropout"]:
        assert far(run_module(settings, module, given), right) < 1e-5
        return
    torch.manual_seed(0)
    mean = mean_output(settings, module, given)
    assert 1e-6 < far(mean, right) < 0.15, name


def module_gradients(settings: Settings, module: nn.Module, given: Step) -> list[Tensor]:
    output = run_module(settings, module, given)
    rows = [1] if given.mask is not None and not given.mask[0].any() else [0, 1]
    loss = (output[rows] * torch.linspace(-1, 1, output.shape[-1], dtype=output.dtype)).sum()
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    return [
        torch.zeros_like(p) if g is None else g
        for p, g in zip(module.parameters(), found, strict=True)
    ]


def module_fault(entry: Entry) -> float:
    settings, situation = entry.settings, entry.situation
    module = entry.make().double().eval()
    given = step(settings, situation)
    if situation == "training mean":
        module.train()
        torch.manual_seed(0)
        mean = mean_output(settings, module, given)
        gap = far(mean, expected_of_module(entry, module, given))
        return gap if gap > 0.2 else 0.0
    if situation == "training spread":
        # Where all values are one vector, weights that sum to one give one output.
        with torch.no_grad():
            module.v.weight.zero_()
        module.train()
        torch.manual_seed(0)
        outputs = torch.stack([run_module(settings, module, given) for _ in range(20)])
        return 1.0 if outputs.std(0).max() < 1e-6 else 0.0
    if situation == "gradient":
        right = wrong_multi_head.Right().double()
        right.load_state_dict(module.state_dict())
        pairs = zip(
            module_gradients(settings, module, given),
            module_gradients(settings, right, given),
            strict=True,
        )
        return max(far(*pair) for pair in pairs)
    if situation == "empty row gradient":
        found = module_gradients(settings, module, given)
        return math.inf if any(g.isnan().any() for g in found) else 0.0
    if situation == "inputs":
        positional, keywords = put(settings, given)
        before = [positional[0].clone(), keywords["mask"].clone()]
        module(*positional, **keywords)
        after = [positional[0], keywords["mask"]]
        return max(far(a, b) for a, b in zip(before, after, strict=True))
    if situation == "twice":
        run_module(settings, module, step(settings, "ordinary", seed=7))
        return far(
            run_module(settings, module, given),
            run_module(settings, entry.make().double().eval(), given),
        )
    if situation == "dtype":
        same = run_module(settings, module, given).dtype == torch.float64
        return 0.0 if same else math.inf
    if situation == "half large":
        module = entry.make().eval()
    with torch.no_grad():
        output = run_module(settings, module, given)
    return far(output, expected_of_module(entry, module, given))


@pytest.mark.parametrize(
    ("name", "entry"), wrong_multi_head.ALL.items(), ids=list(wrong_multi_head.ALL)
)
def test_wrong_module(name: str, entry: Entry) -> None:
    assert module_fault(entry) > 1e-3, name
    where = entry.situation if entry.situation in {"B = H", "B = T"} else "ordinary"
    given = step(entry.settings, where)
    given.x = given.x.to(entry.settings["dtype"])
    given.memory = None if given.memory is None else given.memory.to(entry.settings["dtype"])
    output = run_module(entry.settings, entry.make().eval(), given)
    assert output.isfinite().all()
    assert output.shape == given.x.shape
    given = step(entry.settings, where)
    if entry.situation == "evaluation" and not entry.settings["dropout"]:
        module = entry.make().double()
        right = expected_of_module(entry, module, given)
        assert far(run_module(entry.settings, module.train(), given), right) < 1e-10


@pytest.mark.parametrize(
    "kind",
    ["Right", "RightCausal", "RightCross", "RightPadding", "RightGrouped"],
)
def test_twins_of_wrong_modules_are_right(kind: str) -> None:
    module: nn.Module = getattr(wrong_multi_head, kind)().double()
    settings = {
        **right_multi_head.RIGHT.defaults,
        **{
            "RightCausal": {"causal": "top-left", "mask": ""},
            "RightCross": wrong_multi_head.cross,
            "RightPadding": {"mask_shape": "(B, Tk)"},
            "RightGrouped": {"n_kv_heads": 2},
        }.get(kind, {}),
    }
    entry = Entry(lambda: module, settings, weights=wrong_multi_head.weights)
    given = step(settings, "ordinary")
    right = expected_of_module(entry, module, given)
    assert far(run_module(settings, module, given), right) < 1e-10
