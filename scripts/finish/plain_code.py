"""Takes the marks off code that its theme paints like the text around them."""

from __future__ import annotations

from scripts.finish.built import Built
from scripts.project import Problem

# Pygments' names, operators, punctuation and spaces: colours.css gives them the colour of code.
UNPAINTED = {"n", "o", "p", "w"}


def unmark_code(built: Built) -> list[Problem]:
    """Unwrap those spans: two thirds of a page's elements, and so of the work of its layout."""
    for page in built.pages.values():
        for span in page.root.xpath("//pre//span[@class]"):
            if span.get("class") in UNPAINTED and not len(span):
                span.drop_tag()
    return []
