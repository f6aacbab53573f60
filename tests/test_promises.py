"""Each promise of the design, broken on purpose in a copy of a small site."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
from filelock import FileLock

from scripts import build, compare
from scripts.fill import fill, is_stated
from scripts.listing import list_numbers
from scripts.page import Page, read_page
from scripts.project import HOME, Problem, Project
from scripts.run import Results, Settings, run_pages
from tests.spoil import (
    NUMBERS,
    NUMBERS_MODULE,
    TINY,
    TINY_MODULE,
    alter,
    problems,
    said,
    tree,
)

FIGURE = "docs/assets/figures/core/tiny/line-light.svg"
DOUBLED = "<!-- example: doubled -->\n<!--pytest-codeblocks:cont-->\n"


@pytest.fixture(autouse=True)
def _without_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.site.build_site", lambda _: [])


@pytest.fixture(scope="module")
def results() -> dict[str, Results]:
    small = Project(HOME / "tests" / "small_site")
    return dict(run_pages(small, ["core/tiny", "core/many-numbers"], Settings()))


def test_a_sound_site_passes(small_site: Project) -> None:
    before = tree(small_site)
    assert said(small_site, "--check") == (
        0,
        [
            "checked 4 pages: 5 code blocks, 2 outputs, 2 tables, 1 figures, 12 numbers; "
            "2 ran, 0 were fresh"
        ],
    )
    assert said(small_site)[0] == 0
    assert tree(small_site) == before


# Promise 1: what is published is what a fresh run gives.

CHANGED = {
    "a number": (
        "docs/index.md",
        ">0.67<",
        ">0.68<",
        "docs/index.md:4: printed 0.68, measured 0.67 (0.6666666667) (core/tiny:doubled.third)",
    ),
    "a neighbour in the last place": (
        NUMBERS,
        "1.94 ×",
        "1.95 ×",
        f"{NUMBERS}:5: printed 1.95 × 10⁻²², measured 1.94 × 10⁻²² (core/many-numbers:kinds.small)",
    ),
    "a sign": (
        NUMBERS,
        "−1.50",
        "1.50",
        f"{NUMBERS}:5: printed 1.50, measured −1.50 (-1.4996) (core/many-numbers:kinds.below)",
    ),
    "a number to nonsense": (
        TINY,
        ">0.67<",
        ">two thirds<",
        f"{TINY}:3: printed 'two thirds' is not a number: expected digits such as 0.998, −1.5, "
        "38,000, 94 %, 1.9e-22 or 1.9 × 10⁻²² (write 0.000 to have three places filled in); "
        "measured 0.6666666667 (core/tiny:doubled.third)",
    ),
    "a measured word": (
        NUMBERS,
        ">ValueError<",
        ">TypeError<",
        f"{NUMBERS}:9: printed TypeError, measured ValueError (core/many-numbers:kinds.refusal)",
    ),
    "a measured word to a number": (
        NUMBERS,
        ">ValueError<",
        ">0.5<",
        f"{NUMBERS}:9: printed 0.5, measured ValueError (core/many-numbers:kinds.refusal)",
    ),
    "an output": (
        TINY,
        "is 0.667",
        "is 0.666",
        f"{TINY}:30: printed 'twice 0.333 is 0.666', measured 'twice 0.333 is 0.667' "
        "(<!-- output: doubled -->)",
    ),
    "a line too many in an output": (
        TINY,
        "is 0.667\n",
        "is 0.667\nand so on\n",
        f"{TINY}:31: printed 'and so on', measured nothing (<!-- output: doubled -->)",
    ),
    "a line too few in a code block": (
        TINY,
        "y = double(x)\n",
        "",
        f"{TINY}:24: printed nothing, measured 'y = double(x)' (<!-- example: doubled -->)",
    ),
    "a cell": (
        TINY,
        "| two |         4 |",
        "| two |         5 |",
        f"{TINY}:37: printed '| two |         5 |', measured '| two |         4 |' "
        "(<!-- table: doubles -->)",
    ),
    "a heading of a table": (
        TINY,
        "|   twice x |\n",
        "|   twice y |\n",
        f"{TINY}:34: printed '| x   |   twice y |', measured '| x   |   twice x |' "
        "(<!-- table: doubles -->)",
    ),
    "a source": (
        TINY,
        "return 2 * x",
        "return 3 * x",
        f"{TINY}:17: printed '    return 3 * x', measured '    return 2 * x' "
        "(<!-- source: tiny.double -->)",
    ),
    "an import": (
        TINY,
        "\nimport torch\n",
        "\nimport math\n",
        f"{TINY}:9: printed 'import math', measured 'import torch' (<!-- imports -->)",
    ),
    "an example": (
        TINY,
        "1 / 3",
        "1 / 4",
        f"{TINY}:23: printed 'x = torch.tensor(1 / 4, dtype=torch.float64)', "
        "measured 'x = torch.tensor(1 / 3, dtype=torch.float64)' (<!-- example: doubled -->)",
    ),
    "the mark that joins blocks": (
        TINY,
        DOUBLED,
        "<!-- example: doubled -->\n",
        f"{TINY}:21: printed nothing, measured '<!--pytest-codeblocks:cont-->' "
        "(<!-- example: doubled -->)",
    ),
    "an alternative text": (
        TINY,
        "rises from zero.](../assets/figures/core/tiny/line-dark",
        "falls from zero.](../assets/figures/core/tiny/line-dark",
        f"{TINY}:41: printed '![A straight line that falls from zero.]"
        "(../assets/figures/core/tiny/line-dark.svg#only-dark)', measured "
        "'![A straight line that rises from zero.]"
        "(../assets/figures/core/tiny/line-dark.svg#only-dark)' (<!-- figure: line -->)",
    ),
    "what the module gives": (
        TINY_MODULE,
        '"twice x": 4',
        '"twice x": 40',
        f"{TINY}:37: printed '| two |         4 |', measured '| two |        40 |' "
        "(<!-- table: doubles -->)",
    ),
    "a drawing": (
        TINY_MODULE,
        "[0, 2]",
        "[0, -2]",
        f"{TINY}:39: line ",
    ),
}


@pytest.mark.parametrize("fault", CHANGED)
def test_promise_1_a_change_of_the_page_is_named(small_site: Project, fault: str) -> None:
    file, old, new, message = CHANGED[fault]
    alter(small_site, file, old, new)
    before = tree(small_site)
    found = problems(small_site, "--check")
    if message.endswith(" "):
        assert all(line.startswith(message) for line in found), found
    else:
        assert found == [message]
    assert tree(small_site) == before


def test_promise_1_a_change_of_a_drawn_figure_is_named(small_site: Project) -> None:
    alter(small_site, FIGURE, ' id="figure_1"', ' id="figure_2"')
    [found] = problems(small_site, "--check")
    assert found == (
        f"{TINY}:39: line 16 of {FIGURE}: "
        """printed ' <g id="figure_2">', measured ' <g id="figure_1">'"""
    )
    (small_site.root / FIGURE).unlink()
    assert problems(small_site, "--check") == [
        f"{TINY}:39: {FIGURE} is missing: run scripts/build.py"
    ]


def test_promise_1_a_figure_that_no_page_shows_is_named_and_then_deleted(
    small_site: Project,
) -> None:
    gone = "figures/core/tiny/gone-light.svg"
    stray = small_site.docs / "assets" / gone
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("gone\n", encoding="utf-8")
    assert problems(small_site, "--check") == [
        f"docs/assets/{gone}:1: no page shows this file: delete it"
    ]
    assert said(small_site)[0] == 0
    assert not stray.exists()


def digits(text: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """Each digit's place, with each other digit."""
    for at in range(start, end):
        if text[at].isdigit():
            other = "⁰¹²³⁴⁵⁶⁷⁸⁹" if text[at] in "⁰¹²³⁴⁵⁶⁷⁸⁹" else "0123456789"
            yield from ((at, digit) for digit in other if digit != text[at])


