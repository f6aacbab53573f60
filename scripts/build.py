"""Run the snippets, write what they give into the pages, and build the site; or check it all."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

HOME = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(HOME)  # not scripts/: its modules are imported as a package

from filelock import FileLock, Timeout  # noqa: E402

from scripts.project import Problem, Project, is_lab  # noqa: E402
from scripts.run import NoDeviceError, Settings, prepare  # noqa: E402

if TYPE_CHECKING:
    from scripts.survey import Survey

DESCRIPTION = """\
Every page of docs/ holds its code, outputs, tables, figures and numbers literally. This command
runs the page modules in snippets/pages/, writes what they give into the pages, and builds the site
into site/. With --check it writes nothing and lists every difference between the pages and a fresh
run, as docs/page.md:line: what is printed, what was measured."""

EXAMPLES = """\
examples:
  python scripts/build.py                              build what has changed, then the site
  python scripts/build.py docs/core/scaling.md         the same for one page
  python scripts/build.py --serve                      build, preview, rebuild on every change
  python scripts/build.py --check                      verify every page against a fresh run
  python scripts/build.py --check --device cuda        the same on a GPU

exit status: 0 all is well, 1 something is wrong (each thing on a line), 2 wrong usage
OMP_NUM_THREADS sets the threads that each run may use (default 1)."""


def main(arguments: Sequence[str] | None = None, root: Path = HOME) -> int:
    """Run the command line on the site in ``root``; give the exit status."""
    project = Project(root)
    options = _options(project, arguments)
    settings = Settings(options.device, options.jobs, options.limit, options.perturbed)
    try:
        if options.check:
            return check(project, options.pages, settings)
        project.cache.mkdir(exist_ok=True)
        with FileLock(project.cache / "build.lock", timeout=0):
            status = build(project, options.pages, settings, everything=options.all)
            if options.serve:
                _serve(project, settings)
            return status
    except Timeout:
        print(
            f"another build is at work in {root} (it holds .cache/build.lock): "
            "wait for it to end, or stop it"
        )
        return 1
    except NoDeviceError as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        print("stopped")
        return 130


def check(project: Project, names: list[str], settings: Settings) -> int:
    """Compare the pages with a fresh run; write nothing."""
    prepare()  # the imports below take time, in which it has torch imported
    from scripts import compare, lab
    from scripts.survey import stray_files, survey

    found = survey(project, names, settings, cached=False)
    units = 0 if settings.device == "cpu" else 1
    # A list of numbers follows from the other pages: what is wrong there is told there alone.
    for page in sorted(found.filled, key=lambda page: page.page.lists_numbers()):
        if not (found.problems and page.page.lists_numbers()):
            found.problems += compare.differences(project, page, units)
            if is_lab(page.page.name):
                found.problems += lab.differences(project, page)
        found.problems += compare.uncounted(page.page, page)
    if names == project.names():
        found.problems += [
            Problem(project.relative(path), 1, "no page shows this file: delete it")
            for path in stray_files(project, found)
        ]
    if not found.problems and not found.checked():
        print("nothing was checked: the pages hold no block and no bound number")
        return 1
    return _report(found, "checked")


def build(project: Project, names: list[str], settings: Settings, *, everything: bool) -> int:
    """Write what the page modules give into the pages, then build the site."""
    from scripts.percent import with_prose
    from scripts.site import build_site
    from scripts.survey import stray_files, survey

    found = survey(project, names, settings, cached=not everything)
    texts = [(page, page.text()) for page in found.filled]
    found.problems += [problem for page in found.filled for problem in page.problems]
    if not found.problems:
        for page, text in texts:
            for path, (_, right) in page.files.items():
                _write(path, right)
            path = project.source(page.page.name)
            if is_lab(page.page.name):
                _write(path, with_prose(path.read_text(encoding="utf-8"), text))
            else:
                _write(path, text)
        if names == project.names():
            for path in stray_files(project, found):
                path.unlink()
        found.problems += build_site(project)
    return _report(found, "built")


def _write(path: Path, text: str) -> None:
    from scripts.cache import write_whole

    if not path.is_file() or path.read_bytes() != text.encode():
        write_whole(path, text)


def _report(found: Survey, done: str) -> int:
    problems = sorted(set(found.problems))
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} problem{'s' * (len(problems) > 1)}; {found.counts()}")
        return 1
    print(f"{done} {found.counts()}")
    return 0


def _serve(project: Project, settings: Settings) -> None:
    from scripts.site import serve

    def rebuild() -> bool:
        return build(project, project.names(), settings, everything=False) == 0

    serve(project, rebuild, "127.0.0.1", 8000)


def _options(project: Project, arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python scripts/build.py",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "pages",
        nargs="*",
        metavar="PAGE",
        help="a page or a lab, such as docs/core/scaling.md (default: all)",
    )
    parser.add_argument(
        "--check", action="store_true", help="verify against a fresh run, write nothing"
    )
    parser.add_argument(
        "--all", action="store_true", help="run every page, also those that are fresh"
    )
    parser.add_argument(
        "--serve", action="store_true", help="preview the site and rebuild on every change"
    )
    parser.add_argument(
        "--perturbed",
        action="store_true",
        help="with --check: move inexact float results as other processors' kernels might",
    )
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda", "mps"],
        default="cpu",
        help="where the snippets run (default: cpu)",
    )
    parser.add_argument(
        "--jobs",
        type=_count,
        default=0,
        metavar="N",
        help="pages that run at a time (default: one a core)",
    )
    parser.add_argument(
        "--limit",
        type=_seconds,
        default=120.0,
        metavar="S",
        help="seconds that a page may take, a lab three times as many (default: 120)",
    )
    options = parser.parse_args(arguments)
    if options.check and (options.serve or options.all):
        parser.error(
            "--check runs everything afresh and writes nothing: leave out --serve and --all"
        )
    if options.perturbed and (not options.check or options.device != "cpu"):
        parser.error(
            "--perturbed imitates another CPU to see what it would change: give --check, "
            "and no other --device"
        )
    known = project.names()
    named = {given: _page(project, known, given) for given in options.pages}
    for given, name in named.items():
        if name is None:
            pages = ", ".join(project.relative(project.published(page)) for page in known)
            parser.error(f"there is no page {given}: expected one of {pages}")
    options.pages = sorted(set(named.values())) or known
    return options


def _page(project: Project, known: list[str], given: str) -> str | None:
    path = Path(given)
    for candidate in (Path.cwd() / path, project.root / path, project.docs / path):
        if candidate.is_relative_to(project.docs):
            name = candidate.relative_to(project.docs).with_suffix("").as_posix()
            if name in known and candidate.suffix in ("", project.published(name).suffix):
                return name
    return None


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of pages: give 1 or more")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time: give seconds above 0")
    return number


if __name__ == "__main__":
    sys.exit(main())
