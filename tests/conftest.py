from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.project import HOME, Project
from scripts.site import build_site

ADDRESSES = ("SITE_URL", "REPO_URL", "EDIT_URI")  # what mkdocs.yml reads from the environment


def copy_small_site(root: Path) -> Project:
    """A project of its own in ``root``, under the real site's settings."""
    shutil.copytree(HOME / "tests" / "small_site", root, dirs_exist_ok=True)
    settings = (HOME / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(r"^nav:\n(?:[ -].*\n|\n)*", "", settings, flags=re.MULTILINE)
    (root / "mkdocs.yml").write_text(settings, encoding="utf-8")
    project = Project(root)
    for asset in (HOME / "docs" / "assets").iterdir():  # which the settings name
        if asset.name != "figures":
            there = project.docs / "assets" / asset.name
            (shutil.copytree if asset.is_dir() else shutil.copy)(asset, there)
    return project


def commit(project: Project, date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the project a repository with one commit of that date."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
        monkeypatch.setenv(f"GIT_{name}_DATE", date)
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *command], cwd=project.root, check=True)


@pytest.fixture
def small_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A tiny project that a test may spoil."""
    for name in ADDRESSES:
        monkeypatch.delenv(name, raising=False)
    return copy_small_site(tmp_path / "project")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project without a page."""
    project = Project(tmp_path / "project")
    project.docs.mkdir(parents=True)
    project.modules.mkdir(parents=True)
    for package in (project.modules.parent, project.modules):
        (package / "__init__.py").touch()
    return project


@pytest.fixture(scope="session")
def built_small_site(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The tiny project with its site built; shared, so only to be read."""
    project = copy_small_site(tmp_path_factory.mktemp("built") / "project")
    with pytest.MonkeyPatch.context() as patch:
        for name in ADDRESSES:
            patch.delenv(name, raising=False)
        assert build_site(project) == []
    return project
