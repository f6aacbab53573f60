"""Is it attention? Checks for anybody's attention code, named by mistakes.

Wrong attention code is silent: the shapes are right and the loss goes down.
Each check here looks for one mistake and ends in a sentence that says what is
wrong, what was measured, what was expected and what the likeliest cause is.

Describe how your code is called, and ask for a report::

    report = check_attention(my_attention, mask="hide")
    report = check_multi_head(MyLayer(64, 4), n_heads=4, causal="always")
    report = check_positions(my_rotary, pairs="half")
    report = check_cache(my_step, my_full)
    print(report)

Conventions are settings: the layout, what True in a mask means, what a query
without keys gives. A convention that is not given is found out and reported.

From a shell, with exit code 1 when a check fails::

    python -m contract package.module:name --set mask=hide

In pytest, each check a test of its own::

    @pytest.mark.parametrize("case", cases(Attention(my_attention)), ids=str)
    def test_contract(case):
        case()

A hazard is a `HazardWarning` there; to leave them out of the output, run
``pytest -W ignore::contract.HazardWarning``, with the place of this file.

Verdicts: *fail*, a mistake; *hazard*, what right code does, too, and which
hurts who does not know it; *skip*, the check does not apply, with the reason.
"""

import argparse
import ast
import contextlib
import copy
import dataclasses
import functools
import importlib
import inspect
import itertools
import json
import math
import sys
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

# The largest error that rounding explains, relative to outputs of size 1, by
# the dtype of the inputs. Code that takes its softmax in float32 is right.
TOLERANCE = {
    torch.float64: 1e-5,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}


# --- Findings and reports -----------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    verdict : str
        "pass", "fail", "hazard" or "skip".
    wrong : str
        A sentence: what is wrong, or why the check was skipped.
    measured, expected : str
        What was measured, and what right code gives.
    cause : str
        The likeliest cause and what to change.
    check, page : str
        The name of the check, and the page that explains the mistake.
    """

    verdict: str
    wrong: str = ""
    measured: str = ""
    expected: str = ""
    cause: str = ""
    check: str = ""
    page: str = ""

    def __str__(self) -> str:
        """One line, with everything that is known."""
        parts = [f"{self.verdict.upper()} {self.check}:", self.wrong]
        if self.measured:
            parts.append(f"Measured: {self.measured}; expected: ")
            parts[-1] += f"{self.expected}."
        if self.cause:
            parts.append(f"Likeliest cause: {self.cause}")
        if self.verdict in ("fail", "hazard"):
            parts.append(f"See {self.page} in The Attention Reference.")
        return " ".join(part for part in parts if part)


def passed(measured: str = "", expected: str = "") -> Finding:
    """Nothing wrong, and what was measured."""
    return Finding("pass", "", measured, expected)


def failed(wrong: str, measured: str, expected: str, cause: str) -> Finding:
    """A mistake."""
    return Finding("fail", wrong, measured, expected, cause)


def hazard(wrong: str, measured: str, expected: str, cause: str) -> Finding:
    """What right code does, too, but whoever calls it should know."""
    return Finding("hazard", wrong, measured, expected, cause)


def skipped(reason: str) -> Finding:
    """The check does not apply."""
    return Finding("skip", reason)


@dataclass(frozen=True)
class Report:
    """All findings about one subject; ``str`` of it is a table and the rest.

    Attributes
    ----------
    subject : str
        The name of what was checked.
    detected : dict of str to str
        Conventions that were not given, as they were found out.
    findings : tuple of Finding
        One a check, in the order of the checks.
    """

    subject: str
    detected: dict[str, str]
    findings: tuple[Finding, ...]

    def of(self, verdict: str) -> tuple[Finding, ...]:
        """Findings with one verdict: "pass", "fail", "hazard" or "skip"."""
        return tuple(f for f in self.findings if f.verdict == verdict)

    @property
    def failures(self) -> tuple[str, ...]:
        """Names of the checks that failed."""
        return tuple(finding.check for finding in self.of("fail"))

    def require(self) -> None:
        """Raise an AssertionError with every failure; do nothing if none."""
        if self.failures:
            raise AssertionError("\n".join(map(str, self.of("fail"))))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{len(self.of(verdict))} {word}"
            for verdict, word in (
                ("fail", "failed"),
                ("hazard", "hazards"),
                ("pass", "passed"),
                ("skip", "skipped"),
            )
        )
        width = max(len(finding.check) for finding in self.findings)
        lines = [f"{self.subject}: {counts}"]
        lines += [f"  found out: {k} = {v}" for k, v in self.detected.items()]
        lines += [
            f"  {finding.verdict:6} {finding.check:{width}} "
            + (finding.wrong or finding.measured)
            for finding in self.findings
        ]
        told = self.of("fail") + self.of("hazard")
        lines += [line for finding in told for line in ("", str(finding))]
        return "\n".join(line.rstrip() for line in lines)


# --- Subjects: how code is called ---------------------------------------------


class SubjectError(Exception):
    """The code under test raised; the message says how it was called."""


class UnsuitableError(Exception):
    """The subject cannot be asked this; the message says why."""


class HazardWarning(UserWarning):
    """A hazard, where the checks run as tests."""


S = TypeVar("S", bound="Subject")


@contextlib.contextmanager
def quiet(seed: int) -> Iterator[None]:
    """Keep the caller's random numbers, gradient mode and warnings apart."""
    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        yield


class Subject:
    """What is checked, with the settings that say how it is called."""

    kind: ClassVar[str]
    detected: dict[str, str]
    seed: int

    def prepared(self: S) -> S:
        """Same subject, with every convention that was not given found out.

        Raises
        ------
        SubjectError
            When no way of calling the code gives an output.
        """
        with quiet(self.seed):
            return self.found_out()

    def found_out(self: S) -> S:
        """What `prepared` returns; may draw random numbers."""
        raise NotImplementedError

    def name(self) -> str:
        """Name for the report."""
        raise NotImplementedError

    def fresh(self) -> "Subject":
        """Same subject, without the traces of earlier calls."""
        return self

    def noisy(self) -> bool:
        """Whether two calls differ by their random numbers."""
        return False


Check = Callable[[Any], Finding]
CHECKS: dict[str, dict[str, tuple[Check, str]]] = {
    "attention": {},
    "multi_head": {},
    "positions": {},
    "cache": {},
}


def check(page: str) -> Callable[[Check], Check]:
    """Register a check, which is named kind_mistake, with the page about it."""

    def register(function: Check) -> Check:
        kind = next(k for k in CHECKS if function.__name__.startswith(k + "_"))
        mistake = function.__name__.removeprefix(kind + "_")
        CHECKS[kind][mistake] = function, page
        return function

    return register


def run_check(subject: Subject, name: str) -> Finding:
    """Run one check on a prepared subject; the global random state is kept."""
    function, page = CHECKS[subject.kind][name]
    with quiet(subject.seed):
        try:
            finding = function(subject.fresh())
        except UnsuitableError as error:
            finding = skipped(f"Not asked: {error}.")
        except SubjectError as error:
            finding = raised_in_runs(error) if name == "runs" else raised(error)
            if name != "runs" and run_check(subject, "runs").verdict == "fail":
                finding = skipped("Ordinary calls raise (see runs).")
        except Exception as error:  # noqa: BLE001
            text = (str(error).strip() or "no message").split("\n")[0][:200]
            finding = skipped(
                f"The check itself broke: {type(error).__name__}: {text}"
            )
        apart = ("runs", "dropout_in_evaluation", "calls_remembered")
        if finding.verdict == "fail" and name not in apart and random(subject):
            finding = skipped("Two calls differ (see dropout_in_evaluation).")
    return dataclasses.replace(finding, check=name, page=page)


def random(subject: Subject) -> bool:
    """Whether the subject draws random numbers in ordinary calls."""
    try:
        return subject.noisy()
    except (SubjectError, UnsuitableError):
        return False


def raised(error: SubjectError) -> Finding:
    """The code under test raised where right code gives an output."""
    return failed(
        "The call raised.",
        str(error),
        "an output",
        "the code does not take this input, or the settings do not say how it "
        "is called: compare the shapes above with what it wants.",
    )


def raised_in_runs(error: SubjectError) -> Finding:
    """As `raised`, where nothing else can be asked."""
    finding = raised(error)
    return dataclasses.replace(
        finding,
        cause=finding.cause + " Nothing else was checked: the settings layout, "
        "mask, mask_shape and options say how to call it.",
    )


def run_checks(subject: Subject) -> Report:
    """Find out what was not given, run all checks, and report."""
    ready = subject.prepared()
    findings = tuple(run_check(ready, name) for name in CHECKS[ready.kind])
    return Report(ready.name(), ready.detected, findings)


@dataclass(frozen=True)
class Case:
    """One check of one subject, as a test: calling it raises when it fails.

    A check that does not apply raises unittest.SkipTest, which pytest counts
    as skipped; a hazard is a HazardWarning.
    """

    subject: Subject
    check: str

    def __str__(self) -> str:
        return self.check

    def __call__(self) -> None:
        """Run the check."""
        finding = run_check(self.subject, self.check)
        if finding.verdict == "fail":
            raise AssertionError(str(finding))
        if finding.verdict == "skip":
            raise unittest.SkipTest(finding.wrong)
        if finding.verdict == "hazard":
            warnings.warn(str(finding), HazardWarning, stacklevel=2)


def cases(subject: Subject) -> list[Case]:
    """Checks as test cases: give them to ``pytest.mark.parametrize``."""
    ready = subject.prepared()
    return [Case(ready, name) for name in CHECKS[ready.kind]]


# --- Measuring ----------------------------------------------------------------


def far(a: Tensor, b: Tensor) -> float:
    """Largest difference, infinite where one is NaN and the other is not."""
    a, b = a.detach().double(), b.detach().double()
    both = a.isnan() & b.isnan()
    difference = (a - b).abs().masked_fill(both | (a == b), 0.0)
    return float(difference.nan_to_num(math.inf, math.inf).max())


def brief(number: float) -> str:
    """Number in three digits."""
    return f"{number:.3g}"


def size(x: Tensor) -> float:
    """Largest absolute value."""
    return float(x.detach().double().abs().max())


def generator(subject: Subject, salt: int = 0) -> torch.Generator:
    """Source of random numbers that depends on the seed of the subject only."""
    return torch.Generator().manual_seed(1000 * subject.seed + salt)


def first_tensor(
    output: Any, shape: tuple[int, ...] | None = None
) -> Tensor | None:
    """Output of code that may return a tensor, a tuple or a dictionary.

    The first tensor of the shape that is wanted, or else the first.
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        tensors = [x for x in output if isinstance(x, Tensor)]
        fitting = [x for x in tensors if x.shape == shape]
        return next(iter(fitting or tensors), None)
    return (
        first_tensor(tuple(vars(output).values()), shape)
        if hasattr(output, "__dict__")
        else None
    )


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
    """Call the code under test; what it raises becomes a SubjectError."""
    return called_for(None, function, *args, **kwargs)


def called_for(
    shape: tuple[int, ...] | None,
    function: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """As `called`; among several tensors, the one of the wanted shape."""
    try:
        output = first_tensor(function(*args, **kwargs), shape)
    except Exception as error:
        given = [
            f"{tuple(x.shape)} {str(x.dtype).removeprefix('torch.')}"
            if isinstance(x, Tensor)
            else repr(x)
            for x in [*args, *kwargs.values()]
        ]
        text = str(error).strip().split("\n")[0][:200]
        raise SubjectError(
            f"{type(error).__name__}: {text} (called with {', '.join(given)})"
        ) from error
    if output is None:
        raise SubjectError("the call returned no tensor")
    return output


def mask_as(mask: Tensor, convention: str, dtype: torch.dtype) -> Tensor:
    """Boolean mask, True = may attend, in the convention of the subject."""
    if convention == "attend":
        return mask
    if convention == "hide":
        return ~mask
    if convention == "ones":
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -math.inf)


# --- Attention functions ------------------------------------------------------


MASK_SHAPES = (
    "(B, H, Tq, Tk)",
    "(B, 1, Tq, Tk)",
    "(B, Tq, Tk)",
    "(Tq, Tk)",
    "(B, 1, 1, Tk)",
    "(B, Tk)",
)
LAYOUTS = ("(B, H, T, d)", "(B, T, H, d)", "(B, T, d)")
OUTPUTS = (*LAYOUTS, "(B, T, H·d)")
CONVENTIONS = ("attend", "hide", "additive", "ones")
POLICIES = ("zeros", "nan", "mean")


def one_of(name: str, given: object, choices: Sequence[str]) -> None:
    """Refuse a setting that is none of the choices."""
    if given is not None and given not in choices:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, choices))}, or None "
            f"to have it found out, got {given!r}"
        )


def count(name: str, given: object) -> None:
    """Refuse what is no whole number from 1."""
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError(
            f"{name} must be a whole number from 1, or None, got {given!r}: "
            f"give a number, as in {name}=4, or leave it out"
        )


def number(name: str, given: object, *, below_zero: bool = False) -> None:
    """Refuse what is no number, and 0 or less where it makes no sense."""
    if given is None:
        return
    real = isinstance(given, int | float) and not isinstance(given, bool)
    if not real or not given or (not below_zero and float(str(given)) < 0):
        raise ValueError(
            f"{name} must be a number"
            + (" other than 0" if below_zero else " above 0")
            + f", or None, got {given!r}: give a number, or leave it out"
        )


def word(name: str, given: object, example: str) -> None:
    """Refuse what is no name."""
    if given is not None and not isinstance(given, str):
        raise ValueError(
            f"{name} must be a string, as {example}, or None, got {given!r}: "
            "give the name of the argument, in quotes"
        )


def dtype_named(given: object) -> torch.dtype:
    """A dtype, given as such or by its name."""
    name = given.removeprefix("torch.") if isinstance(given, str) else ""
    dtype = getattr(torch, name, None) if name else given
    if not isinstance(dtype, torch.dtype):
        raise ValueError(
            f"dtypes must hold dtypes, as torch.float16 or 'float16', got "
            f"{given!r}: give them in a tuple, dtypes=(torch.float16,)"
        )
    return dtype


def in_shape(mask: Tensor, shape: str, sizes: tuple[int, ...]) -> Tensor:
    """Mask that broadcasts to (B, H, Tq, Tk), in the shape that is wanted."""
    axes = shape.strip("()").split(", ")
    full = ("B", "H", "Tq", "Tk")
    for axis, name in enumerate(full):
        if name not in axes and mask.shape[axis] > 1:
            raise UnsuitableError(
                f"a mask of shape {shape} has no axis {name}, along which the "
                "mask of this check varies"
            )
    whole = mask.expand(
        *(n if name in axes else 1 for n, name in zip(sizes, full, strict=True))
    )
    keep = [name for name in full if name in axes]
    flat = whole.reshape(
        [n for n, name in zip(whole.shape, full, strict=True) if name in keep]
    )
    return flat[tuple(None if a == "1" else slice(None) for a in axes)]


def argument(function: Callable[..., Any], *words: str) -> str | None:
    """Name of the first parameter that contains one of the words."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    return next((n for n in named if any(w in n.lower() for w in words)), None)


def by_name(function: Callable[..., Any]) -> list[str]:
    """Names of queries, keys and values if they must be given by name."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return []
    names = []
    for letter, words in zip("qkv", ("quer", "key", "value"), strict=True):
        own = [
            p.name
            for p in parameters
            if p.name.lower().startswith((letter + "_", words))
            or p.name.lower() == letter
        ]
        names += [n for n in own if "mask" not in n.lower()][:1]
    apart = any(p.kind is p.KEYWORD_ONLY for p in parameters[:3])
    ordered = [p.name for p in parameters[:3]] == names
    return names if len(names) == 3 and (apart or not ordered) else []


@dataclass(frozen=True)
class Attention(Subject):
    """A function of queries, keys, values and a mask, and how it is called.

    Settings that are None are found out and reported, unless their line says
    what None means.

    Attributes
    ----------
    fn : callable
        ``fn(q, k, v, mask)`` returns the output, or it first among others. The
        mask goes to the parameter with "mask" in its name, or is the fourth.
    layout : str
        "(B, H, T, d)", "(B, T, H, d)" or "(B, T, d)".
    output_layout : str
        One of these or "(B, T, H·d)", if the output has another layout.
    mask : str
        "attend" (boolean, True = may attend), "hide" (boolean, True = hidden),
        "additive" (0 or -inf), "ones" (numbers, 1 = may attend) or "none".
    mask_shape : str
        One of MASK_SHAPES, the largest that the function takes.
    causal : str
        "always", "never", or the name of a flag.
    alignment : str
        With Tq != Tk: "top-left" (query i sees keys 0 to i) or "bottom-right"
        (the last query sees the last key).
    empty : str
        What a query without keys gives: "zeros", "nan" or "mean" (of all
        values). None: every policy is accepted, and other than zeros reported.
    scale : float
        None: 1 / sqrt(d).
    n_heads, n_kv_heads : int
        Numbers of query heads, and of key and value heads if they are fewer.
    window : int
        With causal: how many keys a query sees at most, its own among them.
        None: all.
    score : callable
        ``score(q, k)``, shape (B, H, Tq, Tk): the scaled logits where they are
        not scale · q·k, for example of normalised queries and keys, or of
        additive scoring. None: scale · q·k.
    soft_cap : float
        c of c · tanh(logits / c). None: no cap.
    sink : float or Tensor of shape (H,)
        Logit of a key without a value. None: no such key.
    bias : callable
        ``bias(n_queries, n_keys)``, shape (H, Tq, Tk), added to the scaled
        logits, for example ALiBi. None: no bias.
    bias_argument : str
        Name of an argument that takes such a bias. None: if the mask is
        additive, the mask takes it, too.
    dropout : str
        Name of the argument with the share of the weights to drop.
    training : str
        Name of the flag that turns the dropout on. None: the share does.
    documents : str
        Name of the argument with the document ids (B, T) of packed sequences.
    hidden_nan : bool
        Whether hidden keys and values may hold NaN.
    dtypes : tuple of torch.dtype
        Dtypes that the function promises beside the one it is tested in:
        hazards of half precision become failures.
    tolerance : float
        Relative to outputs of size 1. None: as in TOLERANCE.
    options : dict
        Further keyword arguments of every call.
    seed : int
        Of the random inputs.
    """

    kind: ClassVar[str] = "attention"
    fn: Callable[..., Any]
    layout: str | None = None
    mask: str | None = None
    mask_shape: str | None = None
    causal: str | None = None
    alignment: str | None = None
    empty: str | None = None
    scale: float | None = None
    n_heads: int = 4
    n_kv_heads: int | None = None
    window: int | None = None
    score: Callable[[Tensor, Tensor], Tensor] | None = None
    soft_cap: float | None = None
    sink: float | Tensor | None = None
    bias: Callable[[int, int], Tensor] | None = None
    bias_argument: str | None = None
    dropout: str | None = None
    training: str | None = None
    documents: str | None = None
    hidden_nan: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    tolerance: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    dtype: torch.dtype | None = None
    same_lengths: bool | None = None
    needs_mask: bool = False
    output_layout: str | None = None
    reseeded: bool = True
    detected: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise TypeError(
                f"fn must be callable, got {type(self.fn).__name__}: pass the "
                "function itself, not its result"
            )
        if isinstance(self.fn, type):
            raise TypeError(
                f"fn must be a function, got the class {self.fn.__name__}: "
                f"pass an instance, {self.fn.__name__}(...), or use "
                "check_multi_head for a layer that projects its input"
            )
        one_of("layout", self.layout, LAYOUTS)
        one_of("output_layout", self.output_layout, OUTPUTS)
        one_of("mask", self.mask, (*CONVENTIONS, "none"))
        one_of("mask_shape", self.mask_shape, MASK_SHAPES)
        one_of("alignment", self.alignment, ("top-left", "bottom-right"))
        one_of("empty", self.empty, POLICIES)
        word("causal", self.causal, "'always', 'never' or 'is_causal' (a flag)")
        word("bias_argument", self.bias_argument, "'attn_bias'")
        word("dropout", self.dropout, "'dropout_p'")
        word("training", self.training, "'training'")
        word("documents", self.documents, "'document_ids'")
        count("window", self.window)
        count("n_heads", self.n_heads)
        count("n_kv_heads", self.n_kv_heads)
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_heads = {self.n_heads}, got "
                f"{self.n_kv_heads}: give both, as n_heads=4, n_kv_heads=2"
            )
        number("scale", self.scale, below_zero=True)
        number("soft_cap", self.soft_cap)
        number("tolerance", self.tolerance)
        if self.bias is not None and not callable(self.bias):
            raise TypeError(
                "bias must be callable, bias(n_queries, n_keys) of shape (H, "
                f"Tq, Tk), got {type(self.bias).__name__}: give a function "
                "that returns your tensor for these sizes"
            )
        given = self.dtypes
        given = given if isinstance(given, tuple | list) else (given,)
        dtypes = tuple(map(dtype_named, given))
        object.__setattr__(self, "dtypes", dtypes)
        if self.dtype is not None:
            object.__setattr__(self, "dtype", dtype_named(self.dtype))

    def name(self) -> str:
        """Name of the function."""
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    @property
    def heads(self) -> tuple[int, int]:
        """Numbers of query heads and of key and value heads."""
        h = 1 if self.layout == "(B, T, d)" else self.n_heads
        return h, min(h, self.n_kv_heads or h)

    @property
    def near(self) -> float:
        """Largest error that rounding explains."""
        return self.tolerance or TOLERANCE[self.dtype or torch.float64]

    def draw(
        self,
        b: int = 2,
        t_q: int | None = None,
        t_k: int | None = None,
        d: int = 16,
        salt: int = 0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Random queries (B, H, Tq, d), keys and values (B, Hkv, Tk, d)."""
        t_k = t_k or (6 if self.same_lengths else 7)
        t_q = t_q or (t_k if self.same_lengths else 5)
        g, (h, h_kv) = generator(self, salt), self.heads
        shapes = (b, h, t_q, d), (b, h_kv, t_k, d), (b, h_kv, t_k, d)
        q, k, v = (
            torch.randn(s, generator=g, dtype=torch.float64).to(self.dtype)
            for s in shapes
        )
        return q, k, v

    def random_mask(self, b: int, t_q: int, t_k: int, salt: int = 0) -> Tensor:
        """Mask of the shape that the subject takes: every row sees a key.

        Some keys are hidden, none of key 0 and the query's own (square masks).
        """
        axes = (self.mask_shape or "(Tq, Tk)").strip("()").split(", ")
        sizes = {"B": b, "H": self.heads[0], "Tq": t_q, "Tk": t_k}
        shape = [n if name in axes else 1 for name, n in sizes.items()]
        g = generator(self, salt + 77)
        mask = torch.rand(shape, generator=g) < 0.6
        if shape[2] == 1 and (self.window or self.causal == "always"):
            mask[:] = True  # so that one hidden key empties no window
        mask[..., 0] = True
        mask[..., -2] = False
        if shape[2] > 1:
            rows = torch.arange(t_q)
            for own in (rows, rows + t_k - t_q):  # in both alignments
                fits = (own >= 0) & (own < t_k)
                mask[..., rows[fits], own[fits]] = True
        return mask

    def keys_mask(self, b: int, t_k: int, hide: Sequence[int]) -> Tensor:
        """Mask (B, 1, 1, Tk) that hides the same keys from every query."""
        mask = torch.ones(b, 1, 1, t_k, dtype=torch.bool)
        mask[..., list(hide)] = False
        return mask

    def call(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        **more: Any,
    ) -> Tensor:
        """Output (B, H, Tq, dv) of the subject, however it is called."""
        sizes = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        if self.documents:
            one = torch.zeros(q.shape[0], k.shape[2], dtype=torch.long)
            more.setdefault(self.documents, one)
        arguments = [self.laid_out(x) for x in (q, k, v)]
        options = {**self.options, **more}
        named = by_name(self.fn)
        if named:
            options |= zip(named, arguments, strict=True)
            arguments = []
        if mask is not None or self.mask not in (None, "none"):
            given = None
            if mask is None and self.needs_mask:
                mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
            if mask is not None:
                if self.mask == "none":
                    raise UnsuitableError("the function takes no mask")
                given = in_shape(mask, self.mask_shape or MASK_SHAPES[0], sizes)
                given = mask_as(given, self.mask or "attend", q.dtype)
            name = argument(self.fn, "mask")
            if name is None and named:
                rest = inspect.signature(self.fn).parameters
                name = next((n for n in rest if n not in named), None)
            if name is None:
                arguments.append(given)  # type: ignore[arg-type]
            else:
                options[name] = given
        if causal:
            if self.causal is None:
                raise UnsuitableError("the function has no causal flag")
            if self.causal != "always":
                options[self.causal] = True
        layout = self.output_layout or self.layout
        (b, h, t_q, _), d_v = q.shape, v.shape[-1]
        wanted = {
            "(B, T, H, d)": (b, t_q, h, d_v),
            "(B, T, d)": (b, t_q, d_v),
            "(B, T, H·d)": (b, t_q, h * d_v),
        }.get(str(layout), (b, h, t_q, d_v))
        if self.reseeded:
            torch.manual_seed(self.seed)
        output = called_for(wanted, self.fn, *arguments, **options)
        if output.shape != wanted:
            raise SubjectError(
                f"the output has the shape {tuple(output.shape)}, which is not "
                f"{wanted} in the layout {layout}: (B, H, Tq, dv) = "
                f"{(b, h, t_q, d_v)} (settings layout and output_layout)"
            )
        if layout == "(B, T, H, d)":
            return output.transpose(1, 2)
        if layout == "(B, T, d)":
            return output.unsqueeze(1)
        if layout == "(B, T, H·d)":
            return output.reshape(b, t_q, h, d_v).transpose(1, 2)
        return output

    def noisy(self) -> bool:
        """Whether two calls differ by their random numbers."""
        q, k, v = self.draw()
        loose = dataclasses.replace(self, reseeded=False)
        same = far(self.call(q, k, v), self.call(q, k, v))
        return same <= 1e-9 < far(loose.call(q, k, v), loose.call(q, k, v))

    def laid_out(self, x: Tensor) -> Tensor:
        """(B, H, T, d) in the layout of the subject."""
        if self.layout == "(B, T, H, d)":
            return x.transpose(1, 2)
        return x[:, 0] if self.layout == "(B, T, d)" else x

    def weights(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        **more: Any,
    ) -> Tensor:
        """Weights (B, H, Tq, Tk), read off with unit vectors as the values."""
        n = k.shape[2]
        v = torch.eye(n, k.shape[-1], dtype=q.dtype).expand(
            *k.shape[:2], -1, -1
        )
        output = self.call(q, k, v.contiguous(), mask, causal=causal, **more)
        return output[..., :n].double()

    def visible(
        self, t_q: int, t_k: int, mask: Tensor | None, causal: bool
    ) -> Tensor:
        """What the queries may attend to: the mask, the flag and the window."""
        allowed = torch.ones(1, 1, t_q, t_k, dtype=torch.bool)
        if causal or self.causal == "always":
            offset = 0 if self.alignment == "top-left" else t_k - t_q
            i = torch.arange(t_q)[:, None] + offset
            j = torch.arange(t_k)
            allowed = allowed & (j <= i)
            if self.window:
                allowed = allowed & (j > i - self.window)
        return allowed if mask is None else allowed & mask

    def logits(self, q: Tensor, k: Tensor) -> Tensor:
        """Logits (B, H, Tq, Tk) by the specification, in float64."""
        q, k = q.double(), k.double()
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scale = self.scale or 1 / math.sqrt(q.shape[-1])
        logits = self.score(q, k) if self.score else scale * q @ k.mT
        if self.soft_cap:
            logits = self.soft_cap * torch.tanh(logits / self.soft_cap)
        if self.bias:
            logits = logits + self.bias(q.shape[2], k.shape[2]).double()
        return logits

    def expected(
        self,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        rows: Sequence[int] | None = None,
    ) -> Tensor:
        """Weights (B, H, Tq, Tk) by the specification; an empty row is 0.

        With rows, those of these queries only.
        """
        allowed = self.visible(q.shape[2], k.shape[2], mask, causal)
        if rows is None:
            logits = self.logits(q, k)
        else:
            picked = q if self.bias else q[:, :, rows]
            logits = self.logits(picked, k)
            logits = logits[:, :, rows] if self.bias else logits
            allowed = allowed[:, :, rows]
        logits = logits.masked_fill(~allowed, -math.inf)
        sink = torch.as_tensor(
            -math.inf if self.sink is None else self.sink, dtype=torch.float64
        )
        column = sink.reshape(-1, 1, 1).expand(*logits.shape[:3], 1)
        weights = torch.cat([logits, column], -1).softmax(-1)[..., :-1]
        return weights.nan_to_num(0.0)

    def found_out(self) -> "Attention":
        """Same subject, with what was not given found out."""
        return detect_attention(self)


def check_attention(fn: Callable[..., Any], **settings: Any) -> Report:
    """Check a function of queries, keys, values and a mask.

    Parameters
    ----------
    fn : callable
        ``fn(q, k, v, mask)``.
    **settings
        Those of `Attention`.

    Returns
    -------
    Report

    Raises
    ------
    TypeError, ValueError
        When a setting is unknown, or no layout gives an output.
    """
    return run_checks(Attention(fn, **settings))


def attempt(measure: Callable[..., float], *arguments: Any) -> float:
    """What is measured, or infinity when the subject cannot do it."""
    try:
        return measure(*arguments)
    except (SubjectError, UnsuitableError):
        return math.inf


def choice(errors: Sequence[float]) -> int:
    """Index of the first error that no later one undercuts ten times."""
    best = 0
    for i, error in enumerate(errors):
        if error < 0.1 * errors[best] - 1e-9:
            best = i
    return best


