from __future__ import annotations

import json

import pytest

from scripts.fill import Block, Filled, Number
from scripts.listing import list_numbers
from scripts.page import Directive, take_apart
from scripts.project import Project
from scripts.run import Results
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


ONE = """\
Of <data value="a.n">0.50</data>, <data value="a.word">KeyError</data>,
<data value="t.n">1</data> and <data value="given: a
  usual width">512</data>, <data value="site:pages">0</data>,
<data value="a.refused">1.5</data>, <data value="a.huge">1e+20</data>,
<data value="a.most">0</data>, <data value="core/two:b.n">1.5</data>,
<data value="site:numbers">0</data>.
"""
VALUES = {
    "a.n": (0.503, 1e-3),
    "a.word": "KeyError",
    "t.n": 7,
    "a.refused": True,
    "a.huge": (1.2e20, 0.0),
    "a.most": 10**15,
    "core/two:b.n": (2.5, 0.0),
}
PRINTED = "0.5, 1,000 and −3 of 7 % or +1e-5: x3, v2.5.1, 2x, 1.2.3, a.4, 12"
PRINTED += "; 1,234,567 2E5 3e12 8% 600000000000000"


def pages_of_numbers(listed: str) -> list[Filled]:
    """A page, a lab and an empty page, all filled, and a page that lists their numbers."""
    found = []
    for name, text in {"core/one": ONE, "labs/rise": "", "core/two": "", "numbers": listed}.items():
        file = f"snippets/{name}.py" if name == "labs/rise" else f"docs/{name}.md"
        page = take_apart(name, file, text)
        assert page.problems == []
        found.append(Filled(page))
    one, lab, *_ = found
    keys = [bound.key for bound in one.page.bound if bound.key in VALUES]
    one.numbers = [
        Number(bound, bound.key if ":" in bound.key else f"core/one:{bound.key}", VALUES[bound.key])
        for bound in one.page.bound
        if bound.key in keys
    ]
    one.blocks = [
        Block(Directive("example", "a", 1, 0, 0), "print(100)"),
        Block(Directive("output", "a", 1, 0, 0), f"~~~text\n{PRINTED}\n~~~\n"),
        Block(Directive("table", "t", 1, 0, 0), "| 7 |\n"),
    ]
    lab.cells = [Block(Directive("output", "cell 2", 1, 0, 0), "1.50 < 3\n")]
    return found


def entry(place: str, kind: str, printed: str, *rest: object) -> dict[str, object]:
    value, last_place, noise, source = rest
    return {
        "page": "core/one",
        "place": place,
        "kind": kind,
        "printed": printed,
        "value": value,
        "last_place": last_place,
        "noise": noise,
        "source": source,
    }


EXAMPLE = "snippets/pages/core/one.py:example_a"
TABLE = "snippets/pages/core/one.py:table_t"
ENTRIES = [
    entry("prose", "measured", "0.50", 0.5, 0.01, 1e-3, EXAMPLE),
    entry("prose", "measured", "KeyError", "KeyError", None, None, EXAMPLE),
    entry("prose", "measured", "7", 7, 1, 0.0, TABLE),
    entry("prose", "given", "512", 512, 1, None, "a usual width"),
    entry("prose", "counted", "3", 3, 1, 0.0, "the build, over all pages and labs"),
    entry("prose", "measured", "1e+20", 1e20, 1e20, 0.0, EXAMPLE),
    entry("prose", "measured", "1000000000000000", 1e15, 1, 0.0, EXAMPLE),
    entry("prose", "measured", "2.5", 2.5, 0.1, 0.0, "snippets/pages/core/two.py:example_b"),
    entry("prose", "counted", "20", 20, 1, 0.0, "the build, over all pages and labs"),
    entry("output: a", "as text", "0.5", 0.5, 0.1, None, EXAMPLE),
    entry("output: a", "as text", "1,000", 1000, 1, None, EXAMPLE),
    entry("output: a", "as text", "−3", -3, 1, None, EXAMPLE),
    entry("output: a", "as text", "7 %", 0.07, 0.01, None, EXAMPLE),
    entry("output: a", "as text", "+1e-5", 1e-5, 1e-5, None, EXAMPLE),
    entry("output: a", "as text", "12", 12, 1, None, EXAMPLE),
    entry("output: a", "as text", "1,234,567", 1234567, 1, None, EXAMPLE),
    entry("output: a", "as text", "2E5", 200000, 100000, None, EXAMPLE),
    entry("output: a", "as text", "3e12", 3 * 10**12, 10**12, None, EXAMPLE),
    entry("output: a", "as text", "8%", 0.08, 0.01, None, EXAMPLE),
    entry("output: a", "as text", "600000000000000", 6 * 10**14, 1, None, EXAMPLE),
    entry("table: t", "as text", "7", 7, 1, None, TABLE),
]
OF_LAB = {
    "page": "labs/rise",
    "place": "output: cell 2",
    "kind": "as text",
    "noise": None,
    "source": "snippets/labs/rise.py:cell 2",
}
ENTRIES += [
    OF_LAB | {"printed": "1.50", "value": 1.5, "last_place": 0.01},
    OF_LAB | {"printed": "3", "value": 3, "last_place": 1},
]
RESULTS = {
    "core/one": Results(tables={"t": [{"n": "7"}]}),
    "core/two": Results(),
    "labs/rise": Results(),
}


