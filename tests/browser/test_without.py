"""The site without a host, without JavaScript, and without motion."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.checks import opened

# A fallback is a font of the reader's machine, which need not have it.
LOST = """[...document.fonts]
    .filter(each => each.status === "error" && !/ Fallback"?$/.test(each.family))
    .map(each => `a font that does not load: ${each.family}`)"""
# Every piece of the text, what of it does not show, and which figures do.
READABLE = """() => {
    document.querySelectorAll("details").forEach(each => { each.open = true });
    const { luminance, name, rgba, shown } = checks;
    const article = document.querySelector("article, main.code-main");
    const parts = [...article.querySelectorAll("h1, h2, p, li, td, pre code, .katex-html, data")]
        .filter(each => !each.closest("nav")); // on a wide screen the theme's own stands beside it
    const dark = luminance(rgba(getComputedStyle(document.body).backgroundColor)) < 0.2;
    const theme = dark ? "dark" : "light";
    const other = dark ? "#only-light" : "#only-dark";
    const pictures = [...article.querySelectorAll("img[src*='#only-']")];
    const hidden = parts.filter(each => each.innerText?.trim() && !shown(each));
    const wrong = pictures.filter(each => each.src.endsWith(other) === shown(each));
    return {
        texts: parts.length,
        theme,
        faults: [
            ...hidden.map(each => `not shown: ${name(each)}`),
            ...wrong.map(each => `the page is ${theme}, and this figure is not: ${each.src}`),
        ],
    };
}"""


def test_it_opens_from_a_disk(browser: Browser, site: Path, names: list[str]) -> None:
    found = []
    for name in names:
        if name == "404.html":
            continue  # only a host shows it, and it names its files from the host's root
        with opened(browser, (site / name).as_uri(), origin="file://") as watched:
            faults = [*watched.faults, *watched.page.evaluate(LOST), *watched.ask("images")]
            found += [f"{name}: {fault}" for fault in faults]
            if name.startswith("code/") or not watched.page.query_selector("article pre > code"):
                continue
            watched.page.locator(".md-code__button:visible").first.click()
            watched.page.wait_for_selector(".md-dialog--active")  # the theme's script has copied
    assert not found, "\n".join(found)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_reads_without_javascript(browser: Browser, names: list[str], theme: str) -> None:
    found = []
    for name in names:
        with opened(browser, name, theme=theme, script=False) as watched:
            watched.come_near()
            read = watched.page.evaluate(READABLE)
            assert read["texts"], f"{name} has no text"
            assert read["theme"] == theme, f"{name} is {read['theme']}"
            found += [f"{name}: {fault}" for fault in [*watched.faults, *read["faults"]]]
    assert not found, "\n".join(found)


def test_nothing_moves_for_who_asks_for_rest(browser: Browser) -> None:
    with opened(browser, "core/scaling.html") as watched:
        assert not watched.ask("motion")
