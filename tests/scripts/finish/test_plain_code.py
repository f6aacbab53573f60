from __future__ import annotations

import re

from lxml.html import HtmlElement, fromstring

from scripts.finish.built import read_site
from scripts.finish.plain_code import UNPAINTED, unmark_code
from scripts.project import HOME, Project

CODE = (
    '<pre><code><span class="n">x</span> <span class="o">=</span> <span class="mi">1</span>'
    '<span class="p">.</span>\n</code></pre><p><span class="n">x</span></p>'
)


def small(project: Project) -> HtmlElement:
    built = read_site(project.site, project)
    page = built.pages["core/tiny.html"]
    page.content.append(fromstring(f"<div>{CODE}</div>"))
    assert unmark_code(built) == []
    return page.content[-1]


def test_code_keeps_its_text_and_its_colours(built_small_site: Project) -> None:
    div = small(built_small_site)
    assert div.text_content() == fromstring(f"<div>{CODE}</div>").text_content()
    assert [(span.get("class"), span.text) for span in div.xpath("pre//span")] == [("mi", "1")]
    assert len(div.xpath("p/span")) == 1


def test_the_theme_paints_them_as_code(built_small_site: Project) -> None:
    """Each has one colour, by a variable that is the colour of all code."""
    [theme] = built_small_site.site.glob("assets/stylesheets/site.*.css")
    styles = theme.read_text(encoding="utf-8")
    colours = (HOME / "docs" / "assets" / "stylesheets" / "colours.css").read_text(encoding="utf-8")
    values = dict(re.findall(r"(--md-code-[\w-]+): ([^;]+);", colours))
    for name in UNPAINTED - {"w"}:
        [variable] = re.findall(
            rf"\.highlight \.{name}\b[^{{}}]*{{color:var\((--[\w-]+)\)}}", styles
        )
        assert values[variable] == values["--md-code-fg-color"], variable
    assert not re.search(r"\.highlight \.w\b[^{]*{[^}]*color", styles)
