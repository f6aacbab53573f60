"""What no run can prove: numbers in prose that nothing binds, and functions that no page shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from scripts import source
from scripts.fill import is_stated
from scripts.page import Page
from scripts.project import LABS, Problem, Project, is_lab
from scripts.run import Results

_NUMERAL = re.compile(
    r"(?<![\w.])[-−+]?(?:"
    r"(?:\d[\d,]*)?[.·]\d+(?:[eE][-+]?\d+)?|\d+,\d{1,2}(?!\d)"  # a decimal
    r"|\d[\d,]*(?:[eE][-+]?\d+|\s?×\s?10)|10\s?[\^⁻⁰¹²³⁴⁵⁶⁷⁸⁹]"  # in scientific notation
    r"|\d[\d,]*\s?(?:%|‰|percent\b|per\scent\b)"  # a percentage
    r"|\d[\d,]*\s?(?:×|x\b|times\b|-?fold\b)"  # a multiple
    r"|\d{3,}|\d{1,3}(?:,\d{3})+"  # an integer of 100 or more
    r")"
)
_VERSION = re.compile(
    r"(?:\b(?:[Vv]ersions?|PyTorch|torch|Python|NumPy|Matplotlib|CUDA|KaTeX|MkDocs|Material|v)\s?)"
    r"\d+(?:\.\d+)*(?:(?:,| and| or| to)\s\d+(?:\.\d+)+)*|(?<![\w.])\d+\.\d+\.\d+(?!\.?\w)"
)
_DATE = re.compile(
    r"\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November|"
    r"December) \d{4}\b"
)
_CITED = re.compile(r"cited:\s*#?([\w-]+)")


def unbound_numbers(page: Page) -> Iterator[Problem]:
    """Numbers in the page's prose that are neither bound, cited, given nor derived."""
    for first, prose in page.prose:
        text = prose
        for free in (_VERSION, _DATE):
            text = free.sub(lambda match: " " * len(match[0]), text)
        for match in _NUMERAL.finditer(text):
            line = first + text.count("\n", 0, match.start())
            yield Problem(
                page.file,
                line,
                f"the number {match[0]} is bound to nothing: write "
                f'<data value="example.name">{match[0]}</data>, or cited:, given: or '
                "derived: with its source or reason in place of the name",
            )


def stated_numbers(page: Page) -> Iterator[Problem]:
    """Stated numbers without a reason, or cited from a source that the page does not list."""
    for bound in page.bound:
        if not is_stated(bound.key):
            continue
        kind, _, reason = bound.key.partition(":")
        if not reason.strip():
            yield Problem(page.file, bound.line, f"{bound.printed} is {kind}, but no reason stands")
        elif kind == "cited":
            match = _CITED.fullmatch(bound.key)
            if match is None or match[1] not in page.anchors:
                yield Problem(
                    page.file,
                    bound.line,
                    f"{bound.printed} cites {reason.strip()}, which is no anchor of this page: "
                    f"give the source a last line {{ #{reason.strip()} }}",
                )


def unshown(project: Project, page: Page, results: Results) -> Iterator[Problem]:
    """Functions of the page's module that the page does not show, and outputs left out."""
    if is_lab(page.name):
        return
    module = project.module(page.name)
    shown = {(d.kind, d.name): d.line for d in page.directives}
    lines = source.definitions(module)
    ran: dict[str, Collection[str]]
    ran = {"example": results.outputs, "table": results.tables, "figure": results.figures}
    functions = {f"{kind}_{name}" for kind, names in ran.items() for name in names}
    for function in sorted(functions | set(lines)):
        kind, _, name = function.partition("_")
        if kind in ran and name and (kind, name) not in shown:
            yield Problem(
                project.relative(module),
                lines.get(function, 1),
                f"{page.file} shows no <!-- {kind}: {name} -->: show it there or delete {function}",
            )
    for name, printed in results.outputs.items():
        line = shown.get(("example", name))
        if line and printed.strip() and ("output", name) not in shown:
            yield Problem(
                page.file, line, f"example_{name} prints, but no <!-- output: {name} --> shows it"
            )


def strays(project: Project, pages: list[str]) -> Iterator[Problem]:
    """Modules without a page, labs without a script, and pages that only the generator knows."""
    for path in sorted(project.docs.rglob("*")):
        if path.suffix in (".markdown", ".mdown", ".mkdn", ".mkd"):
            yield Problem(
                project.relative(path), 1, "the page is never checked: end its name in .md"
            )
        elif path.suffix == ".ipynb" and path not in {project.notebook(page) for page in pages}:
            yield Problem(
                project.relative(path),
                1,
                f"the notebook has no script: write one in {project.relative(project.labs)} or "
                "delete the notebook",
            )
        elif path.suffix == ".md" and path.parent == project.docs / LABS:
            yield Problem(project.relative(path), 1, "this folder is for notebooks: move the page")
    known = {project.module(page) for page in pages}
    for module in sorted(project.modules.rglob("*.py")):
        if module not in known and module.name != "__init__.py":
            page = module.relative_to(project.modules).with_suffix(".md").as_posix()
            yield Problem(
                project.relative(module),
                1,
                f"the module has no page: write docs/{page.replace('_', '-')} or delete the module",
            )
