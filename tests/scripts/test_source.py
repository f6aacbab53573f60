from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from scripts.project import Project
from scripts.source import (
    Shown,
    SourceError,
    definition,
    definitions,
    example,
    imports,
    parse,
    whole,
)


def write(path: Path, text: str) -> None:
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")


def test_a_definition_is_its_text_with_decorators_and_comments(project: Project) -> None:
    write(
        project.root / "snippets" / "parts.py",
        '''
        """Parts."""
        import functools

        LIMIT: int = 4
        NAMES = [
            "q",  # queries
            "k",
        ]


        @functools.cache
        def double(x):
            """Twice."""

            # Not squared.
            return 2 * x  # exactly


        class Pair:
            left = 1


        one, two = 1, 2
        three = four = 3
        five = Pair.right = 2
        Pair.top: int = 3
        ''',
    )
    assert definition(project, "parts.LIMIT").code == "LIMIT: int = 4\n"
    assert definition(project, "parts.NAMES").code == (
        'NAMES = [\n    "q",  # queries\n    "k",\n]\n'
    )
    assert definition(project, "parts.double") == Shown(
        '@functools.cache\ndef double(x):\n    """Twice."""\n\n'
        "    # Not squared.\n    return 2 * x  # exactly\n",
        "snippets.parts",
        "double",
        frozenset({"functools", "x"}),
    )
    assert definition(project, "parts.Pair").code == "class Pair:\n    left = 1\n"
    lines = definitions(project.root / "snippets" / "parts.py")
    assert lines == {"LIMIT": 4, "NAMES": 5, "double": 12, "Pair": 19, "three": 24, "five": 25}
    for name, message in {
        "parts.half": "snippets/parts.py defines no half: it has LIMIT, NAMES, Pair, double, "
        "five, three",
        "none.half": "there is no module snippets/none.py: expected module.name",
        "half": "there is no module snippets/.py: expected module.name",
    }.items():
        with pytest.raises(SourceError) as refused:
            definition(project, name)
        assert str(refused.value) == message


def test_a_module_that_cannot_be_read_defines_nothing(project: Project) -> None:
    path = project.root / "snippets" / "parts.py"
    assert definitions(path) == {}
    path.write_text("def one(:\n", encoding="utf-8")
    assert definitions(path) == {}


BODIES = {
    "    x = 1\n    print(x)\n    return {'x': x}": "x = 1\nprint(x)\n",
    "    x = 1\n    return {\n        'x': x,\n    }": "x = 1\n",
    "    '''Say what.'''\n\n    x = 1\n": "x = 1\n",
    "    # First.\n    x = 1\n    # Last.\n    return {'x': x}": "# First.\nx = 1\n# Last.\n",
    "    for x in (1, 2):\n        print(x)\n\n    print()": (
        "for x in (1, 2):\n    print(x)\n\nprint()\n"
    ),
    "    x = 1  # one\n\n\n    print(x)": "x = 1  # one\n\n\nprint(x)\n",
    "    x = 1\n\n    return {'x': x}": "x = 1\n",
}


@pytest.mark.parametrize("body", BODIES)
def test_an_example_is_its_body_less_docstring_and_last_return(project: Project, body: str) -> None:
    (project.modules / "core").mkdir()
    project.module("core/my-page").write_text(f"def example_a():\n{body}\n", encoding="utf-8")
    shown = example(project, "core/my-page", "a")
    assert (shown.code, shown.module) == (BODIES[body], "snippets.pages.core.my_page")
    signature = "def example_a() -> dict[\n    str, int\n]:"
    project.module("core/my-page").write_text(f"{signature}\n{body}\n", encoding="utf-8")
    assert example(project, "core/my-page", "a").code == BODIES[body]


UNFIT = {
    "def example_b():\n    pass\n": "snippets/pages/page.py has no function example_a",
    "example_a = 1\n": "snippets/pages/page.py has no function example_a",
    "def example_a():\n    return {}\n": "example_a of snippets/pages/page.py has no line to show",
    "def example_a():\n    '''Doc.'''\n": "example_a of snippets/pages/page.py has no line to show",
    "def example_a(): print(1)\n": "example_a of snippets/pages/page.py has no line to show",
    "def example_a():\n    # One.\n    return {}\n": "example_a of snippets/pages/page.py has no "
    "line to show",
    **{
        f"def example_a({parameters}):\n    1\n": "example_a has a decorator or parameters, which "
        "no page shows"
        for parameters in ("n=1", "*, n=1", "n=1, /", "*n", "**n")
    },
    "@staticmethod\ndef example_a():\n    1\n": "example_a has a decorator or parameters",
    "def example_a():\n    if True:\n        return 1\n    1\n": "example_a does not run when "
    "pasted: 'return' outside function",
    "def example_a():\n    yield 1\n": "example_a does not run when pasted: 'yield' outside",
    "def example_a():\n    x = 1\n    '''\nless\n'''\n": "example_a does not run when pasted: "
    "unexpected indent",
    "def example_a(:\n": "page.py cannot be read: invalid syntax",
}


