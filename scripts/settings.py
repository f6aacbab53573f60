"""What mkdocs.yml says of the site: its name, its address, and the pages in reading order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mkdocs.utils.yaml import yaml_load

from scripts.project import Project


@dataclass(frozen=True)
class Settings:
    """The site's name, description and address, and its files by section (``""``: none)."""

    name: str
    description: str
    url: str  # ends in a slash; empty where the site has no address
    files: list[tuple[str, str]] = field(default_factory=list)


def read_settings(project: Project) -> Settings:
    """Read mkdocs.yml as the generators do; a project without one has its pages alone."""
    path = project.root / "mkdocs.yml"
    given: dict[str, Any] = yaml_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    url = given.get("site_url") or ""
    description = " ".join(given.get("site_description", "").split())
    files = list(_files(given.get("nav") or [f"{page}.md" for page in project.pages()], ""))
    return Settings(given.get("site_name", ""), description, url and url.rstrip("/") + "/", files)


def _files(entries: list[Any], section: str) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if isinstance(entry, str):
            yield section, entry
            continue
        for title, inside in entry.items():
            yield from _files(inside, title) if isinstance(inside, list) else [(section, inside)]
