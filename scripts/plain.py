"""Pages as others take them: Markdown that any reader of Markdown understands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from scripts.finish.labs import as_markdown
from scripts.matter import lines_of_matter
from scripts.page import CONTINUED, FENCED, Page, read_page, take_apart
from scripts.project import Project, is_lab

_DETAILS = re.compile(r'^<details markdown="1"(?: data-search-exclude)?>', re.MULTILINE)
_ANCHOR = re.compile(r"^(?P<indent>\s*)\{ #(?P<id>[\w-]+) \}$", re.MULTILINE)
_HEADING = re.compile(r"^(?P<mark>#+ )(?P<text>.+) \{ #(?P<id>[\w-]+) \}$", re.MULTILINE)
_UNSEARCHED = re.compile(r"(?<=\S) \{ data-search-exclude \}$", re.MULTILINE)
_DARK = re.compile(r"^!\[.*\]\(\S+#only-dark\)\n", re.MULTILINE)
_LIGHT = re.compile(r"(?<=\.svg)#only-light(?=\)$)", re.MULTILINE)


@dataclass(frozen=True)
class Plain:
    """A page without what only this project's own tools read: its head, directives, bindings."""

    page: Page

    def markdown(self, start: int = 0, end: int | None = None) -> str:
        """The page's text between two offsets."""
        text, end = self.page.text, len(self.page.text) if end is None else end
        parts, at = [], start
        for first, last, new in self._edits:
            if at <= first and last <= end:
                parts += [text[at:first], new]
                at = last
        return "".join([*parts, text[at:end]])

    @cached_property
    def _edits(self) -> list[tuple[int, int, str]]:
        text = self.page.text
        lines = text.split("\n")
        head = sum(len(line) + 1 for line in lines[: lines_of_matter(text)])
        edits = [(0, head + text[head:].startswith("\n"), "")] if head else []
        for bound in self.page.bound:
            edits.append((text.rindex("<data", 0, bound.start), bound.start, ""))
            edits.append((bound.end, text.index("</data>", bound.end) + len("</data>"), ""))
        for directive in self.page.directives:
            start = directive.start
            edits.append((text.rindex("<!--", 0, start), start, ""))
            if text.startswith(CONTINUED, start):
                edits.append((start, start + len(CONTINUED) + 1, ""))
        code = [(d.start, d.end) for d in self.page.directives if d.kind in FENCED]
        for pattern, new in (
            (_DETAILS, "<details>"),
            (_ANCHOR, r'\g<indent><a id="\g<id>"></a>'),
            (_HEADING, r'\g<mark><a id="\g<id>"></a>\g<text>'),
            (_UNSEARCHED, ""),
            (_DARK, ""),
            (_LIGHT, ""),
        ):
            for match in pattern.finditer(text):
                if not any(first <= match.start() < last for first, last in code):
                    edits.append((*match.span(), match.expand(new)))
        return sorted(edits)


def read_plain(project: Project, name: str) -> Plain:
    """Read a page of ``docs/``, or a lab with its outputs."""
    if is_lab(name):
        return Plain(take_apart(name, f"{name}.md", as_markdown(project, name)))
    return Plain(read_page(project, name))
