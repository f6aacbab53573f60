"""Tables by release of PyTorch have the newest first: who looks in is mostly on it."""

from __future__ import annotations

import re

from scripts.project import Project

TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
RELEASE = re.compile(r"(?:torch )?(\d+)\.(\d+)\.(\d+)")


def releases(cells: list[str]) -> list[tuple[int, ...]]:
    found = (RELEASE.fullmatch(cell.strip()) for cell in cells)
    return [tuple(map(int, match.groups())) for match in found if match]


def test_the_newest_release_comes_first() -> None:
    project = Project()
    found = []
    for name in project.pages():
        for table in TABLE.findall(project.markdown(name).read_text(encoding="utf-8")):
            rows = [line.strip("|").split(" | ") for line in table.splitlines()]
            for listed in (releases(rows[0]), releases([row[0] for row in rows])):
                if len(listed) > 1:
                    assert listed == sorted(listed, reverse=True), f"{name}: {rows[0]}"
                    found.append(name)
    # By columns and by rows on the one page, by rows for each module on the other.
    assert found.count("practice/bugs") == 2
    assert found.count("reference/catalogue") > 3
