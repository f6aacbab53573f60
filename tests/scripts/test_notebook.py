from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from scripts.notebook import address, notebook
from scripts.page import read_page
from scripts.plain import read_plain
from scripts.project import Project
from scripts.settings import Settings
from tests.paste import pasted_cells

SITE = Project()
HERE, THERE = Settings("Name", "", ""), Settings("Name", "", "https://example.org/at/")


def made(page: str, project: Project = SITE, settings: Settings = HERE) -> Any:
    return nbformat.reads(
        notebook(project, read_plain(project, page), settings), as_version=nbformat.NO_CONVERT
    )


def recorded(cell: Any) -> str:
    return "".join(output.text for output in cell.outputs)


def differences(found: Any) -> list[str]:
    """What the code cells print, run in order as plain Python, where it is not on record."""
    cells = [cell for cell in found.cells if cell.cell_type == "code"]
    printed, error = pasted_cells([cell.source for cell in cells])
    assert error == ""
    right = ["".join(f"{line.rstrip()}\n" for line in text.splitlines()) for text in printed]
    return [a for cell, a in zip(cells, right, strict=True) if recorded(cell) != a]


@pytest.mark.parametrize("page", SITE.pages())
def test_a_notebook_prints_what_it_has_on_record(page: str) -> None:
    found = made(page)
    nbformat.validate(found)
    outputs = [d for d in read_page(SITE, page).directives if d.kind == "output"]
    assert sum(len(cell.get("outputs", [])) for cell in found.cells) == len(outputs)
    assert differences(found) == []


def test_an_altered_output_is_found(small_site: Project) -> None:
    assert differences(made("core/tiny", small_site)) == []
    path = small_site.markdown("core/tiny")
    text = path.read_text(encoding="utf-8")
    spoilt = re.sub(r"(?<=~~~text\n)", "x", text, count=1)
    assert spoilt != text
    path.write_text(spoilt, encoding="utf-8")
    assert len(differences(made("core/tiny", small_site))) == 1


@pytest.mark.parametrize("page", ["core/scaling", "practice/contract"])
def test_a_real_kernel_prints_the_same(page: str, tmp_path: Path) -> None:
    found = made(page)
    before = [recorded(cell) for cell in found.cells if cell.cell_type == "code"]
    client = NotebookClient(found, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    after = []
    for cell in found.cells:
        if cell.cell_type == "code":
            streams = [o.text for o in cell.outputs if o.output_type == "stream"]
            after.append("".join(f"{line.rstrip()}\n" for line in "".join(streams).splitlines()))
    assert after == before
    assert any(before)


def test_the_same_page_gives_the_same_bytes() -> None:
    first, second = (notebook(SITE, read_plain(SITE, "index"), HERE) for _ in range(2))
    assert first == second
    assert first.endswith("}\n")


def test_figures_are_inside_and_legible_in_the_dark() -> None:
    cells = [cell for cell in made("core/scaling").cells if "attachments" in cell]
    assert len(cells) == 4
    for cell in cells:
        for name, bundle in cell.attachments.items():
            assert f"](attachment:{name})" in cell.source
            drawn = base64.b64decode(bundle["image/svg+xml"]).decode()
            assert '<svg style="background:#fff" ' in drawn
            assert drawn.endswith("</svg>\n")
        assert ".svg#only" not in cell.source


def test_text_holds_nothing_that_a_notebook_does_not_show() -> None:
    for page in SITE.pages():
        for cell in made(page).cells:
            if cell.cell_type == "markdown":
                text = re.sub(r"(`+|~~~).*?\1", "", cell.source, flags=re.DOTALL)
                left = r"<(?:/?details|summary|data)\b|<!--|\]\((?!https:)[^)\s]*\.md[#)]"
                assert not re.search(left, text), text


@pytest.mark.parametrize(
    ("link", "here", "there"),
    [
        ("softmax.md#floors", "softmax.html#floors", "https://example.org/at/core/softmax.html#floors"),
        ("../index.md", "../index.html", "https://example.org/at/index.html"),
        ("#why", "scaling.html#why", "https://example.org/at/core/scaling.html#why"),
        ("../labs/scale.ipynb", "../labs/scale.html", "https://example.org/at/labs/scale.html"),
        ("numbers.json", "numbers.json", "https://example.org/at/core/numbers.json"),
        ("https://arxiv.org/abs/1", "https://arxiv.org/abs/1", "https://arxiv.org/abs/1"),
        ("attachment:a.svg", "attachment:a.svg", "attachment:a.svg"),
    ],
)  # fmt: skip
def test_links_lead_to_the_site(link: str, here: str, there: str) -> None:
    assert address(HERE, "core/scaling", link) == here
    assert address(THERE, "core/scaling", link) == there


def test_what_a_page_has_beside_it_is_written_by_the_first_code_cell() -> None:
    code = [cell for cell in made("practice/contract").cells if cell.cell_type == "code"]
    assert code[0].source.startswith('from pathlib import Path\n\nPath("contract.py")')
    assert code[0].metadata.jupyter.source_hidden
    assert "contract.py" not in code[1].source
