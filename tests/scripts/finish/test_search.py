from __future__ import annotations

import json
import shutil
from pathlib import Path

from scripts.finish.built import Built
from scripts.finish.search import INDEX, weigh_tasks
from scripts.project import Project


def test_a_task_counts_as_much_as_a_title(built_small_site: Project, tmp_path: Path) -> None:
    fields = json.loads((built_small_site.site / INDEX).read_text(encoding="utf-8"))["config"]
    weights = {name: field["boost"] for name, field in fields["fields"].items()}
    assert weights["text"] < weights["tags"] < 2 * weights["title"]

    site = shutil.copytree(built_small_site.site, tmp_path / "site")
    (site / INDEX).write_text('{"config": {}, "docs": []}', encoding="utf-8")
    [problem] = weigh_tasks(Built(site, built_small_site, {}))
    assert problem.file == "search/search_index.json"
    assert "no weight for tags" in problem.message
