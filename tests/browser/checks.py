"""Asks a page in the browser what is wrong with it; what is asked stands in checks.js."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

from tests.browser.conftest import ORIGIN

CHECKS = Path(__file__).with_name("checks.js").read_text(encoding="utf-8")
WIDTHS = (1280, 768, 360)
HEIGHT = 900
NEAR = """() => {
  const style = document.createElement("style");
  style.textContent = "article.md-content__inner > * { content-visibility: visible !important; }";
  document.head.append(style);
}"""
MOVED = """
window.moved = [];
new PerformanceObserver(list => window.moved.push(...list.getEntries()))
  .observe({ type: "layout-shift", buffered: true });
"""


class Watched:
    """A page in a browser, and what went wrong beside its content."""

    def __init__(self, page: Page, origin: str) -> None:
        self.page = page
        self.faults: list[str] = []
        self.fetched: list[str] = []
        self._origin = origin
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"an error in a script: {error}"))
        page.on("request", self._request)
        page.on("response", self._response)
        page.on("requestfailed", lambda request: self.faults.append(f"not loaded: {request.url}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"the console has this {message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        self.fetched.append(request.url)
        if not request.url.startswith((self._origin, "data:", "blob:")):
            self.faults.append(f"asks another host: {request.url}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.faults.append(f"not there ({response.status}): {response.url}")

    def ask(self, *questions: str) -> list[str]:
        """The faults that these checks find on the page."""
        return [fault for each in questions for fault in self.page.evaluate(f"checks.{each}()")]

    def resize(self, width: int) -> None:
        """Make the window as wide, and wait until the page is laid out."""
        self.page.set_viewport_size({"width": width, "height": HEIGHT})
        self.settle()

    def come_near(self) -> None:
        """Have all of the page laid out, as what is near the window is."""
        self.page.evaluate(NEAR)

    def settle(self) -> None:
        """Wait for fonts, for what moves, and for two frames."""
        self.page.evaluate(
            """async () => {
                await document.fonts.ready;
                const frame = () => new Promise(requestAnimationFrame);
                await frame(); await frame();
                const ends = document.getAnimations().map(each => each.finished.catch(() => 0));
                const late = new Promise(done => setTimeout(done, 1000));
                await Promise.race([Promise.all(ends), late]);
            }"""
        )


@contextmanager
def opened(
    browser: Browser,
    url: str,
    *,
    theme: str = "light",
    width: int = 1280,
    origin: str = ORIGIN,
    script: bool = True,
    still: bool = True,
) -> Iterator[Watched]:
    """Open the page for a reader of that theme."""
    with browser.new_context(
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce" if still else "no-preference",
        viewport={"width": width, "height": HEIGHT},
        java_script_enabled=script,
    ) as context:
        page = context.new_page()
        page.add_init_script(MOVED)
        watched = Watched(page, origin)
        page.goto(url if ":" in url else f"{origin}/{url}", wait_until="load")
        page.evaluate(CHECKS)
        if script:  # without, no frame calls back
            watched.settle()
        yield watched
