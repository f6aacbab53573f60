from __future__ import annotations

import pytest

from scripts.page import Page, read_page
from scripts.project import HOME, Project
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


FORM = {
    "> <!-- imports -->": "unknown directive > <!-- imports -->",
    "- <!-- imports -->": "unknown directive - <!-- imports -->",
    "<!-- imports --> 0.5": "unknown directive <!-- imports --> 0.5",
    "<!--\nhidden\n-->": "unknown directive <!--",
    "<!-- source: /etc/passwd -->": "unknown directive <!-- source: /etc/passwd -->",
    "<div>\n<!-- hidden -->\n</div>": "unknown directive <!-- hidden -->",
    "Text <!-- hidden --> on": "<!-- hidden --> stands in a line of text",
    "Text <!-- hidden\n\nmore\n\n-->": "a comment is not closed",
    "<div>\n```text\n0.5\n```\n</div>": "a fence inside HTML: leave a blank line above it",
    "<details markdown>\n~~~text\n5\n~~~\n</details>": "a fence inside HTML",
    "````python\nx\n````": "nothing fills the fence ````python",
    "<!-- imports -->\n````python\nx\n````": "the block of this imports opens with ````python",
    "<!-- imports -->\n ```python\nx\n```": "the block of this imports opens with ```python",
    "<!-- imports -->\n~~~python\nx\n~~~": "the block of this imports opens with ~~~python",
    "<!-- output: a -->\n~~~\nx\n~~~": "the block of this output opens with ~~~: it should",
    "~~~python\nx\n~~~": "nothing fills the fence ~~~python",
    "- a list\n\n    ```python\n    x\n    ```": "nothing fills the fence ```python",
    "> ```python\n> x\n> ```": "the fence > ```python is part of a list or a quotation",
    "```console\nls\n```": "nothing fills the fence ```console",
    "~~~console\nls": "the fence ~~~console is not closed: end it with ~~~",
    "\tx = 1": "an indented block is code that nothing runs",
    "!!! note\n\n    x\n\n        y": "an indented block is code that nothing runs",
    "<!-- figure: a -->\n![a](a.svg)\nPeak: 7": "leave a blank line under the block of this figure",
    "<!-- table: a -->\nText": "leave a blank line under the block of this table",
    "a\x00b": "the character U+0000 cannot be seen: remove it",
    "a\u2028b": "the character U+2028 cannot be seen: remove it",
    "0\u00ad.5": "the character U+00AD cannot be seen: remove it",
    "\u202e5.0": "the character U+202E cannot be seen: remove it",
    "a\rb": "the character U+000D cannot be seen: remove it",
}


@pytest.mark.parametrize("text", FORM)
def test_what_a_reader_would_see_otherwise_than_the_checker_is_refused(
    project: Project, text: str
) -> None:
    messages = [message for _, message in told(page_of(project, f"{text}\n"))]
    assert any(message.startswith(FORM[text]) for message in messages), messages


def test_what_is_not_utf8_is_named_by_line_and_byte(project: Project) -> None:
    assert told(page_of(project, b"one\ntwo\nthr\xe9e\n")) == [
        (3, "the page is not UTF-8 (byte 0xe9 cannot be read): save it as UTF-8")
    ]


def test_an_empty_page_is_a_page(project: Project) -> None:
    page = page_of(project, "")
    assert (page.problems, page.directives, page.bound) == ([], [], [])
