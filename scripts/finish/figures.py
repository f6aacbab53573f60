"""Keeps each figure's place while it loads, and loads late ones only in the reader's theme."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote, urlsplit

from scripts.finish.built import Built, Html
from scripts.project import Problem

_SIZE = re.compile(r'<svg\b[^>]*?\b(width|height)="([\d.]+)pt"[^>]*?\b(width|height)="([\d.]+)pt"')
_PIXELS = 96 / 72  # CSS pixels in a point


def place_figures(built: Built) -> list[Problem]:
    """Give every drawn figure its width and height; a browser skips lazy ones that are hidden.

    What stands before a page's first section is likely in the first window, and is not to wait.
    """
    problems = []
    for page in built.pages.values():
        for image in page.root.xpath("//img[contains(@src, 'assets/figures/')]"):
            size = _size(built.folder / _file(page, image.get("src")))
            if size is None:
                message = f"the figure has no size in points: {image.get('src')!r}"
                problems.append(Problem(page.file, image.sourceline, message))
                continue
            for name, points in size.items():
                image.set(name, str(round(points * _PIXELS)))
            if image.xpath("preceding::h2"):
                image.set("loading", "lazy")
                image.set("decoding", "async")
            else:
                image.set("fetchpriority", "high")
    return problems


def _file(page: Html, source: str) -> str:
    return normpath(f"{page.file}/../{unquote(urlsplit(source).path)}")


def _size(path: Path) -> dict[str, float] | None:
    match = _SIZE.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return match and {match[1]: float(match[2]), match[3]: float(match[4])}
