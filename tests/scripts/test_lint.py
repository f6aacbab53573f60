from __future__ import annotations

import calendar
import re

import pytest

from scripts.lint import stated_numbers, strays, unbound_numbers, unshown
from scripts.page import Page
from scripts.project import Problem, Project
from scripts.run import Results
from tests.spoil import page_of

MESSAGE = re.compile(
    r'the number (.+) is bound to nothing: write <data value="example\.name">\1</data>, '
    r"or cited:, given: or derived: with its source or reason in place of the name"
)


def found(page: Page) -> list[tuple[int, str]]:
    """The unbound numbers of a page that is well formed: line and number."""
    assert page.problems == []
    numbers = []
    for problem in unbound_numbers(page):
        match = MESSAGE.fullmatch(problem.message)
        assert match, problem.message
        assert problem.file == page.file
        numbers.append((problem.line, match[1]))
    return numbers


NUMBERS: dict[str, str | tuple[str, ...]] = {
    "It is 0.5 high.": "0.5",
    "It is .5 high.": ".5",
    "It is −0.5 high.": "−0.5",
    "It is 0·5 high.": "0·5",
    "It is 0,5 high.": "0,5",
    "About 7 % of them": "7 %",
    "About 7% of them": "7%",
    "About 7 percent of them": "7 percent",
    "About 7 per cent of them": "7 per cent",
    "About 7 ‰ of them": "7 ‰",
    "It is 3× faster.": "3×",
    "It is 3 times faster.": "3 times",
    "It is 3x faster.": "3x",
    "A 12-fold gain": "12-fold",
    "A 12fold gain": "12fold",
    "It is 3e5 bytes.": "3e5",
    "It is 3 × 10⁵ bytes.": "3 × 10",
    "It is 10⁻⁵ off.": "10⁻",
    "It is 10^-5 off.": "10^",
    "It is 10<sup>-5</sup> off.": "10^",
    "A width of 512": "512",
    "A width of 38,000": "38,000",
    "A width of 38 000": "000",
    "A 128-dimensional space": "128",
    "A range 0.1–0.9": ("0.1", "0.9"),
    "(0.5)": "0.5",
    "~0.5": "0.5",
    "## A heading of 0.5": "0.5",
    "0.5\n===": "0.5",
    "> quoted 0.5": "0.5",
    "- a list\n    - of 0.5": "0.5",
    "1. a list\n\n   of 0.5": "0.5",
    "| a |\n|---|\n| 0.5 |": "0.5",
    "| 0.5 |\n|-----|\n| b |": "0.5",
    "It is 0&#46;5 high.": "0.5",
    "It is 0&period;5 high.": "0.5",
    r"It is 0\.5 high.": "0.5",
    "It is 0.**5** high.": "0.5",
    "It is *0*.5 high.": "0.5",
    "It is 0<b>.5</b> high.": "0.5",
    "![a picture of 0.5](x.svg)": "0.5",
    '![a picture](x.svg "of 0.5")': "0.5",
    '[a link](x.md "of 0.5")': "0.5",
    '[a link][x]\n\n[x]: x.md "of 0.5"': "0.5",
    '<abbr title="0.5">half</abbr> of it': "0.5",
    '<img src="x.svg" alt="0.5">': "0.5",
    "<details>\n<summary>Of 0.5</summary>\n</details>": "0.5",
    "<table><tr><td>0.5</td></tr></table>": "0.5",
    "<pre>0.5</pre>": "0.5",
    "<dl><dt>a</dt><dd>0.5</dd></dl>": "0.5",
    '<ol start="100"><li>a</li></ol>': "100",
    '<input placeholder="0.5">': "0.5",
    '<progress value="0.5"></progress>': "0.5",
    "100. a": "100",
    "Noted[^1].\n\n[^1]: 0.5": "0.5",
    "Noted[^1].\n\n[^1]: One.\n\n    Two, 0.5.": "0.5",
    "It costs $ 0.5 $ now.": "0.5",
    "From $5 to 0.5 and $6": "0.5",
    '!!! note "Of 0.5"': "0.5",
    "---\ntitle: Of 0.5\n---": "0.5",
    "~~~console\n$ python half.py\n0.5\n~~~": "0.5",
    "The loss[](x) 0.5": "0.5",
    "See [it](x.md) in 1948": "1948",
    "It is +0.5 higher.": "+0.5",
    "It is 1,234.5 wide.": "1,234.5",
    "It is 12,5 wide.": "12,5",
    "It is 0.512e10 wide.": "0.512e10",
    "It is 0.512E+10 wide.": "0.512E+10",
    "It is 0.512e-10 wide.": "0.512e-10",
    "It is 3E5 wide.": "3E5",
    "It is 3e12 wide.": "3e12",
    "It is 38,000e-5 wide.": "38,000e-5",
    "It is 3×10⁵ wide.": "3×10",
    "It is 38,000 × 10⁵ wide.": "38,000 × 10",
    "It is 38,000 % wide.": "38,000 %",
    "It is 38,000 times as wide.": "38,000 times",
    "It is 1,234,567 wide.": "1,234,567",
    "Of shape (B,512)": "512",
    "At 127.0.0.1": "127.0",
    "Of 1.2.3x": "1.2",
    "Both 0.5 and 7 %": ("0.5", "7 %"),
}
NUMBERS |= {f"It has 10{power} bytes": f"10{power}" for power in "⁰¹²³⁴⁵⁶⁷⁸⁹⁻^"}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_that_a_reader_sees_is_found(project: Project, text: str) -> None:
    page = page_of(project, f"# A page\n\n{text}\n")
    expected = NUMBERS[text]
    assert [number for _, number in found(page)] == (
        [expected] if isinstance(expected, str) else list(expected)
    ), page.prose


