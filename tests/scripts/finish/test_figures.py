from __future__ import annotations

import re

from scripts.finish.built import read_site
from scripts.finish.figures import place_figures
from scripts.project import Project


def test_a_figure_keeps_its_place_while_it_loads(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    images = list(built.pages["core/tiny.html"].content.iter("img"))
    assert len(images) == 2
    drawn = built_small_site.docs / "assets" / "figures" / "core" / "tiny" / "line-light.svg"
    match = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn.read_text(encoding="utf-8"))
    assert match
    for image in images:
        assert image.get("loading") == "lazy"
        for points, side in zip(match.groups(), ("width", "height"), strict=True):
            assert abs(int(image.get(side)) - float(points) * 96 / 72) <= 0.5


def test_a_figure_before_the_first_section_does_not_wait(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    page = built.pages["core/tiny.html"]
    images = list(page.content.iter("img"))
    for image in images:
        for name in ("loading", "decoding"):
            del image.attrib[name]
        page.content.insert(0, image)
    assert place_figures(built) == []
    for image in images:
        how = [image.get(name) for name in ("loading", "decoding", "fetchpriority")]
        assert how == [None, None, "high"]


def test_a_figure_without_a_size_is_told(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    page = built.pages["core/tiny.html"]
    next(page.content.iter("img")).set("src", "../assets/figures/core/tiny/gone.svg#only-light")
    [problem] = place_figures(built)
    assert problem.file == "core/tiny.html"
    assert problem.message == (
        "the figure has no size in points: '../assets/figures/core/tiny/gone.svg#only-light'"
    )
