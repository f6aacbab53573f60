"""What each directive and each bound number of a page should hold, given the page's results.

Writing and checking are the same: both compare what the page holds with the edits made here.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from tabulate import tabulate

from scripts import catalogue, source, tasks
from scripts.page import CONTINUED, FENCED, PRINTED, Directive, Page
from scripts.project import Problem, Project, is_lab
from scripts.prose import Bound
from scripts.rounding import NumberError, print_like
from scripts.run import Results


@dataclass(frozen=True)
class Block:
    """A directive and the text that belongs under it."""

    directive: Directive
    text: str


@dataclass(frozen=True)
class Number:
    """A bound number and the measured value that belongs in it."""

    bound: Bound
    key: str
    value: object


@dataclass
class Filled:
    """Everything that a page should hold, the files beside it, and what cannot be filled."""

    page: Page
    blocks: list[Block] = field(default_factory=list)
    cells: list[Block] = field(default_factory=list)  # of a lab, whose notebook is one of the files
    numbers: list[Number] = field(default_factory=list)
    files: dict[Path, tuple[int, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def text(self) -> str:
        """The whole page as it should be; a number that has no right text goes to ``problems``."""
        edits = [(b.directive.start, b.directive.end, b.text) for b in self.blocks]
        for number in self.numbers:
            bound = number.bound
            try:
                right = print_like(bound.printed, number.value)
            except NumberError as error:
                self.problems.append(Problem(self.page.file, bound.line, f"{number.key}: {error}"))
                continue
            edits.append((bound.start, bound.end, right))
        text = self.page.text
        for start, end, right in sorted(edits, reverse=True):
            before = text[:start]
            text = (
                before + ("\n" if start == end and before[-1] != "\n" else "") + right + text[end:]
            )
        return text


def needed_pages(page: Page) -> set[str]:
    """The pages whose results this page prints from, itself included where it has any."""
    measured = [b.key for b in page.bound if not is_stated(b.key) and not is_counted(b.key)]
    needed = {_split(page, key)[0] for key in measured}
    own = any(d.kind in ("example", "output", "table", "figure") for d in page.directives)
    return needed | ({page.name} if own or is_lab(page.name) else set())


def is_stated(key: str) -> bool:
    """Whether the number is not measured but stated, with its source or reason."""
    return key.startswith(("cited:", "given:", "derived:"))


def is_counted(key: str) -> bool:
    """Whether the number counts what all pages hold."""
    return key.startswith("site:")


def _split(page: Page, key: str) -> tuple[str, str]:
    other, colon, name = key.rpartition(":")
    return (other, name) if colon else (page.name, name)


def fill(project: Project, page: Page, results: Mapping[str, Results]) -> Filled:
    """Work out what the page should hold."""
    filled = Filled(page)
    own = results.get(page.name, Results())
    code = {
        d: _code(project, page, d, filled)
        for d in page.directives
        if d.kind in ("source", "example")
    }
    shown = [piece for piece in code.values() if piece]
    files = [d.name for d in page.directives if d.kind == "file"]
    first = True
    seen: set[tuple[str, str]] = set()
    for directive in page.directives:
        try:
            if (directive.kind, directive.name) in seen:
                raise source.SourceError("this page has the same directive above: remove one")
            seen.add((directive.kind, directive.name))
            if directive.kind in ("numbers", "planted"):  # these follow from other pages
                continue
            piece = code.get(directive)
            if directive.kind == "imports":
                body = source.imports(project, shown, files)
                if not body:
                    raise source.SourceError("the code of this page imports nothing: remove this")
            elif piece is not None:
                body = piece.code
            elif directive.kind in ("source", "example"):
                continue
            elif directive.kind == "file":
                body = _download(project, page, directive)
            elif directive.kind in ("module", "functions", "modules"):
                body = catalogue.FILLS[directive.kind](project, page.name, directive.name)
            elif directive.kind == "tagged":
                body = tasks.listed(project, page.name, directive.name)
                if not body:
                    raise source.SourceError("no page has this tag: remove this, or tag a page")
            else:
                body = _result(project, page, directive, own, filled)
        except source.SourceError as error:
            filled.problems.append(Problem(page.file, directive.line, f"{directive}: {error}"))
            continue
        if directive.kind in FENCED:
            python = directive.kind not in PRINTED
            if "```" in body or "~~~" in body:
                message = f"{directive}: ``` or ~~~ in this block would end it"
                filled.problems.append(Problem(page.file, directive.line, message))
                continue
            opening = ("" if first else CONTINUED + "\n") + "```python" if python else "~~~text"
            body = f"{opening}\n{body}{'```' if python else '~~~'}\n"
            first = first and not python
        filled.blocks.append(Block(directive, body))
    _numbers(page, results, filled)
    return filled


def _code(
    project: Project, page: Page, directive: Directive, filled: Filled
) -> source.Shown | None:
    try:
        if directive.kind == "source":
            return source.definition(project, directive.name)
        return source.example(project, page.name, directive.name)
    except source.SourceError as error:
        filled.problems.append(Problem(page.file, directive.line, f"{directive}: {error}"))
        return None


def _result(
    project: Project, page: Page, directive: Directive, own: Results, filled: Filled
) -> str:
    kind, name = directive.kind, directive.name
    results: dict[str, Collection[str]]
    results = {"output": own.outputs, "table": own.tables, "figure": own.figures}
    if name not in results[kind]:
        function = f"{'example' if kind == 'output' else kind}_{name}"
        module = project.relative(project.module(page.name))
        raise source.SourceError(f"{module} has no function {function}")
    if kind == "output":
        printed = own.outputs[name]
        if not printed.strip():
            raise source.SourceError(f"example_{name} prints nothing: print, or remove this")
        return "\n".join(line.rstrip() for line in printed.removesuffix("\n").split("\n")) + "\n"
    if kind == "table":
        return markdown_table(own.tables[name])
    drawn = own.figures[name]
    alt = drawn["alt"].replace("[", "\\[").replace("]", "\\]")
    lines = []
    for theme in ("light", "dark"):
        path = project.figures / page.name / f"{name}-{theme}.svg"
        filled.files[path] = (directive.line, drawn[theme])
        lines.append(f"![{alt}]({_link(project, page, path)}#only-{theme})\n")
    return "".join(lines)


def _download(project: Project, page: Page, directive: Directive) -> str:
    source.whole(project, directive.name)  # so that a module that is not there is told
    up = "../" * page.name.count("/")
    # As HTML: the generator checks links in Markdown before the file is put there.
    file = f"{directive.name}.py"
    return f'<a href="{up}code/{file}" download><code>{file}</code></a>\n'


def _link(project: Project, page: Page, path: Path) -> str:
    return Path(os.path.relpath(path, project.markdown(page.name).parent)).as_posix()


def markdown_table(rows: list[dict[str, str]]) -> str:
    """Rows with one set of headings as a table; columns of numbers stand to the right."""
    cells = [[cell.replace("|", "\\|") for cell in row.values()] for row in rows]
    headings = [heading.replace("|", "\\|") for heading in rows[0]]
    sides = [
        "right"
        if all(cell[:1] in "-−+.0123456789" and ", " not in cell for cell in column)
        else "left"
        for column in zip(*cells, strict=True)
    ]
    # Numbers stay as the page module printed them: a parsed 1.00 would come out as 1.
    table: str = tabulate(cells, headings, tablefmt="pipe", colalign=sides, disable_numparse=True)
    return table + "\n"


def _numbers(page: Page, results: Mapping[str, Results], filled: Filled) -> None:
    for bound in page.bound:
        if is_stated(bound.key) or is_counted(bound.key):  # counts follow, given all pages
            continue
        other, name = _split(page, bound.key)
        values = results[other].values if other in results else {}
        if name not in values:
            closest = ", ".join(get_close_matches(name, values, 5, 0.0)) or "none"
            message = f"no value {bound.key} was measured: {other} gives {closest}"
            message += ", …" * (len(values) > 5)
            filled.problems.append(Problem(page.file, bound.line, message))
            continue
        filled.numbers.append(Number(bound, f"{other}:{name}", values[name]))
