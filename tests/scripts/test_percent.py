from __future__ import annotations

import hashlib

import pytest

from scripts.percent import Cell, LabError, digest, prose_of, read_cells, with_prose
from scripts.project import HOME

SMALL = (HOME / "tests" / "small_lab" / "rise.py").read_text(encoding="utf-8")
SCRIPT = """\
# ---
# tags: [learn]
# ---

# %% [markdown]
# # Title
#
# Text.

# %%

x = 1
# no prose

# %% figure="line" alt="A \\"b\\"."
plot(x)

# %% table="rows"
rows = []

"""


def test_a_script_is_read_cell_by_cell() -> None:
    assert read_cells(SCRIPT) == [
        Cell("markdown", "", "", "# Title\n\nText.", 5, 6),
        Cell("code", "", "", "x = 1\n# no prose", 10, 12),
        Cell("figure", "line", 'A "b".', "plot(x)", 15, 16),
        Cell("table", "rows", "", "rows = []", 18, 19),
    ]


def test_the_prose_is_the_head_and_the_markdown() -> None:
    lines = prose_of(SCRIPT).split("\n")
    assert {number: line for number, line in enumerate(lines, 1) if line} == {
        1: "---",
        2: "tags: [learn]",
        3: "---",
        6: "# Title",
        8: "Text.",
    }
    assert len(lines) == len(SCRIPT.split("\n"))
    # Without a head, what stands above the first cell is code; a marker may end with spaces.
    assert prose_of("# one\n# %% [markdown]  \n#two\n# %%x\n# %%\n# three\n") == (
        "\n\ntwo\n%%x\n\n\n"
    )
    assert prose_of("# --- \n# one\n# %% [markdown] x\n# two") == "\n\n\n"


def test_prose_is_put_back_and_nothing_else() -> None:
    prose = prose_of(SCRIPT).replace("Text.", "").replace("# Title", "# Name").split("\n")
    prose[11] = prose[8] = "lost"  # code, and a line that was empty
    assert with_prose(SCRIPT, "\n".join(prose)) == (
        SCRIPT.replace("# Text.", "#").replace("# # Title", "# # Name")
    )
    with pytest.raises(ValueError, match="shorter"):
        with_prose(SCRIPT, "one")


def test_prose_is_taken_out_and_put_back_line_by_line() -> None:
    prose = prose_of(SMALL)
    assert [line for line in prose.split("\n") if "import" in line or "%%" in line] == []
    assert prose.split("\n")[7] == "# A line that rises"
    assert with_prose(SMALL, prose) == SMALL
    assert "# # A line that sinks" in with_prose(SMALL, prose.replace("rises", "sinks"))


def test_the_digest_is_of_the_code() -> None:
    assert digest(SMALL) == digest(SMALL.replace("# Half", "# One half"))
    assert digest(SMALL) == digest(SMALL.replace("rises from zero", "rises"))
    assert digest(SMALL) != digest(SMALL.replace("x / 2\nhalf", "x / 3\nhalf"))
    assert digest(SMALL) != digest(SMALL.replace('table="halves"', ""))


def test_cells_know_their_lines() -> None:
    lines = SMALL.split("\n")
    for cell in read_cells(SMALL):
        assert lines[cell.line - 1].startswith("# %%")
        assert lines[cell.first - 1].removeprefix("# ") == cell.source.split("\n")[0]
    wider = SMALL.replace("\n# %% table", "\n\n\n# %% table")
    assert [cell.source for cell in read_cells(wider)] == [c.source for c in read_cells(SMALL)]
    with pytest.raises(LabError, match="reads 0 cells"):
        read_cells("")


WRONG = {
    "": (1, "0 lines begin with # %%, but jupytext reads 0 cells: "),
    "x = 1\n# %% [markdown]\n# # T\n": (1, "1 lines begin with # %%, but jupytext reads 2 cells: "),
    "# %% [markdown]\n# # T\nx = 1\n": (3, "the line of prose 'x = 1' should begin with #"),
    "# ---\n# tags: [a]\n# ---\n# %%\nx = 1\n": (
        4,
        "a lab begins with a cell # %% [markdown] that opens: # # Title",
    ),
    "# %%\n# T\nx = 1\n": (1, "a lab begins with a cell # %% [markdown] that opens: # # Title"),
    "# %% [markdown]\n# T\n\n# %%\nx\n": (
        1,
        "a lab begins with a cell # %% [markdown] that opens: # # Title",
    ),
    "# %% [markdown]\n# T\n": (1, "a lab begins with a cell # %% [markdown] that opens: # # Title"),
}
TITLE = "# %% [markdown]\n# # T\n\n"
FORM = (
    "the cell {} should be # %%, # %% [markdown], "
    '# %% figure="name" alt="What it shows." or # %% table="name"'
)
WRONG |= {
    f"{TITLE}{marker}\nx = 1\n": (4, FORM.format(marker))
    for marker in (
        *('# %% figure="a"', '# %% table="a" alt="b"', '# %% alt="a"', '# %% figure="" alt="a"'),
        *('# %% figure="a" alt=""', '# %% figure="a" table="b" alt="c"', '# %% other="a"'),
        *('# %% table=""', '# %% table="a" figure="b"'),
    )
}
WRONG |= {
    f'{TITLE}# %% [markdown] table="a"\n# x\n': (
        4,
        "a cell of Markdown is neither a figure nor a table",
    ),
    f"{TITLE}# %%\n\n# %%\nx = 1\n": (4, "the cell is empty: delete it"),
    f'{TITLE}# %% table="a"\nx = 1\n# %% table="b"\nx\n# %% figure="a" alt="b"\nx\n': (
        8,
        "the name a is given twice: rename one of them",
    ),
}


@pytest.mark.parametrize("script", WRONG)
def test_a_script_that_is_no_lab_is_refused_with_its_line(script: str) -> None:
    line, message = WRONG[script]
    with pytest.raises(LabError) as refused:
        read_cells(script)
    assert (refused.value.line, str(refused.value)[: len(message)]) == (line, message)


def test_the_digest_leaves_out_what_is_only_shown() -> None:
    changed = SCRIPT.replace("Text", "Other").replace("learn", "test")
    assert digest(changed) == digest(SCRIPT)
    for alt in ("", "A", r"A \"c\" d", r"A \\"):
        assert digest(SCRIPT.replace(r"A \"b\".", alt)) == digest(SCRIPT), alt
    for old, new in (("x = 1", "x = 2"), ("line", "row"), ("# no prose", ""), ("\n\nx", "\nx")):
        assert digest(SCRIPT.replace(old, new)) != digest(SCRIPT), old
    turned = '# %% alt="A" figure="{}" \n'  # the name stands behind the alternative text
    assert digest(turned.format("a")) != digest(turned.format("b"))
    assert digest("x = 1") == hashlib.sha256(b"x = 1").hexdigest()
    assert digest("x\ny") == hashlib.sha256(b"x\ny").hexdigest()
