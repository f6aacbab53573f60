"""Writes ``llms.txt``: every page and module by name, for readers that are programs."""

from __future__ import annotations

from pathlib import PurePosixPath

from scripts.finish.built import Built
from scripts.matter import read_matter
from scripts.module import modules
from scripts.project import Problem
from scripts.settings import read_settings
from scripts.tasks import heading

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
    for heading_above, file in settings.files:
        if heading_above != section:
            section = heading_above
            lines += ["", f"## {section}", ""] if section else [""]
        name = str(PurePosixPath(file).with_suffix(""))
        matter, found = read_matter(project, name)
        problems += found
        link = f"[{heading(project, name)}]({settings.url}{name}.md)"
        notebook = f"([notebook]({settings.url}{name}.ipynb))"
        lines.append(f"- {_told(link, matter.description)} {notebook}")
    lines += ["", "## Code", ""]
    lines += [
        f"- {_told(f'[{module.name}.py]({settings.url}code/{module.name}.py)', module.summary)}"
        for module in modules(project)
    ]
    (built.folder / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return problems


def _told(link: str, description: str) -> str:
    return f"{link}: {description}" if description else link
