from __future__ import annotations

from lxml.html import fromstring

from scripts.finish.built import read_site
from scripts.finish.copies import offer_copies
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
