from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

from scripts import mathematics
from scripts.mathematics import KATEX, Formula, install, render, render_mathematics
from scripts.project import Problem, Project

INLINE = r'<span class="arithmatex">\(a &lt; \sqrt{d_k}\)</span>'
DISPLAY = '<div class="arithmatex">\\[\n\\sum_i x_i\n\\]</div>'
PAGE = f"""<!doctype html>
<html><head><title>x</title><meta charset=utf-8></head>\r
<body><p>So {INLINE}, and again {INLINE}.</p>
{DISPLAY}
</body></html>
"""
UNTOUCHED = r"""<html><head><title>x</title></head><body>
<p><code>\(x\)</code> <code><span class="arithmatex">\(x\)</span></code></p>
<pre><code><span class="s">"<span class="arithmatex">\(x\)</span>"</span></code></pre>
<pre>
<span class="arithmatex">\(x\)</span></pre>
<pre>&lt;span class="arithmatex"&gt;\(x\)&lt;/span&gt;</pre>
<!-- <span class="arithmatex">\(x\)</span> -->
<script>var x = '<span class="arithmatex">\\(x\\)</span>'</script>
<p>Not <span class="arithmatexes">\(x\)</span> either.</p></body></html>
"""


def write(project: Project, name: str, text: str) -> Path:
    path = project.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_formula_reads_without_javascript(project: Project) -> None:
    page = write(project, "site/core/page.html", PAGE)
    assert render_mathematics(project.site, project) == []
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    sources = [tag.string for tag in soup.select('math annotation[encoding="application/x-tex"]')]
    assert sources == [r"a < \sqrt{d_k}", r"a < \sqrt{d_k}", r"\sum_i x_i"]
    assert len(soup.select('span.arithmatex > .katex > .katex-html[aria-hidden="true"]')) == 2
    assert len(soup.select("div.arithmatex > .katex-display math[display=block]")) == 1
    assert r"\(" not in soup.get_text()


def test_only_the_inside_of_the_markup_and_the_head_change(project: Project) -> None:
    page = write(project, "site/core/page.html", PAGE)
    render_mathematics(project.site, project)
    link = '<link rel="stylesheet" href="../assets/katex/katex.min.css">'
    rendered = re.sub(
        r'(<(span|div) class="arithmatex">)<span class="katex.*?</span></\2>(?=[,.\n])',
        r"\1</\2>",
        page.read_bytes().decode(),
        flags=re.DOTALL,
    )
    emptied = PAGE.replace(INLINE, '<span class="arithmatex"></span>')
    emptied = emptied.replace(DISPLAY, '<div class="arithmatex"></div>')
    assert rendered == emptied.replace("</head>", f"{link}</head>")


def test_code_comments_and_scripts_stay(project: Project) -> None:
    plain = write(project, "site/plain.html", UNTOUCHED)
    mixed = write(project, "site/mixed.html", UNTOUCHED.replace("</body>", f"{INLINE}</body>"))
    assert render_mathematics(project.site, project) == []
    assert plain.read_bytes().decode() == UNTOUCHED
    body = mixed.read_text(encoding="utf-8").partition("<body>")[2]
    assert body.startswith(UNTOUCHED.partition("<body>")[2].removesuffix("</body></html>\n"))
    assert body.count('class="katex"') == 1


@pytest.mark.parametrize(
    ("name", "href"),
    [
        ("index.html", "assets/katex/katex.min.css"),
        ("core/page.html", "../assets/katex/katex.min.css"),
        ("core/page/index.html", "../../assets/katex/katex.min.css"),
    ],
)
def test_the_stylesheet_is_linked_from_any_depth(project: Project, name: str, href: str) -> None:
    page = write(project, f"site/{name}", PAGE)
    render_mathematics(project.site, project)
    links = re.findall(r'<link rel="stylesheet" href="([^"]*)">', page.read_text(encoding="utf-8"))
    assert links == [href]
    assert (page.parent / href).is_file()


def test_the_site_gets_the_fonts_that_its_stylesheet_names_and_no_others(project: Project) -> None:
    write(project, "site/page.html", PAGE)
    render_mathematics(project.site, project)
    assets = project.site / "assets" / "katex"
    named = re.findall(r"url\(([^)]*)\)", (assets / "katex.min.css").read_text(encoding="utf-8"))
    there = [path.relative_to(assets).as_posix() for path in assets.glob("fonts/*")]
    assert named
    assert sorted(named) == sorted(there)
    assert all(name.endswith(".woff2") for name in there)


def test_a_site_without_formulas_gets_nothing(project: Project) -> None:
    write(project, "site/page.html", UNTOUCHED)
    assert render_mathematics(project.site, project) == []
    assert [path.name for path in project.site.iterdir()] == ["page.html"]


