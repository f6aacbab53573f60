from __future__ import annotations

from playwright.sync_api import Browser

from tests.browser.conftest import ORIGIN


def test_the_home_page_opens(browser: Browser) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        assert (answer := page.goto(f"{ORIGIN}/index.html"))
        assert answer.ok
        assert "Attention" in page.title()
        # Without the browser's trust there is no clipboard.
        assert page.evaluate("isSecureContext")
