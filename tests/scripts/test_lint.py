from __future__ import annotations

import re

import pytest

from scripts.lint import stated_numbers, unbound_numbers
from scripts.page import Page
from scripts.project import Project
from tests.spoil import page_of


def found(page: Page) -> list[tuple[int, str]]:
    assert page.problems == []
    pattern = re.compile(r"the number (.+?) is bound to nothing: write <data value=")
    matches = [(problem.line, pattern.match(problem.message)) for problem in unbound_numbers(page)]
    return [(line, match[1]) for line, match in matches if match]


NUMBERS = {
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
    "A range 0.1–0.9": "0.1",
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
}


@pytest.mark.parametrize("text", NUMBERS)
def test_a_number_that_a_reader_sees_is_found(project: Project, text: str) -> None:
    page = page_of(project, f"# A page\n\n{text}\n")
    assert [number for _, number in found(page)][:1] == [NUMBERS[text]], page.prose


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
]


@pytest.mark.parametrize("text", FREE)
def test_code_formulas_links_versions_and_small_integers_are_free(
    project: Project, text: str
) -> None:
    assert found(page_of(project, f"# A page\n\n{text}\n")) == []


def test_a_number_is_named_with_its_line(project: Project) -> None:
    text = "# A page\n\nOne line,\nanother of 0.5,\nand 100.\n\n| a |\n|---|\n| b |\n| 7 % |\n"
    assert found(page_of(project, text)) == [(4, "0.5"), (5, "100"), (10, "7 %")]


STATED = {
    '<data value="given: a usual width">512</data>': None,
    '<data value="derived: 2⁻³">0.125</data>': None,
    '<data value="cited: shannon">1948</data>': None,
    '<data value="cited: #shannon">1948</data>': None,
    '<data value="cited:bahdanau-2015">2015</data>': None,
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
    page = page_of(project, f"It is {element}.\n\n{sources}")
    assert page.problems == []
    problems = [(problem.line, problem.message) for problem in stated_numbers(page)]
    message = STATED[element]
    assert problems == ([(1, message)] if message else [])
