"""What is done to the generator's HTML, in this order."""

from __future__ import annotations

from scripts.finish.accessible import make_accessible
from scripts.finish.built import Step
from scripts.finish.figures import place_figures

STEPS: tuple[Step, ...] = (
    place_figures,
    make_accessible,
)
