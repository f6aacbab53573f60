from __future__ import annotations

import pytest

from scripts import compare
from scripts.fill import Block, Filled, Number, fill
from scripts.page import read_page
from scripts.project import Project
from scripts.run import Results


def told(project: Project, printed: str, measured: str, units: int = 0) -> list[tuple[int, str]]:
    """Differences of an output, whose first line is the page's line 4."""
    text = f"# A page\n\n<!-- output: a -->\n~~~text\n{printed}~~~\n"
    project.markdown("page").write_text(text, encoding="utf-8")
    filled = fill(project, read_page(project, "page"), {"page": Results(outputs={"a": measured})})
    found = compare.differences(project, filled, units)
    return [(p.line, p.message.removesuffix(" (<!-- output: a -->)")) for p in found]


def test_a_changed_line_is_named_with_both_texts(project: Project) -> None:
    assert told(project, "one\ntwo\nthree\n", "one\n2\nthree\n") == [
        (6, "printed 'two', measured '2'")
    ]
    assert told(project, "one\ntwo\n", "1\n2\n") == [
        (5, "printed 'one', measured '1'"),
        (6, "printed 'two', measured '2'"),
    ]


def test_lines_too_many_and_too_few_are_named_where_they_stand(project: Project) -> None:
    assert told(project, "one\ntwo\nthree\n", "one\nthree\n") == [
        (6, "printed 'two', measured nothing")
    ]
    assert told(project, "one\nthree\n", "one\ntwo\nthree\n") == [
        (6, "printed nothing, measured 'two'")
    ]
    assert told(project, "one\n", "one\ntwo\nthree\n") == [
        (6, "printed nothing, measured 'two'"),
        (6, "printed nothing, measured 'three'"),
    ]
    assert told(project, "one\n2\n3\n4\nfive\n", "one\ntwo\nthree\nfive\n") == [
        (6, "printed '2', measured 'two'"),
        (7, "printed '3', measured 'three'"),
        (8, "printed '4', measured nothing"),
    ]
    assert told(project, "one\ntwo\nthree\nfour\n", "one\n2\n3\n4\n5\n") == [
        (6, "printed 'two', measured '2'"),
        (7, "printed 'three', measured '3'"),
        (8, "printed 'four', measured '4'"),
        (9, "printed nothing, measured '5'"),
    ]


def test_lines_that_a_long_block_repeats_are_matched_like_any_other() -> None:
    rows = "0 0\n" * 300
    assert list(compare.line_differences(f"a\n{rows}", f"b\nc\n{rows}")) == [
        (0, "a", "b"),
        (1, None, "c"),
    ]


def test_what_is_equal_has_no_difference(project: Project) -> None:
    assert told(project, "one\n\n two\n", "one\n\n two\n") == []
    assert told(project, "one \n", "one \n") == [(5, "printed 'one ', measured 'one'")]
    assert told(project, "0.50\n", "0.5\n") == [(5, "printed '0.50', measured '0.5'")]
    assert told(project, "one  two\n", "one two\n") == [
        (5, "printed 'one  two', measured 'one two'")
    ]
    assert list(compare.line_differences("a\n0.5\n", "a\n0.6\n")) == [(1, "0.5", "0.6")]
    assert list(compare.line_differences("one  two", "one two")) == [(0, "one  two", "one two")]


GPU = {
    ("x = 0.123", "x = 0.124"): True,
    ("x = 0.123", "x = 0.125"): False,
    ("x = 0.123", "x = 0.1230"): False,
    ("x = 0.123", "y = 0.123"): False,
    ("x = 0.123", "x = 0.123 s"): False,
    ("−0.001 and 1,000", "0.000 and 1,000"): True,
    ("0.001 and 1,000", "0.001 and 1,001"): False,
    ("0 1 1", "1 1 1"): False,
    ("1.9e-22", "2.0e-22"): True,
    ("1.9e-22", "1.9e-21"): False,
    ("1 2", "1 2 3"): False,
    ("[0.1, 0.2]", "[0.1,  0.2]"): True,
    ("12.5", "12.6"): True,
    ("99.9", "100.0"): True,
    ("7 x 0.5", "7 x 0.6"): True,
    ("0.10 x", "x 0.10"): False,
    ("1e5", "2e5"): True,
    ("1E5", "2E5"): True,
    ("1e5", "1e6"): False,
    ("1e+12", "2e+12"): True,
    ("1.5e12", "1.6e12"): True,
    ("1 000", "1 001"): False,
    ("0.5 0.5", "0.5"): False,
    ("0.5", "0.5 0.5"): False,
    ("True", "False"): False,
}


@pytest.mark.parametrize(("printed", "measured"), GPU)
def test_on_a_gpu_numbers_may_be_one_unit_off_and_nothing_else(
    project: Project, printed: str, measured: str
) -> None:
    assert (told(project, f"{printed}\n", f"{measured}\n", units=1) == []) == GPU[printed, measured]
    assert told(project, f"{printed}\n", f"{measured}\n") != []


def page_with(project: Project, text: str) -> Filled:
    """A page of that text, not yet filled."""
    project.markdown("page").write_text(text, encoding="utf-8")
    return Filled(read_page(project, "page"))


def differences(project: Project, filled: Filled, units: int = 0) -> list[str]:
    return [str(problem) for problem in compare.differences(project, filled, units)]


