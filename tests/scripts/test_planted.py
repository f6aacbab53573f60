from __future__ import annotations

import pytest

from scripts import compare
from scripts.fill import Filled
from scripts.page import read_page
from scripts.planted import plant_faults, planted_pages
from scripts.project import Project
from scripts.run import Results
from tests.spoil import alter, problems, said

PAGE = "docs/planted.md"
FIGURE = "docs/assets/figures/core/tiny/line-light.svg"
CAUGHT = {
    "core/tiny/number": (
        "docs/core/tiny.md\n"
        "- A third, doubled, is 0.67, and the formula is $y = 2x$.\n"
        "+ A third, doubled, is 0.68, and the formula is $y = 2x$.\n"
        "\n"
        "The check says:\n"
        "docs/core/tiny.md:3: printed 0.68, measured 0.67 (0.6666666667) "
        "(core/tiny:doubled.third)\n"
    ),
    "core/tiny/source": (
        "docs/core/tiny.md\n-     return 2 * x\n+     return 3 * x\n\nThe check says:\n"
        "docs/core/tiny.md:17: printed '    return 3 * x', measured '    return 2 * x' "
        "(<!-- source: tiny.double -->)\n"
    ),
    "core/tiny/output": (
        "docs/core/tiny.md\n- twice 0.333 is 0.667\n+ twice 0.333 is 0.668\n\nThe check says:\n"
        "docs/core/tiny.md:30: printed 'twice 0.333 is 0.668', measured 'twice 0.333 is 0.667' "
        "(<!-- output: doubled -->)\n"
    ),
    "core/tiny/table": (
        "docs/core/tiny.md\n- | two |         4 |\n+ | two |         5 |\n\nThe check says:\n"
        "docs/core/tiny.md:37: printed '| two |         5 |', measured '| two |         4 |' "
        "(<!-- table: doubles -->)\n"
    ),
    # Its only numbers are measured by another page.
    "index/number": (
        "docs/index.md\n"
        "- 0.67.\n"
        "+ 0.68.\n"
        "\n"
        "The check says:\n"
        "docs/index.md:4: printed 0.68, measured 0.67 (0.6666666667) (core/tiny:doubled.third)\n"
    ),
}


@pytest.fixture(autouse=True)
def _without_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.site.build_site", lambda _: [])


def write(project: Project, *names: str) -> None:
    text = "# Planted\n" + "".join(f"\n<!-- planted: {name} -->\n" for name in names)
    (project.root / PAGE).write_text(text, encoding="utf-8")


def test_a_planted_fault_is_shown_with_what_the_check_says(small_site: Project) -> None:
    write(small_site, *CAUGHT)
    others = {path: path.read_bytes() for path in small_site.docs.rglob("*.*")}
    assert said(small_site, PAGE)[0] == 0
    assert (small_site.root / PAGE).read_text(encoding="utf-8") == "# Planted\n" + "".join(
        f"\n<!-- planted: {name} -->\n~~~text\n{block}~~~\n" for name, block in CAUGHT.items()
    )
    for path, content in others.items():
        assert path.name == "planted.md" or path.read_bytes() == content
    assert said(small_site, "--check")[0] == 0
    assert said(small_site, "--check", PAGE)[0] == 0
    for old, new in (("0.668'", "0.669'"), ("- | two |         4 |", "- | two |         3 |")):
        alter(small_site, PAGE, old, new)
        [found] = problems(small_site, "--check", PAGE)
        assert new in found
        assert "(<!-- planted: core/tiny/" in found
        alter(small_site, PAGE, new, old)


def test_a_fault_in_a_figure_is_one_coordinate_of_the_drawing(small_site: Project) -> None:
    drawn = (small_site.root / FIGURE).read_text(encoding="utf-8")
    write(small_site, "core/tiny/figure")
    assert said(small_site, PAGE)[0] == 0
    assert (small_site.root / FIGURE).read_text(encoding="utf-8") == drawn
    lines = (small_site.root / PAGE).read_text(encoding="utf-8").splitlines()
    [file, before, after, _, _, check] = lines[4:-1]
    assert file == FIGURE
    number = drawn.splitlines().index(before.removeprefix("- ")) + 1
    assert sum(a != b for a, b in zip(before[2:], after[2:], strict=True)) == 1
    assert check == (
        f"docs/core/tiny.md:39: line {number} of {FIGURE}: "
        f"printed {after[2:]!r}, measured {before[2:]!r}"
    )


