from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from scripts.project import HOME
from tests.browser.conftest import ORIGIN


@pytest.mark.parametrize("module", ["attention", "contract", "pages/core/scaling"])
def test_a_module_is_copied_exactly(browser: Browser, module: str) -> None:
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{ORIGIN}/code/{module}.html")
        page.get_by_role("button", name="Copy all").click()
        page.get_by_role("button", name="Copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == (HOME / "snippets" / f"{module}.py").read_text(encoding="utf-8")
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert Path(download.value.path()).read_text(encoding="utf-8") == copied
        assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_module_fits_the_screen_in_the_colours_of_the_system(
    browser: Browser, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 800}
    with browser.new_context(color_scheme=scheme, viewport=size) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{ORIGIN}/code/pages/core/scaling.html#table_variance")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        body = page.locator("body")
        expected = "slate" if scheme == "dark" else "default"
        assert body.get_attribute("data-md-color-scheme") == expected
        assert page.locator("#table_variance").is_visible()


def test_the_colours_that_a_reader_chose_hold_for_code(browser: Browser) -> None:
    with browser.new_context(color_scheme="light") as context:
        page = context.new_page()
        page.goto(f"{ORIGIN}/core/scaling.html")
        for _ in range(2):  # the system's, light, dark
            page.locator("label.md-header__button:visible[for^='__palette']").click()
        assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
        page.goto(f"{ORIGIN}/code/attention.html")
        assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"


def test_a_page_is_taken_along(browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{ORIGIN}/core/scaling.html")
        block = page.get_by_role("navigation", name="This page to take away")
        for name, suffix in (("Markdown", "md"), ("Notebook", "ipynb")):
            with page.expect_download() as download:
                block.get_by_role("link", name=name).click()
            assert download.value.suggested_filename == f"scaling.{suffix}"
        block.get_by_role("link", name="Code that it runs").click()
        page.get_by_role("heading", name="pages/core/scaling.py").wait_for()
