"""Where everything of a site lives, and how a problem with it is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
LABS = "labs"


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong, at one place: ``file:line: message``."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def is_lab(name: str) -> bool:
    """Whether the name is a lab's, not a page's."""
    return name.startswith(f"{LABS}/")


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
    def labs(self) -> Path:
        """The labs: scripts in percent format, which become notebooks in ``docs/labs``."""
        return self.root / "snippets" / LABS

    @property
    def figures(self) -> Path:
        """The drawn figures, one folder a page."""
        return self.docs / "assets" / "figures"

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

    def names(self) -> list[str]:
        """Every page's and every lab's name; a lab's is such as ``labs/scale``."""
        labs = (path.stem.replace("_", "-") for path in self.labs.glob("*.py"))
        return self.pages() + sorted(f"{LABS}/{lab}" for lab in labs)

    def markdown(self, page: str) -> Path:
        """The page's Markdown file."""
        return self.docs / f"{page}.md"

    def notebook(self, lab: str) -> Path:
        """The lab's notebook, as published."""
        return self.docs / f"{lab}.ipynb"

    def module(self, name: str) -> Path:
        """The module that the page runs, or the lab's script."""
        folder = self.labs.parent if is_lab(name) else self.modules
        return folder / f"{name.replace('-', '_')}.py"

    def published(self, name: str) -> Path:
        """The page's Markdown or the lab's notebook: what the generator reads."""
        return self.notebook(name) if is_lab(name) else self.markdown(name)

    def source(self, name: str) -> Path:
        """The file in which the prose of the page or the lab is written."""
        return self.module(name) if is_lab(name) else self.markdown(name)
