"""Thins the theme's style sheets to the rules that the site's pages can use.

A browser tries every rule on every element, and styles a whole page anew when a script alters what
some rule asks for, so that a rule without use costs readers time whenever a page loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import tinycss2

from scripts.finish.built import Built
from scripts.project import Problem

_FOLDER = "assets/stylesheets/"
# The theme's script looks for these on every page, and nothing but Markdown writes them.
_BY_MARKDOWN = "tabbed-"
# For these, each page would be styled anew as a whole. They spare a change of colours its fade,
# take margins from paragraphs in cells, of which Markdown makes none, and give one to what follows
# a table that no script has put into a box.
_COSTLY = frozenset(
    {
        "[data-md-color-switching] *",
        "[data-md-color-switching] :after",
        "[data-md-color-switching] :before",
        ".md-typeset table:not([class]) td>:first-child",
        ".md-typeset table:not([class]) td>:last-child",
        ".md-typeset table:not([class]) th>:first-child",
        ".md-typeset table:not([class]) th>:last-child",
        ".md-typeset table:not([class])+*",
    }
)


def thin_styles(built: Built) -> list[Problem]:
    """Drop the selectors that no page and no script has the classes for, and those that cost."""
    classes: set[str] = set()
    sheets: set[str] = set()
    for page in built.pages.values():
        for value in page.root.xpath("//@class"):
            classes.update(value.split())
        for href in page.root.xpath("//link[@rel='stylesheet']/@href"):
            sheets.add(_FOLDER + href.partition(_FOLDER)[2])
    scripts = "\n".join(path.read_text("utf-8") for path in sorted(built.folder.rglob("*.js")))

    def wanted(selector: list[Any]) -> bool:
        text = tinycss2.serialize(selector).strip()
        return text not in _COSTLY and all(
            name in classes or (not name.startswith(_BY_MARKDOWN) and name in scripts)
            for name in _classes(selector)
        )

    problems = []
    for sheet in sorted(sheets):
        path = built.folder / sheet
        if not path.is_file() or (built.project.docs / sheet).exists():
            continue  # the site's own
        rules = tinycss2.parse_stylesheet(
            path.read_text("utf-8"), skip_comments=True, skip_whitespace=True
        )
        errors: list[Any] = []
        thin = _thinned(rules, wanted, errors)
        problems += [Problem(sheet, e.source_line, f"not CSS: {e.message}") for e in errors]
        if not errors:
            path.write_text(tinycss2.serialize(thin), encoding="utf-8", newline="\n")
    return problems


def _thinned(
    rules: Iterable[Any], wanted: Callable[[list[Any]], bool], errors: list[Any]
) -> list[Any]:
    kept = []
    for rule in rules:
        if rule.type == "qualified-rule":
            selectors = [each for each in _selectors(rule.prelude) if wanted(each)]
            if not selectors:
                continue
            comma = tinycss2.ast.LiteralToken(rule.source_line, rule.source_column, ",")
            rule.prelude = [token for each in selectors for token in (comma, *each)][1:]
        elif rule.type == "at-rule" and rule.lower_at_keyword in ("media", "supports"):
            rule.content = _thinned(tinycss2.parse_rule_list(rule.content), wanted, errors)
            if not rule.content:
                continue
        elif rule.type == "error":
            errors.append(rule)
        elif rule.type == "at-rule" and rule.lower_at_keyword == "charset":
            continue  # the pages' own, and out of place where sheets are joined
        kept.append(rule)
    return kept


def _selectors(prelude: list[Any]) -> Iterator[list[Any]]:
    selector: list[Any] = []
    for part in prelude:
        if part == ",":
            yield selector
            selector = []
        else:
            selector.append(part)
    yield selector


def _classes(selector: list[Any]) -> Iterator[str]:
    """The classes that a selector asks for, without those in :not() and its kin."""
    for before, part in pairwise(selector):
        if before == "." and part.type == "ident":
            yield part.value
