"""Checks of functions: what was once missed, and right code that was once accused."""

import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from snippets import contract
from snippets.contract import (
    Attention,
    Finding,
    HazardWarning,
    cases,
    check_attention,
    run_check,
)


def right(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, mask)


def finding(name: str, fn: Callable[..., Tensor], **settings: Any) -> Finding:
    return run_check(Attention(fn, **settings).prepared(), name)


def accused(fn: Callable[..., Any], **settings: Any) -> tuple[str, ...]:
    return check_attention(fn, **settings).failures


# The machinery


def test_a_check_that_breaks_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Attention) -> Finding:
        raise IndexError("too few keys\nand more")

    monkeypatch.setitem(contract.CHECKS["attention"], "scale", (broken, "core/scaling"))
    report = check_attention(right, mask="attend")
    (found,) = (f for f in report.findings if f.check == "scale")
    assert found.verdict == "skip"
    assert found.wrong == "The check itself broke: IndexError: too few keys"


def test_code_that_breaks_in_the_shell_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "contract.py").write_text(Path(contract.__file__).read_text(encoding="utf-8"))
    (tmp_path / "mine.py").write_text("raise RuntimeError('no device\\nat all')\n")
    result = subprocess.run(
        [sys.executable, "-m", "contract", "mine:x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "RuntimeError: no device at all\n"


def test_hazards_have_a_warning_of_their_own() -> None:
    (case,) = (c for c in cases(Attention(right, mask="attend")) if str(c) == "nan_spreads")
    with pytest.warns(HazardWarning, match="NaN in a hidden"):
        case()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", HazardWarning)
        case()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"causal": True}, "causal must be a string, as 'always'.* got True"),
        ({"dropout": 0.1}, "dropout must be a string, as 'dropout_p', or None, got 0.1"),
        ({"window": -1}, "window must be a whole number from 1, or None, got -1: give a number"),
        ({"window": "4"}, "window must be .* got '4'"),
        ({"n_heads": 0}, "n_heads must be a whole number from 1"),
        ({"n_heads": True}, "n_heads must be a whole number from 1"),
        ({"n_kv_heads": 3}, "n_kv_heads must divide n_heads = 4, got 3"),
        ({"scale": 0.0}, "scale must be a number other than 0, or None, got 0.0"),
        ({"scale": "0.1"}, "scale must be a number"),
        ({"tolerance": -1e-3}, "tolerance must be a number above 0"),
        ({"dtypes": ("half precision",)}, "dtypes must hold dtypes, as torch.float16"),
    ],
)
def test_numbers_and_names_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Attention(right, **settings)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match=r"bias must be callable, bias.* got Tensor: give a func"):
        Attention(right, bias=torch.zeros(4, 5, 7))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the class Linear: pass an instance.*check_multi_head"):
        Attention(nn.Linear)


def test_dtypes_may_be_given_by_name() -> None:
    assert Attention(right, dtypes=("float16",)).dtypes == (torch.float16,)  # type: ignore[arg-type]


def test_when_nothing_runs_the_report_says_what_to_set() -> None:
    def no_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            raise ValueError("not today")
        return right(q, k, v)

    assert "settings layout, mask, mask_shape" in str(finding("runs", no_mask))


# How code is called


