from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from scripts.project import HOME
from tests.browser.conftest import ORIGIN

SCALING = f"{ORIGIN}/core/scaling.html"
HINT = "Where the numbers are from"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        page = context.new_page()
        page.goto(SCALING)
        yield page


def number(page: Page, text: str = "345") -> Locator:
    found = page.locator("a.number", has_text=text).first
    found.scroll_into_view_if_needed()
    return found


def told(page: Page) -> str:
    box = page.locator(".origin")
    expect(box).to_be_visible()
    return box.inner_text()


def apart(page: Page) -> bool:
    """Whether the box is whole on the screen and does not cover its number."""
    return bool(
        page.evaluate(
            """() => {
                const box = document.querySelector(".origin").getBoundingClientRect();
                const line = document.querySelector("data:has(+ .origin) a").getClientRects()[0];
                return box.left >= 0 && box.right <= document.documentElement.clientWidth
                    && box.top >= 0 && box.bottom <= innerHeight
                    && (box.top >= line.bottom || box.bottom <= line.top);
            }"""
        )
    )


def test_pointing_at_a_number_tells_what_measured_it(page: Page) -> None:
    number(page).hover()
    text = told(page)
    assert text.startswith("345 rounded to a whole number")
    for part in ("example_gradient", "snippets/pages/core/scaling.py", "on a CPU", "torch 2."):
        assert part in text
    assert apart(page)
    page.locator(".origin").hover()  # on the way there it stays
    page.wait_for_timeout(500)
    expect(page.locator(".origin")).to_be_visible()
    page.mouse.move(2, 2)
    expect(page.locator(".origin")).to_have_count(0)


def test_a_keyboard_shows_keeps_and_closes_it(page: Page) -> None:
    first = number(page)
    first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(first).to_be_focused()
    assert "example_gradient" in told(page)
    page.keyboard.press("Escape")
    expect(page.locator(".origin")).to_have_count(0)
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".origin")).to_be_focused()
    assert page.get_by_role("dialog", name="Where 345 is from").count() == 1
    page.keyboard.press("Tab")
    code = page.locator(".origin a", has_text="example_gradient")
    expect(code).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".origin")).to_have_count(0)
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{SCALING}#example-gradient")
    expect(page.locator("#example-gradient")).to_be_in_viewport()


def test_a_focused_number_is_one_stop(page: Page) -> None:
    numbers = page.locator("a.number")
    numbers.nth(0).focus()
    stops = []
    for _ in range(3):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.id"))
    assert stops == ["number-2", "number-3", "number-4"]


def test_a_screen_reader_hears_the_number_and_a_short_hint(page: Page) -> None:
    first = number(page)
    expect(first).to_have_accessible_name("345")
    expect(first).to_have_accessible_description(HINT)


def test_a_number_is_copied_with_its_sentence_as_plain_text(page: Page) -> None:
    page.locator("p:has(> data)").first.scroll_into_view_if_needed()
    for index in range(page.locator("p:has(> data)").count()):
        copied, plain = (
            page.locator("p:has(> data)")
            .nth(index)
            .evaluate(
                """async p => {
                getSelection().selectAllChildren(p);
                const frame = () => new Promise(requestAnimationFrame);
                await frame(); await frame(); // what is far from the window is laid out now
                return [String(getSelection()), p.innerText];
            }"""
            )
        )
        assert copied.split() == plain.split()
        assert HINT not in copied
    box = number(page).bounding_box()
    assert box
    page.evaluate("getSelection().removeAllRanges()")
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] - 20, middle)  # a browser begins no selection in a link
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] + 2, middle, steps=4)
    page.mouse.up()
    assert "345" in page.evaluate("String(getSelection())")
    assert page.url == SCALING


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_tap_on_a_narrow_screen_stays_on_it(browser: Browser, scheme: str) -> None:
    settings = {"color_scheme": scheme, "viewport": {"width": 360, "height": 640}}
    with browser.new_context(**settings, has_touch=True) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(SCALING)
        numbers = page.locator("a.number")
        for index in range(0, numbers.count(), 5):
            numbers.nth(index).scroll_into_view_if_needed()
            numbers.nth(index).tap()
            assert numbers.nth(index).inner_text() in told(page)
            assert apart(page), index
            colours = page.locator(".origin").evaluate(
                "box => [getComputedStyle(box).color, getComputedStyle(box).backgroundColor]"
            )
            assert colours[0] != colours[1]
            page.locator("h1").first.evaluate("h1 => h1.click()")
            expect(page.locator(".origin")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.url == SCALING


def test_without_javascript_the_link_leads_to_the_same_text(browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(SCALING)
        first = page.locator("#number-9")
        text = first.text_content() or ""
        first.click()
        origin = page.locator("li:target")
        expect(origin).to_be_in_viewport()
        assert "table_population" in origin.inner_text()
        origin.get_by_role("link", name=text).first.click()
        expect(page.locator(":target")).to_have_text(text)


def test_every_page_shows_the_numbers_that_are_listed(browser: Browser) -> None:
    listed: dict[str, list[str]] = {}
    path = HOME / "docs" / "reference" / "numbers.json"
    for entry in json.loads(path.read_text(encoding="utf-8")):
        if entry["place"] == "prose":
            listed.setdefault(entry["page"], []).append(entry["printed"])
    assert sum(map(len, listed.values())) > 300
    with browser.new_context() as context:
        page = context.new_page()
        for name, printed in listed.items():
            page.goto(f"{ORIGIN}/{name}.html", wait_until="domcontentloaded")
            shown = page.locator("article data").evaluate_all(
                "all => all.map(each => each.textContent)"
            )
            assert shown == printed, name
            broken = page.locator("data > a.number").evaluate_all(
                """all => all.filter(
                    a => ![...document.querySelectorAll(`${a.hash} a`)].some(
                        b => b.hash === `#${a.id}`)
                ).length"""
            )
            assert broken == 0, name


def test_the_command_at_the_end_can_be_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block = page.locator(".verified .highlight")
    block.scroll_into_view_if_needed()
    block.hover()
    block.get_by_role("button").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == "python scripts/build.py --check docs/core/scaling.md"
