from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.finish.built import read_site
from scripts.finish.titles import check_titles, title_of
from scripts.project import Project

TINY = "core/tiny.html"
FAULTS = {
    ("<h1", "<h2"): "0 titles: expected one, a line that starts with #",
    ("</h1>", "</h1><h1>More</h1>"): "2 titles: expected one, a line that starts with #",
    (">Doubling", ">Doubling d<sub>k</sub>"): (
        "the heading 'Doubling dk' has a formula: write text (√dₖ)"
    ),
    (">It doubles", '><span class="arithmatex">2x</span>'): (
        "the heading '2x' has a formula: write text (√dₖ)"
    ),
    ("<title>Doubling", "<title>dk"): (
        "the browser's tab shows 'dk - The Attention Reference': expected the title 'Doubling'"
    ),
}


def test_a_title_is_text_without_the_sign_that_links_to_it(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    assert "¶" in built.pages[TINY].content.findtext("h1/a")
    assert title_of(built.pages[TINY]) == "Doubling"
    assert check_titles(built) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_spoilt_title_is_told(
    built_small_site: Project, tmp_path: Path, fault: tuple[str, str]
) -> None:
    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    text = (site / TINY).read_text(encoding="utf-8")
    assert fault[0] in text
    (site / TINY).write_text(text.replace(*fault), encoding="utf-8")
    found = check_titles(read_site(site, built_small_site))
    assert (found[0].file, found[0].message) == ("docs/core/tiny.md", FAULTS[fault])


def test_titles_show_mathematics_as_text() -> None:
    text = Project().markdown("core/scaling").read_text(encoding="utf-8")
    assert "\n# Why attention divides by √dₖ, sqrt(head_dim)" in text
