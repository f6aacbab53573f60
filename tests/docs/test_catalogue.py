"""The catalogue has every module, and its record of tests is of the tests that there are."""

from __future__ import annotations

import re
import subprocess
import sys

from scripts import tested, versions
from scripts.module import modules
from scripts.project import HOME, Project

SITE = Project()


def test_every_module_is_listed() -> None:
    text = SITE.markdown("reference/catalogue").read_text(encoding="utf-8")
    names = [module.name for module in modules(SITE)]
    folders = {name.partition("/")[0] for name in names if "/" in name}
    for name in names:
        if "/" not in name:
            assert text.count(f"<!-- module: {name} -->\n| `{name}.py` ") == 1
            assert text.count(f"<!-- functions: {name} -->\n- ") == 1
    assert folders == set(re.findall(r"^<!-- modules: (\w+) -->$", text, re.MULTILINE))


def test_the_record_counts_the_tests_that_there_are() -> None:
    release = versions.pinned(HOME)
    record = tested.read_record(HOME / tested.RECORD)[release]
    assert sorted(record) == tested.tested_modules(HOME)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, *(str(HOME / tested.TESTS / f"test_{name}.py") for name in record)],
        cwd=HOME, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    for name, result in record.items():
        collected = len(
            re.findall(rf"^tests/snippets/test_{name}\.py::", done.stdout, re.MULTILINE)
        )
        assert collected == result["passed"] + result["skipped"] + sum(result["failed"].values())
        assert result["failed"] == {}
