"""The HTML that a site generator wrote, as trees that the steps beside this module finish.

Every step works on the output of MkDocs and of Zensical alike, and needs only the sources that the
repository holds, so that nothing depends on a generator's hooks or templates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from scripts.project import Problem, Project


@dataclass
class Html:
    """One HTML file of the site.

    ``page`` is the source's name, None where there is no source; ``themed`` says whether the theme
    made it, or a step of this project's own.
    """

    file: str
    root: HtmlElement
    page: str | None
    themed: bool = True

    @cached_property
    def content(self) -> HtmlElement:
        """The element that holds what the page's Markdown became."""
        [article] = self.root.find_class("md-content__inner")
        return article

    def to(self, target: str) -> str:
        """The link from this file to ``target``, a path in the site."""
        return "../" * self.file.count("/") + target


@dataclass
class Built:
    """A site that is being finished: its folder, its sources, its HTML files by name."""

    folder: Path
    project: Project
    pages: dict[str, Html]


Step = Callable[[Built], list[Problem]]


def read_site(folder: Path, project: Project) -> Built:
    """Parse every HTML file under ``folder``."""
    known = set(project.names())
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        file = path.relative_to(folder).as_posix()
        name = file.removesuffix(".html")
        root = document_fromstring(path.read_bytes(), parser=HTMLParser(encoding="utf-8"))
        pages[file] = Html(file, root, name if name in known else None)
    return Built(folder, project, pages)


def write_site(built: Built) -> None:
    """Write every HTML file back."""
    for file, page in built.pages.items():
        text = etree.tostring(
            page.root, method="html", encoding="unicode", doctype="<!doctype html>"
        )
        (built.folder / file).write_text(text, encoding="utf-8", newline="\n")


def finish(folder: Path, project: Project, steps: Iterable[Step]) -> list[Problem]:
    """Take every step; on problems, write no file back."""
    built = read_site(folder, project)
    problems = [problem for step in steps for problem in step(built)]
    if not problems:
        write_site(built)
    return problems
