"""Gives every block that a directive fills an address, such as ``#example-saturation``."""

from __future__ import annotations

import re

from lxml import etree
from lxml.html import HtmlComment

from scripts.finish.built import Built, Html
from scripts.page import COMMENT, KINDS
from scripts.project import Problem, Project, is_lab


def block_id(kind: str, name: str) -> str:
    """The id, in its page's HTML, of the block under the directive.

    A dot in it would be a class to the theme's copy button, which selects the block by its id.
    """
    return re.sub(r"[./]", "-", f"{kind}-{name}") if name else kind


def directives_of(project: Project, name: str) -> list[tuple[int, str, str]]:
    """Line, kind and name of each directive in the page's Markdown; a lab has none."""
    if is_lab(name):
        return []
    lines = project.markdown(name).read_text(encoding="utf-8").splitlines()
    matches = ((line, COMMENT.fullmatch(text.strip())) for line, text in enumerate(lines, 1))
    return [(line, m[1], m[2] or "") for line, m in matches if m and m[1] in KINDS]


def name_blocks(built: Built) -> list[Problem]:
    """Set the ids; every directive of a page's Markdown must have a block in its HTML."""
    problems = []
    for page in built.pages.values():
        if page.page is None:
            continue
        named = _name(page)
        for line, kind, name in directives_of(built.project, page.page):
            if block_id(kind, name) not in named:
                file = built.project.relative(built.project.markdown(page.page))
                message = f"the block of this {kind} is not in {page.file}, or has an id of its own"
                problems.append(Problem(file, line, message))
    return problems


def _name(page: Html) -> set[str]:
    named = set()
    for comment in page.content.iter(etree.Comment):
        match = COMMENT.fullmatch(f"<!--{comment.text}-->")
        if match is None or match[1] not in KINDS:
            continue
        block = comment.getnext()
        while isinstance(block, HtmlComment):  # the mark that joins blocks
            block = block.getnext()
        if block is not None and block.get("id") is None:
            block.set("id", block_id(match[1], match[2] or ""))
            named.add(block.get("id"))
    return named
