from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import cache
from scripts.project import Project
from scripts.run import Results, Settings, run_pages
from tests.spoil import NUMBERS, NUMBERS_MODULE, TINY, TINY_MODULE, alter, said

DATA = "snippets/pages/core/many_numbers.csv"


@pytest.fixture(autouse=True)
def _without_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.site.build_site", lambda _: [])


@pytest.fixture
def site(small_site: Project) -> Project:
    """The small site, whose page on numbers reads a file; every page built once."""
    (small_site.root / DATA).write_text("4\n", encoding="utf-8")
    alter(
        small_site,
        NUMBERS_MODULE,
        "def table_powers():\n",
        "def table_powers():\n"
        "    with open(__file__.replace('.py', '.csv'), encoding='utf-8') as file:\n"
        "        assert int(file.read()) == 4\n",
    )
    assert ran(small_site) == (2, 0)
    assert ran(small_site) == (0, 2)
    return small_site


def ran(project: Project, *arguments: str) -> tuple[int, int]:
    """How many pages a run of the command ran, and how many were fresh."""
    _, lines = said(project, *arguments)
    match = re.search(r"(\d+) ran, (\d+) were fresh", lines[-1])
    assert match, lines
    return int(match[1]), int(match[2])


EDITS: dict[str, tuple[Callable[[Project], object], int]] = {
    "prose": (lambda site: alter(site, TINY, "A third, doubled,", "Twice a third"), 0),
    "a bound number": (lambda site: alter(site, TINY, ">0.67<", ">0.00<"), 0),
    "an output that is written again": (lambda site: alter(site, TINY, "is 0.667", "is 9"), 0),
    "the module": (lambda site: alter(site, TINY_MODULE, "rises", "climbs"), 1),
    "a comment in the module": (lambda site: alter(site, TINY_MODULE, "", "# End.\n"), 1),
    "a snippet": (lambda site: alter(site, "snippets/tiny.py", "return 2 * x", "return x + x"), 1),
    "a data file": (lambda site: (site.root / DATA).write_text("4 \n", encoding="utf-8"), 1),
    "a package": (
        lambda site: alter(site, "snippets/pages/core/__init__.py", "", "# Core.\n"),
        2,
    ),
    "a file's time": (lambda site: os.utime(site.root / TINY_MODULE), 0),
    "a module that nothing imports": (
        lambda site: (site.root / "snippets" / "more.py").write_text("", encoding="utf-8"),
        0,
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_only_what_an_edit_makes_stale_runs_again(site: Project, edit: str) -> None:
    change, stale = EDITS[edit]
    change(site)
    assert ran(site) == (stale, 2 - stale)
    assert ran(site) == (0, 2)


def test_a_snippet_that_a_snippet_imports_counts(site: Project) -> None:
    deep = site.root / "snippets" / "deep.py"
    deep.write_text("TWO = 2\n", encoding="utf-8")
    alter(
        site,
        "snippets/tiny.py",
        "import torch\n",
        "import torch\n\nfrom snippets.deep import TWO\n",
    )
    alter(site, "snippets/tiny.py", "return 2 * x", "return TWO * x")
    alter(
        site,
        TINY,
        "<!-- source: tiny.double -->",
        "<!-- source: deep.TWO -->\n\n<!-- source: tiny.double -->",
    )
    assert ran(site) == (1, 1)
    assert ran(site) == (0, 2)
    deep.write_text("TWO = 2.0\n", encoding="utf-8")
    assert ran(site) == (1, 1)
    deep.unlink()
    assert ran(site) == (1, 1)  # which fails, and so is not kept
    assert ran(site) == (1, 1)


def test_a_data_file_that_a_page_reads_through_a_path_counts(site: Project) -> None:
    data = site.modules / "core" / "tiny.json"
    data.write_text("2\n", encoding="utf-8")
    alter(
        site,
        TINY_MODULE,
        "def table_doubles():\n",
        "def table_doubles():\n"
        "    from pathlib import Path\n\n"
        "    assert Path(__file__).with_name('tiny.json').read_text(encoding='utf-8')\n",
    )
    assert ran(site) == (1, 1)
    assert ran(site) == (0, 2)
    data.write_text("3\n", encoding="utf-8")
    assert ran(site) == (1, 1)
    assert ran(site) == (0, 2)


def test_everything_runs_when_asked_for(site: Project) -> None:
    assert ran(site, "--all") == (2, 0)
    assert ran(site) == (0, 2)
    assert ran(site, TINY) == (0, 1)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY"])
def test_the_environment_of_a_run_counts(
    site: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, {"OMP_NUM_THREADS": "2"}.get(name, "default"))
    assert ran(site) == (2, 0)
    assert ran(site) == (0, 2)
    monkeypatch.delenv(name)
    assert ran(site) == (2, 0)


def test_device_versions_and_machinery_count(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cache.environment(Settings())
    assert cache.environment(Settings(jobs=1, limit=1)) == here
    assert cache.environment(Settings(device="cuda")) != here
    with monkeypatch.context() as patch:
        patch.setattr("scripts.cache.version", lambda name: f"{name} 0")
        other = cache.environment(Settings())
        assert {name for name in here if here[name] != other[name]} == {
            "torch",
            "numpy",
            "matplotlib",
        }
    monkeypatch.setattr("scripts.cache.MACHINERY", ("worker", "device"))
    other = cache.environment(Settings())
    assert [name for name in here if here[name] != other[name]] == ["machinery"]


BROKEN = {
    "cut short": (r".{9}$", ""),
    "empty": (r"^.*$", ""),
    "another kind": (r"^.*$", "[]"),
    "without results": (r"^.*$", "{}"),
    "an unknown field": ('"outputs"', '"output"'),
    "a missing field": ('"files"', '"problem"'),
    "no files": (r'"files": \{[^}]*\}', '"files": {}'),
    "files of another kind": (r'"files": \{[^}]*\}', '"files": 1'),
    "another encoding": ("1 of 4", "\udcff"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_cache_is_stale(site: Project, fault: str) -> None:
    path = site.cache / "pages" / "core" / "many-numbers.json"
    text = path.read_text(encoding="utf-8")
    broken = re.sub(*BROKEN[fault], text)
    assert broken != text
    path.write_text(broken, encoding="utf-8", errors="surrogateescape")
    assert ran(site) == (1, 1)
    assert ran(site) == (0, 2)


def test_the_check_neither_reads_nor_writes_the_cache(site: Project) -> None:
    for path in (site.cache / "pages").rglob("*.json"):
        kept = json.loads(path.read_text(encoding="utf-8"))
        kept["results"]["outputs"] = dict.fromkeys(kept["results"]["outputs"], "none\n")
        path.write_text(json.dumps(kept), encoding="utf-8")
    before = {path: path.read_bytes() for path in site.cache.rglob("*") if path.is_file()}
    assert ran(site, "--check") == (2, 0)
    assert said(site, "--check")[0] == 0
    assert {path: path.read_bytes() for path in site.cache.rglob("*") if path.is_file()} == before
    assert said(site)[0] == 0  # the build believes it
    assert "none" in (site.root / NUMBERS).read_text(encoding="utf-8")
    assert said(site, "--all")[0] == 0
    assert said(site, "--check")[0] == 0


def test_what_failed_is_not_kept(site: Project) -> None:
    alter(site, TINY_MODULE, "y = double(x)", "y = double(x) / 0 if x else 1 / 0; 1 / 0")
    assert ran(site) == (1, 1)
    assert ran(site) == (1, 1)


def test_a_file_that_changes_while_a_page_runs_leaves_nothing_to_keep(site: Project) -> None:
    alter(
        site,
        TINY_MODULE,
        "def table_doubles():\n",
        "def table_doubles():\n    import os\n    os.utime(__file__)\n",
    )
    [(_, results)] = run_pages(site, ["core/tiny"], Settings())
    assert results.files is None
    cache.save(site, "core/tiny", Settings(), results)
    assert cache.load(site, "core/tiny", Settings()) is None
    assert ran(site) == (1, 1)


def test_results_come_back_as_they_were(site: Project) -> None:
    fresh = dict(run_pages(site, ["core/tiny", "core/many-numbers"], Settings()))
    for page, results in fresh.items():
        assert cache.load(site, page, Settings()) == results
    assert cache.load(site, "core/none", Settings()) is None
    assert fresh["core/many-numbers"] != Results()


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder" / "page.md"
    cache.write_whole(path, "one\ntwo\n")
    assert path.read_bytes() == b"one\ntwo\n"

    def broken(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("pathlib.Path.replace", broken)
    with pytest.raises(OSError, match="the disk is full"):
        cache.write_whole(path, "three\n")
    assert [(file.name, file.read_bytes()) for file in path.parent.iterdir()] == [
        ("page.md", b"one\ntwo\n")
    ]
