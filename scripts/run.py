"""Run page modules, each in a process forked from one that has imported torch and matplotlib."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from types import ModuleType
from typing import Any

from scripts import source
from scripts.project import HOME, Problem, Project, is_lab


@dataclass
class Results:
    """What one page module gave, by name; ``problem`` where it gave nothing."""

    outputs: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    figures: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, str] | None = None
    problem: Problem | None = None


@dataclass(frozen=True)
class Settings:
    """How to run: device, processes at a time, seconds a page may take, kernels imitated or not."""

    device: str = "cpu"
    jobs: int = 0
    limit: float = 120.0
    perturbed: bool = False

    @property
    def threads(self) -> int:
        """Threads that torch uses in each process."""
        return int(os.environ.get("OMP_NUM_THREADS", "1"))

    def seconds(self, name: str) -> float:
        """Seconds that it may take: a lab trains models, and gets three times a page's."""
        return self.limit * (3 if is_lab(name) else 1)


class NoDeviceError(Exception):
    """The device that was asked for is not on this machine."""


@dataclass
class _Run:
    page: str
    process: ForkServerProcess
    pipe: Connection
    deadline: float
    function: str = ""

    def end(self) -> int:
        """End the process, which has nothing left to do; give its exit code."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.process.exitcode or 0


def prepare() -> None:
    """Start the imports that all runs share; they go on while the caller does something else."""
    os.environ["MPLBACKEND"] = "agg"
    variables = dict(os.environ)
    # The forkserver of Python 3.11 looks for what it preloads in its own path, not in this one.
    os.environ["PYTHONPATH"] = str(HOME)
    multiprocessing.get_context("forkserver").set_forkserver_preload(["scripts.preload"])
    resource_tracker.ensure_running()  # which would unblock again what is blocked here
    # Ctrl-C is for the process that the user sees; the others inherit that it is blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ.update(variables)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_pages(
    project: Project, pages: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Results]]:
    """Run the pages' modules; give each page's results as soon as they are there.

    Raises ``NoDeviceError`` where ``settings.device`` is not on this machine.
    """
    waiting = list(pages)[::-1]
    running: dict[Connection, _Run] = {}
    if waiting:
        prepare()
    try:
        while waiting or running:
            while waiting and len(running) < (settings.jobs or os.cpu_count() or 1):
                run = _start(project, waiting.pop(), settings)
                running[run.pipe] = run
            first = min(run.deadline for run in running.values())
            ready = wait(list(running), max(0.0, first - time.monotonic()))
            for run in list(running.values()):
                results = _hear(project, run) if run.pipe in ready else None
                if results is None and time.monotonic() >= run.deadline:
                    limit = settings.seconds(run.page)
                    results = _lost(project, run, f"did not end within {limit:g} s")
                if results is not None:
                    del running[run.pipe]
                    run.end()
                    yield run.page, results
    finally:
        for run in running.values():
            run.end()


def _start(project: Project, page: str, settings: Settings) -> _Run:
    file = project.relative(project.module(page))
    ours, theirs = multiprocessing.Pipe(duplex=False)
    # A lab's training would end elsewhere on another device: its numbers are a CPU's.
    device = "cpu" if is_lab(page) else settings.device
    how = (device, settings.threads, settings.perturbed)
    arguments = (theirs, str(project.root), file, how)
    process = multiprocessing.get_context("forkserver").Process(target=_work, args=arguments)
    main = sys.modules["__main__"]
    try:
        # The new process would import the file of the main module again, and needs nothing of it.
        sys.modules["__main__"] = ModuleType("__main__")
        process.start()
    finally:
        sys.modules["__main__"] = main
    theirs.close()
    return _Run(page, process, ours, time.monotonic() + settings.seconds(page))


def _work(pipe: Connection, root: str, file: str, how: tuple[str, int, bool]) -> None:
    # Imported here, in the forked process: the one that forks does without torch.
    from scripts.worker import run_page

    with contextlib.suppress(BrokenPipeError):  # nobody listens any more
        pipe.send(run_page(root, file, *how, pipe.send))


def _hear(project: Project, run: _Run) -> Results | None:
    """Read what the process says: the function that it begins, or at last the results."""
    try:
        said = run.pipe.recv()
    except (EOFError, OSError):
        return _lost(project, run, f"ended its process ({_ending(run.end())})")
    if isinstance(said, str):
        run.function = said
        return None
    if "no_device" in said:
        raise NoDeviceError(said["no_device"])
    if "error" in said:
        return Results(problem=Problem(*said["error"]))
    return Results(**said)


def _lost(project: Project, run: _Run, what: str) -> Results:
    module = project.module(run.page)
    at_line = re.search(r" line (\d+)$", run.function)
    line = int(at_line[1]) if at_line else source.definitions(module).get(run.function, 1)
    return Results(
        problem=Problem(project.relative(module), line, f"{run.function or 'the module'} {what}")
    )


def _ending(exitcode: int) -> str:
    if exitcode < 0:
        return f"signal {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
