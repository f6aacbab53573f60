"""When the project's last commit was made."""

from __future__ import annotations

import shutil
import subprocess

from scripts.project import Project


def commit_time(project: Project) -> int | None:
    """Seconds since 1970 in UTC; None where git knows no commit."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "log", "-1", "--format=%ct"]
    done = subprocess.run(
        command, cwd=project.root, capture_output=True, encoding="utf-8", check=False
    )
    return int(done.stdout) if done.stdout.strip() else None
