from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.browser.conftest import ORIGIN

expect.set_options(timeout=30_000)  # a busy machine is slow

SCALING = "Why attention divides by √dₖ, sqrt(head_dim)"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a browser that lets the clipboard be read; an error on it fails the test."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        assert errors == []


def copied(page: Page, script: str) -> str:
    """Select what the script says of ``range``, copy it, and give the clipboard's text."""
    page.evaluate(
        f"() => {{ const range = new Range(); {script};"
        " getSelection().removeAllRanges(); getSelection().addRange(range) }"
    )
    page.keyboard.press("Control+c")
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_titles_show_mathematics_as_text_everywhere(page: Page) -> None:
    page.goto(f"{ORIGIN}/core/softmax.html")
    link = page.locator(".md-nav--primary a[href$='scaling.html']")
    assert link.inner_text().strip() == SCALING
    previous = page.locator("a.md-footer__link--prev")
    assert previous.get_attribute("aria-label") == f"Previous: {SCALING}"
    page.goto(f"{ORIGIN}/core/scaling.html")
    assert page.title() == f"{SCALING} - The Attention Reference"
    path = page.locator(".md-path a").all_inner_texts()
    assert [text.strip() for text in path] == ["Home", "Core"]


def test_a_click_changes_the_page_without_loading_it_anew(page: Page) -> None:
    page.goto(f"{ORIGIN}/tasks.html")
    page.evaluate("window.kept = true")
    page.click(".md-nav--primary a[href$='core/scaling.html']")
    expect(page).to_have_title(f"{SCALING} - The Attention Reference")
    assert page.evaluate("window.kept")
    expect(page.locator(".md-typeset h1")).to_contain_text(SCALING)
    # The page before had no formula, and so no stylesheet for any.
    expect(page.locator(".katex-html").first).to_have_css("font-family", re.compile("KaTeX_Main"))
    described = page.locator("meta[name=description]")
    expect(described).to_have_count(1)
    assert "square root" in (described.get_attribute("content") or "")
    block = page.locator(".language-python:visible").first  # others are folded
    block.locator("button[data-md-type=copy]").click()
    code = block.locator("code").text_content() or ""
    page.wait_for_function(
        "code => navigator.clipboard.readText().then(text => text.trim() === code)",
        arg=code.strip(),
    )
    assert copied(page, "range.selectNode(document.querySelector('.katex'))") == r"$q \cdot k$"
    page.go_back()
    expect(page.locator(".md-typeset h1")).to_contain_text("By task")
    assert page.evaluate("window.kept")


def test_a_copied_formula_is_its_tex(page: Page) -> None:
    page.goto(f"{ORIGIN}/core/scaling.html")
    inside = "const letter = document.querySelector('.katex-html .mord.mathnormal');"
    assert copied(page, f"{inside} range.selectNodeContents(letter)") == r"$q \cdot k$"
    page.goto(f"{ORIGIN}/core/lookup.html")
    display = "range.selectNodeContents(document.querySelector('.katex-display .katex-html'))"
    text = copied(page, display)
    assert text.startswith("$$")
    assert text.endswith("$$")
    assert text.count("$") == 4
    page.goto(f"{ORIGIN}/core/scaling.html")
    paragraph = copied(page, "range.selectNode(document.querySelector('h1 ~ p'))")
    assert paragraph.startswith(r"A score $q \cdot k$ adds up $d_k$ products.")


def test_what_holds_no_formula_is_copied_as_it_stands(page: Page) -> None:
    page.goto(f"{ORIGIN}/tasks.html")
    assert copied(page, "range.selectNodeContents(document.querySelector('#hunt-a-nan'))") in (
        "Hunt a NaN",
        "Hunt a NaN¶",
    )


def test_a_page_tells_about_itself_and_leads_to_its_tasks(page: Page) -> None:
    page.goto(f"{ORIGIN}/core/masks.html")
    about = page.locator(".about")
    assert about.bounding_box()["height"] < 120  # type: ignore[index]
    expect(about.get_by_role("link", name="Attention is a soft lookup")).to_be_visible()
    expect(page.get_by_role("navigation", name="On this page")).to_be_hidden()
    about.get_by_role("link", name="write a mask").click()
    expect(page).to_have_url(f"{ORIGIN}/tasks.html#write-a-mask")


def test_a_phone_has_the_parts_of_the_page_under_its_title(browser: Browser) -> None:
    with browser.new_context(viewport={"width": 360, "height": 740}) as context:
        page = context.new_page()
        page.goto(f"{ORIGIN}/practice/bugs-masks.html")
        page.locator(".about-contents summary").press("Enter")
        page.get_by_role("navigation", name="On this page").get_by_text("Inverted mask").click()
        expect(page.locator("#polarity")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scripts", [True, False])
def test_who_is_lost_at_any_depth_finds_on(browser: Browser, site: Path, scripts: bool) -> None:
    body = (site / "404.html").read_bytes()
    with browser.new_context(java_script_enabled=scripts) as context:
        page = context.new_page()
        answers: list[Response] = []
        page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108
        context.route(
            "**/no/where/*", lambda route: route.fulfill(body=body, content_type="text/html")
        )
        page.goto(f"{ORIGIN}/no/where/at-all.html")
        expect(page.get_by_role("heading", name="There is no page here")).to_be_visible()
        assert [answer.url for answer in answers if not answer.ok] == []
        field = page.locator("input[name=q]")
        if scripts:
            field.fill("mask")
            field.press("Enter")
            expect(page.locator(".md-search-result__item").first).to_be_visible()
            assert page.url.startswith(f"{ORIGIN}/")
        else:
            expect(field).to_be_hidden()
            page.locator("main article").get_by_role("link", name=SCALING).click()
            expect(page).to_have_url(f"{ORIGIN}/core/scaling.html")
