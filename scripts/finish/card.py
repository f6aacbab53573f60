"""The picture that stands beside a link to a page: its title, and a causal mask as the mark."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

SIZE = 1200, 630
_MARGIN = 80
_GROUND, _INK, _QUIET, _MARK = "#142c3e", "#ffffff", "#a9c3d6", "#f0a35e"


def draw_card(title: str, section: str, site: str) -> bytes:
    """A PNG, the same bytes for the same words."""
    image = Image.new("RGB", SIZE, _GROUND)
    draw = ImageDraw.Draw(image)
    _mark(draw)
    width = SIZE[0] - 2 * _MARGIN
    for size in (76, 66, 56, 46):
        font = _font("DejaVuSans-Bold", size)
        lines = _lines(title, font, width)
        if len(lines) <= 3:
            break
    small = _font("DejaVuSans", 34)
    top = 330 - len(lines) * size * 0.65
    if section:
        draw.text((_MARGIN, _MARGIN), section, _QUIET, small)
    for number, line in enumerate(lines):
        draw.text((_MARGIN, top + number * size * 1.3), line, _INK, font)
    draw.text((_MARGIN, SIZE[1] - _MARGIN - 34), site, _QUIET, small)
    output = io.BytesIO()
    image.quantize(32).save(output, "PNG", optimize=True)
    return output.getvalue()


def _mark(draw: ImageDraw.ImageDraw) -> None:
    cells, step = 6, 26
    left, top = SIZE[0] - _MARGIN - cells * step, SIZE[1] - _MARGIN - cells * step
    for row in range(cells):
        for column in range(cells):
            at = left + column * step, top + row * step
            colour = _MARK if column <= row else "#2c4a61"
            draw.rectangle((*at, at[0] + step - 5, at[1] + step - 5), colour)


def _lines(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    path = Path(get_data_path(), "fonts", "ttf", f"{name}.ttf")
    # The basic layout is the same wherever Pillow is installed from.
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)
