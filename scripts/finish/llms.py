"""Writes ``llms.txt``: every page and module by name, for readers that are programs."""

from __future__ import annotations

from pathlib import PurePosixPath

import nbformat

from scripts.finish.built import Built
from scripts.matter import read_matter
from scripts.module import modules
from scripts.plain import title
from scripts.project import Problem
from scripts.settings import read_settings

_ABOUT = """\
Every code block on these pages runs, and every number is measured by a run or says where it is
from. Each page is there as Markdown and as a notebook that runs as it is, with torch and
matplotlib. True in a mask means *may attend*. The code may be copied as your own (the licence is
MIT No Attribution)."""


def list_everything(built: Built) -> list[Problem]:
    """Write the list, in reading order; links are whole where the site has an address."""
    project, settings = built.project, read_settings(built.project)
    lines = [f"# {settings.name}", "", f"> {settings.description}", "", _ABOUT]
    section = None
    problems = []
    for heading, file in settings.files:
        if heading != section:
            section = heading
            lines += ["", f"## {heading}", ""] if heading else [""]
        name = str(PurePosixPath(file).with_suffix(""))
        described = ""
        if file.endswith(".md"):
            heading_of_page = title(project, name)
            matter, found = read_matter(project, name)
            problems += found
            described = matter.description
        else:
            heading_of_page = _title(nbformat.read(project.docs / file, as_version=4), name)
        lines.append(
            f"- [{heading_of_page}]({settings.url}{name}.md){': ' * bool(described)}{described}"
            f" ([notebook]({settings.url}{name}.ipynb))"
        )
    lines += ["", "## Code", ""]
    lines += [
        f"- [{module.name}.py]({settings.url}code/{module.name}.py): {module.summary}"
        for module in modules(project)
    ]
    (built.folder / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return problems


def _title(notebook: nbformat.NotebookNode, name: str) -> str:
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("# "):
            return str(cell.source.partition("\n")[0].removeprefix("# "))
    return name
