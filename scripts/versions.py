"""Measure what several releases of PyTorch do about the mistakes of practice/bugs."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HOME = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(HOME)  # not scripts/: its modules are imported as a package

from scripts.cache import write_whole  # noqa: E402

OTHERS = ("2.4.1", "2.9.1", "2.14.1")  # beside the one that requirements.txt pins
RECORD = Path("snippets", "pages", "practice", "versions.json")
BUILD = "python scripts/build.py docs/practice/bugs.md"
SECONDS = {"make an environment": 120, "install": 3600, "measure": 600, "ask": 120}

# Runs in the other interpreter, which need have nothing but torch.
MEASURE = """\
import json, platform, sys
sys.path.insert(0, sys.argv[1])
import torch
from snippets.pages.practice.bugs import measure
build, python = str(torch.__version__), platform.python_version()
print(json.dumps({"build": build, "python": python, "words": measure()}))
"""

DESCRIPTION = f"""\
Measure what PyTorch does about each mistake of docs/practice/bugs.md, in one release after the
other, and write the words into {RECORD.as_posix()}. A release is installed into
a virtual environment in a temporary folder, which is deleted again; pip's own settings say from
where. With --python an interpreter that has the release is used as it is."""

EXAMPLES = f"""\
examples:
  python scripts/versions.py                              {", ".join(OTHERS)} and the pinned release
  python scripts/versions.py 2.10.0                       one more release, or one anew
  python scripts/versions.py --python 2.9.1=/path/to/python
                                                          without an installation for 2.9.1

Releases that are not named stay on record as they are; to drop one, delete its entry there. To
change which are measured by default, edit OTHERS in this file; the newest one there is the newest
that installed when it was written. The pinned release is the one in requirements.txt.
Afterwards, {BUILD} brings the page up to date.

