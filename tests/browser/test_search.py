"""The theme's own search leads from what people type to the section that answers."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from scripts.finish.search import INDEX
from tests.browser.conftest import ORIGIN

FIRST = 3
LISTS = {"reference/bibliography", "reference/numbers"}
QUERIES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("queries.toml").read_text(encoding="utf-8")
)
MINUS = {f"-{word}": word for word in ("inf", "1e9", "10000", "inf mask nan", '"inf" mask')}
# The theme's worker, given what the theme gives it. Of each page, the links that are in view: the
# page, and those of its sections that score as high as the best. The others are folded.
ASK = """async (queries) => {
  const { search } = JSON.parse(document.getElementById("__config").textContent);
  const worker = new Worker(new URL(search, location));
  const send = (type, data) => new Promise((resolve) => {
    worker.onmessage = (event) => resolve(event.data.data);
    worker.postMessage({ type, data });
  });
  const index = await (await fetch("/search/search_index.json")).json();
  await send(0, { ...index, options: { suggest: false } });
  const found = [];
  for (const query of queries) {
    const { items } = await send(2, query);
    found.push(items.map((places) => {
      const [whole] = places.filter(({ location }) => !location.includes("#"));
      const parts = places.filter((one) => one !== whole && one.score >= places[0].score);
      return [whole, ...parts].map(({ location }) => location.replace(".html", ""));
    }));
  }
  worker.terminate();
  return found;
}"""
# What a reader sees: the theme says how many results there are, and shows them, at once.
TYPE = """async (query) => {
  const input = document.querySelector(".md-search__input");
  const said = document.querySelector(".md-search-result__meta");
  said.textContent = "";
  input.value = query;
  input.dispatchEvent(new KeyboardEvent("keyup"));
  while (!said.textContent) await new Promise((next) => setTimeout(next, 5));
  const path = (link) => (link.pathname + link.hash).slice(1).replace(".html", "");
  const items = [...document.querySelectorAll(".md-search-result__item")];
  return items.map((item) => [...item.querySelectorAll(":scope > a")].map(path));
}"""
SHOWN = ["mask", "rope interleaved vs half", "-1e9 fp16 overflow mask"]
Results = list[list[str]]


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{ORIGIN}/tasks.html?q=attention")
        page.wait_for_selector(".md-search-result__item", state="attached")
        yield page


def ask(page: Page, queries: list[str]) -> dict[str, Results]:
    """Ask one query after the other."""
    return dict(zip(queries, page.evaluate(ASK, queries), strict=True))


@pytest.fixture(scope="module")
def found(page: Page) -> dict[str, Results]:
    return {query: results[:FIRST] for query, results in ask(page, [*QUERIES]).items()}


def page_of(place: str) -> str:
    return place.partition("#")[0]


def told(missed: list[str], found: dict[str, Results]) -> str:
    return "".join(
        f"\n{query!r}\n  is answered by {QUERIES[query]}\n  and leads to {found[query]}"
        for query in missed
    )


def test_the_first_pages_have_the_answer(found: dict[str, Results]) -> None:
    missed = [
        query
        for query, places in QUERIES.items()
        if not {page_of(item[0]) for item in found[query]} & {*map(page_of, places)}
    ]
    assert len(missed) <= 0.05 * len(QUERIES), told(missed, found)


def test_a_link_in_view_leads_to_the_section_that_answers(found: dict[str, Results]) -> None:
    missed = [
        query
        for query, places in QUERIES.items()
        if not {link for item in found[query] for link in item} & {*places}
    ]
    assert len(missed) <= 0.1 * len(QUERIES), told(missed, found)


def test_lists_never_take_two_of_the_first_places(found: dict[str, Results]) -> None:
    for query, items in found.items():
        assert len(LISTS & {page_of(item[0]) for item in items}) < 2, (query, items)


def test_every_place_is_there(site: Path) -> None:
    for query, places in QUERIES.items():
        for place in places:
            name, _, anchor = place.partition("#")
            text = (site / f"{name}.html").read_text(encoding="utf-8")
            assert not anchor or f'id="{anchor}"' in text, (query, place)


def test_a_reader_is_shown_the_same(page: Page) -> None:
    results = ask(page, SHOWN)
    for query in SHOWN:
        assert page.evaluate(TYPE, query)[:FIRST] == results[query][:FIRST], query


def test_answers_and_drawing_are_not_searched(site: Path) -> None:
    entries = json.loads((site / INDEX).read_text(encoding="utf-8"))["docs"]
    exercises = [path for path in site.rglob("*.html") if ">Exercises: " in path.read_text("utf-8")]
    assert len(exercises) > 10
    for entry in entries:
        assert not entry["title"].startswith("Exercises: "), entry["location"]
        if not entry["location"].startswith("labs/"):  # whose cells draw as they go
            assert not re.search(r"\bdef figure_|\bsubplots\(", entry["text"]), entry["location"]


def test_a_minus_is_part_of_what_is_looked_for(page: Page) -> None:
    results = ask(page, [*MINUS, *MINUS.values()])
    for query, without in MINUS.items():
        assert results[query] == results[without] != [], query


def test_what_no_page_says_is_not_found(page: Page) -> None:
    assert ask(page, ["zyzzyva"])["zyzzyva"] == []
