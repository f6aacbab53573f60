"""Links lead to what they name, although what is far from the window is laid out late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lxml import html
from playwright.sync_api import Browser, Page

from tests.browser.checks import opened
from tests.browser.conftest import ORIGIN

PAGES = ["core/scaling.html", "practice/bugs-masks.html", "reference/sources.html"]
PLACES = """() => {
  const all = [...document.querySelectorAll("article :is(h2, h3, div, p, td > span)[id]")];
  const shown = all.filter((each) => each.checkVisibility()).map((each) => each.id);
  return shown.filter((_, at) => at % Math.ceil(shown.length / 4) === 0);
}"""
OFF = """(id) => {
  const target = document.getElementById(id);
  const clear = parseFloat(getComputedStyle(target).scrollMarginTop);
  const off = target.getBoundingClientRect().top - clear;
  const lowest = scrollY + innerHeight > document.documentElement.scrollHeight - 2;
  return lowest && off > 0 ? 0 : off;
}"""
CLICK = """(id) => {
  const link = document.createElement("a");
  link.href = `#${id}`;
  document.querySelector(".md-skip").after(link);
  link.click();
  link.remove();
}"""

# The addresses of sections, in order, and of other places, that pages had before headings changed.
PUBLISHED: dict[str, dict[str, list[str]]] = json.loads(
    Path(__file__).with_name("anchors.json").read_text(encoding="utf-8")
)


def far(page: Page, place: str) -> float:
    """How far the window is from where it should be, once it rests there or does not get there."""
    rests = 0
    for _ in range(100):
        off: float = page.evaluate(OFF, place)
        rests = rests + 1 if abs(off) <= 2 else 0
        if rests == 4:
            break
        page.wait_for_timeout(100)
    return off


def misses(page: Page, places: list[str], *, click: bool) -> list[str]:
    """The places whose links lead more than two pixels beside them."""
    address = page.url.partition("#")[0]
    found = []
    for place in places:
        page.goto("about:blank")
        page.goto(address if click else f"{address}#{place}")
        if click:
            page.wait_for_timeout(500)
            page.evaluate(CLICK, place)
        off = far(page, place)
        if abs(off) > 2:
            found.append(f"{address}#{place}: {off:.0f} px beside it")
    return found


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("script", [True, False])
def test_an_address_leads_to_its_place(
    browser: Browser, name: str, width: int, script: bool
) -> None:
    with opened(browser, name, width=width, script=script) as watched:
        places = watched.page.evaluate(PLACES)
        assert len(places) >= 3
        assert misses(watched.page, places, click=False) == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 360])
def test_a_click_leads_to_its_place(browser: Browser, name: str, width: int) -> None:
    with opened(browser, name, width=width) as watched:
        places = watched.page.evaluate(PLACES)
        assert misses(watched.page, places, click=True) == []


def test_back_leads_to_where_the_reader_was(browser: Browser) -> None:
    with opened(browser, "core/scaling.html#the-code") as watched:
        page = watched.page
        page.mouse.move(600, 500)
        start = page.evaluate("scrollY")
        page.mouse.wheel(0, 1500)
        page.wait_for_function(f"scrollY > {start} + 1000")
        page.wait_for_timeout(1000)
        before = page.evaluate("scrollY")
        page.evaluate(CLICK, page.evaluate(PLACES)[-1])
        page.wait_for_function(f"Math.abs(scrollY - {before}) > 1000")
        page.wait_for_timeout(1000)
        page.go_back()
        page.wait_for_function(f"Math.abs(scrollY - {before}) < 450")
        page.wait_for_timeout(500)
        assert abs(page.evaluate("scrollY") - before) < 450  # and not where the address leads
        assert page.url == f"{ORIGIN}/core/scaling.html#the-code"


def test_a_second_click_leads_to_its_place_too(browser: Browser) -> None:
    with opened(browser, "practice/bugs-masks.html", width=360) as watched:
        page = watched.page
        _, second, *_, last = page.evaluate(PLACES)
        for place in (last, second, second):
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(500)
            page.keyboard.press("Shift")  # the reader does something
            page.evaluate(CLICK, place)
            assert abs(far(page, place)) <= 2, place


def test_a_reader_who_scrolls_is_not_pulled_back(browser: Browser) -> None:
    with opened(browser, "core/scaling.html", width=360) as watched:
        page = watched.page
        place = page.evaluate(PLACES)[-1]
        page.route("**/*.svg", lambda _: None)  # none comes, so that the page goes on loading
        page.goto("about:blank")
        page.goto(f"{ORIGIN}/core/scaling.html#{place}", wait_until="domcontentloaded")
        assert abs(far(page, place)) <= 2
        page.mouse.move(200, 500)
        page.mouse.wheel(0, -2000)
        page.wait_for_function(f"({OFF})({place!r}) > 1000")
        page.evaluate("dispatchEvent(new Event('load'))")
        page.wait_for_timeout(1000)
        assert page.evaluate(OFF, place) > 1000


def test_an_address_that_names_nothing_is_no_error(browser: Browser) -> None:
    with opened(browser, "core/scaling.html#100%") as watched:
        watched.page.evaluate(CLICK, "%E0%A4%A")
        watched.page.wait_for_timeout(500)
        assert watched.faults == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_address_of_old_leads_to_its_section(site: Path, name: str) -> None:
    tree = html.parse(str(site / f"{name}.html"), html.HTMLParser(encoding="utf-8"))
    ids = tree.xpath("//@id")
    lost = [each for group in PUBLISHED[name].values() for each in group if each not in ids]
    assert not lost, f"{name}.html has no {lost}: give the place that has their text these ids"
    sections = [
        {*heading.xpath(".//@id"), heading.get("id")}
        for heading in tree.xpath("//article//*[self::h1 or self::h2 or self::h3]")
    ]
    at = [
        next((n for n, section in enumerate(sections) if each in section), -1)
        for each in PUBLISHED[name]["headings"]
    ]
    assert at == sorted({*at} - {-1}), (name, PUBLISHED[name]["headings"], at)
