"""Mends what the theme leaves in the way of readers who use a keyboard or a screen reader."""

from __future__ import annotations

from scripts.finish.built import Built
from scripts.project import Problem


def make_accessible(built: Built) -> list[Problem]:
    """Name what has no accessible name."""
    for page in built.pages.values():
        for dialog in page.root.xpath("//*[@role='dialog'][not(@aria-label)]"):
            dialog.set("aria-label", "Search")
    return []
