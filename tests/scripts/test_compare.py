from __future__ import annotations

import pytest

from scripts import compare
from scripts.fill import fill
from scripts.page import read_page
from scripts.project import Project
from scripts.run import Results


def told(project: Project, printed: str, measured: str, units: int = 0) -> list[tuple[int, str]]:
    """Differences of an output, whose first line is the page's line 4."""
    text = f"# A page\n\n<!-- output: a -->\n~~~text\n{printed}~~~\n"
    project.markdown("page").write_text(text, encoding="utf-8")
    filled = fill(project, read_page(project, "page"), {"page": Results(outputs={"a": measured})})
    found = compare.differences(project, filled, units)
    return [(p.line, p.message.removesuffix(" (<!-- output: a -->)")) for p in found]


def test_a_changed_line_is_named_with_both_texts(project: Project) -> None:
    assert told(project, "one\ntwo\nthree\n", "one\n2\nthree\n") == [
        (6, "printed 'two', measured '2'")
    ]
    assert told(project, "one\ntwo\n", "1\n2\n") == [
        (5, "printed 'one', measured '1'"),
        (6, "printed 'two', measured '2'"),
    ]


def test_lines_too_many_and_too_few_are_named_where_they_stand(project: Project) -> None:
    assert told(project, "one\ntwo\nthree\n", "one\nthree\n") == [
        (6, "printed 'two', measured nothing")
    ]
    assert told(project, "one\nthree\n", "one\ntwo\nthree\n") == [
        (6, "printed nothing, measured 'two'")
    ]
    assert told(project, "one\n", "one\ntwo\nthree\n") == [
        (6, "printed nothing, measured 'two'"),
        (6, "printed nothing, measured 'three'"),
    ]


def test_what_is_equal_has_no_difference(project: Project) -> None:
    assert told(project, "one\n\n two\n", "one\n\n two\n") == []
    assert told(project, "one \n", "one \n") == [(5, "printed 'one ', measured 'one'")]
    assert told(project, "0.50\n", "0.5\n") == [(5, "printed '0.50', measured '0.5'")]


GPU = {
    ("x = 0.123", "x = 0.124"): True,
    ("x = 0.123", "x = 0.125"): False,
    ("x = 0.123", "x = 0.1230"): False,
    ("x = 0.123", "y = 0.123"): False,
    ("x = 0.123", "x = 0.123 s"): False,
    ("−0.001 and 1,000", "0.000 and 1,000"): True,
    ("0.001 and 1,000", "0.001 and 1,001"): False,
    ("0 1 1", "1 1 1"): False,
    ("1.9e-22", "2.0e-22"): True,
    ("1.9e-22", "1.9e-21"): False,
    ("1 2", "1 2 3"): False,
    ("[0.1, 0.2]", "[0.1,  0.2]"): True,
    ("True", "False"): False,
}


@pytest.mark.parametrize(("printed", "measured"), GPU)
def test_on_a_gpu_numbers_may_be_one_unit_off_and_nothing_else(
    project: Project, printed: str, measured: str
) -> None:
    assert (told(project, f"{printed}\n", f"{measured}\n", units=1) == []) == GPU[printed, measured]
    assert told(project, f"{printed}\n", f"{measured}\n") != []
