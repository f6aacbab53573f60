from __future__ import annotations

import json

import pytest

from scripts import tested
from scripts.fill import fill
from scripts.page import read_page
from scripts.project import Project

CODE = '''\
"""One."""

import torch


def f(x: list[int]) -> int:
    """Give a < b."""
'''


@pytest.fixture
def site(project: Project) -> Project:
    (project.root / "snippets" / "one.py").write_text(CODE, encoding="utf-8")
    (project.modules / "page.py").write_text('"""What the page runs."""\n', encoding="utf-8")
    project.markdown("page").write_text("# A page\n\n<!-- source: one.f -->\n", encoding="utf-8")
    path = project.root / tested.RECORD
    path.parent.mkdir(parents=True)
    (path.parent / "test_one.py").touch()
    result = {"passed": 5, "skipped": 1, "failed": {"TypeError: a|b": 2, "ValueError": 1}}
    path.write_text(json.dumps({"2.9.1": {"one": result}, "2.13.0": {}}), encoding="utf-8")
    return project


def text(project: Project, directive: str) -> str:
    (project.docs / "reference").mkdir(exist_ok=True)
    path = project.markdown("reference/catalogue")
    path.write_text(f"# Code\n\n<!-- {directive} -->\n\nAfter.\n", encoding="utf-8")
    filled = fill(project, read_page(project, "reference/catalogue"), {})
    assert [problem.message for problem in filled.problems] == []
    once = filled.text()
    path.write_text(once, encoding="utf-8")
    again = fill(project, read_page(project, "reference/catalogue"), {})
    assert again.text() == once  # what was filled is found and replaced whole
    return once


def test_a_module_tells_its_tests_and_where_it_is_shown(site: Project) -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text(site, "module: one").split("\n")
        if line.startswith("| ")
    ]
    link = '<a href="../code/one.html">view</a> · <a href="../code/one.py" download>download</a>'
    error = '<code class="take-error">TypeError: a\\|b</code>'
    assert rows == [
        ["`one.py`", link],
        ["length", "7 lines"],
        ["needs", "torch"],
        ["tests", "`tests/snippets/test_one.py`"],
        ["torch 2.9.1", f"5 passed, 1 skipped, 3 failed; 2 with {error}"],
        ["shown on", "[A page](../page.md)"],
    ]


def test_functions_are_listed_with_links_to_their_lines(site: Project) -> None:
    assert (
        '- <a href="../code/one.html#f"><code>f(x: list[int]) -&gt; int</code></a><br>\n'
        "  Give a < b.\n\nAfter."
    ) in text(site, "functions: one")


def test_the_modules_of_a_folder_are_listed(site: Project) -> None:
    assert "| `pages/page.py` |" in text(site, "modules: pages")


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("module", "none", "there is no module snippets/none.py"),
        ("functions", "none", "there is no module snippets/none.py"),
        ("functions", "pages/page", "snippets/pages/page.py defines nothing that others call"),
        ("modules", "labs", "there is no module in snippets/labs"),
    ],
)
def test_what_is_not_there_is_told(site: Project, kind: str, name: str, message: str) -> None:
    page = site.markdown("other")
    page.write_text(f"<!-- {kind}: {name} -->\n", encoding="utf-8")
    [problem] = fill(site, read_page(site, "other"), {}).problems
    assert problem.message == f"<!-- {kind}: {name} -->: {message}"
