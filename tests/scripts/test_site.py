from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from mkdocs.config import load_config
from mkdocs.livereload import LiveReloadServer

from scripts.commit import commit_time
from scripts.project import HOME, Project
from scripts.site import build_site, make_server, serve
from tests.conftest import commit


def add(project: Project, page: str, text: str) -> None:
    path = project.markdown(page)
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def tree(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def tiny(built_small_site: Project) -> BeautifulSoup:
    page = built_small_site.site / "core" / "tiny.html"
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def test_directives_are_unseen_and_what_they_fill_is_rendered(tiny: BeautifulSoup) -> None:
    article = tiny.select("article")[0]
    assert "pytest-codeblocks" not in article.get_text()
    assert "table: doubles" not in article.get_text()
    assert [row.get_text(" ", strip=True) for row in article.select("table tr")] == [
        "x twice x",
        "one 2",
        "two 4",
    ]
    assert len(article.select("div.language-python pre code")) == 3
    outputs = article.select("div.language-text pre code")
    assert [code.get_text() for code in outputs] == ["twice 0.333 is 0.667\n"]
    assert [str(image["src"]).rpartition("/")[2] for image in article.select("img")] == [
        "line-light.svg#only-light",
        "line-dark.svg#only-dark",
    ]
    assert [data.get_text() for data in article.select("data[value='doubled.third']")] == ["0.67"]


def test_formulas_and_markdown_are_rendered_in_folded_parts(small_site: Project) -> None:
    fold = (
        '\n<details markdown="1">\n<summary>Answer</summary>\n\nSo $x^2$, from **here**.\n\n'
        "~~~text\n1\n~~~\n\n$$\n\\frac12\n$$\n\n</details>\n"
    )
    add(small_site, "core/tiny", fold)
    assert build_site(small_site) == []
    text = (small_site.site / "core" / "tiny.html").read_text(encoding="utf-8")
    details = BeautifulSoup(text, "html.parser").select("details:not(.about-contents)")[0]
    assert len(details.select("p .katex")) == 1
    assert len(details.select("div.arithmatex .katex-display")) == 1
    assert details.select("strong")[0].get_text() == "here"
    assert details.select("div.language-text code")[0].get_text() == "1\n"


def test_only_pages_with_formulas_load_what_formulas_need(built_small_site: Project) -> None:
    link = 'href="{}assets/katex/katex.min.css"'
    home = (built_small_site.site / "index.html").read_text(encoding="utf-8")
    page = (built_small_site.site / "core" / "tiny.html").read_text(encoding="utf-8")
    assert "katex" not in home
    assert page.count(link.format("../")) == 1


def test_nothing_else_is_left_beside_the_site(built_small_site: Project) -> None:
    assert sorted(path.name for path in built_small_site.root.iterdir()) == [
        "docs",
        "mkdocs.yml",
        "site",
        "snippets",
    ]


# Each of these is met by another setting of mkdocs, or by the scan alone.
FAULTS = """
[a](nowhere.md)
[b](../index.md#nowhere)
[c](#nowhere)
[d](/absolute)
[e](unrecognised)
![f](none.svg)
[g][ref] and again [a](nowhere.md)

[ref]: gone.md
"""


def test_every_broken_link_is_named_with_its_page_and_line(small_site: Project) -> None:
    add(small_site, "core/tiny", FAULTS)
    text = small_site.markdown("core/tiny").read_text(encoding="utf-8")
    first = text[: text.index("[a]")].count("\n") + 1
    problems = build_site(small_site)
    assert {problem.file for problem in problems} == {"docs/core/tiny.md"}
    expected = [
        (0, "contains a link 'nowhere.md', but the target 'core/nowhere.md' is not found"),
        (1, "the doc 'index.md' does not contain an anchor '#nowhere'"),
        (2, "contains a link '#nowhere', but there is no such anchor on this page"),
        (3, "contains an absolute link '/absolute'"),
        (4, "contains an unrecognized relative link 'unrecognised'"),
        (5, "contains a link 'none.svg', but the target 'core/none.svg' is not found"),
        (6, "contains a link 'nowhere.md', but the target 'core/nowhere.md' is not found"),
        (8, "contains a link 'gone.md', but the target 'core/gone.md' is not found"),
    ]
    assert [problem.line - first for problem in problems] == [line for line, _ in expected]
    for problem, (_, message) in zip(problems, expected, strict=True):
        assert message in problem.message


def test_a_page_outside_the_navigation_and_a_page_that_is_not_there_are_named(
    small_site: Project,
) -> None:
    settings = small_site.root / "mkdocs.yml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(f"{text}\nnav:\n  - index.md\n  - gone.md\n", encoding="utf-8")
    omitted, gone = build_site(small_site)
    assert omitted.file == gone.file == "mkdocs.yml"
    assert 'not included in the "nav" configuration:' in omitted.message
    assert "- core/tiny.md" in omitted.message
    assert gone.message.startswith("A reference to 'gone.md' is included in the 'nav'")
    assert gone.line == text.count("\n") + 4


@pytest.mark.parametrize(
    ("fault", "file", "message"),
    [
        ("\n{{ page.title }}\n", "core/tiny.html", "a template expression: '{{'"),
        ('\n<a href="nowhere.html">x</a>\n', "core/tiny.html", "a broken link: 'nowhere.html'"),
        ("\n[text][nowhere]\n", "core/tiny.html", "an unresolved reference link: '[text][nowhere]"),
        ("\n$\\frac{$\n", "docs/core/tiny.md", r"KaTeX cannot read the formula '\\frac{'"),
    ],
)
def test_a_site_with_a_fault_never_replaces_the_one_that_stands(
    small_site: Project, fault: str, file: str, message: str
) -> None:
    small_site.site.mkdir()
    (small_site.site / "index.html").write_text("as it was", encoding="utf-8")
    add(small_site, "core/tiny", fault)
    [problem] = build_site(small_site)
    assert problem.file == file
    assert problem.message.startswith(message)
    assert tree(small_site.site) == {"index.html": b"as it was"}
    assert [path.name for path in small_site.root.glob(".*")] == []


def test_a_sound_site_replaces_the_one_that_stands(small_site: Project) -> None:
    target = small_site.root / "elsewhere" / "public"
    target.mkdir(parents=True)
    (target / "old.html").write_text("old", encoding="utf-8")
    assert build_site(small_site, target) == []
    assert (target / "core" / "tiny.html").is_file()
    assert not (target / "old.html").exists()
    assert not small_site.site.exists()
    assert [path.name for path in target.parent.iterdir()] == ["public"]


def test_settings_that_mkdocs_cannot_read_are_a_problem(small_site: Project) -> None:
    settings = small_site.root / "mkdocs.yml"
    settings.write_text("site_name: [\n", encoding="utf-8")
    [problem] = build_site(small_site)
    assert (problem.file, problem.line) == ("mkdocs.yml", 1)
    assert problem.message.startswith("mkdocs failed: ")
    assert "error parsing the configuration file" in problem.message


def test_settings_that_mkdocs_refuses_are_a_problem(small_site: Project) -> None:
    settings = small_site.root / "mkdocs.yml"
    settings.write_text("site_name: x\ntheme: nowhere\n", encoding="utf-8")
    [problem] = build_site(small_site)
    assert (problem.file, problem.line) == ("mkdocs.yml", 1)
    assert "Unrecognised theme name: 'nowhere'" in problem.message


# Months later, for all that Python's clocks can tell.
LATER = """
import datetime, time
real, shift = time.time, 100 * 86400
time.time = lambda: real() + shift
class Later(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime = Later
"""
BUILD = """
import sys
from pathlib import Path
from scripts.project import Project
from scripts.site import build_site
sys.exit("\\n".join(map(str, build_site(Project(Path(sys.argv[1]))))) or 0)
"""


def test_two_builds_give_the_same_bytes(
    built_small_site: Project, small_site: Project, tmp_path: Path
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    (later / "sitecustomize.py").write_text(LATER, encoding="utf-8")
    for path in small_site.docs.rglob("*"):
        os.utime(path, (1e9, 1e9))
    subprocess.run(
        [sys.executable, "-c", BUILD, str(small_site.root)],
        env={
            **os.environ,
            "PYTHONHASHSEED": "12345",
            "PYTHONPATH": f"{later}{os.pathsep}{HOME}",
            "TZ": "Pacific/Kiritimati",
        },
        check=True,
    )
    first, second = tree(built_small_site.site), tree(small_site.site)
    assert list(first) == list(second)
    assert [name for name, content in first.items() if content != second[name]] == []
    assert {"index.html", "core/tiny.html", "sitemap.xml.gz"} <= set(first)


def test_the_date_of_a_build_is_its_commits(
    small_site: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_URL", "https://example.org/base")
    commit(small_site, "2001-02-03T12:00:00+00:00", monkeypatch)
    assert build_site(small_site) == []
    sitemap = (small_site.site / "sitemap.xml").read_text(encoding="utf-8")
    assert set(re.findall(r"<lastmod>(.*?)</lastmod>", sitemap)) == {"2001-02-03"}
    missing = (small_site.site / "404.html").read_text(encoding="utf-8")
    assert re.search(r'href="/base/assets/stylesheets/site\.\w+\.css"', missing)


def test_without_git_every_build_has_one_date(
    small_site: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit_time(small_site) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_time(small_site) is None
    assert build_site(small_site) == []
    sitemap = (small_site.site / "sitemap.xml").read_text(encoding="utf-8")
    assert set(re.findall(r"<lastmod>(.*?)</lastmod>", sitemap)) <= {"2026-01-01"}


def test_the_real_settings_run_no_code_and_load_nothing_from_elsewhere() -> None:
    settings = load_config(str(HOME / "mkdocs.yml"))
    assert list(settings.plugins) == ["material/search", "mkdocs-jupyter"]
    assert settings.plugins["mkdocs-jupyter"].config["execute"] is False
    assert not settings.hooks
    assert settings.theme["font"] is False
    assert not settings.repo_url  # REPO_URL is not set
    assert all("://" not in str(script) for script in settings.extra_javascript)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def running(server: LiveReloadServer) -> Iterator[Callable[[str], tuple[int, bytes]]]:
    thread = threading.Thread(target=server.serve)
    thread.start()
    wait_for(server.serve_thread.is_alive)

    def get(path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    try:
        yield get
    finally:
        server.shutdown()
        thread.join()


def test_the_preview_follows_edits_and_rests_when_nothing_changes(small_site: Project) -> None:
    page = small_site.markdown("index")
    generated = small_site.docs / "generated.md"
    built: list[str] = []

    def rebuild() -> bool:
        built.append(page.read_text(encoding="utf-8"))
        generated.write_text(f"Made from {len(built[-1])} characters.", encoding="utf-8")
        (small_site.root / "snippets" / "__pycache__").mkdir(exist_ok=True)
        (small_site.root / "snippets" / "__pycache__" / "x.pyc").write_text(str(time.time()))
        small_site.site.mkdir(exist_ok=True)
        (small_site.site / "index.html").write_text(f"<body>{built[-1]}</body>", encoding="utf-8")
        return True

    rebuild()
    server = make_server(small_site, rebuild, "127.0.0.1", 0)
    with running(server) as get:
        status, body = get("/")
        assert status == 200
        assert b"A small site" in body
        assert get("/nowhere.html")[0] == 404
        assert len(built) == 1
        page.write_text("An edit", encoding="utf-8")
        wait_for(lambda: "An edit" in built)
        wait_for(lambda: b"An edit" in get("/index.html")[1])
        # One more round for the page that the rebuild wrote, and then no more.
        wait_for(lambda: built[1:] == ["An edit"] * 2)
        rounds = len(built)
        page.write_text("An edit", encoding="utf-8")
        os.utime(page)
        time.sleep(2)
        assert len(built) == rounds


def test_a_port_in_use_is_told(
    built_small_site: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        serve(built_small_site, lambda: True, "127.0.0.1", port)
    message = f"cannot serve at http://127.0.0.1:{port}/: Address already in use"
    assert message in capsys.readouterr().out
