from __future__ import annotations

import pytest

from scripts.project import Project
from scripts.run import Results, Settings, run_pages

MODULE = '''\
"""A page."""
import random
import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

from snippets.other import example_elsewhere, helper


def example_first():
    print(torch.rand(1).item(), np.random.rand(), random.random())


def example_second():
    print(torch.rand(1).item(), np.random.rand(), random.random())
    print("aside", file=sys.stderr)


@torch.no_grad()
def table_third():
    print("not shown")
    rows = [{"draw": torch.rand(1).item(), 1: None}, {"draw": np.random.rand(), 1: "a|b"}]
    return rows, {
        "float64": np.float64(0.5),
        "pair": (np.float64(0.5), 1e-3),
        "bool": True,
        "int": 3,
    }


def figure_fourth():
    """Two
    lines."""
    figure, axes = plt.subplots()
    axes.plot(torch.rand(3))
    assert len(plt.get_fignums()) == 1
    return figure


def helper_fifth():
    raise AssertionError


example = 3
example_constant = 4
'''


@pytest.fixture(autouse=True)
def _other(project: Project) -> None:
    (project.root / "snippets" / "other.py").write_text(
        "def helper():\n    pass\n\n\ndef example_elsewhere():\n    raise AssertionError\n",
        encoding="utf-8",
    )


def run(project: Project, text: str) -> Results:
    project.module("page").write_text(text, encoding="utf-8")
    [(_, results)] = run_pages(project, ["page"], Settings())
    return results


def test_each_function_of_the_module_itself_runs_once_from_the_same_seed(
    project: Project,
) -> None:
    results = run(project, MODULE)
    assert results.problem is None
    assert list(results.outputs) == ["first", "second"]
    assert results.outputs["first"] == results.outputs["second"]
    draw = results.outputs["first"].split()[0]
    assert results.tables == {
        "third": [
            {"draw": draw, "1": "None"},
            {"draw": results.outputs["first"].split()[1], "1": "a|b"},
        ]
    }
    assert results.values == {
        "third.float64": 0.5,
        "third.pair": [0.5, 1e-3],
        "third.bool": True,
        "third.int": 3,
    }
    assert type(results.values["third.float64"]) is float


def test_a_figure_is_drawn_once_for_each_theme(project: Project) -> None:
    figure = run(project, MODULE).figures["fourth"]
    assert figure["alt"] == "Two lines."
    for theme in ("light", "dark"):
        assert figure[theme].startswith("<?xml")
        assert figure[theme].endswith("</svg>\n")
        assert not any(line.endswith(" ") for line in figure[theme].split("\n"))
    strokes = [set(figure[theme].split("stroke: ")[1:]) for theme in ("light", "dark")]
    assert strokes[0] != strokes[1]
    assert run(project, MODULE).figures["fourth"] == figure


def test_the_files_of_a_run_are_what_it_imports_and_opens(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "data.txt"
    inside, hidden = project.root / "data.txt", project.root / ".hidden"
    for path in (outside, inside, hidden):
        path.write_text("1", encoding="utf-8")
    opens = "\n".join(
        f"    open({str(path)!r}, encoding='utf-8').close()" for path in (outside, inside, hidden)
    )
    results = run(project, f"def example_a():\n    from snippets import other\n{opens}\n")
    assert results.problem is None
    assert list(results.files or {}) == [
        "data.txt",
        "snippets/__init__.py",
        "snippets/other.py",
        "snippets/pages/__init__.py",
        "snippets/pages/page.py",
    ]


def test_what_a_decorated_function_does_wrong_is_placed_in_its_own_file(project: Project) -> None:
    results = run(project, "import torch\n\n\n@torch.no_grad()\ndef example_a():\n    return 1\n")
    assert str(results.problem) == (
        "snippets/pages/page.py:4: example_a returned int: return a dict of values"
    )


def test_an_error_is_placed_in_the_deepest_of_the_projects_files(project: Project) -> None:
    text = "import torch\n\n\ndef example_a():\n    torch.ones(2).view(3)\n"
    assert str(run(project, text).problem) == (
        "snippets/pages/page.py:5: example_a raised RuntimeError: "
        "shape '[3]' is invalid for input of size 2"
    )
    text = "from snippets import other\n\n\ndef example_a():\n    other.example_elsewhere()\n"
    assert str(run(project, text).problem) == (
        "snippets/other.py:6: example_a raised AssertionError: "
    )
    (project.root / "snippets" / "other.py").write_text("x = (\n", encoding="utf-8")
    assert str(run(project, text).problem) == (
        "snippets/other.py:1: the module raised SyntaxError: '(' was never closed "
        "(other.py, line 1)"
    )
