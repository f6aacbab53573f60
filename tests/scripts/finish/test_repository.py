from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from lxml.html import HtmlElement, document_fromstring

from scripts.finish.built import Built, Html, read_site
from scripts.finish.repository import mend_repository
from scripts.project import HOME, Problem, Project
from scripts.site import build_site
from scripts.zensical import build_with_zensical
from tests.conftest import ADDRESSES

REPOSITORY = "https://github.com/owner/name"
BUILDS = (build_site, build_with_zensical)


def to_source(root: HtmlElement) -> list[str]:
    return [str(href) for href in root.xpath("//a[@rel='edit']/@href")]


@pytest.mark.parametrize("build", BUILDS)
def test_every_page_leads_to_its_source_and_asks_nobody(
    small_site: Project,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[Project, Path], list[Problem]],
) -> None:
    monkeypatch.setenv("REPO_URL", REPOSITORY)
    monkeypatch.setenv("EDIT_URI", "edit/main/docs/")
    assert build(small_site, tmp_path / "site") == []
    built = read_site(tmp_path / "site", small_site)
    pages = [page for page in built.pages.values() if page.page is not None]
    assert len(pages) == len(small_site.names()) > 2
    for page in pages:
        assert to_source(page.root) == [f"{REPOSITORY}/edit/main/docs/{page.page}.md"]
        assert page.root.xpath("//header//a/@href").count(REPOSITORY) == 1, page.file
        # By this name the theme's script finds the link, and asks the code host for its stars.
        assert not page.root.xpath("//*[@data-md-component='source']"), page.file


@pytest.mark.parametrize("suffix", ["ipynb", "md"])  # as MkDocs and as Zensical has it
def test_a_lab_leads_to_its_script(tmp_path: Path, suffix: str) -> None:
    link = f"{REPOSITORY}/edit/main/docs/labs/scale.{suffix}"
    root = document_fromstring(f'<a rel="edit" href="{link}">Edit</a>')
    page = Html("labs/scale.html", root, "labs/scale")
    assert mend_repository(Built(tmp_path, Project(HOME), {page.file: page})) == []
    [href] = to_source(root)
    assert href == f"{REPOSITORY}/edit/main/snippets/labs/scale.py"
    assert (HOME / href.removeprefix(f"{REPOSITORY}/edit/main/")).is_file()


def test_a_link_without_an_address_goes(tmp_path: Path) -> None:
    root = document_fromstring('<p><a rel="edit" href="docs/core/x.md">Edit</a></p>')
    page = Html("core/x.html", root, "core/x")
    assert mend_repository(Built(tmp_path, Project(HOME), {page.file: page})) == []
    assert to_source(root) == []


def test_without_an_address_there_is_no_link(built_small_site: Project) -> None:
    for page in read_site(built_small_site.site, built_small_site).pages.values():
        assert to_source(page.root) == []
        assert not page.root.find_class("md-source")
        assert not page.root.find_class("md-header__source")
        assert not page.root.find_class("md-nav__source")


def test_the_published_site_has_every_address() -> None:
    settings = (HOME / "mkdocs.yml").read_text(encoding="utf-8")
    read = re.findall(r"!ENV \[(\w+), \"\"\]", settings)
    assert sorted(read) == sorted(ADDRESSES)
    workflow = (HOME / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(workflow)["jobs"]["build"]["steps"]
    [given] = [step["env"] for step in steps if "SITE_URL" in step.get("env", {})]
    assert given["REPO_URL"] == "${{ github.server_url }}/${{ github.repository }}"
    assert given["EDIT_URI"] == "edit/${{ github.ref_name }}/docs/"
