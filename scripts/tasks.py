"""The pages by task: who is listed under which tag, and what is wrong with the heads of pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from scripts.matter import Matter, read_matter
from scripts.percent import prose_of
from scripts.project import Problem, Project, is_lab
from scripts.settings import read_settings

HOME_PAGE = "index"  # which leads to every task
LONGEST = 160  # what search engines and cards show of a description
_LISTED = re.compile(r"^<!-- tagged: (.+?) -->$", re.MULTILINE)
_HEADING = re.compile(r"^# +(.+?)(?: *\{[^{}]*\})? *$", re.MULTILINE)


def sections(project: Project) -> dict[str, tuple[str, ...]]:
    """Each page's sections in the navigation, in reading order; what has no place comes last."""
    placed: dict[str, tuple[str, ...]] = {
        str(PurePosixPath(file).with_suffix("")): (section,) if section else ()
        for section, file in read_settings(project).files
    }
    known = project.names()
    found = {name: placed[name] for name in placed if name in known}
    return found | {name: () for name in known if name not in found}


def heads(project: Project) -> dict[str, Matter]:
    """The head of every page, in reading order."""
    return {name: read_matter(project, name)[0] for name in sections(project)}


def tasks(project: Project) -> dict[str, str]:
    """Every tag that some page lists, and that page."""
    return {tag: name for name in project.names() for tag in _LISTED.findall(_text(project, name))}


def anchor(tag: str) -> str:
    """The anchor of the heading over a task's list."""
    return tag.lower().replace(" ", "-")


def listed(project: Project, page: str, tag: str) -> str:
    """The list of the pages with that tag, as it stands on ``page``; empty where there is none."""
    folder = PurePosixPath(page).parent
    return "".join(
        f"- [{heading(project, name)}]({_link(project, name, folder)}): {matter.description}\n"
        for name, matter in heads(project).items()
        if tag in matter.tags and name != page
    )


def heading(project: Project, name: str) -> str:
    """The page's first heading, as Markdown."""
    match = _HEADING.search(_text(project, name))
    return match[1] if match else name


def head_problems(project: Project, names: list[str]) -> Iterator[Problem]:
    """What is wrong with the heads of the named pages; they are due where pages list tasks."""
    known = tasks(project)
    all_heads = heads(project)
    for name in names:
        matter, problems = read_matter(project, name)
        yield from problems
        file = project.relative(project.source(name))
        if problems or not known:
            continue
        for key in ("description", "tags"):
            if not getattr(matter, key) and (name, key) != (HOME_PAGE, "tags"):
                yield Problem(file, 1, f"the page has no {key} at its head: see the README")
        if len(matter.description) > LONGEST:
            message = f"the description has {len(matter.description)} characters: {LONGEST} at most"
            yield Problem(file, matter.lines["description"], message)
        for tag in matter.tags:
            if tag not in known:
                message = f"the tag {tag} is listed nowhere: expected one of {', '.join(known)}"
                yield Problem(file, matter.lines["tags"], message)
        if circle := _circle(all_heads, name):
            message = f"to read before this page is this page: {' needs '.join(circle)}"
            yield Problem(file, matter.lines["needs"], message)


def _circle(all_heads: Mapping[str, Matter], name: str) -> list[str]:
    """The shortest way from a page over what it needs back to itself."""
    ways = [[name]]
    seen: set[str] = set()
    for way in ways:
        for needed in all_heads[way[-1]].needs if way[-1] in all_heads else ():
            if needed == name:
                return [*way, name]
            if needed not in seen:
                seen.add(needed)
                ways.append([*way, needed])
    return []


def _link(project: Project, name: str, folder: PurePosixPath) -> str:
    return os.path.relpath(project.published(name).relative_to(project.docs), folder)


def _text(project: Project, name: str) -> str:
    text = project.source(name).read_text(encoding="utf-8-sig", errors="replace")
    return prose_of(text) if is_lab(name) else text
