"""Run a page's code as a reader would: pasted into an empty file, without this project."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import sys
import traceback
import warnings
from multiprocessing.connection import Connection

from scripts.project import Project
from scripts.run import prepare


def pasted(code: str) -> tuple[str, str]:
    """What the code prints, and its error, in a new process that has the downloads alone."""
    prepare()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("forkserver").Process(target=_run, args=(theirs, code))
    process.start()
    theirs.close()
    printed: str
    error: str
    printed, error = ours.recv()
    process.join()
    return printed, error


def _run(pipe: Connection, code: str) -> None:
    sys.modules["snippets"] = None  # type: ignore[assignment]
    sys.path.insert(0, str(Project().downloads))
    error = ""
    with contextlib.redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            exec(compile(code, "page", "exec"), {"__name__": "__main__"})
        except BaseException:  # noqa: BLE001
            error = traceback.format_exc()
    pipe.send((printed.getvalue(), error))
