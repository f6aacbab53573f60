"""What can be told about a module of ``snippets/`` from its text; nothing is imported or run."""

from __future__ import annotations

import ast
import copy
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scripts.matter import read_matter
from scripts.project import Project, is_lab
from scripts.source import parse

# From this many lines on a module is a program: what it documents in full is what others call.
LONG = 2000


@dataclass(frozen=True)
class Module:
    """A module below ``snippets/``, named such as ``attention`` or ``pages/core/scaling``."""

    project: Project
    name: str

    @property
    def path(self) -> Path:
        """Its file."""
        return self.project.root / "snippets" / f"{self.name}.py"

    @cached_property
    def text(self) -> str:
        """Everything in the file."""
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        """The text, parsed."""
        return parse(self.text, str(self.path))

    @property
    def length(self) -> int:
        """How many lines it has."""
        return self.text.count("\n")

    @property
    def summary(self) -> str:
        """The first line of its docstring; of a lab, which has none, its description."""
        if is_lab(self.name):
            return read_matter(self.project, self.name)[0].description
        return first_line(self.tree)

    @property
    def page(self) -> str | None:
        """The page whose code this is, None where it is no page's."""
        pages = self.project.names()
        return next((page for page in pages if self.project.module(page) == self.path), None)

    def public(self) -> list[ast.FunctionDef | ast.ClassDef]:
        """The functions and classes that others may call."""
        found = [
            node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        ]
        if self.length >= LONG:
            found = [node for node in found if "\nParameters\n" in (ast.get_docstring(node) or "")]
        return found

    @cached_property
    def imported(self) -> list[str]:
        """The modules that it imports, in alphabetical order."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module == "snippets":
                found |= {f"snippets.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
        return sorted(found)

    def packages(self) -> list[str]:
        """The packages, not of Python itself nor of this project, that it imports."""
        names = {name.partition(".")[0] for name in self.imported}
        return sorted(names - sys.stdlib_module_names - {"snippets"})

    def beside(self) -> list[str]:
        """The files below ``snippets/`` that it needs: other modules, and data beside it."""
        modules = [
            name.removeprefix("snippets.").replace(".", "/") + ".py"
            for name in self.imported
            if name.startswith("snippets.")
        ]
        root = self.project.root / "snippets"
        data = [
            path.relative_to(root).as_posix()
            for path in sorted(self.path.parent.glob("*.json"))
            if f'"{path.name}"' in self.text
        ]
        return [*modules, *data]


def modules(project: Project) -> list[Module]:
    """Every module below ``snippets/`` that holds code; packages' own files hold none."""
    root = project.root / "snippets"
    return [
        Module(project, path.relative_to(root).with_suffix("").as_posix())
        for path in sorted(root.rglob("*.py"))
        if path.name != "__init__.py"
    ]


def first_line(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """The first line of a docstring, empty where there is none."""
    return (ast.get_docstring(node) or "").partition("\n")[0]


def signature(node: ast.FunctionDef | ast.ClassDef) -> str:
    """How the function or class is called, as its source says."""
    # A default stands apart from its annotation.
    return re.sub(r"(?<![=!<>])=(?!=)", " = ", _called(node))


def _called(node: ast.FunctionDef | ast.ClassDef) -> str:
    if isinstance(node, ast.FunctionDef):
        returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        return f"{node.name}({ast.unparse(node.args)}){returned}"
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    for method in methods:
        if method.name == "__init__":
            arguments = copy.deepcopy(method.args)
            arguments.args = arguments.args[1:]  # less self
            return f"{node.name}({ast.unparse(arguments)})"
    # A dataclass is called with its fields.
    fields = [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)]
    dataclass_ = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    return f"{node.name}({', '.join(fields)})" if dataclass_ else node.name