FREE = [
    "Two of 3 heads and 99 keys",
    "In PyTorch 2.13 and torch 2.12",
    "PyTorch 2.5, 2.6 and 2.13 differ",
    "Versions 2.5 to 2.13, Python 3.11, CUDA 12.8, v1.2",
    "mkdocs 1.6.1 builds it",
    "Measured on 29 November 2026",
    "In `x[:, 0.5]` and ``1e-5``",
    "The formula $0.5 x^{100}$ holds",
    "$$\n0.5 + 100\n$$",
    "See [Shannon (1948)](https://doi.org/10.1002/j.1538-7305.1948.tb01338.x)",
    "See <https://arxiv.org/abs/1706.03762>",
    "In float16, bfloat16 and int64 on an H100 or an RTX4090",
    "A {0} in braces, a 1/2, a 3:1, a 2-by-2 or a 10-key row",
    "## A heading { #width-512 }",
    "The paper, 1 page. { #p100 }",
    '<a id="eq-100"></a>Equation 1',
    "1. one\n2. two",
    "7. seven",
    '<data value="given: the usual width">512</data> wide',
    '**<data value="given: a share">50 %</data>** of them',
    "~~~console\npip install torch==2.13.0\n~~~",
    "In version 2.5, in versions 2.5 and 2.6",
    "PyTorch 2 and 2.13, Python 3.9 or 3.11",
    "PyTorch 2.13 and 2.5",
    "PyTorch 2.5, 2.6.1, 2.13 and 2.14",
    "CUDA 11.8 to 12.8",
    "v1.2 or 1.3",
    "NumPy 2.1 with Matplotlib 3.10, KaTeX 0.16, MkDocs 1.6 and Material 9.5",
    "It asks for cudnn 12.10.55.",
    "The file model.512",
]
FREE += [f"Read on 29 {month} 2026" for month in list(calendar.month_name)[1:]]


@pytest.mark.parametrize("text", FREE)
def test_code_formulas_links_versions_and_small_integers_are_free(
    project: Project, text: str
) -> None:
    assert found(page_of(project, f"# A page\n\n{text}\n")) == []


def test_a_number_is_named_with_its_line(project: Project) -> None:
    text = "# A page\n\nOne line,\nanother of 0.5,\nand 100.\n\n| a |\n|---|\n| b |\n| 7 % |\n"
    assert found(page_of(project, text)) == [(4, "0.5"), (5, "100"), (10, "7 %")]
    text = "---\nsearch: {boost: 2}\ndescription: Of 0.5\n---\n\n# A page of 0.6\n"
    assert found(page_of(project, text)) == [(3, "0.5"), (6, "0.6")]


STATED = {
    '<data value="given: a usual width">512</data>': None,
    '<data value="derived: 2⁻³">0.125</data>': None,
    '<data value="cited: shannon">1948</data>': None,
    '<data value="cited: #shannon">1948</data>': None,
    '<data value="cited:bahdanau-2015">2015</data>': None,
    '<data value="example.width">512</data>': None,
    '<data value="cited: shannon, 1948">1948</data>': "1948 cites shannon, 1948, which is no "
    "anchor of this page: give the source a last line { #shannon, 1948 }",
    '<data value="cited: Turing 1950 ">1950</data>': "1950 cites Turing 1950, which is no anchor "
    "of this page: give the source a last line { #Turing 1950 }",
    '<data value="given:">512</data>': "512 is given, but no reason stands",
    '<data value="derived: ">0.125</data>': "0.125 is derived, but no reason stands",
    '<data value="cited: turing">1950</data>': "1950 cites turing, which is no anchor of this "
    "page: give the source a last line { #turing }",
    '<data value="cited: Shannon, 1948">1948</data>': "1948 cites Shannon, 1948, which is no "
    "anchor of this page: give the source a last line { #Shannon, 1948 }",
}


