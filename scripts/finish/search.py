"""Has the search weigh the tasks that pages are for about as much as their titles."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.finish.built import Built
from scripts.project import Problem

INDEX = Path("search", "search_index.json")
# A word of the title counts 1000 and one of the text 1; the theme gives one of a task a million,
# which puts every page "to look something up" before the page on what heads look at.
TASK = 1500.0


def weigh_tasks(built: Built) -> list[Problem]:
    """Set what a word of a task counts; a generator without this index ranks by its own rules."""
    path = built.folder / INDEX
    if not path.is_file():
        return []
    index = json.loads(path.read_text(encoding="utf-8"))
    if "tags" not in index["config"].get("fields", {}):
        return [
            Problem(INDEX.as_posix(), 1, "the index has no weight for tags: see finish/search.py")
        ]
    index["config"]["fields"]["tags"]["boost"] = TASK
    path.write_text(json.dumps(index, separators=(",", ":")), encoding="utf-8", newline="\n")
    return []
