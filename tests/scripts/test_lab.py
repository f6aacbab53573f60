from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from scripts import lab
from scripts.lint import strays
from scripts.matter import read_matter
from scripts.project import HOME, Project
from scripts.run import Settings, run_pages
from tests.spoil import alter, problems, said, tree

SCRIPT = "snippets/labs/rise.py"
NOTEBOOK = "docs/labs/rise.ipynb"
FIGURE = "docs/assets/figures/labs/rise/line-light.svg"
SMALL = (HOME / "tests" / "small_lab" / "rise.py").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def built_lab(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny site with a tiny lab, built but for its HTML; shared, so only to be copied."""
    from tests.conftest import copy_small_site

    project = copy_small_site(tmp_path_factory.mktemp("lab") / "project")
    project.labs.mkdir()
    shutil.copy(HOME / "tests" / "small_lab" / "rise.py", project.labs)
    numbers = project.markdown("numbers")
    text = numbers.read_text(encoding="utf-8") + "\n<!-- numbers: labs/rise -->\n"
    numbers.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scripts.site.build_site", lambda _: [])
        status, lines = said(project)
    assert status == 0, lines
    return project


@pytest.fixture
def site(built_lab: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr("scripts.site.build_site", lambda _: [])
    return Project(shutil.copytree(built_lab.root, tmp_path / "project"))


def test_a_sound_lab_passes_is_counted_and_is_listed(site: Project) -> None:
    before = tree(site)
    counts = "4 pages and 1 lab: 8 code blocks, 3 outputs, 3 tables, 2 figures, 13 numbers; "
    assert said(site, "--check") == (0, [f"checked {counts}3 ran, 0 were fresh"])
    assert said(site) == (0, [f"built {counts}0 ran, 3 were fresh"])
    assert tree(site) == before
    listed = site.markdown("numbers").read_text(encoding="utf-8").rpartition("<!--")[2]
    assert [row.split("|")[5].strip() for row in listed.split("\n") if "|" in row][2:] == [
        "`half` of `labs/rise.py`",
        "`cell 2` of `labs/rise.py`",
        "`halves` of `labs/rise.py`",
    ]


def test_a_lab_alone_is_built_and_checked_by_its_notebook(site: Project) -> None:
    (site.root / NOTEBOOK).unlink()
    (site.root / FIGURE).unlink()
    assert problems(site, "--check", NOTEBOOK) == [
        f"{SCRIPT}:1: {NOTEBOOK} is missing: run scripts/build.py",
        f"{SCRIPT}:25: {FIGURE} is missing: run scripts/build.py",
    ]
    status, lines = said(site, NOTEBOOK)
    assert (status, lines[0].partition(":")[0]) == (0, "built 0 pages and 1 lab")
    assert said(site, "--check", NOTEBOOK)[0] == 0


def test_the_notebook_is_valid_and_shows_what_the_script_gave(site: Project) -> None:
    text = (site.root / NOTEBOOK).read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds == ["markdown", "code", "markdown", "code", "code"]
    assert [cell.id for cell in notebook.cells] == [f"cell-{n}" for n in range(1, 6)]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2, 3]
    assert code[0].outputs[0].text == "1.50 < 3\n"
    picture = code[1].outputs[0].data
    assert picture["image/svg+xml"] == (site.root / FIGURE).read_text(encoding="utf-8")
    assert picture["text/plain"] == 'A straight "line" that rises from zero.'
    assert "|   3 |    1.5 |" in code[2].outputs[0].data["text/markdown"]
    assert ">1.50</data>" in notebook.cells[0].source


def test_the_script_runs_as_it_is(tmp_path: Path) -> None:
    shutil.copy(HOME / "tests" / "small_lab" / "rise.py", tmp_path)
    done = subprocess.run(
        [sys.executable, "rise.py"], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout == "1.50 < 3\n"


CHANGED = {
    "a number of the script": (
        SCRIPT,
        ">1.50<",
        ">1.51<",
        f"{SCRIPT}:10: printed 1.51, measured 1.50 (labs/rise:half.three)",
    ),
    "a number of the notebook": (
        NOTEBOOK,
        ">1.50<",
        ">1.51<",
        "printed 'Half of three is <data value=\"half.three\">1.51</data>, and the formula is', "
        "measured 'Half of three is <data value=\"half.three\">1.50</data>, and the formula is' "
        f"(cell 1, {SCRIPT}:7)",
    ),
    "an output": (
        NOTEBOOK,
        "1.50 < 3\\n",
        "1.50 < 4\\n",
        f"printed '1.50 < 4', measured '1.50 < 3' (cell 2, {SCRIPT}:13)",
    ),
    "the code of the notebook": (
        NOTEBOOK,
        '"y = x / 2\\n"',
        '"y = x / 3\\n"',
        f"printed 'y = x / 3', measured 'y = x / 2' (cell 2, {SCRIPT}:13)",
    ),
    "the code of the script": (
        SCRIPT,
        "y = x / 2\n",
        "y = x / 4\n",
        f"printed '1.50 < 3', measured '0.75 < 3' (cell 2, {SCRIPT}:13)",
    ),
    "the prose of the script": (
        SCRIPT,
        "# Half of",
        "# One half of",
        f"(cell 1, {SCRIPT}:7)",
    ),
    "a cell of the notebook's table": (
        NOTEBOOK,
        '"|   3 |    1.5 |\\n"\n      ],\n      "text/plain"',
        '"|   3 |    1.6 |\\n"\n      ],\n      "text/plain"',
        f"printed '|   3 |    1.6 |', measured '|   3 |    1.5 |' (cell 5, {SCRIPT}:28)",
    ),
    "the notebook's picture": (
        NOTEBOOK,
        '"</svg>\\n"',
        '"<g/></svg>\\n"',
        f"printed '<g/></svg>', measured '</svg>' (cell 4, {SCRIPT}:25)",
    ),
    "the picture": (
        FIGURE,
        "</svg>",
        "<g/></svg>",
        f"of {FIGURE}: printed '<g/></svg>', measured '</svg>'",
    ),
    "the order in which it ran": (
        NOTEBOOK,
        '"execution_count": 2',
        '"execution_count": 5',
        "printed '\"execution_count\": 5,', measured '\"execution_count\": 2,' (cell 4, "
        f"{SCRIPT}:25)",
    ),
    "the kernel": (
        NOTEBOOK,
        '"name": "python3"',
        '"name": "python2"',
        'measured \'"name": "python3"\'',
    ),
    "the end": (NOTEBOOK, "", "\n", "printed '', measured nothing"),
}


@pytest.mark.parametrize("fault", CHANGED)
def test_a_change_is_named_and_a_build_mends_it(site: Project, fault: str) -> None:
    file, old, new, message = CHANGED[fault]
    alter(site, file, old, new)
    before = tree(site)
    found = problems(site, "--check")
    assert any(message in line for line in found), found
    place = SCRIPT if message.startswith(SCRIPT) or file == FIGURE else NOTEBOOK
    assert any(line.startswith(f"{place}:") for line in found), found
    assert tree(site) == before
    assert said(site)[0] == 0
    assert said(site, "--check")[0] == 0


def test_the_line_of_a_change_is_that_of_the_notebook(site: Project) -> None:
    alter(site, NOTEBOOK, "1.50 < 3\\n", "1.50 < 4\\n")
    [found] = problems(site, "--check")
    line = int(found.split(":")[1])
    text = (site.root / NOTEBOOK).read_text(encoding="utf-8")
    assert "1.50 < 4" in text.split("\n")[line - 1]


def test_a_removed_cell_is_named(site: Project) -> None:
    path = site.root / NOTEBOOK
    notebook = json.loads(path.read_text(encoding="utf-8"))
    del notebook["cells"][2]
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    found = problems(site, "--check")
    assert any("printed nothing, measured '## The picture'" in line for line in found), found


WRONG = {
    "a number that nothing binds": (
        "# ## The picture",
        "# ## The picture of 0.5",
        f"{SCRIPT}:23: the number 0.5 is bound to nothing: write ",
    ),
    "a value that nothing measured": (
        "half.three",
        "half.four",
        f"{SCRIPT}:10: no value half.four was measured: labs/rise gives half.three",
    ),
    "a value that is a tensor": (
        "half.three",
        "half.steps",
        f"{SCRIPT}:10: no value half.steps was measured: labs/rise gives half.three",
    ),
    "code that raises": (
        "y = x / 2\n",
        "y = x / z\n",
        f"{SCRIPT}:18: the cell at line 13 raised NameError: name 'z' is not defined",
    ),
    "code that is no Python": (
        "y = x / 2\n",
        "y = x /\n",
        f"{SCRIPT}:18: the cell at line 13 raised SyntaxError: invalid syntax (rise.py, line 18)",
    ),
    "code that warns": (
        "y = x / 2\n",
        "y = torch.tensor(x) / 2\n",
        f"{SCRIPT}:18: the cell at line 13 raised UserWarning: To copy construct",
    ),
    "code that ends its process": (
        "y = x / 2\n",
        "import os; os._exit(3)\n",
        f"{SCRIPT}:13: the cell at line 13 ended its process (exit code 3)",
    ),
    "a figure that is not there": (
        "plt.plot(x, y)\n",
        "x + y\n",
        f"{SCRIPT}:25: the figure cell leaves 0 figures: a figure cell leaves one, any other none",
    ),
    "a figure where none belongs": (
        "y = x / 2\n",
        "y = x / 2; plt.figure()\n",
        f"{SCRIPT}:13: the code cell leaves 1 figures: a figure cell leaves one, any other none",
    ),
    "a figure that prints": (
        "plt.plot(x, y)\n",
        "print(plt.plot(x, y))\n",
        f"{SCRIPT}:25: the figure cell prints ",
    ),
    "a table without rows": (
        "rows = [",
        "row = [",
        f"{SCRIPT}:28: rows should return a list of rows, each a dict of heading to cell",
    ),
    "a figure without alternative text": (
        r' alt="A straight \"line\" that rises from zero."',
        "",
        f'{SCRIPT}:25: the cell # %% figure="line" should be # %%, # %% [markdown], ',
    ),
    "prose that is code": (
        "# ## The picture",
        "## The picture\nx",
        f"{SCRIPT}:24: the line of prose 'x' should begin with #",
    ),
    "a cell without a marker": (
        "# %% [markdown]\n# # A line",
        "x = 1\n# %% [markdown]\n# # A line",
        f"{SCRIPT}:1: 5 lines begin with # %%, but jupytext reads 6 cells: ",
    ),
    "a marker within a text": (
        "y = x / 2\n",
        'y = x / 2\nz = """\n# %%\n"""\n',
        f"{SCRIPT}:1: 6 lines begin with # %%, but jupytext reads 5 cells: ",
    ),
    "no title": (
        "# # A line",
        "# A line",
        f"{SCRIPT}:7: a lab begins with a cell # %% [markdown] that opens: # # Title",
    ),
    "a name given twice": (
        'table="halves"',
        'table="line"',
        f"{SCRIPT}:28: the name line is given twice: rename one of them",
    ),
    "an empty cell": (
        "# ## The picture\n",
        "#\n",
        f"{SCRIPT}:22: the cell is empty: delete it",
    ),
    "a directive": (
        "# ## The picture\n",
        "# <!-- imports -->\n",
        f"{SCRIPT}:23: <!-- imports --> stands in a lab, which has no directives",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_with_a_lab_is_named_and_nothing_is_written(
    site: Project, fault: str
) -> None:
    old, new, message = WRONG[fault]
    alter(site, SCRIPT, old, new)
    before = tree(site)
    for arguments in ([], ["--check"]):
        found = problems(site, *arguments, NOTEBOOK)
        assert any(line.startswith(message) for line in found), found
    assert tree(site) == before


def test_a_notebook_without_a_script_and_a_page_among_labs_fail(site: Project) -> None:
    shutil.copy(site.root / NOTEBOOK, site.docs / "core" / "stray.ipynb")
    page = site.markdown("labs/rise")
    page.write_text("# Page\n", encoding="utf-8")
    message = "the notebook has no script: write one in snippets/labs or delete the notebook"
    assert [str(problem) for problem in strays(site, site.names())] == [
        f"docs/core/stray.ipynb:1: {message}",
        "docs/labs/rise.md:1: this folder is for notebooks: move the page",
    ]
    page.unlink()
    (site.root / SCRIPT).unlink()
    found = [str(problem) for problem in strays(site, site.names())]
    assert f"{NOTEBOOK}:1: {message}" in found


def test_prose_runs_nothing_and_code_runs_again(site: Project) -> None:
    alter(site, SCRIPT, "# Half of", "# A new line.\n# Half of")
    alter(site, SCRIPT, "rises from zero", "climbs from zero")
    status, lines = said(site)
    assert status == 0
    assert "0 ran, 3 were fresh" in lines[0]
    assert "climbs" in (site.root / NOTEBOOK).read_text(encoding="utf-8")
    alter(site, SCRIPT, "< 3", "< 5")
    assert "1 ran, 2 were fresh" in said(site)[1][0]
    assert said(site, "--check")[0] == 0


def test_a_page_may_print_what_a_lab_measured(site: Project) -> None:
    data = '<data value="labs/rise:half.three">1.5</data>'
    alter(site, "docs/index.md", "", f"\nThe lab gives {data}.\n")
    assert said(site)[0] == 0
    alter(site, "docs/index.md", ">1.5<", ">1.6<")
    assert any(
        "printed 1.6, measured 1.5 (labs/rise:half.three)" in line
        for line in problems(site, "--check", "docs/index.md")
    )


def test_labs_begin_first(site: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def listen(project: Project, names: list[str], settings: Settings) -> object:
        begun.extend(names)
        return run_pages(project, names, settings)

    monkeypatch.setattr("scripts.survey.run_pages", listen)
    assert said(site, "--check")[0] == 0
    assert begun == ["labs/rise", "core/many-numbers", "core/tiny"]


def test_a_lab_that_does_not_end_is_stopped(site: Project) -> None:
    alter(site, SCRIPT, "y = x / 2\n", "y = x / 2\nwhile True: pass\n")
    start = time.monotonic()
    assert problems(site, "--check", NOTEBOOK, "--limit", "4") == [
        f"{SCRIPT}:13: the cell at line 13 did not end within 12 s"
    ]
    assert time.monotonic() - start < 60


def test_the_head_of_a_lab_is_that_of_a_page(site: Project) -> None:
    matter, found = read_matter(site, "labs/rise")
    assert (matter.description, matter.tags, matter.needs, found) == (
        "A line that rises.",
        ("test",),
        ("core/tiny",),
        [],
    )
    alter(site, SCRIPT, "needs: [core/tiny]", "needs: [core/gone]")
    [problem] = read_matter(site, "labs/rise")[1]
    assert str(problem).startswith(f"{SCRIPT}:4: needs names core/gone")


def test_a_row_of_a_notebook_is_shown_as_its_cell_shows_it() -> None:
    assert lab._plain('    "a \\"b\\"\\n",') == 'a "b"'
    assert lab._plain('   "execution_count": 2,') == '"execution_count": 2,'
    assert lab._plain('    "a\\",') == '"a\\",'
    assert lab._plain(None) is None
