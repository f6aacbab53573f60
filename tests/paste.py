"""Run a page's code as a reader would: pasted into an empty file, without this project."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Collection
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from types import ModuleType

from scripts.project import Project
from scripts.run import prepare


def pasted(code: str, beside: Collection[str] = ()) -> tuple[str, str]:
    """What the code prints, and its error, in a new process beside the named modules alone."""
    printed, error = pasted_cells([code], beside)
    return "".join(printed), error


def pasted_cells(cells: list[str], beside: Collection[str] = ()) -> tuple[list[str], str]:
    """The same for the cells of a notebook, one after the other: what each of them prints."""
    prepare()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_run, args=(theirs, cells, beside))
    process.start()
    theirs.close()
    printed: list[str]
    error: str
    printed, error = ours.recv()
    process.join()
    return printed, error


def _run(pipe: Connection, cells: list[str], beside: Collection[str]) -> None:
    with TemporaryDirectory() as folder:
        for name in beside:
            shutil.copy(Project().root / "snippets" / f"{name}.py", folder)
        os.chdir(folder)
        sys.modules["snippets"] = None  # type: ignore[assignment]
        sys.path.insert(0, folder)
        pipe.send(_execute(cells))


def _execute(cells: list[str]) -> tuple[list[str], str]:
    printed: list[str] = []
    # The compiler looks a function's globals up in the module of that name.
    main = sys.modules["__main__"] = ModuleType("__main__")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number, code in enumerate(cells):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                try:
                    exec(compile(code, f"cell {number}", "exec"), vars(main))
                except BaseException:  # noqa: BLE001
                    return [*printed, out.getvalue()], traceback.format_exc()
            printed.append(out.getvalue())
    return printed, ""
