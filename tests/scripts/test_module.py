from __future__ import annotations

import ast

import pytest

from scripts.module import Module, modules, signature
from scripts.project import Project

SITE = Project()
CODE = '''\
"""One line.

More."""

import json
from pathlib import Path

import torch
from snippets import big
from snippets.pages.core.other import thing

DATA = Path(__file__).with_name("numbers.json")


def f(x: int, *, y: str = "a=b") -> list[int]:
    """First.

    Parameters
    ----------
    x : int
    """


def _g() -> None: ...


class C:
    def __init__(self, a: int = 1) -> None: ...
'''


@pytest.fixture
def module(project: Project) -> Module:
    root = project.root / "snippets"
    (root / "one.py").write_text(CODE, encoding="utf-8")
    for name in ("numbers.json", "others.json"):
        (root / name).write_text("{}", encoding="utf-8")
    return Module(project, "one")


def test_a_lab_is_described_by_its_head(project: Project) -> None:
    project.labs.mkdir()
    head = "# ---\n# description: What a lab is.\n# ---\n\n# %% [markdown]\n# # A lab\n"
    (project.labs / "one.py").write_text(head, encoding="utf-8")
    assert Module(project, "labs/one").summary == "What a lab is."


def test_a_module_tells_what_it_is_and_needs(module: Module) -> None:
    assert module.summary == "One line."
    assert module.length == CODE.count("\n")
    assert module.packages() == ["torch"]
    assert module.beside() == ["big.py", "pages/core/other.py", "numbers.json"]
    assert [node.name for node in module.public()] == ["f", "C"]
    assert module.page is None


def test_a_long_module_lists_what_it_documents_in_full(module: Module) -> None:
    module.path.write_text(CODE + "# more\n" * 2000, encoding="utf-8")
    assert [node.name for node in Module(module.project, "one").public()] == ["f"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(a: int | None = None, *, b: float = 1.0) -> int: ...",
         "f(a: int | None = None, *, b: float = 1.0) -> int"),
        ("def f(a, *rest): ...", "f(a, *rest)"),
        ("class C:\n    def __init__(self, a: int = 1) -> None: ...", "C(a: int = 1)"),
        ("@dataclass(frozen=True)\nclass C:\n    a: int\n    b: str", "C(a: int, b: str)"),
        ("class C(ValueError): ...", "C"),
    ],
)  # fmt: skip
def test_a_signature_is_how_the_source_says_it_is_called(code: str, expected: str) -> None:
    node = ast.parse(code).body[0]
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    assert signature(node) == expected
    assert signature(node) == expected  # looking changes nothing


def test_the_modules_are_the_files_that_hold_code() -> None:
    names = [module.name for module in modules(SITE)]
    assert "attention" in names
    assert "pages/core/scaling" in names
    assert not [name for name in names if name.endswith("__init__")]
    assert Module(SITE, "pages/core/head_layout").page == "core/head-layout"
