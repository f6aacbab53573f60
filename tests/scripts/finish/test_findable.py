from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from lxml.html import HtmlElement
from PIL import Image

from scripts.finish.built import Built, read_site
from scripts.finish.findable import make_findable
from scripts.project import Project
from scripts.site import build_site
from tests.conftest import copy_small_site

BASE = "https://attention.example/reference/"
TINY = "core/tiny.html"


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The small site with an address and with one head, built."""
    project = copy_small_site(tmp_path_factory.mktemp("placed") / "project")
    path = project.markdown("core/tiny")
    text = path.read_text(encoding="utf-8")
    path.write_text(f'---\ndescription: Twice "x" < x².\n---\n{text}', encoding="utf-8")
    with (project.root / "mkdocs.yml").open("a", encoding="utf-8") as settings:
        settings.write("\nnav:\n  - index.md\n  - numbers.md\n  - Core:\n")
        settings.write("      - core/many-numbers.md\n      - core/tiny.md\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SITE_URL", BASE.rstrip("/"))
        assert build_site(project) == []
    return project


def metas(root: HtmlElement) -> dict[str, str]:
    found = [
        (meta.get("name") or meta.get("property"), meta.get("content"))
        for meta in root.iterfind("head/meta")
        if meta.get("charset") is None
    ]
    assert len(dict(found)) == len(found), "a name stands twice"
    return dict(found)


def data(root: HtmlElement) -> list[dict[str, Any]]:
    [script] = root.xpath("//script[@type='application/ld+json']")
    assert "<" not in script.text
    found = json.loads(script.text)
    assert found["@context"] == "https://schema.org"
    graph: list[dict[str, Any]] = found["@graph"]
    return graph


def test_a_page_with_an_address_says_all_of_itself(placed: Project) -> None:
    root = read_site(placed.site, placed).pages[TINY].root
    said = metas(root)
    assert said["description"] == said["og:description"] == 'Twice "x" < x².'
    assert said["og:title"] == said["og:image:alt"] == "Doubling"
    assert said["og:type"] == "article"
    assert said["og:url"] == f"{BASE}{TINY}"
    assert said["og:image"] == f"{BASE}assets/cards/core/tiny.png"
    with Image.open(placed.site / "assets" / "cards" / "core" / "tiny.png") as card:
        assert card.size == (int(said["og:image:width"]), int(said["og:image:height"]))
    [canonical] = root.xpath("//link[@rel='canonical']/@href")
    assert canonical == f"{BASE}{TINY}"


def test_structured_data_says_where_a_page_stands(placed: Project) -> None:
    site, article, crumbs = data(read_site(placed.site, placed).pages[TINY].root)
    assert [part["@type"] for part in (site, article, crumbs)] == [
        "WebSite",
        "TechArticle",
        "BreadcrumbList",
    ]
    assert article["headline"] == "Doubling"
    assert article["isPartOf"]["@id"] == site["@id"]
    steps = [(step["position"], step["name"], step["item"]) for step in crumbs["itemListElement"]]
    assert steps == [
        (1, "A small site", f"{BASE}index.html"),
        (2, "Core", f"{BASE}core/many-numbers.html"),
        (3, "Doubling", f"{BASE}{TINY}"),
    ]


def test_the_home_page_stands_for_the_site(placed: Project) -> None:
    root = read_site(placed.site, placed).pages["index.html"].root
    assert metas(root)["og:type"] == "website"
    [site] = data(root)
    assert site["@type"] == "WebSite"
    assert site["url"] == BASE


def test_the_page_for_missing_addresses_is_kept_out_of_indexes(placed: Project) -> None:
    root = read_site(placed.site, placed).pages["404.html"].root
    assert metas(root)["robots"] == "noindex"
    assert not root.xpath("//link[@rel='canonical']")


def test_without_an_address_no_page_names_one(built_small_site: Project) -> None:
    assert not (built_small_site.site / "assets" / "cards").exists()
    for page in read_site(built_small_site.site, built_small_site).pages.values():
        said = metas(page.root)
        assert said["description"]
        assert not {"og:url", "og:image"} & set(said)
        assert not page.root.xpath("//link[@rel='canonical'] | //script[contains(@type, 'ld+')]")


def spoilt(project: Project, tmp_path: Path) -> Built:
    return read_site(shutil.copytree(project.site, tmp_path / "site"), project)


def test_an_address_that_a_generator_made_up_is_dropped(
    built_small_site: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SITE_URL", raising=False)
    built = spoilt(built_small_site, tmp_path)
    head = built.pages[TINY].root.find("head")
    head.append(head.makeelement("link", {"rel": "canonical", "href": "/core/tiny.html"}))
    assert make_findable(built) == []
    assert not built.pages[TINY].root.xpath("//link[@rel='canonical']")


def test_a_page_that_the_sitemap_lacks_is_told(
    placed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_URL", BASE)
    built = spoilt(placed, tmp_path)
    sitemap = built.folder / "sitemap.xml"
    text = sitemap.read_text(encoding="utf-8")
    sitemap.write_text(text.replace("tiny.html", "tinny.html"), encoding="utf-8")
    [problem] = make_findable(built)
    assert str(problem) == f"docs/core/tiny.md:1: sitemap.xml does not list {BASE}{TINY}"
    sitemap.unlink()
    assert len(make_findable(built)) == len(placed.pages())
