from __future__ import annotations

import pytest

from scripts.fill import Filled, fill, needed_pages
from scripts.page import Page, read_page
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


def test_a_list_of_numbers_is_no_number_and_one_row_is_a_table(project: Project) -> None:
    assert table(project, [{"sizes": "1, 2", "n": "1.5"}]) == (
        "| sizes   |   n |\n|:--------|----:|\n| 1, 2    | 1.5 |\n"
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


def told(project: Project, text: str, results: Results) -> list[str]:
    """What cannot be filled on a page of that text."""
    done = filled(project, "page", text, {"page": results})
    assert done.page.problems == []
    return [str(problem) for problem in done.problems]


def test_what_nothing_gives_is_named_with_its_line(project: Project) -> None:
    project.module("page").write_text("N = 1\n\n\ndef example_a():\n    print(N)\n", "utf-8")
    module = "snippets/pages/page.py"
    results = Results(outputs={"quiet": " \n", "a": "1\n"})
    for directive, message in {
        "example: b": f"{module} has no function example_b",
        "source: none.a": "there is no module snippets/none.py: expected module.name",
        "output: b": f"{module} has no function example_b",
        "table: b": f"{module} has no function table_b",
        "figure: b": f"{module} has no function figure_b",
        "output: quiet": "example_quiet prints nothing: print, or remove this",
        "tagged: learn": "no page has this tag: remove this, or tag a page",
        "functions: none": "there is no module snippets/none.py",
        "imports": "the code of this page imports nothing: remove this",
        "example: a": "this page has the same directive above: remove one",
    }.items():
        text = "<!-- output: a -->\n\n<!-- source: pages.page.N -->\n\n<!-- example: a -->\n\n"
        found = told(project, f"{text}\n<!-- {directive} -->\n", results)
        assert found == [f"docs/page.md:8: <!-- {directive} -->: {message}"]


def test_what_cannot_be_filled_leaves_the_rest(project: Project) -> None:
    text = "<!-- output: b -->\n\n<!-- output: a -->\n~~~text\nold\n~~~\n"
    done = filled(project, "page", text, {"page": Results(outputs={"a": "1\n"})})
    assert [(str(block.directive), block.text) for block in done.blocks] == [
        ("<!-- output: a -->", "~~~text\n1\n~~~\n")
    ]


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_a_block_does_not_hold_the_end_of_a_fence(project: Project, fence: str) -> None:
    results = {"page": Results(outputs={"a": f"one\n{fence}\n", "b": "two\n"})}
    text = "\n<!-- output: a -->\n\n<!-- output: b -->\n"
    done = filled(project, "page", text, results)
    assert [str(problem) for problem in done.problems] == [
        "docs/page.md:2: <!-- output: a -->: ``` or ~~~ in this block would end it"
    ]
    assert [str(block.directive) for block in done.blocks] == ["<!-- output: b -->"]


def test_blocks_join_across_outputs_and_imports_serve_them_all(project: Project) -> None:
    project.module("page").write_text(
        "import torch\n\nfrom snippets.big import one\n\n\n"
        "def example_a():\n    print(torch.ones(1))\n\n\ndef example_b():\n    print(one())\n",
        "utf-8",
    )
    (project.root / "snippets" / "big.py").write_text("def one():\n    return 1\n", "utf-8")
    text = (
        "<!-- imports -->\n\n<!-- file: big -->\n\n<!-- example: a -->\n\n<!-- output: a -->\n\n"
        "<!-- example: b -->\n\n<!-- example: none -->\n"
    )
    results = {"page": Results(outputs={"a": "1\n", "big": "1\n"})}
    done = filled(project, "page", text, results)
    assert [str(problem) for problem in done.problems] == [
        "docs/page.md:11: <!-- example: none -->: snippets/pages/page.py has no function "
        "example_none"
    ]
    joined = "<!--pytest-codeblocks:cont-->\n"
    assert [block.text for block in done.blocks] == [
        "```python\nimport torch\nfrom big import one\n```\n",
        '<a href="code/big.py" download><code>big.py</code></a>\n',
        f"{joined}```python\nprint(torch.ones(1))\n```\n",
        "~~~text\n1\n~~~\n",
        f"{joined}```python\nprint(one())\n```\n",
    ]
    # Without the file, the reader has no module to import from.
    [first, second] = told(project, text.replace("file: big", "output: big"), results["page"])
    assert first.startswith("docs/page.md:11: <!-- example: none -->")
    assert second == (
        "docs/page.md:1: <!-- imports -->: the code uses one, which this page does not show: "
        "put <!-- source: big.one --> above it"
    )


def test_lists_of_pages_and_functions_are_written_from_where_the_page_is(
    project: Project,
) -> None:
    head = "---\ndescription: It tells.\ntags: [learn]\n---\n# Other\n"
    project.markdown("other").write_text(head, encoding="utf-8")
    (project.root / "snippets" / "big.py").write_text(
        'def one() -> int:\n    """Give one."""\n    return 1\n', "utf-8"
    )
    text = "<!-- tagged: learn -->\n\n<!-- functions: big -->\n\n<!-- numbers: other -->\n"
    done = filled(project, "core/page", text, {})
    assert done.problems == []
    assert [block.text for block in done.blocks] == [
        "- [Other](../other.md): It tells.\n",
        '- <a href="../code/big.html#one"><code>one() -&gt; int</code></a><br>\n  Give one.\n',
    ]


NEEDED = {
    "<!-- source: a.b -->\n\n<!-- numbers: core/other -->": set(),
    "<!-- source: a.b -->\n\n<!-- output: a -->": {"page"},
    "<!-- example: a -->": {"page"},
    "<!-- table: a -->": {"page"},
    "<!-- figure: a -->": {"page"},
    '<data value="site:pages">4</data> <data value="derived: x:y">4</data>': set(),
    '<data value="a.n">4</data>': {"page"},
    '<data value="core/other:a.n">4</data>': {"core/other"},
}


@pytest.mark.parametrize("text", NEEDED)
def test_a_page_needs_the_results_that_it_prints(project: Project, text: str) -> None:
    project.markdown("page").write_text(f"{text}\n", encoding="utf-8")
    assert needed_pages(read_page(project, "page")) == NEEDED[text]
    assert needed_pages(Page("labs/rise", "", "")) == {"labs/rise"}


def test_a_number_that_nothing_measured_is_named_with_the_closest(project: Project) -> None:
    def missing(key: str, *names: str) -> list[str]:
        text = f'One\n<data value="{key}">0.5</data> <data value="given: x">512</data>\n'
        return told(
            project,
            text + '<data value="site:pages">4</data>\n',
            Results(values=dict.fromkeys(names, 1)),
        )

    def message(closest: str) -> list[str]:
        return [f"docs/page.md:2: no value a.n was measured: page gives {closest}"]

    assert missing("a.n") == message("none")
    assert missing("a.n", "b.x", "a.no") == message("a.no, b.x")
    five = ["x.q", "a.no", "a.not", "a.note", "a.notes"]
    assert missing("a.n", *five) == message("a.no, a.not, a.note, a.notes, x.q")
    assert missing("a.n", *five, "a.m") == message("a.no, a.not, a.note, a.m, a.notes, …")
    assert missing("core/other:a.n", "a.n") == [
        "docs/page.md:2: no value core/other:a.n was measured: core/other gives none"
    ]
