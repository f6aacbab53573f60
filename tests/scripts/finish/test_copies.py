from __future__ import annotations

import pytest
from lxml.html import fromstring

from scripts.finish.built import read_site
from scripts.finish.copies import offer_copies, typed
from scripts.project import Project

CODE = '<div class="language-{}"{}><pre><code>x</code></pre></div>'


def test_every_block_of_code_has_a_button_for_it_and_no_output(built_small_site: Project) -> None:
    built = read_site(built_small_site.site, built_small_site)
    page = built.pages["core/tiny.html"]
    for old in page.root.xpath("//pre/.."):
        old.drop_tree()
    blocks = [
        CODE.format("python highlight", ' id="example-a"'),
        CODE.format("console highlight", ""),
        CODE.format("text highlight", ' id="output-a"'),
    ]
    page.content.append(fromstring(f"<div>{''.join(blocks)}</div>"))
    assert offer_copies(built) == []
    buttons = page.content.xpath(".//button")
    targets = [each.get("data-clipboard-target") for each in buttons]
    assert targets == ["#example-a code", "#block-2 code"]
    for target, button in zip(targets, buttons, strict=True):
        [block] = page.root.xpath("//*[@id = $id]", id=target.removeprefix("#").split()[0])
        assert button.xpath("ancestor::pre/code") == block.xpath(".//code")
        assert button.get("title") == "Copy to clipboard"


@pytest.mark.parametrize(
    ("session", "commands"),
    [
        ("$ ls\na.py\n$ pwd\n/here\n", "ls\npwd"),
        ("$ python -m x \\\n    --set a=b\n2 failed\n", "python -m x \\\n    --set a=b"),
        (">>> def f():\n...     return 1\n...\n>>> f()\n1\n", "def f():\n    return 1\n\nf()"),
        ("python scripts/build.py --check\n", ""),
        ("costs $ 3 and >>> x\n", ""),
    ],
)
def test_a_session_is_its_commands(session: str, commands: str) -> None:
    assert typed(session) == commands


@pytest.mark.parametrize("language", ["console", "pycon", "python"])
def test_the_button_of_a_session_copies_commands(built_small_site: Project, language: str) -> None:
    built = read_site(built_small_site.site, built_small_site)
    page = built.pages["core/tiny.html"]
    for old in page.root.xpath("//pre/.."):
        old.drop_tree()
    text = "... \n$ x\ny\n"
    block = f'<div class="language-{language} highlight"><pre><code>{text}</code></pre></div>'
    page.content.append(fromstring(block))
    assert offer_copies(built) == []
    [button] = page.content.xpath(".//button")
    if language == "python":  # whose lines are code, whatever they begin with
        assert button.get("data-clipboard-target") == "#block-1 code"
        assert button.get("data-clipboard-text") is None
    else:
        assert button.get("data-clipboard-text") == "\nx"
