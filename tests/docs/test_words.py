"""Pages use the words that people use, each where it is explained."""

from __future__ import annotations

import re

import pytest

from scripts.project import Project

USED = {
    "SDPA": [
        "core/builtin",
        "core/conventions",
        "core/lookup",
        "core/masks",
        "practice/bugs-masks",
    ],
    "RoPE": ["practice/bugs-positions"],
    "bf16": ["core/softmax"],
    "LSE": ["core/softmax", "practice/bugs-numbers"],
    "position_ids": ["practice/bugs-positions"],
    "KV cache": ["core/cost", "practice/bugs-positions"],
    "fully masked row": ["core/empty-rows"],
    "-10000": ["core/softmax", "practice/bugs-numbers"],
    "beam search": ["core/cross-attention"],
    "hook": ["core/builtin"],
}
NO_PROSE = re.compile(r"^(`{3,}|~{3,}).*?^\1$|^#+ .*?$|^\|.*?$|<!--.*?-->", re.M | re.S)


@pytest.mark.parametrize("word", USED)
def test_a_word_is_used_where_it_is_explained(word: str) -> None:
    for page in USED[word]:
        prose = NO_PROSE.sub("", Project().markdown(page).read_text(encoding="utf-8"))
        assert word in prose, f"{page} explains {word} and does not use the word outside headings"
