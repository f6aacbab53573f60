"""Measure what is promised about speed; everything that is compared runs here, side by side.

pages      checking all pages, against running each page module in an interpreter of its own
counts     how many page modules a build runs after an edit
check      the check of this site, as a multiple of one ``import torch``
attention  the snippet, against a bare softmax(q kᵀ · scale) v and against PyTorch's own function
multi_head the module, against nn.MultiheadAttention and against the plain calls of PyTorch
contract   all checks of typical code, beside one ``import torch``
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

HOME = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(HOME)  # not scripts/: its modules are imported as a package

from tabulate import tabulate  # noqa: E402

from scripts.project import Project  # noqa: E402
from scripts.run import Settings  # noqa: E402
from scripts.survey import survey  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

SIZES = (3, 6, 12, 24)
WORK = 0.4  # seconds of the processor that a page takes, beside its imports
CONTRACT = 5  # seconds that all checks of typical code may take
GOAL = 8  # times faster than an interpreter a page, at twelve pages
ROUNDS = {128: 200, 512: 30, 2048: 15}  # of the module's comparison, by length

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


Layer = Callable[["Tensor"], "Tensor"]


def layers(kind: str, n_kv_heads: int = 8) -> dict[str, Layer]:
    """The module and its rivals, all with the same weights: 8 heads, d_model 512.

    The kind is "all" or "causal". "again" is the plain one once more: its ratio to "plain" shows
    the noise.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    from snippets.multi_head import MultiHeadAttention

    causal, width, grouped = kind == "causal", n_kv_heads * 64, n_kv_heads < 8
    torch.manual_seed(0)
    qkv, out = nn.Linear(512, 512 + 2 * width), nn.Linear(512, 512)

    def plain(x: Tensor, expand: bool = True) -> Tensor:
        b, t, c = x.shape
        q, k, v = torch.split(qkv(x), [c, width, width], dim=-1)
        q, k, v = (y.view(b, t, -1, 64).transpose(1, 2) for y in (q, k, v))
        if grouped and expand:
            k, v = (y.repeat_interleave(8 // n_kv_heads, dim=1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
        output: Tensor = out(y.transpose(1, 2).reshape(b, t, c))
        return output

    module = MultiHeadAttention(512, 8, n_kv_heads=n_kv_heads)
    parts = {"qkv": qkv, "out": out}.items()
    module.load_state_dict(
        {f"{name}.{key}": x for name, part in parts for key, x in part.state_dict().items()}
    )
    found: dict[str, Layer] = {
        "snippet": lambda x: module(x, is_causal=causal)[0],
        "plain": plain,
        "again": plain,
    }
    if grouped:
        return {**found, "enable_gqa": partial(plain, expand=False)}
    for name, training in (("nn, training", True), ("nn, evaluation", False)):
        rival = nn.MultiheadAttention(512, 8, batch_first=True).train(training)
        rival.load_state_dict(
            {"in_proj_" + key: x for key, x in qkv.state_dict().items()}
            | {"out_proj." + key: x for key, x in out.state_dict().items()}
        )

        def builtin(x: Tensor, rival: nn.MultiheadAttention = rival) -> Tensor:
            n = x.shape[1]
            mask = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
            options = {"attn_mask": mask, "is_causal": causal, "need_weights": False}
            output: Tensor = rival(x, x, x, **options)[0]
            return output

        found[name] = builtin
    return found


def once(layer: Layer, x: Tensor, backward: bool) -> Tensor:
    """Run a layer forward, or forward and backward."""
    import torch

    with torch.set_grad_enabled(backward):
        output = layer(x.detach().requires_grad_(backward))
        if backward:
            output.sum().backward()  # type: ignore[no-untyped-call]
    return output.detach()


def grown(name: str, length: int, backward: bool) -> float:
    """By how many MiB one run of a layer raises the peak of this process's memory."""
    import resource

    import torch

    torch.set_num_threads(1)
    layer = layers("all")[name]
    once(layer, torch.randn(2, 8, 512), backward)  # what a first run loads does not count
    x = torch.randn(2, length, 512)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    once(layer, x, backward)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def multi_head() -> None:
    """Print how the module compares in time and in memory."""
    import torch

    torch.set_num_threads(1)
    rows = []
    lengths = list(ROUNDS)
    for name, kind, n_kv_heads, chosen in (
        ("8 heads", "all", 8, lengths),
        ("8 heads, causal", "causal", 8, lengths[-2:-1]),
        ("8 heads on 2", "all", 2, lengths[-2:-1]),
        ("8 heads on 2, causal", "causal", 2, lengths[-2:-1]),
    ):
        ways = layers(kind, n_kv_heads)
        for length, backward in product(chosen, (False, True)):
            x = torch.randn(2, length, 512)
            expected = once(ways["plain"], x, backward)
            least = dict.fromkeys(ways, math.inf)
            order = list(ways)
            for _ in range(ROUNDS[length]):
                order = [*order[1:], order[0]]  # what ran before may cost or help
                for way in order:
                    # Time of this thread, the only one: other programs do not count.
                    start = time.thread_time()
                    output = once(ways[way], x, backward)
                    least[way] = min(least[way], time.thread_time() - start)
                    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
            ours = least.pop("snippet")
            again = least.pop("again")
            rivals = [least.get(way) for way in ("nn, training", "nn, evaluation", "enable_gqa")]
            rows.append(
                [
                    name,
                    length,
                    "forward and backward" if backward else "forward",
                    ours / min(least.values()),
                    again / least["plain"],
                    ours / least["plain"],
                    *(None if rival is None else ours / rival for rival in rivals),
                ]
            )
    headings = ["", "T", "pass", "snippet / fastest", "noise: plain / plain", "snippet / plain"]
    headings += ["/ nn, training", "/ nn, evaluation", "/ plain with enable_gqa"]
    print("(2, T, 512) in float32, least processor time of all rounds as a multiple:")
    print(tabulate(rows, headings, floatfmt=".2f"))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    rows = []
    for backward, way in product((False, True), ("snippet", "plain", "nn, training")):
        with context.Pool(1) as fresh:
            added = fresh.apply(grown, (way, max(ROUNDS), backward))
        rows.append([way, max(ROUNDS), "forward and backward" if backward else "forward", added])
    print("\nWhat one run adds to the peak memory of a process of its own:")
    print(tabulate(rows, ["", "T", "pass", "MiB"], floatfmt=".0f"))


def contract() -> None:
    """Print how long the contract takes for a function, modules, positions and a cache."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    from snippets.contract import check_attention, check_cache, check_multi_head, check_positions
    from snippets.multi_head import MultiHeadAttention
    from snippets.pages.practice.contract import attend_step, rotary

    torch.set_num_threads(1)
    ways: dict[str, Callable[[], object]] = {
        "scaled_dot_product_attention": partial(check_attention, F.scaled_dot_product_attention),
        "the module of this site": partial(check_multi_head, MultiHeadAttention(16, 4)),
        "nn.MultiheadAttention": partial(
            check_multi_head, nn.MultiheadAttention(16, 4, batch_first=True)
        ),
        "the same, of common size": partial(
            check_multi_head, nn.MultiheadAttention(512, 8, batch_first=True)
        ),
        "rotary positions": partial(check_positions, rotary),
        "a cache": partial(check_cache, attend_step),
    }
    importing = seconds(["-c", "import torch"], HOME)
    rows = []
    for name, way in ways.items():
        start = time.thread_time()
        way()
        taken = time.thread_time() - start
        rows.append([name, taken, taken / importing, "yes" if taken < CONTRACT else "NO"])
    headings = ["", "s", "/ import torch", f"under {CONTRACT} s"]
    print("All checks, without settings, processor time of one thread:")
    print(tabulate(rows, headings, floatfmt=".1f"))


PARTS = {
    "pages": pages,
    "counts": counts,
    "check": check,
    "attention": attention,
    "multi_head": multi_head,
    "contract": contract,
}


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
