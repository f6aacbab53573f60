from __future__ import annotations

import pytest

from scripts.matter import Matter, lines_of_matter, read_matter
from scripts.page import read_page
from scripts.project import Project

WHOLE = """\
---
description: >-
  What a page
  is for.
tags: [learn, mend]
needs: [other]
---
# A page
"""


def test_the_head_of_a_page_is_read(project: Project) -> None:
    project.markdown("other").write_text("# Other\n", encoding="utf-8")
    project.markdown("page").write_text(WHOLE, encoding="utf-8")
    matter, problems = read_matter(project, "page")
    assert problems == []
    assert matter == Matter("What a page is for.", ("learn", "mend"), ("other",))
    assert matter.lines == {"description": 2, "tags": 5, "needs": 6}
    assert lines_of_matter(WHOLE) == 7


def test_a_page_without_a_head_has_an_empty_one(project: Project) -> None:
    for text in ("# A page\n", "", "---\nno end\n", "# A page\ntags: [a]\n---\n"):
        project.markdown("page").write_text(text, encoding="utf-8")
        assert read_matter(project, "page") == (Matter(), [])
        assert lines_of_matter(text) == 0
    for text in ("---\n---\n# A page\n", "---\n---\n# A page\n---\n"):
        project.markdown("page").write_text(text, encoding="utf-8")
        assert read_matter(project, "page") == (Matter(), [])
        assert lines_of_matter(text) == 2


def test_the_head_is_read_whatever_the_bytes_around_it(project: Project) -> None:
    head = "---\ntags: [learn]\n---\n"
    for raw in (f"\N{BYTE ORDER MARK}{head}".encode(), head.encode() + b"\xff"):
        project.markdown("page").write_bytes(raw)
        assert read_matter(project, "page") == (Matter(tags=("learn",)), [])


def test_the_head_of_a_lab_is_in_its_comments(project: Project) -> None:
    project.labs.mkdir()
    project.module("labs/rise").write_text("# ---\n# tags: [learn]\n# ---\n", encoding="utf-8")
    assert read_matter(project, "labs/rise") == (Matter(tags=("learn",)), [])


WRONG = {
    "titel: x": (2, "unknown key titel in the head of the page: expected description, tags"),
    "description: [a]": (2, "description is ['a']: write one sentence"),
    "description: a\ntags: learn": (3, "tags is 'learn': write a list of texts"),
    "needs: [nowhere]": (2, "needs names nowhere: expected another page, such as core/lookup"),
    "search: {boots: 2}": (2, "search is {'boots': 2}: write {boost: 2}, or another factor"),
    "search: 2": (2, "search is 2: write {boost: 2}, or another factor"),
    "needs: [page]": (2, "needs names page: expected another page"),
    "- a": (2, "the head is no mapping: expected description, tags and needs"),
    "a: b: c": (2, "the head is no YAML: mapping values are not allowed here in "),
    "a: 1\nb: c: d": (3, "the head is no YAML: "),
    "a: \x07": (1, "the head is no YAML: "),
    "x: 1": (2, "unknown key x in the head of the page"),
    "{titel: x}": (1, "unknown key titel in the head of the page"),
    "needs: 1": (2, "needs is 1: write a list of texts"),
    "tags: [learn, 2]": (2, "tags is ['learn', 2]: write a list of texts"),
    "search: {boost: 2, exclude: true}": (2, "search is {'boost': 2, 'exclude': True}: write {boo"),
}


@pytest.mark.parametrize("head", WRONG)
def test_a_wrong_head_is_told(project: Project, head: str) -> None:
    project.markdown("page").write_text(f"---\n{head}\n---\n# A page\n", encoding="utf-8")
    matter, [problem] = read_matter(project, "page")
    line, message = WRONG[head]
    assert (problem.file, problem.line) == ("docs/page.md", line)
    assert problem.message.startswith(message)
    assert "\n" not in problem.message
    if "list of texts" in message:
        assert (matter.tags, matter.needs) == ((), ())


def test_the_head_is_prose_like_any_other(project: Project) -> None:
    text = "---\ndescription: It takes 512 steps.\n---\n# A page\n"
    project.markdown("page").write_text(text, encoding="utf-8")
    page = read_page(project, "page")
    assert page.problems == []
    assert (2, "description: It takes 512 steps.") in page.prose


def test_what_is_meant_for_the_theme_is_no_prose(project: Project) -> None:
    text = "---\nsearch: {boost: 0.2}\ndescription: x\n---\n# A page\n"
    project.markdown("page").write_text(text, encoding="utf-8")
    assert (2, "\ndescription: x") in read_page(project, "page").prose
