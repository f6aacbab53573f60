"""The page of numbers names each list by the page that it is of."""

from __future__ import annotations

import re

from scripts.project import Project

SITE = Project()


def test_every_list_stands_under_a_link_to_its_page() -> None:
    text = SITE.markdown("reference/numbers").read_text(encoding="utf-8")
    listed = re.findall(
        r"^## .+\n\n\[The page\]\((.+)\.(?:md|ipynb)\)\n\n<!-- numbers: (.+) -->$", text, re.M
    )
    assert len(listed) == text.count("\n<!-- numbers: ") > 10
    for link, page in listed:
        assert link in (f"../{page}", page.removeprefix("reference/"))
