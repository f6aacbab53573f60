"""Gives every block of code the button that copies it.

The theme's script makes such buttons, too, and takes a third of a second of a phone's time for it
before a long page answers. It works those that it finds just as well.
"""

from __future__ import annotations

from lxml.html.builder import BUTTON, CLASS, SPAN

from scripts.finish.built import Built
from scripts.project import Problem

_BLOCKS = "//div[contains(@class, 'highlight')][not(contains(@class, 'language-text'))][pre/code]"


def offer_copies(built: Built) -> list[Problem]:
    """Put a button into every block but those that a program printed."""
    for page in built.pages.values():
        if not page.themed:
            continue
        for number, block in enumerate(page.root.xpath(_BLOCKS), 1):
            if block.get("id") is None:
                block.set("id", f"block-{number}")
            button = BUTTON(CLASS("md-code__button"), title="Copy to clipboard", type="button")
            button.set("data-md-type", "copy")
            button.set("data-clipboard-target", f"#{block.get('id')} code")
            block.find("pre").insert(0, SPAN(CLASS("md-code__nav"), button))
    return []
