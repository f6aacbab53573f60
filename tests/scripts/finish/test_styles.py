from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import tinycss2

from scripts.finish.built import Built, read_site
from scripts.finish.styles import _COSTLY, thin_styles
from scripts.project import Project

SHEET = "assets/stylesheets/main.css"


@pytest.fixture
def built(project: Project, tmp_path: Path) -> Built:
    """A page with one class and a script with another, under a sheet of the theme's."""
    site = tmp_path / "site"
    (site / SHEET).parent.mkdir(parents=True)
    (site / "a").mkdir()
    (site / "a" / "page.html").write_text(
        f'<!doctype html><html><head><link rel="stylesheet" href="../{SHEET}"></head>'
        '<body><p class="one two">x</p></body></html>',
        encoding="utf-8",
    )
    (site / "assets" / "bundle.js").write_text('h(".three .tabbed-set")', encoding="utf-8")
    return read_site(site, project)


def thinned(built: Built, css: str) -> str:
    (built.folder / SHEET).write_text(css, encoding="utf-8")
    assert thin_styles(built) == []
    return (built.folder / SHEET).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("css", "left"),
    [
        (".one{a:b}.four{a:b}", ".one{a:b}"),
        (".one .three, .one .four, p{a:b}", ".one .three, p{a:b}"),
        (".tabbed-set{a:b}", ""),
        ("p:not(.four), p.two:hover{a:b}", "p:not(.four), p.two:hover{a:b}"),
        ("@media print{.four{a:b}.one{a:b}}", "@media print{.one{a:b}}"),
        ("@media print{@supports (a:b){.four{a:b}}}p{a:b}", "p{a:b}"),
        (
            "@font-face{a:b}:root{--c:.5;--d:url(x.four)}",
            "@font-face{a:b}:root{--c:.5;--d:url(x.four)}",
        ),
        ("[data-md-color-switching] *,p{a:b}", "p{a:b}"),
        ("/* .one */p{a:b}\n", "p{a:b}"),
    ],
)
def test_only_what_some_page_can_use_is_left(built: Built, css: str, left: str) -> None:
    assert thinned(built, css) == left


def test_the_sites_own_sheets_stay_as_they_are(built: Built, project: Project) -> None:
    (project.docs / SHEET).parent.mkdir(parents=True)
    (project.docs / SHEET).touch()
    assert thinned(built, ".four{a:b}") == ".four{a:b}"


@pytest.mark.parametrize("css", ["p{a:b}\n}", "@media print{.one{a:b}\n.two}"])
def test_what_is_no_rule_is_told(built: Built, css: str) -> None:
    (built.folder / SHEET).write_text(css, encoding="utf-8")
    [problem] = thin_styles(built)
    assert str(problem).startswith(f"{SHEET}:2: not CSS: ")
    assert (built.folder / SHEET).read_text(encoding="utf-8") == css


def test_the_real_theme_has_the_costly_rules() -> None:
    folder = files("material") / "templates" / "assets" / "stylesheets"
    sheets = [path for path in folder.iterdir() if path.name.endswith(".min.css")]
    text = "".join(path.read_text(encoding="utf-8") for path in sheets)
    assert {selector for selector in _COSTLY if selector not in text} == set()


def test_the_real_theme_keeps_what_its_script_needs(built_small_site: Project) -> None:
    [sheet] = built_small_site.site.glob("assets/stylesheets/site.*.css")
    text = sheet.read_text(encoding="utf-8")
    assert "error" not in {rule.type for rule in tinycss2.parse_stylesheet(text)}
    assert ".tabbed-" not in text
    assert "color-switching" not in text
    for name in ("search-result__item", "code__button", "typeset__scrollwrap", "tooltip2"):
        assert f".md-{name}" in text
