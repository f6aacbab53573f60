from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.project import HOME, Problem, Project
from tests.spoil import NUMBERS, TINY, TINY_MODULE, alter, said, tree


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Project]:
    """The projects whose site was built, in place of building it."""
    projects: list[Project] = []

    def build_site(project: Project) -> list[Problem]:
        projects.append(project)
        return []

    monkeypatch.setattr("scripts.site.build_site", build_site)
    return projects


def test_the_command_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, str(HOME / "scripts" / "build.py"), "--help"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr == ""
    for word in ("--check", "--all", "--serve", "--device", "--jobs", "--limit", "exit status"):
        assert word in done.stdout


def test_a_build_writes_what_differs_and_only_that(
    small_site: Project, built: list[Project]
) -> None:
    before = tree(small_site)
    (small_site.figures / "core" / "tiny" / "line-dark.svg").unlink()
    alter(small_site, NUMBERS, ">94 %<", ">0 %<")
    alter(small_site, NUMBERS, "|   4 |        10,000 |\n", "")
    times = {path: path.stat().st_mtime_ns for path in before if path.is_file()}
    assert said(small_site) == (
        0,
        [
            "built 4 pages: 5 code blocks, 2 outputs, 2 tables, 1 figures, 12 numbers; "
            "2 ran, 0 were fresh"
        ],
    )
    assert tree(small_site) == before
    assert built == [small_site]
    touched = {path for path, time in times.items() if path.stat().st_mtime_ns != time}
    assert touched == {small_site.root / NUMBERS}


def test_line_ends_are_written_as_line_feeds(small_site: Project, built: list[Project]) -> None:
    before = tree(small_site)
    path = small_site.root / TINY
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert said(small_site, "--check")[0] == 0
    assert said(small_site)[0] == 0
    assert tree(small_site) == before
    assert len(built) == 1


def test_problems_of_the_site_fail_the_build(
    small_site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem("core/tiny.html", 7, "a broken link: 'gone'")
    monkeypatch.setattr("scripts.site.build_site", lambda _: [problem])
    status, lines = said(small_site)
    assert (status, lines[0]) == (1, "core/tiny.html:7: a broken link: 'gone'")
    assert lines[1].startswith("1 problem; 4 pages: ")


@pytest.mark.parametrize(
    "named", ["docs/core/tiny.md", "core/tiny.md", "core/tiny", "{root}/docs/core/tiny.md"]
)
def test_a_page_may_be_named_in_any_plain_way(small_site: Project, named: str) -> None:
    status, [line] = said(small_site, "--check", named.format(root=small_site.root))
    assert (status, line.startswith("checked 1 pages: 3 code blocks")) == (0, True)


def test_a_page_may_be_named_from_where_one_stands(
    small_site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_site.docs / "core")
    assert said(small_site, "--check", "tiny.md", "docs/core/tiny.md")[0] == 0
    with pytest.raises(SystemExit):
        said(small_site, "--check", str(Path("..", "gone.md")))


def test_an_interrupted_build_says_so(small_site: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scripts.survey.survey", interrupt)
    assert said(small_site) == (130, ["stopped"])
    assert said(small_site, "--check") == (130, ["stopped"])


@pytest.mark.parametrize("after", [2.0, 5.0])
def test_an_interrupt_ends_every_process_without_a_traceback(
    small_site: Project, after: float
) -> None:
    alter(small_site, TINY_MODULE, "y = double(x)", "y = double(x)\n    while True: pass")
    command = shutil.copytree(HOME / "scripts", small_site.root / "scripts") / "build.py"
    running = subprocess.Popen(
        [sys.executable, str(command), "--check"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        start_new_session=True,  # and with it a process group, as in a terminal
    )
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(after)
    os.killpg(running.pid, signal.SIGINT)
    # Read to the end: every process of the group has closed its side.
    assert (running.communicate(timeout=120)[0], running.returncode) == ("stopped\n", 130)


def test_serve_builds_again_what_has_changed(
    small_site: Project, built: list[Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt: list[bool] = []

    def serve(project: Project, rebuild: Callable[[], bool], host: str, port: int) -> None:
        assert (project, host, port) == (small_site, "127.0.0.1", 8000)
        alter(project, TINY, "# Doubling", "# Twice")
        rebuilt.append(rebuild())
        alter(project, TINY, "doubled.third", "doubled.fourth")
        rebuilt.append(rebuild())

    monkeypatch.setattr("scripts.site.serve", serve)
    status, lines = said(small_site, "--serve")
    assert (status, rebuilt) == (0, [True, False])
    assert [line.rpartition("; ")[2] for line in lines] == [
        "2 ran, 0 were fresh",
        "0 ran, 2 were fresh",
        f"{TINY}:3: no value doubled.fourth was measured: core/tiny gives doubled.third",
        "0 ran, 2 were fresh",
    ]
    assert built == [small_site] * 2
