from __future__ import annotations

from scripts.finish.built import read_site
from scripts.finish.disk import run_from_disk
from scripts.project import Project


def test_every_page_of_the_theme_has_the_script(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    for file, page in built.pages.items():
        config = page.root.xpath("//script[@id='__config']")
        assert bool(config) != file.startswith("code/"), file
        for element in config:
            assert 'location.protocol === "file:"' in element.getnext().text


def test_settings_without_instant_navigation_are_told(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    [config] = built.pages["core/tiny.html"].root.xpath("//script[@id='__config']")
    config.text = config.text.replace('"navigation.instant",', "")
    [problem] = run_from_disk(built)
    assert problem.file == "core/tiny.html"
    assert problem.message == (
        "the theme's settings do not name navigation.instant, or name it last"
    )
