from __future__ import annotations

import re

import pytest

from scripts.page import Page
from scripts.project import Project
from scripts.prose import NUMBER, UNSEEN
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
    lines = "One\ntwo.\n\n"
    assert (4, DATA[text]) in [
        (line - text.startswith("<p>"), message)
        for line, message in told(page_of(project, lines + text))
    ]


def test_an_open_number_ends_with_its_run_of_text(project: Project) -> None:
    page = page_of(
        project, '\nOf <data value="a.b">0.5.\n\nOf 7 and <data value="c.d">0.8</data>.\n'
    )
    assert told(page) == [(2, "a <data> element is not closed")]
    assert [(bound.key, bound.printed, bound.line) for bound in page.bound] == [("c.d", "0.8", 4)]
    assert page.prose == [(2, f"Of {NUMBER}"), (4, f"Of 7 and {NUMBER}.")]


QUOTED = {
    "in a fence": "~~~console\n{}\n~~~\n\nIt is {}.",
    "in code": "Of `{}`, it is {}.",
    "in code over two lines": "Of `a\n{}`, it is {}.",
    "in code in a quotation": "> Of `a\n> {}`, it is {}.",
    "in code in a cell": "| a |\n|---|\n| `a \\| {}` {} |",
    "in a formula": "Of ${}$, it is {}.",
    "in a picture": "![{}](x.svg) {}",
    "in code in a picture": "![`{}`](x.svg) {}",
    "in a list": "1. `a\n   {}`\n   and {}.",
}


@pytest.mark.parametrize("place", QUOTED)
def test_a_number_that_is_quoted_above_is_not_taken_for_it(project: Project, place: str) -> None:
    number = '<data value="a.b">7</data>'
    page = page_of(project, f"{QUOTED[place].replace('{}', number)}\n")
    assert [(bound.start, bound.line, bound.printed) for bound in page.bound] == [
        (page.text.rindex("7</data>"), page.text.rstrip().count("\n") + 1, "7")
    ]
    assert page.problems == []


def test_a_tag_may_stand_in_two_lines_of_a_quotation(project: Project) -> None:
    page = page_of(
        project, '> Of <data value="given: a\n> width">512</data>,\n> <b\n> id="c">.</b>'
    )
    [bound] = page.bound
    assert (bound.key, bound.printed, bound.line) == ("given: a\nwidth", "512", 2)
    assert page.text[bound.start : bound.end] == "512"
    assert (page.anchors, page.problems) == ({"c"}, [])


def test_a_tag_inside_a_number_does_not_end_it(project: Project) -> None:
    [bound] = page_of(project, '<data value="a.b">0<b>.5</b></data> and </data>\n').bound
    assert bound.printed == "0<b>.5</b>"


# What a browser puts side by side, what it parts, and what may stand for something unseen.
SIDE_BY_SIDE = (
    *("a", "abbr", "b", "code", "del", "em", "i", "ins", "kbd", "mark", "s", "small", "span"),
    *("strong", "sub", "u", "var", "wbr"),
)
PARTED = (
    *("br", "details", "dd", "div", "dl", "dt", "figcaption", "figure", "h1", "h6", "hr", "img"),
    *("li", "ol", "p", "section", "summary", "table", "tbody", "td", "th", "thead", "tr", "ul"),
)
UNKNOWN = ("bdi", "font", "h7", "header", "link", "picture", "ruby", "svg", "track")
SEEN = {
    "One\ntwo  \nthree": "One\ntwo\nthree",
    "See [Shannon 1948](x.md) of 1949": f"See Shannon {UNSEEN * 4} of 1949",
    '[5](x.md "Of 6") and 7': f" Of 6 {UNSEEN} and 7",
    "![One 5](x.svg) and ![](x.svg)!": " One 5  and   !",
    '![One](x.svg "Two")': " One  Two ",
    "A `0.5` and $0.7$.": f"A {UNSEEN} and {UNSEEN}.",
    "10<sup>5</sup>": "10^5",
    "1{ #a }, 2{#b-2} and 3{: #c.d:e }": "1, 2 and 3",
    "An { a } and {a#b}": "An { a } and {a#b}",
    '<font title="</b">1</font>': f'{UNSEEN} "</b" 1{UNSEEN}',
    '<font title="<br">1</font>': f'{UNSEEN} "<br" 1{UNSEEN}',
    '<i title="a &amp; b">1</i>': ' "a & b" 1',
    "<i title='a \" b'>1</i>": " 'a \" b' 1",
    '<i title="a \' b">1</i>': ' "a \' b" 1',
    "<i title=ab>1</i>": " ab 1",
    '<i TITLE = "a" class="2" alt="">1</i>': ' "a"  "" 1',
    **{f'<i {name}="5">1</i>': ' "5" 1' for name in ("alt", "title", "label", "placeholder")},
    **{f'<i {name}="5">1</i>': ' "5" 1' for name in ("start", "value")},
    **{f"1<{tag}>2</{tag}>3": "123" for tag in SIDE_BY_SIDE},
    **{f"1<{tag}>2</{tag}>3": "1 2 3" for tag in PARTED},
    **{f"1<{tag}>2</{tag}>3": f"1{UNSEEN}2{UNSEEN}3" for tag in UNKNOWN},
}


@pytest.mark.parametrize("text", SEEN)
def test_the_words_of_a_line_are_those_that_a_reader_sees(project: Project, text: str) -> None:
    page = page_of(project, f"\n{text}\n")
    assert page.problems == []
    # Between words, one space is as good as two.
    assert [(line, re.sub(" +", " ", words).strip(" ")) for line, words in page.prose] == [
        (2, re.sub(" +", " ", SEEN[text]).strip(" "))
    ]


def test_the_anchors_of_a_page_are_found(project: Project) -> None:
    text = '# One { #one }\n\nTwo{#two-2}, {: #t.h:3 }\n\n<p id="four">\n<a id="f"></a>\n</p>\n'
    page = page_of(project, text)
    assert page.anchors == {"one", "two-2", "t.h:3", "four", "f"}


def test_what_is_wrong_in_a_run_of_text_is_named_with_its_line(project: Project) -> None:
    number = '<data value="a.b">0.5</data>'
    wrong = "something stands against a bound number"
    for text, line, message in (
        (f"\nOne,\ntwo and\n1{number}.\n", 4, wrong),
        (f"\n<p>\n1{number}\n</p>\n", 3, wrong),
        (f"One,\ntwo.\n\n{{ #a }}\n1{number}\n", 5, wrong),
        ("\nOne,\ntwo <!-- x --> three.\n", 3, "<!-- x --> stands in a line of text: give it a"),
        ("\nOne,\ntwo <b>three</b> <!-- x\n", 3, "a comment is not closed"),
    ):
        [(found, said)] = told(page_of(project, text))
        assert (found, said[: len(message)]) == (line, message), text


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
