from __future__ import annotations

from lxml.html import document_fromstring

from scripts.finish.blocks import name_blocks
from scripts.finish.built import Built, Html, read_site
from scripts.project import Problem, Project


def test_every_block_has_an_address(built_small_site: Project) -> None:
    page = read_site(built_small_site.site, built_small_site).pages["core/tiny.html"]
    tags = {
        "imports": "div",
        "source-tiny-double": "div",
        "example-doubled": "div",
        "output-doubled": "div",
        "table-doubles": "table",
        "figure-line": "p",
    }
    for anchor, tag in tags.items():
        assert page.content.get_element_by_id(anchor).tag == tag
    assert "def double" in page.content.get_element_by_id("source-tiny-double").text_content()
    assert page.content.get_element_by_id("figure-line").find("img") is not None


def test_a_block_that_is_not_in_the_html_is_named(project: Project) -> None:
    project.markdown("page").write_text("# A page\n\n<!-- table: a -->\n\n<!-- table: b -->\n")
    html = "<article class='md-content__inner'>{}<p>x</p></article>"
    for comments in ("<!-- table: a -->", "<!-- table: a --><table></table><!-- table: b -->"):
        root = document_fromstring(html.format(comments).replace("<p>", "<p id='own'>"))
        pages = {"page.html": Html("page.html", root, "page")}
        found = name_blocks(Built(project.root, project, pages))
        message = "the block of this table is not in page.html, or has an id of its own"
        assert Problem("docs/page.md", 5, message) in found
        assert len(found) == 1 + ("<table>" not in comments)