exit status: 0 all were measured, and what was on record before is as it was
             1 a release could not be measured: its old column was kept
             2 wrong usage, or a record or a requirements.txt that cannot be read
             3 all were measured, and words on record have changed: they are listed and written"""


class UsageError(Exception):
    """Something that was given, or lies in the repository, cannot be used."""


class ReleaseError(Exception):
    """A release could not be measured."""


@dataclass
class Outcome:
    """The record as it is now, what changed in it, and which releases failed."""

    record: dict[str, dict[str, Any]]
    changes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None, root: Path = HOME) -> int:
    """Run the command line on the repository in ``root``; give the exit status."""
    options = _options(arguments)
    try:
        pythons = dict(python_of(given) for given in options.python)
        named = options.releases or [*OTHERS, pinned(root)]
        releases = in_order({*map(release_of, named), *pythons})
        outcome = Outcome(read_record(root / RECORD))
    except UsageError as error:
        print(error)
        return 2
    for release in releases:
        try:
            _renew(outcome, release, measured(root, release, pythons.get(release)))
        except ReleaseError as error:
            kept = "its old column is kept" if release in outcome.record else "it has no column"
            outcome.failures.append(f"torch {release} {error}; {kept}")
            print(outcome.failures[-1])
        else:
            write_record(root / RECORD, outcome.record)
            print(f"torch {release}: {len(outcome.record[release]['words'])} words measured")
    for change in outcome.changes:
        print(change)
    print(
        f"{len(releases) - len(outcome.failures)} of {len(releases)} releases measured, "
        f"{len(outcome.changes)} words changed; {BUILD} brings the page up to date"
    )
    return 1 if outcome.failures else 3 if outcome.changes else 0


def pinned(root: Path) -> str:
    """Read the release of torch that requirements.txt pins."""
    path = root / "requirements.txt"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r"^torch==([\d.]+)", text, re.MULTILINE)
    if not found:
        raise UsageError(f"{path} pins no torch: expected a line such as torch==2.13.0")
    return found[1]


def read_record(path: Path) -> dict[str, dict[str, Any]]:
    """Read the record; an empty one where there is none yet."""
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        for release, column in record.items():
            release_of(release)
            column["words"].items()
    except (OSError, ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
        raise UsageError(
            f"{path} is no record of releases ({type(error).__name__}: {error}): "
            "restore it from git, or delete it to begin anew"
        ) from None
    return dict(record)


def write_record(path: Path, record: dict[str, dict[str, Any]]) -> None:
    """Write the record whole, the oldest release first."""
    ordered = {release: record[release] for release in in_order(record)}
    write_whole(path, json.dumps(ordered, ensure_ascii=False, indent=2) + "\n")


def in_order(releases: Iterable[str]) -> list[str]:
    """Sort releases, the oldest first."""
    return sorted(releases, key=lambda release: [int(part) for part in release.split(".")])


def measured(root: Path, release: str, python: str | None) -> dict[str, Any]:
    """Measure one release, in an interpreter that has it or in a new environment.

    Raises ``ReleaseError`` where that does not give a word for every entry.
    """
    if python is not None:
        return _measure(root, release, python)
    with TemporaryDirectory(prefix=f"torch-{release}-") as folder:
        run("make an environment", [sys.executable, "-m", "venv", folder])
        inside = str(Path(folder, "Scripts" if os.name == "nt" else "bin", "python"))
        run("install", [*pip(inside), f"torch=={release}"])
        return _measure(root, release, inside)


def pip(python: str) -> list[str]:
    """The command that installs what is added to it."""
    # Without a cache: a release takes gigabytes, and is not needed again soon.
    install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    return [*install, "--disable-pip-version-check"]


def _measure(root: Path, release: str, python: str) -> dict[str, Any]:
    printed = run("measure", [python, "-I", "-B", "-W", "ignore", "-c", MEASURE, str(root)])
    try:
        column = json.loads(printed.splitlines()[-1])
        build, words = column["build"], column["words"]
    except (ValueError, IndexError, KeyError, TypeError):
        raise ReleaseError(
            f"could not be measured: {python} printed {printed[-80:]!r}, expected the words as JSON"
        ) from None
    if build.partition("+")[0] != release:
        raise ReleaseError(
            f"could not be measured: {python} has torch {build}: give an interpreter with {release}"
        )
    if not words or not all(isinstance(word, str) and word for word in words.values()):
        raise ReleaseError(f"could not be measured: {python} gave {words!r:.80}, expected words")
    return {
        "measured": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "build": build,
        "python": column["python"],
        "platform": f"{platform.system()} {platform.machine()}",
        "words": words,
    }


def run(task: str, command: list[str]) -> str:
    """Run a command to its end; give what it printed."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ATEN_CPU_CAPABILITY", "PYTHONPATH")
    }
    variables |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            command,
            env=variables,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=SECONDS[task],
            check=False,
        )
    except OSError as error:
        raise ReleaseError(f"could not {task}: {command[0]} cannot be run: {error}") from None
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"could not {task}: it took more than {SECONDS[task]} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["nothing"]
        # pip begins with its reason, a traceback ends with it.
        reason = next((line for line in said if line.startswith("ERROR:")), said[-1])
        raise ReleaseError(f"could not {task}: exit code {done.returncode}, it said: {reason:.300}")
    return done.stdout


def _renew(outcome: Outcome, release: str, column: dict[str, Any]) -> None:
    """Put a column into the record; note the words that were there and are others now."""
    old = outcome.record.get(release, {}).get("words", {})
    for name, word in old.items():
        new = column["words"].get(name)
        if new is None:
            outcome.changes.append(
                f"torch {release}: {name} was {word!r}, is not measured any more"
            )
        elif new != word:
            outcome.changes.append(f"torch {release}: {name} was {word!r}, is now {new!r}")
    outcome.record[release] = column


def python_of(given: str) -> tuple[str, str]:
    """Take ``release=path`` apart."""
    release, equals, path = given.partition("=")
    if not equals or not path:
        raise UsageError(
            f"--python {given} names no release and path: expected 2.9.1=/path/to/python"
        )
    return release_of(release), path


def release_of(text: str) -> str:
    """Give the release back, or refuse what is none."""
    if not re.fullmatch(r"\d+(\.\d+)+", text):
        raise UsageError(f"{text} is not a release of torch: expected one such as 2.9.1")
    return text


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python scripts/versions.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "releases",
        nargs="*",
        metavar="RELEASE",
        help=f"a release, such as 2.9.1 (default: {', '.join(OTHERS)} and the pinned one)",
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