def test_a_fault_that_cannot_be_planted_is_named(small_site: Project) -> None:
    expected = (
        "expected a page and one of number, source, example, output, table, figure, as in "
        "core/page/number"
    )
    for name, message in {
        "core/tiny/digit": expected,
        "core/gone/number": expected,
        "number": expected,
        "index/table": "docs/index.md has no table with a digit",
    }.items():
        write(small_site, name)
        assert problems(small_site, "--check", PAGE)[0] == (
            f"{PAGE}:3: <!-- planted: {name} -->: {message}"
        )


def test_a_fault_that_the_check_does_not_see_fails(
    small_site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(small_site, "core/tiny/output")
    monkeypatch.setattr(compare, "differences", lambda *_: [])
    assert problems(small_site, PAGE)[0] == (
        f"{PAGE}:3: <!-- planted: core/tiny/output -->: the check does not see "
        "'twice 0.333 is 0.668' in place of 'twice 0.333 is 0.667'"
    )


DRAWING = '<?xml 1?>\n<path d="M 1 2\n  M 3 4\nL 5.25 69.5\nL 7 8\n'
RESULTS = {
    "core/a": Results(
        outputs={"a": "x 1.2 y\nz\n", "none": "no digit\n"},
        values={"a.n": (0.19, 0.0), "a.word": "KeyError"},
        tables={"t": [{"n": "7"}, {"n": "x"}]},
        figures={"f": {"alt": "One", "light": DRAWING, "dark": DRAWING.replace("69.5", "70")}},
    )
}
FAULTY = """\
# A

It raises <data value="a.word">KeyError</data>,
of <data value="a.n">0.19</data> in 3.

Again <data value="a.n">0.19</data>.

<!-- output: none -->
~~~text
old
~~~

<!-- output: a -->

<!-- table: t -->

<!-- figure: f -->
"""
SHOWN = {
    # The last digit of the first block that has one; 9 becomes 0.
    "number": (
        "docs/core/a.md\n- of 0.19 in 3.\n+ of 0.10 in 3.\n\nThe check says:\n"
        "docs/core/a.md:4: printed 0.10, measured 0.19 (core/a:a.n)\n"
    ),
    "output": (
        "docs/core/a.md\n- x 1.2 y\n+ x 1.3 y\n\nThe check says:\n"
        "docs/core/a.md:15: printed 'x 1.3 y', measured 'x 1.2 y' (<!-- output: a -->)\n"
    ),
    "table": (
        "docs/core/a.md\n- | 7   |\n+ | 8   |\n\nThe check says:\n"
        "docs/core/a.md:22: printed '| 8   |', measured '| 7   |' (<!-- table: t -->)\n"
    ),
    "figure": (
        "docs/assets/figures/core/a/f-light.svg\n- L 5.25 69.5\n+ L 5.25 69.6\n\nThe check says:\n"
        "docs/core/a.md:25: line 4 of docs/assets/figures/core/a/f-light.svg: "
        "printed 'L 5.25 69.6', measured 'L 5.25 69.5'\n"
    ),
}


def plant(project: Project, *names: str) -> tuple[list[str], list[str]]:
    """What is wrong with a page on which each planted directive has a line, and its blocks."""
    (project.docs / "core").mkdir(exist_ok=True)
    project.markdown("core/a").write_text(FAULTY, encoding="utf-8")
    text = "<!-- table: t -->\n" + "".join(f"<!-- planted: {name} -->\n" for name in names)
    project.markdown("page").write_text(text, encoding="utf-8")
    filled = Filled(read_page(project, "page"))
    wrong = [str(problem) for problem in plant_faults(project, filled, RESULTS)]
    assert [str(b.directive) for b in filled.blocks] == [
        f"<!-- planted: {name} -->"
        for n, name in enumerate(names, 2)
        if not any(problem.startswith(f"docs/page.md:{n}:") for problem in wrong)
    ]
    return wrong, [block.text for block in filled.blocks]


def test_a_fault_is_planted_in_what_the_page_should_hold(project: Project) -> None:
    wrong, blocks = plant(project, *(f"core/a/{kind}" for kind in SHOWN))
    assert wrong == []
    for block, kind in zip(blocks, SHOWN, strict=True):
        assert block == f"~~~text\n{SHOWN[kind]}~~~\n"
    assert project.markdown("core/a").read_text(encoding="utf-8") == FAULTY
    assert planted_pages(read_page(project, "page")) == {"core/a"}


def test_a_directive_that_plants_nothing_leaves_the_others(project: Project) -> None:
    expected = (
        "expected a page and one of number, source, example, output, table, figure, as in "
        "core/page/number"
    )
    wrong, [block] = plant(
        project, "core/a/digit", "core/b/number", "core/a/source", "core/a/number", "page/number"
    )
    assert wrong == [
        f"docs/page.md:2: <!-- planted: core/a/digit -->: {expected}",
        f"docs/page.md:3: <!-- planted: core/b/number -->: {expected}",
        "docs/page.md:4: <!-- planted: core/a/source -->: "
        "docs/core/a.md has no source with a digit",
        "docs/page.md:6: <!-- planted: page/number -->: docs/page.md has faults of its own, told "
        "there",
    ]
    assert block == f"~~~text\n{SHOWN['number']}~~~\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [("# A", "# A\n\n<!-- hidden -->"), ("output: a", "output: b"), ("a.n", "core/b:a.n")],
)
def test_nothing_is_planted_in_a_page_with_faults(project: Project, old: str, new: str) -> None:
    (project.docs / "core").mkdir()
    project.markdown("core/a").write_text(FAULTY.replace(old, new), encoding="utf-8")
    project.markdown("page").write_text("<!-- planted: core/a/table -->\n", encoding="utf-8")
    filled = Filled(read_page(project, "page"))
    assert [str(problem) for problem in plant_faults(project, filled, RESULTS)] == [
        "docs/page.md:1: <!-- planted: core/a/table -->: docs/core/a.md has faults of its own, "
        "told there"
    ]
    assert filled.blocks == []


