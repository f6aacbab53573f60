"""Offers every page as Markdown and as a notebook, and says so at its end.

Not in its head: the theme takes every alternate link for a translation, and asks for its sitemap.
"""

from __future__ import annotations

from html import escape
from pathlib import PurePosixPath

from lxml.html import fragment_fromstring

from scripts.finish.built import Built, Html
from scripts.notebook import notebook
from scripts.plain import read_plain
from scripts.project import Problem, is_lab
from scripts.settings import read_settings

FORMS = (("md", "Markdown"), ("ipynb", "Notebook"))


def offer_pages(built: Built) -> list[Problem]:
    """Write both forms beside each page, and links to them into its head and at its end."""
    settings = read_settings(built.project)
    problems = []
    for name in built.project.pages():
        plain = read_plain(built.project, name)
        _write(built, f"{name}.md", plain.markdown())
        _write(built, f"{name}.ipynb", notebook(built.project, plain, settings))
    for name in filter(is_lab, built.project.names()):
        _write(built, f"{name}.md", read_plain(built.project, name).markdown())
        _write(built, f"{name}.ipynb", built.project.notebook(name).read_text(encoding="utf-8"))
    for file, page in built.pages.items():
        if (built.folder / file).with_suffix(".ipynb").is_file():
            if page.root.find_class("md-content__inner"):
                _offer(built, page)
            else:
                problems.append(Problem(file, 1, "no .md-content__inner to offer the page in"))
    return problems


def _write(built: Built, file: str, text: str) -> None:
    path = built.folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def _offer(built: Built, page: Html) -> None:
    name = page.file.removesuffix(".html")
    base = PurePosixPath(name).name
    items = []
    for suffix, word in FORMS:
        items.append(f'<a href="{base}.{suffix}" download="{base}.{suffix}">{word}</a>')
    for folder in ("pages/", ""):
        module = folder + name.replace("-", "_")
        if (built.project.root / "snippets" / f"{module}.py").is_file():
            items.append(f'<a href="{page.to(f"code/{module}.html")}">Code that it runs</a>')
            break
    listed = "".join(f"<li>{item}</li>" for item in items)
    page.content.append(
        fragment_fromstring(
            f'<nav class="take" aria-label="{escape("This page to take away")}">'
            f"<span>Take this page along:</span><ul>{listed}</ul></nav>"
        )
    )
