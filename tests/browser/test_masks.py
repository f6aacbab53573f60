"""The mask builder, against the masks of the snippets, and its code run as Python."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import reduce
from operator import and_
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from playwright.sync_api import Browser, Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from torch import Tensor
from torch.nn.attention import flex_attention
from torch.nn.attention.flex_attention import create_mask

from snippets.attention import attention
from snippets.masks import (
    Predicate,
    all_of,
    any_of,
    below,
    causal,
    dense,
    documents,
    negate,
    padding,
    up_to,
)
from snippets.pages.practice.mask_builder import MASKS
from tests.browser.checks import opened
from tests.browser.conftest import ORIGIN

CELLS = "[...document.querySelectorAll('.attn-grids rect')].map((x) => x.matches('.attn-on'))"
BUILDER = f"{ORIGIN}/practice/mask-builder.html"
APIS = {
    "sdpa": "F.scaled_dot_product_attention",
    "mha": "nn.MultiheadAttention",
    "flex": "FlexAttention",
}
EMPTY = "empty-rows.html"


@dataclass(frozen=True)
class Setting:
    """What a reader sets; ``documents`` holds the lengths of each example's documents."""

    tq: int = 6
    tk: int = 6
    heads: int = 2
    kv: int | None = None
    causal: bool = True
    align: str = "end"
    window: int = 0
    sinks: int = 0
    padding: str = "none"
    lengths: tuple[int, ...] = ()
    prefix: tuple[int, ...] = ()
    documents: tuple[tuple[int, ...], ...] = field(default=())

    def fields(self) -> dict[str, Any]:
        """As they are typed."""
        typed = {
            "kv": "" if self.kv is None else str(self.kv),
            "lengths": ", ".join(map(str, self.lengths)),
            "prefix": ", ".join(map(str, self.prefix)),
            "documents": "; ".join(", ".join(map(str, one)) for one in self.documents),
        }
        return asdict(self) | typed

    @property
    def n_examples(self) -> int:
        """B, the longest of the lists."""
        used = self.lengths if self.padding != "none" else ()
        return max(1, len(used), len(self.prefix), len(self.documents))

    @property
    def offset(self) -> int:
        """Of the first query's own key."""
        return self.tk - self.tq if self.align == "end" else 0

    def each(self, one: tuple[Any, ...]) -> tuple[Any, ...]:
        """One entry for each example."""
        return one * self.n_examples if len(one) == 1 else one

    @property
    def n_kv_heads(self) -> int:
        """Hkv: as many as heads, unless given."""
        return self.heads if self.kv is None else self.kv

    def first(self) -> list[int]:
        """Where the tokens of each example begin."""
        if self.padding != "left":
            return [0] * self.n_examples
        return [self.tk - n for n in self.each(self.lengths)]

    def ids(self) -> list[list[int]]:
        """The number of each token's document; what is left over is one more."""
        return [
            [n for n, size in enumerate((*one, self.tk - sum(one))) for _ in range(size)]
            for one in self.each(self.documents)
        ]


def sinks(s: Setting) -> Predicate:
    """The first tokens of each example or, where it is packed, of each document."""
    first = torch.tensor(s.first())
    if not s.documents:
        return below(first + s.sinks)
    # How many tokens of its document come before a token.
    here = documents(torch.tensor(s.ids()))[:, 0]  # (B, T, T)
    earlier = torch.arange(s.tk) < torch.arange(s.tk)[:, None]  # (T, T)
    tokens = torch.arange(s.tk) >= first[:, None, None]  # (B, 1, T)
    ranks = (here & earlier & tokens).sum(-1)  # (B, T)
    return lambda b, _h, _q_idx, kv_idx: ranks[b, kv_idx] < s.sinks


