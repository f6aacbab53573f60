from __future__ import annotations

import pytest

from scripts.page import Directive, Page, read_page, take_apart
from scripts.project import HOME, Project
from scripts.prose import UNSEEN, Bound
from tests.spoil import page_of


def told(page: Page) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in page.problems]


def test_directives_carry_their_blocks_and_numbers_their_places() -> None:
    page = read_page(Project(HOME / "tests" / "small_site"), "core/tiny")
    assert page.problems == []
    blocks = {str(d): (d.line, page.text[d.start : d.end]) for d in page.directives}
    assert blocks["<!-- imports -->"] == (7, "```python\nimport torch\n```\n")
    line, block = blocks["<!-- example: doubled -->"]
    assert line == 20
    assert block.startswith("<!--pytest-codeblocks:cont-->\n```python\nx = ")
    assert blocks["<!-- output: doubled -->"] == (28, "~~~text\ntwice 0.333 is 0.667\n~~~\n")
    assert blocks["<!-- table: doubles -->"][1].count("\n") == 4
    assert blocks["<!-- figure: line -->"][1].count("![") == 2
    [bound] = page.bound
    assert (bound.key, bound.printed, bound.line) == ("doubled.third", "0.67", 3)
    assert page.text[bound.start : bound.end] == "0.67"
    assert page.counts() == {"directives": 6, "python blocks": 3, "numbers": 1}


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("start", ["\N{BYTE ORDER MARK}", ""])
def test_line_ends_and_byte_order_marks_make_no_difference(
    project: Project, start: str, end: str
) -> None:
    small = Project(HOME / "tests" / "small_site")
    text = small.markdown("core/tiny").read_text(encoding="utf-8")
    expected = read_page(small, "core/tiny")
    page = page_of(project, start + text.replace("\n", end))
    assert (page.text, page.directives, page.bound) == (text, expected.directives, expected.bound)
    assert page.problems == []


def test_a_block_that_is_not_there_is_empty(project: Project) -> None:
    kinds = ("imports", "source: a.b", "example: c", "output: d", "table: e", "figure: f")
    page = page_of(project, "\n".join(f"<!-- {kind} -->\n" for kind in kinds))
    assert page.problems == []
    assert [(str(d), d.end - d.start) for d in page.directives] == [
        (f"<!-- {kind} -->", 0) for kind in kinds
    ]
    page = page_of(project, "<!-- table: e -->")
    assert [(d.start, d.end) for d in page.directives] == [(len(page.text), len(page.text))]