def test_a_directive_without_a_block_is_named_and_the_next_one_compared(project: Project) -> None:
    filled = page_with(project, "# A\n\n<!-- table: a -->\n\n<!-- table: b -->\n| old |\n")
    filled.blocks = [Block(directive, "| new |\n") for directive in filled.page.directives]
    assert differences(project, filled) == [
        "docs/page.md:3: <!-- table: a --> has no block under it: run scripts/build.py to have it "
        "written",
        "docs/page.md:6: printed '| old |', measured '| new |' (<!-- table: b -->)",
    ]


@pytest.mark.parametrize("kind", ["output", "planted", "table", "numbers", "source", "example"])
def test_one_unit_is_allowed_in_what_is_measured_and_not_in_code(
    project: Project, kind: str
) -> None:
    opening, end = {"table": ("", ""), "numbers": ("", "")}.get(
        kind, ("```python\n", "```\n") if kind in ("source", "example") else ("~~~text\n", "~~~\n")
    )
    filled = page_with(project, f"<!-- {kind}: a -->\n{opening}| 0.125 |\n{end}")
    assert filled.page.problems == []
    filled.blocks = [Block(filled.page.directives[0], f"{opening}| 0.126 |\n{end}")]
    line = 2 + opening.count("\n")
    expected = [
        f"docs/page.md:{line}: printed '| 0.125 |', measured '| 0.126 |' (<!-- {kind}: a -->)"
    ]
    assert differences(project, filled) == expected
    is_code = kind in ("source", "example")
    assert differences(project, filled, units=1) == (expected if is_code else [])
    for old, new in (("| 0.125 |", "|  0.125 |"), ("| x |", "|  x |")):
        filled = page_with(project, f"<!-- {kind}: a -->\n{opening}{old}\n{end}")
        filled.blocks = [Block(filled.page.directives[0], f"{opening}{new}\n{end}")]
        assert bool(differences(project, filled, units=1)) == is_code, new


def test_a_number_is_named_with_its_line_and_what_measured_it(project: Project) -> None:
    data = '<data value="a.n">0.125</data>'
    filled = page_with(project, f"# A page\n\nOne {data}\nand two {data}.\n")
    first, second = filled.page.bound
    filled.numbers = [Number(first, "page:a.n", 0.125), Number(second, "page:a.n", 0.12612)]
    expected = ["docs/page.md:4: printed 0.125, measured 0.126 (0.12612) (page:a.n)"]
    assert differences(project, filled) == expected
    assert differences(project, filled, units=1) == []


def test_a_file_is_named_by_its_first_line_that_differs(project: Project) -> None:
    filled = page_with(project, "# A page\n")
    folder = project.figures / "page"
    folder.mkdir(parents=True)
    drawn = "<?xml?>\nM 1.125 × 2\nM 3.125 4\n"
    for name in ("same", "moved", "far", "other"):
        (folder / f"{name}.svg").write_text(drawn, encoding="utf-8")
    filled.files = {
        folder / "same.svg": (3, drawn),
        folder / "moved.svg": (4, drawn.replace(".125", ".126")),
        folder / "far.svg": (5, drawn.replace("3.125", "4.125")),
        folder / "other.svg": (6, drawn.replace("3.125", "4.126")),
        folder / "none.svg": (7, drawn),
        folder / "lab.ipynb": (8, drawn),
    }
    file = "docs/assets/figures/page"
    far = f"docs/page.md:5: line 3 of {file}/far.svg: printed 'M 3.125 4', measured 'M 4.125 4'"
    other = far.replace(":5:", ":6:").replace("far.svg", "other.svg").replace("4.125", "4.126")
    none = f"docs/page.md:7: {file}/none.svg is missing: run scripts/build.py"
    assert differences(project, filled) == [
        f"docs/page.md:4: line 2 of {file}/moved.svg: "
        "printed 'M 1.125 × 2', measured 'M 1.126 × 2'",
        far,
        other,
        none,
    ]
    # A drawn point may move by a thousand units on a GPU.
    assert differences(project, filled, units=1) == [other, none]


def test_what_stands_on_a_page_and_was_not_compared_is_counted(project: Project) -> None:
    text = (
        '# A page of <data value="a.n">1</data>\n\n'
        + "".join(
            f"<!-- {kind} -->\n```python\nx\n```\n\n"
            for kind in ("imports", "source: a.b", "source: a.c", *(f"example: {n}" for n in "abc"))
        )
        + "<!-- output: a -->\n~~~text\nx\n~~~\n\n<!-- source: a.d -->\n"
    )
    filled = page_with(project, text)
    assert filled.page.problems == []

    def uncounted() -> list[str]:
        return [str(problem) for problem in compare.uncounted(filled.page, filled)]

    none = [f"docs/page.md:1: 6 python blocks stand here, {n} were checked" for n in range(7)]
    assert uncounted() == [none[0]]
    blocks = [Block(directive, "x\n") for directive in filled.page.directives]
    filled.blocks = blocks
    assert uncounted() == []
    for n, block in enumerate(blocks):
        filled.blocks = [*blocks[:n], *blocks[n + 1 :]]
        has_block = block.directive.kind != "output" and block.directive.name != "a.d"
        assert uncounted() == [none[5]] * has_block, block.directive
    filled.blocks = blocks
    filled.page.bound.clear()
    filled.page.directives.pop()
    assert uncounted() == [
        "docs/page.md:1: 8 directives stand here, 7 were checked",
        "docs/page.md:1: 1 numbers stand here, 0 were checked",
    ]
