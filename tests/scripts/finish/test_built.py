from __future__ import annotations

import shutil
from pathlib import Path

from scripts.finish.built import Built, finish, read_site
from scripts.project import Problem, Project


def test_pages_know_their_sources_and_their_way_to_others(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    assert built.pages["core/tiny.html"].page == "core/tiny"
    assert built.pages["404.html"].page is None
    assert built.pages["core/tiny.html"].to("assets/x.css") == "../assets/x.css"
    assert built.pages["index.html"].to("core/tiny.html") == "core/tiny.html"
    assert built.pages["core/tiny.html"].content.findtext("h1").startswith("Doubling")


def test_every_step_is_taken_and_written(built_small_site: Project, tmp_path: Path) -> None:
    def mark(built: Built) -> list[Problem]:
        for page in built.pages.values():
            page.root.set("data-mark", "é < ü")
        return []

    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    assert finish(site, built_small_site, [mark, mark]) == []
    text = (site / "core" / "tiny.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>\n<html")
    assert 'data-mark="é &lt; ü"' in text or 'data-mark="é < ü"' in text


def test_on_a_problem_nothing_is_written(built_small_site: Project, tmp_path: Path) -> None:
    wrong = Problem("core/tiny.html", 1, "spoilt")

    def spoil(built: Built) -> list[Problem]:
        built.pages["core/tiny.html"].content.clear()
        return [wrong]

    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    before = (site / "core" / "tiny.html").read_bytes()
    assert finish(site, built_small_site, [spoil]) == [wrong]
    assert (site / "core" / "tiny.html").read_bytes() == before