# What is wrong, where it is not in the first line with the number of the line.
FORM: dict[str, str | list[tuple[int, str]]] = {
    "> <!-- imports -->": "unknown directive > <!-- imports -->",
    "- <!-- imports -->": "unknown directive - <!-- imports -->",
    "<!-- imports --> 0.5": "unknown directive <!-- imports --> 0.5",
    "<!--\nhidden\n-->": "unknown directive <!--",
    "<!-- source: /etc/passwd -->": "unknown directive <!-- source: /etc/passwd -->",
    "<div>\n<!-- hidden -->\n</div>": [
        (2, "unknown directive <!-- hidden -->: expected one of "),
        (2, "<!-- hidden --> stands in a line of text: give it a line of its own"),
    ],
    "Text <!-- hidden --> on": "<!-- hidden --> stands in a line of text",
    "Text <!-- hidden\n\nmore\n\n-->": "a comment is not closed",
    "<div>\n```text\n0.5\n```\n</div>": [
        (2, "a fence inside HTML: leave a blank line above it"),
        (4, "a fence inside HTML: leave a blank line above it"),
    ],
    "<details markdown>\n  ~~~text\n5\n~~~\n</details>": [
        (2, "a fence inside HTML: leave a blank line above it"),
        (4, "a fence inside HTML: leave a blank line above it"),
    ],
    "````python\nx\n````": "nothing fills the fence ````python",
    "<!-- imports -->\n````python\nx\n````": [
        (2, "the block of this imports opens with ````python")
    ],
    "<!-- imports -->\n ```python\nx\n```": [(2, "the block of this imports opens with ```python")],
    "<!-- imports -->\n~~~python\nx\n~~~": [(2, "the block of this imports opens with ~~~python")],
    "<!-- output: a -->\n~~~\nx\n~~~": [(2, "the block of this output opens with ~~~: it should")],
    "~~~python\nx\n~~~": "nothing fills the fence ~~~python",
    "- a list\n\n    ```python\n    x\n    ```": [(3, "nothing fills the fence ```python")],
    "> ```python\n> x\n> ```": "the fence > ```python is part of a list or a quotation",
    "```console\nls\n```": "nothing fills the fence ```console",
    "~~~console\nls": "the fence ~~~console is not closed: end it with ~~~",
    "\tx = 1": "an indented block is code that nothing runs",
    "!!! note\n\n    x\n\n        y": [(3, "an indented block is code that nothing runs")],
    "<!-- figure: a -->\n![a](a.svg)\nPeak: 7": [
        (3, "leave a blank line under the block of this figure")
    ],
    "<!-- table: a -->\nText": [(2, "leave a blank line under the block of this table")],
    "a\x00b": "the character U+0000 cannot be seen: remove it",
    "a\u2028b": "the character U+2028 cannot be seen: remove it",
    "0\u00ad.5": "the character U+00AD cannot be seen: remove it",
    "\u202e5.0": "the character U+202E cannot be seen: remove it",
    "~~~": "the fence ~~~ is not closed: end it with ~~~",
    "<!-- imports --> ": [],
    "<!-- table -->": "the directive <!-- table --> should read <!-- table: name -->",
    "<!-- imports: a -->": "the directive <!-- imports: a --> should read <!-- imports -->",
    "<!-- table: a/b -->": "unknown directive <!-- table: a/b -->: expected one of ",
    "<!--pytest-codeblocks:cont-->": "<!--pytest-codeblocks:cont--> is not under a directive: "
    "remove it",
    "> ```python  \n> x\n> ```": "the fence > ```python is part of a list or a quotation: take it",
    "<!-- imports -->\n~~~python  \nx\n~~~": [
        (2, "the block of this imports opens with ~~~python: it should open with ```python"),
    ],
    "```text  \nx\n```": "nothing fills the fence ```text: write a directive on the line above it "
    "(shell lines go in a ~~~console fence)",
    "a\rb": "the character U+000D cannot be seen: remove it",
}


@pytest.mark.parametrize("text", FORM)
def test_what_a_reader_would_see_otherwise_than_the_checker_is_refused(
    project: Project, text: str
) -> None:
    expected = FORM[text]
    wrong = [(1, expected)] if isinstance(expected, str) else expected
    page = page_of(project, f"One\ntwo.\n\n{text}\n")
    assert len(told(page)) == len(wrong), told(page)
    for (line, message), (number, begins) in zip(told(page), wrong, strict=True):
        assert (line, message[: len(begins)]) == (3 + number, begins)


def test_what_is_not_utf8_is_named_by_line_and_byte(project: Project) -> None:
    assert told(page_of(project, b"one\ntwo\nthr\xe9e\n")) == [
        (3, "the page is not UTF-8 (byte 0xe9 cannot be read): save it as UTF-8")
    ]


def test_an_empty_page_is_a_page(project: Project) -> None:
    page = page_of(project, "")
    assert (page.problems, page.directives, page.bound) == ([], [], [])


