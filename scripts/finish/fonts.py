"""Gives the site its fonts, cut down to the characters that stand on its pages.

The style sheet type.css names the files that are written here; without them, the reader's own fonts
stand in at the same width.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Set
from pathlib import Path, PurePosixPath

from fontTools import subset
from fontTools.ttLib import TTFont
from fontTools.ttLib.tables._n_a_m_e import NameRecord
from fontTools.varLib import instancer
from lxml.html.builder import SCRIPT

from scripts.finish.built import Built, Html
from scripts.mathematics import install
from scripts.project import Problem

FONTS = PurePosixPath("assets/fonts")
KATEX_FONTS = PurePosixPath("assets/katex/fonts")

# The file, the package and the file in it, and the weights that are kept.
_FACES = (
    ("text", "source-serif-4", "source-serif-4-latin-wght-normal", (400, 700)),
    ("text-italic", "source-serif-4", "source-serif-4-latin-wght-italic", 400),
    ("code", "source-code-pro", "source-code-pro-latin-wght-normal", 400),
)
# What scripts may write later, and what type.css takes from KaTeX's main font.
_ALWAYS = frozenset(map(chr, range(0x20, 0x7F))) | set("−–—…“”‘’×·±°")
_SYMBOLS = frozenset("√∞≤≥")
# A browser finds the fonts of what stands further down as it comes near; italics that come late
# are replaced by the reader's own for that page.
_FIRST = "//article//{}[count(preceding::h2[ancestor::article]) < 2]"
_FORMULA = _FIRST.format("*[contains(@class, 'katex-html')]")
_PRELOAD = """
if (location.protocol !== "file:") for (const href of %s)
  document.head.append(Object.assign(document.createElement("link"),
    { rel: "preload", as: "font", type: "font/woff2", crossOrigin: "", href }));
"""


def set_fonts(built: Built) -> list[Problem]:
    """Write the fonts and their licences, and have every page load those that it starts with."""
    text: set[str] = set(_ALWAYS)
    mathematics: set[str] = set(_SYMBOLS)
    for page in built.pages.values():
        text.update("".join(page.root.itertext()))
        for formula in page.root.find_class("katex-html"):
            mathematics.update("".join(formula.itertext()))
    packages = install() / "node_modules" / "@fontsource-variable"
    target = built.folder / FONTS
    target.mkdir(parents=True)
    for name, package, file, weights in _FACES:
        font = _cut(packages / package / "files" / f"{file}.woff2", text)
        font = instancer.instantiateVariableFont(font, {"wght": weights})
        _rename(font, f"Attention {name.replace('-', ' ').title()}")
        font.save(target / f"{name}.woff2")
        shutil.copy(packages / package / "LICENSE", target / f"{package}-LICENSE")
    for path in sorted(built.folder.joinpath(KATEX_FONTS).glob("*.woff2")):
        _cut(path, mathematics).save(path)
    for page in built.pages.values():
        _preload(page)
    return []


def _cut(path: Path, characters: Set[str]) -> TTFont:
    font = TTFont(path, recalcTimestamp=False)
    options = subset.Options()
    options.layout_features = ["kern", "ccmp", "locl", "mark", "tnum", "lnum"]
    options.hinting = False
    options.name_IDs = [0, 1, 2, 4, 6, 13, 14]
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=map(ord, characters))
    cutter.subset(font)
    return font


def _rename(font: TTFont, name: str) -> None:
    """The licence keeps the name Source for fonts that nobody changed."""
    for record in list(font["name"].names):
        if record.nameID in (1, 4, 16):
            font["name"].setName(name, *_place(record))
        elif record.nameID == 6:
            font["name"].setName(name.replace(" ", ""), *_place(record))


def _place(record: NameRecord) -> tuple[int, int, int, int]:
    return record.nameID, record.platformID, record.platEncID, record.langID


def _preload(page: Html) -> None:
    """Ask for the fonts at once; a script does so, since none may be asked for from a disk."""
    files = [FONTS / "text.woff2"]
    if page.root.xpath(_FIRST.format("em")):
        files.append(FONTS / "text-italic.woff2")
    if page.root.xpath("//pre"):
        files.append(FONTS / "code.woff2")
    if page.root.xpath(_FORMULA):
        files += [KATEX_FONTS / f"KaTeX_{name}.woff2" for name in ("Main-Regular", "Math-Italic")]
    first = page.root.xpath("//head/link[@rel='stylesheet'][contains(@href, 'assets/')]")[0]
    base = first.get("href").partition("assets/")[0]  # the page for missing addresses has its own
    first.addprevious(SCRIPT(_PRELOAD % json.dumps([f"{base}{file}" for file in files])))