def faults_of(project: Project, page: Page, results: dict[str, Results]) -> list[Problem]:
    filled = fill(project, page, results)
    if page.name == "numbers":
        others = [read_page(project, name) for name in project.pages() if name != "numbers"]
        found = [fill(project, other, results) for other in others]
        filled.problems += list_numbers(project, [*found, filled], results)
    return [*page.problems, *filled.problems, *compare.differences(project, filled, 0)]


def test_promise_1_no_digit_of_a_page_can_be_altered(
    small_site: Project, results: dict[str, Results]
) -> None:
    altered = 0
    for name in small_site.pages():
        page = read_page(small_site, name)
        assert faults_of(small_site, page, results) == []
        spans = [(directive.start, directive.end) for directive in page.directives]
        spans += [(bound.start, bound.end) for bound in page.bound if not is_stated(bound.key)]
        text = page.text
        for start, end in spans:
            for at, digit in digits(text, start, end):
                changed = text[:at] + digit + text[at + 1 :]
                small_site.markdown(name).write_text(changed, encoding="utf-8")
                found = faults_of(small_site, read_page(small_site, name), results)
                line = changed.count("\n", 0, at) + 1
                assert [(problem.file, problem.line) for problem in found] == [(page.file, line)]
                printed, _, measured = found[0].message.partition("measured")
                word = re.findall(r"[^\s<>|]+", changed[start : at + 1])[-1]
                assert word in printed, (printed, word)
                assert measured, found
                altered += 1
        small_site.markdown(name).write_text(text, encoding="utf-8")
    assert altered > 9 * 80