SOUND = {  # the directives, and how many lines their blocks have
    "<!--imports-->\n```python\n```": [("imports", "", 2)],
    "<!--  source:a.b  -->  \n```python\nx\n```  \n": [("source", "a.b", 3)],
    "<!-- example:  a -->\n<!--pytest-codeblocks:cont-->  \n```python  \nx\n```": [
        ("example", "a", 4)
    ],
    "<!-- output: a -->\n~~~text\n<!-- hidden -->\n~~~": [("output", "a", 3)],
    "<!-- planted: core/page/number -->\n~~~text\nx\n~~~": [("planted", "core/page/number", 3)],
    "<!-- numbers: core/page -->\n| 0.5 |": [("numbers", "core/page", 1)],
    "<!-- tagged: write a.b c-d/e -->\n- one\n- two\n\n- three": [("tagged", "write a.b c-d/e", 2)],
    "<!-- functions: a -->\n- one\n  two\n\nText": [("functions", "a", 2)],
    "<!-- modules: pages/core -->\n| a |\n|---|": [("modules", "pages/core", 2)],
    "<!-- module: a -->\n| a |\n  ": [("module", "a", 1)],
    "<!-- table: a -->\n| 0.5 |\n| 7 % |\n\nText": [("table", "a", 2)],
    "<!-- figure: a -->\n![a](a)\n![b](b)": [("figure", "a", 2)],
    "<!-- file: a -->\n<a b>\n": [("file", "a", 1)],
}


@pytest.mark.parametrize("text", SOUND)
def test_a_directive_takes_the_block_under_it(project: Project, text: str) -> None:
    page = page_of(project, f"One\ntwo.\n\n{text}\n")
    assert told(page) == []
    assert [(d.kind, d.name, page.text.count("\n", d.start, d.end)) for d in page.directives] == (
        SOUND[text]
    )
    [directive] = page.directives
    assert directive.line == 4
    assert page.line_at(directive.start) == 5
    assert page.text[directive.start - 1] == "\n"


def test_every_directive_is_offered_where_none_is_known(project: Project) -> None:
    [(_, message)] = told(page_of(project, "<!-- hidden -->\n"))
    assert message == (
        "unknown directive <!-- hidden -->: expected one of <!-- imports -->, "
        "<!-- source: name -->, <!-- example: name -->, <!-- output: name -->, "
        "<!-- planted: name -->, "
        "<!-- table: name -->, <!-- figure: name -->, <!-- file: name -->, <!-- numbers: name -->, "
        "<!-- tagged: name -->, <!-- module: name -->, <!-- functions: name -->, "
        "<!-- modules: name -->"
    )
    page = page_of(project, "<!-- hidden -->\n\n<!-- table -->\n\n<!-- table: a -->\n")
    assert [line for line, _ in told(page)] == [1, 3]
    assert [str(directive) for directive in page.directives] == ["<!-- table: a -->"]


PROSE = {
    "\nOne\ntwo.\n\n\nThree.\n": [(2, "One\ntwo."), (6, "Three.")],
    "---\nsearch: {boost: 0.2}\ntitle: To search: 0.5\n---\nA.\n": [
        (2, "\ntitle: To search: 0.5"),
        (5, "A."),
    ],
    "1. one\n2. two\n\nThen:\n\n7. seven\n- dash\n": [
        *((1, "one"), (2, "two"), (4, "Then:")),
        *((6, "7"), (6, "seven"), (7, "dash")),
    ],
    "One:\n\n~~~console\n$ x\n0.5\n~~~\n": [(1, "One:"), (4, "$ x\n0.5\n")],
    "~~~~console\nx\n~~~~\n": [(2, "x\n")],
    "Of 7\n<!-- imports -->\n```python\nx\n```\nand 8.": [(1, "Of 7"), (6, "and 8.")],
    "One[^1].\n\n[^1]: Of it.\n\nEnd.\n": [(1, "One."), (3, "Of it."), (5, "End.")],
    "One[^1].\n\n[^2]: Of none.\n": [(1, "One[^1]."), (3, "Of none.")],
    "A ^[note of 7].\n": [(1, "A ^[note of 7].")],
    "From $5 to 7 and $6, $ x $\n": [(1, "From $5 to 7 and $6, $ x $")],
    "Of 2$x$3.\n": [(1, "Of 2$x$3.")],
    "A $x$.\n": [(1, f"A {UNSEEN}.")],
    "| a | 7 |\n|---|---|\n| b | 8 |\n": [(1, "a"), (1, "7"), (3, "b"), (3, "8")],
    "One.\n\n<p>\nOf 7\n</p>\n\nTwo.\n": [(1, "One."), (3, " \nOf 7\n \n"), (7, "Two.")],
    "> Of 7\n\n# Title\n\n---\n": [(1, "Of 7"), (3, "Title")],
}


