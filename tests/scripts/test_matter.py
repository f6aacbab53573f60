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
    for text in ("# A page\n", "", "---\nno end\n"):
        project.markdown("page").write_text(text, encoding="utf-8")
        assert read_matter(project, "page") == (Matter(), [])
        assert lines_of_matter(text) == 0


WRONG = {
    "titel: x": (2, "unknown key titel in the head of the page: expected description, tags"),
    "description: [a]": (2, "description is ['a']: write one sentence"),
    "description: a\ntags: learn": (3, "tags is 'learn': write a list of texts"),
    "needs: [nowhere]": (2, "needs names nowhere: expected another page, such as core/lookup"),
    "search: {boots: 2}": (2, "search is {'boots': 2}: write {boost: 2}, or another factor"),
    "search: 2": (2, "search is 2: write {boost: 2}, or another factor"),
    "needs: [page]": (2, "needs names page: expected another page"),
    "- a": (2, "the head is no mapping: expected description, tags and needs"),
    "a: b: c": (2, "the head is no YAML: "),
}


@pytest.mark.parametrize("head", WRONG)
def test_a_wrong_head_is_told(project: Project, head: str) -> None:
    project.markdown("page").write_text(f"---\n{head}\n---\n# A page\n", encoding="utf-8")
    _, [problem] = read_matter(project, "page")
    line, message = WRONG[head]
    assert (problem.file, problem.line) == ("docs/page.md", line)
    assert problem.message.startswith(message)


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