def by_snippets(s: Setting) -> Tensor:
    """The mask (B, 1, Tq, Tk), of the functions that the site gives to its readers."""
    lengths = torch.tensor(s.each(s.lengths), dtype=torch.int64)
    first = torch.tensor(s.first())
    rules = []
    if s.window:
        near = negate(up_to(s.offset - s.window))
        if not s.causal:
            near = all_of(near, up_to(s.offset + s.window - 1))
        rules.append(any_of(near, sinks(s)))
    if s.causal:
        rules.append(up_to(s.offset))
    shape = s.n_examples, 1, s.tq, s.tk
    masks = [torch.ones(shape, dtype=torch.bool)]
    if rules:
        seen = all_of(*rules)
        if s.prefix:
            seen = any_of(seen, below(first + torch.tensor(s.each(s.prefix))))
        masks.append(dense(seen, shape))
    if s.padding == "right":
        masks.append(padding(lengths, s.tk))
    if s.padding == "left":
        masks.append(dense(negate(below(s.tk - lengths)), (s.n_examples, 1, 1, s.tk)))
    if s.documents:
        masks.append(documents(torch.tensor(s.ids())))
    return reduce(and_, masks)


def by_loop(s: Setting) -> Tensor:
    """The same, pair by pair, from the words on the page."""
    mask = torch.zeros(s.n_examples, 1, s.tq, s.tk, dtype=torch.bool)
    for b, i, j in itertools.product(range(s.n_examples), range(s.tq), range(s.tk)):
        own = i + (s.tk - s.tq if s.align == "end" else 0)  # the query's own key
        start, stop = 0, s.tk
        if s.padding != "none":
            n = s.each(s.lengths)[b]
            start, stop = (0, n) if s.padding == "right" else (s.tk - n, s.tk)
        if not start <= j < stop:
            continue
        if s.documents and s.ids()[b][i] != s.ids()[b][j]:
            continue
        row = s.ids()[b] if s.documents else [0] * s.tk
        sink = j - row.index(row[j], start) < s.sinks
        far = (s.causal and j > own) or (s.window and abs(j - own) >= s.window and not sink)
        leading = bool(s.prefix) and j - start < s.each(s.prefix)[b]
        mask[b, 0, i, j] = not far or leading
    return mask


EDGES = [
    Setting(causal=False),
    Setting(),
    Setting(tq=1, tk=1),
    Setting(tq=1, tk=24),
    Setting(tq=24, tk=1),
    Setting(tq=24, tk=24, window=24),
    Setting(tq=2, tk=6),
    Setting(tq=2, tk=6, align="start"),
    Setting(tq=6, tk=2),
    Setting(tq=6, tk=2, align="start"),
    Setting(tq=6, tk=2, causal=False, window=1),
    Setting(window=1),
    Setting(causal=False, window=1),
    Setting(padding="left", lengths=(6, 4)),
    Setting(padding="left", lengths=(0, 6)),
    Setting(padding="right", lengths=(0,), causal=False),
    Setting(padding="right", lengths=(6, 6), heads=1),
    Setting(prefix=(0,)),
    Setting(prefix=(3,)),
    Setting(prefix=(3, 1), padding="left", lengths=(4,)),
    Setting(prefix=(3,), causal=False),
    Setting(documents=((2, 3, 1),)),
    Setting(documents=((2, 4), (3, 3)), causal=False, heads=3),
    Setting(documents=((1,), (6,)), padding="right", lengths=(5, 4)),
    Setting(window=2, sinks=1),
    Setting(window=1, sinks=24),
    Setting(sinks=2),
    Setting(causal=False, sinks=2),
    Setting(causal=False, window=2, sinks=2),
    Setting(tq=2, window=2, sinks=1),
    Setting(tq=6, tk=2, window=1, sinks=1),
    Setting(tq=2, tk=6, align="start", window=1, sinks=3),
    Setting(window=2, sinks=1, prefix=(3,)),
    Setting(window=2, sinks=1, padding="right", lengths=(6, 4)),
    Setting(window=2, sinks=1, padding="left", lengths=(6, 3)),
    Setting(window=1, sinks=1, padding="left", lengths=(4,), prefix=(2,)),
    Setting(tq=9, tk=9, window=2, sinks=1, documents=((3, 4),)),
    Setting(tq=9, tk=9, window=1, sinks=2, documents=((3, 4), (9,)), causal=False),
    Setting(window=2, sinks=1, documents=((4, 2),), padding="left", lengths=(6, 3)),
    Setting(heads=4, kv=4),
    Setting(heads=4, kv=2),
    Setting(heads=6, kv=1, causal=False),
    Setting(heads=4, kv=2, tq=3, window=2, sinks=1),
    Setting(heads=3, kv=1, padding="left", lengths=(5, 4), documents=((2, 4), (3, 3))),
]