def test_promise_1_no_digit_of_a_figure_can_be_altered(
    small_site: Project, results: dict[str, Results]
) -> None:
    filled = fill(small_site, read_page(small_site, "core/tiny"), results)
    figures = dict(filled.files)
    filled.blocks.clear()
    altered = 0
    for path in figures:
        filled.files = {path: figures[path]}
        text = path.read_text(encoding="utf-8")
        for at in range(len(text)):
            if text[at].isdigit():
                changed = text[:at] + str(9 - int(text[at])) + text[at + 1 :]
                path.write_text(changed, encoding="utf-8")
                [found] = compare.differences(small_site, filled, 0)
                line = text.count("\n", 0, at)
                old, new = (each.split("\n")[line] for each in (changed, text))
                place = f"line {line + 1} of {small_site.relative(path)}"
                assert (found.file, found.line) == (TINY, 39)
                assert found.message == f"{place}: printed {old!r}, measured {new!r}"
                altered += 1
        path.write_text(text, encoding="utf-8")
    assert altered > 2 * 140


# Promise 2: a directive names one thing, once, and fills its block.

NAMES_NOTHING = {
    "an unknown directive": (
        TINY,
        "<!-- output: doubled -->",
        "<!-- result: doubled -->",
        [
            f"{TINY}:28: unknown directive <!-- result: doubled -->: expected one of "
            "<!-- imports -->, <!-- source: name -->, <!-- example: name -->, "
            "<!-- output: name -->, <!-- planted: name -->, <!-- table: name -->, "
            "<!-- figure: name -->, "
            "<!-- file: name -->, <!-- numbers: name -->, <!-- tagged: name -->, "
            "<!-- module: name -->, <!-- functions: name -->, <!-- modules: name -->",
            f"{TINY}:29: nothing fills the fence ~~~text: write a directive on the line above it "
            "(shell lines go in a ~~~console fence)",
        ],
    ),
    "a directive without a name": (
        TINY,
        "<!-- output: doubled -->",
        "<!-- output -->",
        [
            f"{TINY}:28: the directive <!-- output --> should read <!-- output: name -->",
            f"{TINY}:29: nothing fills the fence ~~~text: write a directive on the line above it "
            "(shell lines go in a ~~~console fence)",
        ],
    ),
    "imports with a name": (
        TINY,
        "<!-- imports -->",
        "<!-- imports: torch -->",
        [
            f"{TINY}:7: the directive <!-- imports: torch --> should read <!-- imports -->",
            f"{TINY}:8: nothing fills the fence ```python: write a directive on the line above it "
            "(shell lines go in a ~~~console fence)",
        ],
    ),
    "a comment in a line of text": (
        TINY,
        "and the formula",
        "and <!-- output: doubled --> the formula",
        [f"{TINY}:3: <!-- output: doubled --> stands in a line of text: give it a line of its own"],
    ),
    "no such module of a source": (
        TINY,
        "<!-- source: tiny.double -->",
        "<!-- source: tinny.double -->",
        [
            f"{TINY}:7: <!-- imports -->: the code uses double, which this page does not show: "
            "put <!-- source: tiny.double --> above it",
            f"{TINY}:12: <!-- source: tinny.double -->: there is no module snippets/tinny.py: "
            "expected module.name",
        ],
    ),
    "no such name of a source": (
        TINY,
        "<!-- source: tiny.double -->",
        "<!-- source: tiny.treble -->",
        [
            f"{TINY}:7: <!-- imports -->: the code uses double, which this page does not show: "
            "put <!-- source: tiny.double --> above it",
            f"{TINY}:12: <!-- source: tiny.treble -->: snippets/tiny.py defines no treble: "
            "it has double",
        ],
    ),
    "no such example": (
        TINY,
        "<!-- example: doubled -->",
        "<!-- example: trebled -->",
        [
            f"{TINY}:20: <!-- example: trebled -->: {TINY_MODULE} has no function example_trebled",
            f"{TINY_MODULE}:10: {TINY} shows no <!-- example: doubled -->: show it there or "
            "delete example_doubled",
        ],
    ),
    "no such output": (
        TINY,
        "<!-- output: doubled -->",
        "<!-- output: trebled -->",
        [
            f"{TINY}:20: example_doubled prints, but no <!-- output: doubled --> shows it",
            f"{TINY}:28: <!-- output: trebled -->: {TINY_MODULE} has no function example_trebled",
        ],
    ),
    "no such table": (
        TINY,
        "<!-- table: doubles -->",
        "<!-- table: trebles -->",
        [
            f"{TINY}:33: <!-- table: trebles -->: {TINY_MODULE} has no function table_trebles",
            f"{TINY_MODULE}:17: {TINY} shows no <!-- table: doubles -->: show it there or "
            "delete table_doubles",
        ],
    ),
    "no such figure": (
        TINY,
        "<!-- figure: line -->",
        "<!-- figure: curve -->",
        [
            f"{TINY}:39: <!-- figure: curve -->: {TINY_MODULE} has no function figure_curve",
            f"{TINY_MODULE}:21: {TINY} shows no <!-- figure: line -->: show it there or "
            "delete figure_line",
        ],
    ),
    "no such value": (
        TINY,
        "doubled.third",
        "doubled.fourth",
        [f"{TINY}:3: no value doubled.fourth was measured: core/tiny gives doubled.third"],
    ),
    "no such page of a value": (
        "docs/index.md",
        "core/tiny:",
        "core/small:",
        ["docs/index.md:4: there is no page docs/core/small.md"],
    ),
    "a page of a value outside the site": (
        "docs/index.md",
        "core/tiny:",
        "/etc/tiny:",
        ["docs/index.md:4: there is no page docs//etc/tiny.md"],
    ),
    "the same directive twice": (
        TINY,
        "",
        "\n<!-- output: doubled -->\n~~~text\ntwice 0.333 is 0.667\n~~~\n",
        [
            f"{TINY}:43: <!-- output: doubled -->: this page has the same directive above: "
            "remove one"
        ],
    ),
    "a function that the page does not show": (
        TINY_MODULE,
        "",
        "\n\ndef table_more():\n    return [{'n': 1}]\n",
        [
            f"{TINY_MODULE}:29: {TINY} shows no <!-- table: more -->: show it there or "
            "delete table_more"
        ],
    ),
    "a hidden function that the page does not show": (
        TINY_MODULE,
        "",
        "\n\nif True:\n\n    def example_more():\n        x = 1\n",
        [
            f"{TINY_MODULE}:1: {TINY} shows no <!-- example: more -->: show it there or "
            "delete example_more"
        ],
    ),
    "an output that the page does not show": (
        NUMBERS,
        "<!-- output: kinds -->\n~~~text\n1 of 4 is 25%\n~~~\n",
        "",
        [f"{NUMBERS}:16: example_kinds prints, but no <!-- output: kinds --> shows it"],
    ),
    "code that the page does not show": (
        NUMBERS,
        "<!-- source: pages.core.many_numbers.COUNT -->\n```python\nCOUNT = 4\n```\n",
        "<!-- imports -->\n",
        [
            f"{NUMBERS}:11: <!-- imports -->: the code uses COUNT, which this page does not show: "
            "put <!-- source: pages.core.many_numbers.COUNT --> above it"
        ],
    ),
    "imports of nothing": (
        NUMBERS,
        "<!-- source: pages",
        "<!-- imports -->\n\n<!-- source: pages",
        [
            f"{NUMBERS}:11: <!-- imports -->: the code of this page imports nothing: remove this",
        ],
    ),
    "a loose Python block": (
        TINY,
        "",
        "\n```python\nprint(1)\n```\n",
        [
            f"{TINY}:43: nothing fills the fence ```python: write a directive on the line above "
            "it (shell lines go in a ~~~console fence)"
        ],
    ),
    "a block of another language": (
        TINY,
        "",
        "\n```sh\nls\n```\n",
        [
            f"{TINY}:43: nothing fills the fence ```sh: write a directive on the line above it "
            "(shell lines go in a ~~~console fence)"
        ],
    ),
    "an indented block": (
        TINY,
        "",
        "\n    print(1)\n",
        [f"{TINY}:43: an indented block is code that nothing runs: use a directive"],
    ),
    "an output in a Python block": (
        TINY,
        "~~~text\ntwice 0.333 is 0.667\n~~~",
        "```python\ntwice 0.333 is 0.667\n```",
        [f"{TINY}:29: the block of this output opens with ```python: it should open with ~~~text"],
    ),
    "code in another block": (
        TINY,
        "```python\nimport torch",
        "```py\nimport torch",
        [f"{TINY}:8: the block of this imports opens with ```py: it should open with ```python"],
    ),
    "a row below a table": (
        TINY,
        "| two |         4 |\n",
        "| two |         4 |\nsix | 12\n",
        [f"{TINY}:38: leave a blank line under the block of this table"],
    ),
    "a mark that joins nothing": (
        TINY,
        "",
        "\n<!--pytest-codeblocks:cont-->\n",
        [f"{TINY}:43: <!--pytest-codeblocks:cont--> is not under a directive: remove it"],
    ),
    "a mark that skips the tests": (
        TINY,
        "# Doubling\n",
        "<!--pytest-codeblocks:skipfile-->\n\n# Doubling\n",
        [
            f"{TINY}:1: unknown directive <!--pytest-codeblocks:skipfile-->: expected one of "
            "<!-- imports -->, <!-- source: name -->, <!-- example: name -->, "
            "<!-- output: name -->, <!-- planted: name -->, <!-- table: name -->, "
            "<!-- figure: name -->, "
            "<!-- file: name -->, <!-- numbers: name -->, <!-- tagged: name -->, "
            "<!-- module: name -->, <!-- functions: name -->, <!-- modules: name -->"
        ],
    ),
}


