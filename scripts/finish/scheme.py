"""Keeps the theme's script from telling browsers the colour scheme, which colours.css tells them.

It makes a meta element for it, and then fills it: browsers style the whole page anew for either.
"""

from __future__ import annotations

from scripts.finish.built import Built
from scripts.project import Problem

_MADE, _IGNORED = '{name:"color-scheme"}', '{name:"theme-scheme"}'


def leave_scheme(built: Built) -> list[Problem]:
    """Have the script fill an element that means nothing to browsers.

    At the first click to another page the script itself takes it out of the page.
    """
    problems = []
    for path in sorted(built.folder.glob("assets/javascripts/bundle.*.js")):
        text = path.read_text(encoding="utf-8")
        if text.count(_MADE) != 1:
            message = (
                f"holds {_MADE} {text.count(_MADE)} times, expected once: the theme has changed, "
                "so look at how it tells the scheme now, and change scripts/finish/scheme.py"
            )
            problems.append(Problem(path.relative_to(built.folder).as_posix(), 1, message))
        path.write_text(text.replace(_MADE, _IGNORED), encoding="utf-8", newline="\n")
    return problems