def sample(n: int, seed: int = 0) -> Iterator[Setting]:
    draw = random.Random(seed)
    for _ in range(n):
        tk = draw.randint(1, 24)
        by_document = draw.random() < 0.3
        tq = tk if by_document or draw.random() < 0.3 else draw.randint(1, 24)
        n_examples = draw.randint(1, 4)

        def some(least: int, most: int, n_examples: int = n_examples) -> tuple[int, ...]:
            return tuple(draw.randint(least, most) for _ in range(draw.choice((1, n_examples))))

        packed = []
        for _ in range(draw.choice((1, n_examples)) if by_document else 0):
            cuts = sorted(draw.sample(range(1, tk + 1), draw.randint(1, min(4, tk))))
            packed.append(tuple(b - a for a, b in itertools.pairwise([0, *cuts])))
        heads = draw.randint(1, 4)
        padded = draw.choice(("none", "right", "left"))
        yield Setting(
            tq,
            tk,
            heads,
            draw.choice((None, *(n for n in range(1, heads + 1) if heads % n == 0))),
            draw.random() < 0.7,
            draw.choice(("end", "start")),
            draw.choice((0, 0, draw.randint(1, 24))),
            draw.choice((0, 0, draw.randint(1, 6))),
            padded,
            some(0, tk) if padded != "none" else (),
            some(0, tk) if draw.random() < 0.3 else (),
            tuple(packed),
        )


SETTINGS = [*EDGES, *sample(100)]