@pytest.mark.parametrize("element", STATED)
def test_a_stated_number_has_a_reason_or_a_source_on_the_page(
    project: Project, element: str
) -> None:
    sources = '- Shannon. { #shannon }\n- <a id="bahdanau-2015"></a>Bahdanau.\n'
    page = page_of(project, f"One line,\nanother of {element}.\n\n{sources}")
    assert page.problems == []
    message = STATED[element]
    assert list(stated_numbers(page)) == ([Problem(page.file, 2, message)] if message else [])


MODULE = """\
LIMIT = 4
example = 1
example_ = 2


def example_quiet():
    pass


def table_rows():
    pass


def figure_line():
    "A line."


def example_loud():
    pass


def example_hidden():
    pass


def helper_of():
    pass
"""
RAN = Results(
    outputs={"quiet": " \n", "loud": "one\n", "hidden": "two\n", "made": "three\n"},
    tables={"rows": [{"a": "1"}]},
    figures={"line": {}},
)


def of_module(project: Project, *directives: str) -> list[str]:
    """What is left out of a page with these directives, from its line 3 on."""
    project.module("page").write_text(MODULE, encoding="utf-8")
    text = "# A page\n\n" + "".join(f"<!-- {directive} -->\n\n" for directive in directives)
    page = page_of(project, text)
    assert page.problems == []
    return [str(problem) for problem in unshown(project, page, RAN)]


def test_a_page_shows_every_function_of_its_module(project: Project) -> None:
    def missing(line: int, kind: str, name: str) -> str:
        return (
            f"snippets/pages/page.py:{line}: docs/page.md shows no <!-- {kind}: {name} -->: "
            f"show it there or delete {kind}_{name}"
        )

    assert of_module(project) == [
        missing(22, "example", "hidden"),
        missing(18, "example", "loud"),
        missing(1, "example", "made"),  # by no statement of its own
        missing(6, "example", "quiet"),
        missing(14, "figure", "line"),
        missing(10, "table", "rows"),
    ]
    # A directive of another kind shows another function.
    assert of_module(
        project,
        *("example: hidden", "output: hidden", "example: loud", "output: loud", "example: made"),
        *("output: made", "example: quiet", "example: rows", "figure: rows", "table: line"),
    ) == [missing(14, "figure", "line"), missing(10, "table", "rows")]


def test_a_page_shows_what_its_examples_print(project: Project) -> None:
    shown = ("example: quiet", "table: rows", "figure: line", "example: loud", "example: hidden")
    assert of_module(project, *shown, "output: loud", "example: made", "output: made") == [
        "docs/page.md:11: example_hidden prints, but no <!-- output: hidden --> shows it"
    ]


def test_a_lab_shows_all_that_it_runs(project: Project) -> None:
    project.labs.mkdir()
    project.module("labs/rise").write_text("def example_a():\n    pass\n", encoding="utf-8")
    page = Page("labs/rise", "snippets/labs/rise.py", "")
    assert list(unshown(project, page, RAN)) == []


def test_what_belongs_to_no_page_is_named(project: Project) -> None:
    for file in (
        *("docs/b.markdown", "docs/d.mkd", "docs/a.mdown", "docs/c.mkdn", "docs/e.txt"),
        *("docs/page.md", "docs/core/rise.ipynb", "docs/labs/rise.ipynb", "docs/labs/page.md"),
        *("snippets/pages/my_stray.py", "snippets/pages/core/a_page.py", "snippets/pages/page.py"),
        *("snippets/pages/core/__init__.py", "snippets/pages/core/x.txt", "snippets/labs/rise.py"),
        *("snippets/pages/core/in_core.py", "snippets/pages/last.py", "docs/core/in-core.md"),
    ):
        path = project.root / file
        path.parent.mkdir(exist_ok=True)
        path.touch()
    unchecked = "the page is never checked: end its name in .md"
    page = "the module has no page: write docs/{}.md or delete the module"
    assert [str(problem) for problem in strays(project, ["core/in-core", "page", "labs/rise"])] == [
        f"docs/a.mdown:1: {unchecked}",
        f"docs/b.markdown:1: {unchecked}",
        f"docs/c.mkdn:1: {unchecked}",
        "docs/core/rise.ipynb:1: the notebook has no script: write one in snippets/labs or delete "
        "the notebook",
        f"docs/d.mkd:1: {unchecked}",
        "docs/labs/page.md:1: this folder is for notebooks: move the page",
        f"snippets/pages/core/a_page.py:1: {page.format('core/a-page')}",
        f"snippets/pages/last.py:1: {page.format('last')}",
        f"snippets/pages/my_stray.py:1: {page.format('my-stray')}",
    ]
