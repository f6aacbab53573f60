"""Lays labs out as pages: the same Markdown, code and outputs, in place of mkdocs-jupyter's own.

mkdocs-jupyter gives a notebook its page, its place in the navigation and its title. What it puts
inside the page is 600 KB of styles, scripts and formulas for MathJax to fetch and render: all of
that goes. This has to come before the formulas are rendered.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring, fragment_fromstring
from markdown import Markdown
from mkdocs.config import load_config

from scripts.project import Problem, Project, is_lab

_INDEX = Path("search", "search_index.json")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


def lay_out_labs(site: Path, project: Project) -> list[Problem]:
    """Rewrite the page of every lab under ``site``, and what the search knows of it."""
    labs = [name for name in project.names() if is_lab(name)]
    if not labs:
        return []
    config = load_config(str(project.root / "mkdocs.yml"))
    problems = []
    for name in labs:
        path = site / f"{name}.html"
        if not path.is_file():
            file = project.relative(project.notebook(name))
            problems.append(Problem(file, 1, f"the generator made no {name}.html of it"))
            continue
        markdown = Markdown(
            extensions=config.markdown_extensions, extension_configs=config.mdx_configs
        )
        problems += _lay_out(path, name, project, markdown)
    return problems


def as_markdown(project: Project, lab: str) -> str:
    """Return the lab's notebook as a page of Markdown, to stand in the notebook's folder."""
    cells = json.loads(project.notebook(lab).read_text(encoding="utf-8"))["cells"]
    figures = "../" * (lab.count("/")) + f"assets/figures/{lab}"
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        draws = "figure" in cell["metadata"]
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif not draws:
            parts.append(_fence("python", "`", source))
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text" in output:
                parts.append(_fence("text", "~", "".join(output["text"])))
            elif "text/markdown" in data:
                parts.append("".join(data["text/markdown"]))
            elif "image/svg+xml" in data:
                figure = cell["metadata"]["figure"]
                alt = re.sub(r"([\[\]\\])", r"\\\1", cell["metadata"]["alt"])
                parts.append(
                    "\n".join(
                        f"![{alt}]({figures}/{figure}-{theme}.svg#only-{theme})"
                        for theme in ("light", "dark")
                    )
                )
        if draws:  # the picture first, and how it was drawn for who asks
            code = _fence("python", "`", source)
            summary = "<summary>The code that draws this</summary>"
            parts.append(f'<details markdown="1">\n{summary}\n\n{code}\n\n</details>')
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _fence(language: str, mark: str, text: str) -> str:
    longest = max(map(len, re.findall(f"{mark}+", text)), default=0)
    fence = mark * max(3, longest + 1)
    text = text.removesuffix("\n")
    return f"{fence}{language}\n{text}\n{fence}"


def _lay_out(path: Path, name: str, project: Project, markdown: Any) -> list[Problem]:
    file = project.relative(project.notebook(name))
    root = document_fromstring(path.read_bytes(), parser=HTMLParser(encoding="utf-8"))
    [article] = root.find_class("md-content__inner")
    if not article.find_class("jupyter-wrapper"):
        return [Problem(file, 1, "the page holds no notebook of mkdocs-jupyter's to replace")]
    body = markdown.convert(as_markdown(project, name))
    content = fragment_fromstring(body, create_parent="div")
    _mend_links(content)
    article[:] = [*article.xpath("./a[@rel='edit']"), *content]
    article.text = "\n"
    lists = root.xpath("//ul[@data-md-component='toc']")
    [top] = markdown.toc_tokens
    if not lists and top["children"]:
        return [Problem(file, 1, "the page has no table of contents to replace")]
    for listed in lists:
        items = fragment_fromstring(f"<ul>{_contents(top['children'])}</ul>")
        listed[:] = list(items)
    text = etree.tostring(root, method="html", encoding="unicode", doctype="<!doctype html>")
    path.write_text(text, encoding="utf-8", newline="\n")
    return _index(path.parents[name.count("/")] / _INDEX, f"{name}.html", file, article)


def _mend_links(content: HtmlElement) -> None:
    """Lead from the page to pages: in a notebook links lead to files, as in Markdown."""
    for link in content.iter("a"):
        parts = urlsplit(link.get("href", ""))
        if not parts.scheme and not parts.netloc and parts.path.endswith((".md", ".ipynb")):
            to = parts.path.rpartition(".")[0] + ".html"
            link.set("href", parts._replace(path=to).geturl())


def _contents(tokens: list[dict[str, Any]]) -> str:
    items = ""
    for token in tokens:
        name = token["name"]
        inner = _contents(token["children"])
        if inner:
            inner = f'<nav class="md-nav" aria-label="{name}"><ul class="md-nav__list">{inner}</ul>'
            inner += "</nav>"
        items += (
            f'<li class="md-nav__item"><a href="#{token["id"]}" class="md-nav__link">'
            f'<span class="md-ellipsis">{name}</span></a>{inner}</li>'
        )
    return items


def _index(path: Path, url: str, file: str, article: HtmlElement) -> list[Problem]:
    """Replace what the search knows of the page: one entry for each heading."""
    if not path.is_file():
        return [Problem(file, 1, f"the site has no {_INDEX.as_posix()} to put the lab into")]
    index = json.loads(path.read_text(encoding="utf-8"))
    entries: list[dict[str, str]] = []
    for element in article:
        text = element.text_content().strip()
        if element.tag in _HEADINGS:
            title = text.removesuffix("¶").strip()
            location = url if not entries else f"{url}#{element.get('id')}"
            entries.append({"location": location, "title": escape(title), "text": ""})
        elif entries and text and element.tag != "details":  # folded: how a picture was drawn
            tag = "pre" if "highlight" in element.get("class", "") else "p"
            entries[-1]["text"] += f"<{tag}>{escape(text, quote=False)}</{tag}>"
    at = [n for n, entry in enumerate(index["docs"]) if entry["location"].partition("#")[0] == url]
    if not at:
        return [Problem(file, 1, f"{_INDEX.as_posix()} knows nothing of {url}")]
    index["docs"][at[0] : at[-1] + 1] = entries
    text = json.dumps(index, separators=(",", ":"))
    path.write_text(text, encoding="utf-8", newline="\n")
    return []
