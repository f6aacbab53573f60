"""Every page, in both themes, at the widths of a phone, a tablet and a desk."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.checks import HEIGHT, WIDTHS, Watched, opened
from tests.browser.conftest import ORIGIN

OPEN = "document.querySelectorAll('details').forEach(each => { each.open = true })"

STOPS = "a, button, input, select, summary, pre, table, div.arithmatex"


def shifted(watched: Watched, wait: float = 0) -> list[str]:
    """How far the page has moved by itself since it began to load."""
    watched.page.wait_for_timeout(wait)
    moved = watched.page.evaluate("moved.reduce((sum, each) => sum + each.value, 0)")
    return [f"the page moves by {moved:.3f} while it loads"] if moved > 0.02 else []


def walk(watched: Watched) -> list[str]:
    """Press Tab until focus comes round; what is wrong on the way."""
    watched.ask("watch")
    # More often than needed, boxes that scroll included: what takes no part in the round is a trap.
    for _ in range(2 * watched.page.evaluate(f"document.querySelectorAll('{STOPS}').length")):
        watched.page.keyboard.press("Tab")
        if watched.page.evaluate("checks.round()"):
            break
    return watched.ask("walked")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_wrong(browser: Browser, axe: str, names: list[str], theme: str) -> None:
    found = set()
    for name in names:
        # Loaded once: light from the widest, dark from the narrowest.
        widths = WIDTHS if theme == "light" else WIDTHS[::-1]
        with opened(browser, name, theme=theme, width=widths[0]) as watched:
            page = watched.page
            moved = shifted(watched)
            page.evaluate(OPEN)
            watched.come_near()
            for width in widths:
                watched.resize(width)
                faults = watched.ask("width", "contrast", "images", "boxes", "labels")
                faults += watched.ask("tables", "heads")
                found |= {f"{name} at {width} px: {fault}" for fault in faults}
            page.evaluate(axe)
            watched.ask("thin")
            for width in reversed(widths):
                watched.resize(width)
                found |= {f"{name} at {width} px: {fault}" for fault in watched.ask("axe")}
            found |= {f"{name}: {fault}" for fault in watched.faults}
        # A busy machine has the fonts late: what moves every time is the page's own doing.
        for _ in range(4):
            if moved:
                with opened(browser, name, theme=theme, width=widths[0]) as watched:
                    moved = shifted(watched)
        found |= {f"{name} at {widths[0]} px: {fault}" for fault in moved}
    assert not found, "\n".join(sorted(found))


def test_a_screen_to_be_touched_keeps_its_stops(browser: Browser) -> None:
    with browser.new_context(
        viewport={"width": 360, "height": HEIGHT}, is_mobile=True, has_touch=True
    ) as context:
        page = context.new_page()
        page.goto(f"{ORIGIN}/core/scaling.html")
        assert not page.evaluate("matchMedia('(hover)').matches")
        block = page.locator("article .language-python:visible").first
        block.scroll_into_view_if_needed()
        code = block.locator("code")
        assert code.evaluate("each => each.scrollWidth > each.clientWidth")
        page.wait_for_timeout(1000)  # the theme's script looks at what is in view, late
        expect(code).to_have_attribute("tabindex", "0")


@pytest.mark.parametrize("width", [1280, 360])
def test_the_keyboard_reaches_everything(browser: Browser, names: list[str], width: int) -> None:
    found = []
    for name in names:
        with opened(browser, name, width=width) as watched:
            watched.page.evaluate(OPEN)
            # A busy machine may mark a box only after the walk has passed it: what is never reached
            # is missed again.
            faults = walk(watched) and walk(watched)
            found += [f"{name}: {fault}" for fault in faults]
    assert not found, "\n".join(found)
