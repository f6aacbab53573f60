"""How figures look: one set of settings a theme, colours apart in hue and in lightness."""

from __future__ import annotations

from typing import Any

from cycler import cycler


def _theme(ink: str, faint: str, cycle: list[str], colour_map: str) -> dict[Any, Any]:
    return {
        "figure.figsize": (5.2, 3.0),
        "figure.constrained_layout.use": True,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "axes.facecolor": "none",
        "axes.edgecolor": faint,
        "axes.labelcolor": ink,
        "axes.prop_cycle": cycler(color=cycle),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": "medium",
        "axes.titlelocation": "left",
        "font.size": 11,
        "grid.color": faint,
        "grid.alpha": 0.4,
        "image.cmap": colour_map,
        "lines.linewidth": 2,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "legend.frameon": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "attention",
    }


# Okabe and Ito's colours, the dark theme's lifted to stand out from a dark page.
THEMES: dict[str, dict[Any, Any]] = {
    "light": _theme("#24292f", "#8c959f", ["#0072b2", "#b34700", "#007a5a", "#8a4a7a"], "cividis"),
    "dark": _theme("#e6e9ef", "#7d8590", ["#56b4e9", "#f0a35e", "#35c9a0", "#dd9bc7"], "cividis"),
}
