from __future__ import annotations

from pathlib import Path

import pytest
from lxml.html import HtmlElement, fragment_fromstring

from scripts.finish.about import LINES, WORDS, minutes, tell_about
from scripts.finish.built import Built, read_site
from scripts.project import Project

PAGE = """<!doctype html><html><head><title>{title}</title></head><body>
<article class="md-content__inner"><nav class="md-tags">tags</nav>
<h1>{title}<a class="headerlink" href="#">¶</a></h1>
<p>{links}</p><h2 id="why">Why <code>x</code><a class="headerlink" href="#why">¶</a></h2>
</article></body></html>"""
# Who links to whom; the list links to all.
LINKS = {
    "list": ["a", "b", "c", "d", "e"],
    "a": [],
    "b": ["a", "a#why", "https://example.org/c.html"],
    "c": ["a", "b"],
    "d": ["a"],
    "e": ["a"],
}


@pytest.fixture
def built(project: Project, tmp_path: Path) -> Built:
    """A site of pages in a folder, with heads, before anything is told about them."""
    nav = "".join(f"  - in/{name}.md\n" for name in ["list", "e", "d", "c", "b", "a"])
    (project.root / "mkdocs.yml").write_text(f"nav:\n{nav}", encoding="utf-8")
    (project.docs / "in").mkdir()
    (tmp_path / "site" / "in").mkdir(parents=True)
    for name, targets in LINKS.items():
        needs = {"b": "needs: [in/a]\n", "e": "needs: [in/b]\n"}.get(name, "")
        lists = "## Mend it\n\n<!-- tagged: mend it -->\n" if name == "list" else ""
        project.markdown(f"in/{name}").write_text(
            f"---\ndescription: x\ntags: [mend it]\n{needs}---\n# {name}\n{lists}",
            encoding="utf-8",
        )
        files = (
            target if "://" in target else f"{target.replace('#', '.html#')}"
            for target in (t if "#" in t or "://" in t else f"{t}.html" for t in targets)
        )
        links = "".join(f'<a href="{file}">x</a> ' for file in files)
        (tmp_path / "site" / "in" / f"{name}.html").write_text(
            PAGE.format(title=name.upper(), links=links), encoding="utf-8"
        )
    return read_site(tmp_path / "site", project)


def rows(built: Built, name: str) -> dict[str, HtmlElement]:
    [about] = built.pages[f"in/{name}.html"].content.find_class("about")
    assert about.getprevious().tag == "h1"
    return {row.findtext("dt"): row.find("dd") for row in about.iterfind("dl/div")}


def links(element: HtmlElement) -> list[tuple[str, str]]:
    return [(link.text, link.get("href")) for link in element.iter("a")]


def test_a_page_tells_what_it_is_for_and_what_to_read_before(built: Built) -> None:
    assert tell_about(built) == []
    told = rows(built, "b")
    assert list(told) == ["Takes", "To", "Read first", "Used by"]
    assert told["Takes"].text == "1 min"
    assert links(told["To"]) == [("mend it", "../in/list.html#mend-it")]
    assert links(told["Read first"]) == [("A", "../in/a.html")]
    # The list links to most pages, which is no use of them.
    assert links(told["Used by"]) == [("E", "../in/e.html"), ("C", "../in/c.html")]
    assert not built.pages["in/b.html"].content.find_class("md-tags")


def test_many_users_are_folded_in_reading_order(built: Built) -> None:
    tell_about(built)
    used = rows(built, "a")["Used by"]
    assert used.findtext("details/summary") == "4 pages"
    assert [text for text, _ in links(used)] == ["E", "D", "C", "B"]
    assert "Read first" not in rows(built, "a")


def test_the_list_of_tasks_does_not_send_readers_to_itself(built: Built) -> None:
    tell_about(built)
    assert list(rows(built, "list")) == ["Takes"]


def test_the_parts_of_a_page_are_listed_for_narrow_screens(built: Built) -> None:
    tell_about(built)
    [nav] = built.pages["in/a.html"].content.iter("nav")
    assert nav.get("aria-label") == "On this page"
    assert links(nav) == [("Why x", "#why")]


def test_the_home_page_speaks_for_itself(built: Built) -> None:
    home = built.pages.pop("in/a.html")
    built.project.markdown("index").write_text("# Home\n", encoding="utf-8")
    home.page, home.file = "index", "index.html"
    built.pages["index.html"] = home
    found = [problem.file for problem in tell_about(built)]
    assert found == ["docs/in/a.md"]  # the page that is gone
    assert not home.content.find_class("about")


def test_a_page_that_the_generator_left_out_is_told(built: Built) -> None:
    del built.pages["in/d.html"]
    [problem] = tell_about(built)
    assert str(problem) == "docs/in/d.md:1: the generator wrote no page of it"


PROSE = f"<p>{'word ' * WORDS}</p>"
CODE = "<pre>" + "line\n" * LINES + "\n</pre>"
TIMES = {
    "": 0,
    "<p>word</p>": 1,
    PROSE: 1,
    f"{PROSE}<p>more</p>": 2,
    f"{PROSE}{CODE}": 2,
    f"{PROSE}<details>{CODE}{PROSE}</details>": 1,
    f"{PROSE}<table><tr><td>{PROSE}</td></tr></table>": 1,
    f"{PROSE}<p><span class='katex'>{'x ' * WORDS}</span></p>": 2,
}


@pytest.mark.parametrize("content", TIMES)
def test_reading_takes_time_for_text_and_for_code_that_lies_open(content: str) -> None:
    assert minutes(fragment_fromstring(f"<div>{content}</div>")) == TIMES[content]


def test_breadcrumbs_have_a_name_of_their_own_and_are_missed(built: Built) -> None:
    settings = built.project.root / "mkdocs.yml"
    settings.write_text("nav:\n  - Part:\n      - in/b.md\n", encoding="utf-8")
    [problem] = tell_about(built)
    assert str(problem) == "docs/in/b.md:1: the generator wrote no breadcrumbs"
    root = built.pages["in/b.html"].root
    path = root.makeelement("nav", {"class": "md-path", "aria-label": "Navigation"})
    root.find("body").append(path)
    assert tell_about(built) == []
    assert path.get("aria-label") == "Breadcrumbs"