def test_equal_formulas_are_rendered_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[Formula]] = []

    def spy(formulas: Iterable[Formula], package: Path) -> dict[Formula, Any]:
        calls.append(list(formulas))
        return render(calls[-1], package)

    monkeypatch.setattr(mathematics, "render", spy)
    write(project, "site/a.html", PAGE)
    write(project, "site/b.html", PAGE)
    assert render_mathematics(project.site, project) == []
    assert calls == [[Formula(r"\sum_i x_i", True), Formula(r"a < \sqrt{d_k}", False)]]


def test_many_formulas_pass_through_one_process() -> None:
    formulas = [Formula(rf"\frac{{{n}}}{{\sqrt{{d_{{{n}}}}}}}", True) for n in range(1500)]
    answers = render(formulas, install())
    assert sum(len(answers[formula]["html"]) for formula in formulas) > 1_000_000


MARKDOWN = r"""# Page

Good $x$, bad $\frac{1$ here, and \(\frac{1\) again; this is no formula: \frac{1.

> $$
> \unknown{a}
> + b
> $$
"""


@pytest.mark.parametrize("name", ["core/page.html", "core/page/index.html"])
def test_a_bad_formula_is_told_with_page_line_tex_and_reason(project: Project, name: str) -> None:
    write(project, "docs/core/page.md", MARKDOWN)
    bad = r'<p><span class="arithmatex">\(\frac{1\)</span></p>'
    worse = '<div class="arithmatex">\\[\n\\unknown{a}\n+ b\n\\]</div>'
    page = write(project, f"site/{name}", f"<head></head>{bad}{worse}{INLINE}")
    before = page.read_bytes()
    problems = render_mathematics(project.site, project)
    assert [(problem.file, problem.line) for problem in problems] == [
        ("docs/core/page.md", 3),
        ("docs/core/page.md", 6),
    ]
    assert problems[0].message == (
        r"KaTeX cannot read the formula '\\frac{1': Unexpected end of input in a macro argument, "
        "expected '}'"
    )
    assert r"'\\unknown{a}\n+ b': Undefined control sequence: \unknown" in problems[1].message
    assert page.read_bytes() == before
    assert not (project.site / "assets").exists()


@pytest.mark.parametrize(
    ("tex", "reason"),
    [
        (r"\href{https://example.org}{x}", "a command that is not allowed here"),
        (r"\includegraphics{x.png}", "a command that is not allowed here"),
        ("naïve", "LaTeX-incompatible input"),
    ],
)
def test_what_katex_would_only_warn_of_is_a_problem(
    project: Project, tex: str, reason: str
) -> None:
    write(project, "site/page.html", rf'<head></head><span class="arithmatex">\({tex}\)</span>')
    [problem] = render_mathematics(project.site, project)
    assert (problem.file, problem.line) == ("page.html", 1)
    assert f"KaTeX cannot read the formula {tex!r}: {reason}" in problem.message


def test_a_page_that_cannot_link_the_stylesheet_is_a_problem(project: Project) -> None:
    write(project, "site/page.html", f"<body>{INLINE}</body>")
    assert render_mathematics(project.site, project) == [
        Problem("page.html", 1, "formulas, but no </head> for their stylesheet")
    ]


def fake_npm(calls: list[Path], status: int) -> Any:
    def npm(_arguments: list[str], *, cwd: Path, **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(cwd)
        (cwd / "node_modules").mkdir()
        time.sleep(0.2)
        return subprocess.CompletedProcess([], status, "", "no such version")

    return npm


def test_two_builds_at_a_time_install_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []
    monkeypatch.setattr(mathematics, "npm", fake_npm(calls, 0))
    start = threading.Barrier(4)

    def work(_: int) -> Path:
        start.wait()
        return install(tmp_path)

    with ThreadPoolExecutor(4) as pool:
        [package] = set(pool.map(work, range(4)))
    assert len(calls) == 1
    assert (package / "node_modules").is_dir()
    assert install(tmp_path) == package
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [package.name]


def test_a_failed_install_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mathematics, "npm", fake_npm([], 1))
    with pytest.raises(
        RuntimeError, match="npm ci could not install the packages of katex:\nno such version"
    ):
        install(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


def test_the_lock_pins_every_package_by_its_content_and_names_no_host() -> None:
    text = (KATEX / "package-lock.json").read_text(encoding="utf-8")
    packages = json.loads(text)["packages"]
    assert packages.pop("")["dependencies"] == {
        "@fontsource-variable/source-code-pro": "5.3.1",
        "@fontsource-variable/source-serif-4": "5.3.1",
        "katex": "0.19.1",
    }
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "resolved" not in text
