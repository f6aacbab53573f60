"""What the page says of NaN in a hidden key holds where it says so."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets.pages.core import lookup


def test_a_hidden_key_spoils_every_query_of_the_built_in_through_a_mask_tensor() -> None:
    values = lookup.example_bad_value()
    assert values["key_builtin"] == 4
    q, k, v = torch.randn(3, 1, 1, 4, 8, generator=torch.Generator().manual_seed(0)).unbind()
    k[..., 3, :] = math.nan  # the last query alone may attend to it
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        masked = F.scaled_dot_product_attention(q, k, v, causal)
        flagged = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert masked.isnan().any(-1).flatten().tolist() == [True] * 4
    assert flagged.isnan().any(-1).flatten().tolist() == [False, False, False, True]


def test_only_the_flash_kernel_with_the_flag_spares_the_queries_before_the_key(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert lookup.example_bad_key() == {"flag": 2}
    lines = dict(
        line.split(": NaN for the queries ") for line in capsys.readouterr().out.splitlines()
    )
    everyone = str([0, 1, 2, 3])
    assert lines == {
        "MATH, mask": everyone,
        "MATH, is_causal": everyone,
        "FLASH_ATTENTION, mask": everyone,
        "FLASH_ATTENTION, is_causal": str([2, 3]),
    }


def test_three_dimensions_for_four_are_among_the_refusals() -> None:
    rows, _ = lookup.table_refusals()
    answers = {row["given"]: row["answer"] for row in rows}
    answer = answers["a mask `(3, 2, 2)` for scores `(3, 3, 2, 2)`"]
    assert answer.startswith("`ValueError: mask must broadcast to (..., Tq, Tk) = (3, 3, 2, 2) and")
    assert "mask[:, None] for (B, Tq, Tk)" in answer