# Types each setting and reads the grids, the counts, the warning and the code for each API.
READ = """
(settings) => {
  const place = document.querySelector('[data-widget="masks"]');
  const form = place.querySelector("form");
  const set = (name, value) => {
    const radios = [...form.querySelectorAll(`[name="mask-${name}"]`)];
    const chosen = radios.find((radio) => radio.value === value);
    const input = chosen ?? form.querySelector(`#mask-${name}`);
    if (["checkbox", "radio"].includes(input.type)) input.checked = value !== false;
    else input.value = value;
  };
  return settings.map((setting) => {
    for (const [name, value] of Object.entries(setting)) set(name, value);
    const code = {};
    for (const api of ["sdpa", "mha", "flex"]) {
      set("api", api);
      form.dispatchEvent(new Event("input"));
      code[api] = place.querySelector(".attn-code code").textContent;
    }
    const figures = [...place.querySelectorAll(".attn-grids figure")];
    const all = (one, what) => [...one.querySelectorAll(what)];
    const texts = (one, what) => all(one, what).map((text) => text.textContent);
    return {
      code,
      error: place.querySelector(".attn-error").textContent,
      warning: place.querySelector(".attn-warning").textContent,
      cells: figures.map((one) => all(one, "rect").map((cell) => cell.matches(".attn-on"))),
      texts: figures.map((one) => texts(one, "text")),
      captions: figures.map((one) => one.querySelector("figcaption").textContent),
      words: all(place, "details ul").map((one) => texts(one, "li")),
    };
  });
}
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(BUILDER)
        page.wait_for_selector('[data-widget="masks"] form')
        yield page


def test_the_grid_is_the_mask_and_every_call_passes_it(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = page.evaluate(READ, [setting.fields() for setting in SETTINGS])
    flags = 0
    for number, (setting, one) in enumerate(zip(SETTINGS, found, strict=True)):
        assert one["error"] == "", setting
        expected = by_loop(setting)
        assert torch.equal(by_snippets(setting), expected), setting
        check_grid(setting, one, expected)
        flags += "is_causal=True)" in one["code"]["sdpa"]
        check_built_in(setting, one["code"]["sdpa"], expected)
        check_layer(setting, one["code"]["mha"], expected)
        # FlexAttention traces each new function, which takes long: most run untraced.
        monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", number % 20)
        check_flex(setting, one["code"]["flex"], expected)
    assert flags > 3


def check_grid(s: Setting, one: dict[str, Any], expected: Tensor) -> None:
    assert len(one["cells"]) == s.n_examples
    empty = []
    for b, cells in enumerate(one["cells"]):
        shown = torch.tensor(cells).view(s.tq, s.tk)
        assert torch.equal(shown, expected[b, 0]), (s, b)
        counts = expected[b, 0].sum(-1).tolist()
        rows = one["texts"][b][s.tk :]
        assert rows == [str(x) for i, count in enumerate(counts) for x in (i, count)], s
        assert one["captions"][b] == (
            f"Example {b}: {sum(counts)} of {s.tq * s.tk} pairs may attend."
        )
        for i, (words, count) in enumerate(zip(one["words"][b], counts, strict=True)):
            start = f"{count} key{'s' * (count > 1)}, " if count else "no key"
            assert words.startswith(f"query {i}: {start}"), (s, words)
        empty += [b] if 0 in counts else []
    assert [b for b in range(s.n_examples) if f"example {b}, quer" in one["warning"]] == empty, s


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        exec(compile(code, "<builder>", "exec"), names)
    return names


def check_built_in(s: Setting, code: str, expected: Tensor) -> None:
    names = run(code)
    whole = s.n_examples, s.heads, s.tq, s.tk
    if "mask" in names:
        assert torch.equal(names["mask"].expand(whole), expected.expand(whole)), code
    elif "is_causal" in code:
        assert torch.equal(causal(s.tq, s.tk, offset=0).expand_as(expected), expected), code
    else:
        assert expected.all(), code
    check_output(s, names, expected, code)


def check_flex(s: Setting, code: str, expected: Tensor) -> None:
    names = run(code)
    whole = s.n_examples, s.heads, s.tq, s.tk
    if "mask_mod" in names:
        mask = create_mask(names["mask_mod"], *whole, device="cpu")
        assert torch.equal(mask, expected.expand(whole)), code
    else:
        assert expected.all(), code
    check_output(s, names, expected, code)


def check_output(s: Setting, names: dict[str, Any], expected: Tensor, code: str) -> None:
    q, k, v = names["q"], names["k"], names["v"]
    assert q.shape[:3] == (s.n_examples, s.heads, s.tq), code
    assert k.shape[:3] == v.shape[:3] == (s.n_examples, s.n_kv_heads, s.tk), code
    assert ("enable_gqa=True" in code) == (s.n_kv_heads < s.heads), code
    # Query head h reads the key and value head h // (H / Hkv).
    group = s.heads // s.n_kv_heads
    right, _ = attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), expected)
    assert torch.allclose(names["output"], right, rtol=0, atol=1e-5), code


def check_layer(s: Setting, code: str, expected: Tensor) -> None:
    if s.n_kv_heads < s.heads:
        assert code.startswith("# nn.MultiheadAttention has no grouped-query attention")
        assert all(line.startswith("# ") for line in code.splitlines()), code
        return
    names = run(code)
    layer, x, memory = names["layer"], names["x"], names["memory"]
    assert names["H"] == s.heads
    weights, biases = layer.in_proj_weight.chunk(3), layer.in_proj_bias.chunk(3)
    q, k, v = (
        F.linear(y, w, b).view(*y.shape[:2], s.heads, -1).transpose(1, 2)
        for y, w, b in zip((x, memory, memory), weights, biases, strict=True)
    )
    heads, _ = attention(q, k, v, expected)  # (B, H, Tq, d)
    right = layer.out_proj(heads.transpose(1, 2).flatten(2))
    # What the layer gives a query without keys is its own affair.
    alive = expected.any(-1)[:, 0]  # (B, Tq)
    assert torch.allclose(names["output"][alive], right[alive], rtol=0, atol=1e-5), code


REFUSED = {
    "tq": ("25", "Tq is 25: give a whole number from 1 to 24."),
    "tk": ("", "Tk is empty: give a whole number from 1 to 24."),
    "lengths": ("6, 7", "A length is 7: give a whole number from 0 to 6."),
    "kv": ("3", "The number of key/value heads is 3: give a whole number from 1 to 2."),
    "sinks": ("25", "The number of sinks is 25: give a whole number from 0 to 24."),
    "prefix": ("1, x", "A prefix is x: give a whole number from 0 to 6."),
    "documents": ("4, 3", "Documents of 4 + 3 = 7 tokens do not fit in 6: shorten them."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_at_its_field(page: Page, name: str) -> None:
    typed, message = REFUSED[name]
    place = page.locator('[data-widget="masks"]')
    field = page.locator(f"#mask-{name}")
    before = field.input_value()
    field.fill(typed)
    assert place.locator(".attn-error").text_content() == message
    assert field.get_attribute("aria-invalid") == "true"
    assert field.evaluate("each => getComputedStyle(each).borderTopWidth") == "2px"
    assert place.locator("[inert]").count() == 1
    page.wait_for_function("document.querySelector('[data-widget] [role=status]').textContent")
    assert place.get_by_role("status").text_content() == message
    field.fill(before)
    assert place.locator(".attn-error").text_content() == ""
    assert field.get_attribute("aria-invalid") is None


MISFITS = [
    (
        {"documents": "2, 3", "tq": "5"},
        "Documents need Tq = Tk, here 5 and 6: queries and keys are the same tokens.",
    ),
    (
        {"lengths": "1, 2, 3", "prefix": "1, 2"},
        "Here are 2 examples, elsewhere 3: give one for all, or one for each.",
    ),
    ({"lengths": "1, 1, 1, 1, 1, 1, 1"}, "7 examples are given: give 6 at most."),
    (
        {"heads": "6", "kv": "4"},
        "4 key/value heads cannot serve 6 heads equally: give 1, 2, 3 or 6.",
    ),
    ({"lengths": " "}, "No length is given: write one for each example, such as 6, 4."),
]


@pytest.mark.parametrize(("typed", "message"), MISFITS)
def test_settings_that_do_not_fit_each_other_are_refused(
    page: Page, typed: dict[str, str], message: str
) -> None:
    for name, value in typed.items():
        page.locator(f"#mask-{name}").fill(value)
    assert page.locator(".attn-error").text_content() == message


def test_the_address_keeps_the_mask(page: Page) -> None:
    page.locator("#mask-tq").fill("2")
    page.get_by_label("left", exact=True).check()
    page.get_by_label("FlexAttention").check()
    link = page.get_by_role("link", name="Link to this mask").get_attribute("href")
    assert link == f"{BUILDER}?tq=2&padding=left&api=flex"
    page.wait_for_url(link)
    code = page.locator(".attn-code code").text_content()
    page.reload()
    page.wait_for_selector('[data-widget="masks"] form')
    assert page.locator(".attn-code code").text_content() == code
    assert page.locator("#mask-tq").input_value() == "2"


def follow(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector('[data-widget="masks"] form')


def assert_lengths_fit(page: Page) -> None:
    for side in ("right", "left"):
        page.get_by_label(side, exact=True).check()
        assert page.locator(".attn-error").text_content() == "", (page.url, side)


LINKED = [
    {"lengths": "6 4", "prefix": " 3  1 "},
    {"lengths": "3,,2,", "documents": " 2 3 ; 3 3 "},
    {"kv": " 1 ", "window": "2", "sinks": "1"},
    {"padding": "none", "lengths": "9, 9"},
    {"padding": "none", "tk": "4"},
    {"padding": "none", "tk": "1", "tq": "1", "causal": False},
    {"lengths": "8, 7", "tk": "8"},
]


@pytest.mark.parametrize("typed", LINKED)
def test_a_link_gives_the_same_mask_and_lengths_that_fit(page: Page, typed: dict[str, Any]) -> None:
    [one] = page.evaluate(READ, [typed])
    assert one["error"] == ""
    link = page.get_by_role("link", name="Link to this mask").get_attribute("href")
    follow(page, str(link))
    [again] = page.evaluate(READ, [{}])
    assert again == one
    assert_lengths_fit(page)


# The field of an address that is refused, what is said there, and what a reader does then.
BAD = {
    "lengths=9,9": ("#mask-lengths", "A length is 9: give a whole number from 0 to 6.", "6"),
    "tk=4&lengths=6,4": ("#mask-lengths", "A length is 6: give a whole number from 0 to 4.", "4"),
    "tq=many": ("#mask-tq", "Tq is empty: give a whole number from 1 to 24.", "6"),
    "sinks=1.5": ("#mask-sinks", "The number of sinks is 1.5: give a whole number", "1"),
    "heads=6&kv=4": ("#mask-kv", "4 key/value heads cannot serve 6 heads equally", "3"),
    "causal=maybe": ("#mask-causal", "Causal is neither on nor off: check or clear it.", None),
    "align=middle": ("fieldset:has([name=mask-align])", "No alignment is chosen", None),
    "padding=up": ("fieldset:has([name=mask-padding])", "No padding is chosen", None),
    "api=flash": ("fieldset:has([name=mask-api])", "No call is chosen: choose one.", None),
}


@pytest.mark.parametrize("query", BAD)
def test_an_address_is_refused_at_its_field(browser: Browser, query: str) -> None:
    selector, message, repair = BAD[query]
    with opened(browser, f"practice/mask-builder.html?prefix=2&{query}") as watched:
        page = watched.page
        place = page.locator('[data-widget="masks"]')
        assert str(place.locator(".attn-error").text_content()).startswith(message)
        refused = place.locator("[aria-invalid]")
        assert refused.count() == 1
        assert refused.and_(page.locator(selector)).count() == 1
        line = "(each) => [each.borderTopWidth, each.outlineStyle == 'solid' && each.outlineWidth]"
        assert "2px" in refused.evaluate(f"one => ({line})(getComputedStyle(one))")
        # What stood there before is behind it, out of reach: of an address, the start.
        assert place.locator("[inert] figure").count() == 2
        assert page.locator("#mask-prefix").input_value() == "2"
        if repair is None:
            refused.and_(page.locator("input")).or_(refused.locator("input").first).click()
        else:
            page.locator(selector).fill(repair)
        assert place.locator(".attn-error").text_content() == ""
        assert place.locator("[inert], [aria-invalid]").count() == 0
        assert watched.faults == []


PYGMENTS = """
(html) => {
  const shown = document.querySelector(".attn-code code");
  const other = document.createElement("div");
  other.className = "highlight";
  other.innerHTML = `<pre><code>${html}</code></pre>`;
  document.querySelector("article").append(other);
  const colours = (code) => {
    const found = [];
    const walk = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const { color } = getComputedStyle(walk.currentNode.parentElement);
      for (const letter of walk.currentNode.data) if (letter.trim()) found.push([letter, color]);
    }
    return found;
  };
  const pair = [colours(shown), colours(other.querySelector("code"))];
  other.remove();
  return pair;
}
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_code_has_the_colours_of_the_other_blocks(browser: Browser, theme: str) -> None:
    settings = [
        Setting(),
        Setting(heads=4, kv=2, window=2, sinks=1, padding="left", lengths=(6, 3), prefix=(1, 2)),
        Setting(causal=False),
        Setting(causal=False, window=2, sinks=1, documents=((2, 3), (3, 3))),
    ]
    with opened(browser, "practice/mask-builder.html", theme=theme) as watched:
        for setting, (api, label) in itertools.product(settings, APIS.items()):
            [one] = watched.page.evaluate(READ, [setting.fields()])
            watched.page.get_by_label(label).check()
            html = highlight(
                one["code"][api], PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)
            )
            shown, expected = watched.page.evaluate(PYGMENTS, html)
            assert shown == expected, one["code"][api]
            assert len({colour for _, colour in shown}) > 3 or setting.n_kv_heads < setting.heads


