from __future__ import annotations

from scripts.finish.built import read_site
from scripts.finish.scheme import leave_scheme
from scripts.project import Project

SCRIPT = "assets/javascripts/bundle.1.min.js"


def test_the_element_gets_a_name_without_a_meaning(project: Project) -> None:
    script = project.site / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text('x("meta",{name:"theme-color"});x("meta",{name:"color-scheme"});')
    assert leave_scheme(read_site(project.site, project)) == []
    left = 'x("meta",{name:"theme-color"});x("meta",{name:"theme-scheme"});'
    assert script.read_text(encoding="utf-8") == left


def test_a_script_that_has_changed_is_told(project: Project) -> None:
    script = project.site / SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text("x()")
    [problem] = leave_scheme(read_site(project.site, project))
    told = 'holds {name:"color-scheme"} 0 times, expected once: the theme has changed'
    assert str(problem).startswith(f"{SCRIPT}:1: {told}")


def test_the_real_theme_has_it(built_small_site: Project) -> None:
    [script] = built_small_site.site.glob("assets/javascripts/bundle.*.js")
    assert '{name:"theme-scheme"}' in script.read_text(encoding="utf-8")
