"""The form of the code: formatter, linter and type checker, with the settings of pyproject.toml."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts.project import HOME


@pytest.mark.parametrize("tool", ["ruff format --check", "ruff check", "mypy"])
def test_the_code_is_in_form(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *tool.split(), *([] if tool == "mypy" else ["."])],
        cwd=HOME,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
