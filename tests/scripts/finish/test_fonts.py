"""The fonts hold what the pages need, weigh little, and have stand-ins of the same measures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont

from scripts.finish.built import finish, read_site
from scripts.finish.fonts import set_fonts
from scripts.mathematics import install
from scripts.project import HOME, Project

PAGE = """<!doctype html><html><head><link rel="stylesheet" href="../assets/x.css"></head>
<body><pre><code>é</code></pre><p>±</p></body></html>"""
STYLE = (HOME / "docs/assets/stylesheets/type.css").read_text(encoding="utf-8")


def build(folder: Path) -> Path:
    (folder / "core").mkdir(parents=True)
    (folder / "core" / "page.html").write_text(PAGE, encoding="utf-8")
    assert finish(folder, Project(), [set_fonts]) == []
    return folder / "assets" / "fonts"


@pytest.fixture(scope="module")
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("fonts") / "site")


def test_fonts_have_the_characters_of_the_pages_and_no_others(fonts: Path) -> None:
    for name in ("text", "text-italic", "code"):
        characters = set(map(chr, TTFont(fonts / f"{name}.woff2").getBestCmap()))
        assert {"A", "z", "~", "é", "±", "−"} <= characters
        assert "ü" not in characters


def test_fonts_are_small_and_licensed_and_named_as_changed(fonts: Path) -> None:
    files = sorted(fonts.glob("*.woff2"))
    assert len(files) == 3
    assert sum(path.stat().st_size for path in files) < 45_000
    for path in files:
        assert TTFont(path)["name"].getDebugName(1).startswith("Attention ")
    for licence in fonts.glob("*-LICENSE"):
        assert "SIL OPEN FONT LICENSE" in licence.read_text(encoding="utf-8").upper()
    assert len(list(fonts.glob("*-LICENSE"))) == 2


def test_fonts_are_the_same_bytes_in_every_build(fonts: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "site")
    for path in fonts.glob("*"):
        assert path.read_bytes() == (again / path.name).read_bytes()


def test_a_page_starts_to_load_its_fonts_before_its_styles(fonts: Path) -> None:
    [page] = read_site(fonts.parents[1], Project()).pages.values()
    script, styles = page.root.xpath("//head/script | //head/link")
    assert '["../assets/fonts/text.woff2", "../assets/fonts/code.woff2"]' in script.text
    assert styles.get("href") == "../assets/x.css"


@pytest.mark.parametrize(("above", "asked"), [(1, True), (2, False)])
def test_italics_and_formulas_are_asked_for_where_the_page_starts_with_them(
    above: int, asked: bool, tmp_path: Path
) -> None:
    text = '<p><em>x</em><span class="katex-html">x</span></p>'
    article = f"<article>{'<h2>x</h2>' * above}{text}</article></body>"
    target = tmp_path / "page.html"
    target.write_text(PAGE.replace("</body>", article), encoding="utf-8")
    assert finish(tmp_path, Project(), [set_fonts]) == []
    for font in ("text-italic", "KaTeX_Main-Regular"):
        assert (f"{font}.woff2" in target.read_text(encoding="utf-8")) == asked


def test_the_stand_ins_have_the_measures_of_the_fonts() -> None:
    packages = install() / "node_modules" / "@fontsource-variable"
    faces = re.findall(r'"Attention (?:Text|Code) Fallback";(.*?)}', STYLE, re.DOTALL)
    sources = (
        "source-serif-4/files/source-serif-4-latin-wght-normal.woff2",
        "source-serif-4/files/source-serif-4-latin-wght-italic.woff2",
        "source-code-pro/files/source-code-pro-latin-wght-normal.woff2",
    )
    for face, source in zip(faces, sources, strict=True):
        head = TTFont(packages / source)["hhea"]
        given = {key: float(value) / 100 for key, value in re.findall(r"([\w-]+): ([\d.]+)%", face)}
        size = given.get("size-adjust", 1.0)
        assert given["ascent-override"] * size == pytest.approx(head.ascent / 1000, abs=2e-3)
        assert given["descent-override"] * size == pytest.approx(-head.descent / 1000, abs=2e-3)
