from __future__ import annotations

from lxml.html import HtmlElement, fromstring, tostring

from scripts.finish.built import read_site
from scripts.finish.keep import (
    BROKEN,
    CELL,
    CODE,
    FORMULA,
    KEPT,
    LINE,
    ROOMY,
    TEXT,
    keep_together,
)
from scripts.project import Project


def finished(project: Project, text: str) -> HtmlElement:
    built = read_site(project.site, project)
    content = built.pages["core/tiny.html"].content
    content.append(fromstring(f"<div>{text}</div>"))
    before = content.text_content()
    assert keep_together(built) == []
    assert content.text_content() == before
    return content[-1]


def formula(tex: str) -> str:
    return f'<span class="arithmatex"><math><annotation>{tex}</annotation></math></span>'


def test_what_closes_a_phrase_stays_at_its_formula(built_small_site: Project) -> None:
    text = (
        f"<p>From {formula('d = 8')} to {formula('d')}), then {formula('x' * (FORMULA + 1))}.</p>"
    )
    div = finished(built_small_site, text)
    [kept] = div.find_class(KEPT)
    assert kept.text_content() == "d),"
    assert kept.tail == " then "
    assert len(div.find_class("arithmatex")) == 3


def test_short_code_is_one_piece(built_small_site: Project) -> None:
    short, long = "a" * CODE, "a" * (CODE + 1)
    text = f"<p><code>{short}</code> <code>{long}</code></p><pre><code>{short}</code></pre>"
    div = finished(built_small_site, text)
    assert [code.get("class") for code in div.iter("code")] == [KEPT, None, None]


def test_cells_are_narrow_or_roomy_by_their_text(built_small_site: Project) -> None:
    sizes = (CELL, CELL + 1, TEXT, TEXT + 1)
    cells = "".join(f"<td>{'a' * size}</td>" for size in sizes)
    div = finished(built_small_site, f"<table><tr>{cells}</tr></table>")
    assert [cell.get("class") for cell in div.iter("td")] == [KEPT, None, None, ROOMY], tostring(
        div
    )


def test_messages_break_in_cells_and_in_outputs(built_small_site: Project) -> None:
    outputs = "".join(
        f'<div class="language-text"><pre><code>{"b" * size}\n</code></pre></div>'
        for size in (LINE, LINE + 1)
    )
    pieces = "".join(
        f"<{tag}>{'c' * size}</{tag}>" for tag in ("code", "data") for size in (CODE, CODE + 1)
    )
    text = f"{outputs}<table><tr><td>{pieces}</td></tr></table><p>{pieces}</p>"
    div = finished(built_small_site, text)
    broken = [(each.tag, len(each.text_content().strip())) for each in div.find_class(BROKEN)]
    assert broken == [("div", LINE + 1), ("code", CODE + 1), ("data", CODE + 1)]