def test_the_first_point_of_a_drawing_may_open_its_path(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    light = '\n<path d="\nM 1 20 \nL 3 4"/>\n'  # a line of it ends with a space
    drawn = {"alt": "One", "light": light, "dark": light}
    monkeypatch.setattr(RESULTS["core/a"], "figures", {"f": drawn})
    wrong, [block] = plant(project, "core/a/figure")
    assert wrong == []
    assert "\n- M 1 20\n+ M 1 21\n\nThe check says:\ndocs/core/a.md:25: line 3 of " in block


def test_nothing_is_planted_in_a_page_whose_module_gave_nothing(project: Project) -> None:
    (project.modules / "core").mkdir()
    project.module("core/b").write_text("def example_b():\n    print(1)\n", encoding="utf-8")
    (project.docs / "core").mkdir()
    project.markdown("core/b").write_text("# B\n\n<!-- example: b -->\n", encoding="utf-8")
    wrong, blocks = plant(project, "core/b/example")
    assert wrong == [
        "docs/page.md:2: <!-- planted: core/b/example -->: docs/core/b.md has faults of its own, "
        "told there"
    ]
    assert blocks == []


def test_a_fault_that_no_comparison_names_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "differences", lambda *_: [])
    wrong, blocks = plant(project, "core/a/output")
    assert wrong == [
        "docs/page.md:2: <!-- planted: core/a/output -->: the check does not see 'x 1.3 y' "
        "in place of 'x 1.2 y'"
    ]
    assert blocks == []
