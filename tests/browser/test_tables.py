"""Boxes that scroll show where they go on, and links into tall tables land below the head."""

from __future__ import annotations

import io
import statistics

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator

from tests.browser.checks import opened
from tests.browser.test_pages import OPEN

WIDE_TABLE = ".md-typeset__scrollwrap:has(#table-masks)"
WIDE_CODE = "#source-masks-sliding_window pre > code"


def edges(box: Locator) -> tuple[float, float]:
    """How much the left and the right edge of the box differ from its middle, in grey."""
    image = Image.open(io.BytesIO(box.screenshot())).convert("L")
    width, height = image.size

    def ground(x: int) -> float:  # most of a column is neither letters nor lines
        return statistics.median(image.crop((x, 0, x + 1, height)).tobytes())

    middle = statistics.median(ground(x) for x in range(width // 4, 3 * width // 4))
    return abs(ground(1) - middle), abs(ground(width - 2) - middle)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("selector", [WIDE_TABLE, WIDE_CODE], ids=["table", "code"])
def test_a_box_that_scrolls_has_a_shadow_where_it_goes_on(
    browser: Browser, theme: str, selector: str
) -> None:
    with opened(browser, "core/masks.html", theme=theme, width=390) as watched:
        watched.page.evaluate(OPEN)
        watched.come_near()
        box = watched.page.locator(selector).first
        box.scroll_into_view_if_needed()
        assert box.evaluate("each => each.scrollWidth - each.clientWidth") > 40
        left, right = edges(box)
        assert left <= 2, "a shadow although nothing is to the left"
        assert right >= 15, "no shadow although the box goes on to the right"
        box.evaluate("each => each.scrollTo({ left: each.scrollWidth, behavior: 'instant' })")
        watched.settle()
        left, right = edges(box)
        assert left >= 15, "no shadow although the box goes on to the left"
        assert right <= 2, "a shadow although nothing is to the right"


def test_a_link_into_a_tall_table_lands_below_its_head(browser: Browser) -> None:
    with opened(browser, "reference/sources.html") as watched:
        page = watched.page
        last = page.evaluate("[...document.querySelectorAll('td [id]')].at(-1).id")
        page.evaluate(f"location.hash = {last!r}")
        page.wait_for_timeout(1000)
        gap = page.evaluate(
            """id => {
                const target = document.getElementById(id);
                const head = target.closest("table").tHead.getBoundingClientRect();
                return target.getBoundingClientRect().top - head.bottom;
            }""",
            last,
        )
        assert 0 <= gap < 200, f"the target is {gap} px below the head of its table"
