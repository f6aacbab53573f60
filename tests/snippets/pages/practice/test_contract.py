"""The page on the contract: what it says to type is typed here, and its tables are complete."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch.nn.functional as F

from scripts.project import Project
from snippets import contract
from snippets.pages.practice import contract as page

SITE = Project()
TEXT = SITE.markdown("practice/contract").read_text(encoding="utf-8")
CODE = """import math

{attend}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder: the file that the page offers, and the function that it shows."""
    shutil.copy(SITE.root / "snippets" / "contract.py", tmp_path)
    shown = re.search(r"^def attend\(.*?(?=^```)", TEXT, re.MULTILINE | re.DOTALL)
    assert shown
    (tmp_path / "my_attention.py").write_text(CODE.format(attend=shown[0]), encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command_lines_of_the_page(folder: Path) -> None:
    commands = re.findall(r"^\$ python (-m contract .*)$", TEXT, re.MULTILINE)
    wrong, right = (run(folder, *command.split()) for command in commands)
    assert wrong[0] == 1
    assert wrong[1].startswith("attend: 3 failed, ")
    assert right[0] == 0
    assert right[1].startswith("MultiheadAttention: 0 failed, ")
    assert run(folder, "-m", "contract", "my_attention:nothing")[0] == 2


def test_the_test_file_of_the_page(folder: Path) -> None:
    block = r'^~~~python title="(.*?)"\n(.*?)^~~~\n\n~~~console\n\$ pytest (\S*)\n~~~'
    shown = re.search(block, TEXT, re.MULTILINE | re.DOTALL)
    assert shown, "the page shows no file of tests with the command that runs it"
    assert shown[1] == shown[3]
    (folder / shown[1]).write_text(shown[2], encoding="utf-8")
    code, out = run(folder, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", shown[1])
    assert code == 1
    failures = contract.check_attention(page.attend, mask="hide").failures
    failed = re.findall(r"^FAILED test_attention\.py::test_contract\[(\w+)\]", out, re.MULTILINE)
    assert tuple(failed) == failures
    assert {"scale", "mask_after_softmax"} < set(failures)
    assert "3 failed, " in out
    assert " skipped" in out


def test_no_page_shows_another_file_to_save() -> None:
    """The build runs no such file: a new one needs a test like the one above."""
    texts = [SITE.markdown(name).read_text(encoding="utf-8") for name in SITE.pages()]
    titled = [file for text in texts for file in re.findall(r'^~~~.*title="(.*)"', text, re.M)]
    assert titled == ["test_attention.py"]


def test_every_check_names_a_page_of_the_site() -> None:
    pages = {where for checks in contract.CHECKS.values() for _, where in checks.values()}
    assert pages <= set(SITE.pages())
    assert page.linked("core/empty-rows") == "[empty rows](../core/empty-rows.md)"
    assert page.linked("practice/bugs-masks") == "[bugs masks](bugs-masks.md)"


@pytest.mark.parametrize("kind", page.SUBJECTS)
def test_every_setting_is_described(kind: str) -> None:
    described = page.described(page.SUBJECTS[kind])
    fields = dataclasses.fields(page.SUBJECTS[kind])
    found_out = {"detected", "dtype", "same_lengths", "needs_mask", "found", "reseeded"}
    settings = [f.name for f in fields if f.init and f.name not in found_out]
    assert set(settings) - set(described) == set()
    assert all(meaning for _, meaning in described.values())


EXAMPLES = {
    "polarity": "mask_polarity",
    "axis": "softmax_axis",
    "summed": "masks_summed",
    "dropout": "dropout_in_evaluation",
    "tiled": "grouped_heads",
    "split": "head_split",
    "rotary": "pairs_mixed",
    "cache": "chunks_differ",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_mistake_is_found_by_the_check_that_the_page_prints(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = getattr(page, f"example_{name}")()["failed"]
    assert EXAMPLES[name] in failed.split(", ")
    assert capsys.readouterr().out.startswith(f"FAIL {EXAMPLES[name]}: ")


def test_what_the_page_takes_for_right_code_is_right() -> None:
    assert contract.check_attention(page.mended, mask="hide").failures == ()
    assert contract.check_attention(F.scaled_dot_product_attention).failures == ()
    assert contract.check_multi_head(page.Hidden(), mask="attend").failures == ()
    assert contract.check_positions(page.rotary, base=10000.0).failures == ()
    assert contract.check_positions(page.alibi, slopes="paper").failures == ()
    assert contract.check_cache(page.attend_step).failures == ()


def test_text_of_the_contract_stands_in_a_table_as_it_is_written() -> None:
    assert page.plain("``f(q, k)`` of base ** 2, a < b") == "`f(q, k)` of base \\*\\* 2, a &lt; b"
    assert page.plain("SIGNATURES[scheme]") == "`SIGNATURES[scheme]`"
    assert "(B, Tk)" in page.plain("one of MASK_SHAPES")
