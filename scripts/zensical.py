"""Builds the site with Zensical, which reads the same settings, into the same finished HTML.

Zensical knows no notebooks: each lab stands in as the Markdown that MkDocs' page shows as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.finish.labs import as_markdown
from scripts.project import Problem, Project, is_lab
from scripts.site import complete

_TO_LAB = re.compile(r"(\]\((?!https?:)[^)\s#]*)\.ipynb\b")


def build_with_zensical(project: Project, target: Path) -> list[Problem]:
    """Build into ``target``, which must not exist yet; say what is wrong, as `build_site` does."""
    with TemporaryDirectory(prefix=".zensical-") as temporary:
        copy = Project(Path(temporary))
        shutil.copytree(project.docs, copy.docs)
        settings = (project.root / "mkdocs.yml").read_text(encoding="utf-8")
        for lab in filter(is_lab, project.names()):
            copy.notebook(lab).unlink()
            copy.markdown(lab).write_text(as_markdown(project, lab), encoding="utf-8")
            settings = settings.replace(f"- {lab}.ipynb\n", f"- {lab}.md\n")
        for page in copy.docs.rglob("*.md"):
            text = page.read_text(encoding="utf-8")
            page.write_text(_TO_LAB.sub(r"\1.md", text), encoding="utf-8")
        (copy.root / "mkdocs.yml").write_text(settings, encoding="utf-8")
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
