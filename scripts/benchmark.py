"""Measure what is promised about speed; everything that is compared runs here, side by side.

pages      checking all pages, against running each page module in an interpreter of its own
counts     how many page modules a build runs after an edit
check      the check of this site, as a multiple of one ``import torch``
attention  the snippet, against a bare softmax(q kᵀ · scale) v and against PyTorch's own function
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

HOME = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(HOME)  # not scripts/: its modules are imported as a package

from tabulate import tabulate  # noqa: E402

from scripts.project import Project  # noqa: E402
from scripts.run import Settings  # noqa: E402
from scripts.survey import survey  # noqa: E402

SIZES = (3, 6, 12, 24)
WORK = 0.4  # seconds of the processor that a page takes, beside its imports
GOAL = 8  # times faster than an interpreter a page, at twelve pages

CODE = """\
x = torch.eye(200) * one()
end = time.process_time() + {work}
while time.process_time() < end:
    x = x @ x
print(f"{{x.trace():.0f}}")
"""
MODULE = '''\
"""A page; like every page with a figure it imports torch and matplotlib."""

import time

import matplotlib.pyplot as plt
import torch

from snippets.{snippet} import one


def example_work():
    assert plt
{code}'''
PAGE = """\
# A page

<!-- imports -->
```python
import time

import matplotlib.pyplot as plt
import torch
```

<!-- source: {snippet}.one -->
<!--pytest-codeblocks:cont-->
```python
def one():
    return 1
```

<!-- example: work -->
<!--pytest-codeblocks:cont-->
```python
assert plt
{code}```

<!-- output: work -->
~~~text
200
~~~
"""


def make_site(root: Path, pages: int, work: float) -> Project:
    """Write a site whose pages do nothing but work; a third of them uses the snippet ``few``."""
    project = Project(root)
    project.docs.mkdir(parents=True)
    project.modules.mkdir(parents=True)
    for package in (project.modules, project.modules.parent):
        (package / "__init__.py").touch()
    for snippet in ("few", "many"):
        (root / "snippets" / f"{snippet}.py").write_text("def one():\n    return 1\n")
    code = CODE.format(work=work)
    indented = "".join(f"    {line}\n" for line in code.splitlines())
    for number in range(pages):
        page, snippet = f"page-{number:02}", "few" if number % 3 == 0 else "many"
        project.module(page).write_text(MODULE.format(snippet=snippet, code=indented))
        project.markdown(page).write_text(PAGE.format(snippet=snippet, code=code))
    shutil.copytree(HOME / "scripts", root / "scripts")
    return project


def seconds(command: Sequence[str], root: Path) -> float:
    """How long the command takes, which has to succeed."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env=variables, capture_output=True, check=False
    )
    taken = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr).decode()}")
    return taken


def cores() -> float:
    """How many cores the machine gives now; a virtual one may give fewer than it has."""
    busy = "import time\nwhile time.process_time() < 1: pass"
    start = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(os.cpu_count() or 1)]
    for process in running:
        process.wait()
    return len(running) / (time.perf_counter() - start)


def pages() -> None:
    """Print how checking compares with an interpreter a page, for sites of several sizes."""
    rows = []
    # Without the end of the interpreter, which takes torch apart and which no check waits for.
    importing = seconds(["-c", "import os, torch, matplotlib.pyplot; os._exit(0)"], HOME)
    for size in SIZES:
        with TemporaryDirectory() as folder:
            project = make_site(Path(folder) / "site", size, WORK)
            run = "import snippets.pages.{} as page; page.example_work()"
            names = [project.module(page).stem for page in project.pages()]
            own = sum(seconds(["-c", run.format(name)], project.root) for name in names)
            given = cores()
            check = seconds(["scripts/build.py", "--check"], project.root)
        rows.append([size, own, check, own / check, given, own / (importing + size * WORK / given)])
    headings = ["pages", "own interpreters, s", "check, s", "ratio", "cores given", "ratio at best"]
    print(tabulate(rows, headings, floatfmt=".1f"))
    ratio, limit = next((row[3], row[5]) for row in rows if row[0] == 12)
    verdict = "reached" if ratio >= GOAL else "missed"
    print(f"At 12 pages the check is {ratio:.1f} times as fast: the goal of {GOAL} is {verdict}.")
    print(
        f"At best: one import ({importing:.1f} s), then nothing but the pages' work on all the "
        f"cores that are given; at 12 pages that would be {limit:.1f} times as fast."
    )


def count(root: Path, size: int, work: float) -> dict[str, int]:
    """How many page modules run in a first build, and in builds after several edits."""
    project = make_site(root, size, work)
    ran = {}
    edits: dict[str, Callable[[], object]] = {
        "first": lambda: None,
        "no edit": lambda: None,
        "edit of a page's prose": lambda: _append(project.markdown("page-00"), "\nMore.\n"),
        "edit of the snippet that a third imports": lambda: _append(
            project.root / "snippets" / "few.py", "# More.\n"
        ),
        "edit of one page's module": lambda: _append(project.module("page-01"), "# More.\n"),
    }
    for name, edit in edits.items():
        edit()
        found = survey(project, project.pages(), Settings(), cached=True)
        if found.problems:
            raise SystemExit("\n".join(map(str, found.problems)))
        ran[name] = found.ran
    return ran


def counts() -> None:
    """Print the counts for a site of twelve pages."""
    with TemporaryDirectory() as folder:
        ran = count(Path(folder) / "site", 12, 0.0)
    print(tabulate(ran.items(), ["a build of 12 pages, after", "page modules run"]))


def _append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def check() -> None:
    """Print how long the check of this site takes, beside one ``import torch``."""
    importing = seconds(["-c", "import torch"], HOME)
    taken = seconds(["scripts/build.py", "--check"], HOME)
    ratio = taken / importing
    print(f"check {taken:.1f} s, import torch {importing:.1f} s: {ratio:.1f} times as long")


def attention() -> None:
    """Print how the snippet compares with what it could be replaced by."""
    import torch
    from torch import Tensor
    from torch.nn.functional import scaled_dot_product_attention

    from snippets.attention import attention as snippet

    def bare(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights: Tensor = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return weights @ v

    torch.set_num_threads(1)
    rows = []
    for length in (32, 128, 512):
        torch.manual_seed(0)
        q, k, v = torch.randn(3, 2, 8, length, 64).unbind()
        ways: dict[str, Callable[[], object]] = {
            "snippet": partial(snippet, q, k, v),
            "bare": partial(bare, q, k, v),
            "PyTorch's": partial(scaled_dot_product_attention, q, k, v),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(40):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                taken[name].append(time.perf_counter() - start)
        # The first rounds warm up.
        median = {name: statistics.median(times[10:]) for name, times in taken.items()}
        ratios = [median["snippet"] / median[name] for name in ("bare", "PyTorch's")]
        rows.append([length, *ratios])
    headings = ["T", "snippet / bare", "snippet / PyTorch's"]
    print("q, k and v of (2, 8, T, 64) in float32 on one thread, time as a multiple:")
    print(tabulate(rows, headings, floatfmt=".2f"))


PARTS = {"pages": pages, "counts": counts, "check": check, "attention": attention}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    chosen = parser.parse_args(arguments).parts or list(PARTS)
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]}: choose from {', '.join(PARTS)}")
    for part in chosen:
        print(f"\n{part}")
        PARTS[part]()


if __name__ == "__main__":
    main()
