"""The site as readers meet it: built once for all tests, served, and opened in a real browser."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, sync_playwright

from scripts.mathematics import install
from scripts.project import HOME, Project
from scripts.site import build_site
from tests.browser.server import serving

HERE = Path(__file__).parent
OTHERS = "every other page"
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


@pytest.fixture(scope="session")
def debugging() -> int:
    """The port at which other tools find the browser."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def browser(site: Path, chromium: str, debugging: int) -> Iterator[Browser]:
    """A browser to which ``ORIGIN`` is the built site."""
    host = ORIGIN.removeprefix("http://")
    with serving(site) as port, sync_playwright() as playwright:
        mapping = f"--host-resolver-rules=MAP {host}:80 127.0.0.1:{port}"
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=[*QUIET, mapping, f"--remote-debugging-port={debugging}"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def packages() -> Path:
    """The ``node_modules`` that measure the site, as the lock file beside this file pins them."""
    return install(HOME / ".cache" / "browser", HERE) / "node_modules"


@pytest.fixture(scope="session")
def axe(packages: Path) -> str:
    """The script of axe-core."""
    return (packages / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


def sources() -> list[str]:
    """The HTML files that are known before the site is built, for a test each."""
    docs = HOME / "docs"
    paths = [path for suffix in ("md", "ipynb") for path in docs.rglob(f"*.{suffix}")]
    pages = {path.relative_to(docs).with_suffix(".html").as_posix() for path in paths}
    return sorted(pages | {"404.html"})


@pytest.fixture(params=[*sources(), OTHERS])
def names(request: pytest.FixtureRequest, site: Path) -> list[str]:
    """Every HTML file of the built site, once: by itself where a source tells of it."""
    if request.param != OTHERS:
        return [request.param]
    return sorted(
        {path.relative_to(site).as_posix() for path in site.rglob("*.html")} - {*sources()}
    )
