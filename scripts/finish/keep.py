"""Says where lines may break: not in short code, short cells and before the comma after a formula.

They do in messages and in long names, which would push what stands beside them out of view.
"""

from __future__ import annotations

import re

from lxml.html import HtmlElement
from lxml.html.builder import CLASS, SPAN

from scripts.finish.built import Built
from scripts.project import Problem

KEPT, BROKEN, ROOMY = "attn-kept", "attn-broken", "attn-roomy"  # extra.css says how these stand
# Characters. Code and formulas that fit on a phone's line; a formula's are those of its TeX.
CODE = 24
FORMULA = 30
# A cell that is short, one that is short for a column's head, and one of running text.
CELL = 12
HEADING = 8
TEXT = 40
# A line of output that a wide screen holds.
LINE = 88
_CLOSING = re.compile(r"[,.;:!?)\]…’”]+")


def keep_together(built: Built) -> list[Problem]:
    """Mark what is not to break, what is, and the cells whose text needs room."""
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
            for piece in cell.iter("code", "data"):
                if len(piece.text_content()) > CODE:
                    piece.classes.add(BROKEN)
        for output in page.content.find_class("language-text"):
            if any(len(line) > LINE for line in output.text_content().splitlines()):
                output.classes.add(BROKEN)
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
