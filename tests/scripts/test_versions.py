from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scripts import versions
from scripts.project import HOME

WORDS = {"empty": "NaN", "both": "both apply"}
LAST = "python scripts/build.py docs/practice/bugs.md brings the page up to date"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a pin, and a record of two releases."""
    path = tmp_path / "repository"
    (path / versions.RECORD).parent.mkdir(parents=True)
    (path / "requirements.txt").write_text("numpy==2\ntorch==2.13.0\n", encoding="utf-8")
    columns = {name: column(name) for name in ("2.9.1", "2.13.0")}
    (path / versions.RECORD).write_text(json.dumps(columns), encoding="utf-8")
    return path


def column(release: str, **words: str) -> dict[str, Any]:
    return {
        "measured": "2020-02-02",
        "build": f"{release}+cpu",
        "python": "3.11.1",
        "platform": "Linux x86_64",
        "words": WORDS | words,
    }


def record(root: Path) -> dict[str, Any]:
    text = (root / versions.RECORD).read_text(encoding="utf-8")
    assert text.endswith("}\n")
    found: dict[str, Any] = json.loads(text)
    return found


def python(folder: Path, name: str, body: str) -> str:
    """An interpreter of our own: it does what ``body`` says, whatever it is given."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{body}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def says(folder: Path, release: str, words: dict[str, str] | None = None) -> str:
    """An interpreter that has a release, given as ``--python`` wants it."""
    said = {"build": f"{release}+cu1", "python": "3.12.0", "words": words or WORDS}
    return f"{release}=" + python(folder, f"python-{release}", f"print({json.dumps(said)!r})")