@pytest.mark.parametrize("fault", NAMES_NOTHING)
def test_promise_2_a_directive_that_fills_nothing_fails(small_site: Project, fault: str) -> None:
    file, old, new, messages = NAMES_NOTHING[fault]
    alter(small_site, file, old, new)
    before = tree(small_site)
    assert problems(small_site) == messages
    assert tree(small_site) == before
    found = problems(small_site, "--check")
    assert set(messages) <= set(found), found


EMPTY = {
    "code": (TINY, "```python\nimport torch\n```\n", f"{TINY}:7: <!-- imports -->"),
    "an output": (
        TINY,
        "~~~text\ntwice 0.333 is 0.667\n~~~\n",
        f"{TINY}:28: <!-- output: doubled -->",
    ),
    "a table": (
        NUMBERS,
        "|   n |   10 to the n |\n|----:|--------------:|\n|   1 |            10 |\n"
        "|   2 |           100 |\n|   3 |         1,000 |\n|   4 |        10,000 |\n",
        f"{NUMBERS}:27: <!-- table: powers -->",
    ),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_promise_2_an_empty_block_fails_and_a_build_fills_it(
    small_site: Project, kind: str
) -> None:
    file, block, place = EMPTY[kind]
    before = tree(small_site)
    alter(small_site, file, block, "")
    found = problems(small_site, "--check")
    assert found == [f"{place} has no block under it: run scripts/build.py to have it written"]
    assert said(small_site)[0] == 0
    assert tree(small_site) == before


# Promise 3: code that fails fails the build. (Its other half is about the site.)

FAILS = {
    "raises at import": (
        TINY_MODULE,
        "from snippets.tiny import double\n",
        "from snippets.tiny import treble\n",
        f"{TINY_MODULE}:7: the module raised ImportError: cannot import name 'treble' from "
        "'snippets.tiny' ",
    ),
    "prints at import": (
        TINY_MODULE,
        "from snippets.tiny import double\n",
        "from snippets.tiny import double\n\nprint('hello')\n",
        f"{TINY_MODULE}:1: importing the module prints 'hello\\n'",
    ),
    "is no Python": (
        TINY_MODULE,
        "y = double(x)",
        "y = double(x",
        f"{TINY_MODULE}:12: the module raised SyntaxError: '(' was never closed (tiny.py, line 12)",
    ),
    "raises in a function": (
        TINY_MODULE,
        "y = double(x)",
        "y = double(x) / torch.ones(7)[8]",
        f"{TINY_MODULE}:12: example_doubled raised IndexError: index 8 is out of bounds for "
        "dimension 0 with size 7",
    ),
    "raises in a snippet": (
        "snippets/tiny.py",
        "    return 2 * x",
        "    raise ValueError(f'no {x:.2f}')",
        "snippets/tiny.py:8: example_doubled raised ValueError: no 0.33",
    ),
    "warns": (
        TINY_MODULE,
        "y = double(x)",
        "y = double(x); __import__('warnings').warn('beware', stacklevel=1)",
        f"{TINY_MODULE}:12: example_doubled raised UserWarning: beware",
    ),
    "hangs": (
        TINY_MODULE,
        "y = double(x)",
        "y = double(x)\n    while True: pass",
        f"{TINY_MODULE}:10: example_doubled did not end within 8 s",
    ),
    "hangs at import": (
        TINY_MODULE,
        "from snippets.tiny import double\n",
        "from snippets.tiny import double\n\nwhile True: pass\n",
        f"{TINY_MODULE}:1: the module did not end within 8 s",
    ),
    "exits": (
        TINY_MODULE,
        "y = double(x)",
        "raise SystemExit(0)",
        f"{TINY_MODULE}:12: example_doubled called exit(0): a page module must return",
    ),
    "ends its process": (
        TINY_MODULE,
        "y = double(x)",
        "__import__('os')._exit(0)",
        f"{TINY_MODULE}:10: example_doubled ended its process (exit code 0)",
    ),
    "kills its process": (
        TINY_MODULE,
        "figure, axes = plt.subplots()",
        "import os; os.kill(os.getpid(), 9)",
        f"{TINY_MODULE}:21: figure_line ended its process (signal SIGKILL)",
    ),
    "kills its process at import": (
        TINY_MODULE,
        "from snippets.tiny import double\n",
        "import os; os.kill(os.getpid(), 11)\n",
        f"{TINY_MODULE}:1: the module ended its process (signal SIGSEGV)",
    ),
    "prints nothing": (
        TINY_MODULE,
        '    print(f"twice {x:.3f} is {y:.3f}")\n',
        "",
        f"{TINY}:28: <!-- output: doubled -->: example_doubled prints nothing: print, or remove "
        "this",
    ),
    "prints a fence": (
        TINY_MODULE,
        '    print(f"twice {x:.3f} is {y:.3f}")\n',
        '    print("~" * 3)\n',
        f"{TINY}:28: <!-- output: doubled -->: ``` or ~~~ in this block would end it",
    ),
    "returns no dict": (
        TINY_MODULE,
        'return {"third": y.item()}',
        "return y",
        f"{TINY_MODULE}:10: example_doubled returned Tensor: return a dict of values",
    ),
    "returns a tensor as a value": (
        TINY_MODULE,
        'return {"third": y.item()}',
        'return {"third": y}',
        f"{TINY_MODULE}:10: example_doubled's third is a Tensor: return an int, a float (a "
        "tensor's .item()) or a text",
    ),
    "returns None as a value": (
        TINY_MODULE,
        'return {"third": y.item()}',
        'return {"third": (None, 0.1)}',
        f"{TINY_MODULE}:10: example_doubled's third is a NoneType: return an int, a float (a "
        "tensor's .item()) or a text",
    ),
    "returns no rows": (
        TINY_MODULE,
        'return [{"x": "one", "twice x": 2}, {"x": "two", "twice x": 4}]',
        "return []",
        f"{TINY_MODULE}:17: table_doubles should return a list of rows, each a dict of heading "
        "to cell",
    ),
    "returns uneven rows": (
        TINY_MODULE,
        '{"x": "two", "twice x": 4}',
        '{"x": "two", "thrice x": 6}',
        f"{TINY_MODULE}:17: the rows of table_doubles differ in their headings",
    ),
    "draws nothing": (
        TINY_MODULE,
        "    return figure",
        "    return axes",
        f"{TINY_MODULE}:21: figure_line returned Axes: return a Figure",
    ),
    "draws what it does not describe": (
        TINY_MODULE,
        '    """A straight line that rises from zero."""\n',
        "",
        f"{TINY_MODULE}:21: figure_line has no docstring: say there what the picture shows",
    ),
    "gives a value twice": (
        NUMBERS_MODULE,
        "def table_powers():",
        "def table_kinds():\n    return [{'n': 1}], {'share': 1}\n\n\ndef table_powers():",
        f"{NUMBERS_MODULE}:18: the value kinds.share is returned twice: rename one of them",
    ),
}


@pytest.mark.parametrize("fault", FAILS)
def test_promise_3_a_module_that_fails_fails_the_build(small_site: Project, fault: str) -> None:
    file, old, new, message = FAILS[fault]
    alter(small_site, file, old, new)
    before = tree(small_site)
    limit = ("--limit", "8") if "hangs" in fault else ()
    for arguments in ([], ["--check"]):
        found = problems(small_site, *arguments, *limit)
        assert any(line.startswith(message) for line in found), found
        assert message.endswith(" ") or message in found, found
        assert not any("delete" in line for line in found), found
    assert tree(small_site) == before


VALUES = {
    "missing": ("{}", "no value doubled.third was measured: core/tiny gives none"),
    "not a number": (
        '{"third": float("nan")}',
        "core/tiny:doubled.third: the measured value is nan: return a finite number",
    ),
    "infinite": (
        '{"third": -float("inf")}',
        "core/tiny:doubled.third: the measured value is -inf: return a finite number",
    ),
    "a text": (
        '{"third": "0.67"}',
        "core/tiny:doubled.third: the measured value is the text '0.67': return the number, so "
        "that it is rounded",
    ),
    "a bool": (
        '{"third": True}',
        "core/tiny:doubled.third: the measured value is True, no number: "
        "return an int or a float (a tensor's .item())",
    ),
    "a text of many lines": (
        '{"third": "two\\nthirds"}',
        "core/tiny:doubled.third: the measured text 'two\\nthirds' cannot stand in a page: return "
        "words without markup, line breaks or spaces at the ends",
    ),
    "a text with markup": (
        '{"third": "<b>"}',
        "core/tiny:doubled.third: the measured text '<b>' cannot stand in a page: return "
        "words without markup, line breaks or spaces at the ends",
    ),
    "three numbers": (
        '{"third": (1.0, 2.0, 3.0)}',
        "core/tiny:doubled.third: the measured value is [1.0, 2.0, 3.0], no number: "
        "return an int or a float (a tensor's .item())",
    ),
    "with the noise of a coin": (
        '{"third": (y.item(), 0.5)}',
        "core/tiny:doubled.third: the noise 0.5 is not a relative float noise in [0, 0.1)",
    ),
    "noisier than printed": (
        '{"third": (y.item(), 0.05)}',
        "core/tiny:doubled.third: printed 0.67 shows more digits than are stable: the measured "
        "0.6666666667 is known to ±0.03; print fewer",
    ),
    "on an edge": (
        '{"third": 0.665}',
        "core/tiny:doubled.third: printed 0.67 is on the edge of two roundings: the measured "
        "0.665 is known to ±7e-06; print one digit more or fewer",
    ),
}


@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_cannot_be_printed_fails(small_site: Project, value: str) -> None:
    returned, message = VALUES[value]
    alter(small_site, TINY_MODULE, '{"third": y.item()}', returned)
    before = tree(small_site)
    assert f"{TINY}:3: {message}" in problems(small_site)
    assert tree(small_site) == before


# Promise 6: a check that checks nothing fails.


def test_promise_6_a_site_without_anything_to_check_fails(small_site: Project) -> None:
    for name in ("core/tiny", "core/many-numbers"):
        small_site.markdown(name).unlink()
        small_site.module(name).unlink()
    for figure in small_site.figures.rglob("*.svg"):
        figure.unlink()
    small_site.markdown("index").write_text("# Nothing\n", encoding="utf-8")
    small_site.markdown("numbers").unlink()
    assert said(small_site, "--check") == (
        1,
        ["nothing was checked: the pages hold no block and no bound number"],
    )
    assert said(small_site)[0] == 0


def test_promise_6_what_the_reader_of_pages_overlooks_is_counted(
    small_site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(project: Project, name: str) -> Page:
        page = read_page(project, name)
        if name == "core/tiny":
            page.bound.clear()
            page.directives = [d for d in page.directives if d.kind in ("output", "figure")]
        return page

    monkeypatch.setattr("scripts.survey.read_page", blind)
    found = problems(small_site, "--check")
    for message in (
        f"{TINY}:1: 6 directives stand here, 2 were checked",
        f"{TINY}:1: 3 python blocks stand here, 0 were checked",
        f"{TINY}:1: 1 numbers stand here, 0 were checked",
    ):
        assert message in found


# Pages and modules come in pairs; files can be read; one build at a time.


def test_a_page_without_a_module_fails(small_site: Project) -> None:
    small_site.module("core/tiny").unlink()
    before = tree(small_site)
    message = f"docs/core/tiny.md has no module: write {TINY_MODULE}"
    assert problems(small_site) == [
        f"{NUMBERS}:7: {message}",
        f"{TINY}:3: {message}",
        f"docs/index.md:4: {message}",
    ]
    assert tree(small_site) == before


def test_a_module_without_a_page_fails(small_site: Project) -> None:
    small_site.markdown("core/many-numbers").unlink()
    before = tree(small_site)
    assert problems(small_site) == [
        f"{NUMBERS_MODULE}:1: the module has no page: write docs/core/many-numbers.md or delete "
        "the module"
    ]
    assert tree(small_site) == before


def test_a_page_under_a_name_that_only_the_generator_knows_fails(small_site: Project) -> None:
    small_site.markdown("core/tiny").with_suffix(".markdown").write_text("0.5\n", encoding="utf-8")
    assert problems(small_site) == [
        "docs/core/tiny.markdown:1: the page is never checked: end its name in .md"
    ]


UNREADABLE = {
    "a fence that is not closed": (
        b"~~~text\ntwice 0.333 is 0.667\n~~~\n",
        b"~~~text\ntwice 0.333 is 0.667\n",
        f"{TINY}:29: the fence ~~~text is not closed: end it with ~~~",
    ),
    "another encoding": (
        b"A third",
        b"Ein zw\xf6lftel",
        f"{TINY}:3: the page is not UTF-8 (byte 0xf6 cannot be read): save it as UTF-8",
    ),
    "a character that cannot be seen": (
        b"A third",
        "A th\N{ZERO WIDTH SPACE}ird".encode(),
        f"{TINY}:3: the character U+200B cannot be seen: remove it",
    ),
}


@pytest.mark.parametrize("fault", UNREADABLE)
def test_a_page_that_cannot_be_read_fails(small_site: Project, fault: str) -> None:
    old, new, message = UNREADABLE[fault]
    path = small_site.markdown("core/tiny")
    path.write_bytes(path.read_bytes().replace(old, new))
    before = tree(small_site)
    for arguments in ([], ["--check"]):
        assert problems(small_site, *arguments) == [message]
    assert tree(small_site) == before


def test_a_snippet_that_cannot_be_read_fails(small_site: Project) -> None:
    (small_site.root / "snippets" / "odd.py").write_bytes(b"x = '\xf6'\n")
    alter(small_site, TINY, "", "\n<!-- source: odd.x -->\n")
    [found] = problems(small_site)
    assert found.startswith(f"{TINY}:43: <!-- source: odd.x -->: odd.py cannot be read: 'utf-8'")


def test_a_second_build_is_told_about_the_first(small_site: Project) -> None:
    before = tree(small_site)
    small_site.cache.mkdir()
    message = (
        f"another build is at work in {small_site.root} (it holds .cache/build.lock): "
        "wait for it to end, or stop it"
    )
    with FileLock(small_site.cache / "build.lock"):
        assert said(small_site) == (1, [message])
        command = shutil.copytree(HOME / "scripts", small_site.root / "scripts") / "build.py"
        done = subprocess.run(
            [sys.executable, str(command)], capture_output=True, encoding="utf-8", check=False
        )
        shutil.rmtree(command.parent)
        assert (done.returncode, done.stdout.strip(), done.stderr) == (1, message, "")
        assert said(small_site, "--check")[0] == 0  # which writes nothing, and so need not wait
    assert said(small_site)[0] == 0
    assert tree(small_site) == before


def test_a_device_that_is_not_there_is_told(
    small_site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    before = tree(small_site)
    for arguments in (["--check"], []):
        assert said(small_site, *arguments, "--device", "mps") == (
            1,
            ["no mps device is available here: use --device cpu"],
        )
    assert tree(small_site) == before


WRONG_USE = {
    ("docs/core/gone.md",): "there is no page docs/core/gone.md: expected one of "
    "docs/core/many-numbers.md, docs/core/tiny.md, docs/index.md",
    ("--check", "--all"): "--check runs everything afresh and writes nothing: "
    "leave out --serve and --all",
    ("--check", "--serve"): "--check runs everything afresh and writes nothing: "
    "leave out --serve and --all",
    ("--jobs", "0"): "argument --jobs: 0 is not a number of pages: give 1 or more",
    ("--limit", "-1"): "argument --limit: -1 is not a time: give seconds above 0",
    ("--device", "tpu"): "argument --device: invalid choice: 'tpu' ",
}


@pytest.mark.parametrize("arguments", WRONG_USE, ids=" ".join)
def test_wrong_use_is_told(
    small_site: Project, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(small_site)
    with pytest.raises(SystemExit) as stopped:
        build.main(arguments, root=small_site.root)
    assert stopped.value.code == 2
    assert WRONG_USE[arguments] in capsys.readouterr().err
    assert tree(small_site) == before