@pytest.mark.parametrize("text", PROSE)
def test_the_prose_of_a_page_is_read_in_its_order_with_its_lines(
    project: Project, text: str
) -> None:
    page = page_of(project, text)
    assert told(page) == []
    assert page.prose == PROSE[text]


def test_html_is_read_from_its_own_lines(project: Project) -> None:
    text = '# One\n\n<div>\n<b id="a">Of <data value="a.b">0.5</data></b>\n</div>\n\nTwo. { #b }\n'
    page = page_of(project, text)
    assert told(page) == []
    [bound] = page.bound
    assert (bound.line, page.text[bound.start : bound.end]) == (4, "0.5")
    assert page.anchors == {"a", "b"}


def test_a_fence_that_is_not_closed_is_told_alone(project: Project) -> None:
    page = page_of(project, "<!-- hidden -->\n\n~~~console\nls <data>\n")
    assert told(page) == [(3, "the fence ~~~console is not closed: end it with ~~~")]
    assert told(page_of(project, "~~~console\nls\n~~~  \n")) == []


COUNTED = """\
<!-- imports -->
  <!-- table: a -->
<!-- hidden -->
<!-- imports --> x
x <!-- imports -->
```python
 ```python
```python x
x ```python
```python3
<data value="a.b">1</data> and `<data value="c.d">`, <data>
"""


def test_what_a_page_holds_is_counted_on_its_bare_text() -> None:
    spaced = COUNTED.replace("\n", "  \n", 5)
    assert Page("page", "docs/page.md", spaced).counts() == {
        "directives": 2,
        "python blocks": 2,
        "numbers": 2,
    }


def test_a_page_knows_its_lines_and_what_it_needs_of_the_others() -> None:
    text = "\none\n\ntwo"
    page = Page("page", "docs/page.md", text)
    assert [page.line_at(offset) for offset in range(len(text) + 1)] == [
        1,
        2,
        2,
        2,
        2,
        3,
        4,
        4,
        4,
        4,
    ]
    assert (page.lists_numbers(), page.counts_site()) == (False, False)
    page.directives = [Directive(kind, "a", 1, 0, 0) for kind in ("numbers", "table")]
    assert (page.lists_numbers(), page.counts_site()) == (True, False)
    page = Page("page", "docs/page.md", text)
    page.bound = [Bound(key, "1", 1, 0, 0) for key in ("a.site:", "site:pages")]
    assert (page.lists_numbers(), page.counts_site()) == (False, True)
    page.bound.pop()
    page.directives = [Directive("table", "numbers", 1, 0, 0)]
    assert (page.lists_numbers(), page.counts_site()) == (False, False)


def test_a_page_has_its_name_and_its_file(project: Project) -> None:
    for raw in ("# A page\n", b"\n\xff"):
        page = page_of(project, raw)
        assert (page.name, page.file) == ("page", "docs/page.md")
    assert page.text == ""
    assert [line for line, _ in told(page)] == [2]


def test_a_lab_has_no_directives() -> None:
    page = take_apart("labs/rise", "snippets/labs/rise.py", "# A\n\n<!-- table: a -->\n")
    assert told(page) == [(3, "<!-- table: a --> stands in a lab, which has no directives")]
