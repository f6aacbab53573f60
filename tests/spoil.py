"""Spoil a copy of a site, run the command on it, and see what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from scripts import build
from scripts.page import Page, read_page
from scripts.project import Project

TINY = "docs/core/tiny.md"
NUMBERS = "docs/core/many-numbers.md"
TINY_MODULE = "snippets/pages/core/tiny.py"
NUMBERS_MODULE = "snippets/pages/core/many_numbers.py"


def alter(project: Project, file: str, old: str, new: str) -> None:
    """Replace the one place in the file that reads ``old``; an empty ``old`` is the file's end."""
    path = project.root / file
    text = path.read_text(encoding="utf-8")
    assert not old or text.count(old) == 1, f"{file} holds {old!r} {text.count(old)} times"
    path.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")


def page_of(project: Project, text: str | bytes) -> Page:
    """Write a page of that text, and take it apart."""
    raw = text if isinstance(text, bytes) else text.encode()
    project.markdown("page").write_bytes(raw)
    return read_page(project, "page")


def said(project: Project, *arguments: str) -> tuple[int, list[str]]:
    """Run the command in this process; give its exit status and the lines that it printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = build.main(arguments, root=project.root)
    return status, printed.getvalue().splitlines()


def problems(project: Project, *arguments: str) -> list[str]:
    """Run the command, which must fail; give the problems that it named, less the last line."""
    status, lines = said(project, *arguments)
    assert status == 1, lines
    assert re.match(rf"{len(lines) - 1} problems?; ", lines[-1]), lines
    return lines[:-1]


def tree(project: Project) -> dict[Path, bytes]:
    """Every file of the project but what may be deleted at any time."""
    return {
        path: path.read_bytes()
        for path in sorted(project.root.rglob("*"))
        if path.is_file() and not {".cache", "__pycache__"} & set(path.parts)
    }
