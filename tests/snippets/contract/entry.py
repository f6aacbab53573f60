"""What the corpus is made of: right and wrong attention code, and how each piece is called.

Settings of a function (``FUNCTION`` holds the defaults)

layout : "(B, H, T, d)", "(B, T, H, d)" or "(B, T, d)", of q, k, v and of the output
mask : "attend" (True may attend), "hide" (True is hidden), "additive" (0 or -inf, or any bias),
    "ones" (numbers, 1 may attend) or "" (takes no mask)
mask_shape : "broadcast" (whatever broadcasts to (B, H, Tq, Tk), in layout "(B, T, d)" to
    (B, Tq, Tk)), "(B, Tk)", "(B, Tq, Tk)" or "(Tq, Tk)"
causal : "" or "top-left" or "bottom-right": always inside
causal_argument : name of a flag that makes it causal, or ""; ``alignment`` says which
groups : query heads for each key and value head
scale : None for 1 / sqrt(d), or the number
soft_cap, sink, window : None or the number; a window counts the query's own key and is causal,
    aligned bottom-right; the sink is one logit for every head, without a value
alibi : whether -slope * |i - j| is added, slopes 2 ** (-8 (h + 1) / H), aligned bottom-right
empty_rows : what a query without keys gives: "nan", "zeros" or "" (no promise)
empty_gradients : whether gradients stay finite where a row is empty
dropout_argument, training_argument : names, or ""; without the second, dropout always drops
half : whether float16 keeps logits of which q @ k before the scale would overflow
documents : whether ``document_ids=`` of shape (B, T) is taken; tokens see their own document only

Settings of a module (``MODULE`` holds the defaults)

The same keys, and
d_model, n_heads, n_kv_heads : int
batch_first : (B, T, C) or (T, B, C), of x, the memory and the output
mask_argument, mask_shape : name, "" for none; "(B, Tk)", "(Tq, Tk)", "(B, Tq, Tk)",
    "(B, 1, 1, Tk)", "(B, 1, Tq, Tk)"
memory : "" (self-attention only), "optional" or "required": the second argument, values from it
    too; "triple" is called ``module(x, memory, memory)``
d_memory : width of the memory
memory_mask_argument : name of a (B, S) mask of the memory, in the same convention, or ""
dropout : share of the weights that is dropped in training; ``output_dropout`` of the output
returns : "output", "tuple" (output first) or the key of the output in a dict
rotary : None or the base, on halves, positions from 0
qk_norm : None or the eps of an RMS norm of each head's q and k, with gains
dtype : of the parameters
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=nn.Module)

FUNCTION: dict[str, Any] = {
    "layout": "(B, H, T, d)",
    "mask": "attend",
    "mask_shape": "broadcast",
    "causal": "",
    "causal_argument": "",
    "alignment": "top-left",
    "groups": 1,
    "scale": None,
    "soft_cap": None,
    "sink": None,
    "window": None,
    "alibi": False,
    "empty_rows": "nan",
    "empty_gradients": False,
    "dropout_argument": "",
    "training_argument": "",
    "half": False,
    "documents": False,
}
MODULE: dict[str, Any] = {
    **{key: FUNCTION[key] for key in ("mask", "causal", "scale", "window", "empty_rows")},
    "soft_cap": None,
    "mask_shape": "(B, 1, Tq, Tk)",
    "mask_argument": "mask",
    "causal_argument": "",
    "d_model": 16,
    "n_heads": 4,
    "n_kv_heads": 4,
    "batch_first": True,
    "memory": "",
    "d_memory": 16,
    "memory_mask_argument": "",
    "dropout": 0.0,
    "output_dropout": 0.0,
    "returns": "output",
    "rotary": None,
    "qk_norm": None,
    "dtype": torch.float32,
    "documents": False,
}


@dataclass(frozen=True)
class Entry:
    """One piece of code.

    ``mistake`` names the check that should find a wrong one; ``needs`` is "specification" where
    no general property is broken; ``situation`` is where it differs from right code. ``weights``
    gives the projections of a module as (H * d, C) matrices, head after head.
    """

    make: Callable[[], Any]
    settings: Mapping[str, Any]
    mistake: str = ""
    needs: str = ""
    situation: str = "ordinary"
    weights: Callable[[Any], dict[str, Tensor | None]] | None = None


@dataclass
class Registry:
    """Collects entries under the name of their code."""

    defaults: dict[str, Any]
    entries: dict[str, Entry] = field(default_factory=dict)

    def _settings(self, changes: dict[str, Any]) -> dict[str, Any]:
        unknown = changes.keys() - self.defaults.keys()
        assert not unknown, f"no such settings: {unknown}"
        return {**self.defaults, **changes}

    def function(
        self,
        mistake: str = "",
        *,
        needs: str = "",
        situation: str = "ordinary",
        **changes: Any,
    ) -> Callable[[F], F]:
        def add(fn: F) -> F:
            assert fn.__name__ not in self.entries, fn.__name__
            self.entries[fn.__name__] = Entry(
                lambda: fn, self._settings(changes), mistake, needs, situation
            )
            return fn

        return add

    def factory(
        self,
        mistake: str = "",
        *,
        needs: str = "",
        situation: str = "ordinary",
        **changes: Any,
    ) -> Callable[[F], F]:
        """For functions that carry state: each call makes a fresh one."""

        def add(make: F) -> F:
            assert make.__name__ not in self.entries, make.__name__
            self.entries[make.__name__] = Entry(
                make, self._settings(changes), mistake, needs, situation
            )
            return make

        return add

    def module(
        self,
        mistake: str = "",
        *,
        needs: str = "",
        situation: str = "ordinary",
        weights: Callable[[Any], dict[str, Tensor | None]] | None = None,
        **changes: Any,
    ) -> Callable[[type[M]], type[M]]:
        settings = self._settings(changes)

        def add(kind: type[M]) -> type[M]:
            def make() -> M:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    module = kind()
                    with torch.no_grad():
                        for parameter in module.parameters():
                            if parameter.dim() == 1:  # biases and gains that matter
                                parameter.add_(0.3 * torch.randn_like(parameter))
                return module.to(settings["dtype"])

            assert kind.__name__ not in self.entries, kind.__name__
            self.entries[kind.__name__] = Entry(make, settings, mistake, needs, situation, weights)
            return kind

        return add
