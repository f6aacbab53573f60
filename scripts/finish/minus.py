r"""Has the search read a leading minus as part of what is looked for: ``-inf``, ``-1e9``.

The theme's search drops every page that holds the word behind a minus.
"""

from __future__ import annotations

from scripts.finish.built import Built
from scripts.finish.search import INDEX
from scripts.project import Problem

_QUERY = r""".trim().split(/"([^"]+)"/g)"""
_WITHOUT_MINUS = r""".replace(/(^|[\s"])-+/g,"$1")"""


def keep_minus(built: Built) -> list[Problem]:
    """Have the theme's worker take the minus away; a generator without its index has another."""
    if not (built.folder / INDEX).is_file():
        return []
    paths = sorted(built.folder.glob("assets/javascripts/workers/search.*.js"))
    texts = [path.read_text(encoding="utf-8") for path in paths]
    if [text.count(_QUERY) for text in texts] != [1]:
        message = (
            f"expected one worker that holds {_QUERY} once, found "
            f"{[text.count(_QUERY) for text in texts]}: the theme has changed, so look at how it "
            "reads a query now, and change scripts/finish/minus.py"
        )
        return [Problem("assets/javascripts/workers", 1, message)]
    text = texts[0].replace(_QUERY, _WITHOUT_MINUS + _QUERY)
    paths[0].write_text(text, encoding="utf-8", newline="\n")
    return []
