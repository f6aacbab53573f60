"""Run the snippets' own tests on several releases of PyTorch, for reference/catalogue."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

HOME = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(HOME)  # not scripts/: its modules are imported as a package

from scripts.versions import (  # noqa: E402
    OTHERS,
    ReleaseError,
    UsageError,
    in_order,
    pinned,
    pip,
    python_of,
    release_of,
    run,
    write_record,
)

TESTS = Path("tests", "snippets")
RECORD = TESTS / "releases.json"
BUILD = "python scripts/build.py docs/reference/catalogue.md"
LIMIT = 1800  # seconds for the tests of one module
TOOLS = ("pytest", "hypothesis")

DESCRIPTION = f"""\
Run the tests of each module of snippets/ (tests/snippets/test_NAME.py) in one release of PyTorch
after the other, and write into {RECORD.as_posix()} how many passed, were
skipped and failed, and with which errors. A release is installed into a virtual environment in a
temporary folder, which is deleted again. With --python an interpreter that has the release is used
as it is; pytest and hypothesis are put into a temporary folder beside it."""

EXAMPLES = f"""\
examples:
  python scripts/tested.py                                {", ".join(OTHERS)} and the pinned release
  python scripts/tested.py --module masks 2.9.1           one module in one release
  python scripts/tested.py --python 2.9.1=/path/to/python
                                                          without an installation for 2.9.1

What is not named stays on record as it is. Afterwards, {BUILD} brings the
page up to date.

exit status: 0 all ran, and as many tests pass as before
             1 a release could not be tested: what was on record was kept
             2 wrong usage, or a record or a requirements.txt that cannot be read
             3 all ran, and what passes has changed: it is listed and written"""


def main(arguments: Sequence[str] | None = None, root: Path = HOME) -> int:
    """Run the command line on the repository in ``root``; give the exit status."""
    options = _options(arguments)
    try:
        pythons = dict(python_of(given) for given in options.python)
        named = options.releases or ([] if pythons else [*OTHERS, pinned(root)])
        releases = in_order({*map(release_of, named), *pythons})
        record = read_record(root / RECORD)
        names = options.module or tested_modules(root)
        if unknown := sorted(set(names) - set(tested_modules(root))):
            raise UsageError(
                f"{', '.join(unknown)} has no tests: expected {', '.join(tested_modules(root))}"
            )
    except UsageError as error:
        print(error)
        return 2
    changes, failures = 0, 0
    for release in releases:
        try:
            with _interpreter(root, release, pythons.get(release)) as (python, tools):
                build = _build(python, release)
                for name in names:
                    result = _tested(root, python, tools, name) | build
                    before = record.setdefault(release, {}).get(name)
                    changed = before is not None and _outcome(before) != _outcome(result)
                    changes += changed
                    record[release][name] = result
                    write_record(root / RECORD, record)
                    print(
                        f"torch {release}, {name}: {told(result)}{'; changed' * changed}",
                        flush=True,
                    )
        except ReleaseError as error:
            failures += 1
            print(f"torch {release} {error}; what is on record is kept")
    print(
        f"{len(releases) - failures} of {len(releases)} releases tested, {changes} results "
        f"changed; {BUILD} brings the page up to date"
    )
    return 1 if failures else 3 if changes else 0


def tested_modules(root: Path) -> list[str]:
    """The modules of ``snippets/`` whose tests are one file."""
    return sorted(path.stem.removeprefix("test_") for path in (root / TESTS).glob("test_*.py"))


def told(result: dict[str, Any]) -> str:
    """Say a result in a line, the reason of most failures included."""
    parts = [f"{result['passed']} passed"]
    parts += [f"{result['skipped']} skipped"] * bool(result["skipped"])
    parts += [f"{sum(result['failed'].values())} failed"] * bool(result["failed"])
    return ", ".join(parts)


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """Read the record; an empty one where there is none yet."""
    if not path.exists():
        return {}
    try:
        record: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
        for release, results in record.items():
            release_of(release)
            for result in results.values():
                told(result)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
        raise UsageError(
            f"{path} is no record of tests ({type(error).__name__}: {error}): "
            "restore it from git, or delete it to begin anew"
        ) from None
    return record


def _outcome(result: dict[str, Any]) -> list[Any]:
    return [result[key] for key in ("passed", "skipped", "failed")]


@contextmanager
def _interpreter(root: Path, release: str, python: str | None) -> Iterator[tuple[str, str]]:
    """Give an interpreter that has the release, and a folder that holds the tests' tools."""
    pins = (root / "requirements.txt").read_text(encoding="utf-8")
    tools = re.findall(rf"^(?:{'|'.join(TOOLS)})==\S+", pins, re.MULTILINE)
    with TemporaryDirectory(prefix=f"torch-{release}-") as folder:
        if python is None:
            run("make an environment", [sys.executable, "-m", "venv", folder])
            python = str(Path(folder, "Scripts" if os.name == "nt" else "bin", "python"))
            run("install", [*pip(python), f"torch=={release}", "numpy"])
        beside = str(Path(folder, "tools"))
        run("install", [*pip(python), "--target", beside, *tools])
        yield python, beside


def _build(python: str, release: str) -> dict[str, str]:
    code = "import platform, torch; print(torch.__version__, platform.python_version())"
    build, _, version = run("ask", [python, "-I", "-c", code]).strip().partition(" ")
    if build.partition("+")[0] != release:
        raise ReleaseError(
            f"could not be tested: {python} has torch {build}: give an interpreter with {release}"
        )
    return {
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "build": build,
        "python": version,
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _tested(root: Path, python: str, tools: str, name: str) -> dict[str, Any]:
    """Run one module's tests; what cannot be loaded counts as one failure."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [python, "-B", "-m", "pytest", "-c", os.devnull, f"--rootdir={root}"]
        command += ["--import-mode=importlib", "-o", f"pythonpath={root}", "--noconftest"]
        command += ["-p", "no:cacheprovider", "--quiet"]
        command += [f"--junitxml={report}", str(root / TESTS / f"test_{name}.py")]
        variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        variables |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": tools}
        try:
            done = subprocess.run(
                command, env=variables, cwd=folder, capture_output=True, timeout=LIMIT, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReleaseError(f"could not be tested on {name}: {error}") from None
        if not report.is_file():
            said = done.stderr.decode(errors="replace").strip()[-200:]
            raise ReleaseError(f"could not be tested on {name}: pytest said: {said}")
        cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 - pytest wrote it
    failed = Counter(
        _reason(found.get("message") or "", found.text or "")
        for case in cases
        for found in [*case.findall("failure"), *case.findall("error")]
    )
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "passed": len(cases) - skipped - failed.total(),
        "skipped": skipped,
        "failed": dict(failed.most_common()),
    }


def _reason(message: str, text: str) -> str:
    """The error that a failure ended in, without what differs from run to run."""
    errors = re.findall(r"^E\s+([\w.]*(?:Error|Exception|Unsupported)\b.*)", text, re.MULTILINE)
    said = (errors[-1] if errors else message.partition("\n")[0]).strip()
    return re.sub(r"0x[0-9a-f]+|/\S+/|\b\d+\.\d{4,}\S*", "…", said)[:160]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python scripts/tested.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="a release, such as 2.9.1")
    parser.add_argument(
        "--module",
        action="append",
        metavar="NAME",
        help="a module, such as masks; may be given several times (default: all)",
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="RELEASE=PATH",
        help="an interpreter that has this release; may be given several times",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
