from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import ORIGIN

FIRST = 3
# What people type who have the trouble, and a page that explains it.
SYMPTOMS = {
    "sqrt": "core/scaling",
    "mask inverted": "core/conventions",
    "NaN": "core/empty-rows",
    "loss nan": "core/empty-rows",
    "padding mask nan": "practice/bugs-masks",
    "softmax overflow": "core/softmax",
    "is_causal cross attention": "practice/bugs-shapes",
    "head_dim scale": "practice/bugs-numbers",
    "key_padding_mask True": "core/conventions",
    "view transpose": "core/head-layout",
    "eval random": "core/dropout",
    "flash attention": "core/builtin",
    "kv cache": "core/cost",
    "sliding window": "practice/bugs-positions",
    "memory quadratic": "core/cost",
    "permutation": "core/order",
}


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        yield context.new_page()


def results(page: Page, query: str) -> list[str]:
    """The pages that the theme's own search finds, best first."""
    page.goto(f"{ORIGIN}/tasks.html?q={quote(query)}")
    done = "/match|No/.test(document.querySelector('.md-search-result__meta')?.textContent)"
    page.wait_for_function(done)
    links = "items => items.map(item => item.querySelector('a').pathname)"
    found: list[str] = page.eval_on_selector_all(".md-search-result__item", links)
    return [path.removeprefix("/").removesuffix(".html") for path in found]


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_leads_to_the_page_that_explains_it(page: Page, symptom: str) -> None:
    assert SYMPTOMS[symptom] in results(page, symptom)[:FIRST]


def test_what_no_page_says_is_not_found(page: Page) -> None:
    assert results(page, "zyzzyva") == []
