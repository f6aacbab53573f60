"""Builds the site with Zensical, which reads the same settings, into the same finished HTML."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.project import Problem, Project
from scripts.site import complete


def build_with_zensical(project: Project, target: Path) -> list[Problem]:
    """Build into ``target``, which must not exist yet; say what is wrong, as `build_site` does."""
    with TemporaryDirectory(prefix=".zensical-") as temporary:
        copy = Project(Path(temporary))
        shutil.copytree(project.docs, copy.docs)
        shutil.copy(project.root / "mkdocs.yml", copy.root)
        done = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
            cwd=copy.root,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            return [Problem("mkdocs.yml", 1, f"zensical failed: {done.stdout}{done.stderr}")]
        shutil.move(copy.site, target)
    return complete(target, project)
