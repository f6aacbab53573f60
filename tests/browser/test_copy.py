"""The copy button of a block gives its code, exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable

from markdown_it import MarkdownIt
from playwright.sync_api import Browser

from scripts.project import HOME
from tests.browser.checks import Watched, opened
from tests.browser.conftest import ORIGIN

SESSIONS = ("console", "pycon")
BUTTONS = ".md-code__button[data-md-type=copy]"


def copied(watched: Watched, real: int = 3) -> list[str]:
    """What each copy button gives: the first ones clicked by mouse, the others by script."""
    page = watched.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=ORIGIN)
    page.wait_for_function(f"document.querySelector({BUTTONS!r}) || !document.querySelector('pre')")
    texts: list[str] = []
    for button in page.locator(BUTTONS).all():
        if not button.is_visible():
            continue  # what a block printed is not code
        page.evaluate("navigator.clipboard.writeText('nothing was copied')")
        if len(texts) < real:
            button.click()
        else:
            button.evaluate("each => each.click()")
        texts.append(page.evaluate("navigator.clipboard.readText()"))
    return texts


def without_prompts(session: str) -> str:
    """The commands of a session whose lines are typed or printed; all of one without prompts."""
    commands = re.findall(r"^(?:\$|>>>|\.\.\.) (.*)$", session, re.MULTILINE)
    return "\n".join(commands) or session.rstrip("\n")


def lacking(wanted: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The blocks of ``wanted`` that ``texts`` lacks, in that order."""
    rest = list(texts)
    missing = []
    for each in wanted:
        if each in rest:
            rest = rest[rest.index(each) + 1 :]
        else:
            missing.append(each)
    return missing


def test_every_block_is_copied_as_its_source_has_it(browser: Browser, names: list[str]) -> None:
    for name in names:
        source = (HOME / "docs" / name).with_suffix(".md")
        if not source.is_file():
            continue
        fences = [
            without_prompts(token.content) if token.info in SESSIONS else token.content.rstrip("\n")
            for token in MarkdownIt().parse(source.read_text(encoding="utf-8"))
            if token.type == "fence" and token.info.split()[0] in ("python", *SESSIONS)
        ]
        with opened(browser, name) as watched:
            watched.page.evaluate(
                "document.querySelectorAll('details').forEach(each => { each.open = true })"
            )
            texts = copied(watched) if fences else []
        missing = lacking(fences, texts)
        assert not missing, f"{name}: no button copies\n{missing[0]}"
