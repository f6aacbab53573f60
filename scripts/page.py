"""A Markdown page taken apart: directives with their blocks, bound numbers, prose."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from scripts.percent import prose_of
from scripts.project import Problem, Project, is_lab
from scripts.prose import DATA_OPEN, Bound, Prose

PRINTED = ("output", "planted")  # blocks of text; the other fences are Python
FENCED = ("imports", "source", "example", *PRINTED)
LISTS = ("numbers", "tagged", "module", "functions", "modules")  # of what other files hold
KINDS = (*FENCED, "table", "figure", "file", *LISTS)
CONTINUED = "<!--pytest-codeblocks:cont-->"
COMMENT = re.compile(r"<!--\s*([a-z]+)(?::\s*([\w./-]+(?: [\w./-]+)*))?\s*-->")
UNPRINTED = ("Cc", "Cf", "Zl", "Zp")  # Unicode's categories of control and format characters
_SETTING = re.compile(r"^search:.*", re.MULTILINE)  # the theme's, and no prose
TYPED = ("console", "pycon")  # fences of what readers type
FILE = re.compile(r'python title="\w+\.py"')  # a fence of a file that readers save
PYTHON_LINE = re.compile(r"^\s*```python\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Directive:
    """A comment that says what fills the block under it; ``start:end`` are offsets of the block."""

    kind: str
    name: str
    line: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"<!-- {self.kind}{': ' * bool(self.name)}{self.name} -->"


@dataclass
class Page:
    """What a page holds, and what is wrong with its form."""

    name: str
    file: str
    text: str
    directives: list[Directive] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)

    def lists_numbers(self) -> bool:
        """Whether the page lists the numbers of others."""
        return any(directive.kind == "numbers" for directive in self.directives)

    def counts_site(self) -> bool:
        """Whether the page prints how much all pages hold."""
        return any(bound.key.startswith("site:") for bound in self.bound)

    def line_at(self, offset: int) -> int:
        """The number of the line that holds the offset."""
        return self.text.count("\n", 0, offset) + 1

    def problem(self, line: int, message: str) -> None:
        """Note something wrong with the page's form."""
        self.problems.append(Problem(self.file, line, message))

    def counts(self) -> dict[str, int]:
        """Directives, Python blocks and numbers, counted on the bare text, without the parser."""
        comments = (COMMENT.fullmatch(line.strip()) for line in self.text.split("\n"))
        return {
            "directives": sum(match is not None and match[1] in KINDS for match in comments),
            "python blocks": len(PYTHON_LINE.findall(self.text)),
            "numbers": len(DATA_OPEN.findall(self.text)),
        }


def read_page(project: Project, name: str) -> Page:
    """Take the page apart; everything wrong with its form is in ``problems``."""
    path = project.source(name)
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        page = Page(name, project.relative(path), "")
        line = raw.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{raw[error.start]:02x}"
        page.problem(line, f"the page is not UTF-8 ({byte} cannot be read): save it as UTF-8")
        return page
    return take_apart(name, project.relative(path), prose_of(text) if is_lab(name) else text)


def take_apart(name: str, file: str, text: str) -> Page:
    """Take apart a page that reads so, whatever stands in the file."""
    page = Page(name, file, text)
    for offset, character in enumerate(text):
        if character not in "\n\t" and unicodedata.category(character) in UNPRINTED:
            message = f"the character U+{ord(character):04X} cannot be seen: remove it"
            page.problem(page.line_at(offset), message)
    if not page.problems:
        _Reader(page).read()
    if is_lab(name):
        for directive in page.directives:
            page.problem(directive.line, f"{directive} stands in a lab, which has no directives")
    return page


