"""One page module, run to its end in a process of its own.

The process is forked from one that has torch, numpy and matplotlib imported already.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
import io
import os
import random
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from scripts.device import NoDeviceError, on_device
from scripts.percent import Cell, LabError, digest, read_cells
from scripts.perturb import Perturbed
from scripts.project import LABS
from scripts.style import THEMES

SEED = 0
PREFIXES = ("example", "table", "figure")


class PageError(Exception):
    """A page module did not give what the page needs; ``line`` is in the module's file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def run_page(
    root: str,
    file: str,
    device: str,
    threads: int,
    perturbed: bool,
    tell: Callable[[str], object],
) -> dict[str, Any]:
    """Run every ``example_``, ``table_`` and ``figure_`` function of the page module ``file``.

    Where ``file`` is a lab's script, run its cells instead.

    Gives ``outputs``, ``values``, ``tables``, ``figures`` and the ``files`` that the run read (path
    to SHA-256), or ``error`` with the file and line of what went wrong, or ``no_device``. Calls
    ``tell`` with the name of each function as it begins: this process may not survive it.
    """
    started = time.time_ns()
    sys.path.insert(0, root)
    torch.set_num_threads(threads)
    files = _Files(root)
    results: dict[str, Any] = {"outputs": {}, "values": {}, "tables": {}, "figures": {}}
    where = "the module"
    try:
        with warnings.catch_warnings(), on_device(device):
            warnings.simplefilter("error")
            for where, run, own in _steps(root, file):
                tell(where)
                with Perturbed() if perturbed and not own else contextlib.nullcontext():
                    run(results)
    except NoDeviceError as error:
        return {"no_device": str(error)}
    except (PageError, LabError) as error:
        return {"error": (file, error.line, str(error))}
    except BaseException as error:  # noqa: BLE001 (also sys.exit, which must not end the build)
        return {"error": _locate(error, Path(root), file, where)}
    results["files"] = files.read(started)
    if _is_lab(file) and results["files"]:
        results["files"][file] = digest(Path(root, file).read_text(encoding="utf-8"))
    return results


def _is_lab(file: str) -> bool:
    return file.startswith(f"snippets/{LABS}/")


def _steps(root: str, file: str) -> Iterator[tuple[str, Callable[[dict[str, Any]], None], bool]]:
    """Give what is to run, one after the other.

    For each: what to call it, what runs it, and whether its results are the own ones of this
    machine's kernels, which another machine's need not give.
    """
    if _is_lab(file):
        for where, run in _cells(Path(root, file)):
            yield where, run, False
        return
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    if printed.getvalue():
        raise PageError(1, f"importing the module prints {printed.getvalue()[:60]!r}")
    own = set(getattr(module, "KERNELS_OWN", ()))
    functions = list(_functions(module))
    if unknown := sorted(own - {function.__name__ for _, _, function in functions}):
        raise PageError(1, f"KERNELS_OWN names {unknown[0]}, which the module does not define")
    for kind, name, function in functions:
        run = partial(_run, kind, name, function)
        yield function.__name__, run, function.__name__ in own


def _cells(path: Path) -> Iterator[tuple[str, Callable[[dict[str, Any]], None]]]:
    """Give each code cell of a lab; they share the names of one module, as in a notebook."""
    module = ModuleType("lab")
    module.__file__ = str(path)
    sys.modules["lab"] = module
    cells = [c for c in read_cells(path.read_text(encoding="utf-8")) if c.kind != "markdown"]
    for number, cell in enumerate(cells):
        where = f"the cell at line {cell.line}"
        yield where, partial(_run_cell, cell, str(number), str(path), vars(module))
    for name, given in vars(module).items():
        if isinstance(given, dict) and not name.startswith("_"):
            yield name, partial(_values, name, given)


def _run_cell(
    cell: Cell, number: str, path: str, names: dict[str, Any], results: dict[str, Any]
) -> None:
    # At its own lines, so that an error names the right one.
    code = compile("\n" * (cell.first - 1) + cell.source, path, "exec")
    drawn = {}
    for theme, settings in THEMES.items() if cell.kind == "figure" else [("", {})]:
        with (
            mpl.rc_context(settings),
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            exec(code, names)  # noqa: S102
            figures = plt.get_fignums()
            if len(figures) != (cell.kind == "figure"):
                raise PageError(
                    cell.line,
                    f"the {cell.kind} cell leaves {len(figures)} figures: a figure cell leaves "
                    "one, any other none",
                )
            if figures:
                drawn[theme] = _svg(plt.gcf())
    if cell.kind == "figure":
        results["figures"][number] = drawn
    if cell.kind == "table":
        results["tables"][number] = _rows(names.get("rows"), "rows", cell.line)
    if text := printed.getvalue().rstrip():
        if cell.kind != "code":
            raise PageError(
                cell.line, f"the {cell.kind} cell prints {text[:60]!r}: print elsewhere"
            )
        results["outputs"][number] = "\n".join(map(str.rstrip, text.split("\n"))) + "\n"


def _values(name: str, given: dict[Any, Any], results: dict[str, Any]) -> None:
    """Keep what prose can print of a dict; the rest is the code's own."""
    for key, value in given.items():
        if isinstance(key, str):
            with contextlib.suppress(PageError):
                results["values"][f"{name}.{key}"] = _plain(value, key, 1)


def _functions(module: Any) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    for attribute, function in list(vars(module).items()):
        kind, _, name = attribute.partition("_")
        if kind not in PREFIXES or not name or not inspect.isfunction(function):
            continue
        if function.__module__ == module.__name__:
            yield kind, name, function


def _run(kind: str, name: str, function: Callable[[], Any], results: dict[str, Any]) -> None:
    line = _line(function)
    run = {"example": _example, "table": _table, "figure": _figure}[kind]
    values = run(name, function, results)
    if values is None:
        return
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise PageError(
            line, f"{function.__name__} returned {type(values).__name__}: return a dict of values"
        )
    for key, value in values.items():
        if f"{name}.{key}" in results["values"]:
            raise PageError(line, f"the value {name}.{key} is returned twice: rename one of them")
        results["values"][f"{name}.{key}"] = _plain(value, f"{function.__name__}'s {key}", line)


def _line(function: Callable[[], Any]) -> int:
    line: int = inspect.unwrap(function).__code__.co_firstlineno
    return line


def _plain(value: Any, what: str, line: int) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item, what, line) for item in value]
    if isinstance(value, float):
        return float(value)  # NumPy's float64 is one too, and the reader does without NumPy
    if isinstance(value, (bool, int, str)):
        return value
    given = type(value).__name__
    raise PageError(
        line, f"{what} is a {given}: return an int, a float (a tensor's .item()) or a text"
    )


