"""What the catalogue of code says of each module: taken from its text, the pages and the record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from tabulate import tabulate

from scripts import tested
from scripts.module import Module, first_line, modules, signature
from scripts.project import Project
from scripts.source import SourceError
from scripts.tasks import heading
from scripts.versions import in_order


def _module(project: Project, page: str, name: str) -> str:
    module, up = _found(project, name), "../" * page.count("/")
    rows: list[tuple[str, ...]] = [
        ("length", f"{module.length:,} lines"),
        ("needs", _needs(module)),
        *_tests(project, name),
        ("shown on", ", ".join(_shown(project, page, name)) or "no page"),
    ]
    return _table((f"`{name}.py`", _links(name, up)), rows)


def _functions(project: Project, page: str, name: str) -> str:
    module, up = _found(project, name), "../" * page.count("/")
    lines = []
    for node in module.public():
        called = escape(signature(node), quote=False)
        link = f'<a href="{up}code/{name}.html#{node.name}"><code>{called}</code></a>'
        lines.append(f"- {link}<br>\n  {first_line(node)}\n")
    if not lines:
        raise SourceError(f"{project.relative(module.path)} defines nothing that others call")
    return "".join(lines)


def _modules(project: Project, page: str, name: str) -> str:
    up = "../" * page.count("/")
    rows: list[tuple[str, ...]] = []
    for module in modules(project):
        if module.name.startswith(f"{name}/"):
            length, links = f"{module.length:,}", _links(module.name, up)
            rows.append((f"`{module.name}.py`", length, _needs(module), links))
    if not rows:
        raise SourceError(f"there is no module in snippets/{name}")
    return _table(("module", "lines", "needs", "take"), rows)


FILLS = {"module": _module, "functions": _functions, "modules": _modules}


def _found(project: Project, name: str) -> Module:
    module = Module(project, name)
    if not module.path.is_file():
        raise SourceError(f"there is no module {project.relative(module.path)}")
    return module


def _needs(module: Module) -> str:
    return ", ".join([*module.packages(), *map("`{}`".format, module.beside())])


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return f"{tabulate(cells, headings, tablefmt='pipe', disable_numparse=True)}\n"


def _links(name: str, up: str) -> str:
    view = f'<a href="{up}code/{name}.html">view</a>'
    return f'{view} · <a href="{up}code/{name}.py" download>download</a>'


def _shown(project: Project, page: str, name: str) -> Iterator[str]:
    """Links to the pages that show something of the module, or hand it out."""
    dotted = re.escape(name.replace("/", "."))
    shows = re.compile(rf"^<!-- (?:source: {dotted}\.\w+|file: {dotted}) -->$", re.MULTILINE)
    for other in project.pages():
        if shows.search(project.markdown(other).read_text(encoding="utf-8")):
            yield f"[{heading(project, other)}]({'../' * page.count('/')}{other}.md)"


def _tests(project: Project, name: str) -> Iterator[tuple[str, str]]:
    """The module's tests, and what each release on record made of them."""
    for path in (f"tests/snippets/test_{name}.py", f"tests/snippets/{name}/"):
        if (project.root / path).exists():
            yield "tests", f"`{path}`"
    record = tested.read_record(project.root / tested.RECORD)
    for release in reversed(in_order(record)):  # the newest first
        if name in record[release]:
            result = record[release][name]
            yield f"torch {release}", tested.told(result) + _why(result["failed"])


def _why(failed: dict[str, int]) -> str:
    if not failed:
        return ""
    reason, count = next(iter(failed.items()))
    said = f'<code class="take-error">{escape(reason, quote=False)}</code>'
    return f"; {'all' if len(failed) == 1 else count} with {said}"
