from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import benchmark
from tests.spoil import said


def test_a_build_runs_what_an_edit_makes_stale_and_nothing_else(tmp_path: Path) -> None:
    assert benchmark.count(tmp_path / "site", 6, 0.0) == {
        "first": 6,
        "no edit": 0,
        "edit of a page's prose": 0,
        "edit of the snippet that a third imports": 2,
        "edit of one page's module": 1,
    }


def test_the_site_that_is_timed_passes_its_check(tmp_path: Path) -> None:
    project = benchmark.make_site(tmp_path / "site", 2, 0.01)
    assert said(project, "--check") == (
        0,
        [
            "checked 2 pages: 6 code blocks, 2 outputs, 0 tables, 0 figures, 0 numbers; "
            "2 ran, 0 were fresh"
        ],
    )


def test_parts_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main(["attention"])
    out = capsys.readouterr().out
    assert "snippet / bare" in out
    assert "pages" not in out
    with pytest.raises(SystemExit):
        benchmark.main(["speed"])
    assert "there is no part speed: choose from pages, counts, " in capsys.readouterr().err


def test_the_module_is_compared_in_time_and_in_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "ROUNDS", {16: 2, 24: 1})
    benchmark.main(["multi_head"])
    out = capsys.readouterr().out
    for row in ("8 heads, causal ", "8 heads on 2, causal ", "snippet ", "nn, training "):
        assert f"\n{row}" in out
    assert out.count("forward and backward") == 2 + 3 + 3


def test_the_contract_is_timed_on_all_kinds_of_code(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main(["contract"])
    out = capsys.readouterr().out
    rows = re.findall(r"^(\S.*?) {2,}([\d.]+) +[\d.]+ +(yes|NO)$", out, re.MULTILINE)
    assert len(rows) == 6, out
    for name, taken, verdict in rows:  # told as measured, for the machine decides which
        if abs(float(taken) - benchmark.CONTRACT) > 0.05:  # printed rounded
            assert verdict == ("yes" if float(taken) < benchmark.CONTRACT else "NO"), name
