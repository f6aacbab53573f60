from __future__ import annotations

import json

import pytest

from scripts.project import Project
from tests.spoil import alter, problems, said, tree

LIST = "docs/numbers.md"
FILE = "docs/numbers.json"


@pytest.fixture(autouse=True)
def _without_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.site.build_site", lambda _: [])


FAULTS = {
    "a number in the list": (
        LIST,
        "| 0.667        | 0.667            |",
        "| 0.667        | 0.668            |",
        f"{LIST}:14: printed '| 0.667        | 0.668            |",
    ),
    "a function in the list": (
        LIST,
        "| 10000        | 10000            | 1             | measured | `table_powers`",
        "| 10000        | 10000            | 1             | measured | `table_primes`",
        f"{LIST}:13: printed '| 10000 ",
    ),
    "a number in the file": (
        FILE,
        '"printed": "38,000", "value": 38000',
        '"printed": "38,000", "value": 38001',
        f'{LIST}:3: line 4 of {FILE}: printed \'{{"page": "core/many-numbers", ',
    ),
    "a page that is not there": (
        LIST,
        "<!-- numbers: index -->",
        "<!-- numbers: core/index -->",
        f"{LIST}:29: <!-- numbers: core/index -->: no other page of that name prints a number: "
        "remove this",
    ),
    "the list itself": (
        LIST,
        "<!-- numbers: index -->",
        "<!-- numbers: numbers -->",
        f"{LIST}:29: <!-- numbers: numbers -->: no other page of that name prints a number: "
        "remove this",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_list_of_numbers_is_named(small_site: Project, fault: str) -> None:
    file, old, new, message = FAULTS[fault]
    alter(small_site, file, old, new)
    before = tree(small_site)
    found = problems(small_site, "--check")
    assert any(line.startswith(message) for line in found), found
    assert all(line.startswith(f"{LIST}:") for line in found), found
    assert tree(small_site) == before


def test_a_page_that_is_not_listed_is_named(small_site: Project) -> None:
    path = small_site.root / LIST
    listed, _, _ = path.read_text(encoding="utf-8").partition("<!-- numbers: index -->")
    path.write_text(listed, encoding="utf-8")
    assert problems(small_site, "--check") == [
        f"{LIST}:3: the numbers of docs/index.md are missing: add <!-- numbers: index -->"
    ]


def test_the_file_of_numbers_has_to_be_there_and_a_build_writes_it(small_site: Project) -> None:
    path = small_site.root / FILE
    text = path.read_text(encoding="utf-8")
    path.unlink()
    assert problems(small_site, "--check") == [f"{LIST}:3: {FILE} is missing: run scripts/build.py"]
    assert said(small_site)[0] == 0
    assert path.read_text(encoding="utf-8") == text


def test_the_file_holds_every_number_with_its_place_value_precision_and_function(
    small_site: Project,
) -> None:
    entries = json.loads((small_site.root / FILE).read_text(encoding="utf-8"))
    assert {entry["page"] for entry in entries} == {"core/many-numbers", "core/tiny", "index"}
    by_kind = {entry["kind"]: entry for entry in reversed(entries)}
    assert by_kind["given"]["source"] == "a width that models have"
    share = entries[0]
    assert share == {
        "page": "core/many-numbers",
        "place": "prose",
        "kind": "measured",
        "printed": "94 %",
        "value": 0.94,
        "last_place": 0.01,
        "noise": 1e-5,
        "source": "snippets/pages/core/many_numbers.py:example_kinds",
    }
    table = [entry["value"] for entry in entries if entry["place"] == "table: powers"]
    assert table == [10, 1, 10, 2, 100, 3, 1000, 4, 10000]
    [elsewhere] = [entry for entry in entries if entry["page"] == "index"]
    assert elsewhere["source"] == "snippets/pages/core/tiny.py:example_doubled"


def test_what_is_wrong_on_a_page_is_not_told_again_of_the_list(small_site: Project) -> None:
    alter(small_site, "snippets/pages/core/tiny.py", '"twice x": 4', '"twice x": 40')
    found = problems(small_site, "--check")
    assert [line.partition(":")[0] for line in found] == ["docs/core/tiny.md"]


def test_the_list_is_not_checked_without_the_pages_that_it_lists(small_site: Project) -> None:
    assert problems(small_site, "--check", "docs/numbers.md") == [
        f"{LIST}:1: the page lists the numbers of all others: name no page"
    ]
