"""The verdicts on other people's claims, against what the pages measure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.fill import is_stated
from scripts.page import read_page
from scripts.project import Project
from scripts.prose import Bound
from scripts.rounding import NumberError, read

SITE = Project()
PAGE = read_page(SITE, "reference/sources")
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
    line: int
    text: str
    printed: str
    verdict: str
    cited: tuple[str, ...]
    measured: tuple[Bound, ...]
    target: str


def read_claims() -> Iterator[Claim]:
    heading = "| claim | of | the source prints | measured here | verdict | page |"
    inside = False
    for number, line in enumerate(PAGE.text.split("\n"), 1):
        inside = line == heading or (inside and line.startswith("|"))
        if not inside or line in (heading, "|---|---|---|---|---|---|"):
            continue
        text, _, printed, _, verdict, where = (
            cell.strip() for cell in line.strip("|").split(" | ")
        )
        bound = [b for b in PAGE.bound if b.line == number]
        target = re.search(r"\]\(\.\./([\w/-]+)\.md", where)
        assert target, f"line {number}: the claim links to no page"
        yield Claim(
            number,
            text,
            re.sub(r"<[^>]+>", "", printed),
            verdict,
            tuple(b.printed for b in bound if b.key.startswith("cited:")),
            tuple(b for b in bound if not is_stated(b.key)),
            target[1],
        )


CLAIMS = list(read_claims())


def test_all_claims_are_listed_and_counted() -> None:
    [counted] = [b.printed for b in PAGE.bound if b.key.startswith("derived: the rows")]
    assert len(CLAIMS) == int(counted) == 133
    assert len({claim.text for claim in CLAIMS}) > 120  # some are made twice


def test_every_verdict_is_explained_and_counted() -> None:
    head, _, _ = PAGE.text.partition("## The essays")
    explained = re.findall(r"^\| ([a-z ]+) \| (\d+) \| ", head, re.MULTILINE)
    counted = [
        (name, str(sum(claim.verdict.startswith(name) for claim in CLAIMS))) for name in VERDICTS
    ]
    assert explained == counted
    strange = [claim for claim in CLAIMS if not claim.verdict.startswith(VERDICTS)]
    assert strange == []


def test_what_is_checkable_is_measured_on_the_page_that_it_links_to() -> None:
    unmeasured = [
        claim
        for claim in CLAIMS
        if claim.target not in {bound.key.partition(":")[0] for bound in claim.measured}
        and not claim.verdict.startswith("not checkable")
    ]
    assert [claim.text for claim in unmeasured] == []


def test_reproduced_is_what_rounds_to_the_number_that_the_source_prints() -> None:
    compared = 0
    for claim in CLAIMS:
        found = [bound.printed for bound in claim.measured]
        if claim.verdict.startswith("reproduced") and claim.cited:
            assert all(rounds_to(*pair) for pair in zip(claim.cited, found, strict=True)), claim
            compared += len(found)
        elif claim.verdict.startswith("reproduced"):
            assert any(text in claim.printed for text in found), claim
            compared += 1
        elif claim.cited and not claim.verdict.startswith("within"):
            assert not rounds_to(claim.cited[0], found[0]), claim
            compared += 1
    assert compared > 50


def rounds_to(cited: str, measured: str) -> bool:
    """Whether the measured number, which the check binds to its run, rounds to the cited one."""
    if measured == "bitwise equal":  # the comparison was made where the value was measured
        return True
    try:
        source, here = read(cited), read(measured)
    except NumberError:
        return False
    if here.unit >= source.unit:
        return here.value == source.value
    return abs(here.value - source.value) * 2 <= source.unit + here.unit
