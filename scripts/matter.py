"""What stands at the head of a page, between two lines of ``---``: how others speak of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

from scripts.percent import prose_of
from scripts.project import Problem, Project, is_lab

FENCE = "---"
_EXPECTED = "expected description, tags and needs, as the README shows"


@dataclass(frozen=True)
class Matter:
    """A page's description (one sentence), the tasks it is for, and the pages to read first."""

    description: str = ""
    tags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    lines: dict[str, int] = field(default_factory=dict, compare=False)


def lines_of_matter(text: str) -> int:
    """How many lines the head of the page takes, its fences included; 0 where it has none."""
    lines = text.split("\n")
    if lines[0] != FENCE or FENCE not in lines[1:]:
        return 0
    return lines.index(FENCE, 1) + 1


def read_matter(project: Project, name: str) -> tuple[Matter, list[Problem]]:
    """Read the head of the page ``name``, and say what is wrong with it."""
    path = project.source(name)
    file = project.relative(path)
    text = path.read_text(encoding="utf-8-sig", errors="replace")  # told where it is read
    if is_lab(name):
        text = prose_of(text)
    head = "\n".join(text.split("\n")[1 : max(1, lines_of_matter(text) - 1)])
    try:
        given = yaml.safe_load(head) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark else 1
        return Matter(), [Problem(file, line, f"the head is no YAML: {_one_line(error)}")]
    if not isinstance(given, dict):
        return Matter(), [Problem(file, 2, f"the head is no mapping: {_EXPECTED}")]
    lines = {
        line.partition(":")[0]: number
        for number, line in enumerate(head.split("\n"), 2)
        if line[:1].isalpha()
    }
    problems = []

    def problem(key: str, message: str) -> None:
        problems.append(Problem(file, lines.get(str(key), 1), message))

    def texts(key: str) -> tuple[str, ...]:
        value = given.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            problem(key, f"{key} is {value!r}: write a list of texts")
            return ()
        return tuple(value)

    for key in given:
        if key not in ("description", "tags", "needs", "search"):
            problem(key, f"unknown key {key} in the head of the page: {_EXPECTED}")
    search = given.get("search", {"boost": 1})  # for the theme, which reads it by itself
    boost = search.get("boost") if isinstance(search, dict) and len(search) == 1 else None
    if not isinstance(boost, int | float):
        problem("search", f"search is {search!r}: write {{boost: 2}}, or another factor")
    description = given.get("description", "")
    if not isinstance(description, str):
        problem("description", f"description is {description!r}: write one sentence")
        description = ""
    matter = Matter(" ".join(description.split()), texts("tags"), texts("needs"), lines)
    known = project.names()
    for needed in matter.needs:
        if needed not in known or needed == name:
            problem("needs", f"needs names {needed}: expected another page, such as core/lookup")
    return matter, problems


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
