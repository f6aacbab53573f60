"""The pages of the site itself, against fresh runs of their code."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest
from pytest_codeblocks import extract_from_file

from scripts.fill import fill, is_counted, is_stated, needed_pages
from scripts.page import PYTHON_LINE, read_page
from scripts.project import HOME, Project, is_lab
from scripts.rounding import difference
from scripts.run import Settings, run_pages
from tests.paste import pasted

SITE = Project()
PAGES = SITE.pages()
LABS = [name for name in SITE.names() if is_lab(name)]
README = HOME / "README.md"
LIMIT = 1200  # seconds a page: these tests share the machine with others


def python(page: str) -> str:
    """The page's Python blocks as pytest-codeblocks joins them."""
    blocks = [block for block in extract_from_file(SITE.markdown(page)) if block.syntax == "python"]
    assert len(blocks) <= 1, f"{page} falls into {len(blocks)} programs"
    return blocks[0].code if blocks else ""


@pytest.mark.parametrize(
    ("instructions", "threads", "options"),
    [
        ("default", "1", []),
        ("default", "2", []),
        ("avx2", "1", []),
        ("avx2", "2", []),
        ("the machine's own", "1", []),
        ("the machine's own", "2", []),
        ("the machine's own", "1", ["--perturbed"]),
    ],
)
def test_every_page_is_what_a_fresh_run_gives(
    instructions: str, threads: str, options: list[str]
) -> None:
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": instructions, "OMP_NUM_THREADS": threads}
    if instructions == "the machine's own":
        del environment["ATEN_CPU_CAPABILITY"]
    command = [sys.executable, str(HOME / "scripts" / "build.py"), "--check", f"--limit={LIMIT}"]
    done = subprocess.run(
        [*command, *options],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    counts = f"checked {len(PAGES)} pages and {len(LABS)} labs: "
    assert done.stdout.startswith(counts), done.stdout


@pytest.mark.parametrize("page", PAGES)
def test_a_page_pasted_into_an_empty_file_prints_what_it_shows(page: str) -> None:
    taken = read_page(SITE, page)
    beside = [d.name for d in taken.directives if d.kind == "file"]
    outputs = [taken.text[d.start : d.end] for d in taken.directives if d.kind == "output"]
    expected = "".join(re.sub(r"\A~~~text\n|~~~\n\Z", "", output) for output in outputs)
    printed, error = pasted(python(page), beside)
    assert error == ""
    assert [line.rstrip() for line in printed.split("\n")] == expected.split("\n")


@pytest.mark.parametrize("page", PAGES + LABS)
def test_a_page_needs_torch_and_matplotlib_alone(page: str) -> None:
    needed = set()
    code = SITE.module(page).read_text(encoding="utf-8") if is_lab(page) else python(page)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            needed |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            needed.add((node.module or "").partition(".")[0])
    beside = {d.name for d in read_page(SITE, page).directives if d.kind == "file"}
    assert needed <= sys.stdlib_module_names | {"torch", "matplotlib", "numpy"} | beside


def test_every_python_block_is_a_test() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--numprocesses=0"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "docs", "README.md"],
        cwd=HOME,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    collected = {line for line in done.stdout.splitlines() if "::" in line}
    expected = set()
    for path in [*map(SITE.markdown, PAGES), README]:
        text = path.read_text(encoding="utf-8")
        lines = [text.count("\n", 0, match.end()) + 1 for match in PYTHON_LINE.finditer(text)]
        first = lines if path == README else lines[:1]  # a page's later blocks join its first
        expected |= {f"{SITE.relative(path)}::line {line}" for line in first}
    assert collected == expected, done.stdout + done.stderr
    assert len(expected) > 1


def test_no_digit_of_a_bound_number_can_be_altered() -> None:
    pages = [read_page(SITE, page) for page in PAGES]
    needed = sorted(set().union(*map(needed_pages, pages)))
    results = dict(run_pages(SITE, needed, Settings(limit=LIMIT)))
    assert {page: result.problem for page, result in results.items() if result.problem} == {}
    survived = []
    altered = 0
    for page in pages:
        filled = fill(SITE, page, results)
        measured = [b for b in page.bound if not is_stated(b.key) and not is_counted(b.key)]
        assert len(filled.numbers) == len(measured)
        for number in filled.numbers:
            text, where = number.bound.printed, f"{page.file}:{number.bound.line}"
            assert difference(text, number.value) is None, where
            for at, digit in enumerate(text):
                family = "⁰¹²³⁴⁵⁶⁷⁸⁹" if digit in "⁰¹²³⁴⁵⁶⁷⁸⁹" else "0123456789"
                for other in family.replace(digit, "") if digit in family else "":
                    changed = text[:at] + other + text[at + 1 :]
                    altered += 1
                    if difference(changed, number.value) is None:
                        survived.append(f"{where}: {text} as {changed}")
    assert survived == []
    assert altered
