"""A page as a notebook that runs as it is, its recorded outputs and its figures inside."""

from __future__ import annotations

import base64
import os
import re
from importlib.metadata import version
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import urlsplit

import nbformat

from scripts.lab import METADATA
from scripts.page import CONTINUED, FENCED
from scripts.plain import Plain
from scripts.project import Project
from scripts.settings import Settings
from scripts.source import whole
from scripts.tasks import heading

_FENCE = re.compile(rf"\A(?:{re.escape(CONTINUED)}\n)?(?:```python|~~~text)\n|(?:```|~~~)\n?\Z")
_LINK = re.compile(r"(?P<lead>(?<!!)\]\(|\bhref=\")(?P<url>[^)\s\"]+)(?=[)\"])")
_FIGURE = re.compile(r"(?P<lead>!\[[^\n]*\]\()(?P<path>[^)\s]+\.svg)(?=\))")
_SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
_DETAILS = re.compile(r"^</?details>\n?", re.MULTILINE)


def notebook(project: Project, plain: Plain, settings: Settings) -> str:
    """Turn the page into a notebook; the same page gives the same bytes."""
    maker = _Maker(project, plain, settings)
    maker.make()
    made = nbformat.v4.new_notebook(
        cells=maker.cells,
        metadata={**METADATA, "title": heading(project, plain.page.name)},
    )
    for number, cell in enumerate(made.cells):
        cell["id"] = f"cell-{number}"
    return str(nbformat.writes(made)) + "\n"


def address(settings: Settings, page: str, link: str) -> str:
    """Where a link of the page's Markdown leads once the page is read outside the site."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return link
    path = normpath(PurePosixPath(page).parent / parts.path) if parts.path else f"{page}.html"
    path = re.sub(r"\.(?:md|ipynb)$", ".html", path)
    if settings.url:
        path = settings.url + path
    else:
        path = PurePosixPath(os.path.relpath(path, PurePosixPath(page).parent)).as_posix()
    return path + (f"#{parts.fragment}" if parts.fragment else "")


class _Maker:
    def __init__(self, project: Project, plain: Plain, settings: Settings) -> None:
        self.project, self.plain, self.settings = project, plain, settings
        self.cells: list[Any] = []
        self.examples: dict[str, Any] = {}

    def make(self) -> None:
        at, page = 0, self.plain.page
        for directive in page.directives:
            if directive.kind not in FENCED or directive.kind == "planted":
                continue
            # The text before a block ends where the block's directive begins.
            self._text(self.plain.markdown(at, directive.start))
            at = directive.end
            block = _FENCE.sub("", page.text[directive.start : directive.end])
            if directive.kind == "output":
                output = nbformat.v4.new_output("stream", name="stdout", text=block)
                self.examples[directive.name].outputs.append(output)
                continue
            if not self.examples and all(cell.cell_type == "markdown" for cell in self.cells):
                self._files()
            cell = nbformat.v4.new_code_cell(block.removesuffix("\n"))
            self.cells.append(cell)
            if directive.kind == "example":
                self.examples[directive.name] = cell
        self._text(self.plain.markdown(at))
        link = address(self.settings, page.name, f"{PurePosixPath(page.name).name}.html")
        needs = f"PyTorch {version('torch')} and Matplotlib {version('matplotlib')}"
        self._text(
            f"*This is [a page of {self.settings.name}]({link}). "
            f"The outputs were recorded with {needs}.*"
        )

    def _text(self, text: str) -> None:
        text = _DETAILS.sub("", _SUMMARY.sub(r"**\1**", text))
        attachments: dict[str, dict[str, str]] = {}

        def attach(match: re.Match[str]) -> str:
            folder = self.project.markdown(self.plain.page.name).parent
            drawn = (folder / match["path"]).read_text(encoding="utf-8")
            # The lines are dark, which a dark notebook would swallow.
            drawn = drawn.replace("<svg ", '<svg style="background:#fff" ', 1)
            name = PurePosixPath(match["path"]).name
            attachments[name] = {"image/svg+xml": base64.b64encode(drawn.encode()).decode("ascii")}
            return f"{match['lead']}attachment:{name}"

        text = _LINK.sub(
            lambda m: m["lead"] + address(self.settings, self.plain.page.name, m["url"]),
            _FIGURE.sub(attach, text),
        )
        text = re.sub(r"\n{3,}", "\n\n", text.strip("\n"))
        if text:
            cell = nbformat.v4.new_markdown_cell(text)
            if attachments:
                cell["attachments"] = attachments
            self.cells.append(cell)

    def _files(self) -> None:
        """Cells that write the files which the code below imports."""
        for directive in self.plain.page.directives:
            if directive.kind == "file":
                text = whole(self.project, directive.name)
                # Raw, so that the cell reads as the file does; three quotes would end it.
                literal = repr(text) if "'''" in text else f"r'''{text}'''"
                code = f'from pathlib import Path\n\nPath("{directive.name}.py").write_text(\n'
                cell = nbformat.v4.new_code_cell(f'{code}{literal}, encoding="utf-8")\n')
                cell.metadata["jupyter"] = {"source_hidden": True}
                self.cells.append(cell)
