"""Keeps on one line what reads badly in two: short code, short cells, the comma after a formula."""

from __future__ import annotations

import re

from lxml.html import HtmlElement
from lxml.html.builder import CLASS, SPAN

from scripts.finish.built import Built
from scripts.project import Problem

KEPT, ROOMY = "attn-kept", "attn-roomy"  # extra.css says how these stand
CODE, FORMULA = 24, 30  # characters that fit on a phone's line; a formula's are its TeX
CELL, HEADING, TEXT = (
    14,
    8,
    40,
)  # characters of a cell: short, short for a column's, and running text
_CLOSING = re.compile(r"[,.;:!?)\]…’”]+")


def keep_together(built: Built) -> list[Problem]:
    """Mark what is not to break, and the cells whose text needs room."""
    for page in built.pages.values():
        if page.page is None:  # no text of an author
            continue
        for code in page.content.xpath(".//code[not(ancestor::pre)]"):
            if len(code.text_content()) <= CODE:
                code.classes.add(KEPT)
        for cell in page.content.iter("td", "th"):
            length = len(cell.text_content().strip())
            if length <= (CELL if cell.tag == "td" else HEADING):
                cell.classes.add(KEPT)
            elif length > TEXT:
                cell.classes.add(ROOMY)
        for formula in page.content.xpath(".//span[contains(@class, 'arithmatex')]"):
            _keep_closing(formula)
    return []


def _keep_closing(formula: HtmlElement) -> None:
    """Tie what closes the phrase to the formula: browsers break the line between them."""
    tex = "".join(formula.xpath(".//*[local-name() = 'annotation']/text()"))
    tail = formula.tail or ""
    closing = _CLOSING.match(tail)
    if closing and len(tex) <= FORMULA:
        kept = SPAN(CLASS(KEPT))
        formula.addprevious(kept)
        kept.append(formula)
        formula.tail, kept.tail = closing[0], tail[closing.end() :]
