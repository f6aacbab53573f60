"""Each check finds the fault that is planted for it, and none on a page without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.checks import Watched, opened
from tests.browser.test_copy import lacking
from tests.browser.test_pages import shifted, walk

SOUND = """<!doctype html><html lang="en"><head><title>Sound</title><link rel="icon" href="data:,">
<style>body {{ margin: 0; color: #222; background: #fff }}</style></head>
<body><main><h1>Sound</h1><p>Text with <a href="#end">a link</a>, <button>a button</button> and
<label>a field <input></label>.</p><p id="end">The end.</p>{}</main></body></html>"""

Ask = Callable[[Watched], list[str]]


def check(*names: str) -> Ask:
    return lambda watched: watched.ask(*names)


def beside(watched: Watched) -> list[str]:
    watched.page.wait_for_timeout(200)
    return watched.faults


def by_axe(watched: Watched) -> list[str]:
    watched.ask("thin")
    return watched.ask("axe")


FAULTS: dict[str, tuple[str, Ask, str]] = {
    "console": (
        "<script>console.error('broken')</script>",
        beside,
        "console has this error: broken",
    ),
    "script": ("<script>undefinedName()</script>", beside, "error in a script: undefinedName"),
    "host": (
        "<img alt='x' src='http://other.invalid/x.png'>",
        beside,
        "asks another host: http://o",
    ),
    "lost": ("<img alt='x' src='lost.png'>", beside, "not loaded"),
    "picture": ("<img alt='x' src='lost.png' width=9 height=9>", check("images"), "does not load"),
    "wide": (
        "<p style='width: 1400px'>wide</p>",
        check("width"),
        "the page is 1400 px wide: <p> wide",
    ),
    "faint": ("<p style='color: #888'>faint</p>", check("contrast"), ": 3.54, at <p> faint"),
    "veiled": ("<p style='opacity: .5'>veiled</p>", check("contrast"), "at <p> veiled"),
    "ground": (
        "<div style='background: #777'><p>on grey</p></div>",
        check("contrast"),
        "on 119,119,119: 3.5",
    ),
    "hint": (
        "<style>::placeholder { color: #999 }</style><input aria-label=x placeholder=hint>",
        check("contrast"),
        "rgb(153, 153, 153) on 255,255,255",
    ),
    "mute": ("<img src='data:,' alt=''>", check("images"), "an image without text"),
    "axe": ("<input>", by_axe, "label (Form elements must have labels)"),
    "box": (
        "<pre style='overflow: auto; width: 90px'>a line that is wider than its box</pre>",
        check("boxes"),
        "a box that scrolls without tabindex and name: <pre>",
    ),
    "label": (
        "<label for=c>open</label><input type=checkbox id=c style='display: none'>",
        check("labels"),
        "a label that no key reaches: <label> open",
    ),
    "broad": (
        "<article><div class=md-typeset__scrollwrap style='overflow: auto; width: 400px'><table>"
        "<tr><td style='min-width: 900px'>broad</table></div></article>",
        check("tables"),
        "px wide in a box of 400 px: <table> broad",
    ),
    "adrift": (
        "<header class=md-header style='position: fixed; top: 0; height: 9px'></header><article>"
        f"<table><thead><tr><th>adrift</thead>{'<tr><td>row' * 99}</table></article>",
        check("heads"),
        "px below the header: <table> adrift",
    ),
    "hidden": ("<a href='#' style='opacity: 0'>ghost</a>", walk, "hidden: <a> ghost"),
    "outside": (
        "<a href='#' style='position: fixed; left: -900px'>away</a>",
        walk,
        "outside the window: <a> away",
    ),
    "ring": ("<a href='#' style='outline: none'>bare</a>", walk, "not show: <a> bare"),
    "trap": (
        """<button id=t>trap</button><script>
        t.onkeydown = event => event.preventDefault()</script><a href="#">after</a>""",
        walk,
        "no Tab reaches <a> after",
    ),
    "motion": ("<p style='transition: color 1s'>slow</p>", check("motion"), "moves: <p> slow"),
    "shift": (
        "<p id=s>up<p style='height: 60vh'>down"
        "<script>setTimeout(() => s.style.height = '30vh', 1000)</script>",
        lambda w: shifted(w, 2000),
        "moves by 0.",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_check_finds_the_planted_fault(
    browser: Browser, axe: str, tmp_path: Path, name: str
) -> None:
    planted, ask, expected = FAULTS[name]
    for content, told in ((planted, True), ("", False)):
        path = tmp_path / "page.html"
        path.write_text(SOUND.format(content), encoding="utf-8")
        with opened(browser, path.as_uri(), origin="file://") as watched:
            watched.page.evaluate(axe)
            faults = ask(watched)
            if told:
                assert expected in "\n".join(faults), faults
            else:
                assert not faults


def test_code_that_a_button_alters_is_missed() -> None:
    assert lacking(["a = 1", "b = 2"], ["x", "a = 1", "b = 2"]) == []
    assert lacking(["a = 1", "b = 2"], ["a = 1", "b  = 2"]) == ["b = 2"]
    assert lacking(["a = 1", "b = 2"], ["b = 2", "a = 1"]) == ["b = 2"]
