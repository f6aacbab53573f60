"""The claims of others: all are listed, printed as the sources print them, and judged by rule."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.fill import is_stated
from scripts.page import read_page
from scripts.project import Project
from scripts.prose import Bound
from scripts.rounding import NumberError, read

PAGE = read_page(Project(), "reference/sources")
# Each claim of the three essays, with what it prints, noted down apart from the page.
RECORD = {
    claim["id"]: claim
    for claim in json.loads(Path(__file__).with_name("claims.json").read_text("utf-8"))
}
ESSAYS = {"A": "lookup-essay", "B": "sqrt-note", "C": "explainer"}
VERDICTS = (
    "reproduced",
    "holds",
    "within sampling error",
    "half right",
    "wrong",
    "not checkable",
)


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    essay: str
    printed: str
    verdict: str
    cited: tuple[Bound, ...]
    measured: tuple[Bound, ...]
    target: str


def read_claims() -> Iterator[Claim]:
    heading = "| claim | of | the source prints | measured here | verdict | page |"
    names = {f"claim-{name.lower().replace('.', '-')}": name for name in RECORD}
    inside = False
    for number, line in enumerate(PAGE.text.split("\n"), 1):
        inside = line == heading or (inside and line.startswith("|"))
        if not inside or line in (heading, "|---|---|---|---|---|---|"):
            continue
        text, essay, printed, _, verdict, where = (
            cell.strip() for cell in line.strip("|").split(" | ")
        )
        match = re.fullmatch(r'<span id="(claim-[\w-]+)">(.+)</span>', text)
        target = re.fullmatch(r"\[[\w -]+\]\(\.\./([\w/-]+)\.md#[\w-]+\)", where)
        assert match, f"line {number}: the claim has no address"
        assert target, f"line {number}: the claim links to no section of a page"
        bound = [b for b in PAGE.bound if b.line == number]
        yield Claim(
            names[match[1]],
            match[2],
            essay,
            re.sub(r"<[^>]+>", "", printed),
            verdict,
            tuple(b for b in bound if b.key.startswith("cited:")),
            tuple(b for b in bound if not is_stated(b.key)),
            target[1],
        )


CLAIMS = list(read_claims())
each = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)


def test_all_claims_are_listed_once_and_counted() -> None:
    [counted] = [b.printed for b in PAGE.bound if b.key.startswith("derived: the rows")]
    assert len(CLAIMS) == int(counted) == 133
    assert sorted(claim.id for claim in CLAIMS) == sorted(RECORD)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


def test_verdicts_are_explained_and_counted() -> None:
    head, _, _ = PAGE.text.partition("\n## ")
    explained = re.findall(r"^\| ([a-z ]+) \| (\d+) \| ", head, re.MULTILINE)
    assert explained == [
        (name, str(sum(class_of(claim) == name for claim in CLAIMS))) for name in VERDICTS
    ]


def class_of(claim: Claim) -> str:
    name, colon, reason = claim.verdict.partition(": ")
    assert name in VERDICTS, claim.verdict
    assert reason or not colon, claim.verdict
    assert reason or name in ("reproduced", "holds", "within sampling error"), "why?"
    return name


@each
def test_a_claim_is_of_its_essay_and_prints_what_that_prints(claim: Claim) -> None:
    record = RECORD[claim.id]
    letter = record["essay"]
    assert claim.essay == f"[{letter}](#{ESSAYS[letter]})"
    said = f"{record['claim']} {record['published']}"
    for cited in claim.cited:
        assert cited.key == f"cited: {ESSAYS[letter]}"
        assert re.search(rf"(?<![\d.]){re.escape(cited.printed)}(?!\d)", said), said


@each
def test_a_claim_is_measured_on_the_page_that_it_links_to(claim: Claim) -> None:
    pages = {bound.key.partition(":")[0] for bound in claim.measured}
    assert claim.target in pages or class_of(claim) == "not checkable"


@each
def test_reproduced_is_what_rounds_to_the_number_that_the_source_prints(claim: Claim) -> None:
    found = [bound.printed for bound in claim.measured]
    cited = [bound.printed for bound in claim.cited]
    if class_of(claim) == "reproduced" and cited:
        assert all(rounds_to(*pair) for pair in zip(cited, found, strict=True))
    elif class_of(claim) == "reproduced":
        texts = ["".join(found[:n]) for n in range(1, len(found) + 1)]
        assert bare(claim.printed) in [bare(text) for text in texts]
    elif cited and class_of(claim) == "half right":
        assert not rounds_to(cited[0], found[0])


def bare(text: str) -> str:
    return re.sub(r"[^\w]+", "", text)


def rounds_to(cited: str, measured: str) -> bool:
    """Whether the measured number, which the check binds to its run, rounds to the cited one."""
    try:
        source, here = read(cited), read(measured)
    except NumberError:
        return False
    if here.unit >= source.unit:
        return here.value == source.value
    return abs(here.value - source.value) * 2 < source.unit
