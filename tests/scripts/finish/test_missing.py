from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scripts.finish.built import Built, read_site
from scripts.finish.missing import TITLE, help_the_lost
from scripts.project import Project


@pytest.fixture
def built(built_small_site: Project, tmp_path: Path) -> Built:
    return read_site(shutil.copytree(built_small_site.site, tmp_path / "site"), built_small_site)


@pytest.mark.parametrize(
    ("url", "base"), [("", "/"), ("https://a.org", "/"), ("https://a.org/b/c", "/b/c/")]
)
def test_who_is_lost_is_told_and_led_on(
    built: Built, url: str, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_URL", url)
    assert help_the_lost(built) == []
    page = built.pages["404.html"]
    assert page.root.findtext("head/title") == f"{TITLE} - The Attention Reference"
    assert page.content.findtext("h1") == TITLE
    [form] = page.content.iter("form")
    assert form.get("action") == f"{base}index.html"
    [field] = form.iter("input")
    assert field.get("name") == "q"  # from which the theme starts a search
    [label] = form.iter("label")
    assert label.get("for") == field.get("id")
    links = {link.get("href"): link.text for link in page.content.iter("a")}
    expected = {f"{base}{name}.html" for name in built.project.pages()}
    assert set(links) == expected  # no page lists tasks here
    assert links[f"{base}core/tiny.html"] == "Doubling"


def test_tasks_are_offered_where_a_page_lists_them(built: Built) -> None:
    path = built.project.markdown("index")
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n<!-- tagged: hunt a NaN -->\n", encoding="utf-8")
    try:
        help_the_lost(built)
    finally:
        path.write_text(before, encoding="utf-8")
    links = [link.get("href") for link in built.pages["404.html"].content.iter("a")]
    assert links[0] == "/index.html#hunt-a-nan"


def test_a_generator_without_such_a_page_is_told(built: Built) -> None:
    del built.pages["404.html"]
    [problem] = help_the_lost(built)
    assert problem.message == "the generator wrote no page for missing addresses"