def dropout_object(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    logits = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        logits = logits.masked_fill(mask == 0, -1e9)
    weights = logits.softmax(-1)
    weights = weights if dropout is None else dropout(weights)
    return weights @ value, weights


def causal_by_default(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = True
) -> Tensor:
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    seen = seen.tril(k.shape[2] - q.shape[2]) if causal else seen
    return right(q, k, v, seen if mask is None else seen & mask)


def lengths(q: Tensor, k: Tensor, v: Tensor, valid_lens: Tensor | None = None) -> Tensor:
    if valid_lens is not None:
        mask = torch.arange(k.shape[2]) < valid_lens.reshape(-1, 1, 1, 1)
        return right(q, k, v, mask.expand(len(q), 1, 1, -1))
    return right(q, k, v)


def documents(
    q: Tensor, k: Tensor, v: Tensor, document_ids: Tensor | None = None, is_causal: bool = False
) -> Tensor:
    mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    mask = mask.tril() if is_causal else mask
    if document_ids is not None:
        mask = mask & (document_ids[:, None, :, None] == document_ids[:, None, None])
    return right(q, k, v, mask)


@pytest.mark.parametrize("fn", [dropout_object, causal_by_default, lengths, documents])
def test_right_functions_are_called_as_they_want(fn: Callable[..., Any]) -> None:
    report = check_attention(fn)
    assert not report.failures, str(report)


def test_a_flag_that_is_on_by_default_is_always_on() -> None:
    assert Attention(causal_by_default).prepared().causal == "always"
    assert Attention(causal_by_default, causal="causal").prepared().causal == "causal"


# Rows without keys and floors


def added(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    return (logits if mask is None else logits + ~mask * -1e9).softmax(-1) @ v


def test_a_floor_that_is_added_leaves_empty_rows_without_a_mask() -> None:
    found = finding("empty_rows", added)
    assert found.verdict == "hazard"
    assert found.measured == "the weights without a mask"
    assert "the softmax ignores what is added to all of them" in found.cause
    assert not accused(added)


def test_added_masks_are_the_hazard_of_who_takes_additive_ones() -> None:
    def summed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        past = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        logits = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~past, torch.finfo(q.dtype).min)
        return (logits if mask is None else logits + mask).softmax(-1) @ v

    settings = {"mask": "additive", "causal": "always", "alignment": "bottom-right"}
    assert finding("masks_summed", summed, **settings).verdict in ("hazard", "pass")
    assert not accused(summed, **settings)


# How outputs come back


def weights_first(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    logits = logits if mask is None else logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1), logits.softmax(-1) @ v


def time_second(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, mask).transpose(1, 2)


def merged(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return time_second(q, k, v, mask).flatten(2)


def other_order(query: Tensor, value: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(query, key, value, mask)


def named(*, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, mask)


@pytest.mark.parametrize(
    ("fn", "layout"),
    [
        (weights_first, None),
        (time_second, "(B, T, H, d)"),
        (merged, "(B, T, H·d)"),
        (other_order, None),
        (named, None),
    ],
)
def test_outputs_and_arguments_in_other_orders(fn: Callable[..., Any], layout: str | None) -> None:
    report = check_attention(fn)
    assert not report.failures, str(report)
    assert report.detected.get("output_layout") == layout


# Noise


def noisy(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout_p: float = 0.1,
    training: bool = True,
) -> Tensor:
    return right(q, k, nn.functional.dropout(v, dropout_p, training), mask)


def test_only_one_check_tells_of_dropout_that_is_always_on() -> None:
    report = check_attention(noisy)
    assert report.failures == ("dropout_in_evaluation",), str(report)


def reseeding(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    torch.manual_seed(0)
    return right(q, k, v, mask)


# What was missed


def without_gradients(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, None if q.requires_grad else mask)


def with_gradients(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, mask if torch.is_grad_enabled() else None)


def half(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    logits = q @ k.mT / (1 if q.dtype == torch.float16 else math.sqrt(q.shape[-1]))
    logits = logits if mask is None else logits.masked_fill(~mask, -math.inf)
    return logits.softmax(-1) @ v


def low_floor(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    past = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    return (logits.masked_fill(~past, -20.0) if is_causal else logits).softmax(-1) @ v


def compared(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, None if mask is None else mask == 0)


def first_only(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return right(q, k, v, None if mask is None or mask[0].all() else mask)


def even(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = k.shape[2] // 2 * 2 if k.shape[2] > 16 else k.shape[2]
    return right(q, k[:, :, :n], v[:, :, :n])


def short_buffer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    past = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    past[1024:] = True
    return right(q, k, v, past)


def square_keys(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    logits = q @ (k if k.shape[2] == k.shape[3] else k.mT)
    return (logits / math.sqrt(q.shape[-1])).softmax(-1) @ v


@pytest.mark.parametrize(
    ("check", "fn", "settings"),
    [
        ("gradients", without_gradients, {}),
        ("gradients", with_gradients, {}),
        ("reference", half, {}),
        ("reference", even, {}),
        ("reference", short_buffer, {"causal": "always"}),
        ("reference", square_keys, {}),
        ("mask_floor", low_floor, {}),
        ("bias_scaled", compared, {"mask": "additive"}),
        ("mask_broadcast", first_only, {"mask": "attend"}),
        ("calls_remembered", reseeding, {}),
    ],
)
def test_what_was_missed_is_found(
    check: str, fn: Callable[..., Tensor], settings: dict[str, Any]
) -> None:
    found = finding(check, fn, **settings)
    assert found.verdict == "fail", str(found)
    twin = low_floor_right if fn is low_floor else right
    assert finding(check, twin).verdict in ("pass", "skip")


def low_floor_right(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def test_values_of_another_width_are_a_hazard() -> None:
    def by_values(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return right(q * math.sqrt(q.shape[-1] / v.shape[-1]), k, v, mask)

    assert finding("value_mixed", by_values).verdict == "hazard"
    assert finding("value_mixed", right).verdict == "pass"


def test_a_fixed_scale_is_no_empty_block() -> None:
    def fixed(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return right(q * (math.sqrt(q.shape[-1]) / 8), k, v, mask)

    assert "empty_first_block" not in accused(fixed)
    assert "scale" in accused(fixed)


def test_garbage_in_hidden_keys_may_be_finite() -> None:
    assert finding("nan_spreads", added).verdict == "hazard"
