from __future__ import annotations

import json
import re

import pytest

from scripts.counting import count_blocks, fill_counts
from scripts.fill import Block, Filled
from scripts.page import Directive, Page
from scripts.project import Project
from scripts.prose import Bound
from tests.spoil import alter, problems, said

INDEX = "docs/index.md"
KEYS = ("numbers", "outputs", "blocks", "tables", "figures", "pages")


@pytest.fixture
def counting(small_site: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The small site, with a line on its first page for each count, not yet filled."""
    monkeypatch.setattr("scripts.site.build_site", lambda _: [])
    path = small_site.root / INDEX
    lines = "".join(f'\n- {key}: <data value="site:{key}">0</data>' for key in KEYS)
    path.write_text(path.read_text(encoding="utf-8") + lines + "\n", encoding="utf-8")
    return small_site


def printed(project: Project) -> dict[str, int]:
    text = (project.root / INDEX).read_text(encoding="utf-8")
    return {key: int(n) for key, n in re.findall(r'"site:(\w+)">(\d+)<', text)}


def test_a_build_counts_what_the_pages_hold(counting: Project) -> None:
    assert said(counting)[0] == 0
    pages = [path.read_text(encoding="utf-8") for path in counting.docs.rglob("*.md")]
    text = "\n".join(pages)
    entries = json.loads((counting.root / "docs/numbers.json").read_text(encoding="utf-8"))
    assert printed(counting) == {
        "numbers": sum(entry["kind"] in ("measured", "as text") for entry in entries),
        "outputs": text.count("\n~~~text\n"),
        "blocks": text.count("\n```python\n"),
        "tables": text.count("<!-- table: "),
        "figures": text.count("#only-light"),
        "pages": len(pages),
    }
    counted = [entry for entry in entries if entry["kind"] == "counted"]
    assert [entry["value"] for entry in counted] == list(printed(counting).values())
    # Readers see this; where the code is says nothing to them.
    assert {entry["source"] for entry in counted} == {"the build, over all pages and labs"}
    assert said(counting, "--check")[0] == 0


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_count_is_caught(counting: Project, key: str) -> None:
    assert said(counting)[0] == 0
    right = printed(counting)[key]
    alter(counting, INDEX, f'"site:{key}">{right}<', f'"site:{key}">{right + 1}<')
    [found] = problems(counting, "--check")
    assert re.fullmatch(
        rf"{INDEX}:\d+: printed {right + 1}, measured {right}.* \(site:{key}\)", found
    )


def test_a_count_that_there_is_not_is_named(counting: Project) -> None:
    alter(counting, INDEX, "site:pages", "site:page")
    [found] = problems(counting)
    assert "nothing counts site:page: the site has pages, " in found


def test_counting_needs_all_pages(counting: Project) -> None:
    assert problems(counting, "--check", INDEX) == [
        f"{INDEX}:1: the page counts what all pages hold (site:): name no page"
    ]


def filled(
    name: str, *kinds: str, cells: tuple[str, ...] = (), keys: tuple[str, ...] = ()
) -> Filled:
    """A page of that name with blocks of these kinds and a number in a line for each key."""

    def blocks(kinds: tuple[str, ...]) -> list[Block]:
        return [Block(Directive(kind, "a", 1, 0, 0), "") for kind in kinds]

    page = Page(name, f"docs/{name}.md", "")
    page.bound = [Bound(key, "0", line, 0, 0) for line, key in enumerate(keys, 1)]
    return Filled(page, blocks=blocks(kinds), cells=blocks(cells))


def test_blocks_are_counted_by_kind_on_pages_and_labs() -> None:
    found = [
        filled("one", "imports", "source", "source", "example", "output", "table", "file"),
        filled(
            "labs/two", cells=("code", "code", "output", "output", "figure", "figure", "figure")
        ),
        filled("three", "example", "table", "tagged", "numbers", "planted"),
        filled("labs/four"),
    ]
    assert count_blocks(found) == {
        "pages": 2,
        "labs": 2,
        "blocks": 7,
        "outputs": 3,
        "tables": 2,
        "figures": 3,
    }


def test_a_count_is_given_where_the_page_names_it() -> None:
    one = filled("one", "output", "table", keys=("a.n", "site:outputs", "site:no", "site:numbers"))
    two = filled("two", "output", keys=("site:outputs", "given: x"))
    assert [str(problem) for problem in fill_counts([one, two], 12)] == [
        "docs/one.md:3: nothing counts site:no: the site has blocks, outputs, numbers, "
        "tables, pages, labs"
    ]
    assert [(n.bound.line, n.key, n.value) for n in one.numbers + two.numbers] == [
        (2, "site:outputs", 2),
        (4, "site:numbers", 12),
        (1, "site:outputs", 2),
    ]
