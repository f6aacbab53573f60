"""Mends what the theme leaves in the way of readers who use a keyboard or a screen reader.

What depends on the window, and what the theme's script makes in the browser, is mended there: by
accessible.css and accessible.js.
"""

from __future__ import annotations

from scripts.finish.built import Built
from scripts.project import Problem

_SEARCH = "//*[@role='dialog'][contains(@class, 'md-search')]"
# What accessible.js turns into buttons; their checkboxes are what the theme's script listens to.
_LABELS = tuple(
    f"//header//label[@for='{name}'][contains(@class, 'md-header__button')][//input[@id='{name}']]"
    for name in ("__drawer", "__search")
)


def make_accessible(built: Built) -> list[Problem]:
    """Name the search, and make sure that what is mended in the browser is there."""
    problems = []
    for page in (page for page in built.pages.values() if page.themed):
        for path in (_SEARCH, *_LABELS):
            if not page.root.xpath(path):
                message = (
                    f"nothing here is {path}, which is mended for keyboards and screen readers: "
                    "the theme has changed, so look at what it has now, and change "
                    "scripts/finish/accessible.py and accessible.js"
                )
                problems.append(Problem(page.file, 1, message))
        for dialog in page.root.xpath(_SEARCH):
            dialog.set("aria-label", "Search")
    return problems
