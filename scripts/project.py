"""Where everything of a site lives, and how a problem with it is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong, at one place: ``file:line: message``."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Project:
    """A site's folders; ``root`` holds ``docs/``, ``snippets/`` and ``mkdocs.yml``."""

    root: Path = HOME

    @property
    def docs(self) -> Path:
        """The Markdown pages, as published."""
        return self.root / "docs"

    @property
    def modules(self) -> Path:
        """The page modules; the tree mirrors ``docs``, hyphens become underscores."""
        return self.root / "snippets" / "pages"

    @property
    def figures(self) -> Path:
        """The drawn figures, one folder a page."""
        return self.docs / "assets" / "figures"

    @property
    def downloads(self) -> Path:
        """Copies of the snippets that pages import and readers download."""
        return self.docs / "assets" / "code"

    @property
    def cache(self) -> Path:
        """What may be deleted at any time."""
        return self.root / ".cache"

    @property
    def site(self) -> Path:
        """The built site."""
        return self.root / "site"

    def relative(self, path: Path) -> str:
        """The path as messages print it: from the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()

    def pages(self) -> list[str]:
        """Every page's name, such as ``core/scaling``, in alphabetical order."""
        return sorted(
            path.relative_to(self.docs).with_suffix("").as_posix()
            for path in self.docs.rglob("*.md")
        )

    def markdown(self, page: str) -> Path:
        """The page's Markdown file."""
        return self.docs / f"{page}.md"

    def module(self, page: str) -> Path:
        """The module that the page runs."""
        return self.modules / f"{page.replace('-', '_')}.py"