def run(root: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    status = versions.main(arguments, root)
    return status, capsys.readouterr().out.splitlines()


def test_a_release_is_measured_anew_and_the_others_stay(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = says(tmp_path, "2.9.1")
    assert run(root, capsys, "2.9.1", "--python", given) == (
        0,
        ["torch 2.9.1: 2 words measured", f"1 of 1 releases measured, 0 words changed; {LAST}"],
    )
    found = record(root)
    assert found["2.13.0"] == column("2.13.0")
    assert found["2.9.1"].pop("measured") > "2026-01-01"
    assert re.fullmatch(r"\w+ \w+", found["2.9.1"].pop("platform"))
    assert found["2.9.1"] == {"build": "2.9.1+cu1", "python": "3.12.0", "words": WORDS}


def test_a_new_release_is_put_in_order_and_changes_nothing_on_record(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = run(root, capsys, "2.10.0", "--python", says(tmp_path, "2.10.0"))
    assert status == 0
    assert list(record(root)) == ["2.9.1", "2.10.0", "2.13.0"]


def test_a_word_that_changes_is_told_and_written(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = says(tmp_path, "2.13.0", {"empty": "zeros", "new": "right"})
    assert run(root, capsys, "2.13.0", "--python", given) == (
        3,
        [
            "torch 2.13.0: 2 words measured",
            "torch 2.13.0: empty was 'NaN', is now 'zeros'",
            "torch 2.13.0: both was 'both apply', is not measured any more",
            f"1 of 1 releases measured, 2 words changed; {LAST}",
        ],
    )
    assert record(root)["2.13.0"]["words"] == {"empty": "zeros", "new": "right"}
    assert run(root, capsys, "2.13.0", "--python", given)[0] == 0


def test_a_record_begins_where_there_is_none(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / versions.RECORD).unlink()
    assert run(root, capsys, "2.9.1", "--python", says(tmp_path, "2.9.1"))[0] == 0
    assert list(record(root)) == ["2.9.1"]


FAILURES: dict[str, tuple[str, str]] = {
    "no torch": (
        "sys.exit('Traceback:\\n\\nModuleNotFoundError: no torch\\n')",
        "could not measure: exit code 1, it said: ModuleNotFoundError: no torch",
    ),
    "nothing said": ("sys.exit(4)", "could not measure: exit code 4, it said: nothing"),
    "a crash": ("os.kill(os.getpid(), 11)", "could not measure: exit code -11, it said: nothing"),
    "nothing printed": (
        "",
        "could not be measured: {python} printed '', expected the words as JSON",
    ),
    "another thing printed": (
        "print('hello')",
        "could not be measured: {python} printed 'hello\\n', expected the words as JSON",
    ),
    "another release": (
        "print(json.dumps({'build': '2.9.0+cpu', 'python': '3', 'words': {'a': 'b'}}))",
        "could not be measured: {python} has torch 2.9.0+cpu: give an interpreter with 2.9.1",
    ),
    "no words": (
        "print(json.dumps({'build': '2.9.1', 'python': '3', 'words': {}}))",
        "could not be measured: {python} gave {{}}, expected words",
    ),
    "a number for a word": (
        "print(json.dumps({'build': '2.9.1', 'python': '3', 'words': {'a': 1}}))",
        "could not be measured: {python} gave {{'a': 1}}, expected words",
    ),
    "too slow": (
        "import time; time.sleep(60)",
        "could not measure: it took more than 0.5 s",
    ),
}


@pytest.mark.parametrize("fault", FAILURES)
def test_a_release_that_cannot_be_measured_keeps_its_column(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    body, message = FAILURES[fault]
    if fault == "too slow":
        monkeypatch.setitem(versions.SECONDS, "measure", 0.5)
    path = python(tmp_path, "python", body)
    good = says(tmp_path, "2.13.0")
    arguments = ("2.9.1", "2.13.0", "--python", f"2.9.1={path}", "--python", good)
    status, lines = run(root, capsys, *arguments)
    assert (status, lines) == (
        1,
        [
            f"torch 2.9.1 {message.format(python=path)}; its old column is kept",
            "torch 2.13.0: 2 words measured",
            f"1 of 2 releases measured, 0 words changed; {LAST}",
        ],
    )
    assert record(root)["2.9.1"] == column("2.9.1")
    assert record(root)["2.13.0"]["python"] == "3.12.0"


def test_an_interpreter_that_is_not_there_is_told(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (root / versions.RECORD).read_bytes()
    status, lines = run(root, capsys, "2.8.0", "--python", "2.8.0=/nowhere/python")
    assert status == 1
    assert lines[0].startswith("torch 2.8.0 could not measure: /nowhere/python cannot be run: ")
    assert lines[0].endswith("; it has no column")
    assert (root / versions.RECORD).read_bytes() == before


def installing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: str) -> list[list[str]]:
    """Environments are made of our own interpreters, whose pip does as told."""
    commands = []

    def make(task: str, command: list[str]) -> str:
        commands.append([task, *command])
        if task == "make an environment":
            folder = Path(command[-1], "bin")
            folder.mkdir()
            said = {"build": "2.8.0+cpu", "python": "3.11.1", "words": WORDS}
            body = f"if 'pip' in sys.argv:\n    {pip}\nelse:\n    print({json.dumps(said)!r})"
            python(folder, "python", body)
            return ""
        return real(task, command)

    real: Callable[[str, list[str]], str] = versions.run
    monkeypatch.setattr(versions, "run", make)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return commands


def test_a_release_is_installed_into_a_folder_that_goes_again(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = installing(tmp_path, monkeypatch, "pass")
    assert run(root, capsys, "2.8.0")[0] == 0
    assert list(record(root)) == ["2.8.0", "2.9.1", "2.13.0"]
    made, installed, measured = commands
    assert made[:4] == ["make an environment", sys.executable, "-m", "venv"]
    assert installed[2:5] == ["-m", "pip", "install"]
    assert installed[-1] == "torch==2.8.0"
    assert measured[1] == installed[1]
    assert Path(installed[1]).is_relative_to(made[-1])
    assert not Path(made[-1]).exists()


def test_a_release_that_cannot_be_installed_is_told(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "WARNING: old\\nERROR: No matching torch\\nERROR: see elsewhere\\n"
    commands = installing(tmp_path, monkeypatch, f"sys.exit('{said}')")
    before = (root / versions.RECORD).read_bytes()
    status, lines = run(root, capsys, "2.8.0")
    assert (status, lines[0]) == (
        1,
        "torch 2.8.0 could not install: exit code 1, it said: ERROR: No matching torch; "
        "it has no column",
    )
    assert not Path(commands[0][-1]).exists()
    assert (root / versions.RECORD).read_bytes() == before


def test_without_names_the_others_and_the_pinned_release_are_measured(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    releases = [*versions.OTHERS, "2.13.0"]
    given = [f"--python={says(tmp_path, release)}" for release in releases]
    status, lines = run(root, capsys, *given)
    assert status == 0
    assert lines[-1].startswith("4 of 4 releases measured")
    assert list(record(root)) == versions.in_order(releases)


WRONG = {
    "no release": (("two",), "two is not a release of torch: expected one such as 2.9.1"),
    "a build": (("2.9.1+cpu",), "2.9.1+cpu is not a release of torch: expected one such as 2.9.1"),
    "no path": (
        ("--python", "2.9.1"),
        "--python 2.9.1 names no release and path: expected 2.9.1=/path/to/python",
    ),
    "no name": (
        ("--python", "/bin/python"),
        "--python /bin/python names no release and path: expected 2.9.1=/path/to/python",
    ),
}


@pytest.mark.parametrize("use", WRONG)
def test_wrong_use_is_told(root: Path, capsys: pytest.CaptureFixture[str], use: str) -> None:
    arguments, message = WRONG[use]
    assert run(root, capsys, *arguments) == (2, [message])


@pytest.mark.parametrize("text", ["", "[]", '{"2.9.1": 1}', '{"2.9.1": {}}', '{"new": {}}'])
def test_a_record_that_cannot_be_read_is_told_and_left_alone(
    root: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = root / versions.RECORD
    path.write_text(text, encoding="utf-8")
    status, [line] = run(root, capsys, "2.9.1")
    assert status == 2
    assert line.startswith(f"{path} is no record of releases (")
    assert line.endswith("): restore it from git, or delete it to begin anew")
    assert path.read_text(encoding="utf-8") == text


def test_a_missing_pin_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "requirements.txt"
    message = f"{path} pins no torch: expected a line such as torch==2.13.0"
    path.write_text("torch>=2\n", encoding="utf-8")
    assert run(root, capsys) == (2, [message])
    path.unlink()
    assert run(root, capsys) == (2, [message])


def test_the_measurement_needs_torch_and_the_page_alone(tmp_path: Path) -> None:
    copied = tmp_path / "snippets"
    shutil.copytree(HOME / "snippets" / "pages" / "practice", copied / "pages" / "practice")
    for folder in (copied, copied / "pages"):
        shutil.copy(HOME / "snippets" / "__init__.py", folder)
    release = versions.pinned(HOME)
    found = versions.measured(tmp_path, release, sys.executable)
    recorded = versions.read_record(HOME / versions.RECORD)
    assert found["words"] == recorded[release]["words"]
    assert not list(tmp_path.rglob("*.pyc"))


def test_the_record_holds_what_is_measured_by_default() -> None:
    recorded = versions.read_record(HOME / versions.RECORD)
    assert list(recorded) == versions.in_order([*versions.OTHERS, versions.pinned(HOME)])
    names = [list(column["words"]) for column in recorded.values()]
    assert all(name == names[0] for name in names)
    assert os.path.getsize(HOME / versions.RECORD) < 100_000  # noqa: PTH202


def test_the_job_runs_the_script_and_keeps_what_it_wrote() -> None:
    text = (HOME / ".github" / "workflows" / "versions.yml").read_text(encoding="utf-8")
    assert "python scripts/versions.py\n" in text
    assert f" {versions.RECORD.as_posix()}\n" in text
