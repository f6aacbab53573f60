from __future__ import annotations

import pytest

from scripts.project import Project
from scripts.run import Settings
from scripts.survey import stray_files, survey
from tests.spoil import NUMBERS, TINY_MODULE, alter


def test_a_survey_counts_what_it_has_compared(small_site: Project) -> None:
    found = survey(small_site, small_site.pages(), Settings(), cached=False)
    assert found.problems == []
    assert (found.ran, found.fresh, found.checked()) == (2, 0, 25)
    assert found.counts() == (
        "4 pages: 5 code blocks, 2 outputs, 2 tables, 1 figures, 12 numbers; 2 ran, 0 were fresh"
    )


def test_a_page_alone_runs_what_it_prints_from_and_nothing_else(small_site: Project) -> None:
    for name, ran in (("core/tiny", 1), ("core/many-numbers", 2), ("index", 1)):
        found = survey(small_site, [name], Settings(), cached=False)
        assert (found.problems, found.ran, len(found.filled)) == ([], ran, 1)


def test_a_broken_module_stops_only_the_pages_that_print_from_it(small_site: Project) -> None:
    alter(small_site, TINY_MODULE, "y = double(x)", "y = double(z)")
    stray = small_site.figures / "core" / "stray-light.svg"
    stray.write_text("<svg/>", encoding="utf-8")
    found = survey(small_site, small_site.pages(), Settings(), cached=False)
    assert [str(problem) for problem in found.problems] == [
        f"{TINY_MODULE}:12: example_doubled raised NameError: name 'z' is not defined"
    ]
    assert [page.page.name for page in found.filled] == ["numbers"]
    alter(small_site, NUMBERS, '<data value="core/tiny:doubled.third">0.667</data>', "A third")
    found = survey(small_site, small_site.pages(), Settings(), cached=False)
    assert [page.page.name for page in found.filled] == ["core/many-numbers", "numbers"]
    assert stray_files(small_site, found) == []


def test_no_progress_is_shown_where_nobody_watches(
    small_site: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    survey(small_site, ["index"], Settings(), cached=False)
    assert capsys.readouterr() == ("", "")
