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

Verdicts: *fail*, a mistake; *hazard*, what right code does, too, and which
hurts who does not know it; *skip*, the check does not apply, with the reason.
"""

import argparse
import ast
import copy
import dataclasses
import importlib
import inspect
import json
import math
import sys
import unittest
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

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
            parts.append(f"Explained on {self.page}.")
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


class Subject:
    """What is checked, with the settings that say how it is called."""

    kind: ClassVar[str]
    detected: dict[str, str]
    seed: int

    def prepared(self) -> "Subject":
        """Same subject, with every convention that was not given found out."""
        raise NotImplementedError

    def name(self) -> str:
        """Name for the report."""
        raise NotImplementedError


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
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(subject.seed)
        try:
            finding = function(subject)
        except SubjectError as error:
            finding = failed(
                "The call raised.",
                str(error),
                "an output",
                "the settings do not say how the code is called, or it does "
                "not take an ordinary input: compare the shapes above with "
                "what it wants.",
            )
    return dataclasses.replace(finding, check=name, page=page)


def run_checks(subject: Subject) -> Report:
    """Find out what was not given, run all checks, and report."""
    ready = subject.prepared()
    findings = tuple(run_check(ready, name) for name in CHECKS[ready.kind])
    return Report(ready.name(), ready.detected, findings)


@dataclass(frozen=True)
class Case:
    """One check of one subject, as a test: calling it raises when it fails.

    A check that does not apply raises unittest.SkipTest, which pytest counts
    as skipped; a hazard is a warning.
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
            warnings.warn(str(finding), UserWarning, stacklevel=2)


def cases(subject: Subject) -> list[Case]:
    """Checks as test cases: give them to ``pytest.mark.parametrize``."""
    ready = subject.prepared()
    return [Case(ready, name) for name in CHECKS[ready.kind]]


# --- Measuring ----------------------------------------------------------------


def far(a: Tensor, b: Tensor) -> float:
    """Largest difference, infinite where one is NaN and the other is not."""
    a, b = torch.broadcast_tensors(a.double(), b.double())
    both = a.isnan() & b.isnan()
    difference = (a - b).abs().masked_fill(both | (a == b), 0.0)
    return float(difference.nan_to_num(math.inf, math.inf).max())


def brief(number: float) -> str:
    """Number in three digits."""
    return f"{number:.3g}"


def generator(subject: Subject, salt: int = 0) -> torch.Generator:
    """Source of random numbers that depends on the seed of the subject only."""
    return torch.Generator().manual_seed(1000 * subject.seed + salt)


def first_tensor(output: Any) -> Tensor | None:
    """Output of code that may return a tensor, a tuple or a dictionary."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple):
        return next((x for x in output if isinstance(x, Tensor)), None)
    return first_tensor(tuple(vars(output).values())) if hasattr(
        output, "__dict__"
    ) else None


def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
    """Call the code under test; what it raises becomes a SubjectError."""
    try:
        output = first_tensor(function(*args, **kwargs))
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
