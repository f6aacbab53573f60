"""What PyTorch does is said by functions that can say otherwise, and compared with the record."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from scripts import source
from scripts.page import read_page
from scripts.project import Project
from snippets import contract
from snippets.pages.practice import bugs

PAGE = read_page(Project(), "practice/bugs")
STATUSES = bugs.statuses()
PYTORCH = "[PyTorch](#what-pytorch-does-by-release)"
CHECKS = set().union(*contract.CHECKS.values())


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Path]:
    """Put another record in place of the page's own."""

    def put(columns: Any) -> Path:
        path = tmp_path / "versions.json"
        path.write_text(json.dumps(columns), encoding="utf-8")
        monkeypatch.setattr(bugs, "RECORD", path)
        return path

    return put


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Words of the running release, measured in no time."""
    words: dict[str, str] = bugs.read_record()[bugs.running()]["words"]
    monkeypatch.setattr(bugs, "measure", lambda: dict(words))
    return words


def on_record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bugs.RECORD.read_text(encoding="utf-8"))
    return found


# Every mistake, and every function


def test_each_status_belongs_to_one_mistake() -> None:
    used = [name for entry in bugs.ENTRIES for name in entry.statuses]
    assert sorted(used) == sorted(STATUSES)
    names = [entry.name for entry in bugs.ENTRIES]
    assert len(set(names)) == len(names) > 50
    assert {entry.check for entry in bugs.ENTRIES} - {""} <= CHECKS
    assert set(bugs.LINKS) <= set(names)


def test_the_page_shows_each_function_that_measures() -> None:
    shown = {d.name for d in PAGE.directives if d.kind == "source"}
    assert {f"pages.practice.bugs.status_{name}" for name in STATUSES} <= shown
    labels = [function.__doc__ or "" for function in STATUSES.values()]
    assert len(set(labels)) == len(labels)
    assert all(label.endswith(".") and "\n" not in label for label in labels)


def test_the_measurement_is_quiet_repeatable_and_leaves_the_seed_alone(
    capfd: pytest.CaptureFixture[str],
) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        words = bugs.measure()
    assert torch.random.get_rng_state().equal(before)
    assert capfd.readouterr() == ("", "")
    assert words == on_record()[bugs.running()]["words"]
    assert "something else" not in words.values()
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_words_do_not_depend_on_the_seed(seed: int) -> None:
    expected = on_record()[bugs.running()]["words"]
    for name, function in STATUSES.items():
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            assert function() == expected[name], name


# Each word can be another one


def test_a_result_is_named_by_what_it_equals() -> None:
    x = torch.arange(4.0)
    assert bugs.which(x, {"twice": 2 * x, "once": x}) == "once"
    assert bugs.which(x, {"twice": 2 * x}) == "something else"
    assert bugs.which(x, {"longer": torch.arange(5.0)}) == "something else"
    assert bugs.which(0 * x, {"once": x}) == "zeros"
    assert bugs.which(x / x, {"once": x}) == "NaN"
    assert bugs.finite(x, x) == "finite"
    assert bugs.finite(x, x / 0) == "NaN"


def test_an_error_is_named_and_others_pass() -> None:
    assert bugs.tried(lambda: "a word") == "a word"
    for error in (RuntimeError, ValueError, NotImplementedError):

        def call(error: type[Exception] = error) -> str:
            raise error

        assert bugs.tried(call) == f"raises {error.__name__}"
    with pytest.raises(ZeroDivisionError):
        bugs.tried(lambda: str(1 / 0))


def mended(q: Any, k: Any, v: Any, mask: Any = None, **options: Any) -> torch.Tensor:
    """A built-in without traps: masks of 0 and 1 mask, and nothing hidden reaches a result."""
    mask = options.get("attn_mask", mask)
    tq, tk = q.shape[-2], k.shape[-2]
    keep = torch.ones(tq, tk, dtype=torch.bool)
    if isinstance(mask, torch.Tensor):
        keep = mask > 0.5 if mask.dtype != torch.bool else mask
    if options.get("is_causal"):
        keep = keep & torch.ones(tq, tk, dtype=torch.bool).tril(tk - tq)
    logits = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~keep, -1e30)
    weights = logits.softmax(-1) * keep
    hidden = ~keep.any(-2)[..., None]  # keys that nobody sees
    output: torch.Tensor = weights @ v.masked_fill(v.isnan() | hidden, 0)
    return output


MENDED = {
    "ones_float": "masks",
    "ones_integer": "masks",
    "alignment_flag": "bottom right",
    "dropout_evaluation": "keeps all",
    "floor_forward": "zeros",
    "nan_value": "finite",
    "nan_key": "finite",
    "nan_key_math": "finite",
    "empty_additive": "zeros",
    "backward_builtin": "finite",
}


def test_a_kernel_that_adds_minus_infinity_spreads_the_nan_of_a_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def added(q: Any, k: Any, v: Any, **_: Any) -> torch.Tensor:
        future = torch.full((q.shape[-2], k.shape[-2]), -math.inf, dtype=q.dtype).triu(1)
        output: torch.Tensor = (q @ k.mT + future).softmax(-1) @ v
        return output

    assert bugs.status_nan_key_flash() == "finite"
    monkeypatch.setattr(bugs, "SDPA", added)
    assert bugs.status_nan_key_flash() == "NaN"


@pytest.mark.parametrize("name", MENDED)
def test_a_built_in_without_the_trap_has_another_word(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bugs, "SDPA", mended)
    torch.manual_seed(0)
    assert STATUSES[name]() == MENDED[name]


CLOSED = {
    "bias_fast": "added",
    "hint_alone_fast": "raises RuntimeError",
    "empty_fast": "zeros",
    "weights_empty_batch": "a tensor",
    "encoder_padded": "as in training",
}


@pytest.mark.parametrize("name", CLOSED)
def test_the_words_of_the_fast_path_are_others_where_it_is_closed(name: str) -> None:
    torch.manual_seed(0)
    with torch.device("cpu"):
        assert STATUSES[name]() == CLOSED[name]


def test_a_layer_that_merges_its_heads_right_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    class Right(nn.Module):
        @staticmethod
        def from_float(layer: nn.MultiheadAttention) -> nn.MultiheadAttention:
            return layer

    monkeypatch.setattr("torch.ao.nn.quantizable.MultiheadAttention", Right)
    assert bugs.status_quantizable() == "right"


def test_what_a_release_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.nn.attention.flex_attention", None)
    monkeypatch.delattr("torch.nn.attention.flex_attention", raising=False)
    assert bugs.status_empty_flex() == "no such API"
    assert bugs.status_polarity_flex() == "no such API"


# The tables


def test_the_table_has_a_column_for_each_release(quick: dict[str, str]) -> None:
    rows, values = bugs.table_status()
    assert list(rows[0])[2:] == list(reversed(on_record())), "the newest is not first"
    assert [row[bugs.running()] for row in rows] == [
        quick[name] for entry in bugs.ENTRIES for name in entry.statuses
    ]
    assert values["rows"] == len(rows) == len(quick)
    assert 0 < values["same"] < values["rows"]
    assert values["empty_weights"] == quick["empty_weights"]


@pytest.mark.usefixtures("quick")
def test_the_release_decides_what_an_empty_row_gets_and_the_kernel_does_not() -> None:
    _, values = bugs.table_status()
    assert values["empty_nan"] == "2.4.1"
    given = {release: column["words"] for release, column in on_record().items()}
    assert {words["empty_math"] == words["empty_flash"] for words in given.values()} == {True}
    zeros = [release for release, words in given.items() if words["empty_flash"] == "zeros"]
    assert sorted(values["empty_zeros"].split(", ")) == sorted(zeros)
    assert len(zeros) == len(given) - 1


@pytest.mark.usefixtures("quick")
def test_a_word_that_differs_is_refused_by_name(record: Callable[[Any], Path]) -> None:
    columns = on_record()
    columns[bugs.running()]["words"]["nan_key"] = "finite"
    record(columns)
    message = (
        f"nan_key: torch {bugs.running()} has 'finite' on record, measured is 'NaN': run "
        f"python scripts/versions.py {bugs.running()} and look at the change"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bugs.table_status()


@pytest.mark.parametrize("missing", ["record", "measurement"])
def test_a_word_that_only_one_side_has_is_refused(
    quick: dict[str, str],
    record: Callable[[Any], Path],
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
) -> None:
    columns = on_record()
    if missing == "record":
        del columns[bugs.running()]["words"]["view_math"]
        message = "view_math: .* has 'nothing' on record, measured is 'raises RuntimeError'"
    else:
        monkeypatch.setattr(bugs, "measure", lambda: {k: quick[k] for k in quick if k != "strides"})
        message = "strides: .* has 'differ' on record, measured is 'nothing'"
    record(columns)
    with pytest.raises(ValueError, match=message):
        bugs.table_status()


@pytest.mark.usefixtures("quick")
def test_a_release_that_is_not_on_record_is_named(record: Callable[[Any], Path]) -> None:
    columns = on_record()
    del columns[bugs.running()]
    path = record(columns)
    message = (
        f"torch {bugs.running()} is not in {path.name}, which has {', '.join(columns)}: "
        f"run python scripts/versions.py {bugs.running()}"
    )
    for table in (bugs.table_status, bugs.table_measured, bugs.table_mistakes):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            table()
    record({})
    with pytest.raises(ValueError, match="which has none: run"):
        bugs.table_status()


@pytest.mark.usefixtures("quick")
def test_an_old_column_without_a_word_says_so(record: Callable[[Any], Path]) -> None:
    columns = on_record()
    del columns["2.4.1"]["words"]["nan_key"]
    record({name: columns[name] for name in reversed(columns)})
    rows, _ = bugs.table_status()
    assert list(rows[0])[2:] == list(reversed(columns))  # in order all the same
    cells = {row["what PyTorch is asked"]: row["2.4.1"] for row in rows}
    assert cells["Built-in, mask tensor: a NaN in a hidden key"] == "not measured"
    today = {row["mistake"]: row["today"] for row in bugs.table_mistakes()}
    assert (
        today[f"[NaN in what is hidden]({bugs.LINKS['nan_spreads']})"]
        == f"{PYTORCH}: NaN, finite (varies)"
    )


def test_the_mistakes_say_whose_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bugs, "LINKS", {"window": "bugs-positions.md#window"})
    rows = {row["mistake"]: row for row in bugs.table_mistakes()}
    assert len(rows) == len(bugs.ENTRIES)
    row = rows["[A window that is one key off](bugs-positions.md#window)"]
    assert (row["found by"], row["today"]) == (
        "[`window_length`](contract.md#what-each-check-finds)",
        "your code",
    )
    assert rows["NaN in what is hidden"]["today"].startswith(f"{PYTORCH}: NaN, finite")
    assert rows["A query without keys"]["today"] == f"{PYTORCH}: zeros, NaN (varies)"


def test_the_dates_are_those_on_record() -> None:
    columns = reversed(on_record().items())  # the newest release first
    for row, (release, column) in zip(bugs.table_measured(), columns, strict=True):
        assert (row["PyTorch"], row["measured on"]) == (release, column["measured"])


def test_what_was_reported_as_wrong_is_right() -> None:
    torch.manual_seed(5)
    sink, alibi, exponents = (row["measured"] for row in bugs.table_disproved())
    assert "1e-14" in sink
    difference = re.search(r"differs by (\d\.\d\d)", alibi)
    assert difference
    assert float(difference[1]) > 0.1
    assert exponents.endswith("True")


def test_no_definition_is_left_over() -> None:
    path = Project().module("practice/bugs")
    text = path.read_text(encoding="utf-8")
    for name in source.definitions(path):
        if not name.startswith(("status_", "table_", "example_")):
            assert len(re.findall(rf"\b{name}\b", text)) > 1, name
