from __future__ import annotations

import re

from scripts.finish.accessible import make_accessible
from scripts.finish.built import read_site
from scripts.project import Project


def test_the_search_has_a_name(built_small_site: Project) -> None:
    for name in ("core/tiny.html", "404.html"):
        text = (built_small_site.site / name).read_text(encoding="utf-8")
        [dialog] = re.findall(r"<[^>]*role=.?dialog[^>]*>", text)
        assert 'aria-label="Search"' in dialog


def test_a_target_that_is_missing_is_named(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    built.pages = {"core/tiny.html": built.pages["core/tiny.html"]}
    assert make_accessible(built) == []
    root = built.pages["core/tiny.html"].root
    for path in ("//*[@role='dialog']", "//*[@id='__drawer']"):
        for element in root.xpath(path):
            element.drop_tree()
    found = make_accessible(built)
    assert [problem.file for problem in found] == ["core/tiny.html"] * len(found)
    words = [re.findall(r"dialog|__drawer", problem.message) for problem in found]
    assert [each[0] for each in words] == ["dialog", "__drawer"]