def layout_error(s: Attention) -> float:
    """How much heads mix, and a little of how wrong the output is."""
    q, k, v = s.draw(t_q=6, t_k=6)
    output = s.call(q, k, v)
    mixed = 0.0
    if s.heads[1] > 1:
        heads, tokens = v.clone(), v.clone()
        heads[:, 0] += 1
        tokens[:, :, 0] += 1
        own = s.heads[0] // s.heads[1]
        mixed = far(output[:, own:], s.call(q, k, heads)[:, own:])
        mixed /= far(output[:, :, 1:], s.call(q, k, tokens)[:, :, 1:]) + 1e-9
    v = v.repeat_interleave(q.shape[1] // v.shape[1], 1).double()
    wrong = min(
        far(output, t.expected(q, k) @ v)
        for t in (s, dataclasses.replace(s, causal="always"))
    )
    return mixed + 0.01 * min(wrong, 1.0)


def hidden_share(s: Attention) -> float:
    """Part of the weight that one hidden key gets."""
    q, k, _ = s.draw()
    mask = s.keys_mask(q.shape[0], k.shape[2], [k.shape[2] - 2])
    weights = s.weights(q, k, mask).nan_to_num(0.0)
    if not weights.any():
        return math.inf
    return float(weights.masked_fill(mask, 0.0).sum() / weights.sum())


def oblong_error(s: Attention) -> float:
    """0 if some mask lets the numbers of queries and keys differ."""
    q, k, v = s.draw(t_q=5, t_k=7)
    options = [
        dataclasses.replace(s, mask=mask, mask_shape=shape)
        for mask in ([s.mask] if s.mask else CONVENTIONS)
        for shape in ([s.mask_shape] if s.mask_shape else MASK_SHAPES)
    ]
    ones = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    return min(
        attempt(lambda c: 0.0 * float(c.call(q, k, v, ones).numel()), c)
        for c in options
    )


def weights_error(s: Attention, q: Tensor, k: Tensor, mask: Tensor) -> float:
    """How far the weights are from those of the specification."""
    return far(s.weights(q, k, mask), s.expected(q, k, mask))


def mask_error(s: Attention) -> float:
    """How wrong the weights are with a mask."""
    return weights_error(s, *asked(s))


def causal_error(s: Attention) -> float:
    """How wrong the weights of a chunk are with the causal flag."""
    q, k, _ = s.draw(t_q=3, t_k=6)
    return far(s.weights(q, k, causal=True), s.expected(q, k, causal=True))


def detect_attention(s: Attention) -> Attention:
    """Find out the settings that are None, the nearest to right code first."""
    given = s
    if s.mask is None and not takes_mask(s):
        s = dataclasses.replace(s, mask="none")
    if s.causal is None:
        s = dataclasses.replace(s, causal=argument(s.fn, "causal"))
        if on_by_default(s.fn, s.causal) and s.causal not in s.options:
            s = dataclasses.replace(s, causal="always")
    never = s.causal == "never"
    s = dataclasses.replace(s, causal=None if never else s.causal)
    if s.dropout is None:
        s = dataclasses.replace(s, dropout=share_argument(s.fn))
    if s.training is None:
        s = dataclasses.replace(s, training=argument(s.fn, "training"))

    plain = [
        dataclasses.replace(s, dtype=dtype, layout=layout)
        for dtype in ([s.dtype] if s.dtype else list(TOLERANCE))
        for layout in ([s.layout] if s.layout else LAYOUTS)
        if s.n_kv_heads is None or layout != "(B, T, d)"
    ]
    masked = [
        dataclasses.replace(c, needs_mask=True, mask=mask, mask_shape=shape)
        for c in plain
        for mask in ([s.mask] if s.mask else CONVENTIONS)
        for shape in ([s.mask_shape] if s.mask_shape else MASK_SHAPES)
        if s.mask != "none"
    ]
    other = [
        [
            dataclasses.replace(c, output_layout=layout)
            for c in options
            for layout in OUTPUTS
            if s.output_layout is None and layout != c.layout
        ]
        for options in (plain, masked)
    ]
    for options in (plain, masked, *other):
        errors = [attempt(layout_error, c) for c in options]
        if options and min(errors) < math.inf:
            works = errors.index(next(e for e in errors if e < math.inf))
            dtype = options[works].dtype
            kept = [i for i, c in enumerate(options) if c.dtype == dtype]
            best = options[kept[choice([errors[i] for i in kept])]]
            break
    else:
        plain[0].call(*plain[0].draw(t_q=6, t_k=6))
        raise AssertionError("unreachable: the call above raises")
    # With a mask of nothing but True, conventions and shapes look alike.
    s = dataclasses.replace(best, mask=s.mask, mask_shape=s.mask_shape)

    oblong = attempt(lambda: far(s.call(*s.draw(t_q=5, t_k=7)), torch.ones(())))
    if oblong == math.inf and s.mask != "none":
        # A mask may be what decides the number of keys.
        oblong = attempt(oblong_error, s)
    s = dataclasses.replace(s, same_lengths=oblong == math.inf)
    if s.causal is None and not never:
        q, k, _ = s.draw(t_q=6, t_k=6)
        future = attempt(lambda: float(s.weights(q, k).triu(1).abs().max()))
        if future < 1e-12:
            s = dataclasses.replace(s, causal="always")
    if s.mask != "none":
        shapes = MASK_SHAPES[1:] if s.layout == "(B, T, d)" else MASK_SHAPES
        options = [
            dataclasses.replace(s, mask=mask, mask_shape=shape)
            for mask in ([s.mask] if s.mask else CONVENTIONS)
            for shape in ([s.mask_shape] if s.mask_shape else shapes)
        ]
        errors = [attempt(hidden_share, c) for c in options]
        guessed = not (given.mask or s.needs_mask or argument(s.fn, "mask"))
        if guessed and min(errors) == math.inf:
            s = dataclasses.replace(s, mask="none")
        else:
            convention = options[choice(errors)].mask
            options = [c for c in options if c.mask == convention]
            errors = [attempt(mask_error, c) for c in options]
            s = options[choice(errors)]
    if s.causal and not s.same_lengths and s.alignment is None:
        options = [
            dataclasses.replace(s, alignment=alignment)
            for alignment in ("top-left", "bottom-right")
        ]
        errors = [attempt(causal_error, c) for c in options]
        s = options[choice(errors)] if min(errors) < math.inf else s
    names = ("layout", "output_layout", "mask", "mask_shape", "causal")
    found = {
        name: str(getattr(s, name))
        for name in (*names, "alignment", "dropout")
        if getattr(s, name) != getattr(given, name)
    }
    return dataclasses.replace(s, detected=found)


def share_argument(function: Callable[..., Any]) -> str | None:
    """Name of the argument with the share to drop: its default is a number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return argument(function, "dropout")
    words = ("dropout", "p_drop", "drop_p")
    for p in parameters:
        real = isinstance(p.default, int | float)
        real = real and not isinstance(p.default, bool)
        if real and any(w in p.name.lower() for w in words):
            return p.name
    return None


def on_by_default(function: Callable[..., Any], name: str | None) -> bool:
    """Whether the default of a flag is True."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    flag = parameters.get(str(name))
    return flag is not None and flag.default is True


def takes_mask(s: Attention) -> bool:
    """Whether the function has a fourth parameter, or one named mask."""
    try:
        parameters = list(inspect.signature(s.fn).parameters.values())
    except (TypeError, ValueError):
        return True
    named = (s.documents, s.bias_argument, s.dropout, s.training, *s.options)
    others = [
        *("causal", "drop", "scale", "scaling", "train", "window", "bias"),
        *("document", "doc_id", "segment", "seq_id"),
    ]
    free = [p for p in parameters if p.name not in named]
    if any("mask" in p.name or p.kind is p.VAR_POSITIONAL for p in free):
        return True
    places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    return (
        len(places) > 3
        and places[3] not in named
        and not any(word in places[3] for word in others)
    )


def asked(s: Attention, salt: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries and keys, and a mask that hides some of the keys."""
    q, k, _ = s.draw(salt=salt)
    return q, k, s.random_mask(q.shape[0], q.shape[2], k.shape[2], salt)


def mask_sizes(q: Tensor, k: Tensor) -> tuple[int, int]:
    """Tq and Tk."""
    return q.shape[2], k.shape[2]


def share(weights: Tensor, allowed: Tensor) -> float:
    """Largest weight that one hidden key gets."""
    return float(weights.masked_fill(allowed, 0.0).nan_to_num(0.0).max())


def implied_logits(s: Attention, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """Logits that hidden keys act with: those of the weights they get."""
    weights, logits = s.weights(q, k, mask), s.logits(q, k)
    allowed = s.visible(*mask_sizes(q, k), mask, causal=False)
    allowed = allowed.expand_as(logits)
    level = (weights.log() - logits).masked_fill(~allowed, 0.0).sum(-1, True)
    level = level / allowed.sum(-1, keepdim=True)
    reach = s.visible(*mask_sizes(q, k), None, causal=False)
    hidden = (~allowed & reach).expand_as(logits)
    return torch.stack([(weights.log() - level)[hidden], logits[hidden]])


@check("core/lookup")
def attention_runs(s: Attention) -> Finding:
    """Ordinary calls give an output."""
    q, k, v = s.draw()
    s.call(q, k, v)
    if s.mask != "none":
        s.call(q, k, v, s.random_mask(q.shape[0], q.shape[2], k.shape[2]))
    if s.causal:
        s.call(*s.draw(t_q=6, t_k=6), causal=True)
    return passed(f"an output {tuple(q.shape)}", "")


@check("core/masks")
def attention_mask_ignored(s: Attention) -> Finding:
    """Hidden keys act with their own logits, or with these and a number."""
    q, k, mask = asked(s)
    acting, own = implied_logits(s, q, k, mask)
    shift = acting - own
    weight = share(
        s.weights(q, k, mask), s.visible(*mask_sizes(q, k), mask, causal=False)
    )
    if not shift.isfinite().all() or float(shift.std()) > 0.01:
        return passed(f"largest weight of a hidden key {brief(weight)}", "0")
    mean = float(shift.mean())
    if abs(mean) < 0.01:
        return failed(
            "The mask changes nothing.",
            f"largest weight of a hidden key {brief(weight)}",
            "0",
            "the mask is not used, or masked_fill returns a new tensor that is "
            "thrown away (masked_fill_ works in place): assign its result.",
        )
    return failed(
        "The mask is added as a number: hidden keys keep their weight, "
        "but for one factor.",
        f"logits of hidden keys shifted by {mean:+.3g}",
        "-inf",
        "booleans or 0 and 1 were added to the logits: turn the mask into "
        "0 and -inf first, or use logits.masked_fill(~mask, -inf).",
    )


@check("core/conventions")
def attention_mask_polarity(s: Attention) -> Finding:
    """Hidden and allowed keys are exchanged."""
    q, k, mask = asked(s)
    weights = s.weights(q, k, mask).nan_to_num(0.0)
    allowed = s.visible(*mask_sizes(q, k), mask, causal=False)
    reach = s.visible(*mask_sizes(q, k), None, causal=False)
    some = (reach & ~allowed).any(-1, keepdim=True)
    wrong = float(weights.masked_fill(allowed | ~some, 0.0).sum())
    right = float(weights.masked_fill(~allowed | ~some, 0.0).sum())
    part = wrong / (wrong + right) if wrong + right else 0.0
    measured = f"{part:.0%} of all weight lies on hidden keys"
    if part < 0.99 or not (reach & ~allowed).any():
        return passed(measured, "0%")
    return failed(
        "The mask works the other way round: only hidden keys are attended to.",
        measured,
        "0%",
        f"the code reads True as the opposite of the setting mask={s.mask!r}: "
        "negate the mask (~mask), once, where it enters. PyTorch's function "
        "takes True = may attend, nn.MultiheadAttention True = hidden.",
    )


@check("core/masks")
def attention_mask_after_softmax(s: Attention) -> Finding:
    """Hidden keys get no weight, and yet change that of the allowed ones."""
    q, k, mask = asked(s)
    mask = s.keys_mask(q.shape[0], k.shape[2], [k.shape[2] - 2])
    other = k.clone()
    other[:, :, -2] *= -3
    before, after = s.weights(q, k, mask), s.weights(q, other, mask)
    hidden = float(before[..., -2].abs().max())
    change = far(before, after)
    measured = f"weights change by {brief(change)} when a hidden key changes"
    sums = before.nan_to_num(0.0).sum(-1)
    if hidden > s.near or change <= s.near or float(sums.max()) > 1 + s.near:
        return passed(measured, "0")
    return failed(
        "Hidden keys have weight 0, but still count in the softmax: the rest "
        f"sums to {brief(float(sums.min()))} instead of 1.",
        measured,
        "0",
        "the mask is applied to the weights, after the softmax: set the logits "
        "of hidden keys to -inf before it.",
    )


@check("core/masks")
def attention_mask_multiplied(s: Attention) -> Finding:
    """Hidden keys act as if their logit were 0."""
    q, k, mask = asked(s)
    acting, _ = implied_logits(s, q, k, mask)
    weight = share(
        s.weights(q, k, mask), s.visible(*mask_sizes(q, k), mask, causal=False)
    )
    if not acting.numel() or far(acting, torch.zeros(())) > 0.01:
        return passed(f"largest weight of a hidden key {brief(weight)}", "0")
    return failed(
        "Hidden keys get the weight of a logit of 0, which is exp(0) = 1 "
        "before normalisation, and no less than many allowed keys.",
        f"largest weight of a hidden key {brief(weight)}",
        "0",
        "the logits are multiplied by the mask, or filled with 0: fill with "
        "-inf instead, logits.masked_fill(~mask, -inf).",
    )


@check("core/softmax")
def attention_mask_floor(s: Attention) -> Finding:
    """A finite floor leaks, by dtype, and some do not fit the dtype."""
    future = causal_floor(s)
    if future or s.mask == "none":
        return future or skipped("The function takes no mask.")
    q, k, mask = asked(s)
    acting, _ = implied_logits(s, q, k, mask)
    if acting.isfinite().all() and acting.numel():
        level = float(acting.mean())
        if float(acting.std()) < 0.01:
            return failed(
                "Hidden keys get the weight of one finite logit.",
                f"hidden keys act with the logit {brief(level)}",
                "-inf",
                "a small floor stands for -inf, or the logits are capped after "
                "the mask: fill with -inf, after every other step.",
            )
    leak = share(
        s.weights(q, k, mask), s.visible(*mask_sizes(q, k), mask, causal=False)
    )
    if leak > 1e-6:
        return skipped("Hidden keys have weight at ordinary logits, too.")
    worst = passed("no weight on hidden keys at logits of -30000", "0")
    for dtype in dict.fromkeys(
        [s.dtype, torch.float32, torch.float16, torch.bfloat16, *s.dtypes]
    ):
        t = dataclasses.replace(s, dtype=dtype)
        q, k, _ = t.draw(d=16)
        mask = t.keys_mask(q.shape[0], k.shape[2], [k.shape[2] - 1])
        try:
            t.weights(q, k)
        except SubjectError:
            continue  # the dtype is not supported at all
        promised = dtype in (s.dtype, *s.dtypes)
        verdict = failed if promised else hazard
        kind = str(dtype).removeprefix("torch.")
        try:
            t.weights(q, k, mask)
        except SubjectError as error:
            worst = verdict(
                f"With a mask the call raises in {kind}.",
                str(error),
                "an output, as without a mask",
                f"a floor such as -1e9 does not exist in {kind}, or the mask "
                "has another dtype: use -inf, or "
                "torch.finfo(logits.dtype).min.",
            )
            if promised:
                return worst
            continue
        if s.soft_cap or s.scale or s.bias or s.score:
            continue
        level = 1.5e4 if dtype == torch.float16 else 3e4
        # Allowed keys have the logit -level, the hidden one 0.
        c = math.sqrt(level / math.sqrt(q.shape[-1]))
        q, k = torch.full_like(q, c), torch.full_like(k, -c)
        k[:, :, -1] = 0
        weight = float(t.weights(q, k, mask)[..., -1].max())
        if weight > 1e-3:
            worst = verdict(
                f"In {kind} a hidden key gets weight when the logits of the "
                f"allowed keys are low ({-level:.0f}).",
                f"weight {brief(weight)}",
                "0",
                "the floor for hidden keys is finite and higher than these "
                "logits: use -inf, or torch.finfo(logits.dtype).min with "
                "masked_fill (never added).",
            )
            if promised:
                return worst
    return worst


def causal_floor(s: Attention) -> Finding | None:
    """The finite floor of a causal mask, below which the past may lie."""
    if s.causal is None or s.soft_cap or s.scale or s.bias:
        return None
    n = 6
    future = torch.ones(n, n, dtype=torch.bool).triu(1)
    q, k, _ = s.draw(t_q=n, t_k=n)
    if share(s.weights(q, k, causal=True), ~future) > 1e-6:
        return None  # a leak at ordinary logits is another mistake
    for dtype in dict.fromkeys([s.dtype, *s.dtypes]):
        t = dataclasses.replace(s, dtype=dtype)
        q, k, _ = t.draw(t_q=n, t_k=n)
        level = 1.5e4 if dtype == torch.float16 else 3e4
        c = math.sqrt(level / math.sqrt(q.shape[-1]))
        q, k = torch.full_like(q, c), torch.full_like(k, -c)
        k[:, :, -1] = 0
        weights = t.weights(q, k, causal=True)
        weight = float(weights[:, :, :-1, -1].nan_to_num(0.0).max())
        if weight > 1e-3:
            return failed(
                "A query sees the future when the logits of the past are low "
                f"({-level:.0f}).",
                f"weight {brief(weight)} on a key after the query",
                "0",
                "the floor of the causal mask is finite and higher than these "
                "logits: fill with -inf, or torch.finfo(logits.dtype).min "
                "(never added).",
            )
    return None


@check("practice/bugs-masks")
def attention_mask_on_query_axis(s: Attention) -> Finding:
    """The mask of keys works on queries."""
    if s.mask == "none":
        return skipped("The function takes no mask.")
    q, k, _ = s.draw(t_q=6, t_k=6)
    keys = s.keys_mask(q.shape[0], 6, [1, 4])
    whole = s.random_mask(q.shape[0], 6, 6)
    sees = 0.0
    for mask in (keys, whole):
        weights = s.weights(q, k, mask)
        turned = mask.mT & s.visible(6, 6, None, causal=False)
        right = far(weights, s.expected(q, k, mask))
        rows = turned.any(-1).expand(weights.shape[:3])
        error = far(weights[rows], s.expected(q, k, mask.mT)[rows])
        if (
            right > s.near
            and error <= s.near
            and not torch.equal(mask, mask.mT)
        ):
            sees = share(weights, mask)
            return failed(
                "The mask hides queries instead of keys: real queries still "
                "attend to hidden keys.",
                f"largest weight of a hidden key {brief(sees)}",
                "0",
                "the mask is transposed, or a mask of keys was unsqueezed at "
                "the wrong place: keys are the last axis, so a mask of keys "
                "(B, Tk) becomes mask[:, None, None, :].",
            )
    return passed()


@check("core/masks")
def attention_mask_broadcast(s: Attention) -> Finding:
    """The mask lands on another axis where two sizes are equal."""
    if s.mask == "none":
        return skipped("The function takes no mask.")
    n = s.heads[0] if s.heads[0] > 1 else 4
    errors = {}
    sizes = (
        (1, n + 2),
        (3, n + 2),
        (n, n + 2),
        (n + 2, n + 2),
        (n + 2, n),
        (n, n),
    )
    for b, t in sizes:
        q, k, _ = s.draw(b, t, t)
        mask = s.random_mask(b, t, t)
        errors[b, s.heads[0], t] = attempt(weights_error, s, q, k, mask)
    wrong = {size: e for size, e in errors.items() if e > s.near}
    if not wrong and "B" in (s.mask_shape or ""):
        q, k, _ = s.draw(3, n + 2, n + 2)
        mask = s.random_mask(3, n + 2, n + 2)
        mask[0] = True
        error = attempt(weights_error, s, q, k, mask)
        if error > s.near:
            return failed(
                "Where the first example hides no key, the mask of the others "
                "is wrong.",
                "raises" if error == math.inf else f"off by {brief(error)}",
                "0",
                "the code looks at the first example of the mask only, mask[0] "
                "or mask[:1]: ask mask.all(), or do not ask.",
            )
    if not wrong:
        return passed("right at all sizes", "")
    if len(wrong) == len(errors) and math.inf not in errors.values():
        return skipped("With a mask the weights are wrong at all sizes.")
    error = max(wrong.values())
    return failed(
        "The mask is read along another axis, or for another example: wrong "
        "or refused for (B, H, T) = " + ", ".join(map(str, wrong)) + ".",
        "raises" if error == math.inf else f"weights off by {brief(error)}",
        "0",
        f"a mask {s.mask_shape} meets logits (B, H, Tq, Tk) by broadcasting, "
        "which aligns the last axes: insert the missing axes by name, "
        "mask[:, None] for (B, Tq, Tk), mask[:, None, None] for (B, Tk).",
    )


@check("core/empty-rows")
def attention_masks_summed(s: Attention) -> Finding:
    """Two finite masks were added: rows hidden by both look into the future."""
    if s.causal is None or s.mask == "none":
        return skipped("The function does not join a mask with a causal one.")
    n = 6
    q, k, _ = s.draw(t_q=n, t_k=n)
    mask = s.keys_mask(q.shape[0], n, [0, 1])  # queries 0 and 1 see no key
    try:
        weights = s.weights(q, k, mask, causal=True)[:, :, :2]
    except SubjectError:
        return skipped("The function refuses a mask together with the flag.")
    if weights.isnan().all() or far(weights, weights.mean(-1, True)) <= s.near:
        return passed("the empty rows are all 0, all NaN or all equal", "")
    future = float(weights.nan_to_num(0.0).max())
    # Whoever adds masks may be given those that hold -inf.
    verdict = hazard if s.mask == "additive" else failed
    return verdict(
        "A query that the padding and the causal mask leave without keys "
        "attends to some that one of them hides.",
        f"weight {brief(future)} on a hidden key",
        "0, or equal weights",
        "two masks that hold a finite floor were added, so that cells hidden "
        "twice lie lower than cells hidden once: join boolean masks with & and "
        "fill once.",
    )


def policy(rows: Tensor) -> str:
    """What the weights of queries without keys are."""
    if rows.isnan().all():
        return "nan"
    if far(rows, torch.zeros(())) < 1e-6:
        return "zeros"
    even = far(rows, torch.full((), 1 / rows.shape[-1])) < 1e-3
    return "mean" if even else "other"


def emptied(s: Attention) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, a mask with empty rows, and which rows these are."""
    q, k, _ = s.draw()
    mask = s.random_mask(q.shape[0], q.shape[2], k.shape[2])
    mask = mask.clone()
    if mask.shape[2] > 1:
        mask[:, :, 1] = False
    elif mask.shape[0] > 1:
        mask[1] = False
    else:
        raise UnsuitableError("such a mask cannot leave a query without keys")
    empty = ~s.visible(*mask_sizes(q, k), mask, causal=False).any(-1)
    return q, k, mask, empty.expand(q.shape[:3])


@check("core/empty-rows")
def attention_empty_rows(s: Attention) -> Finding:
    """What a query without keys gives, and whether others suffer."""
    q, k, mask, empty = emptied(s)
    weights = s.weights(q, k, mask)
    got = policy(weights[empty])
    error = far(weights[~empty], s.expected(q, k, mask)[~empty])
    spoilt = not weights[~empty].isfinite().all()
    if spoilt or error > s.near >= attempt(mask_error, s):
        return failed(
            "One query without keys spoils the rows of other queries.",
            "NaN in rows that see a key"
            if spoilt
            else f"off by {brief(error)}",
            "the rows as they are without that query",
            "NaN is mixed across rows, for example by a maximum or a sum over "
            "the whole tensor: take them along the last axis.",
        )
    plain = s.expected(q, k)[empty]
    if got == "other" and far(weights[empty], plain) <= s.near:
        got = "unmasked"
    measured = {"other": "weights that are neither 0, NaN nor equal"}.get(
        got, {"unmasked": "the weights without a mask"}.get(got, got)
    )
    wanted = s.empty or "zeros"
    if got == wanted:
        return passed(measured, wanted)
    promised = s.empty and (s.empty, got) != ("mean", "unmasked")
    verdict = failed if promised or got == "other" else hazard
    if error > s.near and got == "other":
        return (
            passed()
        )  # the mask as a whole is wrong, and other checks say how
    causes = {
        "nan": "a softmax over nothing but -inf is 0 / 0: fill with -inf, take "
        "the softmax, and put 0 into rows without keys; for finite gradients, "
        "give those rows finite logits before the softmax.",
        "mean": "a finite floor makes all logits of the row equal, so that it "
        "averages values that it should not see: multiply the weights by "
        "mask.any(-1, keepdim=True).",
        "unmasked": "a finite floor is added to every logit of the row, and "
        "the softmax ignores what is added to all of them: -1e9 swallows the "
        "logits in float32, which gives the mean, and not in float64. Fill "
        "with -inf, and put zeros into such rows.",
    }
    return verdict(
        "A query that may attend to no key gives "
        + {
            "nan": "NaN",
            "mean": "the mean of all values",
            "zeros": "zeros",
            "unmasked": "what it gives without a mask",
        }.get(got, "a mixture of values that it should not see")
        + ".",
        measured,
        wanted,
        causes.get(
            got,
            "A finite number was added to the whole row, which the softmax "
            "ignores: use -inf, and put zeros into such rows.",
        ),
    )


def nan_gradients(empty: str | None, forward: bool, measured: str) -> Finding:
    """Finding about NaN gradients beside a row that the loss leaves out."""
    verdict = hazard if forward and empty in (None, "nan") else failed
    return verdict(
        "With one query without keys, gradients are NaN even though the loss "
        "leaves that query out.",
        measured,
        "finite gradients",
        (
            "the row is NaN, and 0 · NaN in the backward pass is NaN: "
            if forward
            else "NaN is replaced after the softmax (nan_to_num, torch.where), "
            "which mends the output only: "
        )
        + "give empty rows finite logits before the softmax, and zero weights "
        "after it.",
    )


def window_seen(seen: list[int], wanted: list[int], window: int) -> Finding:
    """Finding about the numbers of keys that queries see through a window."""
    if seen == wanted:
        return passed(f"keys seen by each query {seen}", f"{wanted}")
    return failed(
        f"The window holds {seen[-1]} keys.",
        f"keys seen by each query {seen}",
        f"{wanted}, {window} at most",
        "the window counts the query's own key: i - j < W with j <= i. "
        "i - j <= W keeps one more, and so does triu(-W).",
    )


@check("core/empty-rows")
def attention_empty_rows_backward(s: Attention) -> Finding:
    """Gradients with an empty row, also when the loss leaves it out."""
    q, k, mask, empty = emptied(s)
    v = s.draw()[2]
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    output = s.call(inputs[0], inputs[1], inputs[2], mask)
    if not output.requires_grad:
        return skipped("The output has no gradient.")
    forward = bool(output.isnan().any())
    kept = output.masked_select(~empty[..., None].expand_as(output))
    grads = torch.autograd.grad(kept.sum(), inputs, allow_unused=True)
    names = [
        name
        for name, g in zip("qkv", grads, strict=True)
        if g is not None and not g.isfinite().all()
    ]
    if not names:
        return passed("finite gradients when the loss leaves the row out", "")
    return nan_gradients(
        s.empty, forward, f"NaN in the gradient of {', '.join(names)}"
    )


@check("core/masks")
def attention_nan_spreads(s: Attention) -> Finding:
    """What lies in hidden keys and values reaches the output."""
    q, k, v = s.draw()
    mask = s.keys_mask(q.shape[0], k.shape[2], [k.shape[2] - 2])
    clean = s.call(q, k, v, mask)
    if not clean.isfinite().all():
        return failed(
            "NaN appears although every query sees a key and all inputs are "
            "finite.",
            f"{int((~clean.isfinite()).sum())} of {clean.numel()} outputs",
            "0",
            "a mask of 0 and 1 is multiplied by -inf (0 · inf is NaN), or "
            "infinities are subtracted: use masked_fill or torch.where.",
        )
    k_bad, v_bad = k.clone(), v.clone()
    k_bad[:, :, -2], v_bad[:, :, -2] = -k[:, :, -2], -v[:, :, -2]
    if far(s.call(q, k_bad, v_bad, mask), clean) > s.near:
        return skipped("Ordinary hidden keys change the output, too.")
    results = {}
    for name, value in (("10", 10.0), ("NaN", math.nan)):
        k_bad, v_bad = k.clone(), v.clone()
        k_bad[:, :, -2], v_bad[:, :, -2] = value, value
        results[name] = far(s.call(q, k_bad, v_bad, mask), clean)
    if s.near < results["10"]:
        return failed(
            "What lies in a hidden key and its value changes the output.",
            f"outputs change by {brief(results['10'])}",
            "0",
            "the floor is finite, or exp is multiplied by the mask: fill the "
            "logits with -inf before the softmax.",
        )
    if results["NaN"] <= s.near:
        return passed("NaN in a hidden key and value changes nothing", "")
    verdict = failed if s.hidden_nan else hazard
    return verdict(
        "NaN in a hidden key or value reaches the output.",
        "NaN",
        "no change",
        "the weight is 0, but 0 · NaN is NaN (in PyTorch's function, too): "
        "clear padded and unwritten keys and values, "
        "v.masked_fill(~tokens, 0), before they are multiplied.",
    )


@check("core/masks")
def attention_causal_leak(s: Attention) -> Finding:
    """Queries see keys that come after them."""
    if s.causal is None:
        return skipped("The function does not mask the future by itself.")
    q, k, v = s.draw(t_q=6, t_k=6)
    weights = s.weights(q, k, causal=True)
    reach = torch.ones(6, 6, dtype=torch.bool).tril()
    leak = share(weights, reach)
    past = (weights.masked_fill(~reach, 0.0)[..., 1:, :].sum(-1)).min()
    own = float(weights.diagonal(dim1=-2, dim2=-1)[..., 0].min())
    if leak > 1e-6:
        return failed(
            "Queries see the future.",
            f"weight {brief(leak)} on a key after the query",
            "0",
            "the causal mask is missing on this path, transposed (triu for "
            "tril), shifted by one diagonal, or applied after the softmax.",
        )
    if own < 1e-6 or float(past) < 1e-6:
        return failed(
            "A query does not see its own key.",
            f"weight {brief(own)} of the first query on its own key",
            "more than 0",
            "the diagonal is hidden, too: tril() keeps it, tril(-1) does not; "
            "or a sliding window (setting window) leaves out more.",
        )
    k[:, :, 3:], v[:, :, 3:] = k[:, :, 3:] + 5, v[:, :, 3:] - 5
    changed = s.weights(q, k, causal=True)[:, :, :3]
    change = far(weights[:, :, :3], changed)
    if change > 1e-6:
        return failed(
            "The past changes when the future does, though future keys have no "
            "weight.",
            f"weights change by {brief(change)}",
            "0",
            "the causal mask is applied after the softmax.",
        )
    return passed("no weight on the future", "")


@check("core/conventions")
def attention_causal_alignment(s: Attention) -> Finding:
    """Which keys the queries of a chunk see, where Tq and Tk differ."""
    if s.causal is None:
        return skipped("The function does not mask the future by itself.")
    if s.same_lengths:
        return skipped("The function takes as many keys as queries.")
    for t_q, t_k in ((1, 5), (3, 7)):
        q, k, _ = s.draw(t_q=t_q, t_k=t_k)
        try:
            weights = s.weights(q, k, causal=True)
        except SubjectError:
            return passed("refuses Tq != Tk", "")
        error = far(weights, s.expected(q, k, causal=True))
        seen = (weights > 1e-9).sum(-1)[0, 0].tolist()
        if error > s.near:
            other = "top-left" if s.alignment != "top-left" else "bottom-right"
            flipped = dataclasses.replace(s, alignment=other)
            matches = (
                far(weights, flipped.expected(q, k, causal=True)) <= s.near
            )
            wanted = s.visible(t_q, t_k, None, True)[0, 0].sum(-1).tolist()
            return failed(
                f"With Tq = {t_q} queries and Tk = {t_k} keys the causal mask "
                + (
                    f"is aligned at the {other}."
                    if matches
                    else "fits neither alignment."
                ),
                f"keys seen by each query {seen}",
                f"{wanted} ({s.alignment or 'bottom-right'})",
                "tril() of a (Tq, Tk) matrix aligns at the top left, where the "
                "first query sees the first key only; behind a cache use "
                "tril(Tk - Tq)."
                if matches
                else "the counts suggest a window (setting window), or an "
                "offset other than Tk - Tq: use tril(Tk - Tq).",
            )
    if s.alignment == "top-left" and "alignment" in s.detected:
        return hazard(
            "With fewer queries than keys the causal mask starts at the first "
            "key: one query behind a cache sees one key.",
            "query i sees the keys 0 to i",
            "the last query sees the last key",
            "the alignment is that of PyTorch's is_causal: with a cache pass a "
            "mask, tril(Tk - Tq), or no flag for a single query.",
        )
    return passed(str(s.alignment), "")


@check("core/conventions")
def attention_causal_and_mask(s: Attention) -> Finding:
    """The flag and a mask are given together."""
    if s.causal is None or s.mask == "none":
        return skipped("The function does not join a mask with a causal one.")
    q, k, _ = s.draw(t_q=6, t_k=6)
    mask = s.random_mask(q.shape[0], 6, 6)
    try:
        weights = s.weights(q, k, mask, causal=True)
    except SubjectError:
        return passed("refuses both", "")
    error = far(weights, s.expected(q, k, mask, causal=True))
    if error <= s.near:
        return passed(f"weights off by {brief(error)}", "0")
    if far(weights, s.expected(q, k, causal=True)) <= s.near:
        what = "the mask is ignored"
    elif (
        far(weights, dataclasses.replace(s, causal=None).expected(q, k, mask))
        <= s.near
    ):
        what = "the flag is ignored"
    else:
        return passed("both are used", "")
    return failed(
        f"With a causal flag and a mask, {what}.",
        f"weights off by {brief(error)}",
        "0",
        "one of the two replaces the other: join them, mask & causal, or "
        "refuse the call.",
    )


def fitted(
    weights: Tensor, allowed: Tensor, known: Tensor, *terms: Tensor
) -> tuple[list[float], float]:
    """Factors of the terms in the logits, and how much they leave unexplained.

    The logits are read off the weights, up to a number for each row.
    """
    allowed = allowed.expand_as(weights)
    count = allowed.sum(-1, keepdim=True)

    def centred(x: Tensor) -> Tensor:
        x = x.expand_as(weights).masked_fill(~allowed, 0.0)
        return (x - x.sum(-1, keepdim=True) / count)[allowed]

    y = centred(weights.log() - known)
    x = torch.stack([centred(term) for term in terms], -1)
    if not y.isfinite().all():
        return [math.nan] * len(terms), math.inf
    factors = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    left = (y - x @ factors).abs().max() / (y.abs().max() + 1e-9)
    return factors.tolist(), float(left)


@check("core/scaling")
def attention_scale(s: Attention) -> Finding:
    """Factor between q·k and the logits, without a mask and with one."""
    if s.score:
        return skipped("The logits are those of the setting score.")
    factors = {}
    for d, masked in ((16, False), (36, False), (16, True)):
        q, k, _ = s.draw(d=d)
        q, k = q * 0.2, k * 0.2
        mask = None
        if masked:
            if s.mask == "none":
                continue
            mask = s.keys_mask(q.shape[0], k.shape[2], [k.shape[2] - 2])
        try:
            weights = s.weights(q, k, mask)
        except SubjectError:
            continue
        keys = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
        zero = torch.zeros(())
        bias = s.bias(*mask_sizes(q, k)).double() if s.bias else zero
        allowed = s.visible(*mask_sizes(q, k), mask, causal=False)
        slopes, residual = fitted(weights, allowed, bias, q.double() @ keys.mT)
        if not math.isfinite(slopes[0]) or residual > 0.1:
            return skipped("The weights are no softmax of a multiple of q·k.")
        case = f"d = {d}" + " with a mask" * masked
        sizes = d, k.shape[2], q.shape[2]
        factors[case] = slopes[0], s.scale or 1 / math.sqrt(d), sizes
    off = {d: x for d, x in factors.items() if abs(x[0] / x[1] - 1) > 0.02}
    measured = ", ".join(f"{brief(x[0])} at {d}" for d, x in factors.items())
    expected = ", ".join(brief(x[1]) for x in factors.values())
    if not off:
        return passed(measured, expected)
    slope, _, (d, t_k, t_q) = next(iter(off.values()))
    h = s.heads[0]
    laws = {
        "1, so the scale is missing: multiply q·k by 1 / sqrt(d)": 1.0,
        "1 / d: the scale is applied twice, for example by the code and "
        "by a function that scales itself (pass scale=1.0 there)": 1 / d,
        "sqrt(d): the scale is inverted, divide by sqrt(d)": math.sqrt(d),
        "1 / sqrt(H · d): the model width stands for the head width, "
        "use q.shape[-1] after the split": 1 / math.sqrt(h * d),
        "1 / sqrt(Tk): the number of keys stands for the width, "
        "use q.shape[-1]": 1 / math.sqrt(t_k),
        "1 / sqrt(Tq): the number of queries stands for the width, "
        "use q.shape[-1]": 1 / math.sqrt(t_q),
        "1 / sqrt(H): the number of heads stands for the width": 1
        / math.sqrt(h),
        "d: q·k is multiplied by d": float(d),
        "1 / d ** (1/4): only one of q and k got its share, or the root was "
        "taken twice": d**-0.25,
        "1 / d ** (3/2)": d**-1.5,
        "-1 / sqrt(d): the sign is wrong": -(d**-0.5),
    }
    near = [law for law, value in laws.items() if abs(slope / value - 1) < 0.02]
    return failed(
        "The logits are q·k times a wrong factor.",
        measured,
        f"{expected} ({'the setting' if s.scale else '1 / sqrt(d)'})",
        f"the factor is {near[0]}."
        if near
        else "a constant stands for the "
        "scale; if it is meant, say so with the setting scale.",
    )


@check("core/scaling")
def attention_bias_scaled(s: Attention) -> Finding:
    """The scale is also applied to a bias."""
    if s.bias_argument is None and s.mask != "additive":
        return skipped("No argument takes a bias (setting bias_argument).")
    q, k, _ = s.draw()
    g = generator(s, 5)
    h = s.heads[0] if "H" in (s.mask_shape or "H") else 1
    sizes = (q.shape[0], h, q.shape[2], k.shape[2])
    bias = torch.randn(1, h, *sizes[2:], generator=g, dtype=torch.float64)
    more: dict[str, Any] = {}
    if s.bias_argument:
        more[s.bias_argument] = bias.to(q.dtype).expand(sizes)
        got = s.weights(q, k, **more)
    else:
        shape = s.mask_shape or MASK_SHAPES[0]
        if "Tq" not in shape:
            return skipped("The mask takes no bias of each query and key.")
        given = in_shape(bias, shape, sizes).to(q.dtype)
        name = argument(s.fn, "mask")
        t = dataclasses.replace(
            s, mask="none", options={**s.options, str(name): given}
        )
        if name is None:
            fn = s.fn
            t = dataclasses.replace(
                s, mask="none", fn=lambda *a, **kw: fn(*a, given, **kw)
            )
        got = t.weights(q, k)

    if s.soft_cap or s.sink is not None:
        return skipped("With a cap or a sink the bias is not tried.")
    allowed = s.visible(*mask_sizes(q, k), None, causal=False)
    seen = got[allowed.expand_as(got)]
    if not seen.isfinite().all() or (seen == 0).any():
        return failed(
            "A finite bias hides keys.",
            "NaN" if seen.isnan().any() else "weights of 0 on keys with a bias",
            "q·k plus the bias in the softmax",
            "a float mask is compared with 0, or turned into booleans, instead "
            "of added to the logits.",
        )
    zero = torch.zeros(())
    terms = s.logits(q, k), bias.expand_as(got)
    (_, count), left = fitted(got, allowed, zero, *terms)
    if left > 0.05:
        return skipped("The weights are no softmax of q·k and the bias.")
    scale = s.scale or 1 / math.sqrt(q.shape[-1])
    measured = f"the bias counts {brief(count)} times"
    if abs(count - 1) < 0.01:
        return passed(measured, "once")
    causes = (
        (
            scale,
            "the scale is applied to the sum of q·k and the bias: scale "
            "q·k first, (q·k) · scale + bias.",
        ),
        (-1.0, "it is subtracted from the logits: add it."),
        (0.0, "a float mask is compared with 0 instead of added."),
        (
            math.log(2),
            "the softmax is taken with powers of 2, and the bias is "
            "not multiplied by log2(e), as q·k is.",
        ),
        (2.0, "it is added twice."),
    )
    near = [cause for value, cause in causes if abs(count - value) < 0.01]
    return failed(
        "The bias does not count once.",
        measured,
        "once",
        near[0] if near else "the bias is changed on its way to the logits.",
    )


@check("core/softmax")
def attention_half_overflow(s: Attention) -> Finding:
    """In float16 q·k overflows before it is scaled down."""
    if s.score:
        return skipped("The logits are those of the setting score.")
    t = dataclasses.replace(s, dtype=torch.float16)
    q, k, _ = t.draw(d=64)
    try:
        t.weights(q, k)
    except SubjectError:
        return skipped("The function does not take float16.")
    # q·k = 102400 is above 65504, and 12800 after the scale is not.
    q, k = torch.full_like(q, 40.0), torch.full_like(k, 40.0)
    k[:, :, 1:] *= 0.5
    expected = t.expected(q, k)
    if s.scale or s.soft_cap or s.bias:
        return skipped("With another scale, a cap or a bias this is not tried.")
    weights = t.weights(q, k)
    error = far(weights, expected)
    if error <= 0.01:
        return passed(f"weights off by {brief(error)} at q·k = 102400", "0")
    verdict = failed if torch.float16 in (s.dtype, *s.dtypes) else hazard
    return verdict(
        "In float16 the logits overflow before they are scaled.",
        "NaN" if not weights.isfinite().all() else f"off by {brief(error)}",
        "finite weights at q·k = 102400, which is 12800 after the scale",
        "q·k is divided after the product: scale q first, (q · scale) @ k, or "
        "take the product in float32.",
    )


@check("core/softmax")
def attention_overflow(s: Attention) -> Finding:
    """Logits that are finite, and large or low, give no weights."""
    if s.score:
        return skipped("The logits are those of the setting score.")
    q, k, _ = s.draw()
    if far(s.weights(q, k), s.expected(q, k)) > s.near:
        return skipped("The weights are wrong at ordinary logits, too.")
    for name, low, high in (
        ("about 8000", 2e3, 2e3),
        ("about -400000", -1e5, -1e5),
        ("8000 in one row and -8000 in another", 2e3, -2e3),
    ):
        levels = torch.full((q.shape[2], 1), high, dtype=torch.float64)
        levels[:1] = low
        root = levels.abs().sqrt()
        large = (root * levels.sign()).to(q.dtype).expand_as(q)
        keys = torch.ones_like(k) * math.sqrt(abs(low))
        keys[:, :, 0] *= 0.9
        weights, expected = s.weights(large, keys), s.expected(large, keys)
        error = far(weights, expected)
        if error > max(s.near, 1e-3):
            return failed(
                f"Finite logits of {name} give wrong weights.",
                "NaN" if weights.isnan().any() else f"off by {brief(error)}",
                "0",
                "exp is taken without subtracting the largest logit of each "
                "row (the largest of all rows is not enough); or a running "
                "maximum starts at a finite number that these logits do not "
                "reach: start it at -inf; or the logits are clamped.",
            )
    return passed("right at logits of 8000 and -400000", "")


@check("core/lookup")
def attention_softmax_axis(s: Attention) -> Finding:
    """Weights sum to 1 along another axis than the keys."""
    q, k, _ = s.draw(3)
    weights, expected = s.weights(q, k), s.expected(q, k)
    sums = weights.sum(-1)
    error = far(sums, expected.sum(-1))
    measured = f"sums over the keys from {brief(float(sums.min()))} to "
    measured += brief(float(sums.max()))
    if error <= max(s.near, 1e-4):
        return passed(measured, "1")
    axes = {"the queries": 2, "the heads": 1, "the examples": 0}
    for name, axis in axes.items():
        if far(weights.sum(axis), torch.ones(())) < 1e-4:
            return failed(
                f"The weights sum to 1 over {name}, not over the keys.",
                measured,
                "1",
                "the softmax runs over the wrong axis: softmax(dim=-1) of "
                "logits (B, H, Tq, Tk). nn.Softmax() without dim, and dim=1, "
                "are the usual slips.",
            )
    total = weights.flatten(1).sum(-1)
    return failed(
        "The weights of a query do not sum to 1.",
        measured,
        f"{brief(float(expected.sum(-1).min()))} to "
        f"{brief(float(expected.sum(-1).max()))}",
        "the softmax runs over several axes at once, the scale is applied "
        "after it, the weights are changed after it, it is missing, or there "
        "is a sink (setting sink)."
        + (
            " (Each example sums to 1.)"
            if far(total, torch.ones(())) < 1e-4
            else ""
        ),
    )


@check("core/multi-head")
def attention_batch_leak(s: Attention) -> Finding:
    """Examples and heads see each other."""
    q, k, v = s.draw(3, 4, 4)
    before = s.call(q, k, v)
    for name, axis in (("example", 0), ("head", 1)):
        if name == "head" and s.heads[1] == 1:
            continue
        changed = [x.clone() for x in (q, k, v)]
        for x in changed:
            x.select(axis, 0).mul_(-1.5)
        after = s.call(*changed)
        first = s.heads[0] // s.heads[1] if axis else 1
        change = far(
            before.narrow(axis, first, before.shape[axis] - first),
            after.narrow(axis, first, before.shape[axis] - first),
        )
        # Tiled heads are another mistake; whole examples never mix.
        if change > s.near and not (axis and s.heads[1] < s.heads[0]):
            return failed(
                f"One {name} changes the outputs of another.",
                f"outputs change by {brief(change)}",
                "0",
                f"the layout is not {s.layout}, or a view mixes axes: "
                "transpose before you reshape.",
            )
    return passed("examples and heads are independent", "")


@check("core/head-layout")
def attention_batch_time_exchanged(s: Attention) -> Finding:
    """Attention runs over the examples of the batch."""
    q, k, v = s.draw(3, 4, 4)
    before = s.call(q, k, v)
    k, v = k.clone(), v.clone()
    k[0], v[0] = k[0] * -2, v[0] * -2
    others = far(before[1:], s.call(q, k, v)[1:])
    k[1:], v[1:] = k[1:] * 1, v[1:] * 1
    q2, k2, v2 = s.draw(3, 4, 4)
    k2[:, :, 0], v2[:, :, 0] = k2[:, :, 0] * -2, v2[:, :, 0] * -2
    own = far(before[:, :, 1:], s.call(q2, k2, v2)[:, :, 1:])
    if others <= s.near or own > s.near:
        return passed("examples do not mix", "")
    return failed(
        "Attention runs over the examples of the batch instead of the tokens.",
        f"outputs change by {brief(others)} with another example, by "
        f"{brief(own)} with another token",
        "0 and more than 0",
        "batch and time are exchanged: the code wants (T, B, ...), or "
        "transposes where it should not.",
    )


@check("core/multi-head")
def attention_grouped_heads(s: Attention) -> Finding:
    """Which query heads use which key and value head."""
    h, h_kv = s.heads
    if h == h_kv:
        return skipped("As many key heads as query heads (setting n_kv_heads).")
    q, k, v = s.draw()
    before = s.call(q, k, v)
    used = torch.zeros(h, h_kv, dtype=torch.bool)
    for g in range(h_kv):
        k2, v2 = k.clone(), v.clone()
        k2[:, g], v2[:, g] = k2[:, g] * -2, v2[:, g] * -2
        change = (before - s.call(q, k2, v2)).abs().amax((0, 2, 3))
        used[:, g] = change > s.near
    right = torch.eye(h_kv, dtype=torch.bool).repeat_interleave(h // h_kv, 0)
    table = [row.nonzero().flatten().tolist() for row in used]
    whole = [x.repeat_interleave(h // h_kv, 1) for x in (k, v)]
    apart = attempt(lambda: far(before, s.call(q, *whole)))
    if torch.equal(used, right) and (apart <= s.near or apart == math.inf):
        return passed(f"key heads of the query heads {table}", "")
    tiled = torch.eye(h_kv, dtype=torch.bool).repeat(h // h_kv, 1)
    cause = (
        "the heads are tiled, [0, 1, 0, 1], by repeat() or expand() in the "
        "wrong order: query head h uses key head h // (H / Hkv), which is "
        "repeat_interleave(H // Hkv, dim=1)."
        if torch.equal(used, tiled)
        else "the repetition runs over another axis than the heads, or mixes "
        "them: repeat_interleave(H // Hkv, dim=1) on (B, Hkv, T, d)."
    )
    return failed(
        "Query heads use the wrong key and value heads.",
        f"{table}",
        f"{[row.nonzero().flatten().tolist() for row in right]}",
        cause,
    )


@check("core/dropout")
def attention_dropout_in_evaluation(s: Attention) -> Finding:
    """Two calls with the same inputs differ."""
    s = dataclasses.replace(s, reseeded=False)
    q, k, v = s.draw()
    more: dict[str, Any] = {}
    if s.training:
        more[s.training] = False
        if s.dropout:
            more[s.dropout] = 0.5
    change = far(s.call(q, k, v), s.call(q, k, v))
    if change > 1e-9 and far(s.call(q, k, v, **more), s.call(q, k, v)) > 1e-9:
        off = far(s.call(q, k, v, **more), s.call(q, k, v, **more)) <= 1e-9
        if more and off:
            return failed(
                "Calls without a word about dropout drop.",
                f"outputs of two calls differ by {brief(change)}",
                "0",
                f"the flag {s.training} is on by default, and so is the share: "
                f"let {s.training} be False, or the share 0, unless given.",
            )
    if change <= 1e-9:
        change = far(s.call(q, k, v, **more), s.call(q, k, v, **more))
    if change <= 1e-9:
        return passed("two calls agree", "")
    return failed(
        "Two calls with the same inputs and no dropout asked for differ.",
        f"outputs differ by {brief(change)}",
        "0",
        "dropout is always on: F.dropout drops unless training=False, and "
        "PyTorch's attention function drops whenever dropout_p > 0: pass "
        "p if self.training else 0.0. Or the code keeps a state.",
    )


@check("core/dropout")
def attention_dropout_rescaled(s: Attention) -> Finding:
    """Weights that are kept are divided by the share that is kept."""
    if s.dropout is None:
        return skipped("No argument sets the dropout (setting dropout).")
    s = dataclasses.replace(s, reseeded=False)
    q, k, _ = s.draw(8, 3, 3)
    exact = s.weights(q, k)
    more: dict[str, Any] = {str(s.dropout): 0.25}
    if s.training:
        more[s.training] = True
    draws = torch.stack([s.weights(q, k, **more) for _ in range(96)])
    if not draws.isfinite().all():
        return failed(
            "Dropout makes NaN.",
            f"{int((~draws.isfinite()).sum())} of {draws.numel()} weights",
            "0",
            "the weights are normalised after dropout, and a row may lose all "
            "of them: drop after the softmax and divide by 1 - p.",
        )
    if far(draws, exact) <= s.near:
        return skipped("The argument drops nothing (setting training?).")
    error = draws.std(0) / math.sqrt(len(draws)) + 1e-6
    score = float((((draws.mean(0) - exact) / error) ** 2).mean())
    ratio = float(draws.mean() / exact.mean())
    measured = f"mean weight {brief(ratio)} of that without dropout, mean "
    measured += f"squared deviation {brief(score)} standard errors"
    if score < 3:
        return passed(measured, "1 and about 1")
    return failed(
        "Dropout changes the mean of the weights.",
        measured,
        "1 and about 1",
        "what is kept must be divided by 1 - p, after the softmax and without "
        "normalising again, and logits are not what is dropped: F.dropout of "
        "the weights does so.",
    )


@check("practice/bugs-numbers")
def attention_soft_cap_after_mask(s: Attention) -> Finding:
    """The cap lifts hidden keys from -inf to -cap."""
    if s.soft_cap is None:
        return skipped("No soft cap (setting soft_cap).")
    for causal in (False, True):
        try:
            q, k, mask = asked(s)
            if causal:
                q, k, _ = s.draw(t_q=6, t_k=6)
                weights = s.weights(q, k, causal=True)
                allowed = s.visible(6, 6, None, causal=True)
            else:
                weights = s.weights(q, k, mask)
                allowed = s.visible(*mask_sizes(q, k), mask, causal=False)
        except UnsuitableError:
            continue
        weight = share(weights, allowed)
        if weight > 1e-9:
            return failed(
                "Hidden keys keep the weight of the lowest capped logit.",
                f"weight {brief(weight)}",
                "0",
                "tanh turns -inf into -1, so the cap must come before the "
                "mask: scale, cap, mask, softmax.",
            )
    return passed("hidden keys have no weight", "")


@check("practice/bugs-numbers")
def attention_sink_counted_twice(s: Attention) -> Finding:
    """How often the sink counts in the denominator."""
    if s.sink is None:
        return skipped("No sink (setting sink).")
    sink = torch.as_tensor(s.sink, dtype=torch.float64).reshape(-1, 1)
    counts = {}
    for n in (1, 3, 16, 40):
        q, k, v = s.draw(t_q=n if s.same_lengths else 4, t_k=n, d=48)
        v = torch.ones_like(v)
        sums = s.call(q, k, v)[..., 0].double()
        allowed = s.visible(q.shape[2], n, None, causal=False)
        logits = s.logits(q, k).masked_fill(~allowed, -math.inf)
        odds = (1 - sums) / sums * logits.logsumexp(-1).exp() / sink.exp()
        counts[n] = float(odds.mean())
    measured = ", ".join(
        f"{brief(c)} times with Tk = {n}" for n, c in counts.items()
    )
    if all(abs(c - 1) < 0.01 for c in counts.values()):
        return passed(measured, "once")
    return failed(
        "The sink does not count exactly once.",
        measured,
        "once",
        "with blocks or splits of the keys, exp(sink) belongs into the "
        "denominator once, after they are merged; and the weights are not "
        "normalised again after the sink is dropped.",
    )


@check("practice/bugs-numbers")
def attention_empty_first_block(s: Attention) -> Finding:
    """A softmax by blocks whose first block is hidden."""
    if s.mask == "none":
        return skipped("The function takes no mask.")
    worst = 0.0
    for n, hidden, d in ((12, 4, 16), (40, 32, 64), (200, 136, 256)):
        square = s.same_lengths or s.causal == "always"
        q, k, _ = s.draw(b=1, t_q=n if square else 3, t_k=n, d=d)
        mask = s.keys_mask(1, n, range(hidden))
        allowed = s.visible(q.shape[2], n, mask, causal=False)
        alive = allowed.any(-1)[0, 0].expand(q.shape[2])
        weights = s.weights(q, k, mask)[:, :, alive]
        error = far(weights, s.expected(q, k, mask)[:, :, alive])
        short = attempt(plain_mask_error, s, d)
        finite = bool(weights.isfinite().all())
        if not finite or (error > s.near >= short):
            return failed(
                f"With the first {hidden} of {n} keys hidden the weights are "
                "wrong, though fewer hidden keys do no harm.",
                "NaN" if weights.isnan().any() else f"off by {brief(error)}",
                "0",
                f"Wrong only with Tk = {n}: look for code that depends on "
                "length (blocks, buffers, a last partial block)."
                if finite
                else "in a softmax by blocks the running maximum is still -inf "
                "after an empty block, and exp(-inf - -inf) is NaN: use 0 for "
                "a maximum of -inf in the exponent.",
            )
        worst = max(worst, error)
    return passed(f"weights off by {brief(worst)}", "0")


def plain_mask_error(s: Attention, d: int) -> float:
    """Error of the weights with one key hidden, of few."""
    q, k, _ = s.draw(d=d)
    mask = s.keys_mask(q.shape[0], k.shape[2], [k.shape[2] - 2])
    return far(s.weights(q, k, mask), s.expected(q, k, mask))


@check("practice/bugs-positions")
def attention_documents_leak(s: Attention) -> Finding:
    """Packed documents see each other."""
    if s.documents is None:
        return skipped("No argument takes document ids (setting documents).")
    q, k, v = s.draw(t_q=6, t_k=6)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    causal = s.causal is not None
    before = s.call(q, k, v, causal=causal, **{s.documents: ids})
    first = (ids == 0)[:, None, :, None]  # (B, 1, T, 1)
    k2, v2 = torch.where(first, -2 * k, k), torch.where(first, -2 * v, v)
    after = s.call(q, k2, v2, causal=causal, **{s.documents: ids})
    change = far(before.masked_fill(first, 0.0), after.masked_fill(first, 0.0))
    if change <= s.near:
        return passed("the second document does not see the first", "")
    return failed(
        "The second document sees the first.",
        f"its outputs change by {brief(change)} with the first document",
        "0",
        "the mask is causal only; resetting the positions does not separate "
        "documents: join it with ids[:, :, None] == ids[:, None, :].",
    )


@check("core/masks")
def attention_window_length(s: Attention) -> Finding:
    """How many keys a sliding window holds."""
    if s.window is None:
        return skipped("No window (setting window).")
    n = s.window + 4
    q, k, _ = s.draw(t_q=n, t_k=n, d=16 if n < 16 else 2 * n)
    weights = s.weights(q, k, causal=True)
    seen = (weights > 1e-12).sum(-1)[0, 0].tolist()
    wanted = s.visible(n, n, None, causal=True)[0, 0].sum(-1).tolist()
    return window_seen(seen, wanted, s.window)


@check("core/order")
def attention_key_order(s: Attention) -> Finding:
    """The output depends on the order of the keys."""
    if s.causal == "always" or s.bias:
        return skipped("With a causal mask or a bias the order matters.")
    q, k, v = s.draw()
    order = torch.randperm(k.shape[2], generator=generator(s, 9))
    change = far(s.call(q, k, v), s.call(q, k[:, :, order], v[:, :, order]))
    if change <= s.near:
        return passed(f"outputs change by {brief(change)}", "0")
    return failed(
        "The output changes when keys and values are shuffled together.",
        f"outputs change by {brief(change)}",
        "0",
        "a view exchanges axes where a transpose is meant, keys are dropped or "
        "counted twice, or there is a position in the code that the settings "
        "do not name (causal, bias, window).",
    )


@check("core/lookup")
def attention_value_mixed(s: Attention) -> Finding:
    """The output is not the weights times the values."""
    q, k, v = s.draw()
    weights = s.weights(q, k)
    v2 = v.repeat_interleave(q.shape[1] // v.shape[1], 1).double()
    error = far(s.call(q, k, v), weights @ v2)
    if error <= s.near * 10:
        wide = torch.cat([v, v[..., : v.shape[-1] // 2] + 1], -1)
        v2 = torch.cat([v2, v2[..., : v.shape[-1] // 2] + 1], -1)
        other = attempt(lambda: far(s.call(q, k, wide), weights @ v2))
        if s.near * 10 < other < math.inf:
            return hazard(
                "With values of another width than the keys the output is "
                "wrong.",
                f"off by {brief(other)} with d = {v.shape[-1]} and dv = "
                f"{wide.shape[-1]}",
                "0",
                "the scale is that of the width of the values, or a buffer has "
                "the shape of the queries: take q.shape[-1] for the scale and "
                "v.shape[-1] for the output, or refuse such values.",
            )
        return passed(f"outputs off by {brief(error)}", "0")
    return failed(
        "The output is not the weights times the values.",
        f"off by {brief(error)} from the weights that unit vectors show",
        "0",
        "values are reshaped, normalised or transposed on the way, or the "
        "output is (heads and tokens merged in the wrong order).",
    )


@check("core/scaling")
def attention_gradients(s: Attention) -> Finding:
    """Gradients of q, k and v against those of the specification."""
    worst = gradient_finding(s, causal=False)
    if worst.verdict != "pass" or s.causal in (None, "always"):
        return worst
    return gradient_finding(s, causal=True)


def gradient_finding(s: Attention, *, causal: bool) -> Finding:
    """Gradients with a mask, or with the causal flag alone."""
    q, k, v = s.draw(t_q=6, t_k=6) if causal else s.draw()
    mask = None
    if s.mask != "none" and not causal:
        mask = s.random_mask(q.shape[0], q.shape[2], k.shape[2])
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    output = s.call(inputs[0], inputs[1], inputs[2], mask, causal=causal)
    detached = s.call(q, k, v, mask, causal=causal)
    with torch.no_grad():
        without = s.call(q, k, v, mask, causal=causal)
    for other, when in (
        (output, "an input requires a gradient"),
        (without, "gradients are off (no_grad)"),
    ):
        if far(other, detached) > 10 * s.near:
            return failed(
                f"The output is another one when {when}.",
                f"outputs differ by {brief(far(other, detached))}",
                "0",
                "training and inference take different paths, and one of them "
                "drops a step: give both the same mask, scale and flag.",
            )
    if not output.requires_grad:
        return failed(
            "The output has no gradient.",
            "requires_grad is False",
            "True",
            "the code runs under no_grad, detaches, or leaves PyTorch.",
        )
    g = torch.randn(
        output.shape, generator=generator(s, 3), dtype=torch.float64
    )
    got = torch.autograd.grad(
        output, inputs, g.to(output.dtype), allow_unused=True
    )
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    v2 = exact[2].repeat_interleave(q.shape[1] // v.shape[1], 1)
    reference = s.expected(exact[0], exact[1], mask, causal=causal) @ v2
    wanted = torch.autograd.grad(reference, exact, g)
    if far(output.detach(), reference.detach()) > 10 * s.near:
        return skipped("The output itself is wrong.")
    errors = {
        name: far(a if a is not None else torch.zeros(()), b)
        for name, a, b in zip("qkv", got, wanted, strict=True)
    }
    wrong = {name: e for name, e in errors.items() if e > 20 * s.near}
    measured = ", ".join(f"{n} {brief(e)}" for n, e in errors.items())
    if not wrong:
        return passed(f"gradients off by: {measured}", "0")
    return failed(
        f"The output is right, the gradient of {', '.join(wrong)} is wrong"
        + (" with the causal flag." if causal else "."),
        f"gradients off by: {measured}",
        "0",
        "a step is detached (no_grad, detach, .data, a clamp), or a backward "
        "pass written by hand is wrong.",
    )


@check("core/lookup")
def attention_inputs_changed(s: Attention) -> Finding:
    """The inputs, or the mask, are changed in place."""
    changed = []

    @functools.wraps(s.fn)
    def watched(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        names = [*("q", "k", "v", "mask")[: len(args)], *kwargs]
        kept = [x.clone() if isinstance(x, Tensor) else x for x in given]
        output = s.fn(*args, **kwargs)
        for name, a, b in zip(names, kept, given, strict=False):
            if isinstance(a, Tensor) and not torch.equal(a, b):
                changed.append(name)
        return output

    t = dataclasses.replace(s, fn=watched)
    q, k, v = s.draw()
    t.call(q, k, v)
    if s.mask != "none":
        t.call(q, k, v, s.random_mask(q.shape[0], *mask_sizes(q, k)))
        t.call(q, k, v, s.keys_mask(q.shape[0], k.shape[2], [1]))
    if not changed:
        return passed("inputs are left as they are", "")
    return failed(
        f"The call changes {', '.join(dict.fromkeys(changed))} in place.",
        "inputs differ after the call",
        "the same",
        "an operation with _ at its end (mul_, div_, masked_fill_) or += works "
        "on the caller's tensor.",
    )


@check("core/lookup")
def attention_calls_remembered(s: Attention) -> Finding:
    """The output depends on earlier calls."""
    q, k, v = s.draw()
    masks: list[Tensor | None] = [None]
    loose, states = dataclasses.replace(s, reseeded=False), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        loose.call(q, k, v)
        states.append(torch.get_rng_state())
    if torch.equal(*states):
        return failed(
            "The call sets the random numbers of the whole program.",
            "the same random state after calls with two seeds",
            "the states that the calls found, or ones that follow them",
            "torch.manual_seed inside: later dropout and noise repeat. Give "
            "the code a torch.Generator of its own.",
        )
    if s.mask != "none":
        sizes = q.shape[0], *mask_sizes(q, k)
        masks = [s.random_mask(*sizes, salt=i) for i in range(3)]
    outputs = []
    for other in range(3):
        for mask in masks:
            torch.manual_seed(s.seed)
            outputs.append(s.call(q, k, v, mask))
        s.call(*s.draw(salt=other + 1))
    n = len(masks)
    change = max(far(outputs[i], outputs[i % n]) for i in range(len(outputs)))
    given = [mask for mask in masks if mask is not None]
    differ = len(given) > 1 and not torch.equal(given[0], given[1])
    same = differ and far(outputs[0], outputs[1]) <= s.near
    ignored = same and attempt(mask_error, s) <= s.near
    if change <= s.near and not ignored:
        return passed(f"outputs change by {brief(change)}", "0")
    return failed(
        "The output depends on earlier calls.",
        "another mask changes nothing after the first call"
        if ignored
        else f"the same call gives outputs that differ by {brief(change)}",
        "0",
        "something of an earlier call is kept (a mask, keys, a table, a module "
        "level default) and used again.",
    )


@check("core/softmax")
def attention_dtype_kept(s: Attention) -> Finding:
    """The output has another dtype than the inputs."""
    wrong = []
    for dtype in dict.fromkeys([s.dtype, torch.float32, torch.bfloat16]):
        t = dataclasses.replace(s, dtype=dtype)
        try:
            output = t.call(*t.draw())
        except SubjectError:
            continue
        if output.dtype != dtype:
            wrong.append(f"{dtype} gives {output.dtype}".replace("torch.", ""))
    if not wrong:
        return passed("the dtype of the inputs", "")
    return hazard(
        "The output has another dtype than the inputs.",
        ", ".join(wrong),
        "the dtype of the inputs",
        "the softmax was taken in float32 and not cast back, or a constant is "
        "float64: end with .to(q.dtype).",
    )


@check("core/head-layout")
def attention_non_contiguous(s: Attention) -> Finding:
    """Inputs that are views of other memory."""
    q, k, v = s.draw()
    before = s.call(q, k, v)
    change = 0.0
    try:
        for axis in (-1, 1):
            views = [
                x.transpose(axis, 2).contiguous().transpose(axis, 2)
                if axis > 0 or s.layout != LAYOUTS[1]
                else torch.stack([x, x + 1], -1)[..., 0]
                for x in (q, k, v)
            ]
            change = max(change, far(before, s.call(*views)))
    except SubjectError as error:
        return hazard(
            "Inputs that are not contiguous are refused.",
            str(error),
            "an output",
            "view needs contiguous memory: reshape does not.",
        )
    if change <= s.near:
        return passed(f"outputs change by {brief(change)}", "0")
    return failed(
        "The output depends on how the inputs lie in memory.",
        f"outputs change by {brief(change)}",
        "0",
        "strides are ignored (as_strided, data_ptr, numpy views).",
    )


@check("core/lookup")
def attention_reference(s: Attention) -> Finding:
    """Outputs against the specification, at several sizes."""
    sizes = ((2, 5, 7), (1, 1, 6), (1, 1, 1), (3, 8, 8), (1, 16, 16))
    for b, t_q, t_k in (*sizes, (1, 33, 33)):
        if s.same_lengths and t_q != t_k:
            continue
        if t_q > 16 and not math.isfinite(attempt(sized_error, s, t_q)):
            continue  # a buffer that is shorter says so
        if t_k == 16 and several(s):
            continue  # weights and outputs have one shape
        q, k, v = s.draw(b, t_q, t_k, salt=t_q)
        v2 = v.repeat_interleave(q.shape[1] // v.shape[1], 1).double()
        asks: list[tuple[str, Tensor | None, bool]] = [("no mask", None, False)]
        if s.mask != "none" and t_k > 1:
            asks.append(("a mask", s.random_mask(b, t_q, t_k), False))
        if s.causal and t_q == t_k:
            asks.append(("the causal flag", None, True))
        for name, mask, causal in asks:
            output = s.call(q, k, v, mask, causal=causal)
            weights = s.expected(q, k, mask, causal=causal)
            error = far(output, weights @ v2)
            if error > 10 * s.near:
                return failed(
                    f"The output is not softmax(scale · q·k) · v with {name}.",
                    f"off by {brief(error)} at (B, H, Tq, Tk) = "
                    f"{(b, q.shape[1], t_q, t_k)}",
                    f"at most {brief(10 * s.near)}",
                    "the other failures say what is wrong. No other check "
                    "explains it? Then a setting may be missing: scale, "
                    "soft_cap, sink, bias, window, causal. Else compare "
                    "softmax(scale · q·k) · v at the sizes above.",
                )
    for n in (1100,):
        begin = time.perf_counter()
        attempt(sized_error, s, 33)
        if time.perf_counter() - begin > 0.02:
            break  # a loop over tokens would take minutes
        error = attempt(sized_error, s, n)
        if 10 * s.near < error < math.inf:
            return failed(
                f"The output is wrong with {n} tokens, and right with few.",
                f"off by {brief(error)} at (B, H, Tq, Tk) = "
                f"{(1, s.heads[0], n, n)}",
                f"at most {brief(10 * s.near)}",
                "look for what depends on length: a buffer with fewer rows, "
                "blocks and a last one that is partial, a factor with log(T).",
            )
    return by_dtype(s)


def several(s: Attention) -> bool:
    """Whether the function returns more than a tensor."""
    outputs: list[Any] = []

    @functools.wraps(s.fn)
    def watched(*args: Any, **kwargs: Any) -> Any:
        outputs.append(s.fn(*args, **kwargs))
        return outputs[-1]

    dataclasses.replace(s, fn=watched).call(*s.draw(t_q=6, t_k=6))
    return not isinstance(outputs[-1], Tensor)


def sized_error(s: Attention, n: int) -> float:
    """Error of some rows of the output with n tokens."""
    q, k, v = s.draw(1, n, n)
    v2 = v.repeat_interleave(q.shape[1] // v.shape[1], 1).double()
    causal = s.causal is not None
    rows = [i for i in (0, 1, 2, 1050, n - 3, n - 2, n - 1) if i < n]
    with torch.no_grad():
        output = s.call(q, k, v, causal=causal)[:, :, rows]
        if not output.isfinite().all():
            return 1e9
        return far(output, s.expected(q, k, causal=causal, rows=rows) @ v2)


def by_dtype(s: Attention) -> Finding:
    """Outputs against the specification in the other dtypes."""
    worst = passed("right at all sizes", "")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        t = dataclasses.replace(s, dtype=dtype, tolerance=None)
        q, k, v = t.draw(3, 8, 8)
        v2 = v.repeat_interleave(q.shape[1] // v.shape[1], 1).double()
        masks: list[Tensor | None] = [None]
        if s.mask != "none":
            masks.append(t.random_mask(3, 8, 8))
        for mask in masks:
            try:
                output = t.call(q, k, v, mask).double()
            except SubjectError:
                break
            exact = t.expected(q, k, mask) @ v2
            error = far(output, exact)
            # Rounding is spread thin, a wrong step is not.
            share = float((output - exact).abs().mean() / exact.abs().mean())
            if error <= 10 * t.near and not share > 0.1:
                continue
            kind = str(dtype).removeprefix("torch.")
            promised = dtype in s.dtypes or 0.1 < share < math.inf
            verdict = failed if promised else hazard
            worst = verdict(
                f"In {kind} the output is wrong"
                + (" with a mask." if mask is not None else "."),
                f"off by {brief(error)}, {share:.0%} on average",
                f"at most {brief(10 * t.near)}",
                f"a step of its own for {kind} is wrong (a scale, an axis, a "
                "cast), or numbers leave its range: take the logits and the "
                "softmax in float32.",
            )
            if promised:
                return worst
    return worst


# --- Multi-head modules -------------------------------------------------------

WIDTHS = (
    "d_model", "embed_dim", "hidden_size", "n_embd", "embed_size", "dim",
    "hidden_dim", "model_dim", "emb_dim", "d_in", "all_head_size",
)  # fmt: skip
HEADS = (
    "n_heads", "num_heads", "n_head", "heads", "nhead", "num_attention_heads",
    "nb_heads", "h", "H",
)  # fmt: skip
KV_HEADS = (
    "n_kv_heads", "num_kv_heads", "n_kv_head", "num_key_value_heads",
    "kv_heads", "n_local_kv_heads", "num_kv_groups",
)  # fmt: skip
MODULE_MASK_SHAPES = (
    "(B, 1, Tq, Tk)",
    "(B, H, Tq, Tk)",
    "(B, Tq, Tk)",
    "(B·H, Tq, Tk)",
    "(Tq, Tk)",
    "(B, 1, 1, Tk)",
    "(B, Tk)",
)
MODES = ("training", "evaluation", "evaluation without gradients")


def copied(module: nn.Module) -> nn.Module:
    """Deep copy, also of a module that keeps its last weights for a look."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)


def attribute(module: nn.Module, names: Sequence[str]) -> int | None:
    """First of the attributes that is a whole number, of it or its parts."""
    for part in module.modules():
        config = getattr(part, "config", None)
        for holder in (part, config):
            for name in names:
                value = getattr(holder, name, None)
                if isinstance(value, int) and value > 0 and value is not True:
                    return value
    return None


@dataclass(frozen=True)
class MultiHead(Subject):
    """A module with projections and heads, and how it is called.

    Settings that are None are found out and reported, unless their line says
    what None means.

    Attributes
    ----------
    module : nn.Module
        It is copied, and the copy is checked, in float64 where that works.
    call : callable
        ``call(module, x, memory, mask)`` returns the output; memory and mask
        may be None. None: made from the names of the parameters of forward.
    d_model, d_memory : int
        Widths C of x and of the memory.
    n_heads, n_kv_heads : int
        Numbers of query heads, and of key and value heads.
    batch_first : bool
        Whether x is (B, T, C), and not (T, B, C).
    mask : str
        "attend", "hide", "additive", "ones" or "none", as for `Attention`.
    mask_shape : str
        One of MODULE_MASK_SHAPES.
    mask_argument : str
        Name of the parameter that takes the mask.
    memory_mask : str
        Name of a parameter that takes a mask of the memory, (B, Tk), where
        ``mask_argument`` is one of the target. None: no such parameter.
    padding : str
        Name of a parameter that takes a mask of keys, (B, Tk), beside
        ``mask_argument``. None: no such parameter.
    causal, alignment, empty, window, documents, hidden_nan, dtypes, options
        As for `Attention`.
    memory : bool
        Whether the module attends to a memory.
    weights : callable
        ``weights(module)`` returns a dict with "q", "k", "v" (each (H·d, C),
        head after head) and "out" ((C, H·d)), and their biases "q_bias" and so
        on; entries that are missing are none. None: looked for among the
        parameters.
    scale, score, soft_cap, sink, bias
        As for `Attention`; they are looked at where the weights are known.
    rotate : callable
        Applied to queries and keys (B, H, T, d) after the split, for example
        rotary positions. None: nothing.
    positions : bool
        Whether the module knows the order of its input beside the mask.
    tolerance, seed
        As for `Attention`.
    """

    kind: ClassVar[str] = "multi_head"
    module: nn.Module
    call: Callable[..., Any] | None = None
    d_model: int | None = None
    d_memory: int | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    batch_first: bool | None = None
    mask: str | None = None
    mask_shape: str | None = None
    mask_argument: str | None = None
    memory_mask: str | None = None
    padding: str | None = None
    causal: str | None = None
    alignment: str | None = None
    empty: str | None = None
    window: int | None = None
    documents: str | None = None
    hidden_nan: bool = False
    dtypes: tuple[torch.dtype, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    memory: bool | None = None
    weights: Callable[[nn.Module], Mapping[str, Tensor | None]] | None = None
    scale: float | None = None
    score: Callable[[Tensor, Tensor], Tensor] | None = None
    soft_cap: float | None = None
    sink: float | Tensor | None = None
    bias: Callable[[int, int], Tensor] | None = None
    rotate: Callable[[Tensor], Tensor] | None = None
    positions: bool = False
    tolerance: float | None = None
    seed: int = 0
    dtype: torch.dtype | None = None
    needs_mask: bool = False
    found: list[Any] = field(default_factory=list)
    detected: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.module, nn.Module):
            raise TypeError(
                "module must be an nn.Module, got "
                f"{type(self.module).__name__}: pass an instance, or use "
                "check_attention for a function"
            )
        counts = ("d_model", "d_memory", "n_heads", "n_kv_heads", "window")
        for name in counts:
            value = getattr(self, name)
            if value is None:
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, int)
                or value < 1
            ):
                raise ValueError(
                    f"{name} must be a whole number, 1 or more, got {value!r}"
                )
        if self.causal is not None and not isinstance(self.causal, str):
            raise ValueError(
                'causal must be "always", "never" or the name of a flag of '
                f"forward, got {self.causal!r}"
            )
        known = inspect.signature(self.module.forward).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
        for name in ("mask_argument", "memory_mask", "padding", "documents"):
            value = getattr(self, name)
            if (
                value
                and value not in known
                and not open_ended
                and not self.call
            ):
                raise ValueError(
                    f"{name}={value!r} is no parameter of forward, which has "
                    + ", ".join(known)
                )
        one_of("mask", self.mask, (*CONVENTIONS, "none"))
        one_of("mask_shape", self.mask_shape, MODULE_MASK_SHAPES)
        one_of("alignment", self.alignment, ("top-left", "bottom-right"))
        one_of("empty", self.empty, POLICIES)

    def name(self) -> str:
        """Name of the class."""
        return type(self.module).__name__

    @property
    def near(self) -> float:
        """Largest error that rounding explains."""
        return self.tolerance or TOLERANCE[self.dtype or torch.float64]

    def fresh(self) -> "MultiHead":
        """Same subject with a copy of the module."""
        return dataclasses.replace(self, module=copied(self.module))

    @property
    def heads(self) -> int:
        """Number of query heads; 1 where it is not known."""
        return self.n_heads or 1

    @property
    def zero(self) -> float:
        """Largest influence that is none: rounding of another path."""
        return 1e-9 if self.dtype == torch.float64 else 1e-2 * self.near

    def draw(
        self,
        b: int = 2,
        t: int = 5,
        *,
        memory: int | None = None,
        salt: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Random x (B, T, C), and a memory (B, Tk, Cm) of the length given."""
        g = generator(self, salt)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=g, dtype=torch.float64).to(
                self.dtype
            )

        x = normal(b, t, self.d_model or 1)
        if memory is None:
            return x, None
        return x, normal(b, memory, self.d_memory or self.d_model or 1)

    def can(self, axis: str) -> bool:
        """Whether the mask has this axis: "B", "H", "Tq" or "Tk"."""
        if self.mask == "none":
            return False
        shape = (self.mask_shape or "(Tq, Tk)").replace("B·H", "B, H")
        return axis in shape.strip("()").split(", ")

    def run(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        mode: str = "evaluation",
        causal: bool = False,
        module: nn.Module | None = None,
    ) -> Tensor:
        """Output (B, Tq, C') of the module, however it is called.

        The mask broadcasts to (B, H, Tq, Tk), True = may attend; causal asks
        for a causal mask, by the flag or by the mask.
        """
        module = self.module if module is None else module
        t_q, t_k = x.shape[1], (x if memory is None else memory).shape[1]
        options = dict(self.options)
        if self.documents:
            one = torch.zeros(x.shape[0], t_k, dtype=torch.long)
            options.setdefault(self.documents, one)
        if causal and self.causal is None:
            past = torch.ones(t_q, t_k, dtype=torch.bool).tril(t_k - t_q)
            mask = past[None, None] if mask is None else mask & past
        elif causal and self.causal != "always":
            options[str(self.causal)] = True
        given = None
        if mask is None and self.needs_mask:
            mask = torch.ones(1, 1, 1, 1, dtype=torch.bool)
        if mask is not None:
            if self.mask == "none":
                raise UnsuitableError("the module takes no mask")
            shape = self.mask_shape or MODULE_MASK_SHAPES[0]
            sizes = x.shape[0], self.heads, t_q, t_k
            flat = shape == "(B·H, Tq, Tk)"
            given = in_shape(mask, "(B, H, Tq, Tk)" if flat else shape, sizes)
            given = given.flatten(0, 1) if flat else given
            given = mask_as(given, self.mask or "attend", x.dtype)
        turn = (lambda y: y) if self.batch_first is not False else swapped
        x, memory = turn(x), None if memory is None else turn(memory)
        module.train(mode == MODES[0])
        with torch.set_grad_enabled(
            mode != MODES[2] and torch.is_grad_enabled()
        ):
            torch.manual_seed(self.seed)
            if self.call:
                output = called(self.call, module, x, memory, given, **options)
            else:
                args, named = self.arguments(module, x, memory, given)
                output = called(module, *args, **named, **options)
        if output.ndim != 3 or turn(output).shape[:2] != turn(x).shape[:2]:
            raise SubjectError(
                f"the output has the shape {tuple(output.shape)}, expected "
                f"(B, Tq, C) with (B, Tq) = {tuple(turn(x).shape[:2])}"
            )
        return turn(output)

    def arguments(
        self,
        module: nn.Module,
        x: Tensor,
        memory: Tensor | None,
        mask: Tensor | None,
    ) -> tuple[list[Tensor], dict[str, Any]]:
        """Arguments of forward, by the names of its parameters."""
        names = list(inspect.signature(module.forward).parameters)
        places = memory_places(names)
        source = x if memory is None else memory
        args: list[Tensor] = [x]
        named: dict[str, Any] = {}
        if len(places) > 1 or (places and memory is not None):
            if names[1 : len(places) + 1] == places:
                args += [source] * len(places)
            else:
                named |= dict.fromkeys(places, source)
        elif memory is not None:
            raise UnsuitableError("the module takes no memory")
        argument = self.mask_argument
        if memory is not None and self.memory_mask and mask is not None:
            argument = self.memory_mask
        if mask is not None:
            named[str(argument)] = mask
        elif argument and required(module, argument):
            named[argument] = None
        if (
            isinstance(module, nn.MultiheadAttention)
            and "need_weights" in names
        ):
            named["need_weights"] = False
        return args, named

    def found_out(self) -> "MultiHead":
        """Same subject, with what was not given found out."""
        return detect_multi_head(self)


def swapped(x: Tensor) -> Tensor:
    """Batch and time exchanged."""
    return x.transpose(0, 1)


def required(module: nn.Module, name: str) -> bool:
    """Whether forward has a parameter of this name without a default."""
    parameter = inspect.signature(module.forward).parameters.get(name)
    return parameter is not None and parameter.default is parameter.empty


def memory_places(names: Sequence[str]) -> list[str]:
    """Parameters of forward that take the memory, or keys and values."""
    words = (
        "memory", "context", "mem", "kv", "key_value", "encoder_hidden_states",
        "encoder_output", "enc", "enc_out", "cond", "cross", "source", "src",
        "key", "keys", "k", "value", "values", "v", "key_value_states", "y",
    )  # fmt: skip
    return [n for n in names[1:] if n.lower() in words]


def check_multi_head(module: nn.Module, **settings: Any) -> Report:
    """Check a module of multi-head attention.

    Parameters
    ----------
    module : nn.Module
        It is copied first.
    **settings
        Those of `MultiHead`.

    Returns
    -------
    Report

    Raises
    ------
    TypeError, ValueError
        When a setting is unknown, or the width is neither given nor found.
    """
    return run_checks(MultiHead(module, **settings))


def without_dropout(module: nn.Module) -> nn.Module:
    """Copy that drops nothing, so that training gives what evaluation does."""
    module = copied(module)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        for name, value in list(vars(part).items()):
            if "drop" in name.lower() and isinstance(value, float):
                setattr(part, name, 0.0)
    return module


def detect_multi_head(s: MultiHead) -> MultiHead:
    """Find out the settings that are None."""
    given = s
    module = copied(s.module)
    names = list(inspect.signature(module.forward).parameters)
    linear = next(
        (m for m in module.modules() if isinstance(m, nn.Linear)), None
    )
    width = s.d_model or attribute(module, WIDTHS)
    width = width or (linear.in_features if linear else None)
    if not width:
        matrices = [p for p in module.parameters() if p.ndim == 2]
        width = matrices[0].shape[0] if matrices else None
    if not width:
        raise ValueError(
            f"the width of {type(module).__name__} was not found: give d_model"
        )
    mask_argument = s.mask_argument
    if mask_argument is None:
        masks = [n for n in names if "mask" in n.lower()]
        others = [n for n in masks if "padding" not in n.lower()]
        memory = ("memory", "src", "context", "enc", "cross")
        own = [n for n in others if not any(w in n.lower() for w in memory)]
        mask_argument = next(iter(own or others or masks), None)
    flag = next((n for n in names if "causal" in n.lower()), None)
    padding = [
        n for n in names if "padding" in n.lower() and n != mask_argument
    ]
    s = dataclasses.replace(
        s,
        padding=s.padding or next(iter(padding), None),
        memory_mask=s.memory_mask or memory_mask_name(names, mask_argument),
        d_model=width,
        d_memory=s.d_memory or memory_width(module) or width,
        n_heads=s.n_heads or attribute(module, HEADS),
        mask_argument=mask_argument,
        mask="none" if mask_argument is None and not s.call else s.mask,
        memory=bool(memory_places(names)) if s.memory is None else s.memory,
        causal=flag if s.causal is None else s.causal,
    )
    s = dataclasses.replace(
        s, n_kv_heads=s.n_kv_heads or attribute(module, KV_HEADS) or s.n_heads
    )
    given_dtype = next(module.parameters(), torch.zeros(())).dtype
    for dtype in [s.dtype] if s.dtype else [torch.float64, given_dtype]:
        t = dataclasses.replace(s, module=copied(module).to(dtype), dtype=dtype)
        if attempt(ordinary_size, t) < math.inf:
            break
        t = dataclasses.replace(t, mask="attend" if t.mask is None else t.mask)
    s = t
    if s.batch_first is None:
        known = getattr(module, "batch_first", None)
        known = known if isinstance(known, bool) else batch_axis(s)
        s = dataclasses.replace(s, batch_first=known)
    if given.causal is None and s.causal:
        # A flag that cannot stand alone is a hint about a mask.
        x, _ = s.draw()
        if attempt(lambda: size(s.run(x, causal=True))) == math.inf:
            s = dataclasses.replace(s, causal=None)
    never = s.causal == "never"
    s = dataclasses.replace(s, causal=None if never else s.causal)
    if s.causal is None and not never and attempt(looks_causal, s) == 0:
        s = dataclasses.replace(s, causal="always")
    if s.mask != "none":
        s = detect_module_mask(s)
    if s.causal == "always" and given.causal is None and s.can("Tq"):
        x, _ = s.draw(t=5)
        whole = torch.ones(1, 1, 5, 5, dtype=torch.bool)
        reach = influence(s, x, None, whole)
        if float(reach.triu(1).max()) > s.zero:  # causal unless a mask is given
            s = dataclasses.replace(s, causal=None, needs_mask=True)
    names = [
        "d_model", "n_heads", "n_kv_heads", "batch_first", "mask", "mask_shape",
        "mask_argument", "memory", "causal", "padding", "memory_mask",
    ]  # fmt: skip
    found = {
        name: str(getattr(s, name))
        for name in names
        if getattr(s, name) != getattr(given, name)
        and getattr(given, name) != "never"
    }
    unused = copied(given.module).to(s.dtype)
    return dataclasses.replace(s, module=unused, found=[], detected=found)


def memory_width(module: nn.Module) -> int | None:
    """Width of what keys and values are made of, if the module shows it."""
    kdim = getattr(module, "kdim", None)
    if isinstance(kdim, int):
        return kdim
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear) and role(name) in ("k", "kv"):
            return part.in_features
    return None


def memory_mask_name(names: Sequence[str], used: str | None) -> str | None:
    """Parameter that takes a mask of the memory, beside one of the target."""
    words = ("memory", "encoder", "context", "cross", "src", "source")
    for name in names:
        low = name.lower()
        if "mask" in low and name != used and any(w in low for w in words):
            return name
    return None


def ordinary(s: MultiHead) -> Tensor:
    """Output of a plain call, with a memory where the module must have one."""
    try:
        return s.run(s.draw()[0])
    except SubjectError:
        if not s.memory:
            raise
    x, memory = s.draw(memory=7)
    return s.run(x, memory)


def ordinary_size(s: MultiHead) -> float:
    """Largest output of a plain call."""
    return size(ordinary(s))


def batch_axis(s: MultiHead) -> bool:
    """Whether the first axis is the batch, along which nothing mixes."""
    x, _ = s.draw(b=3, t=4)
    try:
        before = s.run(x)
        other = x.clone()
        other[0] += 1
        first = far(before[1:], s.run(other)[1:])
        other = x.clone()
        other[:, 0] += 1
        second = far(before[:, 1:], s.run(other)[:, 1:])
    except (SubjectError, UnsuitableError):
        return True
    return not (first > s.zero and second <= s.zero)


def looks_causal(s: MultiHead) -> float:
    """Largest influence of later tokens on earlier outputs; 0 if none."""
    reach = influence(s, s.draw(t=5)[0])
    future = float(reach.triu(1).max())
    return (
        0.0
        if future <= s.zero and float(reach.tril(-1).max()) > s.zero
        else 1.0
    )


def detect_module_mask(s: MultiHead) -> MultiHead:
    """Find out what the mask means and which shape it has."""
    options = [
        dataclasses.replace(s, mask=mask, mask_shape=shape)
        for shape in ([s.mask_shape] if s.mask_shape else MODULE_MASK_SHAPES)
        for mask in ([s.mask] if s.mask else CONVENTIONS)
        if s.n_heads or "H" not in shape
    ]

    def error(t: MultiHead) -> float:
        """Influence of a hidden key, as a part of that of the others."""
        n = 5
        cross = (
            t.memory and attempt(lambda: size(t.run(t.draw()[0]))) == math.inf
        )
        x, memory = t.draw(
            b=7, t=n if not cross else 4, memory=n if cross else None
        )
        mask = torch.ones(7, 1, 1, n, dtype=torch.bool)
        mask[:, :, :, 2] = False
        if not t.can("B"):
            mask = mask[:1]
        reach = influence(t, x, memory, mask)
        if not cross:
            reach.fill_diagonal_(0.0)
        hidden, rest = float(reach[:, 2].max()), reach.clone()
        rest[:, 2] = 0
        return hidden / (float(rest.max()) + 1e-12) if rest.any() else 1e3

    errors = [attempt(error, c) for c in options]
    if min(errors) == math.inf:
        return dataclasses.replace(
            s, mask=s.mask or "none", mask_shape=s.mask_shape
        )
    return options[choice(errors)]


def influence(
    s: MultiHead,
    x: Tensor,
    memory: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    mode: str = "evaluation",
    causal: bool = False,
    size: float = 1.0,
    module: nn.Module | None = None,
) -> Tensor:
    """How much each output row of example 0 changes with each key's token.

    Returns
    -------
    Tensor, shape (Tq, Tk)
        In self-attention a token is query and key, so that the diagonal is
        never a statement about keys.
    """
    source = x if memory is None else memory
    g = generator(s, 31)
    step = size * torch.randn(
        source.shape[-1], generator=g, dtype=torch.float64
    )
    columns = []

    def run(changed: Tensor) -> Tensor:
        first, second = (changed, None) if memory is None else (x, changed)
        return s.run(
            first, second, mask, mode=mode, causal=causal, module=module
        ).detach()

    before = run(source)
    for j in range(source.shape[1]):
        changed = source.clone()
        changed[0, j] += step.to(source.dtype)
        after = run(changed)
        difference = (after - before)[0].double().abs().nan_to_num(0.0, 0.0)
        columns.append(difference.amax(-1))
    return torch.stack(columns, -1)


def tried_mask(s: MultiHead, b: int, n: int, salt: int = 0) -> Tensor:
    """Mask of the shape the module takes; rows see their own key and key 0."""
    g = generator(s, 40 + salt)
    shape = [
        size if s.can(a) else 1
        for a, size in zip(("B", "H"), (b, 1), strict=True)
    ]
    rows = n if s.can("Tq") else 1
    mask = torch.rand(*shape, rows, n, generator=g) < 0.5
    mask[..., 0] = True
    mask[..., n - 2] = False
    if rows > 1:
        mask[..., 1, n - 1], mask[..., n - 1, 1] = True, False
        mask |= torch.eye(n, dtype=torch.bool)
    return mask


def hidden_influence(s: MultiHead) -> tuple[float, float, float]:
    """Influence of hidden keys, of allowed ones, and change by the mask."""
    n = 6
    cross = needs_memory(s)
    x, memory = s.draw(t=n, memory=n if cross else None)
    mask = tried_mask(s, x.shape[0], n)
    reach = influence(s, x, memory, mask)
    allowed = mask.expand(x.shape[0], 1, n, n)[0, 0]
    if not cross:
        reach.fill_diagonal_(0.0)
    if s.causal == "always":
        allowed = allowed & torch.ones(n, n, dtype=torch.bool).tril()
    hidden = float(reach.masked_fill(allowed, 0.0).max())
    seen = float(reach.masked_fill(~allowed, 0.0).max())
    change = far(s.run(x, memory, mask), s.run(x, memory))
    return hidden, seen, change


def needs_memory(s: MultiHead) -> bool:
    """Whether the module cannot be called without a memory."""
    return (
        bool(s.memory) and attempt(lambda: size(s.run(s.draw()[0]))) == math.inf
    )


def need_mask(s: MultiHead) -> None:
    """Leave a check that needs a mask."""
    if s.mask == "none":
        raise UnsuitableError("the module takes no mask")


@check("core/multi-head")
def multi_head_runs(s: MultiHead) -> Finding:
    """Ordinary calls give an output."""
    x, memory = s.draw(memory=7 if needs_memory(s) else None)
    s.run(x, memory)
    if s.mask != "none":
        n = x.shape[1] if memory is None else 5
        x, memory = s.draw(t=n, memory=n if memory is not None else None)
        s.run(x, memory, tried_mask(s, x.shape[0], n))
    if s.memory and memory is None:
        x, memory = s.draw(memory=7)
        s.run(x, memory)
    return passed(f"an output for x {tuple(x.shape)}", "")


@check("core/masks")
def multi_head_mask_ignored(s: MultiHead) -> Finding:
    """The mask changes nothing."""
    need_mask(s)
    hidden, seen, change = hidden_influence(s)
    if change > s.zero or hidden <= s.zero:
        return passed(f"outputs change by {brief(change)}", "more than 0")
    return failed(
        "The mask changes nothing: hidden tokens reach the output.",
        f"a hidden token changes outputs by {brief(hidden)}, an allowed one by "
        f"{brief(seen)}",
        "0 and more than 0",
        "the mask is not handed on, its result is thrown away (masked_fill "
        "returns a new tensor), or another path is taken when it is given.",
    )


@check("core/conventions")
def multi_head_mask_polarity(s: MultiHead) -> Finding:
    """Hidden and allowed tokens are exchanged."""
    need_mask(s)
    hidden, seen, _ = hidden_influence(s)
    measured = f"a hidden token changes outputs by {brief(hidden)}, an allowed "
    measured += f"one by {brief(seen)}"
    if hidden <= s.zero or seen > s.zero:
        return passed(measured, "0 and more than 0")
    return failed(
        "The mask works the other way round: only hidden tokens are seen.",
        measured,
        "0 and more than 0",
        f"the code reads True as the opposite of the setting mask={s.mask!r}: "
        "negate the mask (~mask), once, where it enters. PyTorch's function "
        "takes True = may attend, nn.MultiheadAttention True = hidden.",
    )


def hidden_response(s: MultiHead) -> tuple[float, float, float]:
    """Change of real rows when a hidden token moves by 1, 2 and 1000 steps.

    The second is the distance from twice the first change: 0 if the weight of
    the hidden token does not depend on it.
    """
    n = 6
    x, memory = s.draw(t=n, memory=n if needs_memory(s) else None)
    source = x if memory is None else memory
    mask = torch.ones(
        x.shape[0] if s.can("B") else 1, 1, 1, n, dtype=torch.bool
    )
    mask[..., 3] = False
    step = torch.randn(
        source.shape[-1], generator=generator(s, 32), dtype=torch.float64
    )

    def moved(size: float) -> Tensor:
        changed = source.clone()
        changed[0, 3] += (size * step).to(source.dtype)
        first, second = (changed, None) if memory is None else (x, changed)
        output = s.run(first, second, mask)[0].double()
        rows = [i for i in range(n) if memory is not None or i != 3]
        if s.causal == "always":
            rows = [i for i in rows if i > 3]
        return output[rows]

    start = moved(0.0)
    one, two, many = (moved(size) - start for size in (1.0, 2.0, 1000.0))
    return (
        float(one.abs().max()),
        float((two - 2 * one).abs().max()),
        float(many.abs().max()),
    )


def removal_error(s: MultiHead) -> float:
    """Distance of outputs with hidden last keys from those without them."""
    n = 6
    cross = needs_memory(s)
    x, memory = s.draw(t=n, memory=n if cross else None)
    mask = torch.ones(
        x.shape[0] if s.can("B") else 1, 1, 1, n, dtype=torch.bool
    )
    mask[..., n - 2 :] = False
    whole = s.run(x, memory, mask)
    if memory is not None:
        return far(whole, s.run(x, memory[:, : n - 2].contiguous()))
    return far(whole[:, : n - 2], s.run(x[:, : n - 2].contiguous()))


@check("core/masks")
def multi_head_mask_after_softmax(s: MultiHead) -> Finding:
    """Hidden tokens have no weight, and yet change that of the others."""
    need_mask(s)
    one, bend, many = hidden_response(s)
    ordinary_size = float(ordinary(s).abs().max())
    measured = f"outputs change by {brief(one)} when a hidden token changes, "
    measured += f"by {brief(many)} when it changes 1000 times as much"
    if one <= s.zero or many > 20 * ordinary_size or bend < 1e-6 * one:
        return passed(measured, "0")
    return failed(
        "Hidden tokens change the output, but only within bounds: they have no "
        "weight and still count in the softmax.",
        measured,
        "0",
        "the mask is applied to the weights, after the softmax: set the logits "
        "of hidden keys to -inf before it.",
    )


@check("core/masks")
def multi_head_mask_multiplied(s: MultiHead) -> Finding:
    """Hidden tokens have a weight that does not depend on them."""
    need_mask(s)
    one, bend, _ = hidden_response(s)
    measured = f"outputs change by {brief(one)} when a hidden token changes"
    removed = removal_error(s)
    if one <= s.zero and removed > s.near:
        return failed(
            "Hidden tokens do not reach the output, but their places count in "
            "the softmax.",
            f"outputs differ by {brief(removed)} from those without the tokens",
            "0",
            "tokens, keys or values are multiplied by the mask: a key of zeros "
            "has the logit 0 and the weight of exp(0) = 1. Fill the logits "
            "with -inf instead.",
        )
    if one <= s.zero or bend > 1e-4 * one:
        return passed(measured, "0")
    return failed(
        "A hidden token keeps a weight, one that does not depend on its key.",
        measured,
        "0",
        "the logits are multiplied by the mask, which leaves exp(0) = 1, or "
        "filled with a small number: fill with -inf instead, "
        "logits.masked_fill(~mask, -inf).",
    )


@check("core/softmax")
def multi_head_mask_floor(s: MultiHead) -> Finding:
    """A finite floor leaks when the logits are low, or fits no half dtype."""
    need_mask(s)
    one, bend, _ = hidden_response(s)
    if one > s.zero and bend < 1e-4 * one:
        return failed(
            "Hidden tokens get the weight of one finite logit.",
            f"outputs change by {brief(one)} when a hidden token changes",
            "0",
            "a small floor stands for -inf (1e-9 for -1e9 is a usual slip), or "
            "the logits are capped after the mask: fill with -inf, after every "
            "other step.",
        )
    if one > s.zero:
        return skipped(
            "Hidden tokens have an influence at ordinary sizes, too."
        )
    n, b, cross = 6, 16, needs_memory(s)
    mask = torch.zeros(b if s.can("B") else 1, 1, 1, n, dtype=torch.bool)
    mask[..., 0] = True  # all that anybody may see
    x, memory = s.draw(b, n, memory=n if cross else None)
    for factor in (10.0, 100.0, 200.0):
        first = (x if memory is None else memory) * factor
        second = torch.cat([first[:, :1], -first[:, 1:].roll(1, 0)], 1)
        outputs = []
        for source in (first, second):
            query = source if memory is None else x * factor
            other = None if memory is None else source
            outputs.append(s.run(query, other, mask)[:, 0])
        error = far(outputs[0], outputs[1]) / (size(outputs[0]) + 1e-9)
        if error > max(100 * s.near, 1e-3):
            return failed(
                f"With inputs {factor:.0f} times as large, hidden tokens get "
                "weight: the output of a query that sees one key changes with "
                "the tokens that it may not see.",
                f"relative change {brief(error)}",
                "0",
                "the floor for hidden keys is finite and higher than low "
                "logits: use -inf, or torch.finfo(logits.dtype).min with "
                "masked_fill (never added).",
            )
    mask = mask[:2]
    for dtype in dict.fromkeys([torch.float16, torch.bfloat16, *s.dtypes]):
        t = dataclasses.replace(
            s, module=copied(s.module).to(dtype), dtype=dtype
        )
        x, memory = t.draw(t=n, memory=n if cross else None)
        try:
            t.run(x, memory)
        except SubjectError:
            continue
        try:
            t.run(x, memory, mask)
        except SubjectError as error:
            kind = str(dtype).removeprefix("torch.")
            verdict = failed if dtype in s.dtypes else hazard
            return verdict(
                f"With a mask the call raises in {kind}.",
                str(error),
                "an output, as without a mask",
                f"a floor such as -1e9 does not exist in {kind}, or the mask "
                "has another dtype: use -inf, or "
                "torch.finfo(logits.dtype).min.",
            )
    return passed("hidden tokens have no influence at large inputs", "")


@check("practice/bugs-masks")
def multi_head_mask_on_query_axis(s: MultiHead) -> Finding:
    """The mask of keys works on queries."""
    need_mask(s)
    n = 6
    cross = needs_memory(s)
    x, memory = s.draw(t=n, memory=n if cross else None)
    if s.can("Tq"):
        mask = tried_mask(s, x.shape[0], n)
        turned = mask.expand(x.shape[0], 1, n, n)[0, 0].mT
        reach = influence(s, x, memory, mask)
        off = ~torch.eye(n, dtype=torch.bool) | torch.tensor(cross)
        limit = torch.ones(n, n, dtype=torch.bool)
        limit = limit.tril() if s.causal == "always" else limit
        wrong = torch.equal((reach > s.zero) & off, turned & off & limit)
        if wrong and not torch.equal(turned, turned.mT):
            return failed(
                "The mask is transposed: query i sees the keys that query j "
                "should.",
                "the pattern of influence is that of mask.mT",
                "that of the mask",
                "queries are the rows of the mask (second last axis), keys the "
                "columns (last axis).",
            )
    keys = torch.ones(
        x.shape[0] if s.can("B") else 1, 1, 1, n, dtype=torch.bool
    )
    keys[..., [1, 4]] = False
    hidden = ~keys.expand(x.shape[0], 1, 1, n)[0, 0, 0]
    reach = influence(s, x, memory, keys)
    if s.causal == "always":
        reach = reach.tril()
    if not cross:
        reach.fill_diagonal_(0.0)
    real = float(reach[~hidden][:, hidden].max())
    plain, masked = s.run(x, memory)[0], s.run(x, memory, keys)[0]
    same = far(plain[~hidden], masked[~hidden]) <= s.near
    changed = far(plain[hidden], masked[hidden]) > s.near
    if real > s.zero and same and changed:
        return failed(
            "The mask hides queries instead of keys: real tokens see "
            "hidden ones, and only the hidden rows change.",
            f"a hidden token changes real rows by {brief(real)}",
            "0",
            "a mask of keys (B, Tk) was unsqueezed at the wrong place, "
            "(B, 1, T, 1): keys are the last axis, mask[:, None, None, :].",
        )
    return passed(f"a hidden token changes real rows by {brief(real)}", "0")


@check("core/masks")
def multi_head_mask_broadcast(s: MultiHead) -> Finding:
    """The mask lands on another axis, or example, for some sizes."""
    need_mask(s)
    if not s.can("B"):
        return skipped(f"A mask {s.mask_shape} is the same for all examples.")
    n, cross = s.heads if s.heads > 2 else 4, needs_memory(s)
    errors = {}
    for b, t in ((3, n + 2), (n, n + 2), (n + 2, n + 2), (n + 2, n), (n, n)):
        x, memory = s.draw(b, t, memory=t if cross else None)
        mask = tried_mask(s, b, t)
        for i in range(b):  # no two examples with the same mask
            mask[i, ..., 1 + i % max(1, t - 2)] = False
        if s.can("Tq"):
            mask |= torch.eye(t, dtype=torch.bool)

        def measure(
            x: Tensor = x, memory: Tensor | None = memory, mask: Tensor = mask
        ) -> float:
            whole = s.run(x, memory, mask)
            alone = [
                s.run(
                    x[i : i + 1],
                    None if memory is None else memory[i : i + 1],
                    mask[i : i + 1],
                )
                for i in range(len(x))
            ]
            return far(whole, torch.cat(alone))

        errors[b, s.heads, t] = attempt(measure)
    wrong = {size: e for size, e in errors.items() if e > 10 * s.near}
    if not wrong:
        return passed("an example alone gives what it gives in a batch", "")
    error = max(wrong.values())
    return failed(
        "With a mask, an example alone gives something else than in a batch, "
        "for (B, H, T) = " + ", ".join(map(str, wrong)) + ".",
        "raises" if error == math.inf else f"outputs differ by {brief(error)}",
        "0",
        "the mask meets logits (B, H, Tq, Tk) by broadcasting, which aligns "
        "the last axes: insert the missing ones by name, mask[:, None, None] "
        "for (B, Tk). A mask (B·H, Tq, Tk) wants repeat_interleave(H, 0), not "
        "repeat: the heads of an example are adjacent.",
    )


@check("core/masks")
def multi_head_padding_ignored(s: MultiHead) -> Finding:
    """The mask of keys beside the mask is ignored or turned round."""
    if s.padding is None:
        return skipped("The module has no second mask (setting padding).")
    n = 6
    cross = needs_memory(s)
    x, memory = s.draw(t=n, memory=n if cross else None)
    keys = torch.ones(len(x), 1, 1, n, dtype=torch.bool)
    keys[..., 3:] = False
    given = mask_as(keys[:, 0, 0], s.mask or "attend", x.dtype)
    t = dataclasses.replace(s, options={**s.options, s.padding: given})
    past = torch.ones(1, 1, n, n, dtype=torch.bool).tril()
    for name, mask in (("alone", None), ("beside a mask", past)):
        if mask is not None and not s.can("Tq"):
            continue
        reach = influence(t, x, memory, mask)
        if not cross:
            reach.fill_diagonal_(0.0)
        hidden, seen = float(reach[:, 3:].max()), float(reach[:, :3].max())
        if hidden > s.zero:
            return failed(
                f"Padding given as {s.padding} {name} is "
                + ("turned round." if seen <= s.zero else "ignored."),
                f"a hidden token changes outputs by {brief(hidden)}, an "
                f"allowed one by {brief(seen)}",
                "0 and more than 0",
                "the two masks are not joined, or have opposite conventions: "
                "join boolean masks with &, each in the convention of the "
                "code below.",
            )
    return passed("hidden tokens have no influence", "")


@check("core/empty-rows")
def multi_head_masks_summed(s: MultiHead) -> Finding:
    """Rows hidden by two masks together look at hidden tokens."""
    need_mask(s)
    if s.causal is None and not s.padding:
        return skipped("The module takes one mask and no causal flag.")
    n = 6
    x, _ = s.draw(t=n)
    keys = torch.ones(
        x.shape[0] if s.can("B") else 1, 1, 1, n, dtype=torch.bool
    )
    keys[..., :3] = False
    try:
        if s.padding:
            more = {
                s.padding: mask_as(
                    keys[:, 0, 0].expand(len(x), n), s.mask or "", x.dtype
                )
            }
            past = torch.ones(1, 1, n, n, dtype=torch.bool).tril()
            mask = past if s.can("Tq") else None
            t = dataclasses.replace(s, options={**s.options, **more})
            output = t.run(x, None, mask)
            reach = influence(t, x, None, mask)
        else:
            output = s.run(x, None, keys, causal=True)
            reach = influence(s, x, None, keys, causal=True)
    except SubjectError:
        return skipped("The module refuses both together.")
    if output[0, :3].isnan().all():
        return passed("rows without keys are NaN", "")
    rows = reach[:3].clone()
    rows[:, :3].fill_diagonal_(0.0)
    future = torch.zeros(3, n, dtype=torch.bool)
    for i in range(3):
        future[i, max(i + 1, 3) :] = True  # hidden by the causal mask alone
    leak = float(rows[future].max())
    once = rows[~future & ~torch.eye(3, n, dtype=torch.bool)]
    if leak <= s.zero or float(once.min()) > 0.01 * leak:
        return passed("rows without keys see no key, or all alike", "")
    verdict = hazard if s.mask == "additive" else failed
    return verdict(
        "A query that the padding and the causal mask leave without keys "
        "attends to tokens of the future.",
        f"a future token changes its output by {brief(leak)}",
        "0",
        "two masks that hold a finite floor were added, so that cells hidden "
        "twice lie lower than cells hidden once: join boolean masks with & and "
        "fill once.",
    )


def emptied_module(
    s: MultiHead,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Input, memory, a mask with empty rows, and which rows these are."""
    need_mask(s)
    n = 5
    x, memory = s.draw(t=n, memory=n if needs_memory(s) else None)
    mask = tried_mask(s, x.shape[0], n).clone()
    if mask.shape[2] > 1:
        mask[:, :, 1] = False
    elif mask.shape[0] > 1:
        mask[1] = False
    else:
        raise UnsuitableError("such a mask cannot leave a query without keys")
    reach = torch.ones(n, n, dtype=torch.bool)
    reach = reach.tril() if s.causal == "always" else reach
    empty = ~(mask & reach).any(-1)[:, 0]
    return x, memory, mask, empty.expand(x.shape[:2])


@check("core/empty-rows")
def multi_head_empty_rows(s: MultiHead) -> Finding:
    """What a query without keys gives, in each mode."""
    x, memory, mask, empty = emptied_module(s)
    got = {}
    for mode in MODES:
        output = s.run(
            x, memory, mask, mode=mode, module=without_dropout(s.module)
        )
        if output[~empty].isnan().any():
            return failed(
                f"One query without keys spoils other queries, in {mode}.",
                "NaN in rows that see a key",
                "no NaN",
                "NaN is mixed across rows, by a step over the whole tensor or "
                "by a second layer: rows without keys must be finite.",
            )
        if output[empty].isnan().any():
            got[mode] = "nan"
            continue
        source = (x if memory is None else memory) * 1.0
        b, i = empty.nonzero()[0].tolist()
        source[b] = -2 * source[b]
        if memory is None:
            source[b, i] = x[b, i]
        first, second = (source, None) if memory is None else (x, source)
        after = s.run(
            first, second, mask, mode=mode, module=without_dropout(s.module)
        )
        same = far(after[b, i], output[b, i]) <= s.near
        got[mode] = "zeros" if same else "mean"
    kinds = set(got.values())
    measured = ", ".join(f"{kind} in {mode}" for mode, kind in got.items())
    if len(kinds) == 1:
        measured = kinds.pop()
        kinds = {measured}
    wanted = s.empty or "zeros"
    if kinds == {wanted}:
        return passed(measured, wanted)
    verdict = failed if s.empty else hazard
    return verdict(
        "A query that may attend to no key does not give zeros."
        if wanted == "zeros"
        else f"A query that may attend to no key does not give {wanted}.",
        measured.replace("mean", "a mean of hidden values"),
        wanted,
        (
            "a softmax over nothing but -inf is 0 / 0: fill with -inf, take "
            "the softmax, and put 0 into rows without keys, with finite logits "
            "before the softmax for the gradients."
            if "nan" in kinds
            else "a finite floor makes all logits of the row equal: multiply "
            "the weights by mask.any(-1, keepdim=True)."
        ),
    )


@check("core/empty-rows")
def multi_head_empty_rows_backward(s: MultiHead) -> Finding:
    """Gradients with an empty row that the loss leaves out."""
    x, memory, mask, empty = emptied_module(s)
    x = x.requires_grad_()
    module = without_dropout(s.module)
    output = s.run(x, memory, mask, mode="training", module=module)
    inputs = [x, *(p for p in module.parameters() if p.requires_grad)]
    if not output.requires_grad:
        return skipped("The output has no gradient.")
    grads = torch.autograd.grad(output[~empty].sum(), inputs, allow_unused=True)
    bad = sum(g is not None and not bool(g.isfinite().all()) for g in grads)
    if not bad:
        return passed("finite gradients when the loss leaves the row out", "")
    forward = bool(output[empty].isnan().any())
    return nan_gradients(
        s.empty,
        forward,
        f"NaN in {bad} of {len(grads)} gradients (input and parameters)",
    )


@check("core/masks")
def multi_head_nan_spreads(s: MultiHead) -> Finding:
    """NaN in a hidden token reaches the rows of others."""
    need_mask(s)
    n = 6
    x, memory = s.draw(t=n, memory=n if needs_memory(s) else None)
    mask = torch.ones(
        x.shape[0] if s.can("B") else 1, 1, 1, n, dtype=torch.bool
    )
    mask[..., n - 1] = False
    clean = s.run(x, memory, mask)
    if not clean.isfinite().all():
        return failed(
            "NaN appears although every query sees a key and all inputs are "
            "finite.",
            f"{int((~clean.isfinite()).sum())} of {clean.numel()} outputs",
            "0",
            "a mask of 0 and 1 is multiplied by -inf (0 · inf is NaN), or "
            "infinities are subtracted: use masked_fill or torch.where.",
        )
    if hidden_response(s)[0] > s.zero:
        return skipped("Ordinary hidden tokens change the output, too.")
    bad = (x if memory is None else memory).clone()
    bad[:, n - 1] = math.nan
    first, second = (bad, None) if memory is None else (x, bad)
    rows = s.run(first, second, mask)[:, : n - 1]
    if far(rows, clean[:, : n - 1]) <= s.near:
        return passed("NaN in a hidden token changes no other row", "")
    verdict = failed if s.hidden_nan else hazard
    return verdict(
        "NaN in a hidden token reaches the rows of others.",
        "NaN",
        "no change",
        "the weight is 0, but 0 · NaN is NaN: keep padded tokens finite, or "
        "clear their values, v.masked_fill(~tokens, 0).",
    )


def causal_influence(s: MultiHead, mode: str) -> Tensor:
    """Influence (T, T) with a causal mask, however the module gets it."""
    if s.causal is None and not s.can("Tq"):
        raise UnsuitableError("the module can be given no causal mask")
    if needs_memory(s):
        raise UnsuitableError("the module attends to a memory only")
    x, _ = s.draw(t=6)
    module = without_dropout(s.module)
    return influence(s, x, mode=mode, causal=True, module=module)


def long_leak(s: MultiHead) -> float:
    """Influence of the last of 1100 tokens on the outputs before it."""
    x, _ = s.draw(1, 1100)
    other = x.clone()
    other[:, -1] += 1
    before, after = (s.run(y, causal=True)[:, :-1] for y in (x, other))
    return far(before, after)


@check("core/masks")
def multi_head_causal_leak(s: MultiHead) -> Finding:
    """Queries see tokens that come after them."""
    leaks = {m: float(causal_influence(s, m).triu(1).max()) for m in MODES}
    reach = causal_influence(s, MODES[1])
    worst = {m: leak for m, leak in leaks.items() if leak > s.zero}
    if worst:
        size = max(worst.values())
        return failed(
            f"Outputs depend on the future, in {', '.join(worst)}.",
            f"a later token changes an earlier output by {brief(size)}",
            "0",
            "the causal mask is missing on this path, transposed (triu for "
            "tril), shifted by one diagonal, or applied after the softmax; or "
            "heads are split or merged without a transpose.",
        )
    blind = ~(reach > s.zero) & torch.ones_like(reach, dtype=torch.bool).tril()
    counts = (reach > s.zero).sum(-1).tolist()
    width = max(counts)
    if blind.any() and s.window is None:
        i, j = blind.nonzero()[0].tolist()
        if width > 1 and counts == [min(k + 1, width) for k in range(6)]:
            return hazard(
                f"Each query sees the last {width} tokens only.",
                f"tokens seen by each query {counts}",
                "all of the past",
                f"if a sliding window is meant, say window={width}.",
            )
        return failed(
            "Queries do not see all of their past.",
            f"{int(blind.sum())} of {6 * 7 // 2} pairs are blind, for example "
            f"query {i} and key {j}",
            "0",
            "the diagonal is hidden, too (tril(-1)), or heads are split or "
            "merged without a transpose; or there is a sliding window (setting "
            "window).",
        )
    long = attempt(long_leak, s)
    if s.zero < long < math.inf:
        return failed(
            "Outputs depend on the future in a long sequence, not in a short "
            "one.",
            f"with T = 1100, the last token changes an earlier output by "
            f"{brief(long)}",
            "0",
            "the causal mask is cut from a buffer of a fixed length, or built "
            "in blocks.",
        )
    return passed("no output depends on a later token", "")


@check("core/masks")
def multi_head_mask_in_evaluation(s: MultiHead) -> Finding:
    """The mask works in training only, or in evaluation only."""
    leaks = {m: float(causal_influence(s, m).triu(1).max()) for m in MODES}
    bad = [m for m, leak in leaks.items() if leak > s.zero]
    if len(bad) in (0, len(MODES)):
        return passed("the same in every mode", "")
    return failed(
        f"The future is seen in {', '.join(bad)}, and not in "
        f"{', '.join(m for m in MODES if m not in bad)}.",
        "a later token changes an earlier output by "
        f"{brief(max(leaks.values()))}",
        "0",
        "the mask is applied under `if self.training`, or another path is "
        "taken in evaluation (a fused kernel, a cache) that is not given the "
        "mask.",
    )


@check("core/builtin")
def multi_head_training_and_evaluation(s: MultiHead) -> Finding:
    """Without dropout, training and evaluation give the same."""
    x, memory = s.draw(memory=7 if needs_memory(s) else None)
    module = without_dropout(s.module)
    outputs = [s.run(x, memory, mode=m, module=module) for m in MODES]
    error = max(far(outputs[0], o) for o in outputs[1:])
    if error <= s.near:
        return passed(f"outputs differ by {brief(error)}", "0")
    torch.manual_seed(1)
    other = dataclasses.replace(s, seed=s.seed + 1)
    if (
        far(outputs[0], other.run(x, memory, mode=MODES[0], module=module))
        > s.near
    ):
        return skipped("Training is random beside the dropout that was found.")
    return failed(
        "With dropout set to 0, training and evaluation give different "
        "outputs.",
        f"outputs differ by {brief(error)}",
        "0",
        "a step depends on self.training (a mask, a scale, a path).",
    )


@check("core/conventions")
def multi_head_causal_and_mask(s: MultiHead) -> Finding:
    """The causal flag and a mask are given together."""
    need_mask(s)
    if s.causal is None:
        return skipped("The module has no causal flag.")
    x, _ = s.draw(t=6)
    mask = tried_mask(s, x.shape[0], 6)
    try:
        both = influence(s, x, None, mask, causal=True)
    except SubjectError:
        return passed("refuses both", "")
    allowed = mask.expand(x.shape[0], 1, 6, 6)[0, 0]
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    off = ~torch.eye(6, dtype=torch.bool)
    by_mask = float(both.masked_fill(allowed | ~off, 0.0).max())
    by_flag = float(both.masked_fill(past | ~off, 0.0).max())
    what = [
        name
        for name, leak in (("mask", by_mask), ("flag", by_flag))
        if leak > s.zero
    ]
    if not what:
        return passed("both are used", "")
    return failed(
        f"With a causal flag and a mask, the {' and the '.join(what)} is "
        "ignored.",
        f"a hidden token changes outputs by {brief(max(by_mask, by_flag))}",
        "0",
        "one of the two replaces the other: join them, mask & causal, or "
        "refuse the call.",
    )


def memory_run(s: MultiHead, x: Tensor, memory: Tensor, mask: Tensor) -> float:
    """0 when the module takes the mask of the memory in this shape."""
    s.run(x, memory, mask)
    return 0.0


@check("core/cross-attention")
def multi_head_cross_mask(s: MultiHead) -> Finding:
    """Cross-attention uses the mask of the target, or none."""
    if not s.memory:
        return skipped("The module attends to no memory.")
    causal = s.causal == "always" and "causal" not in s.detected
    blind_cause = (
        "the causal mask of the target, or its padding, stands where that of "
        "the memory belongs: cross-attention sees all of the memory, but for "
        "its padding, (B, 1, 1, Tk)."
    )
    for t_q, t_k in ((4, 6), (6, 6)):
        x, memory = s.draw(t=t_q, memory=t_k)
        reach = influence(s, x, memory)
        if float(reach.min()) <= s.zero and not causal:
            return failed(
                "Cross-attention is blind for tokens of the memory.",
                f"with Tq = {t_q}, Tk = {t_k} and no mask, "
                f"{int((reach <= s.zero).sum())} of {reach.numel()} pairs have "
                "no influence",
                "0 pairs",
                blind_cause,
            )
        if s.mask == "none" or not (
            s.memory_mask or s.can("B") or not s.can("Tq")
        ):
            continue
        t, more = s, dict[str, Any]()
        if s.memory_mask:
            shapes = [
                dataclasses.replace(s, mask_shape=shape)
                for shape in ("(B, Tk)", "(B, 1, 1, Tk)")
            ]
            all_of_it = torch.ones(x.shape[0], 1, 1, t_k, dtype=torch.bool)
            runs = [
                attempt(memory_run, u, x, memory, all_of_it) for u in shapes
            ]
            t = shapes[choice(runs)]
            target = torch.ones(x.shape[0], 1, 1, t_q, dtype=torch.bool)
            target[..., 0] = False
            shape = s.mask_shape or MODULE_MASK_SHAPES[0]
            if s.mask_argument and shape != "(B·H, Tq, Tk)":
                sizes = x.shape[0], s.heads, t_q, t_q
                given = in_shape(target, shape, sizes)
                more[s.mask_argument] = mask_as(given, s.mask or "", x.dtype)
        mask = torch.ones(x.shape[0], 1, 1, t_k, dtype=torch.bool)
        mask[..., [1, t_k - 1]] = False
        if not t.can("B"):
            mask = mask[:1]
        t = dataclasses.replace(t, options={**t.options, **more})
        reach = influence(t, x, memory, mask)
        leak = float(reach[:, [1, t_k - 1]].max())
        blind = float(reach[:, [0, 2]].min())
        if leak > s.zero or blind <= s.zero:
            return failed(
                "Cross-attention sees hidden tokens of the memory."
                if leak > s.zero
                else "Cross-attention is blind for tokens of the memory.",
                f"with Tq = {t_q}, Tk = {t_k}, a hidden token changes outputs "
                f"by {brief(leak)}, an allowed one by {brief(blind)}",
                "0 and more than 0",
                blind_cause,
            )
    return passed("all of the memory is seen, but for its hidden tokens", "")


@check("core/dropout")
def multi_head_dropout_in_evaluation(s: MultiHead) -> Finding:
    """Two calls in evaluation differ."""
    x, memory = s.draw(memory=7 if needs_memory(s) else None)
    other = dataclasses.replace(s, seed=s.seed + 1)
    change = far(s.run(x, memory), other.run(x, memory))
    if change <= 1e-9:
        return passed("two calls agree", "")
    return failed(
        "In evaluation, two calls with the same inputs differ.",
        f"outputs differ by {brief(change)}",
        "0",
        "dropout is always on: F.dropout drops unless training=False, and "
        "PyTorch's attention function drops whenever dropout_p > 0: pass "
        "p if self.training else 0.0.",
    )


@check("core/dropout")
def multi_head_dropout_rescaled(s: MultiHead) -> Finding:
    """The mean output in training is the output in evaluation."""
    x, memory = s.draw(b=4, memory=7 if needs_memory(s) else None)
    x = 3 * x  # uneven weights: those of small logits hide what is dropped
    memory = None if memory is None else 3 * memory
    exact = s.run(x, memory).double()
    draws = torch.stack(
        [
            dataclasses.replace(s, seed=seed)
            .run(x, memory, mode="training")
            .double()
            .detach()
            for seed in range(96)
        ]
    )
    spread = draws.std(0)
    if float(spread.max()) <= s.near:
        return skipped("Training drops nothing (no dropout, or a share of 0).")
    if not draws.isfinite().all():
        return failed(
            "Dropout makes NaN.",
            f"{int((~draws.isfinite()).sum())} of {draws.numel()} outputs",
            "0",
            "the weights are normalised after dropout, and a row may lose all "
            "of them: drop after the softmax and divide by 1 - p.",
        )
    z = (draws.mean(0) - exact) / (spread / math.sqrt(len(draws)) + 1e-12)
    score = float((z**2).mean())
    if score < 3:
        return passed(
            f"mean squared deviation {brief(score)} standard errors", "1"
        )
    return failed(
        "The mean output in training is not the output in evaluation.",
        f"mean squared deviation {brief(score)} standard errors",
        "about 1",
        "what is kept must be divided by 1 - p, after the softmax and without "
        "normalising again: nn.Dropout does so.",
    )


@check("core/multi-head")
def multi_head_batch_leak(s: MultiHead) -> Finding:
    """Examples see each other."""
    x, memory = s.draw(3, 4, memory=5 if needs_memory(s) else None)
    before = s.run(x, memory)
    other, second = x.clone(), None if memory is None else memory.clone()
    other[0] *= -1.5
    if second is not None:
        second[0] *= -1.5
    change = far(before[1:], s.run(other, second)[1:])
    if change <= s.near:
        return passed(f"outputs change by {brief(change)}", "0")
    return failed(
        "One example changes the outputs of another.",
        f"outputs change by {brief(change)}",
        "0",
        "batch and time are exchanged (the setting batch_first), or a view "
        "mixes the batch with another axis: transpose before you reshape.",
    )


@check("practice/bugs-shapes")
def multi_head_batch_time_exchanged(s: MultiHead) -> Finding:
    """Attention runs over the examples of the batch."""
    if s.causal == "always":
        x, _ = s.draw(3, 4)
    x, memory = s.draw(3, 4, memory=4 if needs_memory(s) else None)
    source = x if memory is None else memory

    def run(changed: Tensor) -> Tensor:
        return s.run(changed) if memory is None else s.run(x, changed)

    before = run(source)
    other = source.clone()
    other[0] *= -1.5
    examples = far(before[1:], run(other)[1:])
    other = source.clone()
    other[:, 0] *= -1.5
    tokens = far(before[:, 1:], run(other)[:, 1:])
    measured = f"outputs change by {brief(examples)} with another example, by "
    measured += f"{brief(tokens)} with another token"
    if tokens > s.near:
        return passed(measured, "0 and more than 0")
    if examples <= s.near:
        return failed(
            "Tokens do not see each other at all.",
            measured,
            "0 and more than 0",
            "attention runs over the heads or the features: the two last axes "
            "of the logits must be queries and keys, (B, H, Tq, Tk), so "
            "transpose (B, T, H, d) to (B, H, T, d) first.",
        )
    return failed(
        "Attention runs over the examples of the batch instead of the tokens.",
        measured,
        "0 and more than 0",
        "batch and time are exchanged: the module wants (T, B, C) and is given "
        "(B, T, C), batch_first=True is missing, or a transpose is.",
    )


@check("core/order")
def multi_head_key_order(s: MultiHead) -> Finding:
    """Shuffled tokens do not give shuffled outputs."""
    if s.causal == "always" or s.positions or s.rotate or s.bias or s.window:
        return skipped("With positions or a causal mask the order matters.")
    x, memory = s.draw(t=6, memory=6 if needs_memory(s) else None)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    source = x if memory is None else memory
    before = s.run(x, memory)
    if memory is None:
        change = far(before[:, order], s.run(x[:, order]))
    else:
        change = far(before, s.run(x, source[:, order]))
    if change <= s.near:
        return passed(f"outputs differ by {brief(change)}", "0")
    try:
        placed = layout_found(s)[0] == "right"
    except (SubjectError, UnsuitableError):
        placed = False
    verdict = hazard if placed else failed
    return verdict(
        "Shuffled tokens do not give shuffled outputs: tokens are told apart "
        "by their place.",
        f"outputs differ by {brief(change)}",
        "0",
        "if the code has positions or is causal, say so (settings positions, "
        "rotate, causal, bias); otherwise heads are split or merged by a view "
        "that mixes tokens and features.",
    )


FAST = {
    "split": ("split on the fast axis", "keys split on the fast axis"),
    "merge": ("merge on the fast axis",),
}


def pattern(n: int, h: int, seen: Tensor, split: bool, merge: bool) -> Tensor:
    """Which tokens an output row depends on, where axes are mixed.

    A split by view(B, H, T, d) puts token (h·T + t) // H at place (h, t); a
    merge by view(B, T, C) puts place divmod(r·H + j, T) into row r.
    """
    result = torch.zeros(n, n, dtype=torch.bool)
    for r in range(n):
        for j in range(h):
            head, t = divmod(r * h + j, n) if merge else (j, r)
            for other in [*seen[t].nonzero().flatten().tolist(), t]:
                token = (head * n + other) // h if split else other
                result[r, token] = True
    return result


def layout_found(s: MultiHead) -> tuple[str, int]:
    """Which of split and merge are wrong, by the pattern of influence.

    Returns
    -------
    str
        "right", "split", "merge", "both" or "unknown".
    int
        How many pairs of tokens differ from the right pattern.
    """
    h, n = s.heads, 6
    if h == 1:
        raise UnsuitableError("there is one head, or n_heads is not known")
    if needs_memory(s):
        raise UnsuitableError("the module attends to a memory only")
    x, _ = s.draw(t=n)
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    # Where no causal mask can be given, there may be one that leaks.
    asks = s.causal is not None or s.can("Tq")
    got = influence(s, x, causal=asks) > s.zero
    wrong = {
        name: pattern(n, h, seen, split, merge)
        for name, split, merge in (
            ("right", False, False),
            ("split", True, False),
            ("merge", False, True),
            ("both", True, True),
        )
    }
    differ = int((got != wrong["right"]).sum())
    for name, expected in wrong.items():
        if torch.equal(got, expected):
            return name, differ
    return "unknown", differ


def layout_finding(s: MultiHead, part: str, cause: str) -> Finding:
    """Finding about the split or the merge of heads."""
    try:
        found, pairs = layout_found(s)
    except UnsuitableError:
        found, pairs = "unknown", 0
    likely = matching(s)
    words = "unknown" if likely is None else likely["layout"]
    if words in FAST[part]:
        return failed(
            f"The axes of heads and head width are exchanged in the {part}.",
            f"the output is that of {words}",
            "that of heads as the slower axis",
            "the split makes (H, d) of C, and the merge C of (H, d), in this "
            "order: view(B, T, H, d), not view(B, T, d, H), for queries, keys "
            "and values alike.",
        )
    if found == "right":
        return passed("outputs depend on the tokens that the mask allows", "")
    if found == "unknown" and words == "right":
        return passed("the weights give the same output", "")
    if found == "unknown" and words == "unknown":
        try:
            mixed = multi_head_key_order(s)
        except (SubjectError, UnsuitableError):
            mixed = skipped("")
        if mixed.verdict != "fail":
            return skipped(
                "Neither a mask nor the weights (setting weights) show it."
            )
        return failed(
            "Heads are split or merged in a way that mixes tokens.",
            mixed.measured + " when tokens are shuffled",
            "0",
            cause,
        )
    if found == "unknown":
        found = words
    measured = (
        f"{pairs} pairs of tokens depend on each other otherwise, as a wrong "
        f"{'split and merge' if found == 'both' else found} would have it"
    )
    if found not in (part, "both"):
        return passed(f"the {found} is wrong, not the {part}", "")
    return failed(
        f"Heads are {'merged' if part == 'merge' else 'split'} by a view that "
        "mixes tokens and features"
        + (
            "; split and merge are both wrong, so that a test for the future "
            "alone sees nothing."
            if found == "both"
            else "."
        ),
        measured if pairs else "the output that such a view gives",
        "0 pairs" if pairs else "that of a transpose",
        cause,
    )


@check("core/head-layout")
def multi_head_head_split(s: MultiHead) -> Finding:
    """Heads are split without a transpose."""
    return layout_finding(
        s,
        "split",
        "x.view(B, H, T, d) on (B, T, C): split with view(B, T, H, d), then "
        "transpose(1, 2).",
    )


@check("core/head-layout")
def multi_head_head_merge(s: MultiHead) -> Finding:
    """Heads are merged without a transpose."""
    return layout_finding(
        s,
        "merge",
        "reshape(B, T, C) on (B, H, T, d): transpose(1, 2) first, then "
        "reshape(B, T, C).",
    )


# --- Multi-head modules whose weights are known -------------------------------

ROLES = {
    "q": ("q", "query", "queries", "wq", "qs", "toq", "qry"),
    "k": ("k", "key", "keys", "wk", "ks", "tok"),
    "v": ("v", "value", "values", "wv", "vs", "tov", "val"),
    "kv": ("kv", "wkv", "tokv"),
    "qkv": ("qkv", "wqkv", "toqkv", "in", "attn", "attention"),
    "out": (
        "o", "out", "output", "wo", "dense", "unifyheads", "unify", "final",
        "concat", "toout", "combine", "merge", "mix",
    ),
}  # fmt: skip
FILLERS = {
    "w", "proj", "projection", "linear", "lin", "layer", "to", "fc", "weight",
    "bias", "weights", "net", "c", "map", "transform", "matrix", "project",
    "head", "heads", "self", "mha", "module", "dense",
}  # fmt: skip


def role(name: str) -> str | None:
    """What a parameter is for, by its name."""
    words = name.lower().replace(".", "_").split("_")
    words = [w for w in words if not w.isdigit()]
    if "query_key_value" in name.lower():
        return "qkv"
    if "key_value" in name.lower():
        return "kv"
    for word in reversed(words):
        for kind, names in ROLES.items():
            if word in names and (word not in FILLERS or word == "dense"):
                return kind
    if any(w in ("proj", "projection", "fc", "linear") for w in words):
        return "out"
    return None


def gathered(s: MultiHead) -> dict[str, Tensor]:
    """Parameters by role, (rows, C) each, and biases as role + "_bias"."""
    linear = {
        f"{name}.weight"
        for name, part in s.module.named_modules()
        if isinstance(part, nn.Linear)
    }
    groups: dict[str, list[Tensor]] = {}
    unnamed: list[tuple[Tensor, Tensor | None]] = []
    parameters: dict[str, Tensor] = dict(s.module.named_parameters())
    for name, parameter in parameters.items():
        p: Tensor = parameter
        kind = role(name.removesuffix(".weight").removesuffix(".bias"))
        if kind is None:
            if p.ndim == 2:
                bias = parameters.get(name.removesuffix("weight") + "bias")
                unnamed.append((p, bias))
            continue
        p = p.detach().double()
        if p.ndim == 1:
            groups.setdefault(kind + "_bias", []).append(p)
        elif p.ndim == 3 and kind != "out":  # (H, C, d), or (H, d, C)
            p = p.mT if p.shape[1] == s.d_model else p
            groups.setdefault(kind, []).append(p.flatten(0, 1))
        elif p.ndim == 3:  # (H, d, C)
            groups.setdefault(kind, []).append(p.flatten(0, 1).mT)
        elif p.ndim == 2:
            turned = name not in linear and (
                p.shape[0] == s.d_model != p.shape[1]
            )
            fits = name in linear or kind == "out" or not turned
            groups.setdefault(kind, []).append(p if fits else p.mT)
    if not groups.keys() & {"q", "qkv"} and len(unnamed) == 4:
        for kind, (p, bias) in zip(
            ("q", "k", "v", "out"), unnamed, strict=True
        ):
            groups[kind] = [p.detach().double()]
            if bias is not None:
                groups[kind + "_bias"] = [bias.detach().double()]
    return {
        kind: torch.cat(parts)
        if kind != "out" or len(parts) == 1
        else parts[-1]
        for kind, parts in groups.items()
    }


def rearranged(fused: Tensor, parts: int, h: int, how: str) -> list[Tensor]:
    """Rows of a fused projection, taken apart into head after head."""
    d = len(fused) // (parts * h)
    rest = fused.shape[1:]
    if how == "parts":
        return list(fused.chunk(parts))
    shape = {
        "heads": (h, parts, d),
        "last": (h, d, parts),
        "width": (d, parts, h),
    }
    grid = fused.reshape(*shape[how], *rest)
    if how == "width":
        grid = grid.movedim((1, 2), (0, 1))  # (parts, h, d)
    else:
        grid = grid.movedim(1 if how == "heads" else 2, 0)
    return [part.flatten(0, 1) for part in grid]


def candidates(s: MultiHead) -> list[dict[str, Tensor]]:
    """Ways to read the parameters as projections; the likeliest first."""
    if s.weights:
        given = s.weights(s.module)
        return [
            {k: x.detach().double() for k, x in given.items() if x is not None}
        ]
    try:
        found = gathered(s)
    except (RuntimeError, IndexError):
        return []
    h, h_kv = s.heads, s.n_kv_heads or s.heads
    result = []
    flips = [False]
    if not any(isinstance(m, nn.Linear) for m in s.module.modules()):
        flips = [False, True]  # weights may be (in, out)
    for flip in flips:
        w = {
            k: x.mT if flip and x.ndim == 2 and x.shape[0] == x.shape[1] else x
            for k, x in found.items()
        }
        if "qkv" in w and "q" not in w:
            rows = len(w["qkv"])
            arrangements = ["parts", "heads", "last", "width"]
            if h != h_kv:
                arrangements = ["grouped"]
            for how in arrangements:
                c: dict[str, Tensor] = {
                    k: x for k, x in w.items() if k.startswith("out")
                }
                for suffix in ("", "_bias"):
                    fused = w.get("qkv" + suffix)
                    if fused is None or len(fused) != rows:
                        continue
                    if how == "grouped":
                        d = rows // (h + 2 * h_kv)
                        pieces = list(
                            torch.split(fused, [h * d, h_kv * d, h_kv * d])
                        )
                    elif rows % (3 * h):
                        continue
                    else:
                        pieces = rearranged(fused, 3, h, how)
                    for kind, piece in zip("qkv", pieces, strict=True):
                        c[kind + suffix] = piece
                result.append(c)
        elif "kv" in w:
            for how in ("parts", "heads"):
                c = {k: x for k, x in w.items() if not k.startswith("kv")}
                for suffix in ("", "_bias"):
                    if "kv" + suffix in w:
                        pieces = rearranged(w["kv" + suffix], 2, h_kv, how)
                        c["k" + suffix], c["v" + suffix] = pieces
                result.append(c)
        else:
            result.append(w)
    return [c for c in result if {"q", "k", "v"} <= c.keys()]


def projected(x: Tensor, w: Mapping[str, Tensor], kind: str) -> Tensor:
    """Linear layer of one role."""
    return nn.functional.linear(x.double(), w[kind], w.get(kind + "_bias"))


@dataclass(frozen=True)
class Guess:
    """What a module might do: right by default, one thing changed at a time."""

    layout: str = "right"
    law: str = "right"
    factor: float | None = None
    groups: str = "right"
    axis: str = "right"
    bias: str = "right"
    names: str = "right"


def guesses(s: MultiHead, d: int, t_k: int) -> list[Guess]:
    """Right code first, then one mistake at a time."""
    c = s.d_model or 1
    laws = {
        "1: the scale is missing, multiply q·k by 1 / sqrt(d)": 1.0,
        "1 / d: the scale is applied twice, for example by the code and "
        "by a function that scales itself (pass scale=1.0 there)": 1 / d,
        "sqrt(d): the scale is inverted, divide by sqrt(d)": math.sqrt(d),
        f"1 / sqrt(C) with C = {c}: the model width stands for the head width, "
        "use q.shape[-1] after the split": 1 / math.sqrt(c),
        "1 / sqrt(H): the number of heads stands for the width": 1
        / math.sqrt(s.heads),
        "1 / sqrt(T): the length stands for the width": 1 / math.sqrt(t_k),
        "1 / d ** (1/4): only one of q and k got its share": d**-0.25,
        "1 / C": 1 / c,
    }
    return [
        Guess(),
        *(Guess(layout=x) for x in ("split", "merge", "both")),
        Guess(layout="right on the fast axis"),
        *(Guess(layout=x) for x in FAST["split"] + FAST["merge"]),
        *(Guess(law=law, factor=f) for law, f in laws.items()),
        *(
            Guess(groups=x)
            for x in ("tile", "time", "first")
            if s.n_kv_heads != s.n_heads
        ),
        *(Guess(axis=x) for x in ("queries", "heads", "examples")),
        *(Guess(bias=x) for x in ("scaled", "negative", "missing") if s.bias),
        *(Guess(names=x) for x in ("q and k", "k and v", "q and v")),
    ]


def guessed_output(
    s: MultiHead,
    w: Mapping[str, Tensor],
    x: Tensor,
    memory: Tensor | None,
    guess: Guess,
) -> Tensor:
    """Output of right code, or of code with the mistake that is guessed."""
    source = x if memory is None else memory
    h, h_kv = s.heads, s.n_kv_heads or s.heads
    kinds = dict(zip("qkv", "qkv", strict=True))
    if guess.names != "right":
        one, other = guess.names.split(" and ")
        kinds[one], kinds[other] = other, one
    heads = []
    for kind, y, n in (("q", x, h), ("k", source, h_kv), ("v", source, h_kv)):
        p = projected(y, w, kinds[kind])
        b, t, width = p.shape
        if guess.layout in ("split", "both"):
            heads.append(p.reshape(b, n, t, width // n))
        elif guess.layout == "keys split on the fast axis" and kind != "k":
            heads.append(p.reshape(b, t, n, width // n).transpose(1, 2))
        elif "fast" in guess.layout and not guess.layout.startswith("merge"):
            heads.append(p.reshape(b, t, width // n, n).permute(0, 3, 1, 2))
        else:
            heads.append(p.reshape(b, t, n, width // n).transpose(1, 2))
    q, k, v = heads
    g = h // h_kv
    if guess.groups == "tile":
        k, v = k.repeat(1, g, 1, 1), v.repeat(1, g, 1, 1)
    elif guess.groups == "first":
        k, v = k[:, :1], v[:, :1]
    elif guess.groups == "time":
        k, v = (
            y.repeat_interleave(g, 2).reshape(y.shape[0], h, y.shape[2], -1)
            for y in (k, v)
        )
    else:
        k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    if s.rotate:
        q, k = s.rotate(q), s.rotate(k)
    t_q, t_k = q.shape[2], k.shape[2]
    right = s.scale or 1 / math.sqrt(q.shape[-1])
    factor = right if guess.factor is None else guess.factor
    # (B, H, Tq, Tk)
    logits = s.score(q, k) if s.score else q @ k.mT * factor
    if s.soft_cap:
        logits = s.soft_cap * torch.tanh(logits / s.soft_cap)
    if s.bias:
        weight = {"scaled": right, "negative": -1.0, "missing": 0.0}
        logits = (
            logits + weight.get(guess.bias, 1.0) * s.bias(t_q, t_k).double()
        )
    if s.causal == "always":
        i = torch.arange(t_q)[:, None] + (t_k - t_q)
        j = torch.arange(t_k)
        hidden = j > i
        if s.window:
            hidden = hidden | (j <= i - s.window)
        logits = logits.masked_fill(hidden, -math.inf)
    if s.sink is not None:
        sink = torch.as_tensor(s.sink, dtype=torch.float64).reshape(-1, 1, 1)
        column = sink.expand(*logits.shape[:3], 1)
        weights = torch.cat([logits, column], -1).softmax(-1)[..., :-1]
    else:
        axes = {"queries": 2, "heads": 1, "examples": 0}
        weights = logits.softmax(axes.get(guess.axis, -1))
    output = weights @ v  # (B, H, Tq, d)
    if guess.layout in ("merge", "both"):
        merged = output.reshape(len(x), t_q, -1)
    elif guess.layout in ("right on the fast axis", *FAST["merge"]):
        merged = output.permute(0, 2, 3, 1).flatten(2)
    else:
        merged = output.transpose(1, 2).flatten(2)
    return projected(merged, w, "out") if "out" in w else merged


def matching(s: MultiHead) -> dict[str, Any] | None:
    """What reproduces the output of the module, right code first.

    Returns
    -------
    dict or None
        The fields of a `Guess`, and "error"; None if nothing does.
    """
    if not s.found:
        s.found.append(match(s))
    result: dict[str, Any] | None = s.found[0]
    return result


def match(s: MultiHead) -> dict[str, Any] | None:
    """What `matching` returns, which keeps it."""
    if s.n_heads is None:
        return None
    memory_length = 7 if s.memory else None
    x, memory = s.draw(b=3, t=5, memory=memory_length)
    asks: list[tuple[Tensor, Tensor | None]] = [(x, memory)]
    if memory is not None:  # of another length, of the same, and none
        asks += [(x, memory[:, :5])] + [(x, None)] * (not needs_memory(s))
    outputs = [s.run(*ask).double().detach() for ask in asks]
    level = max(map(size, outputs)) + 1e-9
    limit = max(10 * s.near, 1e-5)
    options = candidates(s)

    def error(t: MultiHead, w: Mapping[str, Tensor], guess: Guess) -> float:
        try:
            return max(
                far(guessed_output(t, w, *ask, guess), output) / level
                for ask, output in zip(asks, outputs, strict=True)
            )
        except (RuntimeError, IndexError):
            return math.inf

    subjects = [s]
    if s.causal is None and s.mask == "none" and memory is None:
        subjects.append(dataclasses.replace(s, causal="always"))
    for index in range(len(guesses(s, 1, 1))):
        for t, w in itertools.product(subjects, options):
            d = len(w["q"]) // s.heads
            t_k = (x if memory is None else memory).shape[1]
            real = guesses(s, d, t_k)[index]
            found = error(t, w, real)
            if found < limit:
                wrong = wrong_sizes(t, w, real, level * limit)
                return {
                    **dataclasses.asdict(real),
                    "error": found,
                    "sizes": wrong,
                }
    for t, w in itertools.product(subjects, options):
        measure = functools.partial(error, t, w)
        factor, found = fitted_factor(measure)
        if found < limit:
            guess = Guess(law="a number of its own", factor=factor)
            return {**dataclasses.asdict(guess), "error": found, "sizes": []}
    return None


def wrong_sizes(
    s: MultiHead, w: Mapping[str, Tensor], guess: Guess, limit: float
) -> list[str]:
    """Sizes at which the module does something else than the guess."""
    wrong = []
    for b, t in ((1, 1), (2, s.heads), (s.heads, s.heads), (1, 9), (2, 33)):
        x, memory = s.draw(b, t, memory=t if needs_memory(s) else None)
        output = guessed_output(s, w, x, memory, guess)
        try:
            if far(s.run(x, memory), output) > 10 * limit:
                wrong.append(f"(B, T) = {(b, t)}")
        except SubjectError as error:
            if t > 5:
                continue  # a buffer may be short: refusing is right
            wrong.append(f"(B, T) = {(b, t)}, where it raises {error}")
    return wrong


def fitted_factor(measure: Callable[[Guess], float]) -> tuple[float, float]:
    """Positive factor with the smallest error, and that error."""
    grid = [2 ** (i / 2) for i in range(-16, 13)]

    def error(factor: float) -> float:
        return measure(Guess(factor=factor))

    errors = [error(f) for f in grid]
    best = errors.index(min(errors))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    for _ in range(60):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if error(a) < error(b):
            high = b
        else:
            low = a
    return (low + high) / 2, error((low + high) / 2)


def head_sizes(s: MultiHead) -> tuple[int, int]:
    """Head width d, and the number of keys in `matching`."""
    return len(candidates(s)[0]["q"]) // s.heads, 7 if needs_memory(s) else 5


def law_text(s: MultiHead, found: Mapping[str, Any]) -> str:
    """What is known about a factor."""
    laws = [
        guess.law
        for guess in guesses(s, *head_sizes(s))
        if guess.factor and abs(guess.factor / found["factor"] - 1) < 1e-6
    ]
    if not laws:
        return (
            "it is none of the usual slips: look for d, C, H and T in the code "
            "that scales, and give the setting scale if it is meant."
        )
    return "the factor is " + ". Or it is ".join(laws) + "."


def matched(s: MultiHead) -> dict[str, Any]:
    """What reproduces the output; leaves the check where nothing does."""
    found = matching(s)
    if found is None:
        raise UnsuitableError(
            f"n_heads = {s.n_heads} may be wrong, or the projections were not "
            "recognised: give n_heads and weights, and what else the module "
            "does (rotate, scale, bias, soft_cap, sink)"
        )
    return found


@check("core/scaling")
def multi_head_scale(s: MultiHead) -> Finding:
    """Factor between q·k and the logits."""
    found = matched(s)
    if found["law"] == "right":
        return passed("the factor of the specification gives the output", "")
    return failed(
        "The logits are q·k times a wrong factor.",
        f"the output is that of the factor {brief(found['factor'])}",
        "1 / sqrt(d), or the setting scale",
        law_text(s, found),
    )


@check("core/multi-head")
def multi_head_grouped_heads(s: MultiHead) -> Finding:
    """Which query heads use which key and value head."""
    if s.n_kv_heads == s.n_heads:
        return skipped("As many key heads as query heads (setting n_kv_heads).")
    found = matched(s)
    if found["groups"] == "right":
        return passed("query head h uses key head h // (H / Hkv)", "")
    wrong = {
        "tile": "heads are tiled, [0, 1, 0, 1], by repeat() or expand() in the "
        "wrong order: use repeat_interleave(H // Hkv, dim=1) on (B, Hkv, T, "
        "d).",
        "time": "repeat_interleave runs over dim 2 of (B, Hkv, T, d), which "
        "repeats tokens: use dim=1.",
        "first": "the first key head is broadcast to all query heads: use "
        "repeat_interleave(H // Hkv, dim=1) on (B, Hkv, T, d).",
    }
    return failed(
        "Query heads use the wrong key and value heads.",
        f"the output is that of the repetition {found['groups']!r}",
        "that of query head h with key head h // (H / Hkv)",
        wrong[found["groups"]],
    )


def repeated(s: MultiHead) -> tuple[float, float]:
    """What equal tokens change, and how far that is from linear growth.

    The weights sum to 1, so that equal values give that value. Where
    they do not, outputs grow with the number of tokens; beside a key that is
    always there (a sink, a zero key) they grow less and less.
    """
    x, memory = s.draw(t=1, memory=1 if needs_memory(s) else None)
    outputs = []
    for n in (1, 2, 3):
        source = (
            (x if memory is None else memory).expand(-1, n, -1).contiguous()
        )
        first, second = (source, None) if memory is None else (x, source)
        outputs.append(s.run(first, second)[:, :1].double())
    one, two, three = outputs
    return far(two, one), far(three - two, two - one)


@check("core/lookup")
def multi_head_softmax_axis(s: MultiHead) -> Finding:
    """The softmax runs over another axis than the keys."""
    found = matching(s)
    axis = "right" if found is None else found["axis"]
    if axis != "right":
        return failed(
            f"The weights sum to 1 over the {axis}, not over the keys.",
            f"the output is that of a softmax over the {axis}",
            "a softmax over the keys",
            "the softmax runs over the wrong axis: softmax(dim=-1) of logits "
            "(B, H, Tq, Tk). nn.Softmax() without dim, and dim=1, are the "
            "usual slips.",
        )
    if s.sink is not None or s.positions:
        return skipped("With a sink or positions equal tokens may differ.")
    error, bend = repeated(s)
    measured = f"two equal tokens are {brief(error)} from one"
    if error <= 10 * s.near or found is not None:
        return passed(measured, "0")
    verdict = failed if bend <= 1e-3 * error else hazard
    return verdict(
        "The weights of a query do not sum to 1.",
        measured,
        "0",
        "the softmax runs over another axis than the keys (softmax(dim=-1) of "
        "logits (B, H, Tq, Tk)), is missing, or a sink takes its share "
        "(setting sink).",
    )


@check("core/scaling")
def multi_head_bias_scaled(s: MultiHead) -> Finding:
    """The scale is also applied to a bias."""
    if s.bias is None:
        return skipped("No bias (setting bias).")
    found = matched(s)
    if found["bias"] == "right":
        return passed("the bias counts once", "")
    words = {
        "scaled": "is scaled, too: scale q·k first, (q·k) · scale + bias.",
        "negative": "has the wrong sign: add it.",
        "missing": "is ignored on this path.",
    }
    return failed(
        "The bias does not count once.",
        f"the output is that of a bias that is {found['bias']}",
        "q·k · scale + bias",
        f"the bias {words[found['bias']]}",
    )


@check("core/multi-head")
def multi_head_reference(s: MultiHead) -> Finding:
    """The output against the specification, with the module's own weights."""
    found = matching(s)
    if found is None:
        if s.weights is None:
            if not candidates(s):
                matched(s)
            return hazard(
                "The weights that were found do not explain the output.",
                "no known mistake reproduces it",
                "the output of the specification",
                "a setting is missing (n_heads, rotate, scale, bias, soft_cap, "
                "sink, weights), or the code does something else.",
            )
        return failed(
            "The output is not that of multi-head attention with these "
            "weights.",
            "no known mistake reproduces it",
            "the output of the specification",
            "the other failures say what is wrong; if there is none, a setting "
            "is missing (rotate, scale, bias, soft_cap, sink).",
        )
    wrong = {
        k: v
        for k, v in found.items()
        if v != "right" and k not in ("error", "factor", "sizes")
    }
    if not wrong and found["sizes"]:
        return failed(
            "The output is right at some sizes only.",
            "wrong for " + "; ".join(found["sizes"]),
            "right for all",
            "a squeeze, a view or a buffer depends on the length or the batch: "
            "look for squeeze(), for axes told apart by their size, and for "
            "masks and tables of a fixed length.",
        )
    if not wrong:
        return passed(f"relative error {brief(found['error'])}", "0")
    what, how = next(iter(wrong.items()))
    told = {
        "layout": "see head_split and head_merge.",
        "law": "see scale.",
        "groups": "see grouped_heads.",
        "axis": "see softmax_axis.",
        "bias": "see bias_scaled.",
        "names": f"the projections of {how} are exchanged: compare the order "
        "in which fused weights are cut, and that of the arguments.",
    }
    return failed(
        "The output is not that of the specification; one mistake explains it.",
        f"relative error {brief(found['error'])} with that mistake",
        "the output of right code",
        told[what],
    )


@check("core/softmax")
def multi_head_half_overflow(s: MultiHead) -> Finding:
    """In float16 q·k overflows before it is scaled down."""
    options = candidates(s) if s.n_heads else []
    if not options or s.scale or s.soft_cap:
        return skipped("The weights are not known, or the scale is another.")
    x, memory = s.draw(memory=7 if needs_memory(s) else None)
    half = copied(s.module).half()
    t = dataclasses.replace(s, module=half, dtype=torch.float16)
    if matching(s) is None:
        return skipped("The weights do not explain the output.")
    w = options[0]
    q, k = (
        projected(y, w, kind).reshape(*y.shape[:2], n, -1).transpose(1, 2)
        for y, kind, n in (
            (x, "q", s.heads),
            (x if memory is None else memory, "k", s.n_kv_heads or s.heads),
        )
    )
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    raw, d = float((q @ k.mT).max()), q.shape[-1]
    size = math.sqrt(65504 * min(2.0, math.sqrt(d) / 1.5) / raw)
    try:
        small = t.run(x.half(), None if memory is None else memory.half())
        output = t.run(
            (x * size).half(),
            None if memory is None else (memory * size).half(),
        )
    except SubjectError:
        return skipped("The module does not take float16.")
    if not small.isfinite().all() or size * float(small.abs().max()) > 3e4:
        return skipped("Such inputs overflow elsewhere, too.")
    if output.isfinite().all():
        return passed("finite where q·k overflows float16", "")
    verdict = failed if torch.float16 in (s.dtype, *s.dtypes) else hazard
    return verdict(
        "In float16 the logits overflow before they are scaled.",
        f"{int((~output.isfinite()).sum())} of {output.numel()} outputs not "
        "finite",
        "finite outputs at q·k = 131008 at most, before the scale",
        "q·k is divided after the product: scale q first, (q · scale) @ k, or "
        "take the product in float32.",
    )


@check("practice/bugs-numbers")
def multi_head_soft_cap_after_mask(s: MultiHead) -> Finding:
    """The cap lifts hidden keys from -inf to -cap."""
    if s.soft_cap is None:
        return skipped("No soft cap (setting soft_cap).")
    leak = 0.0
    if s.causal == "always" or s.can("Tq"):
        leak = float(causal_influence(s, MODES[1]).triu(1).max())
    if s.mask != "none":
        leak = max(leak, hidden_influence(s)[0])
    if leak <= s.zero:
        return passed("hidden tokens have no influence", "")
    return failed(
        "Hidden tokens keep the weight of the lowest capped logit.",
        f"a hidden token changes outputs by {brief(leak)}",
        "0",
        "tanh turns -inf into -1, so the cap must come before the mask: scale, "
        "cap, mask, softmax.",
    )


@check("core/masks")
def multi_head_window_length(s: MultiHead) -> Finding:
    """How many keys a sliding window holds."""
    if s.window is None:
        return skipped("No window (setting window).")
    n = s.window + 4
    x, _ = s.draw(t=n)
    reach = influence(s, x, causal=True) > s.zero
    seen = reach.sum(-1).tolist()
    wanted = [min(i + 1, s.window) for i in range(n)]
    return window_seen(seen, wanted, s.window)


@check("practice/bugs-positions")
def multi_head_documents_leak(s: MultiHead) -> Finding:
    """Packed documents see each other."""
    if s.documents is None:
        return skipped("No argument takes document ids (setting documents).")
    x, _ = s.draw(t=6)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]])
    t = dataclasses.replace(s, options={**s.options, s.documents: ids})
    before = t.run(x)
    first = (ids == 0)[..., None]
    after = t.run(torch.where(first, -2 * x, x))
    leak = far(before.masked_fill(first, 0.0), after.masked_fill(first, 0.0))
    if leak <= s.zero:
        return passed("the second document does not see the first", "")
    return failed(
        "The second document sees the first.",
        f"its outputs change by {brief(leak)} with the first document",
        "0",
        "the mask is causal only; resetting the positions does not separate "
        "documents: join it with ids[:, :, None] == ids[:, None, :].",
    )


def frozen(module: nn.Module) -> nn.Module:
    """Copy whose parameters require no gradient."""
    return copied(module).requires_grad_(False)


@check("core/scaling")
def multi_head_gradients(s: MultiHead) -> Finding:
    """Gradient along one direction against a difference of outputs."""
    if s.dtype != torch.float64:
        return skipped("Differences need float64.")
    x, memory = s.draw(memory=7 if needs_memory(s) else None)
    g = generator(s, 8)
    directions, inputs = [], [x.clone().requires_grad_()]
    module = without_dropout(s.module)
    inputs += [p for p in module.parameters() if p.requires_grad]
    for y in inputs:
        directions.append(
            torch.randn(y.shape, generator=g, dtype=torch.float64)
        )
    output = s.run(inputs[0], memory, module=module)
    if not output.requires_grad:
        return failed(
            "The output has no gradient.",
            "requires_grad is False",
            "True",
            "the code runs under no_grad, detaches, or leaves PyTorch.",
        )
    plain = far(output, s.run(x, memory, module=frozen(module)))
    if plain > s.near:
        return failed(
            "The output is another one when nothing requires a gradient.",
            f"outputs differ by {brief(plain)}",
            "0",
            "a path is chosen by requires_grad or by the gradient mode, and "
            "one of them drops the mask or the scale.",
        )
    seed = torch.randn(output.shape, generator=g, dtype=torch.float64)
    grads = torch.autograd.grad(output, inputs, seed, allow_unused=True)

    def moved(index: int, step: float) -> float:
        with torch.no_grad():
            inputs[index].add_(directions[index], alpha=step)
            result = float(
                (s.run(inputs[0], memory, module=module) * seed).sum()
            )
            inputs[index].add_(directions[index], alpha=-step)
        return result

    names = ["x", *(n for n, p in module.named_parameters() if p.requires_grad)]
    wrong = {}
    for i, (name, grad) in enumerate(zip(names, grads, strict=True)):
        # Two steps: where they disagree, the output is not smooth (or float32).
        numeric, coarse = (
            (moved(i, h) - moved(i, -h)) / (2 * h) for h in (1e-3, 2e-3)
        )
        exact = 0.0 if grad is None else float((grad * directions[i]).sum())
        size = abs(numeric) + abs(exact) + 1e-3
        if abs(numeric - exact) > 0.02 * size + 10 * abs(numeric - coarse):
            wrong[name] = exact, numeric
    if not wrong:
        return passed("gradients agree with differences of outputs", "")
    name, (exact, numeric) = next(iter(wrong.items()))
    return failed(
        f"The gradient of {', '.join(wrong)} is wrong.",
        f"{brief(exact)} along a direction in {name}",
        f"{brief(numeric)}, by a difference of outputs",
        "a step is detached (no_grad, detach, .data, a clamp), or a backward "
        "pass written by hand is wrong.",
    )


@check("core/multi-head")
def multi_head_inputs_changed(s: MultiHead) -> Finding:
    """The input, or the mask, is changed in place."""
    module = copied(s.module)
    forward = module.forward
    changed: list[str] = []

    @functools.wraps(forward)
    def watched(*args: Any, **kwargs: Any) -> Any:
        names = list(inspect.signature(forward).parameters)
        given = dict(zip(names, args, strict=False)) | kwargs
        kept = {n: x.clone() for n, x in given.items() if isinstance(x, Tensor)}
        output = forward(*args, **kwargs)
        changed.extend(
            n for n, x in kept.items() if not torch.equal(x, given[n])
        )
        return output

    module.forward = watched
    n = 5
    x, memory = s.draw(t=n, memory=n if needs_memory(s) else None)
    s.run(x, memory, module=module)
    if s.mask != "none":
        s.run(x, memory, tried_mask(s, x.shape[0], n), module=module)
    if not changed:
        return passed("inputs are left as they are", "")
    return failed(
        f"The call changes {', '.join(dict.fromkeys(changed))} in place.",
        "inputs differ after the call",
        "the same",
        "an operation with _ at its end (mul_, masked_fill_, logical_not_) or "
        "+= works on the caller's tensor.",
    )


@check("core/builtin")
def multi_head_calls_remembered(s: MultiHead) -> Finding:
    """The output depends on earlier calls."""
    module, n = copied(s.module), 6
    cross = needs_memory(s)
    x, memory = s.draw(t=n, memory=n if cross else None)
    masks: list[Tensor | None] = [None]
    if s.mask != "none":
        masks += [tried_mask(s, x.shape[0], n, salt=i) for i in range(2)]
    fresh = [s.run(x, memory, m, module=copied(s.module)) for m in masks]
    change = 0.0
    for i in range(3):
        other, more = s.draw(3, n + 1, memory=9 if cross else None, salt=i + 1)
        again = [s.run(x, memory, m, module=module) for m in masks]
        change = max(change, *map(far, fresh, again))
        try:
            s.run(other, more, module=module)
            for m in masks:
                s.run(x, memory, m, module=module)
        except SubjectError as error:
            return failed(
                "After a call of one size, a call of another raises.",
                str(error),
                "an output",
                "a mask, a table or a cache of an earlier call is kept and "
                "used for another length or batch.",
            )
    if change <= s.near:
        return passed(f"outputs change by {brief(change)}", "0")
    return failed(
        "The output depends on what the module was called with before.",
        f"outputs differ by {brief(change)} from those of a fresh copy",
        "0",
        "a mask, a table or a cache of an earlier call is kept and used again.",
    )


@check("core/softmax")
def multi_head_dtype_kept(s: MultiHead) -> Finding:
    """The output has another dtype than the input."""
    wrong = []
    for dtype in (torch.float32, torch.bfloat16):
        t = dataclasses.replace(
            s, module=copied(s.module).to(dtype), dtype=dtype
        )
        x, memory = t.draw(memory=7 if needs_memory(s) else None)
        try:
            output = t.run(x, memory)
        except SubjectError:
            continue
        if output.dtype != dtype:
            wrong.append(f"{dtype} gives {output.dtype}".replace("torch.", ""))
    if not wrong:
        return passed("the dtype of the input", "")
    return hazard(
        "The output has another dtype than the input.",
        ", ".join(wrong),
        "the dtype of the input",
        "the softmax was taken in float32 and not cast back, or a constant is "
        "float64: end with .to(x.dtype).",
    )


@check("core/head-layout")
def multi_head_non_contiguous(s: MultiHead) -> Finding:
    """Inputs that are views of other memory."""
    x, memory = s.draw(memory=7 if needs_memory(s) else None)
    before = s.run(x, memory)
    view = torch.stack([x, x + 1], -1)[..., 0]
    try:
        change = far(before, s.run(view, memory))
    except SubjectError as error:
        return hazard(
            "Inputs that are not contiguous are refused.",
            str(error),
            "an output",
            "view needs contiguous memory: reshape does not.",
        )
    if change <= s.near:
        return passed(f"outputs change by {brief(change)}", "0")
    return failed(
        "The output depends on how the input lies in memory.",
        f"outputs change by {brief(change)}",
        "0",
        "strides are ignored (as_strided, data_ptr, numpy views).",
    )


# --- Positions ----------------------------------------------------------------

SCHEMES = ("rotary", "additive", "table")
PAIRS = ("half", "interleaved")
SIGNATURES = {
    "rotary": ("x, positions", "x, offset", "x"),
    "additive": ("n_queries, n_keys", "n"),
    "table": ("positions", "n", "x, positions", "x, offset", "x"),
}
ROTARY_LAYOUTS = (
    "(B, H, T, d)",
    "(B, T, H, d)",
    "(B, T, d)",
    "(T, B, H, d)",
    "(T, d)",
)
# Head widths that are tried, the likeliest first.
HEAD_WIDTHS = (16, 8, 32, 64, 128, 4, 12, 24, 48, 96, 256)


# Tensors with more elements than this are constants: copies share them.
LARGE = 2**20


def tensors_in(thing: Any, depth: int = 6) -> list[Tensor]:
    """Tensors in containers and attributes, each once, in a fixed order."""
    if isinstance(thing, Tensor):
        return [thing]
    parts: Iterable[Any] = ()
    if isinstance(thing, Mapping):
        parts = thing.values()
    elif isinstance(thing, list | tuple):
        parts = thing
    elif isinstance(thing, types.MethodType):
        parts = [thing.__self__]
    elif hasattr(thing, "__dict__") and not isinstance(thing, type):
        parts = vars(thing).values()
    if not depth or isinstance(thing, types.ModuleType):
        return []
    found = [t for part in parts for t in tensors_in(part, depth - 1)]
    return list({id(t): t for t in found}.values())


def fresh(thing: Any, memo: dict[int, Any] | None = None) -> Any:
    """Copy of functions, modules and states that shares no state with them.

    Closures are copied, too: what two functions share, their copies share.
    """
    memo = {} if memo is None else memo
    if id(thing) in memo:
        return memo[id(thing)]
    if inspect.isfunction(thing):
        cells = tuple(types.CellType() for _ in thing.__closure__ or ())
        twin = types.FunctionType(
            thing.__code__,
            thing.__globals__,
            thing.__name__,
            closure=cells or None,
        )
        memo[id(thing)] = twin
        for i, cell in enumerate(thing.__closure__ or ()):
            memo[id(cell)] = memo.get(id(cell), cells[i])
        shared = tuple(memo[id(cell)] for cell in thing.__closure__ or ())
        if any(a is not b for a, b in zip(cells, shared, strict=True)):
            twin = types.FunctionType(
                thing.__code__, thing.__globals__, thing.__name__, None, shared
            )
            memo[id(thing)] = twin
        for cell, new in zip(thing.__closure__ or (), cells, strict=True):
            if memo[id(cell)] is new:
                with contextlib.suppress(ValueError):
                    new.cell_contents = fresh(cell.cell_contents, memo)
        twin.__defaults__ = fresh(thing.__defaults__, memo)
        twin.__kwdefaults__ = fresh(thing.__kwdefaults__, memo)
        twin.__dict__.update(fresh(thing.__dict__, memo))
        return twin
    if isinstance(thing, types.MethodType):
        return types.MethodType(thing.__func__, fresh(thing.__self__, memo))
    if type(thing) in (list, tuple):
        return type(thing)(fresh(part, memo) for part in thing)
    for tensor in tensors_in(thing):
        if tensor.numel() > LARGE:
            memo[id(tensor)] = tensor
    try:
        return copy.deepcopy(thing, memo)
    except Exception:  # noqa: BLE001
        return thing


def wrapped(angle: Tensor) -> Tensor:
    """Angles between -π and π."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi


def runs_of(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive positions as (first index, length)."""
    runs: list[tuple[int, int]] = []
    for i, p in enumerate(positions):
        if runs and p == positions[i - 1] + 1:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((i, 1))
    return runs


@dataclass(frozen=True)
class Positions(Subject):
    """A position scheme and how it is called.

    Settings that are None are found out and reported, unless their line says
    what None means.

    Attributes
    ----------
    apply : callable
        Rotary: ``apply(x, positions)``, or with ``(x, offset=...)``, ``(x)`` or
        ``(q, k, positions)``. Additive: ``apply(n_queries, n_keys)`` or
        ``apply(n)``, shape (H, Tq, Tk). Table, added to inputs:
        ``apply(positions)`` or ``apply(n)``, shape (T, C), or like rotary with
        x (B, T, C), which returns the sum.
    scheme : str
        "rotary", "additive" or "table".
    signature : str
        One of SIGNATURES[scheme]; for rotary with "q, k" for "x" where queries
        and keys go in together.
    call : callable
        For any other signature: a function ``call(apply, ...)`` with the
        arguments of the first signature of the scheme after ``apply``.
        For rotary it may return the pair (q, k), both made from x.
    layout : str
        "(B, H, T, d)", "(B, T, H, d)", "(T, B, H, d)", "(B, T, d)" or "(T, d)".
    rows : bool or "only"
        Whether positions (B, T) may be given, or have to be.
    pairs : str
        Which channels turn together: "half" (i and i + rotary_dim / 2) or
        "interleaved" (2i and 2i + 1). Given, it is part of the specification.
    width : int
        Width d of a head, or C of a table.
    n_heads : int
        Number of heads for rotary; None: 2.
    rotary_dim : int
        How many of the channels turn, the first ones. None: as found.
    base : float
        Frequencies are base ** (-2i / rotary_dim). None: as found.
    frequencies : Tensor of shape (rotary_dim / 2,)
        In radians per position, instead of base.
    slopes : Tensor of shape (H,) or "paper"
        ALiBi's. None: the paper's are not insisted on.
    causal : bool
        For additive: whether the bias is for causal attention, so that keys
        after the query do not count. None: not known, and they do not count.
    max_length : int
        Positions 0 to max_length - 1 are promised.
    tolerance : float
        Of an angle in radians; 1e-6 times the position is added for
        frequencies in float32.
    options : dict
        Further keyword arguments of every call.
    seed : int
        Of the random inputs.
    """

    kind: ClassVar[str] = "positions"
    apply: Callable[..., Any]
    scheme: str | None = None
    signature: str | None = None
    call: Callable[..., Any] | None = None
    layout: str | None = None
    rows: bool | str | None = None
    pairs: str | None = None
    width: int | None = None
    n_heads: int | None = None
    rotary_dim: int | None = None
    base: float | None = None
    frequencies: Tensor | None = None
    slopes: Tensor | str | None = None
    causal: bool | None = None
    max_length: int | None = None
    tolerance: float = 1e-4
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    dtype: torch.dtype | None = None
    detected: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.apply):
            raise TypeError(
                f"apply must be callable, got {type(self.apply).__name__}: "
                "pass the function or module itself, not its result"
            )
        one_of("scheme", self.scheme, SCHEMES)
        one_of("pairs", self.pairs, PAIRS)
        one_of("layout", self.layout, ROTARY_LAYOUTS)
        if isinstance(self.slopes, str):
            one_of("slopes", self.slopes, ("paper",))

    def name(self) -> str:
        """Name of the function."""
        return getattr(self.apply, "__name__", type(self.apply).__name__)

    def found_out(self) -> "Positions":
        """Same subject, with what was not given found out."""
        return detect_positions(self)

    @property
    def heads(self) -> int:
        """Number of heads of a rotary scheme's input."""
        one = self.layout in ("(B, T, d)", "(T, d)")
        return 1 if one else self.n_heads or 2

    @property
    def d(self) -> int:
        """Width of a head."""
        return self.width or HEAD_WIDTHS[0]

    def alone(self) -> "Positions":
        """Same subject as it was before any call."""
        return dataclasses.replace(self, apply=fresh(self.apply))

    def near(self, positions: Tensor) -> Tensor:
        """Errors of an angle that float32 explains, by position."""
        return self.tolerance + 1e-6 * positions.double()

    def ask(self, x: Tensor, given: Any) -> tuple[Tensor, Tensor]:
        """One call, x (B, H, T, d): rotated queries and rotated keys."""
        turn, back = {
            "(B, T, H, d)": ((0, 2, 1, 3), (0, 2, 1, 3)),
            "(T, B, H, d)": ((2, 0, 1, 3), (1, 2, 0, 3)),
        }.get(self.layout or "", ((0, 1, 2, 3), (0, 1, 2, 3)))
        entered = x.permute(turn).contiguous()
        if self.layout in ("(B, T, d)", "(T, d)"):
            entered = x[:, 0] if self.layout == "(B, T, d)" else x[0, 0]
        signature = self.signature or "x, positions"
        if signature.startswith("q, k"):
            zero = torch.zeros_like(entered)
            asks = [entered, zero], [zero, entered.clone()]
        else:
            asks = ([entered],)  # type: ignore[assignment]
        pairs = [self.ask_once(list(ask), given) for ask in asks]
        pair = [pairs[0][0], pairs[-1][1]]
        if any(y.shape != entered.shape for y in pair):
            raise WidthError(
                f"the output has the shape {tuple(pair[0].shape)}, the input "
                f"{tuple(entered.shape)} in the layout {self.layout}"
            )
        if self.layout in ("(B, T, d)", "(T, d)"):
            pair = [y[:, None] if y.ndim == 3 else y[None, None] for y in pair]
        pair = [y.detach().permute(back) for y in pair]
        return pair[0].double(), pair[1].double()

    def ask_once(self, arguments: list[Any], given: Any) -> list[Tensor]:
        """One call: its first two tensors, or its only one twice."""
        signature = self.signature or "x, positions"
        options = dict(self.options)
        if signature.endswith("positions"):
            arguments.append(given)
        elif signature.endswith("offset"):
            name = argument(self.apply_signature(), *OFFSET_WORDS)
            options[name or "offset"] = given
        both: list[Tensor] = []

        def collect(*args: Any, **kwargs: Any) -> Tensor | None:
            if self.call is not None:
                output = self.call(self.apply, *args, **kwargs)
            else:
                output = self.apply(*args, **kwargs)
            if isinstance(output, list | tuple):
                tensors = [y for y in output if isinstance(y, Tensor)]
                both.extend(tensors[:2])
            return first_tensor(output)

        first = called(collect, *arguments, **options)
        return both if len(both) == 2 else [first, first]

    def apply_signature(self) -> Callable[..., Any]:
        """What has the parameters: forward of a module."""
        if isinstance(self.apply, nn.Module):
            return self.apply.forward
        return self.apply

    def rotate(self, x: Tensor, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Rotate x (B, H, T, d) at these positions, as queries and as keys."""
        signature = self.signature or "x, positions"
        if self.layout == "(T, d)" and len(x) > 1:
            rows = [self.rotate(row[None], positions) for row in x]
            return torch.cat([a for a, _ in rows]), torch.cat(
                [b for _, b in rows]
            )
        if signature.endswith("positions"):
            given = torch.tensor(positions)
            if self.rows == "only":
                given = given.expand(len(x), -1)
            return self.ask(x, given)
        if signature.endswith("offset"):
            parts = [
                self.ask(x[:, :, i : i + n].contiguous(), positions[i])
                for i, n in runs_of(positions)
            ]
            return (
                torch.cat([a for a, _ in parts], 2),
                torch.cat([b for _, b in parts], 2),
            )
        whole = x.new_zeros(*x.shape[:2], max(positions) + 1, x.shape[3])
        whole[:, :, positions] = x
        q, k = self.ask(whole, None)
        return q[:, :, positions], k[:, :, positions]

    def matrices(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Matrices (T, d, d) that act on queries and keys, by unit vectors."""
        d, heads = self.d, self.heads
        x = torch.eye(d, dtype=self.dtype)[:, None, None]
        x = x.expand(d, heads, len(positions), d).contiguous()
        q, k = self.rotate(x, positions)
        return q[:, 0].permute(1, 2, 0), k[:, 0].permute(1, 2, 0)

    def table(self, positions: list[int]) -> Tensor:
        """Rows (T, C) of a table that is added to the inputs."""
        if (self.signature or "").startswith("x"):
            x = torch.zeros(1, 1, len(positions), self.d, dtype=self.dtype)
            added, _ = dataclasses.replace(self, layout="(B, T, d)").rotate(
                x, positions
            )
            return added[0, 0]
        given: Any = torch.tensor(positions)
        if self.signature == "n":
            given = max(positions) + 1
        if self.call is not None:
            output = called(self.call, self.apply, given, **self.options)
        else:
            output = called(self.apply, given, **self.options)
        output = output.detach().reshape(-1, output.shape[-1])
        if self.signature == "n":
            output = output[:given][positions]
        if len(output) != len(positions):
            raise SubjectError(
                f"the table has {len(output)} rows for {len(positions)} "
                "positions"
            )
        return output.double()

    def bias(self, n_queries: int, n_keys: int) -> Tensor:
        """Bias (H, Tq, Tk), however it is called."""
        given = (n_queries, n_keys)
        if self.signature == "n":
            if n_queries != n_keys:
                raise UnsuitableError("the bias is made for square shapes only")
            given = given[:1]  # type: ignore[assignment]
        if self.call is not None:
            output = called(self.call, self.apply, *given, **self.options)
        else:
            output = called(self.apply, *given, **self.options)
        shape = tuple(output.shape)
        if output.ndim == 4:
            output = output[0]
        if output.ndim == 2:
            output = output[None]
        if output.ndim != 3 or not (
            output.shape[1] in (1, n_queries) and output.shape[2] == n_keys
        ):
            raise SubjectError(
                f"the bias has the shape {shape}, which is not (H, Tq, Tk) "
                f"with Tq = {n_queries} and Tk = {n_keys}"
            )
        return output.detach().double().expand(-1, n_queries, -1)

    def relative(self, n_queries: int, n_keys: int) -> Tensor:
        """Bias (H, Tq, Tk) less that of the key at the query's own place.

        The softmax does not see what is added to a whole row. Queries are the
        last ones. Keys after the query are NaN unless causal is False.
        """
        bias = self.bias(n_queries, n_keys)
        i = torch.arange(n_queries)[:, None] + n_keys - n_queries
        own = bias.gather(2, i.expand(len(bias), -1, -1))
        bias = torch.where(own.isfinite(), bias - own, bias)
        if self.causal is False:
            return bias
        return bias.masked_fill(torch.arange(n_keys) > i, math.nan)


class WidthError(SubjectError):
    """The output of a rotation has another shape than its input."""


OFFSET_WORDS = ("offset", "start", "past", "shift", "cur", "step", "begin")


def check_positions(apply: Callable[..., Any], **settings: Any) -> Report:
    """Check a rotary or additive position scheme, or a table of positions.

    Parameters
    ----------
    apply : callable
        ``apply(x, positions)``, ``apply(n_queries, n_keys)`` or
        ``apply(positions)``.
    **settings
        Those of `Positions`.

    Returns
    -------
    Report

    Raises
    ------
    TypeError, ValueError
        When a setting is unknown.
    """
    return run_checks(Positions(apply, **settings))


def rotary_signatures(s: Positions) -> list[str]:
    """Signatures to try, the likeliest by the names of parameters first."""
    try:
        parameters = inspect.signature(s.apply_signature()).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    names = [name.lower() for name in parameters]
    tests = {
        "x, positions": lambda n: "pos" in n and not any_of(n, OFFSET_WORDS),
        "x, offset": lambda n: any_of(n, OFFSET_WORDS),
    }
    order = [sig for sig, test in tests.items() if any(map(test, names))]
    order += [sig for sig in SIGNATURES["rotary"] if sig not in order]
    second = names[1] if len(names) > 1 else ""
    if second in ("k", "key", "keys", "xk", "k_states", "key_states"):
        order = ["q, k" + sig.removeprefix("x") for sig in order]
    return order


def any_of(name: str, words: Iterable[str]) -> bool:
    """Whether the name contains one of the words."""
    return any(word in name for word in words)


def suits(s: Positions) -> float:
    """How badly a way to call fits: 0 moves with the position, inf raises."""
    s = s.alone()
    try:
        if s.scheme == "rotary":
            x = torch.ones(2, 5, 5, s.d, dtype=s.dtype)
            if s.signature == "x":
                x = x[:, :3]
            x = x[:, :1] if s.layout in ("(B, T, d)", "(T, d)") else x
            x = x[:1] if s.layout == "(T, d)" else x
            if far(s.rotate(0 * x, list(range(5)))[0], torch.zeros(())) > 0:
                return math.inf
            y, _ = s.rotate(x, list(range(5)))
            moves = far(y[:, :, 1:], y[:, :, :-1]) > 0
            across = x.shape[1] > 1 and far(y[:, 1:], y[:, :-1]) > 0
            return float(not moves) + 2 * float(across)
        if s.scheme == "additive":
            s.bias(*((5, 5) if s.signature == "n" else (5, 7)))
            return 0.0
        y = s.table([0, 1, 2, 3, 4])
        if y.shape[-1] < 2:
            return math.inf
        return float(far(y[1:], y[:-1]) == 0)
    except WidthError:
        return 9.0
    except (SubjectError, UnsuitableError):
        return math.inf


def ways_to_call(s: Positions) -> Iterable[Positions]:
    """Combinations of the settings that are None, the likeliest first."""
    for scheme in [s.scheme] if s.scheme else SCHEMES:
        signatures = list(SIGNATURES[scheme])
        if scheme != "additive":
            turned = rotary_signatures(s)
            signatures = (
                turned
                if scheme == "rotary"
                else [
                    *signatures[:2],
                    *turned,
                ]
            )
        if s.call is not None:
            signatures = signatures[:1]
        layouts: Sequence[str | None] = [None]
        if scheme == "rotary":
            layouts = [s.layout] if s.layout else ROTARY_LAYOUTS
        for signature in [s.signature] if s.signature else signatures:
            wide = signature in ("positions", "n") or scheme == "additive"
            for width in [s.width] if s.width or wide else HEAD_WIDTHS:
                for layout in layouts:
                    for dtype in (
                        [s.dtype] if s.dtype else [torch.float64, torch.float32]
                    ):
                        yield dataclasses.replace(
                            s,
                            scheme=scheme,
                            signature=signature,
                            width=width,
                            layout=layout,
                            dtype=dtype,
                        )


def detect_positions(s: Positions) -> Positions:
    """Find out how the scheme is called, and what its rotation looks like."""
    best, least = None, math.inf
    for way in ways_to_call(s):
        for rows in (s.rows,) if s.rows is not None else (None, "only"):
            tried = dataclasses.replace(way, rows=rows)
            badness = suits(tried)
            if badness < least:
                best, least = tried, badness
        if least == 0.0:
            break
    if best is None:
        raise ValueError(
            "no known way to call gives an output. Say how the code is called: "
            "scheme, signature, layout and width, or call=a function "
            "call(apply, x, positions), call(apply, n_queries, n_keys) or "
            "call(apply, positions)"
        )
    found = {
        name: str(getattr(best, name))
        for name in ("scheme", "signature", "layout", "width")
        if getattr(s, name) is None and getattr(best, name) is not None
    }
    s = best
    if s.call is not None:
        found.pop("signature", None)
    if s.scheme == "table" and s.width is None:
        wide = attempt(lambda: float(s.alone().table([0, 1]).shape[-1]))
        s = dataclasses.replace(
            s, width=None if wide == math.inf else int(wide)
        )
    if s.max_length is None:
        most = 512 if s.scheme == "additive" else 8192
        if s.signature in ("x", "q, k", "n"):
            most = min(most, 4096)
        lengths = [n for n in (8192, 4096, 2048, 1024, 512) if n <= most]
        for n in [*lengths, 256, 128, 64, 32, 16, 8]:
            s = dataclasses.replace(s, max_length=n)
            if reaches(s.alone(), n):
                break
        if s.max_length != most:
            found["max_length"] = str(s.max_length)
    if s.scheme == "rotary" and s.rows is None:
        s = dataclasses.replace(s, rows=takes_rows(s.alone()))
    try:
        turns = read_turns(s.alone())
    except (SubjectError, UnsuitableError):
        return dataclasses.replace(s, detected=found)
    if s.scheme != "additive":
        if s.pairs is None and turns.layout:
            found["pairs"] = turns.layout
        if s.rotary_dim is None and s.scheme == "rotary":
            found["rotary_dim"] = str(len(turns.turned))
        fit = fitted_base(turns.rates)
        if s.base is None and s.frequencies is None and fit:
            found["base"] = brief(fit)
    return dataclasses.replace(s, detected=found)


def reaches(s: Positions, n: int) -> bool:
    """Whether positions up to n - 1 are taken."""
    try:
        if s.scheme == "rotary":
            shape = 1, s.heads, 1, s.d
            s.rotate(torch.ones(shape, dtype=s.dtype), [n - 1])
        elif s.scheme == "table":
            s.table([n - 1])
        else:
            s.bias(*((n, n) if s.signature == "n" else (1, n)))
    except (SubjectError, UnsuitableError):
        return False
    return True


def takes_rows(s: Positions) -> bool:
    """Whether each row of the batch may have positions of its own."""
    if not (s.signature or "").endswith("positions"):
        return False
    # As many rows as no other axis has, so that they cannot land on another.
    x = torch.ones(s.heads + 1, s.heads, 5 + s.heads, s.d, dtype=s.dtype)
    places = torch.arange(5 + s.heads) + torch.arange(s.heads + 1)[:, None]
    try:
        s.ask(x, places)
    except (SubjectError, UnsuitableError):
        return False
    return s.layout != "(T, d)"


@dataclass(frozen=True)
class Turns:
    """Rotations of a scheme, read off by unit vectors.

    Attributes
    ----------
    positions : list of int
        Where they were read.
    q, k : Tensor, shape (T, d, d)
        Matrices that act on queries and on keys.
    turned : list of int
        Channels that are changed at some position.
    pairs : list of (int, int)
        Channels that turn together.
    layout : str
        "half", "interleaved" or "" for none of these.
    angles : Tensor, shape (T, pairs)
        Angle of each pair.
    rates : Tensor, shape (pairs,)
        Frequencies: angles by position, between -π and π.
    """

    positions: list[int]
    q: Tensor
    k: Tensor
    turned: list[int]
    pairs: list[tuple[int, int]]
    layout: str
    angles: Tensor
    rates: Tensor

    @property
    def places(self) -> Tensor:
        """Positions (T, 1) in float64."""
        return torch.tensor(self.positions).double()[:, None]

    def off(self) -> Tensor:
        """How far the angles are from position times frequency."""
        start = self.angles[self.positions.index(0)]
        return wrapped(self.angles - start - self.places * self.rates).abs()


def probes(s: Positions) -> list[int]:
    """Positions to read: small ones, powers of two and neighbours of large."""
    large = [2**n + m for n in range(4, 14) for m in (0, 1, 7)]
    large += [100, 101, 107, 1000, 1001, 1007, 4000, 4001, 4007]
    return sorted({p for p in [*range(10), *large] if p < (s.max_length or 16)})


def partners(matrices: Tensor) -> list[list[int]]:
    """For each channel, the other channels that enter it, the largest first."""
    size = matrices.abs().amax(0).fill_diagonal_(0.0)
    return [
        [int(j) for j in row.argsort(descending=True) if row[j] > 1e-6]
        for row in size
    ]


def layout_of(pairs: list[tuple[int, int]]) -> str:
    """Name of the pairing, or nothing."""
    channels = sorted(c for pair in pairs for c in pair)
    half = len(pairs)
    if not pairs or len(set(channels)) != 2 * half:
        return ""
    if pairs == list(zip(channels[:half], channels[half:], strict=True)):
        return "half"
    if pairs == list(zip(channels[::2], channels[1::2], strict=True)):
        return "interleaved"
    return ""


def rates_of(positions: list[int], angles: Tensor, s: Positions) -> Tensor:
    """Frequencies: refined from position 1 on as long as the angles agree."""
    angles = angles - angles[positions.index(0)]
    rates = wrapped(angles[positions.index(1)])
    near = s.near(torch.tensor(positions))
    alive = torch.ones(len(rates), dtype=torch.bool)
    for n, p in enumerate(positions):
        if p > 1 and p & (p - 1) == 0:
            error = wrapped(angles[n] - p * rates)
            alive &= error.abs() < near[n]
            rates = torch.where(alive, rates + error / p, rates)
    return rates


def read_turns(s: Positions) -> Turns:
    """Read the rotations at all probes."""
    places = probes(s)
    if s.scheme == "additive":
        raise UnsuitableError(
            "a bias that is added to the logits turns nothing"
        )
    if s.scheme == "table":
        rows = s.table(places)
        start = rows[places.index(0)].abs()
        if not ((start < 1e-6) | ((start - 1).abs() < 1e-6)).all():
            raise UnsuitableError(
                "the table is no table of sines and cosines, as position 0 is "
                "not made of zeros and ones; learned tables have no rule"
            )
        width = rows.shape[1]
        half = list(
            zip(range(width // 2), range(width // 2, width), strict=False)
        )
        near = list(zip(range(0, width, 2), range(1, width, 2), strict=False))
        pairs = min(
            (near, half),
            key=lambda p: sum(
                far(rows[:, i] ** 2 + rows[:, j] ** 2, torch.ones(()))
                for i, j in p
            ),
        )
        angles = torch.stack(
            [
                torch.atan2(rows[:, i], rows[:, j])
                if start[i] < 0.5
                else torch.atan2(rows[:, j], rows[:, i])
                for i, j in pairs
            ],
            1,
        )
        empty = torch.zeros(0)
        turned = list(range(width))
        layout = "half" if pairs is half else "interleaved"
        rates = rates_of(places, angles, s)
        return Turns(places, rows, empty, turned, pairs, layout, angles, rates)
    q, k = s.matrices(places)
    first = q[places.index(0)]
    if far(first.abs().sum(0), torch.ones(())) == 0 and (
        far(first @ first.mT, torch.eye(s.d)) == 0
    ):
        # Channels that leave in another order, in queries and keys alike.
        q, k = first.mT @ q, first.mT @ k
    whole, _ = s.matrices(list(range(8)))
    single, other = s.matrices([5])
    if far(single, whole[5:6]) > 1e-3 and far(other, single) < 1e-6:
        raise UnsuitableError(
            "positions are not followed, so there is nothing to read: see "
            "offset_ignored"
        )
    eye = torch.eye(s.d).double()
    turned = [i for i in range(s.d) if far(q[:, i], eye[i]) > 1e-6]
    mates = partners(q)
    pairs = [
        (i, mates[i][0])
        for i in turned
        if mates[i] and i < mates[i][0] and mates[mates[i][0]][:1] == [i]
    ]
    angles = torch.stack(
        [torch.atan2(q[:, j, i], q[:, i, i]) for i, j in pairs]
        or [torch.zeros(len(places)).double()],
        1,
    )[:, : len(pairs)]
    rates = rates_of(places, angles, s)
    return Turns(places, q, k, turned, pairs, layout_of(pairs), angles, rates)


def fitted_base(rates: Tensor) -> float | None:
    """Base of frequencies base ** (-i / n), or None if they are no such."""
    if len(rates) < 2 or (rates.abs() <= 0).any():
        return None
    logs = rates.abs().log()
    slope = (logs[-1] - logs[0]) / (len(rates) - 1)
    line = logs[0] + slope * torch.arange(len(rates))
    if abs(float(logs[0])) > 1e-3 or far(logs, line) > 1e-3:
        return None
    return float(torch.exp(-slope * len(rates)))


def rotary_only(s: Positions) -> Turns:
    """Rotations, or the reason why there are none to check."""
    if s.scheme != "rotary":
        raise UnsuitableError(
            f"only for rotary schemes, this one is {s.scheme}"
        )
    return read_turns(s.alone())


def up_to(positions: list[int], errors: Tensor, near: Tensor) -> str:
    """From which position on errors (T,) are too large."""
    wrong = [p for p, bad in zip(positions, errors > near, strict=True) if bad]
    return f"from position {wrong[0]} on" if wrong else "nowhere"


@check("core/order")
def positions_runs(s: Positions) -> Finding:
    """Ordinary calls give an output."""
    s = s.alone()
    if s.scheme == "additive":
        s.bias(5, 5)
    elif s.scheme == "table":
        s.table([0, 1, 2])
    else:
        x = torch.ones(2, s.heads, 5, s.d, dtype=s.dtype)
        s.rotate(x, [0, 1, 2, 3, 4])
    return passed("an output", "")


@check("core/order")
def positions_relative_only(s: Positions) -> Finding:
    """What depends on more than the offset of key and query."""
    if s.scheme == "additive":
        return bias_along_diagonals(s.alone())
    turns = read_turns(s.alone())
    index = {p: n for n, p in enumerate(turns.positions)}
    worst, where, measured = 0.0, (0, 0), 0.0
    allowed = 0.0
    q, k = turns.q, turns.k
    for delta in (0, 1, 7):
        starts = [p for p in index if p + delta in index]
        places = [index[p] for p in starts]
        others = [index[p + delta] for p in starts]
        if s.scheme == "table":
            joint = (q[places] * q[others]).sum(-1)[:, None, None]
            joint = joint / q.shape[1]
        else:
            joint = q[places].mT @ k[others]
        errors = (joint - joint[:1]).abs().amax((1, 2))
        near = 2 * s.near(torch.tensor(starts) + delta)
        excess = errors / near
        if float(excess.max()) > max(worst, 1.0):
            n = int((excess > 1).nonzero()[0])
            worst, where = float(excess.max()), (starts[n], delta)
            measured, allowed = float(errors[n]), float(near[n])
    eye = torch.eye(s.d).double()
    if s.scheme == "rotary" and not worst:
        same = q.mT @ k
        level = same[0].diagonal()
        error = far(same[0], torch.diag(level))
        shift = error > s.tolerance or far(level, level.abs()) > s.tolerance
        if shift:
            return failed(
                "A query and a key at the same position are turned by "
                "different angles.",
                f"their rotations differ by {brief(far(q[0], k[0]))}",
                "0",
                "queries and keys are numbered differently (one of them starts "
                "at 1, or only one gets the offset): give both the same "
                "positions.",
            )
    if not worst and s.max_length:
        strange = beyond_the_end(s, turns)
        if strange:
            return strange
    if not worst:
        return passed(
            f"the same up to position {turns.positions[-1]}, offsets 0, 1, 7",
            "the same",
        )
    if s.scheme == "rotary" and far(k, eye) < 1e-6:
        cause = "only queries are turned: turn the keys, too."
    elif s.scheme == "rotary" and far(q, eye) < 1e-6:
        cause = "only keys are turned: turn the queries, too."
    elif s.scheme == "rotary" and far(k, q.mT) < 1e-3 < far(k, q):
        cause = (
            "queries and keys turn in opposite directions: one of them has the "
            "wrong sign of the sine (or is conjugated)."
        )
    elif s.scheme == "rotary" and far(q, k) > 1e-3:
        cause = (
            "queries and keys are not turned in the same way: use one function "
            "with the same positions for both."
        )
    elif far((q.mT @ q)[0], (q.mT @ q)[-1]) > 1e-2 and s.scheme == "rotary":
        cause = (
            "this is no rotation, as lengths change: see norm_kept and "
            "pairs_mixed."
        )
    elif where[0] > 16:
        cause = (
            f"small positions are right, those near {where[0]} are not: the "
            "table of angles ends and positions are clamped or wrapped, or "
            "angles are in low precision."
        )
    else:
        cause = (
            "angles are not proportional to the position: they have to be "
            "position times frequency, with one frequency for each pair."
        )
    return failed(
        "The product of a query and a key depends on where they are, not only "
        "on their offset.",
        f"at position {where[0]}, offset {where[1]}, it differs by "
        f"{brief(measured)} from position 0",
        f"at most {brief(allowed)}",
        cause,
    )


def beyond_the_end(s: Positions, turns: Turns) -> Finding | None:
    """Whether positions after the last one are quietly those of others."""
    n = s.max_length or 0
    asked = [n + 2, n + 3]
    try:
        if s.scheme == "table":
            got, start = s.alone().table(asked), s.alone().table([2, 3])
            last = s.alone().table([n - 1])
        else:
            got, _ = s.alone().matrices(asked)
            start, _ = s.alone().matrices([2, 3])
            last, _ = s.alone().matrices([n - 1])
    except (SubjectError, UnsuitableError):
        return None
    for other, name in ((last, f"position {n - 1}"), (start, "2 and 3")):
        if far(got, other) <= 1e-6 and turns.pairs:
            return failed(
                f"Beyond the table, positions are those of {name}.",
                f"positions {asked} differ from {name} by "
                f"{brief(far(got, other))}",
                "an error, or positions of their own",
                f"positions are clamped or wrapped at {n}: refuse them, or "
                "make the table longer.",
            )
    return None


def diagonals(relative: Tensor) -> tuple[float, int]:
    """Largest difference along a diagonal of (H, Tq, Tk), and its distance."""
    n_queries, n_keys = relative.shape[1:]
    worst, at = 0.0, 0
    for offset in range(-n_queries + 1, n_keys):
        line = relative.diagonal(offset, 1, 2)
        line = line[:, ~line.isnan().any(0)]
        if line.shape[1] > 1 and far(line[:, 1:], line[:, :1]) > worst:
            worst, at = far(line[:, 1:], line[:, :1]), offset
    return worst, at


def bias_along_diagonals(s: Positions) -> Finding:
    """A bias that depends on more than the distance."""
    n = min(24, s.max_length or 24)
    relative = s.relative(n, n)
    worst, at = diagonals(relative)
    size = 1 + far(relative.nan_to_num(0.0, 0.0, 0.0), torch.zeros(()))
    for m in (n // 4, n // 2):
        less = s.relative(m, m)
        seen = less.isfinite()
        change = far(
            less.masked_fill(~seen, 0.0),
            relative[:, :m, :m].masked_fill(~seen, 0.0),
        )
        if change > 1e-4 * size:
            return failed(
                "The bias of the same two positions depends on the length.",
                f"it differs by {brief(change)} between {m} and {n} keys",
                "0",
                "rows are shifted into each other (a padded reshape made for "
                "causal use), or distances are counted from the end: make it "
                "from arange(Tk)[None, :] - arange(Tq)[:, None].",
            )
    if worst <= 1e-4 * size:
        return passed(f"equal along diagonals within {brief(worst)}", "equal")
    return failed(
        "The bias depends on the positions, not only on their distance.",
        f"for keys {-at} before the query it differs by {brief(worst)}",
        "0 along each diagonal, but for what is added to a whole row",
        "the bias is built from positions instead of differences, or reshaped "
        "where a transpose is meant: make it from "
        "arange(Tk)[None, :] - arange(Tq)[:, None].",
    )


@check("core/order")
def positions_norm_kept(s: Positions) -> Finding:
    """Lengths that change by turning."""
    turns = read_turns(s.alone())
    if s.scheme == "table":
        sums = torch.stack(
            [turns.q[:, i] ** 2 + turns.q[:, j] ** 2 for i, j in turns.pairs]
        )
        error = far(sums, torch.ones(()))
        if error <= 10 * s.tolerance:
            return passed(f"sin² + cos² off by {brief(error)}", "0")
        pair = int((sums - 1).abs().amax(1).argmax())
        return failed(
            "Sine and cosine of a pair do not have the same angle.",
            f"sin² + cos² of {turns.pairs[pair]} off by {brief(error)}",
            "0",
            "each frequency is for two channels, a sine and a cosine: the "
            "exponent has to be 2i / C with i = channel // 2 for both.",
        )
    eye = torch.eye(s.d).double()
    for name, matrices in (("queries", turns.q), ("keys", turns.k)):
        gram = matrices.mT @ matrices
        error = far(gram, eye)
        if error <= 10 * s.tolerance:
            continue
        place = int((gram - eye).abs().amax((1, 2)).argmax())
        lengths = gram.diagonal(dim1=1, dim2=2).sqrt()
        level = [lengths[:, i] for i in turns.turned]
        one = level[0][0]
        apart = max(far(x, one) for x in level) < 1e-4 * float(one)
        diagonal = far(gram, torch.diag_embed(lengths**2)) < 1e-4
        measured = (
            f"lengths of unit vectors between {brief(float(lengths.min()))} "
            f"and {brief(float(lengths.max()))}"
        )
        if apart and diagonal and float(one) > 0.1:
            return hazard(
                f"Turned {name} are {brief(float(one))} times as long, "
                "at every position.",
                measured,
                "1",
                "a factor on cosine and sine, such as YaRN's attention factor: "
                "it acts like a scale of the logits, squared.",
            )
        i, j = turns.pairs[0] if turns.pairs else (0, 0)
        both = matrices[:, i, j] * matrices[:, j, i]
        if turns.pairs and float(both.max()) > 1e-4:
            cause = (
                "both halves get the sine with the same sign: a rotation is "
                "(x1 cos - x2 sin, x2 cos + x1 sin), so rotate_half negates "
                "the second half: cat(-x2, x1)."
            )
        elif error < 2e-2:
            cause = (
                "cosine and sine are rounded to a low precision: keep the "
                "table in float32 and cast after the product."
            )
        else:
            cause = (
                "cosine and sine of a pair have different angles "
                "(pairs_mixed), a sine is missing, or a channel is "
                "overwritten before it is used: compute both outputs from the "
                "unchanged x1 and x2."
            )
        return failed(
            f"Turning changes the length of {name}.",
            f"{measured}, worst at position {turns.positions[place]}",
            "1 everywhere",
            cause,
        )
    return passed("lengths of unit vectors 1 everywhere", "1")


@check("core/order")
def positions_pairs_mixed(s: Positions) -> Finding:
    """Pairs of one layout turned with angles or pairs of the other."""
    turns = rotary_only(s)
    mates_q, mates_k = partners(turns.q), partners(turns.k)
    advice = (
        'In "half", channel i turns with i + rotary_dim / 2 (rotate_half, '
        "table cat(f, f)); in "
        '"interleaved", 2i with 2i + 1 (complex numbers, table '
        "repeat_interleave(f, 2)). Use one of them throughout."
    )
    first = [mates[0] if mates else None for mates in mates_q]
    second = [mates[0] if mates else None for mates in mates_k]
    if first != second and any(mates_k) and any(mates_q):
        i = next(i for i in range(s.d) if first[i] != second[i])
        return failed(
            "Queries and keys pair their channels differently.",
            f"channel {i} turns with {first[i]} in queries, with {second[i]} "
            "in keys",
            "the same pairs",
            f"two layouts are mixed. {advice}",
        )
    for i, mates in enumerate(mates_q):
        if mates and (len(mates) > 1 or mates_q[mates[0]][:1] != [i]):
            return failed(
                "Channels do not turn in pairs.",
                f"channel {i} takes from {mates}, channel {mates[0]} from "
                f"{mates_q[mates[0]]}",
                "two channels that take from each other",
                f"the halves are cut or put together in two ways. {advice}",
            )
    near = 4 * s.near(torch.tensor(turns.positions))
    for i, j in turns.pairs:
        one = torch.atan2(-turns.q[:, i, j], turns.q[:, i, i])
        two = torch.atan2(turns.q[:, j, i], turns.q[:, j, j])
        apart = wrapped(one - two).abs()
        mirrored = wrapped(one + two).abs()
        if (apart > near).any() and not (mirrored <= near).all():
            place = turns.positions.index(1)
            return failed(
                "The two channels of a pair are turned by different angles.",
                f"at position 1, channel {i} by {brief(float(one[place]))} and "
                f"channel {j} by {brief(float(two[place]))} rad",
                "the same angle",
                "the table of angles is in one layout, the rotation in the "
                f"other. {advice}",
            )
    if s.pairs and turns.layout and turns.layout != s.pairs:
        return failed(
            f'The rotation is "{turns.layout}", and the setting says '
            f'pairs="{s.pairs}".',
            f"channel {turns.pairs[0][0]} turns with {turns.pairs[0][1]}",
            f'pairs as in "{s.pairs}"',
            "weights that were trained with one layout do not work with the "
            f"other, unless their rows are permuted. {advice}",
        )
    if s.pairs and not turns.layout and turns.pairs:
        return failed(
            "The pairs are in no known layout.",
            f"pairs {turns.pairs}",
            f'"{s.pairs}"',
            advice,
        )
    return passed(f"pairs {turns.layout or turns.pairs}", "one layout")


def coarse(x: Tensor, dtype: torch.dtype, near: float) -> bool:
    """Whether all numbers, three not trivial ones at least, have this dtype."""
    x = x.double()
    error = (x.to(dtype).double() - x).abs() <= near * x.abs()
    mantissas = torch.frexp(x.abs())[0]
    rich = int(((mantissas > 0.501) & (mantissas < 0.999)).sum())
    return rich >= 3 and bool(error.all())


def short(dtype: torch.dtype | None) -> str:
    """Name of a dtype without torch."""
    return str(dtype).removeprefix("torch.")


@check("core/order")
def positions_low_precision_angles(s: Positions) -> Finding:
    """Angles, positions or frequencies in 16 bits."""
    advice = (
        "compute positions, frequencies, their product, cosine and sine in "
        "float32, whatever the dtype of x, and cast the result."
    )
    if s.scheme == "additive":
        return bias_in_low_precision(s.alone(), advice)
    turns = read_turns(s.alone())
    if not turns.pairs:
        return skipped("No channels turn in pairs.")
    if s.scheme == "rotary":
        eye = torch.eye(s.d).double()
        gram = turns.q.mT @ turns.q
        if not all(float(gram[n].diagonal().min()) > 0.5 for n in (0, -1)) or (
            far(gram, torch.diag_embed(gram[0].diagonal()) * eye) > 0.1
        ):
            return skipped("Lengths change: see norm_kept.")
    off = turns.off()
    near = s.near(torch.tensor(turns.positions))[:, None]
    if (off > near).any():
        reach = (turns.places * turns.rates).abs()
        small = reach < 64
        if (off <= reach / 64 + 5e-3)[small].all() and off.max() < 4:
            return failed(
                "Angles are in low precision.",
                f"off by up to {brief(float(off.max()))} rad, "
                + up_to(turns.positions, off.amax(1), near[:, 0]),
                "1e-7 times the position, as in float32",
                advice,
            )
    table = turns.q[:, turns.turned] if s.scheme == "rotary" else turns.q
    for dtype in (torch.bfloat16, torch.float16):
        if coarse(table, dtype, 0.0):
            return failed(
                f"Cosines and sines are rounded to {short(dtype)}, though x is "
                f"{short(s.dtype)}.",
                f"every one is a number of {short(dtype)}",
                "float32 at least",
                advice,
            )
        if coarse(turns.rates, dtype, 2e-6):
            return failed(
                f"The frequencies are rounded to {short(dtype)}.",
                "frequencies " + numbers(turns.rates),
                "numbers that need more digits",
                f"inv_freq is a buffer that was cast with the model: {advice}",
            )
    if s.scheme == "table":
        return passed(f"off by {brief(float(off.max()))} rad", "0")
    for dtype in (torch.bfloat16, torch.float16):
        try:
            low, _ = dataclasses.replace(s.alone(), dtype=dtype).matrices(
                turns.positions
            )
            high, _ = s.alone().matrices(turns.positions)
        except (SubjectError, UnsuitableError):
            continue
        errors = (low - high).nan_to_num(9.0).abs().amax((1, 2))
        if float(errors.max()) > 0.05:
            where = up_to(
                turns.positions, errors, torch.full_like(errors, 0.05)
            )
            return failed(
                f"With x in {short(dtype)} the angles are in low precision.",
                f"turned vectors off by {brief(float(errors.max()))}, {where}",
                "0.01, the rounding of the output",
                f"angles take the dtype of x (arange(..., dtype=x.dtype)): "
                f"{advice}",
            )
    if isinstance(s.apply, nn.Module):
        cast = dataclasses.replace(s.alone(), dtype=torch.bfloat16)
        cast = dataclasses.replace(cast, apply=cast.apply.bfloat16())  # type: ignore[attr-defined]
        error = attempt(
            lambda: far(
                cast.matrices(turns.positions)[0],
                s.alone().matrices(turns.positions)[0],
            )
        )
        if 0.05 < error < math.inf:
            return hazard(
                "module.bfloat16() casts the frequencies, too.",
                f"turned vectors off by {brief(error)}",
                "0.01",
                "the frequencies are a buffer: keep them in float32 (override "
                "_apply, or compute them at each call).",
            )
    return passed(f"off by {brief(float(off.max()))} rad", "0")


def numbers(values: Tensor, most: int = 6) -> str:
    """First numbers of a tensor, in words."""
    shown = ", ".join(brief(float(v)) for v in values[:most])
    return shown + (", ..." if len(values) > most else "")


def steps_of(s: Positions) -> Tensor | None:
    """Slopes (H,) of a bias that is linear in the distance, else None."""
    n = min(16, s.max_length or 16)
    last = s.relative(n, n)[:, -1]
    slopes = last[:, -2]
    distance = torch.arange(n - 1, -1, -1).double()
    line = slopes[:, None] * distance
    close = (last - line).abs() <= 2e-2 * line.abs() + 1e-6
    return -slopes if close.all() and (slopes != 0).any() else None


def bias_in_low_precision(s: Positions, advice: str) -> Finding:
    """A linear bias that is rounded at large distances."""
    slopes = steps_of(s)
    if slopes is None:
        return skipped("The bias is not linear in the distance.")
    n = min(4096 if s.signature != "n" else 512, s.max_length or 16)
    try:
        last = s.relative(1, n)[:, -1]
    except UnsuitableError:
        last = s.relative(n, n)[:, -1]
    distance = torch.arange(n - 1, -1, -1).double()
    line = -slopes[:, None] * distance
    apart = (last - line).abs()
    error = (apart / (line.abs() + 1e-9))[:, :-1].max()
    if float(error) <= 1e-4:
        return passed(f"linear within {float(error):.1g}", "1e-6")
    if (apart.amax(1) > line.abs().amax(1) / 64).any():
        return skipped("The bias is not linear at large distances.")
    return failed(
        "The bias is rounded at large distances.",
        f"off by {float(error):.2%} of its size among {n} keys",
        "0.0001%, as in float32",
        "distances of more than 256 (bfloat16) or 2048 (float16) are not whole "
        "numbers any more, and neighbours tie: " + advice,
    )


@check("core/head-layout")
def positions_partial_width(s: Positions) -> Finding:
    """Channels beyond those that turn."""
    if s.scheme != "rotary":
        return skipped("Only for rotary schemes.")
    try:
        turns = read_turns(s.alone())
    except WidthError as error:
        return failed(
            "The output has another width than the input.",
            str(error),
            "the same shape",
            "the channels beyond rotary_dim are cut off: join them again, "
            "cat([turned, x[..., rotary_dim:]], -1).",
        )
    paired = {c for pair in turns.pairs for c in pair}
    mates = partners(turns.q)
    for i in turns.turned:
        if i not in paired and not mates[i]:
            level = float(turns.q[-1, i, i])
            return failed(
                f"Channel {i} is neither turned nor left as it is.",
                f"it is multiplied by {brief(level)} at position "
                f"{turns.positions[-1]}",
                "1, or a turn with another channel",
                "the channels beyond rotary_dim are zeroed or get a cosine "
                "without its sine: pass them through untouched.",
            )
    for i in turns.turned:
        lone = [j for j in mates[i] if j not in turns.turned]
        if lone:
            return failed(
                f"Channel {i} turns with channel {lone[0]}, which does not "
                "turn.",
                f"{len(turns.turned)} of {s.d} channels change",
                "pairs of which both turn",
                "partners are taken from the whole width: cut x[..., "
                ":rotary_dim] off first, and halve that.",
            )
    kept = [i for i in range(s.d) if i not in turns.turned]
    if kept and far(turns.k[:, kept], turns.q[:, kept]) > s.tolerance:
        return failed(
            "Channels that queries pass through are changed in keys.",
            f"channels {kept} differ",
            "the same width for both",
            "queries and keys are cut at different widths.",
        )
    measured = f"{len(turns.turned)} of {s.d} channels turn"
    wanted = s.rotary_dim
    if wanted is None:
        return passed(measured, "pairs, and the others untouched")
    if turns.turned != list(range(wanted)):
        first = f"{turns.turned[:8]}" if turns.turned else "none"
        return failed(
            "Other channels turn than those of the setting rotary_dim.",
            f"{measured}, the first of them {first}",
            f"channels 0 to {wanted - 1}",
            "the split into a part that turns and a part that passes is at "
            "another place (a share of d that is doubled or halved, the last "
            "channels instead of the first), or the table has another width: "
            "x[..., :rotary_dim] turns, x[..., rotary_dim:] passes.",
        )
    n = len(turns.pairs)
    if s.base and s.frequencies is None and n > 1 and wanted < s.d:
        of_all = s.base ** (-2 * torch.arange(n).double() / s.d)
        if far(turns.rates, of_all) < 1e-4:
            return failed(
                f"The frequencies are those of a width of {s.d}.",
                f"frequencies {numbers(turns.rates)}",
                numbers(s.base ** (-2 * torch.arange(n).double() / wanted)),
                f"the exponent is divided by the head width {s.d}: divide by "
                f"rotary_dim = {wanted}.",
            )
    return passed(measured, f"the first {wanted}")


@check("core/order")
def positions_offset_ignored(s: Positions) -> Finding:
    """Positions that are given and not followed."""
    s = s.alone()
    if s.scheme == "additive":
        return skipped("alibi_while_decoding asks this of a bias.")
    if s.signature in ("x", "q, k", "n"):
        return skipped(
            "The code takes no positions and no offset: decoded one at a time, "
            "every token would stand at position 0."
        )
    whole = list(range(min(12, s.max_length or 12)))
    shuffled = whole[::2] + whole[1::2][::-1]
    asks = [[whole[-2]], whole[3:7], whole[-1:]]
    if s.scheme == "table":
        read: Callable[[list[int]], tuple[Tensor, ...]] = lambda p: (  # noqa: E731
            s.table(p),
        )
    else:
        read = s.matrices
    if s.scheme == "rotary" and s.signature and "offset" not in s.signature:
        asks.append(shuffled)
    parts = ("queries", "keys") if s.scheme == "rotary" else ("the table",)
    for part, name in enumerate(parts):
        full = read(whole)[part]
        if far(full[1:], full[:1]) == 0 and part:
            continue
        if far(full[1:], full[:1]) == 0:
            return failed(
                f"Positions change nothing for {name}.",
                "the same output at every position",
                "another rotation at each position",
                "the result of the rotation is not used, or the angles are 0.",
            )
        for asked in asks:
            got = read(asked)[part]
            error = far(got, full[asked])
            if error <= s.tolerance:
                continue
            zero = far(got, full[: len(asked)]) <= s.tolerance
            return failed(
                f"The positions that are given are not those that {name} get.",
                f"alone at positions {asked} they differ by {brief(error)} "
                "from the same positions in a whole sequence"
                + (", and equal positions 0, 1, ..." if zero else ""),
                "0",
                "positions are counted from 0 in every call (arange(T)) and "
                "the argument is not used: take cosine and sine at the given "
                "positions, so that a token decoded after n others stands at n."
                if zero
                else "the offset is added twice, with another sign, or to a "
                "part of the positions: angles must be (offset + arange(T)) "
                "times the frequencies, or cos[positions].",
            )
    if s.scheme == "rotary" and s.rows:
        return rows_followed(s)
    return passed("every position as in a whole sequence", "")


def rows_followed(s: Positions) -> Finding:
    """Positions (B, T): rows of a batch with their own."""
    x = torch.randn(
        2, s.heads, 4, s.d, generator=generator(s, 5), dtype=torch.float64
    ).to(s.dtype)
    rows = [[0, 1, 2, 3], [3, 4, 5, 6]]
    both, _ = s.ask(x, torch.tensor(rows))
    for row, places in enumerate(rows):
        alone, _ = s.rotate(x[row : row + 1], places)
        error = far(both[row : row + 1], alone)
        if error > 10 * s.tolerance:
            return failed(
                "Rows of a batch do not get their own positions.",
                f"row {row} at positions {places} differs by {brief(error)} "
                "from the same row alone",
                "0",
                "positions of the first row, or by heads instead of rows, are "
                "used for all: with positions (B, T), cosine and sine are "
                "(B, T, d) and need an axis for the heads (unsqueeze).",
            )
    return passed("every row as it is alone", "")


def inputs_changed(s: Positions) -> Finding | None:
    """Whether the caller's positions are other ones after the call."""
    if not (s.signature or "").endswith("positions") or s.rows == "only":
        return None
    given = torch.arange(4) + 1
    if s.scheme == "rotary":
        s.ask(torch.ones(1, s.heads, 4, s.d, dtype=s.dtype), given)
    elif s.signature == "positions":
        called(s.call or s.apply, *([s.apply] if s.call else []), given)
    if torch.equal(given, torch.arange(4) + 1):
        return None
    return failed(
        "The call changes the positions that it is given.",
        f"{given.tolist()} after the call",
        "[1, 2, 3, 4]",
        "an operation in place (+=, add_, clamp_) works on the caller's "
        "tensor, so that the next layer or call gets other positions.",
    )


@check("core/order")
def positions_calls_remembered(s: Positions) -> Finding:
    """Results that depend on earlier calls."""
    most = s.max_length or 16
    short_, single = list(range(5)), [3]
    # Scaling that depends on the length begins at some long one.
    long_ = list(range(min(1100, most)))
    later = [p for p in range(20, 25) if p < most] or [most - 1]

    def ask(t: Positions, which: str) -> Tensor:
        if t.scheme == "additive":
            sizes = {"short": 5, "long": min(40, most), "later": min(26, most)}
            n = sizes[which]
            return t.bias(n, n)
        places = {
            "short": short_,
            "long": long_,
            "later": later,
            "single": single,
        }[which]
        if t.scheme == "table":
            return t.table(places)
        return t.matrices(places)[0]

    changed = inputs_changed(s.alone())
    if changed:
        return changed
    names = ["short", "long", "later"]
    if s.scheme != "additive":
        names.append("single")
    alone = {name: ask(s.alone(), name) for name in names}
    for first in (*names, "low"):
        t = s.alone()
        if first == "low":
            if s.scheme != "rotary":
                continue
            low = dataclasses.replace(t, dtype=torch.bfloat16)
            try:
                ask(low, "long")
            except (SubjectError, UnsuitableError):
                continue
        else:
            ask(t, first)
        for second in names:
            try:
                error = far(ask(t, second), alone[second])
            except SubjectError as problem:
                return failed(
                    f"After a {first} call, a {second} one raises.",
                    str(problem),
                    "the same as without the first call",
                    "a table is kept that is too short: make it again, longer, "
                    "when a larger position comes.",
                )
            if error > s.tolerance:
                calls = {
                    "short": "positions 0 to 4",
                    "long": f"positions 0 to {len(long_) - 1}",
                    "later": f"positions {later[0]} to {later[-1]}",
                    "single": "position 3 alone",
                    "low": "x in bfloat16",
                }
                return failed(
                    "The result depends on an earlier call.",
                    f"{calls[second]} differ by {brief(error)} after a call "
                    f"with {calls[first]}",
                    "0",
                    "a table of angles is kept between calls in the dtype of "
                    "the first one: keep it in float32."
                    if first == "low"
                    else "a table of angles, a counter or a base is kept "
                    "between calls and used for other positions or lengths: "
                    "index the table by position, and change nothing but its "
                    "length.",
                )
    return passed("the same after every other call", "")


@check("core/order")
def positions_frequencies(s: Positions) -> Finding:
    """Frequencies against the specification."""
    turns = read_turns(s.alone())
    shown = numbers(turns.rates.abs())
    if s.base is None and s.frequencies is None:
        fit = fitted_base(turns.rates)
        return skipped(
            "Needs a specification: set base (10000 in the paper) or "
            f"frequencies. Measured: {shown} rad per position"
            + (f", as with base {brief(fit)}." if fit else ".")
        )
    n = len(turns.rates)
    if not n:
        return skipped("No channels turn in pairs.")
    width = s.rotary_dim or 2 * n
    if s.frequencies is not None:
        wanted = torch.as_tensor(s.frequencies).double().flatten()
    else:
        wanted = float(s.base or 0) ** (-2 * torch.arange(n).double() / width)
    wanted = wanted[wanted != 0] if len(wanted) != n else wanted
    if len(wanted) != n:
        return failed(
            "Another number of pairs turns than the specification says.",
            f"{n} pairs",
            f"{len(wanted)} pairs",
            "rotary_dim (or the width of the table) is another: see "
            "partial_width.",
        )
    near = s.near(torch.tensor(turns.positions))[:, None]
    error = wrapped(turns.angles - turns.places * wanted).abs()
    if (error <= 2 * near).all():
        return passed(f"frequencies {shown}", numbers(wanted))
    start = turns.angles[turns.positions.index(0)]
    for shift in range(-2, 3):
        moved = wrapped(turns.angles - (turns.places + shift) * wanted).abs()
        if (moved <= 2 * near).all():
            return hazard(
                f"Positions are counted from {shift}.",
                f"angles at position 0: {numbers(start)}",
                "0",
                "harmless where queries and keys are counted alike, and wrong "
                "with keys that other code has turned.",
            )
    pair = int((error > 2 * near).any(0).nonzero()[0])
    rows = [p for p in (0, 1, 2, 8, 64, 1000) if p in turns.positions]
    rows_text = "; ".join(
        f"position {p}: "
        f"{brief(float(turns.angles[turns.positions.index(p), pair]))} for "
        f"{brief(float(wrapped(p * wanted[pair])))}"
        for p in rows
    )
    return failed(
        f"The frequencies are not those of the specification, from pair {pair} "
        "on.",
        f"{shown} rad per position (angles of pair {pair}: {rows_text})",
        numbers(wanted),
        likely_frequencies(s, turns, wanted, width),
    )


def likely_frequencies(
    s: Positions, turns: Turns, wanted: Tensor, width: int
) -> str:
    """The mistake that gives the measured frequencies."""
    n = len(wanted)
    i = torch.arange(n).double()
    slope = float(-wanted[-1].log() + wanted[0].log()) / max(n - 1, 1)
    base = float(s.base) if s.base else math.exp(slope * n)
    guesses: list[tuple[Tensor, str]] = [
        (-wanted, "it turns the other way: the sine has the wrong sign."),
        (wanted.flip(0), "the frequencies are in reverse order."),
        (
            base ** (-2 * i / s.d),
            f"the exponent is divided by the head width {s.d}: divide by "
            f"rotary_dim = {width}.",
        ),
        (
            base ** (-i / width),
            "the exponent lacks its 2: arange(0, rotary_dim, 2) / rotary_dim, "
            "that is 2i / rotary_dim.",
        ),
        (
            base ** (-4 * i / width),
            "the exponent has its 2 twice: 2 * arange(0, rotary_dim, 2).",
        ),
        (
            base ** (-2 * (i + 1) / width),
            "the exponents are one too far: they start with 0, so that the "
            "first frequency is 1.",
        ),
        (
            base ** (-i / max(n - 1, 1)),
            "the exponents run to 1 (linspace, or divided by n - 1): the last "
            "one is (rotary_dim - 2) / rotary_dim.",
        ),
        (
            base ** (2 * i / width),
            "the frequencies are inverted: 1 / base ** …",
        ),
        (wanted * 180 / math.pi, "angles are in degrees: torch.cos wants rad."),
        (wanted * math.pi / 180, "angles were converted from degrees twice."),
        (wanted * 2 * math.pi, "a factor 2π too much."),
    ]
    heads = s.n_heads or 0
    if heads:
        guesses.append(
            (
                base ** (-2 * i / (s.d * heads)),
                "the exponent is divided by the model width: divide by "
                "rotary_dim.",
            )
        )
    near = s.near(torch.tensor(turns.positions))[:, None] * 4
    for guess, cause in guesses:
        if (wrapped(turns.angles - turns.places * guess).abs() <= near).all():
            return cause
    # Of the slowest pair, which is the last to turn by more than π at once.
    ratio = float((turns.rates[-1] / wanted[-1]).abs())
    scaled = turns.places * wanted * ratio
    if (wrapped(turns.angles - scaled).abs() <= near).all():
        return (
            f"all frequencies are {brief(ratio)} times those: a scaling factor "
            "is missing, applied twice or inverted (positions are divided by "
            "it)."
        )
    fit = fitted_base(turns.rates)
    if fit and s.frequencies is None:
        return f"the base is {brief(fit)} instead of {brief(base)}."
    if fit:
        return f"they are those of base {brief(fit)}, without the scaling."
    return (
        "they follow another rule: print 1 / base ** (arange(0, rotary_dim, 2) "
        "/ rotary_dim) beside them."
    )


def paper_slopes(n: int) -> Tensor:
    """Slopes of ALiBi for n heads, by its paper's code."""
    power = 2 ** int(math.log2(n))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-4 * (2 * i + 1) / power) for i in range(n - power)]
    return torch.tensor(slopes + extra).double()


def linear_slopes(s: Positions) -> Tensor:
    """Slopes of a linear bias, or the reason why there are none."""
    if s.scheme != "additive":
        raise UnsuitableError("only for a bias that is added to the logits")
    slopes = steps_of(s)
    if slopes is None and s.slopes is None:
        raise UnsuitableError(
            "the bias is not linear in the distance: no ALiBi"
        )
    if slopes is None:
        n = min(16, s.max_length or 16)
        slopes = -s.relative(n, n)[:, -1, -2]
    return slopes


@check("core/order")
def positions_alibi_slopes(s: Positions) -> Finding:
    """Slopes of a linear bias."""
    s = s.alone()
    slopes = linear_slopes(s)
    n = len(slopes)
    paper = paper_slopes(n)
    shown = f"slopes {numbers(slopes, 12)}"
    if n > 1 and far(slopes, slopes[0]) < 1e-6:
        return failed(
            "All heads have the same slope.",
            shown,
            "another for each head",
            "the slopes are not laid along the heads: slopes[:, None, None].",
        )
    wanted = paper if isinstance(s.slopes, str) else s.slopes
    if wanted is None:
        if far(slopes.abs(), paper) <= 1e-4:
            return passed(shown, "the paper's")
        return hazard(
            "The slopes are not those of the ALiBi paper.",
            shown,
            numbers(paper, 12),
            f"{likely_slopes(slopes.abs(), n)} If they are meant, set slopes.",
        )
    wanted = torch.as_tensor(wanted).double().flatten()
    if len(wanted) == n and far(slopes.abs(), wanted.abs()) <= 1e-4:
        if steps_of(s) is None:
            return failed(
                "The bias is not linear in the distance.",
                numbers(s.relative(8, 8)[0, -1].flip(0), 8),
                numbers(-wanted[0] * torch.arange(8), 8),
                "the distance is squared, rounded or clipped: "
                "-slope * (i - j).",
            )
        return passed(shown, numbers(wanted, 12))
    return failed(
        "The slopes are not those of the specification.",
        shown,
        numbers(wanted, 12),
        likely_slopes(slopes.abs(), n),
    )


def likely_slopes(slopes: Tensor, n: int) -> str:
    """The mistake that gives these slopes."""
    i = torch.arange(n).double()
    paper = paper_slopes(n)
    guesses = [
        (
            2 ** (-8 * i / n),
            "they start with 1: head i has 2 ** (-8 (i+1) / n).",
        ),
        (paper.flip(0), "they are in reverse order."),
        (
            2 ** (-8 * (i + 1) / n),
            f"{n} heads are no power of two: take the slopes of the power "
            "below, then every second one of twice that power.",
        ),
        (2 ** (-(i + 1)), "the exponent is not -8 (i+1) / n, but -(i+1)."),
        (paper.sort(descending=True)[0], "they were sorted."),
    ]
    for guess, cause in guesses:
        if far(slopes, guess) < 1e-4:
            return cause
    ratio = slopes / paper
    if far(ratio, ratio[0]) < 1e-3 * float(ratio[0]):
        return f"all are {brief(float(ratio[0]))} times the paper's."
    power = 2 ** int(math.log2(n))
    if n != power and far(slopes[:power], paper[:power]) < 1e-4:
        return (
            f"the first {power} are right, and those beyond a power of two are "
            "not: every second one of twice that power, from the first on."
        )
    return "head i of n (a power of two) has 2 ** (-8 (i+1) / n)."


@check("core/order")
def positions_alibi_sign(s: Positions) -> Finding:
    """A linear bias that favours distant keys."""
    s = s.alone()
    n = min(8, s.max_length or 8)
    if s.scheme == "additive":
        both = dataclasses.replace(s, causal=False).relative(n, n)
        row = both[:, n // 2]
        past, future = row[:, : n // 2], row[:, n // 2 + 1 :]
        if far(past, row[:, n // 2 :][:, :1]) == 0 and (
            future.isfinite().all() and far(future[:, 1:], future[:, :1]) > 0
        ):
            return failed(
                "The bias tells apart keys after the query, and not those "
                "before it.",
                f"bias of query {n // 2} in head 0: {numbers(row[0], n)}",
                "one that changes with the distance of keys before the query",
                "queries and keys are exchanged in the difference: it is "
                "key - query, or query - key, as the rest of the code has it.",
            )
    slopes = linear_slopes(s)
    relative = s.relative(n, n)
    ahead = relative[:, 0, -1]
    measured = f"bias 1 key back {brief(-float(slopes[0]))}, in head 0"
    if (slopes < 0).any():
        return failed(
            "The bias grows with the distance: far keys are favoured.",
            measured,
            "negative",
            "the sign is wrong, or queries and keys are exchanged in the "
            "difference: -slope * (i - j) for a key j before the query i.",
        )
    if s.causal is False and (ahead > 0).any():
        return failed(
            "Keys after the query are favoured, the more the farther.",
            f"bias {n - 1} keys ahead {brief(float(ahead[0]))}, in head 0",
            "negative",
            "without a causal mask the distance has to be absolute: "
            "-slope * |i - j|.",
        )
    return passed(measured, "negative")


@check("core/order")
def positions_alibi_while_decoding(s: Positions) -> Finding:
    """A bias for fewer queries than keys."""
    s = s.alone()
    if s.scheme != "additive":
        return skipped("Only for a bias that is added to the logits.")
    return bias_while_decoding(s)


def bias_while_decoding(s: Positions) -> Finding:
    """Last queries with all keys against the same rows of the full bias."""
    n = min(9, s.max_length or 9)
    full = s.relative(n, n)
    for few in (1, 3):
        try:
            bias = s.bias(few, n)
        except SubjectError as problem:
            return failed(
                f"A bias for {few} queries and {n} keys raises.",
                str(problem),
                f"the last rows of the bias for {n} queries",
                "the bias is square: build it from both lengths.",
            )
        rows = full[:, -few:]
        seen = ~rows.isnan()
        bias, rows = bias.masked_fill(~seen, 0.0), rows.masked_fill(~seen, 0.0)
        # Only differences within a row count.
        finite = bias.isfinite() & rows.isfinite()
        lift = (bias - rows)[:, :, :1]
        lift = torch.where(lift.isfinite(), lift, 0.0)
        error = far(
            (bias - lift).masked_fill(~(seen & finite), 0.0),
            rows.masked_fill(~(seen & finite), 0.0),
        )
        lost = bool((seen & (bias.isinf() != rows.isinf())).any())
        if error <= 1e-4 and not lost:
            continue
        row = bias[0, 0] - bias[0, 0, 0]
        return failed(
            "The bias while decoding is not that of the last queries.",
            f"with {few} queries and {n} keys off by {brief(error)}"
            + (", and keys are hidden" if lost else "")
            + f" (head 0, first row: {numbers(row, 9)})",
            f"{numbers(rows[0, 0] - rows[0, 0, 0], 9)}",
            "queries are counted from 0 (top-left): with a cache, query i of "
            "Tq stands at i + Tk - Tq, so that the last query sits on the last "
            "key.",
        )
    return passed("the last rows of the full bias", "")


# --- Caches -------------------------------------------------------------------


@dataclass(frozen=True)
class Cache(Subject):
    """Decoding with a cache, and how it is called.

    Settings that are None are found out, unless their line says what None
    means.

    Attributes
    ----------
    step : callable
        ``step(chunk, state)`` returns (output, state), where the state None
        starts a sequence. Or ``step(chunk)``, if it holds the cache itself.
    full : callable
        ``full(x)``, one causal pass over the whole sequence. None: the step
        over the whole sequence as one chunk.
    d_model : int
        Width C of inputs (B, T, C).
    vocabulary : int
        Number of token ids, if inputs are ids (B, T). None: no ids.
    reset : callable or str
        What starts a sequence where the step holds the cache itself, or the
        name of the method.
    window : int
        How many keys a query sees at most, its own among them. None: as the
        full pass.
    sinks : int
        How many first keys are seen beside the window.
    max_length : int
        How many tokens a sequence may have. None: no end is known.
    mask : str
        Name of the argument of step and full that takes a mask (B, T of the
        chunk) for left padding. None: the one with "mask" in its name.
    mask_convention : str
        "attend" (True = a token), "hide" (True = padding), "ones" or
        "additive".
    mask_covers : str
        "chunk", or "all" where a step takes the mask of all tokens so far.
    tolerance : float
        Relative to outputs of size 1. None: as in TOLERANCE.
    options : dict
        Further keyword arguments of every call.
    seed : int
        Of the random inputs.
    """

    kind: ClassVar[str] = "cache"
    step: Callable[..., Any]
    full: Callable[..., Any] | None = None
    d_model: int | None = None
    vocabulary: int | None = None
    reset: Callable[[], Any] | str | None = None
    window: int | None = None
    sinks: int = 0
    max_length: int | None = None
    mask: str | None = None
    mask_convention: str = "attend"
    mask_covers: str = "chunk"
    tolerance: float | None = None
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    dtype: torch.dtype | None = None
    detected: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("step", "full"):
            given = getattr(self, name)
            if not callable(given) and (given is not None or name == "step"):
                raise TypeError(
                    f"{name} must be callable, got {type(given).__name__}: "
                    "pass the function or module itself, not its result"
                )
        one_of("mask_convention", self.mask_convention, CONVENTIONS)
        one_of("mask_covers", self.mask_covers, ("chunk", "all"))

    def name(self) -> str:
        """Name of the step."""
        return getattr(self.step, "__name__", type(self.step).__name__)

    def found_out(self) -> "Cache":
        """Same subject, with what was not given found out."""
        return detect_cache(self)

    @property
    def near(self) -> float:
        """Largest error that rounding explains."""
        return self.tolerance or TOLERANCE[self.dtype or torch.float64]

    @property
    def inside(self) -> bool:
        """Whether the step holds the cache itself."""
        return self.reset is not None

    @property
    def length(self) -> int:
        """How many tokens to ask: more than two windows where there is one."""
        n = max(12, 2 * (self.window or 0) + self.sinks + 4)
        if self.max_length and self.max_length <= 48:
            return self.max_length
        return n

    def alone(self) -> "Cache":
        """Same subject as it was before any call."""
        step, full, reset = fresh((self.step, self.full, self.reset))
        return dataclasses.replace(self, step=step, full=full, reset=reset)

    def draw(self, b: int, t: int, salt: int = 0) -> Tensor:
        """Random inputs (B, T, C), or ids (B, T)."""
        g = generator(self, salt + 17)
        if self.vocabulary:
            return torch.randint(self.vocabulary, (b, t), generator=g)
        x = torch.randn(
            b, t, self.d_model or 16, generator=g, dtype=torch.float64
        )
        return x.to(self.dtype)

    def other(self, x: Tensor) -> Tensor:
        """Inputs of which every token is another one."""
        if self.vocabulary:
            return (x + 1) % self.vocabulary
        return 1.5 - 2 * x.flip(-1)

    def masked(
        self, function: Any, x: Tensor, mask: Tensor | None
    ) -> dict[str, Any]:
        """Keyword arguments with the mask, True = a token."""
        name = self.mask
        if name is None:
            return dict(self.options)
        if mask is None:
            if not has_no_default(function, name):
                return dict(self.options)
            mask = torch.ones(x.shape[:2], dtype=torch.bool)
        given = mask_as(mask, self.mask_convention, self.dtype or torch.float32)
        return {**self.options, name: given}

    def start(self) -> None:
        """Start a sequence where the step holds the cache itself."""
        if callable(self.reset):
            self.reset()
        elif self.reset:
            owner = getattr(self.step, "__self__", self.step)
            getattr(owner, self.reset)()

    def once(
        self, chunk: Tensor, state: Any, mask: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """One step: its output (B, T, C) and the state after it."""
        kept: list[Any] = []

        def collect(*args: Any, **kwargs: Any) -> Any:
            result = self.step(*args, **kwargs)
            pair = isinstance(result, list | tuple) and len(result) > 1
            kept.append(result[1] if pair else None)
            return result

        arguments = [chunk] if self.inside else [chunk, state]
        output = called(
            collect, *arguments, **self.masked(self.step, chunk, mask)
        ).detach()
        if output.shape[:2] != chunk.shape[:2]:
            raise SubjectError(
                f"the output of a step has the shape {tuple(output.shape)} for "
                f"a chunk of shape {tuple(chunk.shape)}"
            )
        # The output may be a view of a buffer that the next step overwrites.
        return output.double().clone(), kept[0]

    def decode(
        self, x: Tensor, split: Sequence[int], mask: Tensor | None = None
    ) -> tuple[Tensor, Any]:
        """Outputs (B, T, C) of a new sequence in chunks, and the last state."""
        self.start()
        state, outputs, begin = None, [], 0
        for n in split:
            chunk = x[:, begin : begin + n]
            part = None
            if mask is not None:
                left = 0 if self.mask_covers == "all" else begin
                part = mask[:, left : begin + n]
            output, state = self.once(chunk, state, part)
            outputs.append(output)
            begin += n
        return torch.cat(outputs, 1), state

    def whole(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Outputs (B, T, C) of the full pass."""
        if self.full is None:
            return self.decode(x, [x.shape[1]], mask)[0]
        output = called(
            self.full, x, **self.masked(self.full, x, mask)
        ).detach()
        if output.shape[:2] != x.shape[:2]:
            raise SubjectError(
                f"the output of the full pass has the shape "
                f"{tuple(output.shape)} for inputs of shape {tuple(x.shape)}"
            )
        return output.double().clone()

    def size(self, output: Tensor) -> float:
        """Size of outputs that errors are relative to."""
        return max(1.0, far(output, torch.zeros(())))

    def reach(self, n: int, split: Sequence[int] | None) -> Tensor:
        """Which tokens (T, T) change the output: row query, column token.

        Two sequences are asked, as a softmax can hide a token from one; inputs
        are small, so that it is not saturated.
        """
        return self.changes(n, split, 3) | self.changes(n, split, 8)

    def changes(self, n: int, split: Sequence[int] | None, salt: int) -> Tensor:
        """Which tokens (T, T) of one sequence change the output."""
        x = self.draw(1, n, salt)
        x = x if self.vocabulary else x / 4
        other = self.other(x) if self.vocabulary else self.other(4 * x) / 4
        x = x.repeat(n + 1, *[1] * (x.ndim - 1))
        at = torch.arange(n)
        x[at + 1, at] = other[0]

        def outputs(rows: Tensor) -> Tensor:
            s = self.alone()
            return s.whole(rows) if split is None else s.decode(rows, split)[0]

        try:
            y = outputs(x)
        except SubjectError:
            y = torch.cat([outputs(row[None]) for row in x])
        change = (y[1:] - y[:1]).abs().amax(-1).T
        exact = 1e-10 if self.dtype == torch.float64 else 1e-6
        return change > exact * self.size(y)


def check_cache(
    step: Callable[..., Any],
    full: Callable[..., Any] | None = None,
    **settings: Any,
) -> Report:
    """Check decoding with a cache against one causal pass.

    Parameters
    ----------
    step : callable
        ``step(chunk, state)`` returns (output, state).
    full : callable
        ``full(x)``.
    **settings
        Those of `Cache`.

    Returns
    -------
    Report

    Raises
    ------
    TypeError, ValueError
        When a setting is unknown, or no input gives an output.
    """
    return run_checks(Cache(step, full, **settings))


def detect_cache(s: Cache) -> Cache:
    """Find out what inputs are taken, and how a sequence is started."""
    found: dict[str, str] = {}
    if s.reset is None:
        owner = getattr(s.step, "__self__", s.step)
        names = ("reset", "reset_cache", "clear_cache", "clear", "start")
        name = next((m for m in names if hasattr(owner, m)), None)
        takes_state = argument(s.step, "state", "cache", "past", "kv")
        if name and not takes_state:
            s = dataclasses.replace(s, reset=name)
            found["reset"] = name
    if s.mask is None:
        s = dataclasses.replace(s, mask=argument(s.step, "mask", "pad"))
        if s.mask:
            found["mask"] = s.mask
    dtypes = [s.dtype] if s.dtype else [*TOLERANCE]
    widths = [s.d_model] if s.d_model or s.vocabulary else list(HEAD_WIDTHS)
    problem: SubjectError | None = None
    for dtype in dtypes:
        for width in widths:
            tried = dataclasses.replace(s, dtype=dtype, d_model=width).alone()
            try:
                tried.decode(tried.draw(2, 3), [1, 2])
            except SubjectError as error:
                problem = problem or error
                try:
                    tried = tried.alone()
                    tried.whole(tried.draw(2, 3))
                except SubjectError:
                    continue
            s = dataclasses.replace(s, dtype=dtype, d_model=width)
            if s.d_model and len(widths) > 1:
                found["d_model"] = str(width)
            if s.window is None:
                s = with_window(s, found)
            return dataclasses.replace(s, detected=found)
    raise ValueError(
        f"no known input gives an output: {problem}. Say what is taken: "
        "d_model or vocabulary, dtype, and reset where the step holds the "
        "cache itself"
    )


def with_window(s: Cache, found: dict[str, str]) -> Cache:
    """Same subject, with the window and the sinks of its full pass."""
    try:
        rows = s.reach(s.length, None)
    except SubjectError:
        return s
    seen = rows[-1].tolist()
    if all(seen) or not seen[-1]:
        return s
    window = seen[::-1].index(False)
    sinks = seen.index(False)
    before = rows[-2].tolist()[-2::-1]
    if before[:window] != [True] * window or before[window]:
        return s
    found["window"], found["sinks"] = str(window), str(sinks)
    return dataclasses.replace(s, window=window, sinks=sinks)


def has_no_default(function: Any, name: str) -> bool:
    """Whether a parameter has to be given."""
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is parameter.empty


def splits(n: int) -> dict[str, list[int]]:
    """Ways to cut a sequence of n tokens."""
    uneven, left = [], n
    for k in (3, 1, 4, 2) * n:
        if left:
            uneven.append(min(k, left))
            left -= uneven[-1]
    half = n // 2
    return {
        "single tokens": [1] * n,
        "one chunk": [n],
        f"a prefill of {half} and single tokens": [half, *[1] * (n - half)],
        f"chunks of {', '.join(map(str, uneven[:4]))}, ...": uneven,
        f"two chunks of {half} and {n - half}": [half, n - half],
    }


def shares_order(s: Cache, n: int, split: Sequence[int] | None) -> bool:
    """Whether the last output stays when the first two tokens change places."""
    x = s.draw(1, n, salt=4)
    y = x.clone()
    y[:, 0], y[:, 1] = x[:, 1], x[:, 0]
    t = s.alone()
    if split is None:
        a, b = t.whole(x), t.alone().whole(y)
    else:
        a, b = t.decode(x, split)[0], t.alone().decode(y, split)[0]
    return far(a[:, -1], b[:, -1]) <= s.near * s.size(a)


def cause_of_difference(
    s: Cache, n: int, split: list[int], first: int
) -> tuple[str, str]:
    """What the tokens that are seen say about a difference, and what to do."""
    wanted, seen = s.reach(n, None), s.reach(n, split)
    begins = [sum(split[:i]) for i in range(len(split))]
    rows = torch.arange(n)
    begin = torch.tensor(
        [b for b, k in zip(begins, split, strict=True) for _ in range(k)]
    )
    extra, lost = seen & ~wanted, wanted & ~seen
    if (wanted & (rows > rows[:, None])).any():
        return (
            "the full pass sees the future",
            "the pass that the steps are compared with is not causal: give it "
            "a causal mask.",
        )
    if (extra & (rows > rows[:, None])).any():
        t = int((extra & (rows > rows[:, None])).any(1).nonzero()[0])
        return (
            f"token {t} sees later tokens of its own chunk",
            "there is no causal mask within a chunk: query i of a chunk that "
            "starts at p may see keys up to p + i only (a mask tril(Tq, Tk) "
            "with diagonal=Tk - Tq).",
        )
    if extra.any():
        t = int(extra.any(1).nonzero()[0])
        keys = extra[t].nonzero()[:, 0].tolist()
        return (
            f"token {t} sees {keys}, which the full pass does not",
            "the window is longer than in the full pass, or old slots are not "
            "masked: see window_length.",
        )
    if lost.any():
        t = int(lost.any(1).nonzero()[0])
        keys = lost[t].nonzero()[:, 0].tolist()
        what = f"token {t} does not see {keys}, which the full pass does"
        b = int(begin[t])
        if max(keys) >= b:
            return (
                what,
                "tokens of the same chunk are hidden or not written yet: write "
                "keys and values before attending, and align the mask to the "
                "last key (bottom-right), which F.scaled_dot_product_attention "
                "with is_causal=True does not when Tq < Tk.",
            )
        if keys == list(range(b)):
            return (
                what,
                "nothing is left of earlier chunks: the state is not passed "
                "on, is overwritten from slot 0 by every chunk, or the mask of "
                "the chunk is aligned top-left and hides the cache.",
            )
        if min(keys) > 0 and seen[t, : min(keys)].any():
            return (
                what,
                "single tokens are lost: the slot that is written next is "
                "counted wrongly (off by one, or by chunks instead of tokens), "
                "so that entries are overwritten.",
            )
        return (
            what,
            "the oldest entries are dropped while they are still needed: see "
            "rolled_early and window_length.",
        )
    what = "the same tokens are seen, with other weights"
    if shares_order(s, n, split) and not shares_order(s, n, None):
        return (
            f"{what}, and exchanging the first two tokens changes nothing",
            "positions restart in every chunk: the offset is not used, so that "
            "new tokens stand at position 0. Pass the length of the cache as "
            "the offset of queries and keys.",
        )
    twice = position_twice(s)
    if twice:
        return what, f"{twice[0]} See rotated_twice."
    if first == 0:
        return (
            f"{what}, from the very first token on",
            "slots that were never written are attended to (see "
            "unwritten_slots), or a step scales, normalises or adds positions "
            "in another way than the full pass.",
        )
    return (
        what,
        "positions: new tokens have to stand at the number of tokens before "
        "them (offset = length of the cache, not of the chunk or the window), "
        "and cached keys where they stood when they came. Else a factor, a "
        "bias or a normalisation differs between step and full pass.",
    )


@check("practice/bugs-positions")
def cache_runs(s: Cache) -> Finding:
    """Ordinary calls give an output."""
    x = s.draw(2, 4)
    s.alone().whole(x)
    s.alone().decode(x, [1, 1, 1, 1])
    return passed(f"an output for x {tuple(x.shape)}", "")


@check("practice/bugs-positions")
def cache_chunks_differ(s: Cache) -> Finding:
    """Steps that do not give what one pass gives."""
    n = s.length
    x = s.draw(3, n, salt=1)
    wanted = s.alone().whole(x)
    near = s.near * s.size(wanted)
    for name, split in splits(n).items():
        try:
            got, _ = s.alone().decode(x, split)
        except SubjectError as error:
            return failed(
                f"The sequence, cut into {name}, raises.",
                str(error),
                "an output",
                "chunks of any length have to be taken, after any number of "
                "tokens: shapes of masks and positions have to follow both.",
            )
        errors = (got - wanted).nan_to_num(math.inf).abs().amax((0, 2))
        if float(errors.max()) <= near:
            continue
        first = int((errors > near).nonzero()[0])
        begins = [sum(split[:i]) for i in range(len(split))]
        chunk = max(i for i, b in enumerate(begins) if b <= first)
        what, cause = cause_of_difference(s, n, split, first)
        return failed(
            f"Cut into {name}, the output differs from the full pass, first at "
            f"position {first}, in chunk {chunk + 1} of {len(split)} "
            f"(token {first - begins[chunk] + 1} of its "
            f"{split[chunk]}): {what}.",
            f"off by {brief(float(errors[first]))} there, "
            f"{brief(float(errors.max()))} at most",
            f"at most {brief(near)}",
            cause,
        )
    return passed(f"{len(splits(n))} ways to cut {n} tokens agree", "")


def alike(a: Sequence[Tensor], b: Sequence[Tensor]) -> list[int]:
    """Places of floating tensors of the same shape in both."""
    if len(a) != len(b):
        return []
    return [
        i
        for i, (x, y) in enumerate(zip(a, b, strict=True))
        if x.shape == y.shape and x.is_floating_point() and x.ndim > 1
    ]


def unwritten(s: Cache, n: int) -> list[tuple[int, Tensor]]:
    """Which elements of the state no token has written, by tensor.

    They are whole rows or columns that are the same after other tokens, in
    tensors of which other elements are not.
    """
    states = []
    x = s.draw(2, n, 21)
    for tokens in (x, s.other(x), s.other(s.other(x))):
        t = s.alone()
        _, state = t.decode(tokens, [n])
        states.append(tensors_in([t.step, state]))
    found = []
    for i in alike(states[0], states[1]):
        a, b = states[0][i], states[1][i]
        same = a == b
        if i < len(states[2]) and states[2][i].shape == a.shape:
            same = same & (a == states[2][i])
        idle = same.all(-1, keepdim=True) | same.all(-2, keepdim=True)
        idle = idle.expand_as(a)
        if idle.any() and not same.all():
            found.append((i, idle))
    return found


@check("practice/bugs-positions")
def cache_unwritten_slots(s: Cache) -> Finding:
    """Slots of the cache that are attended to before they are written."""
    most = 0
    for n in (1, 3, 5):
        if n + 2 > s.length:
            continue
        slots = unwritten(s, n)
        if not slots:
            continue
        t = s.alone()
        x = t.draw(2, n, 21)
        _, state = t.decode(x, [n])
        for k in (1, 2):
            step, kept = fresh((t.step, state))
            noisy = dataclasses.replace(t, step=step)
            tensors = tensors_in([step, kept])
            g = generator(s, 5)
            with torch.no_grad():
                for i, idle in slots:
                    noise = 3 * torch.randn(
                        tensors[i].shape, generator=g, dtype=torch.float64
                    )
                    tensors[i].copy_(
                        torch.where(idle, noise.to(tensors[i]), tensors[i])
                    )
            step, state_2 = fresh((t.step, state))
            plain = dataclasses.replace(t, step=step)
            chunk = t.draw(2, k, 24)
            a, b = plain.once(chunk, state_2)[0], noisy.once(chunk, kept)[0]
            change = far(a, b)
            most = max(most, n)
            if change > s.near * s.size(a):
                return failed(
                    "Slots that were never written are attended to.",
                    f"after {n} tokens, noise in the unwritten part of the "
                    f"cache changes the next {k} outputs by {brief(change)}",
                    "0",
                    "zeros in the cache are keys like others, with the logit "
                    "0: hide slots from the number of written tokens on (j < "
                    "length, after this chunk is written), or slice the "
                    "buffers to [:length].",
                )
    if not most:
        return passed("nothing unwritten in the state", "")
    return passed(
        f"unwritten slots change nothing, after up to {most} tokens", ""
    )


@check("practice/bugs-positions")
def cache_window_length(s: Cache) -> Finding:
    """How many tokens a query sees at last."""
    n = s.length
    full = s.reach(n, None)
    if s.window is None and full[-1].all():
        stepped = s.reach(n, [1] * n)
        if stepped.sum(1)[-1] < n and stepped[:, 0].any():
            first = int((stepped.sum(1) < torch.arange(n) + 1).nonzero()[0])
            if first > 1 and (stepped.sum(1)[first:] == first).all():
                return failed(
                    f"Steps see a window of {first} tokens, the full pass all.",
                    f"{first} of {n} tokens",
                    f"{n}",
                    "the cache is shorter than the sequence and drops tokens "
                    "that the full pass sees.",
                )
        return skipped(
            f"The full pass sees all of {n} tokens: no window (setting window)."
        )
    seen = int(full[-1].sum())
    wanted = seen
    layers = [k * ((s.window or 1) - 1) + 1 + s.sinks for k in range(1, 100)]
    advice = (
        "the window counts the query's own key: i - j < W with j <= i. In a "
        "cache of W slots, the new token is written first, then W are read; "
        "one that reads W old ones and its own has W + 1. A chunk of n "
        "tokens needs W + n - 1 keys."
    )
    if s.window and seen not in layers:
        wanted = s.window + s.sinks
        if seen != n:
            return failed(
                "The window of the full pass is not that of the setting.",
                f"its last query sees {seen} tokens",
                f"{wanted}",
                advice,
            )
    steady = (full.sum(1) < torch.arange(n) + 1).nonzero()[:, 0].tolist()
    for name, split in splits(n).items():
        rows = s.reach(n, split)
        for t in steady:
            want, got = listed(full[t]), listed(rows[t])
            inner = [j for j in got if j >= s.sinks]
            run = inner == list(range(t - len(inner) + 1, t + 1))
            if got != want and inner and run:
                return failed(
                    f"Cut into {name}, the window holds {len(inner)} tokens.",
                    f"query {t} sees {got}",
                    f"{want}",
                    (
                        "too few are kept: "
                        if len(got) < len(want)
                        else "too many are read: "
                    )
                    + advice,
                )
    return passed(f"the last query sees {wanted} tokens", f"{wanted}")


def listed(row: Tensor) -> list[int]:
    """Places where it is True."""
    return [int(j) for j in row.nonzero()[:, 0]]


@check("practice/bugs-positions")
def cache_rolled_early(s: Cache) -> Finding:
    """Tokens dropped while they are still needed."""
    n = s.length
    wanted, single = s.reach(n, None), s.reach(n, [1] * n)
    lost = wanted & ~single
    # Rows in which the full pass has dropped nothing yet.
    filling = wanted.sum(1) == torch.arange(n) + 1
    for t in listed(~filling):
        want, got = listed(wanted[t]), listed(single[t])
        gone = [j for j in want if j not in got]
        old = [j for j in got if j not in want]
        newer = [j for j in got if j > max(old, default=n)]
        if gone and any(s.sinks <= j < max(gone) for j in got):
            return failed(
                "Newer tokens are dropped, and older ones are kept.",
                f"one token at a time, query {t} sees {got}",
                f"{want}",
                "the wrong end of the buffer is dropped, or the slot that is "
                "written next is counted wrongly: the oldest goes first.",
            )
        if old and not gone and newer != list(range(max(old) + 1, t + 1)):
            return failed(
                "Old tokens are never dropped, beside a window of new ones.",
                f"one token at a time, query {t} sees {got}",
                f"{want}",
                "keys and values are not rolled or overwritten alike, so that "
                "old entries of one of them stay: do the same to both.",
            )
    if lost[-1].any() and not filling[-1]:
        return skipped("Steps drop a token throughout: see window_length.")
    early = listed(lost.any(1) & filling)
    if early and single[1:].sum() > n - 1:
        t = early[0]
        gone = listed(lost[t])
        if single[t, max(gone) :].any() and single[t, t] and t > 1:
            return failed(
                f"Token {gone[0]} is dropped when {t + 1} tokens have come, "
                "while the full pass still sees it.",
                f"query {t} does not see {gone}",
                f"all {t + 1}",
                "the buffer rolls or wraps before it is full: drop the oldest "
                "only when the number of tokens exceeds its length (compare "
                "with >, after counting this chunk), and count tokens, not "
                "steps.",
            )
    if filling.all():
        return passed("single steps lose nothing, and there is no window", "")
    for name, split in splits(n).items():
        rows = s.reach(n, split)
        lost = wanted & ~rows & single
        for t in listed(lost.any(1)):
            gone = listed(lost[t])
            kept = [j for j in listed(wanted[t]) if j >= s.sinks]
            if kept[0] in gone:
                return failed(
                    "Tokens are dropped before the queries of a chunk have "
                    "read them.",
                    f"cut into {name}, query {t} does not see {gone}",
                    f"{listed(wanted[t])}",
                    "a chunk is written over the oldest slots first, and its "
                    "first queries still need them: attend to old and new keys "
                    "together, then drop, or make the buffer longer by the "
                    "chunk.",
                )
    return passed("every token is kept as long as the full pass sees it", "")


@check("practice/bugs-positions")
def cache_left_padding(s: Cache) -> Finding:
    """A padded row against the same row alone."""
    if s.mask is None:
        return skipped("The step takes no mask (setting mask).")
    n, pads = min(10, s.length), (3, 0, 1)
    x = s.draw(3, n, salt=6)
    mask = torch.arange(n) >= torch.tensor(pads)[:, None]
    split = [n // 2, *[1] * (n - n // 2)]
    other = torch.where(
        mask if s.vocabulary else mask[..., None], x, s.other(x)
    )

    def stepped(y: Tensor, m: Tensor) -> Tensor:
        return s.alone().decode(
            y, split if y.shape[1] == n else [y.shape[1]], m
        )[0]

    asks = [
        ("a prefill and single steps", stepped),
        ("one chunk", lambda y, m: s.alone().decode(y, [y.shape[1]], m)[0]),
    ]
    if s.full is not None and argument(s.full, s.mask):
        asks.append(("the full pass", lambda y, m: s.alone().whole(y, m)))
    for name, ask in asks:
        padded, changed = ask(x, mask), ask(other, mask)
        for row, pad in enumerate(pads):
            alone = ask(x[row : row + 1, pad:], mask[row : row + 1, pad:])
            near = s.near * s.size(alone)
            got = padded[row : row + 1, pad:]
            errors = (got - alone).nan_to_num(math.inf).abs().amax((0, 2))
            if float(errors.max()) <= near:
                continue
            first = int((errors > near).nonzero()[0])
            leak = far(changed[row : row + 1, pad:], got)
            return failed(
                "A row of a batch with padding on the left differs from the "
                "same row alone.",
                f"in {name}, a row with {pad} padded tokens is off by "
                f"{brief(float(errors.max()))}, first at its token {first}; "
                f"other padding changes it by {brief(leak)}",
                "0, and 0",
                "padded keys are attended to: keep the mask of all tokens so "
                "far in the state, and hide padding in every step, not only in "
                "the prefill."
                if leak > near
                else "padding is hidden, and positions count it, or are those "
                "of another row: take them from the mask, row by row, "
                "cumsum(mask, 1) - 1, in the prefill and in every step.",
            )
    return passed("padded rows as alone", "")


def slots_of(s: Cache, n: int) -> list[tuple[int, int, list[int]]]:
    """Where single tokens lie in the state: tensor, axis and slots.

    Only tensors in which every token changes one slot, as in a first layer.
    """
    x = s.draw(1, n, salt=31)
    states = []
    for token in range(-1, n):
        y = x.clone()
        if token >= 0:
            y[:, token] = s.other(y[:, token])
        t = s.alone()
        _, state = t.decode(y, [n])
        states.append(tensors_in([t.step, state]))
    found = []
    for i in range(len(states[0])):
        if any(i not in alike(states[0], other) for other in states[1:]):
            continue
        changed = [states[0][i] != other[i] for other in states[1:]]
        for axis in range(states[0][i].ndim):
            lines = [
                c.movedim(axis, 0).flatten(1).any(1).nonzero()[:, 0].tolist()
                for c in changed
            ]
            if all(len(line) == 1 for line in lines):
                slots = [line[0] for line in lines]
                if len(set(slots)) == n:
                    found.append((i, axis, slots))
    return found


def position_twice(s: Cache) -> tuple[str, str, str] | None:
    """Cause, measured and expected, where keys are turned more than once."""
    # All of it has to be in the window, also one of two layers.
    n = 2 if s.window else 4
    if s.window and s.window < 3:
        return None
    try:
        slots = slots_of(s, n)
    except SubjectError:
        return None
    if not slots:
        return None
    # A token that comes twice is stored in two ways if its place is stored.
    x = s.draw(1, n, salt=32)
    x[:, 1] = x[:, 0]
    t = s.alone()
    _, state = t.decode(x, [n])
    tensors = tensors_in([t.step, state])
    before = [tensors[i].clone() for i, _, _ in slots]
    differ, equal = 0, 0
    for (_, axis, places), entry in zip(slots, before, strict=True):
        a, b = entry.select(axis, places[0]), entry.select(axis, places[1])
        apart = (a - b).abs() > s.near
        differ += int(apart.sum())
        equal += int((~apart).sum())
    # Entries that are stored must stay as they are.
    step, kept = fresh((t.step, state))
    u = dataclasses.replace(t, step=step)
    token = s.draw(1, 1, salt=33)
    plain, after = u.once(token, kept)
    later = tensors_in([u.step, after])
    for (i, axis, places), entry in zip(slots, before, strict=True):
        if i >= len(later) or later[i].ndim != entry.ndim:
            continue
        now = later[i].movedim(axis, 0)
        if now.shape[1:] != entry.movedim(axis, 0).shape[1:]:
            continue
        for place in places[1:]:
            old = entry.select(axis, place)
            change = min(far(old, slot) for slot in now)
            turned = place < len(now) and (
                abs(float(now[place].norm() - old.norm())) < s.near
            )
            if change > s.near and turned:
                return (
                    "cached keys are turned again in every step, and stored: "
                    "store each key once, turned by its own position, and turn "
                    "only the new ones.",
                    f"a step changes what is stored of an earlier token by "
                    f"{brief(change)}",
                    "0",
                )
        for place in places[:2]:
            if place >= len(now) or far(entry.select(axis, place), now[place]):
                return None
    if not differ or not equal:
        return None
    step, kept = fresh((t.step, state))
    u = dataclasses.replace(t, step=step)
    tensors = tensors_in([u.step, kept])
    with torch.no_grad():
        for i, axis, places in slots:
            view = tensors[i].movedim(axis, 0)
            first = view[places[0]].clone()
            view[places[0]] = view[places[1]]
            view[places[1]] = first
    moved, _ = u.once(token, kept)
    change = far(plain, moved)
    if change <= s.near * s.size(plain):
        return None
    return (
        "cached keys are turned when they are stored and again when they are "
        "read: do one of the two.",
        "the same token is stored in other ways at other positions, and yet "
        f"exchanging two slots of the cache changes the output by "
        f"{brief(change)}",
        "keys that carry their position do not depend on their slot",
    )


@check("practice/bugs-positions")
def cache_rotated_twice(s: Cache) -> Finding:
    """Cached keys that are turned more than once."""
    twice = position_twice(s)
    if twice:
        cause, measured, expected = twice
        return failed(
            "Cached keys are turned more than once.", measured, expected, cause
        )
    return passed("stored keys stay as they are", "")


@check("practice/bugs-positions")
def cache_sequences_mixed(s: Cache) -> Finding:
    """Rows of a batch, or two sequences in turns, that act on each other."""
    n = min(8, s.length)
    for b, split in ((3, [1] * n), (4, [4, *[1] * (n - 4)]), (2, [n])):
        x = s.draw(b, n, salt=41)
        together, _ = s.alone().decode(x, split)
        near = s.near * s.size(together)
        for row in (0, b - 1):
            y = s.other(x)
            y[row] = x[row]
            others, _ = s.alone().decode(y, split)
            change = far(together[row], others[row])
            if change <= near:
                continue
            return failed(
                "Rows of a batch act on each other.",
                f"with {b} rows, row {row} changes by {brief(change)} with the "
                "others",
                "0",
                "the cache has one length or one set of slots for all rows, a "
                "reshape mixes batch and heads, or a reduction runs over the "
                "batch.",
            )
        single, _ = s.alone().decode(x[:1], split)
        error = far(together[:1], single)
        if error > near:
            return failed(
                "A row in a batch differs from the same row alone.",
                f"off by {brief(error)} with {b} rows",
                "0",
                "a view exchanges batch and heads or batch and time, or one "
                "row's length or position is used for all.",
            )
    if s.inside:
        return passed("rows do not act on each other", "")
    t = s.alone()
    x, y = t.draw(2, n, salt=42), t.draw(2, n, salt=43)
    wanted = [s.alone().decode(z, [1] * n)[0] for z in (x, y)]
    states: list[Any] = [None, None]
    got: list[list[Tensor]] = [[], []]
    for i in range(n):
        for j, z in enumerate((x, y)):
            output, states[j] = t.once(z[:, i : i + 1], states[j])
            got[j].append(output)
    error = max(
        far(torch.cat(g, 1), w) for g, w in zip(got, wanted, strict=True)
    )
    if error > s.near * s.size(wanted[0]):
        return failed(
            "Two sequences that are decoded in turns act on each other.",
            f"off by {brief(error)} from each alone",
            "0",
            "a buffer, a counter or a default argument (state=[]) is shared by "
            "all sequences: everything that changes belongs into the state "
            "that the step returns.",
        )
    return passed("neither rows nor sequences act on each other", "")


@check("practice/bugs-positions")
def cache_calls_remembered(s: Cache) -> Finding:
    """A second sequence against the same one alone."""
    n = min(8, s.length)
    t = s.alone()
    first = t.draw(2, n, salt=51)
    full = t.alone().whole(first)
    t.decode(first, [n - 3, 1, 1, 1])
    for b, length, split in (
        (2, n, [n - 3, 1, 1, 1]),
        (2, n - 2, [1] * (n - 2)),
        (2, n, [n]),
        (1, n, [2, n - 2]),
        (3, n, [n - 1, 1]),
    ):
        x = t.draw(b, length, salt=52)
        wanted, _ = s.alone().decode(x, split)
        try:
            got, _ = t.decode(x, split)
        except SubjectError as problem:
            return failed(
                "A second sequence raises, and alone it does not.",
                str(problem),
                "an output",
                "something of the first sequence is left (a length, a mask, "
                "buffers of its batch size): start from nothing when the state "
                "is None.",
            )
        error = far(got, wanted)
        if error > s.near * s.size(wanted):
            return failed(
                "A second sequence depends on the first.",
                f"off by {brief(error)} from the same sequence alone",
                "0",
                "keys, a length or a position of the first sequence are left: "
                + (
                    "reset has to set all of them back."
                    if s.inside
                    else "a default argument or an attribute is used when the "
                    "state is None; make a new one there."
                ),
            )
    change = far(t.whole(first), full)
    if change > s.near * s.size(full):
        return failed(
            "The full pass depends on earlier steps.",
            f"it changes by {brief(change)} after decoding",
            "0",
            "the full pass reads or fills the cache: give it none.",
        )
    if s.full is not None:
        wanted, _ = s.alone().decode(first, [n - 2, 2])
        t = s.alone()
        t.start()
        _, state = t.once(first[:, : n - 2], None)
        t.whole(t.draw(2, n, salt=53))
        got, _ = t.once(first[:, n - 2 :], state)
        error = far(got, wanted[:, n - 2 :])
        if error > s.near * s.size(wanted):
            return failed(
                "A full pass in the middle of decoding changes the steps "
                "after it.",
                f"off by {brief(error)} from decoding without it",
                "0",
                "the full pass empties or fills the same cache: let it work "
                "without one.",
            )
    return passed("as without earlier sequences", "")


# --- The command line ---------------------------------------------------------

SUBJECTS: dict[str, type[Any]] = {
    "attention": Attention,
    "multi_head": MultiHead,
    "positions": Positions,
    "cache": Cache,
}


def loaded(address: str, new: Mapping[str, Any]) -> Any:
    """What package.module:name stands for; a class is constructed."""
    module_name, separator, name = address.partition(":")
    if not separator or not name:
        raise ValueError(
            f"give package.module:name, got {address!r}: the module as in an "
            "import, and the function, class or object in it"
        )
    found: Any = importlib.import_module(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(
                f"{module_name} has no {name}: it has "
                + ", ".join(n for n in vars(found) if not n.startswith("_"))
            )
        found = getattr(found, part)
    return found(**new) if isinstance(found, type) else found


def settings_of(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings from name=value; values are Python literals, or words."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise ValueError(f"give name=value, got {pair!r}")
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
    return settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Report about package.module:name: 1 if a check fails, 2 if it cannot."""
    parser = argparse.ArgumentParser(
        prog="python -m contract", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument(
        "subject",
        help="package.module:name of a function, a module class or object, or "
        "of an Attention, MultiHead, Positions or Cache",
    )
    parser.add_argument(
        "--kind", choices=list(SUBJECTS), help="if it is not clear"
    )
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="name=value",
        help="settings of the subject, for example mask=hide n_heads=4",
    )
    parser.add_argument(
        "--new",
        nargs="+",
        default=[],
        metavar="name=value",
        help="arguments with which a class is constructed",
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = loaded(options.subject, settings_of(options.new))
        settings = settings_of(options.set)
        if isinstance(found, Subject):
            subject = dataclasses.replace(found, **settings)  # type: ignore[type-var]
        else:
            module = isinstance(found, nn.Module)
            kind = options.kind or ("multi_head" if module else "attention")
            subject = SUBJECTS[kind](found, **settings)
        report = run_checks(subject)
    except Exception as error:  # noqa: BLE001
        text = " ".join(str(error).split())
        print(f"{type(error).__name__}: {text}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(report.to_dict(), indent=1))
    else:
        print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    # The classes of __main__ would not be those that the subject imports.
    own = __spec__.name if __spec__ else Path(__file__).stem
    sys.exit(importlib.import_module(own).main())
