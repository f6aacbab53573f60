"""The bibliography lists what the pages cite, and nothing else."""

from __future__ import annotations

import re

from scripts.percent import prose_of
from scripts.project import Project, is_lab

SITE = Project()
PAGE = "reference/bibliography"
LINK = re.compile(r"\]\((https?://[^)]+)\)")


def cited_by() -> dict[str, set[str]]:
    """Each address that a page or a lab links to, with the pages."""
    found: dict[str, set[str]] = {}
    for page in set(SITE.names()) - {PAGE}:
        text = SITE.source(page).read_text(encoding="utf-8")
        for address in LINK.findall(prose_of(text) if is_lab(page) else text):
            found.setdefault(address, set()).add(page)
    return found


def listed() -> dict[str, set[str]]:
    """Each address in the bibliography, with the pages that its entry names."""
    text = SITE.markdown(PAGE).read_text(encoding="utf-8")
    found: dict[str, set[str]] = {}
    for entry in re.findall(r"^- .*$", text, re.MULTILINE):
        [address] = LINK.findall(entry)
        assert address not in found, f"{address} is listed twice"
        _, _, pages = entry.partition(" On: ")
        names = re.findall(r"\]\(((?:\.\./)?[\w/-]+)\.(?:md|ipynb)\)", pages)
        found[address] = {
            name.removeprefix("../") if name.startswith("../") else f"reference/{name}"
            for name in names
        }
    return found


def test_the_bibliography_lists_what_the_pages_cite() -> None:
    cited, entries = cited_by(), listed()
    assert len(cited) > 50
    assert {address: cited.get(address) for address in entries} == entries
    assert set(cited) - set(entries) == set()
