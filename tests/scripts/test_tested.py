from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import tested, versions
from scripts.project import HOME

PINNED = versions.pinned(HOME)
SELF = f"{PINNED}={sys.executable}"
TESTS = """\
import pytest

def test_passes(): pass

@pytest.mark.skip
def test_is_skipped(): pass

@pytest.mark.parametrize("n", [1, 2])
def test_fails(n):
    raise TypeError(f"no such argument at 0x{n}f")

def test_asserts():
    assert False
"""
OUTCOME = {
    "passed": 1,
    "skipped": 1,
    "failed": {"TypeError: no such argument at …": 2, "assert False": 1},
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with tests of one module; what they need is there without an installation."""
    path = tmp_path / "repository"
    (path / tested.TESTS).mkdir(parents=True)
    (path / "requirements.txt").write_text(f"torch=={PINNED}\npytest==1\n", encoding="utf-8")
    (path / tested.TESTS / "test_one.py").write_text(TESTS, encoding="utf-8")
    real: Callable[[str, list[str]], str] = versions.run

    def run(task: str, command: list[str]) -> str:
        if task == "install":
            assert command[-1] == "pytest==1"
            return ""
        return real(task, command)

    monkeypatch.setattr(tested, "run", run)
    return path


def record(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / tested.RECORD).read_text(encoding="utf-8"))
    return found


def test_what_passes_and_why_the_rest_fails_is_put_on_record(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tested.main(["--python", SELF], root) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"torch {PINNED}, one: 1 passed, 1 skipped, 3 failed"
    assert lines[1].startswith("1 of 1 releases tested, 0 results changed; ")
    [result] = record(root)[PINNED].values()
    assert {key: result[key] for key in OUTCOME} == OUTCOME
    assert result["build"].partition("+")[0] == PINNED
    # Another outcome is told, and written.
    (root / tested.TESTS / "test_one.py").write_text("def test_passes(): pass\n", encoding="utf-8")
    assert tested.main(["--python", SELF], root) == 3
    assert capsys.readouterr().out.startswith(f"torch {PINNED}, one: 1 passed; changed\n")
    assert record(root)[PINNED]["one"]["failed"] == {}


def test_tests_that_cannot_be_loaded_are_a_failure(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / tested.TESTS / "test_one.py").write_text("import torch.nowhere\n", encoding="utf-8")
    assert tested.main(["--python", SELF], root) == 0
    assert capsys.readouterr().out.startswith(f"torch {PINNED}, one: 0 passed, 1 failed\n")
    [reason] = record(root)[PINNED]["one"]["failed"]
    assert reason == "ModuleNotFoundError: No module named 'torch.nowhere'"


def test_another_release_than_was_said_is_not_put_on_record(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tested.main(["--python", f"2.0.0={sys.executable}"], root) == 1
    assert f"has torch {PINNED}" in capsys.readouterr().out
    assert not (root / tested.RECORD).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--python", "2.9.1"], "--python 2.9.1 names no release and path"),
        (["two"], "two is not a release of torch"),
        (["2.9.1", "--module", "none"], "none has no tests: expected one"),
    ],
)
def test_wrong_usage_is_told(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert tested.main(arguments, root) == 2
    assert capsys.readouterr().out.startswith(message)


def test_a_spoilt_record_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / tested.RECORD).write_text('{"2.9.1": {"one": 1}}', encoding="utf-8")
    assert tested.main(["--python", SELF], root) == 2
    assert "is no record of tests" in capsys.readouterr().out


def test_the_job_runs_the_script_and_keeps_what_it_wrote() -> None:
    text = (HOME / ".github" / "workflows" / "versions.yml").read_text(encoding="utf-8")
    assert "python scripts/tested.py\n" in text
    assert f" {tested.RECORD.as_posix()}\n" in text