def test_links_of_the_table_set_the_mask_that_their_row_states(page: Page) -> None:
    rows = page.locator("table:has(a[href*='?'])").locator("tbody tr")
    assert rows.count() == len(MASKS)
    for row, (shape, stated, *_) in zip(range(rows.count()), MASKS.values(), strict=True):
        assert rows.nth(row).locator("code").first.text_content() == stated
        rows.nth(row).get_by_role("link").click()
        page.wait_for_function("location.search")
        page.wait_for_selector('[data-widget="masks"] form')
        names = {
            "torch": torch,
            "Tq": shape[1],
            "Tk": shape[2],
            "i": torch.arange(shape[1])[:, None],
            "j": torch.arange(shape[2]),
            "lengths": torch.tensor([6, 4]),
            "prefix": torch.tensor([3, 1]),
            "document": torch.tensor([0, 0, 1, 1, 1, 2]),
        }
        expected = eval(stated, names).expand(shape[0], 1, *shape[1:]).flatten()
        # Instant navigation changes the address first, and the page after that.
        page.wait_for_function(f"wanted => `${{{CELLS}}}` === `${{wanted}}`", arg=expected.tolist())
        assert_lengths_fit(page)
        page.goto(BUILDER)


def test_sinks_show_no_future_and_a_prefix_does(page: Page) -> None:
    i, j = torch.arange(6)[:, None], torch.arange(6)
    stated = {
        "(j <= i) & ((j > i - W) | (j < S))": "S sinks",
        "((j <= i) & (j > i - W)) | (j < S)": "prefix",
    }
    future = []
    for formula, link in stated.items():
        line = page.locator("li").filter(has=page.locator("code", has_text=formula))
        follow(page, str(line.get_by_role("link", name=link, exact=True).get_attribute("href")))
        shown = torch.tensor(page.evaluate(CELLS)).view(6, 6)
        assert torch.equal(shown, eval(formula, {"i": i, "j": j, "W": 2, "S": 2})), formula
        future.append(int((shown & (j > i)).sum()))
        follow(page, BUILDER)
    assert future == [0, 1]


def test_a_query_without_keys_leads_to_its_page(page: Page) -> None:
    assert page.locator(".attn-warning").text_content() == ""
    page.get_by_label("left", exact=True).check()
    warning = page.locator(".attn-warning")
    assert (warning.text_content() or "").startswith("Without a key: example 1, queries 0 to 1.")
    assert str(warning.get_by_role("link").get_attribute("href")).endswith(EMPTY)


def test_copy_gives_the_code(browser: Browser) -> None:
    with browser.new_context(permissions=["clipboard-read", "clipboard-write"]) as context:
        page = context.new_page()
        page.goto(BUILDER)
        page.locator(".attn-code button").click()
        page.wait_for_function("document.querySelector('.attn-code button').textContent != 'Copy'")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == page.locator(".attn-code code").text_content()
        assert copied.endswith("\n")


def test_without_javascript_a_picture_stands_there(browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(BUILDER)
        assert page.locator('[data-widget="masks"] form').count() == 0
        assert page.locator('[data-widget="masks"] img:visible').count() == 1
