from __future__ import annotations

import pytest

from scripts import compare
from scripts.project import Project
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
