"""Builds the site from its Markdown, and puts it in place only once it is whole and sound."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from mkdocs.livereload import LiveReloadServer

from scripts.commit import commit_time
from scripts.finish.built import finish
from scripts.finish.labs import lay_out_labs
from scripts.finish.steps import STEPS
from scripts.mathematics import render_mathematics
from scripts.project import Problem, Project
from scripts.scan import scan

# Where git knows no commit, every build still has the same date: 2026-01-01.
_NO_COMMIT = 1767225600
_LOGGED = re.compile(
    r"^(?:WARNING|ERROR|CRITICAL) +- +(.*(?:\n(?![A-Z]+ +- |Aborted).*)*)", re.MULTILINE
)
_IN_PAGE = re.compile(r"Doc file '(?P<file>[^']+)' contains an? .*?link (?:to )?'(?P<link>[^']+)'")
_IN_NAV = re.compile(r"(?:reference|absolute path) to '(?P<link>[^']+)' is included in the 'nav'")


def build_site(project: Project, target: Path | None = None) -> list[Problem]:
    """Build into ``target`` (the project's site); on a problem, what stands there stays."""
    target = target or project.site
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        new = Path(temporary) / "new"
        problems = _generate(project, new) or lay_out_labs(new, project) or complete(new, project)
        if not problems:
            if target.exists():
                target.rename(Path(temporary) / "old")
            new.rename(target)
    return problems


def complete(site: Path, project: Project) -> list[Problem]:
    """Make of a generator's HTML what readers get, and look it through."""
    base = urlsplit(os.environ.get("SITE_URL", "")).path
    return render_mathematics(site, project) or finish(site, project, STEPS) or scan(site, base)


def make_server(
    project: Project, rebuild: Callable[[], bool], host: str, port: int
) -> LiveReloadServer:
    """Return a server of the built site that calls ``rebuild`` when a source's content changes."""
    built = _fingerprint(project)

    def build() -> None:
        nonlocal built
        # Taken before the rebuild: an edit made while it runs is seen afterwards. What the rebuild
        # itself writes costs one more round, which writes nothing new and so is the last.
        now = _fingerprint(project)
        if now != built:
            built = now
            rebuild()

    server = LiveReloadServer(build, host, port, root=str(project.site))
    for source in _sources(project):
        server.watch(str(source))
    return server


def serve(project: Project, rebuild: Callable[[], bool], host: str, port: int) -> None:
    """Serve the built site, and rebuild it on changes, until the user interrupts."""
    server = make_server(project, rebuild, host, port)
    print(f"serving {project.site} at {server.url} (Ctrl-C stops)", flush=True)
    try:
        server.serve()  # type: ignore[no-untyped-call]
    except KeyboardInterrupt:
        print("stopped")
    except OSError as error:
        print(f"cannot serve at {server.url}: {error.strerror}")
    finally:
        server.shutdown()


def _generate(project: Project, target: Path) -> list[Problem]:
    # Not -q and not -v: either makes a broken link pass under --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(
        [*command, "--config-file", str(project.root / "mkdocs.yml"), "--site-dir", str(target)],
        cwd=project.root,
        env={
            **os.environ,
            "SOURCE_DATE_EPOCH": str(commit_time(project) or _NO_COMMIT),
            "PYTHONHASHSEED": "0",
            "NO_MKDOCS_2_WARNING": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    problems = sorted(set(_problems(project, done.stdout)))
    if done.returncode and not problems:
        return [Problem("mkdocs.yml", 1, f"mkdocs failed: {done.stdout.strip()}")]
    return problems


def _problems(project: Project, output: str) -> Iterator[Problem]:
    """Turn what mkdocs complained about into problems with a place."""
    settings = project.root / "mkdocs.yml"
    for text in (logged[1].strip() for logged in _LOGGED.finditer(output)):
        lines, file = [1], settings
        if match := _IN_PAGE.search(text):
            file = project.docs / match["file"]
            lines = _lines_of(match["link"], file)
        elif match := _IN_NAV.search(text):
            lines = _lines_of(match["link"], settings)
        yield from (Problem(project.relative(file), line, text) for line in lines)


def _lines_of(link: str, path: Path) -> list[int]:
    """The lines that link there: ``](link`` or ``: link`` before any other mention."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for lead in (r"\(<?", r": ", ""):
        mention = re.compile(rf"{lead}{re.escape(link)}(?![\w#./-])")
        if found := [number for number, line in enumerate(lines, 1) if mention.search(line)]:
            return found
    return [1]


def _sources(project: Project) -> list[Path]:
    return [project.docs, project.root / "snippets", project.root / "mkdocs.yml"]


def _fingerprint(project: Project) -> str:
    """A digest of every source's name and content: rewriting a file as it was changes nothing."""
    digest = hashlib.sha256()
    for source in _sources(project):
        for path in sorted([source, *source.rglob("*")]):
            # An editor's temporary file may go between the listing and the reading.
            if path.is_file() and "__pycache__" not in path.parts:
                with suppress(FileNotFoundError):
                    content = path.read_bytes()
                    digest.update(f"{project.relative(path)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
