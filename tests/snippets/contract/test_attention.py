"""Checks of functions and modules, on the corpus: every planted fault, and no false alarm."""

import os
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from snippets.attention import attention
from snippets.contract import (
    Attention,
    MultiHead,
    Report,
    check_attention,
    check_multi_head,
    run_check,
    run_checks,
)
from snippets.multi_head import MultiHeadAttention
from tests.snippets.contract import (
    right_attention,
    right_multi_head,
    subjects,
    wrong_attention,
    wrong_multi_head,
)
from tests.snippets.contract.entry import Entry

# Right code does these, too: they are told, and do not fail.
TOLD = {"dtype_kept"}
# How many seeds each right implementation is checked with; 50 before a release.
SEEDS = int(os.environ.get("CONTRACT_SEEDS", "1"))


def seeds() -> Iterator[tuple[str, int]]:
    """Each right implementation with seeds of its own, so that together they are many."""
    names = [*right_attention.ALL, *right_multi_head.ALL]
    for place, name in enumerate(names):
        for turn in range(SEEDS):
            yield name, (place * SEEDS + turn) % max(50, SEEDS)


def told(report: Report) -> str:
    return "\n".join(map(str, report.of("fail"))) or "no failure"


@pytest.mark.parametrize(("name", "seed"), list(seeds()))
def test_right_code_raises_no_failure(name: str, seed: int) -> None:
    if name in right_attention.ALL:
        report = run_checks(subjects.attention(right_attention.ALL[name], seed=seed))
    else:
        report = run_checks(subjects.multi_head(right_multi_head.ALL[name], seed=seed))
    assert not report.failures, told(report)
    assert len(report.of("pass")) >= 10


def check_alone(subject: Attention | MultiHead, mistake: str) -> None:
    finding = run_check(subject.prepared(), mistake)
    wanted = {"fail", "hazard"} if mistake in TOLD else {"fail"}
    assert finding.verdict in wanted, str(finding)


@pytest.mark.parametrize("name", wrong_attention.ALL)
def test_a_planted_fault_in_a_function_is_found_by_its_check(name: str) -> None:
    entry = wrong_attention.ALL[name]
    check_alone(subjects.attention(entry), entry.mistake)


@pytest.mark.parametrize("name", wrong_multi_head.ALL)
def test_a_planted_fault_in_a_module_is_found_by_its_check(name: str) -> None:
    entry = wrong_multi_head.ALL[name]
    check_alone(subjects.multi_head(entry), entry.mistake)


# Faults whose check needs the weights, and the check that finds them without.
WITHOUT_WEIGHTS = {
    "TimeRepeated": "key_order",
    "ScaleByLength": "mask_multiplied",
    "ValuesFromTarget": "mask_multiplied",
    "HalfOverflows": None,
}


@pytest.mark.parametrize(
    "name", [name for name, entry in wrong_multi_head.ALL.items() if not entry.needs]
)
def test_a_fault_that_breaks_a_general_property_is_found_without_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = wrong_multi_head.ALL[name]
    monkeypatch.setattr("snippets.contract.candidates", lambda _: [])
    subject = subjects.multi_head(entry, weights=False)
    mistake = WITHOUT_WEIGHTS.get(name, entry.mistake)
    if mistake is None:
        assert not run_checks(subject).failures, "it is found without weights after all"
    else:
        check_alone(subject, mistake)


def test_every_class_of_mistake_has_a_planted_fault() -> None:
    planted = {
        entry.mistake
        for corpus in (wrong_attention.ALL, wrong_multi_head.ALL)
        for entry in corpus.values()
    }
    wanted = {
        *("mask_polarity", "mask_after_softmax", "mask_multiplied", "mask_floor", "masks_summed"),
        *("empty_rows", "empty_rows_backward", "nan_spreads", "mask_on_query_axis"),
        *("mask_broadcast", "cross_mask", "causal_leak", "mask_in_evaluation", "causal_alignment"),
        *("causal_and_mask", "scale", "bias_scaled", "half_overflow", "softmax_axis"),
        *("batch_time_exchanged", "head_split", "head_merge", "grouped_heads"),
        *("dropout_in_evaluation", "dropout_rescaled", "documents_leak", "soft_cap_after_mask"),
        *("sink_counted_twice", "empty_first_block", "window_length", "gradients"),
    }
    assert wanted <= planted, wanted - planted