@pytest.mark.parametrize("text", UNFIT)
def test_an_example_that_cannot_be_shown_is_refused(project: Project, text: str) -> None:
    project.module("page").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError) as refused:
        example(project, "page", "a")
    assert str(refused.value).startswith(UNFIT[text])


def test_the_import_lines_are_those_that_the_code_needs(project: Project) -> None:
    write(
        project.root / "snippets" / "parts.py",
        """
        import math
        import os.path
        from collections.abc import Sequence, Callable

        import torch
        import torch.nn.functional as F
        from torch import Tensor, nn as modules

        from snippets.other import helper


        def one(x: Tensor, f: Callable) -> Tensor:
            return F.softmax(helper(x) * math.pi, -1)


        def two(x: Sequence) -> modules.Module:
            print(os.path)
            return torch.ones(x)
        """,
    )
    (project.root / "snippets" / "other.py").write_text(
        "def helper(x):\n    return x\n", encoding="utf-8"
    )
    helper = definition(project, "other.helper")
    one, two = definition(project, "parts.one"), definition(project, "parts.two")
    assert imports(project, [helper, one]) == (
        "import math\nfrom collections.abc import Callable\n\n"
        "import torch.nn.functional as F\nfrom torch import Tensor\n"
    )
    assert imports(project, [two, helper, one]) == (
        "import math\nimport os.path\nfrom collections.abc import Callable, Sequence\n\n"
        "import torch\nimport torch.nn.functional as F\nfrom torch import Tensor, nn as modules\n"
    )
    assert imports(project, [helper]) == ""
    # A function may use what stands below it.
    assert imports(project, iter([one, helper])) == imports(project, [helper, one])
    with pytest.raises(SourceError) as refused:
        imports(project, [one])
    assert str(refused.value) == (
        "the code uses helper, which this page does not show: "
        "put <!-- source: other.helper --> above it"
    )


def test_import_lines_stand_in_two_groups_in_their_order(project: Project) -> None:
    write(
        project.root / "snippets" / "parts.py",
        """
        import zlib
        from os.path import join, isdir as folder
        from abc import ABC

        import torch
        from numpy import ones, array
        from snippets.other import helper as help_me


        def one():
            return zlib, join, folder, ABC, torch, ones, array


        def two():
            return help_me
        """,
    )
    write(project.root / "snippets" / "other.py", "def helper():\n    pass\n")
    assert imports(project, [definition(project, "parts.one")]) == (
        "import zlib\nfrom abc import ABC\nfrom os.path import isdir as folder, join\n\n"
        "import torch\nfrom numpy import array, ones\n"
    )
    two = definition(project, "parts.two")
    assert imports(project, [two, definition(project, "other.helper")]) == ""
    with pytest.raises(SourceError) as refused:
        imports(project, [two])
    assert str(refused.value) == (
        "the code uses help_me, which this page does not show: "
        "put <!-- source: other.helper --> above it"
    )


def test_what_an_example_uses_stands_above_it(project: Project) -> None:
    project.module("page").write_text(
        "N = 4\n\n\ndef example_a():\n    print(N)\n", encoding="utf-8"
    )
    n, a = definition(project, "pages.page.N"), example(project, "page", "a")
    assert imports(project, [n, a]) == ""
    with pytest.raises(SourceError) as refused:
        imports(project, [a, n])
    assert str(refused.value) == (
        "the code uses N, which this page does not show until later: "
        "put <!-- source: pages.page.N --> above it"
    )


def test_what_the_reader_has_as_a_file_is_imported_from_it(project: Project) -> None:
    (project.root / "snippets" / "big.py").write_text("def one():\n    return 1\n", "utf-8")
    project.module("page").write_text(
        "import torch\n\nfrom snippets.big import one as only\n\n\n"
        "def example_a():\n    print(only() + torch.ones(1))\n",
        encoding="utf-8",
    )
    a = example(project, "page", "a")
    assert imports(project, [a], ["big"]) == "import torch\nfrom big import one as only\n"
    with pytest.raises(SourceError, match="which this page does not show"):
        imports(project, [a], ["bigger"])
    assert whole(project, "big") == "def one():\n    return 1\n"
    with pytest.raises(SourceError, match=r"there is no module snippets/bigger\.py"):
        whole(project, "bigger")


def test_a_text_is_parsed_once() -> None:
    assert parse("x = 1\n", "a.py") is parse("x = 1\n", "a.py")
    assert parse("x = 1\n", "a.py") is not parse("x = 2\n", "a.py")
