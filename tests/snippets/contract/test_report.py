"""Findings, reports, cases for pytest and the command line."""

import json
import math
import re
import subprocess
import sys
import unittest
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snippets import contract
from snippets.contract import (
    CHECKS,
    Attention,
    Case,
    Finding,
    MultiHead,
    Report,
    SubjectError,
    cases,
    check_attention,
    check_multi_head,
    far,
    mask_as,
    run_check,
    run_checks,
)

ROOT = Path(__file__).parents[3]


def right(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, mask)


def inverted(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, None if mask is None else ~mask)


def raising(*_: Tensor | None) -> Tensor:
    raise ValueError("such heads are not supported")


@pytest.mark.parametrize("kind", CHECKS)
def test_every_check_is_documented_and_its_page_exists(kind: str) -> None:
    for name, (function, page) in CHECKS[kind].items():
        assert function.__name__ == f"{kind}_{name}"
        assert function.__doc__, name
        assert (ROOT / "docs" / f"{page}.md").is_file(), f"{name}: there is no page {page}"


def test_a_failure_says_what_was_measured_expected_and_likely() -> None:
    finding = run_check(Attention(inverted, mask="attend").prepared(), "mask_polarity")
    text = str(finding)
    assert text.startswith("FAIL mask_polarity: The mask works the other way round")
    assert "Measured: 100% of all weight lies on hidden keys; expected: 0%." in text
    assert "Likeliest cause: " in text
    assert "negate the mask (~mask)" in text
    assert text.endswith("See core/conventions in The Attention Reference.")


def test_a_report_is_a_table_and_the_sentences() -> None:
    report = check_attention(inverted, mask="attend")
    text = str(report)
    assert "mask_polarity" in report.failures
    assert re.match(r"inverted: \d+ failed, \d+ hazards, \d+ passed, \d+ skipped", text)
    assert re.search(r"^  fail   mask_polarity +The mask works", text, re.MULTILINE)
    assert str(report.of("fail")[0]) in text
    assert len(report.findings) == len(CHECKS["attention"])


def test_require_raises_every_failure_and_only_these() -> None:
    check_attention(right, mask="attend").require()
    report = check_attention(inverted, mask="attend")
    with pytest.raises(AssertionError) as caught:
        report.require()
    assert str(caught.value).splitlines() == [str(f) for f in report.of("fail")]


def test_reports_are_the_same_twice() -> None:
    assert str(check_attention(inverted)) == str(check_attention(inverted))


def test_the_state_of_the_caller_is_left_alone() -> None:
    layer = nn.MultiheadAttention(16, 4, dropout=0.2, batch_first=True).train()
    kept = {name: x.clone() for name, x in layer.state_dict().items()}
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with torch.no_grad():
        check_multi_head(layer)
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before)
    assert layer.training
    assert all(torch.equal(x, kept[name]) for name, x in layer.state_dict().items())


def test_cases_pass_fail_skip_and_warn() -> None:
    named = {str(case): case for case in cases(Attention(inverted, mask="attend"))}
    assert list(named) == list(CHECKS["attention"])
    with pytest.raises(AssertionError, match="FAIL mask_polarity: The mask works"):
        named["mask_polarity"]()
    with pytest.raises(unittest.SkipTest, match="No sink"):
        named["sink_counted_twice"]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named["scale"]()
        hazard = Case(Attention(right, mask="attend").prepared(), "nan_spreads")
        with pytest.raises(UserWarning, match="HAZARD nan_spreads: NaN in a hidden"):
            hazard()


@pytest.mark.parametrize("case", cases(Attention(right, mask="attend")), ids=str)
@pytest.mark.filterwarnings("ignore:HAZARD")
def test_as_the_parameters_of_a_test(case: Case) -> None:
    case()


