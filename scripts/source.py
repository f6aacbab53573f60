"""The code that pages show, taken from the modules' text; nothing is imported or run here."""

from __future__ import annotations

import ast
import functools
import sys
import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from scripts.project import Project


class SourceError(ValueError):
    """A name that is not there, or code that cannot be shown."""


@dataclass(frozen=True)
class Shown:
    """A piece of code on a page: its text, its module, the name it defines, the names it needs."""

    code: str
    module: str
    name: str
    needs: frozenset[str]


@dataclass(frozen=True)
class _Module:
    name: str
    lines: list[str]
    tree: ast.Module

    def definitions(self) -> dict[str, ast.stmt]:
        found: dict[str, ast.stmt] = {}
        for node in self.tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found[node.target.id] = node
        return found

    def imported(self) -> dict[str, tuple[str, str | None]]:
        """Each imported name: the module it is from, and its name there (None: the module)."""
        found: dict[str, tuple[str, str | None]] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    found[bound] = (alias.name, None)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = (node.module or "", alias.name)
        return found

    def text(self, node: ast.stmt) -> str:
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        return "\n".join(self.lines[first - 1 : node.end_lineno]) + "\n"


@functools.lru_cache
def parse(text: str, file: str) -> ast.Module:
    """The tree of a module, which every directive of a page asks for; nobody changes it."""
    return ast.parse(text, file)


def _load(path: Path, name: str) -> _Module:
    try:
        text = path.read_text(encoding="utf-8")
        return _Module(name, text.split("\n"), parse(text, str(path)))
    except (OSError, SyntaxError, ValueError) as error:
        raise SourceError(f"{path.name} cannot be read: {error}") from None


def definitions(path: Path) -> dict[str, int]:
    """The functions, classes and constants of a module, with their lines; empty if unreadable."""
    try:
        module = _load(path, "")
    except SourceError:
        return {}
    return {name: node.lineno for name, node in module.definitions().items()}


def definition(project: Project, dotted: str) -> Shown:
    """The text of ``module.name``, such as ``attention.attention``, under ``snippets/``."""
    module_name, _, name = dotted.rpartition(".")
    path = project.root / "snippets" / f"{module_name.replace('.', '/')}.py"
    if not path.is_file():
        raise SourceError(f"there is no module {project.relative(path)}: expected module.name")
    module = _load(path, f"snippets.{module_name}")
    node = module.definitions().get(name)
    if node is None:
        raise SourceError(
            f"{project.relative(path)} defines no {name}: it has "
            + ", ".join(sorted(module.definitions()))
        )
    return Shown(module.text(node), module.name, name, _names(ast.walk(node)))


def example(project: Project, page: str, name: str) -> Shown:
    """The body of ``example_<name>`` of the page's module, without docstring and last return."""
    path = project.module(page)
    dotted = project.relative(path).removesuffix(".py").replace("/", ".")
    module = _load(path, dotted)
    function = module.definitions().get(f"example_{name}")
    if not isinstance(function, ast.FunctionDef):
        raise SourceError(f"{project.relative(path)} has no function example_{name}")
    if function.decorator_list or ast.unparse(function.args):
        raise SourceError(f"example_{name} has a decorator or parameters, which no page shows")
    body = list(function.body)
    end = function.end_lineno or function.lineno
    if isinstance(body[-1], ast.Return):
        end = body.pop().lineno - 1
    start = (function.returns and function.returns.end_lineno) or function.lineno
    if ast.get_docstring(function) is not None:
        start = body.pop(0).end_lineno or start
    code = textwrap.dedent("\n".join(module.lines[start:end])).strip("\n") + "\n"
    if not body or not code.strip():
        raise SourceError(f"example_{name} of {project.relative(path)} has no line to show")
    try:
        compile(code, path.name, "exec")
    except SyntaxError as error:
        raise SourceError(f"example_{name} does not run when pasted: {error.msg}") from None
    needs = _names(node for statement in body for node in ast.walk(statement))
    return Shown(code, dotted, "", needs)


def whole(project: Project, name: str) -> str:
    """The text of a whole module under ``snippets/``, which a page offers as a file."""
    path = project.root / "snippets" / f"{name}.py"
    if not path.is_file():
        raise SourceError(f"there is no module {project.relative(path)}")
    return path.read_text(encoding="utf-8")


def imports(project: Project, shown: Iterable[Shown], files: Collection[str] = ()) -> str:
    """The import lines that the shown code needs, so that it runs when pasted together.

    ``files`` are the modules that the reader has beside the code, which is imported from them.

    Raises ``SourceError`` for a name of this project's own code that the page does not show.
    """
    shown = list(shown)
    place = {(piece.module, piece.name): number for number, piece in enumerate(shown)}
    needed: set[tuple[str, str | None, str]] = set()
    for number, piece in enumerate(shown):
        module = _load(project.root / f"{piece.module.replace('.', '/')}.py", piece.module)
        imported, own = module.imported(), module.definitions()
        for name in piece.needs:
            origin = imported.get(name) or ((piece.module, name) if name in own else None)
            if origin is None:
                continue
            if not origin[0].startswith("snippets"):
                needed.add((*origin, name))
                continue
            if origin[0].removeprefix("snippets.") in files:
                needed.add((origin[0].removeprefix("snippets."), origin[1], name))
                continue
            where = place.get((origin[0], origin[1] or name))
            # A function may use what stands below it; the lines of an example run where they stand.
            if where is None or (not piece.name and where > number):
                dotted = f"{origin[0]}.{origin[1] or name}".removeprefix("snippets.")
                raise SourceError(
                    f"the code uses {name}, which this page does not show"
                    + (" until later" if where is not None else "")
                    + f": put <!-- source: {dotted} --> above it"
                )
    return _import_lines(needed)


def _import_lines(needed: set[tuple[str, str | None, str]]) -> str:
    standard: list[str] = []
    others: list[str] = []
    modules: dict[str, list[str]] = {}
    for module, name, bound in sorted(needed, key=str):
        group = standard if module.partition(".")[0] in sys.stdlib_module_names else others
        if name is None:
            group.append(
                f"import {module}" + (f" as {bound}" if bound != module.partition(".")[0] else "")
            )
        else:
            modules.setdefault(module, []).append(name + (f" as {bound}" if bound != name else ""))
    for module, names in modules.items():
        group = standard if module.partition(".")[0] in sys.stdlib_module_names else others
        group.append(f"from {module} import {', '.join(names)}")
    blocks = [
        "".join(f"{line}\n" for line in sorted(group, key=lambda line: (line[0] == "f", line)))
        for group in (standard, others)
    ]
    return "\n".join(block for block in blocks if block)


def _names(nodes: Iterable[ast.AST]) -> frozenset[str]:
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name))
