"""The site as readers meet it: built once for all tests, served, and opened in a real browser."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, sync_playwright

from scripts.project import HOME, Project
from scripts.site import build_site

ORIGIN = "http://attention.localhost"  # browsers trust it as they do https
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> str:
    """The browser's path; a machine without one fails where CI is set, and skips elsewhere."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        message = f"no browser: none of {', '.join(BROWSERS)} is installed; install Chromium"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built for ``ORIGIN`` by the first process that asks for it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target = shared / "site"
    with FileLock(shared / "site.lock"), pytest.MonkeyPatch.context() as patch:
        if not target.exists():
            patch.setenv("SITE_URL", f"{ORIGIN}/")
            assert build_site(Project(HOME), target) == []
    return target


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing: the tests look at what the browser was given."""


@pytest.fixture(scope="session")
def browser(site: Path, chromium: str) -> Iterator[Browser]:
    """A browser to which ``ORIGIN`` is the built site."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = ORIGIN.removeprefix("http://")
        rule = f"MAP {host}:80 127.0.0.1:{server.server_port}"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=[*QUIET, f"--host-resolver-rules={rule}"]
            )
            yield browser
            browser.close()
        server.shutdown()
