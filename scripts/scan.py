"""Reads the built site and reports what must never reach a reader, whatever generator built it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any
from urllib.parse import unquote, urlsplit

from lxml import html

from scripts.project import Problem

# In running text these stand for code and for formulas, which are not searched.
CODE, FORMULA = "\N{OBJECT REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}"
ANYWHERE = {
    "a traceback": r"Traceback \(most recent call last\)",
    "a snippet marker": r"-{2,}8<-{2,}",
}
PROSE = ANYWHERE | {
    "a template expression": r"\{\{|\{%",
    "an unresolved reference link": rf"\[[^][]*\]\[[^][]*\]|\[[^][]*[A-Za-z{CODE}^][^][]*\]",
    "an unrendered formula": r"\\[()\[\]]|\$\$|\$(?!\d)|\\(?:begin|end)\{|\\[a-z]{2,}",
    "an unrendered fence": r"```|~~~",
    "an unrendered comment": r"<!--|-->",
    "an unrendered table": r"\|\s*:?-{2,}",
    "an unread attribute list": r"\{:?\s*[#.][\w-]+[^{}]*\}",
}
INLINE = re.compile("a|abbr|b|data|del|em|i|ins|kbd|mark|q|s|small|span|strong|su[bp]|u")
UNREAD = ("script", "style", "template")
URLS = ("href", "src", "srcset", "poster", "data", "xlink:href")
# A link of these kinds is there to be followed; every other kind is fetched with the page.
FOLLOWED = frozenset(["canonical", "alternate", "next", "prev", "author", "license"])
CSS_URL = re.compile(r"""url\(\s*["']?(?P<url>[^"')]+)|@import\s+["'](?P<sheet>[^"']+)""")

Element = Any  # lxml declares no types


@dataclass(frozen=True)
class _Page:
    root: Element
    ids: Counter[str]


def scan(site: Path, base: str = "/") -> list[Problem]:
    """Scan every HTML and CSS file under ``site``, which is served from the path ``base``."""
    pages: dict[str, _Page] = {}
    problems: set[Problem] = set()
    for path in site.rglob("*.html"):
        name = path.relative_to(site).as_posix()
        root = html.parse(str(path), html.HTMLParser(encoding="utf-8")).getroot()
        if root is None:
            problems.add(Problem(name, 1, "an empty page"))
        else:
            pages[name] = _Page(root, Counter(root.xpath("//@id")))
    urls = _Urls(site, f"/{base.strip('/')}/".replace("//", "/"), pages)
    problems.update(urls.of_stylesheets())
    for name, page in pages.items():
        problems.update(_prose(name, page.root))
        problems.update(_elements(name, page))
        problems.update(urls.of_page(name))
    return sorted(problems)


def _prose(name: str, root: Element) -> Iterator[Problem]:
    """Search the text block by block, since a leftover may span several elements."""
    blocks: dict[Element, list[str]] = {}
    for block, text in _running_text(root, root):
        blocks.setdefault(block, []).append(text or "")
    for block, texts in blocks.items():
        for what, pattern in PROSE.items():
            for match in re.finditer(pattern, "".join(texts)):
                excerpt = match[0].replace(CODE, "`…`").replace(FORMULA, "$…$")
                yield Problem(name, block.sourceline, f"{what}: {excerpt!r}")


def _running_text(element: Element, block: Element) -> Iterator[tuple[Element, str | None]]:
    """Give each piece of text, in order, with the block-level element that it stands in."""
    if not isinstance(element.tag, str) or element.tag in UNREAD:  # a comment has no such tag
        return
    if element.tag in ("pre", "code"):
        yield block, CODE
    elif "katex" in _classes(element):
        yield block, FORMULA
    else:
        block = block if INLINE.fullmatch(element.tag) else element
        yield block, element.text
        for child in element:
            yield from _running_text(child, block)
            yield block, child.tail


def _elements(name: str, page: _Page) -> Iterator[Problem]:
    for tag in page.root.iter("pre", "code"):
        text = tag.text_content()
        if not text.strip():
            yield Problem(name, tag.sourceline, f"an empty <{tag.tag}>")
        for what, pattern in ANYWHERE.items():
            if match := re.search(pattern, text):
                yield Problem(name, tag.sourceline, f"{what}: {match[0]!r}")
    for tag in page.root.iter("img"):
        if not tag.get("alt", "").strip():
            yield Problem(name, tag.sourceline, f"an image without alt: {tag.get('src')}")
    for tag in page.root.xpath("//*[@class]"):
        classes = _classes(tag)
        if "katex-error" in classes or (
            "arithmatex" in classes and not any("katex" in _classes(child) for child in tag.iter())
        ):
            text = tag.text_content().strip()
            yield Problem(name, tag.sourceline, f"an unrendered formula: {text!r}")
        # Material's own script fetches from other hosts when it meets one of these.
        if "mermaid" in classes or tag.get("data-md-component") == "source":
            yield Problem(name, tag.sourceline, f"loads from another host: {tag.get('class')!r}")
    for tag in page.root.xpath("//*[@id]"):
        if page.ids[tag.get("id")] > 1:
            yield Problem(name, tag.sourceline, f"a duplicate id: {tag.get('id')!r}")


def _classes(tag: Element) -> list[str]:
    names: str = tag.get("class") or ""
    return names.split()


@dataclass(frozen=True)
class _Urls:
    site: Path
    base: str
    pages: dict[str, _Page]

    def of_page(self, name: str) -> Iterator[Problem]:
        """Check every URL that a page names."""
        for tag in self.pages[name].root.iter("*"):
            for attribute, value in tag.items():
                if attribute == "style":
                    yield from self._css(name, tag.sourceline, value)
                # Elsewhere than on <object>, HTML knows no such attribute.
                elif attribute in URLS and (attribute != "data" or tag.tag == "object"):
                    for url in _candidates(attribute, value):
                        yield from self._check(name, tag.sourceline, url, followed=_followed(tag))
            if tag.tag == "style":
                yield from self._css(name, tag.sourceline, tag.text or "")

    def of_stylesheets(self) -> Iterator[Problem]:
        """Check every URL that a stylesheet names."""
        for path in self.site.rglob("*.css"):
            text = path.read_text(encoding="utf-8")
            yield from self._css(path.relative_to(self.site).as_posix(), 1, text)

    def _css(self, name: str, first: int, text: str) -> Iterator[Problem]:
        for match in CSS_URL.finditer(text):
            line = first + text.count("\n", 0, match.start())
            url = match["url"] or match["sheet"]
            yield from self._check(name, line, url.strip(), followed=False)

    def _check(self, name: str, line: int, url: str, *, followed: bool) -> Iterator[Problem]:
        try:
            parts = urlsplit(url)
        except ValueError:
            yield Problem(name, line, f"a broken link: {url!r}")
            return
        if parts.netloc or parts.scheme not in ("", "data", "blob"):
            if not followed:
                yield Problem(name, line, f"loaded from another host: {url!r}")
            elif parts.scheme not in ("", "http", "https", "mailto"):
                yield Problem(name, line, f"a link that readers cannot follow: {url!r}")
            return
        if parts.scheme:
            return
        target = self._target(name, unquote(parts.path))
        if target is None or not self.site.joinpath(target).is_file():
            yield Problem(name, line, f"a broken link: {url!r}")
        elif not self._has_anchor(target, unquote(parts.fragment)):
            yield Problem(name, line, f"a broken anchor: {url!r}")

    def _target(self, name: str, path: str) -> str | None:
        """Return the file that a link leads to, or None where it leaves the site."""
        if not path:
            return name
        if path.startswith("/"):
            if not f"{path}/".startswith(self.base):
                return None
            target = normpath(path[len(self.base) :])
        else:
            target = normpath(PurePosixPath(name).parent / path)
        if target.startswith(".."):
            return None
        return normpath(f"{target}/index.html") if self.site.joinpath(target).is_dir() else target

    def _has_anchor(self, target: str, anchor: str) -> bool:
        if anchor in ("", "top") or target not in self.pages:
            return True
        page = self.pages[target]
        return anchor in page.ids or anchor in page.root.xpath("//a/@name")


def _followed(tag: Element) -> bool:
    if tag.tag == "link":
        return FOLLOWED.issuperset(tag.get("rel", "stylesheet").split())
    return tag.tag in ("a", "area")


def _candidates(attribute: str, value: str) -> list[str]:
    if attribute != "srcset":
        return [value.strip()]
    return [candidate.split()[0] for candidate in value.split(",") if candidate.strip()]
