"""Lets the theme's script run on pages that are opened from a disk.

There, instant navigation ends at once, and takes along all that waits for a page to be loaded: the
copy buttons and this site's own scripts. The search cannot read its index there, and looks for help
on another host, so it is taken away.
"""

from __future__ import annotations

from lxml.html.builder import SCRIPT

from scripts.finish.built import Built
from scripts.project import Problem

_SCRIPT = r"""
if (location.protocol === "file:") {
  const config = document.getElementById("__config");
  config.textContent = config.textContent.replace(/"navigation\.instant",? */, "");
  for (const each of document.querySelectorAll(".md-search, [for=__search]")) each.remove();
}"""


def run_from_disk(built: Built) -> list[Problem]:
    """Put a script behind the theme's settings, which must name instant navigation."""
    problems = []
    for page in built.pages.values():
        for config in page.root.xpath("//script[@id='__config']"):
            if '"navigation.instant",' in config.text:
                config.addnext(SCRIPT(_SCRIPT))
            else:
                message = "the theme's settings do not name navigation.instant, or name it last"
                problems.append(Problem(page.file, config.sourceline, message))
    return problems