class _Reader:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.lines = page.text.split("\n")
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(min(self.offsets[-1] + len(line) + 1, len(page.text)))
        parser = MarkdownIt("commonmark").enable("table")
        dollarmath_plugin(parser, allow_space=False, allow_digits=False)
        footnote_plugin(parser, inline=False, move_to_end=False)
        front_matter_plugin(parser)
        self.parser = parser
        self.tokens = parser.parse(page.text)
        self.prose = Prose(page.text)

    def read(self) -> None:
        fences = {
            token.map[0]: token for token in self.tokens if token.type == "fence" and token.map
        }
        for token in fences.values():
            self._check_closed(token)
        if self.page.problems:
            return
        filled = self._directives(fences)
        for token in self.tokens:
            if token.map is None or token.map[0] in filled:
                continue
            first, end = token.map
            if token.type == "front_matter":
                self.prose.runs.append((first + 2, _SETTING.sub("", token.content)))
            elif token.type == "fence":
                self._loose_fence(token, first)
            elif token.type == "code_block":
                self.page.problem(
                    first + 1, "an indented block is code that nothing runs: use a directive"
                )
            elif "start" in token.attrs:  # an ordered list that begins with another number than 1
                self.prose.runs.append((first + 1, str(token.attrs["start"])))
            elif token.type == "inline":
                self.prose.read(token.children or [], self.offsets[first], self.offsets[end])
            elif token.type == "html_block" and not token.content.lstrip().startswith("<!--"):
                self._html(token, first, end)
        self.page.bound = self.prose.bound
        self.page.prose = self.prose.runs
        self.page.anchors = self.prose.anchors
        for line, message in self.prose.problems:
            self.page.problem(line, message)

    def _html(self, token: Token, first: int, end: int) -> None:
        for number in range(first, end):
            if self.lines[number].lstrip().startswith(("```", "~~~")):
                self.page.problem(number + 1, "a fence inside HTML: leave a blank line above it")
        inner = self.parser.parseInline(token.content)[0].children or []
        self.prose.read(inner, self.offsets[first], self.offsets[end])

    def _check_closed(self, token: Token) -> None:
        assert token.map
        first, end = token.map
        opening, last = self.lines[first].strip(), self.lines[end - 1].strip()
        if not opening.startswith(token.markup):
            message = f"the fence {opening} is part of a list or a quotation: take it out"
            self.page.problem(first + 1, message)
        elif end - first < 2 or set(last) != set(token.markup):
            message = f"the fence {opening} is not closed: end it with {token.markup}"
            self.page.problem(first + 1, message)

    def _directives(self, fences: dict[int, Token]) -> set[int]:
        """Read every directive; give the lines that their blocks cover."""
        covered: set[int] = set()
        for number in self._comment_lines():
            line = self.lines[number].strip()
            if line == CONTINUED:
                if number not in covered:
                    self.page.problem(number + 1, f"{line} is not under a directive: remove it")
                continue
            match = COMMENT.fullmatch(line)
            kind, name = (match[1], match[2] or "") if match else (line, "")
            if kind not in KINDS or ("/" in name and kind not in (*LISTS, "planted")):
                self.page.problem(
                    number + 1,
                    f"unknown directive {line}: expected one of "
                    + ", ".join(f"<!-- {k}{'' if k == 'imports' else ': name'} -->" for k in KINDS),
                )
                continue
            if (kind == "imports") == bool(name):
                form = "<!-- imports -->" if name else f"<!-- {kind}: name -->"
                self.page.problem(number + 1, f"the directive {line} should read {form}")
                continue
            end = self._block_end(kind, number + 1, fences)
            covered.update(range(number + 1, end))
            self.page.directives.append(
                Directive(kind, name, number + 1, self.offsets[number + 1], self.offsets[end])
            )
        return covered

    def _comment_lines(self) -> Iterator[int]:
        for token in self.tokens:
            if token.type == "html_block" and token.map:
                for number in range(*token.map):
                    if "<!--" in self.lines[number]:
                        yield number

    def _block_end(self, kind: str, start: int, fences: dict[int, Token]) -> int:
        def line(number: int) -> str:
            return self.lines[number] if number < len(self.lines) else ""

        if kind in FENCED:
            opening = start + (line(start).strip() == CONTINUED)
            token = fences.get(opening)
            if token is None or not token.map:
                return start
            expected = "~~~text" if kind in PRINTED else "```python"
            if line(opening).rstrip() != expected:
                self.page.problem(
                    opening + 1,
                    f"the block of this {kind} opens with {line(opening).strip()}: "
                    f"it should open with {expected}",
                )
            return token.map[1]
        opening_of: dict[str, str | tuple[str, ...]]
        opening_of = {"figure": "![", "file": "<a ", "tagged": "- ", "functions": ("- ", "  ")}
        end = start
        while line(end).startswith(opening_of.get(kind, "|")):
            end += 1
        if line(end).strip():
            self.page.problem(end + 1, f"leave a blank line under the block of this {kind}")
        return end

    def _loose_fence(self, token: Token, first: int) -> None:
        if token.markup[0] == "~" and token.info in TYPED:
            self.prose.runs.append((first + 2, token.content))
            return
        if token.markup[0] == "~" and FILE.fullmatch(token.info):
            return
        self.page.problem(
            first + 1,
            f"nothing fills the fence {self.lines[first].strip()}: write a directive on the line "
            "above it (shell lines go in a ~~~console fence)",
        )
