"""Read pages, get their results, and work out what each should hold: what build and check share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from scripts import cache, lint
from scripts.counting import count_blocks
from scripts.fill import Filled, fill, needed_pages
from scripts.lab import fill_lab
from scripts.listing import list_numbers
from scripts.page import Page, read_page
from scripts.percent import LabError
from scripts.planted import plant_faults, planted_pages
from scripts.project import Problem, Project, is_lab
from scripts.run import Results, Settings, run_pages
from scripts.tasks import head_problems


@dataclass
class Survey:
    """The pages as they should be, everything wrong with them, and how their results were got."""

    filled: list[Filled] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    ran: int = 0
    fresh: int = 0

    def counts(self) -> str:
        """One line: pages, blocks of each kind, numbers, and how many pages ran or were fresh."""
        counts = count_blocks(self.filled)
        numbers = sum(len(page.numbers) for page in self.filled)
        labs = f" and {counts['labs']} lab{'s' * (counts['labs'] > 1)}" if counts["labs"] else ""
        return (
            f"{counts['pages']} pages{labs}: {counts['blocks']} code blocks, "
            f"{counts['outputs']} outputs, {counts['tables']} tables, {counts['figures']} figures, "
            f"{numbers} numbers; {self.ran} ran, {self.fresh} were fresh"
        )

    def checked(self) -> int:
        """How many blocks and numbers were compared with a result."""
        return sum(len(page.blocks) + len(page.cells) + len(page.numbers) for page in self.filled)


def survey(project: Project, names: list[str], settings: Settings, *, cached: bool) -> Survey:
    """Get the named pages' results, from the cache where ``cached`` and fresh, and fill them."""
    found = Survey()
    pages = [read_page(project, name) for name in names]
    for page in pages:
        found.problems += page.problems
    planted = sorted(set().union(*map(planted_pages, pages)) & set(project.pages()))
    needing = [*pages, *(read_page(project, name) for name in planted)]
    needed = sorted(set().union(*map(needed_pages, needing)))
    found.problems += _without_module(project, pages)
    found.problems += head_problems(project, [page.name for page in pages if not page.problems])
    known = set(project.names())
    runnable = [name for name in needed if name in known and project.module(name).is_file()]
    results = _results(project, runnable, settings, found, cached=cached)
    broken = {name for name, result in results.items() if result.problem}
    for page in pages:
        if page.problems or needed_pages(page) & broken or not needed_pages(page) <= set(results):
            continue
        filled = fill(project, page, results)
        if is_lab(page.name):
            try:
                fill_lab(project, filled, results[page.name])
            except LabError as error:
                found.problems.append(Problem(page.file, error.line, str(error)))
                continue
        found.problems += filled.problems
        found.problems += lint.unbound_numbers(page)
        found.problems += lint.stated_numbers(page)
        found.problems += lint.unshown(project, page, results.get(page.name, Results()))
        found.problems += plant_faults(project, filled, results)
        found.filled.append(filled)
    if names == project.names():
        found.problems += lint.strays(project, names)
        if not found.problems:
            found.problems += list_numbers(project, found.filled, results)
    else:
        found.problems += _needing_all(pages)
    return found


def _needing_all(pages: list[Page]) -> Iterator[Problem]:
    for page in pages:
        if page.counts_site():
            message = "the page counts what all pages hold (site:): name no page"
            yield Problem(page.file, 1, message)
        if page.lists_numbers():
            yield Problem(page.file, 1, "the page lists the numbers of all others: name no page")


def _results(
    project: Project, names: list[str], settings: Settings, found: Survey, *, cached: bool
) -> dict[str, Results]:
    kept = {name: cache.load(project, name, settings) for name in names} if cached else {}
    results = {name: result for name, result in kept.items() if result}
    # Labs take longest: begun last, they would run on alone at the end.
    stale = sorted(set(names) - set(results), key=lambda name: (not is_lab(name), name))
    found.fresh, found.ran = len(results), len(stale)
    running = run_pages(project, stale, settings)
    # disable=None: no bar where the output is no terminal.
    for name, result in tqdm(running, total=len(stale), unit="page", disable=None, leave=False):
        results[name] = result
        if result.problem:
            found.problems.append(result.problem)
        elif cached:
            cache.save(project, name, settings, result)
    return results


def _without_module(project: Project, pages: list[Page]) -> Iterator[Problem]:
    known = set(project.names())
    for page in pages:
        for name in sorted(needed_pages(page)):
            line = min(
                [b.line for b in page.bound if b.key.startswith(f"{name}:") or name == page.name]
                + [d.line for d in page.directives if name == page.name],
                default=1,
            )
            if name not in known:
                file = f"docs/{name}.{'ipynb' if is_lab(name) else 'md'}"
                yield Problem(page.file, line, f"there is no page {file}")
            elif not project.module(name).is_file():
                module = project.relative(project.module(name))
                yield Problem(page.file, line, f"docs/{name}.md has no module: write {module}")


def stray_files(project: Project, found: Survey) -> list[Path]:
    """Figures that no page has any more; none while some page is not filled."""
    if len(found.filled) < len(project.names()):
        return []
    shown = {path for page in found.filled for path in page.files}
    return sorted({*project.figures.rglob("*.svg")} - shown)
