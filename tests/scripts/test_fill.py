from __future__ import annotations

import pytest

from scripts.fill import Filled, fill, needed_pages
from scripts.page import read_page
from scripts.project import Project
from scripts.run import Results


def filled(project: Project, page: str, text: str, results: dict[str, Results]) -> Filled:
    project.markdown(page).parent.mkdir(parents=True, exist_ok=True)
    project.markdown(page).write_text(text, encoding="utf-8")
    return fill(project, read_page(project, page), results)


def table(project: Project, rows: list[dict[str, str]]) -> str:
    results = Results(tables={"a": rows})
    return filled(project, "page", "<!-- table: a -->\n", {"page": results}).blocks[0].text


def test_columns_of_numbers_stand_right_and_nothing_is_rewritten(project: Project) -> None:
    rows = [
        {"name": "one|two", "n": "1.00", "share": "−5 %", "mixed": "1", "a|b": "x"},
        {"name": "three", "n": "10", "share": "+0.5", "mixed": "n/a", "a|b": "1e-5"},
    ]
    assert table(project, rows) == (
        "| name     |    n |   share | mixed   | a\\|b   |\n"
        "|:---------|-----:|--------:|:--------|:-------|\n"
        "| one\\|two | 1.00 |    −5 % | 1       | x      |\n"
        "| three    |   10 |    +0.5 | n/a     | 1e-5   |\n"
    )


def test_an_output_is_what_was_printed_less_space_at_line_ends(project: Project) -> None:
    results = Results(outputs={"a": "one  \n\n  two\t\n"})
    [block] = filled(project, "page", "<!-- output: a -->\n", {"page": results}).blocks
    assert block.text == "~~~text\none\n\n  two\n~~~\n"


@pytest.mark.parametrize("page", ["page", "core/page", "a/b/page"])
def test_a_figure_is_linked_from_where_the_page_is(project: Project, page: str) -> None:
    results = Results(figures={"a": {"alt": "Rows [a, b]", "light": "L", "dark": "D"}})
    drawn = filled(project, page, "<!-- figure: a -->\n", {page: results})
    up = "../" * page.count("/")
    assert drawn.blocks[0].text == "".join(
        f"![Rows \\[a, b\\]]({up}assets/figures/{page}/a-{theme}.svg#only-{theme})\n"
        for theme in ("light", "dark")
    )
    folder = project.figures / page
    assert drawn.files == {folder / "a-light.svg": (1, "L"), folder / "a-dark.svg": (1, "D")}


@pytest.mark.parametrize("page", ["page", "core/page"])
def test_a_file_is_linked_from_where_the_page_is(project: Project, page: str) -> None:
    (project.root / "snippets" / "big.py").write_text("ONE = 1\n", encoding="utf-8")
    offered = filled(project, page, "<!-- file: big -->\n<a old>\n\nAfter.\n", {})
    up = "../" * page.count("/")
    link = f'<a href="{up}code/big.py" download><code>big.py</code></a>'
    assert offered.text() == f"<!-- file: big -->\n{link}\n\nAfter.\n"
    missing = filled(project, page, "<!-- file: none -->\n", {})
    [problem] = missing.problems
    assert problem.message == "<!-- file: none -->: there is no module snippets/none.py"


def test_blocks_after_the_first_join_it_and_the_text_around_stays(project: Project) -> None:
    project.module("page").write_text(
        "N = 1\n\n\ndef example_a():\n    print(N)\n", encoding="utf-8"
    )
    text = (
        'Before <data value="a.n">0.0</data>.\n\n'
        "<!-- source: pages.page.N -->\n\nBetween.\n\n<!-- example: a -->\n```python\nold\n```\n"
        "After.\n\n<!-- output: a -->"
    )
    result = Results(outputs={"a": "1\n"}, values={"a.n": 1.26})
    assert filled(project, "page", text, {"page": result}).text() == (
        'Before <data value="a.n">1.3</data>.\n\n'
        "<!-- source: pages.page.N -->\n```python\nN = 1\n```\n\nBetween.\n\n"
        "<!-- example: a -->\n<!--pytest-codeblocks:cont-->\n```python\nprint(N)\n```\n"
        "After.\n\n<!-- output: a -->\n~~~text\n1\n~~~\n"
    )


def test_a_number_may_come_from_any_page(project: Project) -> None:
    text = (
        '<data value="a.n">0.0</data> <data value="core/other:a.n">0.0</data>\n'
        '<data value="given: a width">512</data> <data value="cited: x">7</data>\n'
    )
    project.markdown("page").write_text(text, encoding="utf-8")
    assert needed_pages(read_page(project, "page")) == {"page", "core/other"}
    both = {"page": Results(values={"a.n": 1.0}), "core/other": Results(values={"a.n": 2.0})}
    done = filled(project, "page", text, both)
    assert [(number.key, number.value) for number in done.numbers] == [
        ("page:a.n", 1.0),
        ("core/other:a.n", 2.0),
    ]
    assert done.text() == text.replace("0.0", "1.0", 1).replace("0.0", "2.0", 1)


def test_a_number_that_cannot_be_printed_stays_and_is_named(project: Project) -> None:
    text = '# A page\n\n<data value="a.n">0.0</data>\n'
    done = filled(project, "page", text, {"page": Results(values={"a.n": True})})
    assert done.text() == text
    assert [str(problem) for problem in done.problems] == [
        "docs/page.md:3: page:a.n: the measured value is True, no number: "
        "return an int or a float (a tensor's .item())"
    ]
