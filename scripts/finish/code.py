"""Offers every module of ``snippets/`` as a file under ``code/``, with a page that shows it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from html import escape

from lxml.html import HtmlElement, HTMLParser, document_fromstring
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from scripts.finish.built import Built, Html
from scripts.module import LONG, Module, modules
from scripts.project import Problem
from scripts.settings import read_settings
from scripts.source import definitions
from scripts.tasks import heading

FOLDER = "code"
CATALOGUE = "reference/catalogue.html"
STYLE, SCRIPT = "assets/stylesheets/code.css", "assets/javascripts/code.js"
FOLDED = 40  # a longer list of definitions starts closed

_PAGE = """\
<!doctype html>
<html lang="en" dir="ltr" data-root="{up}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{file} - {site}</title>
<meta name="description" content="{summary}">
{links}
<script src="{up}{script}"></script>
</head>
<body data-md-color-scheme="default" data-md-color-primary="custom" data-md-color-accent="custom">
<a class="code-skip" href="#the-code">Skip to the code</a>
<header class="code-header"><nav aria-label="Back">
<a href="{up}index.html">{site}</a> {catalogue}
</nav></header>
<main class="code-main md-typeset">
<h1>{file}</h1>
<p>{summary}</p>
<dl class="code-facts">{facts}</dl>
<p class="code-take"><a href="{name}" download="{name}">Download {name}</a>
<button type="button" data-copy="the-code">Copy all {length} lines</button></p>
{list}
<div class="highlight">\
<pre id="the-code"><code role="region" aria-label="The code of {file}" tabindex="0">\
{code}</code></pre></div>
</main>
</body>
</html>
"""


def offer_code(built: Built) -> list[Problem]:
    """Put the modules and their data under ``code/``, each module with its page."""
    home = built.pages["index.html"].root
    wanted = home.xpath("//link[@rel='icon' or @rel='stylesheet']")
    links = [(link.get("rel"), link.get("href")) for link in wanted]
    if not any(rel == "stylesheet" for rel, _ in links):
        return [Problem("index.html", 1, "no stylesheet, which the pages of code/ would share")]
    missing = [file for file in (STYLE, SCRIPT) if not (built.folder / file).is_file()]
    if missing:
        return [Problem(file, 1, "missing: the pages of code/ need it") for file in missing]
    site = read_settings(built.project).name
    root = built.project.root / "snippets"
    for module in modules(built.project):
        for file in (f"{module.name}.py", *module.beside()):
            target = built.folder / FOLDER / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / file, target)
        page = Html(f"{FOLDER}/{module.name}.html", document_fromstring("<p>"), None, themed=False)
        page.root = _tree(built, module, page, [*links, ("stylesheet", STYLE)], site)
        built.pages[page.file] = page
    return []


def _tree(
    built: Built, module: Module, page: Html, links: list[tuple[str, str]], site: str
) -> HtmlElement:
    file = f"{module.name}.py"
    names = definitions(module.path)
    public = [f'<li><a href="#{name}"><code>{name}</code></a></li>' for name in names]
    listed = f"<ul>{''.join(public)}</ul>"
    if len(public) > FOLDED:
        listed = f"<details><summary>{len(public)} definitions</summary>{listed}</details>"
    catalogue = f'<a href="{page.to(CATALOGUE)}">Catalogue of code</a>'
    text = _PAGE.format(
        file=escape(file),
        name=escape(module.path.name),
        site=escape(site),
        summary=escape(module.summary),
        up=page.to(""),
        script=SCRIPT,
        links="\n".join(f'<link rel="{rel}" href="{page.to(url)}">' for rel, url in links),
        catalogue=catalogue if CATALOGUE in built.pages else "",
        facts="".join(f"<dt>{term}</dt><dd>{told}</dd>" for term, told in _facts(module, page)),
        length=f"{module.length:,}",
        list=f'<nav aria-label="Definitions">{listed}</nav>' if public else "",
        code=_code(module, names),
    )
    return document_fromstring(text, parser=HTMLParser(encoding="utf-8"))


def _facts(module: Module, page: Html) -> Iterator[tuple[str, str]]:
    if module.page is not None:
        link = page.to(f"{module.page}.html")
        yield "runs for", f'<a href="{link}">{escape(heading(module.project, module.page))}</a>'
    yield "needs", escape(", ".join(module.packages()) or "Python alone")
    links = [
        f'<a href="{page.to(f"{FOLDER}/{file}").replace(".py", ".html")}"><code>{file}</code></a>'
        for file in module.beside()
    ]
    if links:
        yield "and from <code>snippets/</code>", ", ".join(links)
    yield "licence", "MIT No Attribution: copy it as your own"


def _code(module: Module, names: Mapping[str, int]) -> str:
    """The module's lines, coloured where it is short, each definition's first line with an id."""
    if module.length < LONG:
        text = highlight(module.text, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    else:
        text = escape(module.text, quote=False)
    lines = text.removesuffix("\n").split("\n")
    for name, number in names.items():
        lines[number - 1] = f'<span class="code-mark" id="{name}">{lines[number - 1]}</span>'
    return "\n".join(lines) + "\n"
