from __future__ import annotations

import json
from typing import Any

from lxml.html import document_fromstring

from scripts.finish.built import Built, Html, read_site
from scripts.finish.numbers import explain_numbers
from scripts.project import Problem, Project


def built(project: Project, shown: list[str], **entry: Any) -> Built:
    """A page that shows the numbers, where one is listed: 0.5, but for ``entry``."""
    numbers = "".join(f"\n<data value='a.b'>{each}</data>" for each in shown)
    project.markdown("page").write_text(f"# A page\n{numbers}\n".replace("'", '"'))
    project.markdown("list").write_text("<!-- numbers: page -->\n")
    full = {
        "page": "page",
        "place": "prose",
        "kind": "measured",
        "printed": "0.5",
        "last_place": 0.1,
        "source": "snippets/pages/page.py:example_a",
    } | entry
    project.markdown("list").with_suffix(".json").write_text(json.dumps([full]))
    html = f"<article class='md-content__inner'><p>{numbers}</p><p id='b'><em>T</em></p></article>"
    pages = {"page.html": Html("page.html", document_fromstring(html), "page")}
    return Built(project.root, project, pages)


def test_a_number_links_to_its_origin_and_keeps_its_text(built_small_site: Project) -> None:
    page = read_site(built_small_site.site, built_small_site).pages["core/many-numbers.html"]
    entries = json.loads((built_small_site.docs / "numbers.json").read_text(encoding="utf-8"))
    listed = [
        entry
        for entry in entries
        if (entry["page"], entry["place"]) == ("core/many-numbers", "prose")
    ]
    numbers = page.content.xpath(".//data/a[@class='number']")
    assert [each.text_content() for each in numbers] == [entry["printed"] for entry in listed]
    assert len(numbers) > 9
    for number, entry in zip(numbers, listed, strict=True):
        origin = page.content.get_element_by_id(number.get("href").removeprefix("#"))
        if entry["kind"] == "measured":
            assert entry["source"].rpartition(":")[2] in origin.text_content()
        [back] = origin.xpath(f".//a[@href='#{number.get('id')}']")
        assert back.text_content() == entry["printed"]
        heading = page.content.get_element_by_id(number.get("aria-describedby"))
        assert heading.text_content() == "Where the numbers are from"


def test_the_function_is_shown_where_it_stands(built_small_site: Project) -> None:
    pages = read_site(built_small_site.site, built_small_site).pages
    links = {
        link.text_content(): link.get("href")
        for link in pages["core/many-numbers.html"].content.xpath(".//section//li/p[1]/a")
    }
    assert links["example_kinds"] == "#example-kinds"
    assert links["example_doubled"] == "../core/tiny.html#example-doubled"
    # No page shows the code of this table: its module does.
    assert links["table_powers"] == "../code/pages/core/many_numbers.html#table_powers"


def test_what_is_told_of_each_kind_of_number(project: Project) -> None:
    listed = "list.html#numbers-page"
    for printed, entry, text in (
        ("0.5", {}, "Printed: 0.5 rounded to 0.1."),
        ("50 %", {"last_place": 0.01}, "Printed: 50 % rounded to 1 %."),
        ("0.5 %", {"last_place": 0.001}, "Printed: 0.5 % rounded to 0.1 %."),
        ("1.9e-22", {"last_place": 1e-23}, "Printed: 1.9e-22 rounded to 1e-23."),
        ("7", {"last_place": 1}, "Printed: 7 rounded to a whole number."),
        ("NaN", {"last_place": None}, "Printed: NaN as the run gave it."),
        ("1", {"kind": "given", "source": "so"}, "Given, not measured: so.Printed: 1."),
        ("1", {"kind": "derived", "source": "so"}, "Derived, not measured: so.Printed: 1."),
        ("1", {"kind": "counted", "source": "the build"}, "Counted by the build.Printed: 1."),
        ("1", {"kind": "cited", "source": "b"}, "Cited, not measured here: T.Printed: 1."),
    ):
        site = built(project, [printed], printed=printed, **entry)
        assert explain_numbers(site) == []
        content = site.pages["page.html"].content
        assert content.find(".//section/ul").text_content().endswith(text)
        measured = entry.get("kind") is None
        assert (content.find(".//section/p") is not None) == measured
        assert content.xpath("boolean(.//section//a[@href='#b'])") == (entry.get("source") == "b")
        assert content.xpath(f"boolean(.//section//a[@href='{listed}'])") == measured


def test_numbers_that_are_not_the_listed_ones_are_named(project: Project) -> None:
    tail = "in the list of all numbers: run scripts/build.py without naming a page"
    for printed, line, message in (
        (["0.6"], 3, f"number 1 of the page is 0.6 in its HTML and 0.5 {tail}"),
        (["0.5", "7"], 4, f"number 2 of the page is 7 in its HTML and nothing {tail}"),
        ([], 1, f"number 1 of the page is nothing in its HTML and 0.5 {tail}"),
    ):
        site = built(project, printed)
        assert explain_numbers(site) == [Problem("docs/page.md", line, message)]
