from __future__ import annotations

import pytest

from scripts.finish.built import read_site
from scripts.finish.minus import keep_minus
from scripts.finish.search import INDEX
from scripts.project import Project

WORKER = "assets/javascripts/workers/search.1.min.js"
READS = r"""t.trim().split(/"([^"]+)"/g)"""


def site(project: Project, worker: str) -> None:
    for name, text in ((INDEX.as_posix(), "{}"), (WORKER, worker)):
        path = project.site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_the_minus_goes_before_the_query_is_taken_apart(project: Project) -> None:
    site(project, f"a();{READS};b()")
    assert keep_minus(read_site(project.site, project)) == []
    left = (project.site / WORKER).read_text(encoding="utf-8")
    assert left == r"""a();t.replace(/(^|[\s"])-+/g,"$1").trim().split(/"([^"]+)"/g);b()"""


@pytest.mark.parametrize(("worker", "found"), [("a()", "[0]"), (READS * 2, "[2]")])
def test_a_worker_that_has_changed_is_told(project: Project, worker: str, found: str) -> None:
    site(project, worker)
    [problem] = keep_minus(read_site(project.site, project))
    assert problem.file == "assets/javascripts/workers"
    assert f"once, found {found}: the theme has changed" in problem.message
    assert (project.site / WORKER).read_text(encoding="utf-8") == worker


def test_another_generator_s_worker_stays(project: Project) -> None:
    site(project, "a()")
    (project.site / INDEX).unlink()
    assert keep_minus(read_site(project.site, project)) == []
