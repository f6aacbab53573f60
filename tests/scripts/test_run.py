from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import pytest

from scripts.project import Project
from scripts.run import NoDeviceError, Settings, run_pages


def write(project: Project, page: str, body: str) -> None:
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    project.module(page).write_text(f"def example_a():\n{indented}\n", encoding="utf-8")


def outputs(project: Project, pages: list[str], settings: Settings) -> dict[str, str]:
    found = dict(run_pages(project, pages, settings))
    assert [result.problem for result in found.values()] == [None] * len(pages)
    return {page: result.outputs["a"] for page, result in found.items()}


def test_no_pages_need_no_process(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.run.prepare", lambda: pytest.fail("something was started"))
    assert list(run_pages(project, [], Settings())) == []


def test_each_page_has_a_process_of_its_own_that_has_torch_already(project: Project) -> None:
    pages = [f"page-{n}" for n in range(4)]
    for page in pages:
        write(
            project,
            page,
            """
            import os
            import sys
            import torch
            sys.spoiled = getattr(sys, "spoiled", 0) + 1
            print(os.getpid(), os.getppid(), sys.spoiled, torch.get_num_threads())
            print("scripts.build" in sys.modules, "matplotlib.pyplot" in sys.modules)
            """,
        )
    found = outputs(project, pages, Settings(jobs=2))
    lines = [found[page].splitlines() for page in pages]
    processes, parents, spoiled, threads = zip(*(line[0].split() for line in lines), strict=True)
    assert len(set(processes)) == 4
    assert len(set(parents)) == 1
    assert str(os.getpid()) not in processes + parents
    assert (set(spoiled), set(threads)) == ({"1"}, {"1"})
    assert {line[1] for line in lines} == {"False True"}


@pytest.mark.parametrize("jobs", [1, 3])
def test_so_many_pages_run_at_a_time_as_asked_for(project: Project, jobs: int) -> None:
    for n in range(3):
        write(
            project,
            f"page-{n}",
            f"""
            import pathlib
            import time
            here = pathlib.Path({str(project.root)!r})
            count = lambda what: len(list(here.glob(f"{{what}} *")))
            late = time.monotonic() + 100
            def all_have(what):
                (here / f"{{what}} {n}").touch()
                while count(what) < {jobs} and time.monotonic() < late:
                    time.sleep(0.01)
            all_have("begun")
            time.sleep({1 if jobs == 1 else 0})  # time for the others to begin, if they do
            print(count("begun") - count("ended"))
            all_have("counted")
            (here / "ended {n}").touch()
            """,
        )
    found = outputs(project, [f"page-{n}" for n in range(3)], Settings(jobs=jobs))
    assert {page: int(output) for page, output in found.items()} == dict.fromkeys(found, jobs)


def test_the_limit_of_a_page_starts_with_the_page(project: Project) -> None:
    write(project, "slow", "import time; time.sleep(2.5)")
    write(project, "endless", "while True: pass")
    pages = ["slow", "slow-2", "slow-3", "endless"]
    for page in ("slow-2", "slow-3"):
        write(project, page, "import time; time.sleep(2.5)")
    found = dict(run_pages(project, pages, Settings(jobs=1, limit=6)))
    assert [found[page].problem for page in pages[:3]] == [None] * 3
    assert str(found["endless"].problem) == (
        "snippets/pages/endless.py:1: example_a did not end within 6 s"
    )


def test_what_a_page_leaves_behind_delays_nothing(project: Project) -> None:
    write(
        project,
        "page",
        """
        import threading
        import time
        threading.Thread(target=time.sleep, args=(600,)).start()
        print("done")
        """,
    )
    start = time.monotonic()
    assert outputs(project, ["page"], Settings()) == {"page": "done\n"}
    assert time.monotonic() - start < 300


def test_a_reader_who_stops_early_leaves_no_process(project: Project) -> None:
    write(project, "quick", "import os; print(os.getppid())")
    write(project, "slow", "import time; time.sleep(60)")
    running = run_pages(project, ["quick", "slow"], Settings(jobs=2))
    page, result = next(running)
    assert page == "quick"
    running.close()  # type: ignore[attr-defined]
    children = Path(f"/proc/{int(result.outputs['a'])}/task/{int(result.outputs['a'])}/children")
    if children.exists():
        assert children.read_text(encoding="utf-8") == ""


def test_large_results_arrive_whole(project: Project) -> None:
    write(project, "page", "print('x' * 5_000_000)")
    assert len(outputs(project, ["page"], Settings())["page"]) == 5_000_001


def test_results_of_every_kind_arrive(small_site: Project) -> None:
    [(page, result)] = run_pages(small_site, ["core/many-numbers"], Settings())
    assert page == "core/many-numbers"
    assert result.outputs == {"kinds": "1 of 4 is 25%\n"}
    assert result.values["kinds.rough"] == [0.5004, 1e-3]
    assert result.values["powers.largest"] == 10_000
    assert result.tables["powers"][-1] == {"n": "4", "10 to the n": "10,000"}
    assert list(result.files or {}) == [
        f"snippets/{name}.py"
        for name in ("__init__", "pages/__init__", "pages/core/__init__", "pages/core/many_numbers")
    ]
    [(_, result)] = run_pages(small_site, ["core/tiny"], Settings())
    assert result.figures["line"]["alt"] == "A straight line that rises from zero."
    assert result.figures["line"]["light"].startswith("<?xml")
    assert result.figures["line"]["light"] != result.figures["line"]["dark"]
    assert "snippets/tiny.py" in (result.files or {})


def test_a_device_that_is_not_there_stops_the_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "page", "print(1)")
    with pytest.raises(NoDeviceError, match="no mps device is available here: use --device cpu"):
        list(run_pages(project, ["page"], Settings(device="mps")))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert Settings().threads == 2
