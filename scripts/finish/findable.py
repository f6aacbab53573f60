"""What search engines, chats and social networks read of a page, in its head.

Whatever names an address is written only where SITE_URL says where the site will stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lxml import etree
from lxml.html.builder import E

from scripts.finish.built import Built, Html
from scripts.finish.card import draw_card
from scripts.finish.titles import title_of
from scripts.matter import Matter
from scripts.project import Problem
from scripts.settings import read_settings
from scripts.tasks import heads, sections

MISSING = "404.html"
_REPLACED = "head/meta[@name='description'] | head/link[@rel='canonical']"
_LOCATIONS = "//*[local-name() = 'loc']/text()"


def make_findable(built: Built) -> list[Problem]:
    """Write descriptions, addresses, structured data and cards."""
    settings = read_settings(built.project)
    base, site = settings.url, settings.name
    known = heads(built.project)
    places = sections(built.project)
    titles = {page.page or "": title_of(page) for page in built.pages.values()}
    for page in built.pages.values():
        head = page.root.find("head")
        matter = known.get(page.page or "", Matter())
        description = matter.description or head.xpath("string(meta[@name='description']/@content)")
        for element in page.root.xpath(_REPLACED):
            element.drop_tree()
        head.append(E.meta(name="description", content=description))
        if page.file == MISSING:
            head.append(E.meta(name="robots", content="noindex"))
            continue
        title = title_of(page)
        shown = {
            "og:site_name": site,
            "og:title": title,
            "og:description": description,
            "og:type": "website" if page.page == "index" else "article",
        }
        if base and page.page:
            section = " · ".join(places[page.page])
            card = f"assets/cards/{page.page}.png"
            target = built.folder / card
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(draw_card(title, section, site))
            shown |= {
                "og:url": base + page.file,
                "og:image": base + card,
                "og:image:width": "1200",
                "og:image:height": "630",
                "og:image:alt": title,
            }
            data = _structured(page, base, titles, places, shown)
            text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
            head.append(E.script(text, type="application/ld+json"))
        for key, value in shown.items():
            head.append(E.meta(property=key, content=value))
        head.append(E.meta(name="twitter:card", content="summary_large_image"))
        if base:
            head.append(E.link(rel="canonical", href=base + page.file))
    return list(_unlisted(built, base)) if base else []


def _structured(
    page: Html,
    base: str,
    titles: Mapping[str, str],
    places: Mapping[str, tuple[str, ...]],
    shown: Mapping[str, str],
) -> dict[str, Any]:
    """The page as schema.org describes one; the home page stands for the whole site."""
    site: dict[str, Any] = {
        "@type": "WebSite",
        "@id": f"{base}#site",
        "name": shown["og:site_name"],
        "url": base,
        "inLanguage": "en",
    }
    if page.page == "index":
        graph = [site | {"description": shown["og:description"]}]
    else:
        article = {
            "@type": "TechArticle",
            "headline": shown["og:title"],
            "description": shown["og:description"],
            "url": shown["og:url"],
            "image": shown["og:image"],
            "inLanguage": "en",
            "isPartOf": {"@id": site["@id"]},
        }
        above = places[page.page or ""]
        first = next(name for name in places if places[name] == above)
        trail = [(titles["index"], "index.html"), *((part, f"{first}.html") for part in above)]
        steps = [
            {"@type": "ListItem", "position": number, "name": name, "item": base + file}
            for number, (name, file) in enumerate([*trail, (shown["og:title"], page.file)], 1)
        ]
        graph = [site, article, {"@type": "BreadcrumbList", "itemListElement": steps}]
    return {"@context": "https://schema.org", "@graph": graph}


def _unlisted(built: Built, base: str) -> Iterator[Problem]:
    """Pages that the generator's sitemap does not list."""
    sitemap = built.folder / "sitemap.xml"
    listed = set(etree.parse(sitemap).xpath(_LOCATIONS)) if sitemap.is_file() else set()
    for page in built.pages.values():
        if page.page and base + page.file not in listed:
            file = built.project.relative(built.project.source(page.page))
            yield Problem(file, 1, f"sitemap.xml does not list {base}{page.file}")
