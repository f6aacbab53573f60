import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from snippets.contract import Positions, Report, check_positions, fresh, run_check, run_checks
from tests.snippets.contract import right_positions, wrong_positions
from tests.snippets.contract.entries import Entry

UNSCALED = {"kind": "linear", "factor": 1.0}
RIGHT, WRONG = right_positions.ALL, wrong_positions.ALL


def frequencies(settings: dict[str, Any]) -> Tensor:
    """Frequencies of scaled bases, by the formulas of their papers."""
    width, base, scaling = settings["rotary_dim"], settings["base"], settings["scaling"]
    pairs = torch.arange(width // 2).double()
    plain = torch.pow(base, -2 * pairs / width)
    factor = float(scaling["factor"])
    if scaling["kind"] == "linear":
        return plain / factor
    if scaling["kind"] == "ntk":
        return torch.pow(base * factor ** (width / (width - 2)), -2 * pairs / width)
    if scaling["kind"] == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        original = scaling["original_length"]
        smooth = (original * plain / (2 * math.pi) - low) / (high - low)
        smooth = smooth.clamp(0, 1)
    else:
        original = scaling["original_length"]
        slow, fast = scaling["beta_slow"], scaling["beta_fast"]

        def place(turns: float) -> float:
            return float(width * math.log(original / (turns * 2 * math.pi)) / 2 / math.log(base))

        first = max(math.floor(place(fast)), 0)
        last = min(math.ceil(place(slow)), width - 1)
        smooth = 1 - ((pairs - first) / max(last - first, 0.001)).clamp(0, 1)
    scaled: Tensor = smooth * plain + (1 - smooth) * plain / factor
    return scaled


def subject(entry: Entry, seed: int = 0, *, specified: bool = True) -> Positions:
    """What an entry of the corpus says about itself, as settings."""
    given = dict(entry.settings)
    said: dict[str, Any] = {"seed": seed, "max_length": given.get("max_positions")}
    if given["scheme"] == "rotary":
        said |= {"scheme": "rotary", "layout": given["layout"], "width": given["head_width"]}
        if specified:
            said |= {"pairs": given["pairing"], "rotary_dim": given["rotary_dim"]}
            said |= {"base": given["base"]}
            if given["scaling"]:
                said["frequencies"] = frequencies(given)
            if given["direction"] < 0:
                said["frequencies"] = -frequencies(given | {"scaling": UNSCALED})
    elif given["scheme"] == "additive":
        said |= {"scheme": "additive", "n_heads": given["n_heads"], "causal": given["causal"]}
        if specified and given["bias"] == "alibi":
            said["slopes"] = "paper"
    else:
        said |= {"scheme": "table", "width": given["d_model"]}
        if specified and given["table"] == "sinusoidal":
            said |= {"base": given["base"]}
    return Positions(entry.make(), **said)


def report_on(entry: Entry, **how: Any) -> Report:
    return run_checks(subject(entry, **how))


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_passes(name: str) -> None:
    """Only positions by row are drawn at random: there, fifty seeds."""
    for specified in (True, False):
        report = report_on(RIGHT[name], specified=specified)
        assert not report.failures, report
    ready = subject(RIGHT[name]).prepared()
    if ready.rows is True:
        for seed in range(1, 50):
            drawn = subject(RIGHT[name], seed).prepared() if seed == 1 else ready
            finding = run_check(drawn, "offset_ignored")
            assert finding.verdict == "pass", finding


@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_found_by_the_check_meant_for_it(name: str) -> None:
    entry = WRONG[name]
    report = report_on(entry)
    assert entry.mistake in report.failures, report
    if not entry.needs:
        bare = report_on(entry, specified=False)
        assert entry.mistake in bare.failures, bare


def angles(positions: Tensor, width: int, base: float = 10000.0) -> Tensor:
    rates = torch.pow(base, -2 * torch.arange(width // 2).double() / width)
    return (positions[..., None] * rates).to(torch.float64)


def turned(x: Tensor, angle: Tensor) -> Tensor:
    one, two = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1).to(x.dtype)


def rotary(x: Tensor, positions: Tensor) -> Tensor:
    return turned(x, angles(positions, x.shape[-1]))


def by_degrees(x: Tensor, positions: Tensor) -> Tensor:
    return turned(x, angles(positions, x.shape[-1]) * 180 / math.pi)


def by_another_base(x: Tensor, positions: Tensor) -> Tensor:
    return turned(x, angles(positions, x.shape[-1], 500.0))


def by_a_double_factor(x: Tensor, positions: Tensor) -> Tensor:
    return turned(x, angles(positions, x.shape[-1]) * 4)


def reversed_order(x: Tensor, positions: Tensor) -> Tensor:
    return turned(x, angles(positions, x.shape[-1]).flip(-1))


def backwards(x: Tensor, positions: Tensor) -> Tensor:
    return turned(x, -angles(positions, x.shape[-1]))


@pytest.mark.parametrize(
    ("apply", "cause"),
    [
        (by_degrees, "degrees"),
        (by_another_base, "the base is 500 instead of 1e+04"),
        (by_a_double_factor, "4 times those"),
        (reversed_order, "reverse order"),
        (backwards, "the other way"),
    ],
)
def test_frequencies_name_the_likeliest_cause(
    apply: Callable[[Tensor, Tensor], Tensor], cause: str
) -> None:
    report = check_positions(apply, base=10000.0)
    assert report.failures == ("frequencies",)
    (finding,) = report.of("fail")
    assert cause in finding.cause
    assert "rad per position" in finding.measured


def test_what_is_not_given_is_found_out_and_reported() -> None:
    report = check_positions(rotary)
    assert not report.failures
    assert report.detected == {
        "scheme": "rotary",
        "signature": "x, positions",
        "layout": "(B, H, T, d)",
        "width": "16",
        "pairs": "half",
        "rotary_dim": "16",
        "base": "1e+04",
    }
    (skip,) = [f for f in report.findings if f.check == "frequencies"]
    assert skip.verdict == "skip"
    assert "set base" in skip.wrong
    assert "as with base 1e+04" in skip.wrong


def test_another_layout_of_pairs_than_specified_fails() -> None:
    report = check_positions(rotary, pairs="interleaved")
    assert report.failures == ("pairs_mixed",)
    assert 'The rotation is "half"' in str(report)


def test_call_takes_any_signature() -> None:
    def apply(positions: Tensor, *, what: Tensor) -> Tensor:
        return rotary(what, positions)

    report = check_positions(apply, call=lambda f, x, p: f(p, what=x), base=10000.0)
    assert not report.failures
    assert not [f for f in report.findings if f.check == "frequencies" and f.verdict != "pass"]


def test_a_module_whose_frequencies_are_cast_is_a_hazard() -> None:
    class Rotary(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("rates", 10000.0 ** (-torch.arange(8) / 8))
            self.rates: Tensor

        def forward(self, x: Tensor, positions: Tensor) -> Tensor:
            return turned(x, (positions[..., None] * self.rates).double())

    report = check_positions(Rotary(), base=10000.0)
    assert not report.failures
    assert [f.check for f in report.of("hazard")] == ["low_precision_angles"]


def test_what_raises_is_reported_and_never_raised() -> None:
    def apply(x: Tensor, positions: Tensor) -> Tensor:
        if positions.numel() == 1:
            raise RuntimeError("one token")
        return rotary(x, positions)

    report = check_positions(apply, max_length=64)
    assert "offset_ignored" in report.failures
    assert "RuntimeError: one token" in str(report)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="apply must be callable, got Tensor"):
        Positions(torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pairs must be one of 'half', 'interleaved'"):
        Positions(rotary, pairs="neox")
    with pytest.raises(ValueError, match="no known way to call gives an output"):
        check_positions(lambda: None)


def test_copies_share_nothing_with_the_original() -> None:
    calls: list[int] = []

    def one() -> int:
        calls.append(1)
        return len(calls)

    def two() -> int:
        return len(calls)

    first, second = fresh((one, two))
    assert (first(), first(), second()) == (1, 2, 2)
    assert two() == 0
