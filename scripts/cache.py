"""Results kept between builds; each is fresh as long as nothing that it depends on has changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from scripts.percent import digest
from scripts.project import HOME, Project
from scripts.run import Results, Settings

MACHINERY = ("worker", "device", "style", "percent")


def environment(settings: Settings) -> dict[str, str]:
    """What every result depends on beside the project's own files."""
    machinery = b"".join((HOME / "scripts" / f"{name}.py").read_bytes() for name in MACHINERY)
    return {
        "python": sys.version,
        "machine": platform.machine(),
        **{name: version(name) for name in ("torch", "numpy", "matplotlib")},
        "instructions": os.environ.get("ATEN_CPU_CAPABILITY", ""),
        "device": settings.device,
        "threads": str(settings.threads),
        # The seed policy and the look of figures are in these modules.
        "machinery": hashlib.sha256(machinery).hexdigest(),
    }


def load(project: Project, page: str, settings: Settings) -> Results | None:
    """The page's kept results, or None where there are none or something has changed since."""
    try:
        kept = json.loads(_path(project, page).read_text(encoding="utf-8"))
        results = Results(**kept["results"])
        files = results.files or {}
        fresh = kept["environment"] == environment(settings) and all(
            _hash(project, project.root / file) == digest for file, digest in files.items()
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # no whole result stands there
    return results if files and fresh else None


def save(project: Project, page: str, settings: Settings, results: Results) -> None:
    """Keep the page's results, unless a file changed while they were made."""
    if results.files is None:
        return
    kept = {"environment": environment(settings), "results": dataclasses.asdict(results)}
    write_whole(_path(project, page), json.dumps(kept))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that no reader ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _path(project: Project, page: str) -> Path:
    return project.cache / "pages" / f"{page}.json"


def _hash(project: Project, path: Path) -> str | None:
    if not path.is_file():
        return None
    if path.parent == project.labs:
        return digest(path.read_text(encoding="utf-8"))
    return hashlib.sha256(path.read_bytes()).hexdigest()
