from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from scripts.project import Problem, Project
from scripts.scan import scan

KATEX = (
    '<span class="katex"><span class="katex-mathml"><math><annotation>x_{{a}} [t][r] \\frac'
    '</annotation></math></span><span class="katex-html">x</span></span>'
)
GOOD = f"""<!doctype html>
<html><head><title>A page</title>
<link rel="canonical" href="https://example.org/core/page.html">
<link rel="stylesheet" href="../assets/style.css">
<style>b {{ background: url(../assets/picture.svg) }}</style>
<script>var x = "{{{{ [text][ref] }}}}"</script></head>
<body><h1 id="top-of-page">A page</h1>
<!-- output: x {{{{ }}}} [text][ref] -->
<p>Prose in [0, 1] for $5 with <data value="a.b">0.5</data> and {KATEX} in [{KATEX}, 2].</p>
<p>Code: <code>{{{{ x }}}} [text][ref] \\(x\\)</code>, [<code>a</code>](x) is none.</p>
<pre><code>{{{{ x }}}} [text][ref] $x$ ```</code></pre>
<p><a href="https://example.org/">elsewhere</a> <a href="mailto:a@example.org">write</a>
<a href="#top-of-page">here</a> <a href="#">top</a> <a href="other.html#caf%C3%A9">other</a>
<a href="../">home</a> <a href="..">home</a> <a href="/core/page.html?x=1">absolute</a>
<img alt="A line." src="../assets/picture.svg#only-light" srcset="../assets/picture.svg 2x">
<img alt="A dot." src="data:image/gif;base64,R0lGODlhAQABAAAAACw="></p>
<style></style>
<p data="no link"><a href=" other.html#old ">old</a> <span class="arithmatex">{KATEX}</span></p>
<img alt="Lines." src="../assets/picture.svg" srcset="../assets/picture.svg 2x, ">
<svg viewBox="0 0 1 1"><use href="#top-of-page"></use></svg>
</body></html>
""".replace("[<code>a</code>](x) is none", "<code>a</code> is none")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    for name, text in {
        "index.html": "<title>Home</title><p>Home.</p>",
        "core/page.html": GOOD,
        "core/other.html": '<title>Other</title><h2 id="café">Other</h2><a name="old"></a>',
        "assets/style.css": '@import "more.css";\nb { background: url("picture.svg") }',
        "assets/more.css": "b { background: url(data:image/gif;base64,R0lGODlhAQABAAAAACw=) }",
        "assets/picture.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_sound_site_has_no_problem(site: Path) -> None:
    assert scan(site) == []


def test_a_built_site_has_no_problem(built_small_site: Project) -> None:
    assert scan(built_small_site.site) == []


FAULTS = [
    (
        "<pre><code>Traceback (most recent call last):\n  File</code></pre>",
        "a traceback: 'Traceback (most recent call last)'",
    ),
    ("<pre><code>--8&lt;-- 'x.md'</code></pre>", "a snippet marker: '--8<--'"),
    ("<p><code>x --8&lt;-- y</code></p>", "a snippet marker: '--8<--'"),
    ("<p>{{ page.title }}</p>", "a template expression: '{{'"),
    ("<td>{% if x %}</td>", "a template expression: '{%'"),
    ("<p>See [the text][ref].</p>", "an unresolved reference link: '[the text][ref]'"),
    ("<p>See [<em>the</em> text][].</p>", "an unresolved reference link: '[the text][]'"),
    ("<p>See [<code>x.y</code>][ref].</p>", "an unresolved reference link: '[`…`][ref]'"),
    ("<p>See [<code>x.y</code>].</p>", "an unresolved reference link: '[`…`]'"),
    (f"<p>See [{KATEX}][ref].</p>", "an unresolved reference link: '[$…$][ref]'"),
    *[
        (f"<p>[th<{tag}>e</{tag}> text]</p>", "an unresolved reference link: '[the text]'")
        for tag in (
            *("a", "abbr", "b", "data", "del", "em", "i", "ins", "kbd", "mark", "q", "s", "small"),
            *("span", "strong", "sub", "sup", "u"),
        )
    ],
    ("<div>[the<br> text]</div>", "an unresolved reference link: '[the text]'"),
    *[
        (f"<div>[th<{tag}>e</{tag}> text]</div>", "an unresolved reference link: '[th text]'")
        for tag in ("article", "section", "blockquote", "summary")
    ],
    ("<li>See [the text].</li>", "an unresolved reference link: '[the text]'"),
    ("<p>A claim.[^1]</p>", "an unresolved reference link: '[^1]'"),
    (r"<p>So \(x\)</p>", "an unrendered formula: '\\\\('"),
    ("<p>So $x $ is</p>", "an unrendered formula: '$'"),
    ("<p>So $$x$$ is</p>", "an unrendered formula: '$$'"),
    (r"<p>So \begin{align}</p>", r"an unrendered formula: '\\begin{'"),
    (r"<p>So \frac12</p>", r"an unrendered formula: '\\frac'"),
    ('<div class="arithmatex">x</div>', "an unrendered formula: 'x'"),
    ('<div class="arithmatex"> x </div>', "an unrendered formula: 'x'"),
    ('<span class="katex-error" title="e">x</span>', "an unrendered formula: 'x'"),
    ("<p>```python x</p>", "an unrendered fence: '```'"),
    ("<p>&lt;!-- output: x --&gt;</p>", "an unrendered comment: '<!--'"),
    ("<p>| a | |:---|</p>", "an unrendered table: '|:---'"),
    ("<li>A source. { #source }</li>", "an unread attribute list: '{ #source }'"),
    ("<pre><code> \n</code></pre>", "an empty <pre>"),
    ("<p><code></code></p>", "an empty <code>"),
    ('<img src="../assets/picture.svg">', "an image without alt: ../assets/picture.svg"),
    ('<img alt=" " src="../assets/picture.svg">', "an image without alt: ../assets/picture.svg"),
    ('<p id="top-of-page">x</p>', "a duplicate id: 'top-of-page'"),
    ('<a href="nowhere.html">x</a>', "a broken link: 'nowhere.html'"),
    ('<a href="../../outside.html">x</a>', "a broken link: '../../outside.html'"),
    ('<a href="/nowhere/">x</a>', "a broken link: '/nowhere/'"),
    ('<a href="../assets/">x</a>', "a broken link: '../assets/'"),
    ('<img alt="x" src="none.svg">', "a broken link: 'none.svg'"),
    ('<img alt="x" srcset="../assets/picture.svg, n.svg 2x">', "a broken link: 'n.svg'"),
    ('<p style="background: url(none.png)">x</p>', "a broken link: 'none.png'"),
    ('<a href="http://[x">x</a>', "a broken link: 'http://[x'"),
    ('<a href="#nowhere">x</a>', "a broken anchor: '#nowhere'"),
    ('<a href="other.html#nowhere">x</a>', "a broken anchor: 'other.html#nowhere'"),
    ('<a href="file:///etc/hosts">x</a>', "a link that readers cannot follow: 'file:///etc/hosts'"),
    ('<div class="mermaid">x</div>', "loads from another host: 'mermaid'"),
    (
        '<a href="https://code.example" class="md-source" data-md-component="source">x</a>',
        "loads from another host: 'md-source'",
    ),
    *[
        (tag.replace("URL", "https://cdn.example/x"), "loaded from another host: 'https://cdn.exam")
        for tag in (
            '<script src="URL"></script>',
            '<link rel="stylesheet" href="URL">',
            '<link rel="preload" as="font" href="URL">',
            '<link rel="icon" href="URL">',
            '<link rel="alternate stylesheet" href="URL">',
            '<img alt="x" src="URL">',
            '<img alt="x" srcset="../assets/picture.svg, URL 2x">',
            '<iframe src="URL"></iframe>',
            '<object data="URL"></object>',
            '<video poster="URL"></video>',
            '<svg><image href="URL"/></svg>',
            "<style>@font-face { src: url('URL') }</style>",
            "<style>@import 'URL';</style>",
            '<p style="background: url(URL)">x</p>',
        )
    ],
    ('<script src="//cdn.example/x"></script>', "loaded from another host: '//cdn.example/x'"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_planted_fault_is_named_with_its_page_and_line(
    site: Path, fault: str, message: str
) -> None:
    page = site / "core" / "page.html"
    page.write_text(GOOD.replace("</body>", f"{fault}\n</body>"), encoding="utf-8")
    problems = [problem for problem in scan(site) if problem.message.startswith(message)]
    assert problems
    line = GOOD.count("\n", 0, GOOD.index("</body>")) + 1
    assert (problems[-1].file, problems[-1].line) == ("core/page.html", line)


@pytest.mark.parametrize(
    ("css", "line", "message"),
    [
        ("b {\nbackground: url(//cdn.example/x) }", 2, "loaded from another host: '//cdn.ex"),
        ('\n\n@import "https://cdn.example/x";', 3, "loaded from another host: 'https://cdn.ex"),
        ("@font-face { src: url(none.woff2) }", 1, "a broken link: 'none.woff2'"),
        ("@font-face { src: url( none.woff2 ) }", 1, "a broken link: 'none.woff2'"),
        ("@font-face { src: url('none.woff2') }", 1, "a broken link: 'none.woff2'"),
        ('@font-face { src: url("none.woff2") }', 1, "a broken link: 'none.woff2'"),
        ("@import  'none.css';", 1, "a broken link: 'none.css'"),
    ],
)
def test_a_stylesheet_is_searched_too(site: Path, css: str, line: int, message: str) -> None:
    (site / "assets" / "style.css").write_text(css, encoding="utf-8")
    [problem] = scan(site)
    assert (problem.file, problem.line) == ("assets/style.css", line)
    assert problem.message.startswith(message)


def test_absolute_links_stand_under_the_path_that_the_site_is_served_from(site: Path) -> None:
    page = site / "404.html"
    page.write_text('<a href="/base/core/page.html">x</a> <a href="/base/">x</a>', encoding="utf-8")
    assert scan(site, "/base/") == [
        Problem("core/page.html", 14, "a broken link: '/core/page.html?x=1'")
    ]
    assert scan(site, "/base") == scan(site, "/base/")
    assert [problem.file for problem in scan(site)] == ["404.html", "404.html"]
    # As long as the path of the site, and so not to be cut off.
    page.write_text('<a href="/otherindex.html">x</a>', encoding="utf-8")
    assert Problem("404.html", 1, "a broken link: '/otherindex.html'") in scan(site, "/base/")


def test_a_link_out_of_the_site_is_broken_though_a_file_is_there(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.html").write_text("<p>x</p>", encoding="utf-8")
    (site / "page.html").write_text('<a href="../outside.html">x</a>', encoding="utf-8")
    assert scan(site) == [Problem("page.html", 1, "a broken link: '../outside.html'")]


def test_an_empty_page_is_named(tmp_path: Path) -> None:
    names = [f"page-{n}.html" for n in range(6)]
    for name in names:
        (tmp_path / name).touch()
    assert scan(tmp_path) == [Problem(name, 1, "an empty page") for name in names]


def test_faults_in_a_built_page_are_found(built_small_site: Project, tmp_path: Path) -> None:
    shutil.copytree(built_small_site.site, tmp_path, dirs_exist_ok=True)
    page = tmp_path / "core" / "tiny.html"
    text = page.read_text(encoding="utf-8")
    spoilt = text.replace("twice 0.333 is 0.667", "Traceback (most recent call last):")
    spoilt = re.sub(r"<article[^>]*>", r"\g<0><p>{{ left }}</p>", spoilt)
    assert spoilt.count("\n") == text.count("\n")
    page.write_text(spoilt, encoding="utf-8")
    lines = spoilt.splitlines()
    for problem, wanted in zip(
        scan(tmp_path), ("a template expression: '{{'", "a traceback"), strict=True
    ):
        assert problem.message.startswith(wanted)
        assert problem.file == "core/tiny.html"
        assert ("{{ left" if "{{" in wanted else "Traceback") in lines[problem.line - 1]
