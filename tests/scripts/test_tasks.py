from __future__ import annotations

import pytest

from scripts.project import Project
from scripts.run import Settings
from scripts.survey import survey
from scripts.tasks import head_problems, heading, listed, sections, tasks

NAV = """\
site_url: !ENV [SITE_URL, ""]
nav:
  - index.md
  - Core:
      - core/second.md
      - core/first.md
"""
HEAD = """\
---
description: What {0} is for.
tags: [mend, learn]
needs: [{1}]
---

# About *{0}* {{ #top }}
"""


@pytest.fixture
def tagged(project: Project) -> Project:
    """Three pages with heads, of which the first lists two tasks."""
    lists = "\n<!-- tagged: mend -->\n\n## Learn\n\n<!-- tagged: learn -->\n"
    pages = {
        "index": HEAD.format("index", "") + lists,
        "core/first": HEAD.format("first", ""),
        "core/second": HEAD.format("second", "core/first"),
    }
    for name, text in pages.items():
        project.markdown(name).parent.mkdir(exist_ok=True)
        project.markdown(name).write_text(text, encoding="utf-8")
    (project.root / "mkdocs.yml").write_text(NAV, encoding="utf-8")
    return project


def test_pages_stand_under_their_sections_in_reading_order(tagged: Project) -> None:
    (tagged.docs / "astray.md").write_text("# Astray\n", encoding="utf-8")
    found = sections(tagged)
    assert list(found) == ["index", "core/second", "core/first", "astray"]
    assert list(found.values()) == [(), ("Core",), ("Core",), ()]


def test_a_task_lists_its_pages_in_reading_order_but_not_itself(tagged: Project) -> None:
    assert tasks(tagged) == {"mend": "index", "learn": "index"}
    expected = [
        "- [About *second*](core/second.md): What second is for.",
        "- [About *first*](core/first.md): What first is for.",
    ]
    assert listed(tagged, "index", "mend").splitlines() == expected
    from_core = listed(tagged, "core/first", "mend").splitlines()
    assert [line[: line.index(":")] for line in from_core] == [
        "- [About *index*](../index.md)",
        "- [About *second*](second.md)",
    ]


def test_a_directive_is_filled_and_compared_as_any_other(tagged: Project) -> None:
    [index] = survey(tagged, ["index"], Settings(), cached=False).filled
    text = index.text()
    assert "<!-- tagged: learn -->\n- [About *second*](core/second.md)" in text
    tagged.markdown("index").write_text(text, encoding="utf-8")
    [again] = survey(tagged, ["index"], Settings(), cached=False).filled
    assert again.text() == text


def test_sound_heads_are_no_problem(tagged: Project) -> None:
    assert list(head_problems(tagged, tagged.pages())) == []


FAULTS = {
    ("description: What second is for.\n", ""): (1, "the page has no description at its head"),
    ("tags: [mend, learn]\n", ""): (1, "the page has no tags at its head: see the README"),
    ("What second is for.", "o" * 161): (2, "the description has 161 characters: 160 at most"),
    ("mend, ", "mand, "): (3, "the tag mand is listed nowhere: expected one of mend, learn"),
    ("tags:", "tag:"): (3, "unknown key tag in the head of the page: expected description"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_head_is_told_by_the_check(tagged: Project, fault: tuple[str, str]) -> None:
    path = tagged.markdown("core/second")
    text = path.read_text(encoding="utf-8")
    assert fault[0] in text
    path.write_text(text.replace(*fault), encoding="utf-8")
    [problem] = survey(tagged, tagged.pages(), Settings(), cached=False).problems
    line, message = FAULTS[fault]
    assert (problem.file, problem.line) == ("docs/core/second.md", line)
    assert problem.message.startswith(message)


def test_pages_to_read_before_do_not_come_round_in_a_circle(tagged: Project) -> None:
    path = tagged.markdown("core/first")
    path.write_text(HEAD.format("first", "core/second"), encoding="utf-8")
    found = [(problem.file, problem.message) for problem in head_problems(tagged, tagged.pages())]
    said = "to read before this page is this page: core/first needs core/second needs core/first"
    assert found[0] == ("docs/core/first.md", said)
    assert [file for file, _ in found] == ["docs/core/first.md", "docs/core/second.md"]


def test_a_task_without_a_page_fails(tagged: Project) -> None:
    path = tagged.markdown("index")
    text = path.read_text(encoding="utf-8") + "\n<!-- tagged: rest -->\n"
    path.write_text(text, encoding="utf-8")
    found = survey(tagged, tagged.pages(), Settings(), cached=False).problems
    assert [str(problem) for problem in found] == [
        "docs/index.md:15: <!-- tagged: rest -->: no page has this tag: remove this, or tag a page"
    ]


def test_where_no_page_lists_tasks_heads_may_be_left_out(project: Project) -> None:
    project.markdown("page").write_text("# A page\n", encoding="utf-8")
    assert list(head_problems(project, ["page"])) == []
    assert sections(project) == {"page": ()}
    assert heading(project, "page") == "A page"


def test_this_site_lists_tasks_and_knows_where_every_page_stands() -> None:
    project = Project()
    assert set(tasks(project).values()) == {"tasks"}
    places = sections(project)
    assert list(places)[:3] == ["index", "tasks", "core/lookup"]
    assert places["core/lookup"] == ("Core",)
