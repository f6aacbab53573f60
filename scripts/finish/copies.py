"""Gives every block of code the button that copies it.

The theme's script makes such buttons, too, and takes a third of a second of a phone's time for it
before a long page answers. It works those that it finds just as well.
"""

from __future__ import annotations

from lxml.html.builder import BUTTON, CLASS, SPAN

from scripts.finish.built import Built
from scripts.page import TYPED
from scripts.project import Problem

_PROMPTS = ("$ ", ">>> ", "... ")
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
            session = any(f"language-{kind}" in block.classes for kind in TYPED)
            if session and (commands := typed(block.find("pre/code").text_content())):
                button.set("data-clipboard-text", commands)
            else:
                button.set("data-clipboard-target", f"#{block.get('id')} code")
            block.find("pre").insert(0, SPAN(CLASS("md-code__nav"), button))
    return []


def typed(text: str) -> str:
    """The commands of a session, without prompts and output; empty where it has no prompt."""
    commands: list[str] = []
    goes_on = False
    for line in text.splitlines():
        prompt = next((each for each in _PROMPTS if f"{line} ".startswith(each)), "")
        if prompt or goes_on:
            commands.append(line[len(prompt) :])
            goes_on = line.endswith("\\")
    return "\n".join(commands)