class Module(nn.Module):
    """Causal self-attention in the usual few lines, with steps that can be made wrong."""

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.n_head, self.scale = 4, scale
        self.c_attn, self.c_proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (4, 4)).transpose(1, 2) for y in self.c_attn(x).split(16, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        out: torch.Tensor = self.c_proj(y.transpose(1, 2).flatten(2))
        return out


RIGHT_WITHOUT_SETTINGS = {
    "attention": lambda: check_attention(attention),
    "pytorch": lambda: check_attention(nn.functional.scaled_dot_product_attention),
    "multi_head": lambda: check_multi_head(MultiHeadAttention(16, 4)),
    "multi_head, grouped": lambda: check_multi_head(MultiHeadAttention(16, 4, n_kv_heads=2)),
    "multi_head, dropout": lambda: check_multi_head(MultiHeadAttention(16, 4, dropout=0.3)),
    "pytorch's layer": lambda: check_multi_head(nn.MultiheadAttention(16, 4, batch_first=True)),
    "pytorch's layer, time first": lambda: check_multi_head(nn.MultiheadAttention(16, 4)),
    "causal module": lambda: check_multi_head(Module()),
}


@pytest.mark.parametrize("name", RIGHT_WITHOUT_SETTINGS)
def test_right_code_needs_no_settings(name: str) -> None:
    report = RIGHT_WITHOUT_SETTINGS[name]()
    assert not report.failures, told(report)


def test_what_is_found_out_is_reported() -> None:
    report = check_multi_head(nn.MultiheadAttention(16, 4))
    assert report.detected["batch_first"] == "False"
    assert report.detected["mask"] == "hide"
    assert "found out: mask = hide" in str(report)


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    logits = q @ k.mT / q.shape[-1] ** 0.5
    output: torch.Tensor = logits.masked_fill(~m, -torch.inf).softmax(-1) @ v
    return output


def test_a_mask_that_cannot_be_left_out_is_given() -> None:
    report = check_attention(plain)
    assert not report.failures, told(report)
    assert report.detected["mask"] == "attend"


def test_the_layer_of_pytorch_has_no_single_policy() -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    finding = run_check(MultiHead(layer).prepared(), "empty_rows")
    assert finding.verdict == "hazard"
    assert "nan in evaluation without gradients" in finding.measured, finding.measured
    assert "zeros in training" in finding.measured, finding.measured


def test_a_policy_that_is_promised_is_held_against_the_code() -> None:
    entry = right_attention.ALL["einsum_where"]
    loose = run_check(subjects.attention(entry).prepared(), "empty_rows")
    strict = run_check(
        Attention(entry.make(), mask="attend", empty="zeros").prepared(), "empty_rows"
    )
    assert (loose.verdict, strict.verdict) == ("hazard", "fail")


def test_the_scale_is_named_by_the_law_that_it_follows() -> None:
    finding = run_check(MultiHead(Module(scale=1.0)).prepared(), "scale")
    assert finding.verdict == "fail"
    assert "the scale is missing" in finding.cause


def test_an_unknown_factor_is_measured() -> None:
    finding = run_check(MultiHead(Module(scale=0.3117)).prepared(), "scale")
    assert finding.verdict == "fail"
    assert "0.312" in finding.measured, finding.measured


def entries() -> list[Entry]:
    return [*right_attention.ALL.values(), *right_multi_head.ALL.values()]


def test_the_corpus_is_large() -> None:
    assert len(entries()) >= 60
    assert len(wrong_attention.ALL) + len(wrong_multi_head.ALL) >= 200


def normed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention by cosines, as with normalised queries and keys."""
    q, k = (nn.functional.normalize(x, dim=-1) for x in (q, k))
    output: torch.Tensor = (10 * q @ k.mT).softmax(-1) @ v
    return output


def cosines(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    q, k = (nn.functional.normalize(x, dim=-1) for x in (q, k))
    return 10 * q @ k.mT


def test_logits_of_another_kind_are_a_setting() -> None:
    assert check_attention(normed).failures
    report = check_attention(normed, score=cosines)
    assert not report.failures, told(report)