def test_code_that_raises_is_told_once() -> None:
    with pytest.raises(SubjectError, match=r"ValueError: such heads .*\(2, 4, 6, 16\) float64"):
        check_attention(raising)

    def only_without(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return right(q, k, v) if mask is None else raising(q, k, v)

    report = check_attention(only_without)
    assert report.failures[0] == "runs"
    ordinary = [f for f in report.of("skip") if f.wrong == "Ordinary calls raise (see runs)."]
    assert len(ordinary) > 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "BHTD"}, r"layout must be one of .*'\(B, H, T, d\)'.* got 'BHTD'"),
        ({"mask": "keep"}, "mask must be one of 'attend', 'hide', .* got 'keep'"),
        ({"mask_shape": "(T, T)"}, "mask_shape must be one of"),
        ({"alignment": "left"}, "alignment must be one of 'top-left', 'bottom-right'"),
        ({"empty": "ones"}, "empty must be one of 'zeros', 'nan', 'mean'"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Attention(right, **settings)
    if "layout" not in settings:
        with pytest.raises(ValueError, match=message):
            MultiHead(nn.Linear(2, 2), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_heads": 0}, "n_heads must be a whole number, 1 or more, got 0"),
        ({"window": True}, "window must be a whole number, 1 or more, got True"),
        ({"causal": True}, 'causal must be "always", "never" or the name of a flag'),
        ({"mask_argument": "msk"}, "mask_argument='msk' is no parameter of forward, which has"),
    ],
)
def test_settings_of_modules_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MultiHead(nn.MultiheadAttention(16, 4), **settings)


def test_subjects_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(TypeError, match=r"fn must be callable, got Tensor: pass the function"):
        Attention(torch.zeros(1))  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"module must be an nn\.Module, got function: pass an inst"
    ):
        MultiHead(right)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the width of Identity was not found: give d_model"):
        check_multi_head(nn.Identity())


def test_distances() -> None:
    nan = torch.tensor([math.nan, 1.0])
    assert far(nan, nan) == 0
    assert far(nan, torch.tensor([0.0, 1.0])) == math.inf
    assert far(torch.tensor([1.0, math.inf]), torch.tensor([1.5, math.inf])) == 0.5


def test_masks_in_each_convention() -> None:
    mask = torch.tensor([True, False])
    assert mask_as(mask, "attend", torch.float32).tolist() == [True, False]
    assert mask_as(mask, "hide", torch.float32).tolist() == [False, True]
    assert mask_as(mask, "ones", torch.float32).tolist() == [1.0, 0.0]
    assert mask_as(mask, "additive", torch.float32).tolist() == [0.0, -math.inf]


def test_findings_of_one_verdict() -> None:
    report = Report("x", {}, (Finding("pass", check="a"), Finding("fail", check="b")))
    assert report.failures == ("b",)
    assert [f.check for f in report.of("pass")] == ["a"]


# The command line


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "contract.py").write_text(Path(contract.__file__).read_text(encoding="utf-8"))
    (folder / "mine.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "from contract import Attention\n"
        "def right(q, k, v, mask=None):\n"
        "    return nn.functional.scaled_dot_product_attention(q, k, v, mask)\n"
        "def inverted(q, k, v, mask=None):\n"
        "    return right(q, k, v, None if mask is None else ~mask)\n"
        "subject = Attention(inverted, mask='hide')\n"
        "class Layer(nn.MultiheadAttention):\n"
        "    def __init__(self, width):\n"
        "        super().__init__(width, 4, batch_first=True)\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "contract", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_file_reports_from_the_shell(tmp_path: Path) -> None:
    good = run(tmp_path, "mine:right")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("right: 0 failed")
    bad = run(tmp_path, "mine:inverted", "--set", "mask=attend", "--json")
    assert (bad.returncode, bad.stderr) == (1, "")
    report = json.loads(bad.stdout)
    failed = [f["check"] for f in report["findings"] if f["verdict"] == "fail"]
    assert "mask_polarity" in failed
    assert {"measured", "expected", "cause", "page"} <= report["findings"][0].keys()


def test_the_shell_takes_subjects_and_classes(tmp_path: Path) -> None:
    subject = run(tmp_path, "mine:subject")
    assert (subject.returncode, subject.stderr) == (0, "")
    layer = run(tmp_path, "mine:Layer", "--new", "width=16")
    assert (layer.returncode, layer.stderr) == (0, "")
    assert "Layer: 0 failed" in layer.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine"], "ValueError: give package.module:name, got 'mine'"),
        (["mine:absent"], "ValueError: mine has no absent: it has "),
        (["nowhere:x"], "ModuleNotFoundError: No module named 'nowhere'"),
        (["mine:right", "--set", "mask"], "ValueError: give name=value, got 'mask'"),
        (["mine:right", "--set", "masks=hide"], "TypeError: "),
    ],
)
def test_the_shell_refuses(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(tmp_path, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_run_checks_takes_prepared_subjects() -> None:
    subject = Attention(right, mask="attend")
    assert str(run_checks(subject.prepared())).splitlines()[1:] != []
