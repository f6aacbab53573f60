"""What the contract finds in the corpus, against the record that its page prints.

Where the contract or the corpus has changed on purpose, write the record anew and build the page::

    python -m tests.snippets.contract.test_record && python scripts/build.py
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from snippets.contract import (
    Attention,
    Cache,
    MultiHead,
    Positions,
    SubjectError,
    run_check,
    run_checks,
)
from snippets.pages.practice import contract as page
from tests.snippets.contract import (
    right_attention,
    right_cache,
    right_multi_head,
    right_positions,
    subjects,
    test_cache,
    test_positions,
    wrong_attention,
    wrong_cache,
    wrong_multi_head,
    wrong_positions,
)

Make = Callable[[Any], Any]


def bare_cache(entry: Any) -> Cache:
    """With nothing but the two functions, the kind of input and what starts a sequence."""
    full = test_cache.subject(entry)
    return Cache(full.step, full.full, vocabulary=full.vocabulary, reset=full.reset)


KINDS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], Make, Make]] = {
    "attention": (
        wrong_attention.ALL,
        right_attention.ALL,
        subjects.attention,
        lambda entry: Attention(entry.make()),
    ),
    "multi_head": (
        wrong_multi_head.ALL,
        right_multi_head.ALL,
        subjects.multi_head,
        lambda entry: MultiHead(entry.make()),
    ),
    "positions": (
        wrong_positions.ALL,
        right_positions.ALL,
        test_positions.subject,
        lambda entry: Positions(entry.make()),
    ),
    "cache": (wrong_cache.ALL, right_cache.ALL, test_cache.subject, bare_cache),
}


def verdict(make: Make, entry: Any) -> str:
    """What the check says that is meant for the mistake."""
    try:
        return run_check(make(entry).prepared(), entry.mistake).verdict
    except (SubjectError, ValueError):
        return "not called"


def count(kind: str) -> dict[str, Any]:
    """How much is found, and what is said of right code."""
    wrong, right, given, bare = KINDS[kind]
    with_settings = Counter(verdict(given, entry) for entry in wrong.values())
    without = Counter(verdict(bare, entry) for entry in wrong.values())
    reports = [run_checks(given(entry)) for entry in right.values()]
    hazards = Counter(f.check for r in reports for f in r.of("hazard"))
    return {
        "wrong": {
            "all": len(wrong),
            "found": with_settings["fail"],
            "hazard": with_settings["hazard"],
            "found without settings": without["fail"],
        },
        "right": {
            "all": len(right),
            "failed": sum(bool(r.failures) for r in reports),
            "hazards": dict(sorted(hazards.items())),
        },
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_is_what_the_contract_finds(kind: str) -> None:
    counted = count(kind)
    assert page.record()[kind] == counted, (
        f"the record has other counts for {kind} than {counted}: if they are meant, write it anew "
        "with python -m tests.snippets.contract.test_record and build the page"
    )


def test_no_right_code_fails() -> None:
    assert {kind: page.record()[kind]["right"]["failed"] for kind in KINDS} == dict.fromkeys(
        KINDS, 0
    )


def write(path: Path = page.RECORD) -> None:
    """Write the record."""
    counted = {kind: count(kind) for kind in KINDS}
    path.write_text(json.dumps(counted, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write()
