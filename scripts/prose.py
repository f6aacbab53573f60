"""The running text of a page: the numbers that are bound in it, and the bare words around them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from markdown_it.token import Token

UNSEEN = "\x00"  # stands for what is no prose: code, a formula, a digit in a link's text
NUMBER = "\x01"  # stands for a bound number
DATA_OPEN = re.compile(r'<data value="([^"]+)">')
_ANCHOR = re.compile(r"\{:?\s*#([\w.:-]+)\s*\}")
_SHOWN = re.compile(
    r"""\b(?:alt|title|label|placeholder|start|value)\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)""",
    re.IGNORECASE,
)
_WITHIN_WORDS = re.compile(
    r"</?(?:a|abbr|b|code|data|del|em|i|ins|kbd|mark|s|small|span|strong|sub|sup|u|var|wbr)\b"
)
# These part the words on their two sides; any other tag may stand for something unseen.
_BETWEEN_WORDS = re.compile(
    r"</?(?:br|details|dd|div|dl|dt|figcaption|figure|h[1-6]|hr|img|li|ol|p|section|summary|table"
    r"|tbody|td|th|thead|tr|ul)\b"
)
_AGAINST = re.compile(
    rf"(?<!{NUMBER})[–/]{NUMBER}|[^\s(\[“„«\"'|±–/]{NUMBER}"
    rf"|{NUMBER}(?:[–/](?!{NUMBER})|[^\s)\]”“»\"'|.,;:!?–/-]|[.,-]\d"
    r"|\s?(?:[%‰‱]|×\s?\d|per\s?cent\b|thousand\b|million\b|billion\b|trillion\b|dozen\b))"
)


@dataclass(frozen=True)
class Bound:
    """A ``<data>`` element in prose; ``start:end`` are offsets of the printed text."""

    key: str
    printed: str
    line: int
    start: int
    end: int


@dataclass
class Prose:
    """What the runs of text on a page hold; ``text`` is the whole page."""

    text: str
    runs: list[tuple[int, str]] = field(default_factory=list)
    bound: list[Bound] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    problems: list[tuple[int, str]] = field(default_factory=list)
    _cursor: int = 0  # up to here, the text is read
    _open: tuple[str, int] | None = None  # the key of an open <data>, and where its text begins

    def read(self, tokens: Iterable[Token], start: int, end: int) -> None:
        """Read the inline tokens of the run of text at ``start:end``."""
        # The cells of a table's row are runs of the same line, one after the other.
        self._cursor = max(self._cursor, start)
        words = ""
        link = False
        for token in tokens:
            if token.type == "html_inline":
                words += self._tag(token.content, end)
            elif token.type in ("link_open", "link_close"):
                link = token.type == "link_open"
                words += _title(token)
            elif token.type in ("softbreak", "hardbreak"):
                words += "\n"
            elif token.type == "image":
                children = token.children or []
                for child in children:
                    if child.type != "text":  # a tag or code in the alternative text
                        self._find(child.content, end)
                words += f" {''.join(child.content for child in children)} {_title(token)}"
            elif token.type == "text" and self._open is None:
                words += re.sub(r"\d", UNSEEN, token.content) if link else token.content
            elif token.type != "text" and token.content:
                self._find(token.content, end)
                words += UNSEEN
        if self._open:
            self._problem(self._open[1], "a <data> element is not closed")
            self._open = None
        self.anchors.update(_ANCHOR.findall(words))
        words = _ANCHOR.sub("", words)
        first = self.text.count("\n", 0, start) + 1
        self.runs.append((first, words))
        for match in _AGAINST.finditer(words):
            message = (
                "something stands against a bound number: a sign, a digit, a power of ten or % "
                "goes inside <data>, and a letter or a tag after a space"
            )
            self.problems.append((first + words.count("\n", 0, match.start()), message))
        if "<!--" in words:
            self._problem(self._cursor, "a comment is not closed")

    def _problem(self, offset: int, message: str) -> None:
        self.problems.append((self.text.count("\n", 0, offset) + 1, message))

    def _find(self, content: str, end: int) -> int:
        """Go to the next place that reads so, and behind it; give where it begins."""
        # The text may break its lines, in a quotation too, and a table's cell escapes its bars.
        words = (re.escape(word).replace(r"\|", r"\\?\|") for word in content.split())
        match = re.compile(r"[\s>]+".join(words)).search(self.text, self._cursor, end)
        assert match, f"{content!r} is a token of the page, but does not stand there"
        self._cursor = match.end()
        return match.start()

    def _tag(self, tag: str, end: int) -> str:
        """Take note of an HTML tag; give what of it is to be read as prose."""
        at = self._find(tag, end)
        self.anchors.update(re.findall(r'\bid="([^"]+)"', tag))
        if tag.startswith("<!--"):
            self._problem(at, f"{tag} stands in a line of text: give it a line of its own")
        elif tag.startswith("<data"):
            self._open_data(tag, at)
            return NUMBER
        elif tag == "</data>" and self._open:
            key, start = self._open
            line = self.text.count("\n", 0, at) + 1
            self.bound.append(Bound(key, self.text[start:at], line, start, at))
            self._open = None
        elif tag == "<sup>":
            return "^"
        shown = "".join(f" {html.unescape(value)} " for value in _SHOWN.findall(tag))
        if _WITHIN_WORDS.match(tag):
            return shown
        return f" {shown}" if _BETWEEN_WORDS.match(tag) else f"{UNSEEN}{shown}"

    def _open_data(self, tag: str, at: int) -> None:
        match = DATA_OPEN.fullmatch(tag)
        if self._open:
            self._problem(at, f"{tag} is inside another <data> element: close that first")
        if match is None:
            form = '<data value="example.name">number</data>'
            self._problem(at, f"{tag} is not of the form {form}")
        self._open = (match[1] if match else "", self._cursor)


def _title(token: Token) -> str:
    return f" {token.attrs['title']} " if "title" in token.attrs else ""
