"""The softmax explorer, against PyTorch on the numbers that its page prints."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

from scripts.page import read_page
from scripts.project import Project
from snippets.attention import attention
from snippets.diagnostics import effective_keys, entropy, peak
from tests.browser.conftest import ORIGIN

SCALING = f"{ORIGIN}/core/scaling.html"

# Sets every width, scale and draw in turn, and reads what is shown.
READ = """
() => {
  const form = document.querySelector('[data-widget="softmax"] form');
  const [width, factor] = form.querySelectorAll('input[type="range"]');
  const radios = [...form.querySelectorAll('input[type="radio"]')];
  const found = [];
  const tell = (input) => input.dispatchEvent(new Event("input", { bubbles: true }));
  const read = (draw, kind) => found.push({
    draw, kind, d: Number(form.querySelector(".attn-value").textContent.replace("d = ", "")),
    power: Number(factor.value), scale: form.querySelectorAll(".attn-value")[1].textContent,
    weights: [...form.querySelectorAll(".attn-bars i")].map((bar) => Number(bar.dataset.weight)),
    heights: [...form.querySelectorAll(".attn-bars i")].map((bar) => bar.style.blockSize),
    shown: [...form.querySelectorAll("dd")].map((value) => value.textContent),
    label: form.querySelector(".attn-bars").getAttribute("aria-label"),
  });
  for (let draw = 0; draw < 3; draw += 1) {
    form.querySelector("select").value = draw;
    for (let m = 0; m <= 10; m += 1) {
      width.value = m;
      for (const radio of radios.slice(0, 3)) {
        radio.checked = true;
        tell(radio);
        read(draw, radio.value);
      }
      for (let power = -10; power <= 2; power += 1.25) {
        factor.value = power;
        tell(factor);
        read(draw, radios.find((radio) => radio.checked).value);
      }
    }
  }
  return found;
}
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_context() as context:
        yield context.new_page()


def printed_scores() -> dict[tuple[int, int], list[float]]:
    """The scores on the page, by draw and width."""
    taken = read_page(Project(), "core/scaling")
    [table] = [d for d in taken.directives if (d.kind, d.name) == ("table", "draws")]
    _, _, *rows = taken.text[table.start : table.end].strip().split("\n")
    scores = {}
    for row in rows:
        draw, d, printed = row.replace("−", "-").strip("|").split("|")
        scores[int(draw), int(d)] = [float(score) for score in printed.split(",")]
    return scores


def gradient(weights: torch.Tensor) -> float:
    """Of the largest weight by the logits, with the digits that 1 - p loses near 1."""
    first = weights.argmax()
    others = torch.cat([weights[:first], weights[first + 1 :]])
    return float(weights[first] * torch.cat([others.sum()[None], others]).norm())


def test_weights_and_text_are_those_of_python(page: Page) -> None:
    page.goto(SCALING)
    page.wait_for_selector('[data-widget="softmax"] form')
    found: list[dict[str, Any]] = page.evaluate(READ)
    assert len(found) == 3 * 11 * (3 + 10)
    scores = printed_scores()
    powers = {"none": 0.0, "root": -0.5, "width": -1.0}
    kinds = set()
    for one in found:
        d, kind = one["d"], one["kind"]
        kinds.add(kind)
        scale = d ** powers[kind] if kind in powers else 2 ** one["power"]
        column = torch.tensor(scores[one["draw"], d], dtype=torch.float64)[:, None]  # (16, 1)
        query = torch.ones(1, 1, dtype=torch.float64)
        _, weights = attention(query, column, torch.zeros_like(column), scale=scale)
        [expected] = weights
        shown = torch.tensor(one["weights"], dtype=torch.float64)
        assert torch.allclose(shown, expected, rtol=1e-12, atol=1e-300), one
        logits = (column[:, 0] * scale).requires_grad_()
        torch.autograd.backward(logits.softmax(-1).max())
        assert logits.grad is not None
        assert math.isclose(logits.grad.norm().item(), gradient(expected), abs_tol=1e-12)
        assert one["shown"] == [
            f"{peak(expected).item():.4f}",
            f"{entropy(expected).item():.3f}",
            f"{effective_keys(expected).item():.1f}",
            f"{gradient(expected):.3e}",
        ], one
        assert one["scale"] == f"{scale:.7g}"
        most = expected.argmax().item()
        assert f"Key {most} has most, {peak(expected).item():.4f}." in one["label"]
        heights = [float(height.removesuffix("%")) / 100 for height in one["heights"]]
        assert heights == pytest.approx(expected.tolist(), abs=1e-5)
    assert kinds == {"none", "root", "width", "own"}


def test_width_and_scale_move_by_keyboard_and_are_told_once(page: Page) -> None:
    page.goto(SCALING)
    form = page.locator('[data-widget="softmax"] form')
    width, status = form.get_by_label("width d"), form.get_by_role("status")
    assert status.text_content() == ""
    page.evaluate("""() => {
        window.told = 0;
        new MutationObserver(() => { window.told += 1; }).observe(
            document.querySelector('[data-widget="softmax"] [role=status]'), { childList: true });
    }""")
    width.focus()
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert width.get_attribute("aria-valuetext") == "d = 1024"
    page.wait_for_function("window.told")
    assert page.evaluate("window.told") == 1
    assert re.match(r"Width 1024, scale 1: largest weight 1\.0000", status.text_content() or "")
    form.get_by_label("1/√d").focus()
    page.keyboard.press("Space")
    assert form.locator("dd").first.text_content() == "0.2318"
    form.get_by_label("its value").focus()
    page.keyboard.press("ArrowRight")
    assert form.get_by_label("own").is_checked()


def test_without_javascript_a_picture_stands_there(browser: Browser) -> None:
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(SCALING)
        assert page.locator('[data-widget="softmax"] form').count() == 0
        assert page.locator('[data-widget="softmax"] img:visible').count() == 1
