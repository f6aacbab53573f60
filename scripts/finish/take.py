"""Offers every page as Markdown and as a notebook, and says so on the page."""

from __future__ import annotations

from html import escape
from pathlib import PurePosixPath

from lxml.html import fragment_fromstring

from scripts.finish.built import Built, Html
from scripts.notebook import notebook
from scripts.plain import read_plain
from scripts.project import Problem, is_lab
from scripts.settings import read_settings

FORMS = (("md", "text/markdown", "Markdown"), ("ipynb", "application/x-ipynb+json", "Notebook"))


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
    head = page.root.find("head")
    items = []
    for suffix, kind, word in FORMS:
        link = fragment_fromstring(f'<link rel="alternate" type="{kind}" href="{base}.{suffix}">')
        link.set("title", f"This page as {word}" if suffix == "md" else "This page as a notebook")
        head.append(link)
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
