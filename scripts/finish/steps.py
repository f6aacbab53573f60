"""What is done to the generator's HTML, in this order."""

from __future__ import annotations

from scripts.finish.accessible import make_accessible
from scripts.finish.blocks import name_blocks
from scripts.finish.built import Step
from scripts.finish.figures import place_figures
from scripts.finish.numbers import explain_numbers
from scripts.finish.verified import tell_verified

STEPS: tuple[Step, ...] = (
    place_figures,
    name_blocks,
    explain_numbers,
    tell_verified,
    make_accessible,
)
