"""What is done to the generator's HTML, in this order."""

from __future__ import annotations

from scripts.finish.about import tell_about
from scripts.finish.accessible import make_accessible
from scripts.finish.blocks import name_blocks
from scripts.finish.built import Step
from scripts.finish.code import offer_code
from scripts.finish.copies import offer_copies
from scripts.finish.disk import run_from_disk
from scripts.finish.figures import place_figures
from scripts.finish.findable import make_findable
from scripts.finish.fonts import set_fonts
from scripts.finish.keep import keep_together
from scripts.finish.llms import list_everything
from scripts.finish.minus import keep_minus
from scripts.finish.missing import help_the_lost
from scripts.finish.numbers import explain_numbers
from scripts.finish.plain_code import unmark_code
from scripts.finish.repository import mend_repository
from scripts.finish.scheme import leave_scheme
from scripts.finish.search import weigh_tasks
from scripts.finish.sheets import join_sheets
from scripts.finish.styles import thin_styles
from scripts.finish.take import offer_pages
from scripts.finish.titles import check_titles
from scripts.finish.verified import tell_verified

# The first two look at the pages as their authors wrote them; fonts and styles come last, when
# every character and class is there.
STEPS: tuple[Step, ...] = (
    check_titles,
    tell_about,
    place_figures,
    name_blocks,
    offer_code,
    unmark_code,
    keep_together,
    explain_numbers,
    offer_pages,
    list_everything,
    tell_verified,
    help_the_lost,
    make_findable,
    weigh_tasks,
    keep_minus,
    offer_copies,
    mend_repository,
    run_from_disk,
    make_accessible,
    set_fonts,
    thin_styles,
    join_sheets,
    leave_scheme,
)