def test_every_number_is_an_entry_of_the_file_and_of_a_table(project: Project) -> None:
    listed = "One\ntwo.\n\n<!-- numbers: labs/rise -->\n\n<!-- numbers: core/one -->\n"
    listed += "\n<!-- tagged: learn -->\n"
    found = pages_of_numbers(listed)
    assert list_numbers(project, found, RESULTS) == []
    [(path, (line, text))] = found[-1].files.items()
    assert (path, line) == (project.docs / "numbers.json", 4)
    entries = json.loads(text)
    for given, expected in zip(entries, ENTRIES, strict=True):
        assert list(given) == list(ENTRIES[0])
        noise = given.pop("noise")  # the division leaves float noise of its own
        assert noise == (expected["noise"] and pytest.approx(expected["noise"], rel=1e-12))
        assert given == {key: value for key, value in expected.items() if key != "noise"}
        assert type(given["value"]) is type(expected["value"])
    entries = json.loads(text)
    assert text == "[\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in entries) + "\n]\n"
    of_lab, of_one = found[-1].blocks
    assert [str(of_lab.directive), str(of_one.directive)] == [
        "<!-- numbers: labs/rise -->",
        "<!-- numbers: core/one -->",
    ]

    def rows(block: Block) -> list[list[str]]:
        return [
            [cell.strip() for cell in row.split("|")[1:-1]] for row in block.text.splitlines()[2:]
        ]

    assert rows(of_lab) == [
        ["2 numbers", "in output: cell 2", "the character", "as text", "`cell 2` of `labs/rise.py`"]
    ]
    example, table = "`example_a` of `core/one.py`", "`table_t` of `core/one.py`"
    assert rows(of_one) == [
        ["0.50", "0.5", "0.01", "measured", example],
        ["KeyError", "KeyError", "as it stands", "measured", example],
        ["7", "7", "1", "measured", table],
        ["512", "512", "1", "given", "a usual width"],
        ["3", "3", "1", "counted", "the build, over all pages and labs"],
        ["1e+20", "1e+20", "1e+20", "measured", example],
        ["1000000000000000", "1e+15", "1", "measured", example],
        ["2.5", "2.5", "0.1", "measured", "`example_b` of `core/two.py`"],
        ["20", "20", "1", "counted", "the build, over all pages and labs"],
        ["11 numbers", "in output: a", "the character", "as text", example],
        ["1 number", "in table: t", "the character", "as text", table],
    ]


def test_what_is_wrong_with_a_list_is_named_with_its_line(project: Project) -> None:
    wrong = "no other page of that name prints a number: remove this"
    for listed, problems_found in {
        "\n<!-- numbers: core/two -->\n\n<!-- numbers: core/one -->\n": [
            f"docs/numbers.md:2: <!-- numbers: core/two -->: {wrong}",
            "docs/numbers.md:2: the numbers of docs/labs/rise.ipynb are missing: add "
            "<!-- numbers: labs/rise -->",
        ],
        "<!-- numbers: none -->\n\n<!-- numbers: labs/rise -->\n": [
            f"docs/numbers.md:1: <!-- numbers: none -->: {wrong}",
            "docs/numbers.md:1: the numbers of docs/core/one.md are missing: add "
            "<!-- numbers: core/one -->",
        ],
        '\n<!-- numbers: numbers -->\n\n<data value="given: x">512</data>\n': [
            f"docs/numbers.md:2: <!-- numbers: numbers -->: {wrong}",
            "docs/numbers.md:2: the numbers of docs/core/one.md are missing: add "
            "<!-- numbers: core/one -->",
            "docs/numbers.md:2: the numbers of docs/labs/rise.ipynb are missing: add "
            "<!-- numbers: labs/rise -->",
        ],
    }.items():
        found = pages_of_numbers(listed)
        assert [str(p) for p in list_numbers(project, found, RESULTS)] == problems_found, listed
    found = pages_of_numbers("")
    assert list_numbers(project, found, RESULTS) == []
    assert [filled.files for filled in found] == [{}] * 4
