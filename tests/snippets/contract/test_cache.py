from typing import Any

import pytest
import torch
from torch import Tensor

from snippets.contract import Cache, Report, check_cache, run_checks
from tests.snippets.contract import right_cache, wrong_cache
from tests.snippets.contract.entries import Entry

SEEDS = 2
RIGHT, WRONG = right_cache.ALL, wrong_cache.ALL


def subject(entry: Entry, seed: int = 0, *, specified: bool = True) -> Cache:
    """What an entry of the corpus says about itself, as settings."""
    pair, given = entry.make(), entry.settings
    said: dict[str, Any] = {
        "seed": seed,
        "reset": pair.reset,
        "vocabulary": given["vocabulary"],
        "max_length": given["max_length"],
    }
    if not given["vocabulary"]:
        said["d_model"] = given["d_model"]
    if specified:
        said |= {"window": given["window"], "sinks": given["sinks"]}
    return Cache(pair.step, pair.full, **said)


def report_on(entry: Entry, **how: Any) -> Report:
    return run_checks(subject(entry, **how))


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_passes(name: str) -> None:
    report = report_on(RIGHT[name], specified=False)
    assert not report.failures, report
    for seed in range(SEEDS):
        report = report_on(RIGHT[name], seed=seed)
        assert not report.failures, report


@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_found_by_the_check_meant_for_it(name: str) -> None:
    entry = WRONG[name]
    report = report_on(entry)
    assert entry.mistake in report.failures, report
    if not entry.needs:
        bare = report_on(entry, specified=False)
        assert entry.mistake in bare.failures, bare


STATE = tuple[Tensor, Tensor] | None


def attended(x: Tensor, state: STATE, hidden: Tensor | None = None) -> tuple[Tensor, STATE]:
    """One head whose queries, keys and values are the inputs, without positions."""
    k, v = (x, x) if state is None else (torch.cat((old, x), 1) for old in state)
    n, m = x.shape[1], k.shape[1]
    future = torch.ones(n, m).triu(m - n + 1).bool() if hidden is None else hidden
    logits = (x @ k.mT).masked_fill(future, -torch.inf)
    return logits.softmax(-1) @ v, (k, v)


def full(x: Tensor) -> Tensor:
    return attended(x, None)[0]


def test_right_steps_pass_and_their_width_is_found_out() -> None:
    report = check_cache(attended, full)
    assert not report.failures
    assert not report.of("hazard")
    assert report.detected == {"d_model": "16"}


def test_a_step_that_sees_the_future_of_its_chunk() -> None:
    def step(x: Tensor, state: STATE) -> tuple[Tensor, STATE]:
        past = 0 if state is None else state[0].shape[1]
        return attended(x, state, torch.zeros(x.shape[1], past + x.shape[1], dtype=torch.bool))

    report = check_cache(step, full)
    assert report.failures == ("chunks_differ",)
    assert "token 0 sees later tokens of its own chunk" in str(report)
    assert "no causal mask within a chunk" in str(report)


def test_a_step_that_forgets_says_which_tokens() -> None:
    def step(x: Tensor, state: STATE) -> tuple[Tensor, STATE]:
        return attended(x, None)[0], state

    report = check_cache(step, full)
    assert "chunks_differ" in report.failures
    assert "Cut into single tokens" in str(report)
    assert "nothing is left of earlier chunks" in str(report)


def test_top_left_alignment_says_so() -> None:
    def step(x: Tensor, state: STATE) -> tuple[Tensor, STATE]:
        past = 0 if state is None else state[0].shape[1]
        n = x.shape[1]
        return attended(x, state, torch.ones(n, past + n).triu(1).bool())

    report = check_cache(step, full)
    assert "chunks_differ" in report.failures
    assert "bottom-right" in str(report)


def test_without_a_full_pass_one_chunk_is_the_reference() -> None:
    assert not check_cache(attended).failures


def test_what_raises_is_reported_and_never_raised() -> None:
    def step(x: Tensor, state: STATE) -> tuple[Tensor, STATE]:
        if x.shape[1] > 1 and state is not None:
            raise RuntimeError("one token at a time")
        return attended(x, state)

    report = check_cache(step, full)
    assert "chunks_differ" in report.failures
    assert "RuntimeError: one token at a time" in str(report)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="step must be callable, got int"):
        Cache(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mask_covers must be one of 'chunk', 'all'"):
        Cache(attended, mask_covers="some")
    with pytest.raises(ValueError, match="no known input gives an output"):
        check_cache(lambda _: 1 / 0)
