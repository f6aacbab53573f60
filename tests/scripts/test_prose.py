from __future__ import annotations

import pytest

from scripts.page import Page
from scripts.project import Project
from tests.spoil import page_of


def told(page: Page) -> list[tuple[int, str]]:
    return [(problem.line, problem.message) for problem in page.problems]


def test_numbers_are_found_wherever_prose_may_stand(project: Project) -> None:
    number = '<data value="a.b">0.5</data>'
    code = '`<data value="c.d">`'
    page = page_of(
        project,
        f"# Of {number}\n\n- of {number}, *{number}* and\n  of {number}\n\n> of {number}\n\n"
        f"| {number} | {number} |\n|---|---|\n| {number} | {number} |\n\n"
        f"<details>\n<summary>{number}</summary>\n</details>\n\n"
        f"[{number}](x.md), {code}, {number}[^1]\n\n[^1]: Of {number}.\n\nEnd: {number}\n",
    )
    assert page.problems == []
    places = [at for at in range(len(page.text)) if page.text.startswith("0.5</data>", at)]
    assert sorted(bound.start for bound in page.bound) == places
    assert {bound.printed for bound in page.bound} == {"0.5"}
    assert all(bound.line == page.line_at(bound.start) for bound in page.bound)


DATA = {
    'It is <data value="a.b">0.5.': "a <data> element is not closed",
    'It is <data value="a.b">0.5\n\n</data>.': "a <data> element is not closed",
    'It is <data value="a.b">0<data value="c.d">.5</data></data>.': '<data value="c.d"> is inside '
    "another <data> element: close that first",
    "It is <data value='a.b'>0.5</data>.": "<data value='a.b'> is not of the form "
    '<data value="example.name">number</data>',
    "It is <data>0.5</data>.": '<data> is not of the form <data value="example.name">number</data>',
    '<p>\n<data value="a.b" >0.5</data>\n</p>': '<data value="a.b" > is not of the form '
    '<data value="example.name">number</data>',
}


@pytest.mark.parametrize("text", DATA)
def test_a_data_element_is_well_formed(project: Project, text: str) -> None:
    assert DATA[text] in [message for _, message in told(page_of(project, text))]


@pytest.mark.parametrize(
    "text",
    [
        "1{}",
        "−{}",
        "-{}",
        "1.{}",
        "1,{}",
        "**1**{}",
        "`1`{}",
        "$1${}",
        "[1](x.md){}",
        "<b>1</b>{}",
        "{}5",
        "{}.5",
        "{},500",
        "{}e5",
        "{}%",
        "{} %",
        "{}&nbsp;%",
        "{} × 10⁵",
        "{}⁵",
        "{}<sup>5</sup>",
        "{}`5`",
        "{}{}",
        "{}*{}*",
        "not{}",
        "–{}",
        "‑{}",
        "{}k",
        "{}s",
        "{}½",
        "{}‰",
        "{} percent",
        "{} million",
        "{} × 7",
        "{}/5",
        "{}<bdi>5</bdi>",
        "1<font></font>{}",
    ],
)
def test_nothing_that_would_change_a_number_stands_against_it(project: Project, text: str) -> None:
    number = '<data value="a.b">0.5</data>'
    page = page_of(project, f"It is {text.replace('{}', number)}.\n")
    assert told(page) == [
        (
            1,
            "something stands against a bound number: a sign, a digit, a power of ten or % goes "
            "inside <data>, and a letter or a tag after a space",
        )
    ]
    fine = "It is ({}), ±{}, {}–{}, {}/{} or {}-fold, [{}](x.md) {} x, **{}**: {} s. {}, {}"
    assert told(page_of(project, fine.replace("{}", number))) == []