def _seeded(function: Callable[[], Any]) -> tuple[Any, str]:
    torch.manual_seed(SEED)
    np.random.seed(SEED)
    random.seed(SEED)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        returned = function()
    return returned, printed.getvalue()


def _example(name: str, function: Callable[[], Any], results: dict[str, Any]) -> Any:
    values, results["outputs"][name] = _seeded(function)
    return values


def _table(name: str, function: Callable[[], Any], results: dict[str, Any]) -> Any:
    line = _line(function)
    returned, _ = _seeded(function)
    rows, values = returned if isinstance(returned, tuple) else (returned, None)
    results["tables"][name] = _rows(rows, function.__name__, line)
    return values


def _rows(rows: Any, what: str, line: int) -> list[dict[str, str]]:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise PageError(
            line, f"{what} should return a list of rows, each a dict of heading to cell"
        )
    if any(list(row) != list(rows[0]) for row in rows):
        raise PageError(line, f"the rows of {what} differ in their headings")
    return [{str(k): str(v) for k, v in row.items()} for row in rows]


def _figure(name: str, function: Callable[[], Any], results: dict[str, Any]) -> None:
    line = _line(function)
    alt = inspect.getdoc(function)
    if not alt:
        raise PageError(
            line, f"{function.__name__} has no docstring: say there what the picture shows"
        )
    drawn = {"alt": " ".join(alt.split())}
    for theme, settings in THEMES.items():
        with mpl.rc_context(settings):
            figure, _ = _seeded(function)
            if not isinstance(figure, Figure):
                raise PageError(
                    line, f"{function.__name__} returned {type(figure).__name__}: return a Figure"
                )
            drawn[theme] = _svg(figure)
    results["figures"][name] = drawn


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close("all")
    drawn = buffer.getvalue()
    # Their names are hashes of the last digits of the layout, in which the solver varies.
    for number, name in enumerate(re.findall(r'<clipPath id="(\w+)"', drawn), 1):
        drawn = drawn.replace(name, f"clip{number}")
    return "\n".join(row.rstrip() for row in drawn.splitlines()) + "\n"


def _locate(error: BaseException, root: Path, file: str, where: str) -> tuple[str, int, str]:
    """The deepest place in the project's own files that the error passed through."""
    place = (file, 1)
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(root / "snippets"):
            place = (path.relative_to(root).as_posix(), frame.lineno or 1)
    if isinstance(error, SyntaxError) and error.filename:
        path = Path(error.filename)
        if path.is_relative_to(root):
            place = (path.relative_to(root).as_posix(), error.lineno or 1)
    text = " ".join(str(error).split())
    if isinstance(error, SystemExit):
        return (*place, f"{where} called exit({text}): a page module must return")
    return (*place, f"{where} raised {type(error).__name__}: {text}")


class _Files:
    """The project's files that this process has read: modules by import, data by opening them."""

    def __init__(self, root: str) -> None:
        self.root = f"{root}{os.sep}"
        self.opened: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            self.opened.add(os.path.abspath(arguments[0]))  # noqa: PTH100

    def read(self, started: int) -> dict[str, str] | None:
        """Path to SHA-256; None where a file changed during the run."""
        modules = {str(getattr(module, "__file__", None)) for module in list(sys.modules.values())}
        code = {file for file in modules if file.startswith(f"{self.root}snippets{os.sep}")}
        # A virtual environment in the project is not the project's own, nor is what git keeps.
        data = {
            file
            for file in self.opened
            if file.startswith(self.root) and file[len(self.root)] != "." and file[-4:] != ".pyc"
        }
        hashes = {}
        for path in map(Path, sorted(code | data)):
            if not path.is_file():
                continue
            if path.stat().st_mtime_ns > started:
                return None
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            hashes[path.relative_to(self.root).as_posix()] = digest
        return hashes
