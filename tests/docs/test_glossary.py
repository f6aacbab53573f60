"""The glossary is in order, and each term leads to a page that uses it."""

from __future__ import annotations

import re

from scripts.project import Project

SITE = Project()
PATH = SITE.markdown("reference/glossary")
ENTRIES = re.findall(r"^- \*\*(.+?)\*\*: ((?:.|\n(?!- ))+)", PATH.read_text("utf-8"), re.MULTILINE)


def test_terms_are_in_alphabetical_order() -> None:
    terms = [term.casefold().lstrip("`*") for term, _ in ENTRIES]
    assert len(terms) > 40
    assert terms == sorted(terms)


def test_every_term_leads_to_a_page_and_has_an_address() -> None:
    for term, text in ENTRIES:
        assert re.search(r"\]\(\.\./(core|practice)/[\w-]+\.md(#[\w-]+)?\)|\]\(#[\w-]+\)", text), (
            term
        )
        assert re.search(r"\{ #[\w-]+ \}", text), term


def test_the_words_of_positions_and_caches_are_there() -> None:
    terms = {term for term, _ in ENTRIES}
    typed = "RoPE, rotary, rotate_half, inv_freq, KV cache, GQA, MQA, ALiBi, sliding window"
    assert {*typed.split(", "), "attention sink", "FlashAttention", "LSE"} <= terms
