"""The recipes of the page give the digits that were published, and its helpers are right."""

from __future__ import annotations

import math
import resource

import numpy as np
import pytest
import torch

from snippets.pages.core import scaling


def test_two_hundred_rows_have_the_published_medians(capsys: pytest.CaptureFixture[str]) -> None:
    scaling.example_saturation()
    printed = capsys.readouterr().out
    medians = [line.split()[-2:] for line in printed.splitlines() if "median" in line]
    assert medians == [["0.403", "2.05"], ["0.852", "0.56"], ["0.998", "0.01"]]


def test_one_row_has_the_published_weights_and_entropies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scaling.example_one_row()
    printed = capsys.readouterr().out
    for published in (
        "d =   8, unscaled: largest 0.2058, entropy 2.636",
        "d =   8, scaled  : largest 0.0654, entropy 3.677",
        "d =  64, unscaled: largest 0.8577, entropy 0.521",
        "d =  64, scaled  : largest 0.1366, entropy 3.328",
        "d = 512, unscaled: largest 0.9996, entropy 0.004",
        "d = 512, scaled  : largest 0.1073, entropy 3.458",
    ):
        assert published in printed


def test_the_gradient_has_the_published_norms(capsys: pytest.CaptureFixture[str]) -> None:
    scaling.example_gradient()
    printed = capsys.readouterr().out
    assert "d =   8, unscaled: 1.7e-01" in printed
    assert "d = 512, unscaled: 5.0e-04" in printed


def test_the_variances_are_the_published_ones_in_less_than_a_gigabyte() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = [(d, f"{variance:.2f}", f"{sd:.2f}") for d, variance, sd in scaling.draw_variances()]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found == [
        (16, "15.93", "3.99"),
        (64, "63.75", "7.98"),
        (128, "127.94", "11.31"),
        (512, "512.13", "22.63"),
        (128, "128.10", "11.32"),
    ]
    assert grown < 500_000, f"memory grew by {grown} KiB"


def test_drawing_in_chunks_is_drawing_at_once() -> None:
    rng = np.random.default_rng(0)
    n = 9000  # more than one chunk at every width
    for d, variance, deviation in scaling.draw_variances(n):
        q, k = rng.standard_normal((n, d)), rng.standard_normal((n, d))
        scores = (q * k).sum(axis=1)
        assert math.isclose(variance, scores.var(), rel_tol=1e-12)
        assert math.isclose(deviation, scores.std(), rel_tol=1e-12)


@pytest.mark.parametrize("d", [4, 64])
def test_the_standard_error_of_a_variance_is_how_far_samples_stray(d: int) -> None:
    rng = np.random.default_rng(1)
    n, repeats = 500, 400
    scores = np.stack(
        [(rng.standard_normal((n, d)) * rng.standard_normal((n, d))).sum(1) for _ in range(repeats)]
    )
    strayed = scores.var(axis=1).std()
    # The spread of the spread: about 1/√(2 · repeats), and more for the heavy tail at d = 4.
    assert strayed == pytest.approx(scaling.variance_error(d, n), rel=0.2)


@pytest.mark.parametrize("d", [1, 8, 64])
def test_random_scores_are_distributed_as_dot_products(d: int) -> None:
    scores = scaling.random_scores(d, 4000, 20)
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(4000, 1, d, dtype=torch.float64, generator=generator)
    k = torch.randn(4000, 20, d, dtype=torch.float64, generator=generator)
    direct = (q @ k.mT)[:, 0]  # (4000, 20)
    for statistic in (
        lambda x: x.var(),
        lambda x: x.abs().median(),
        lambda x: x.var(-1).sqrt().mean(),  # rows share a query
        lambda x: x.softmax(-1).amax(-1).mean(),
    ):
        assert statistic(scores).item() == pytest.approx(statistic(direct).item(), rel=0.05)


def test_the_closed_form_of_the_gradient_is_autograds() -> None:
    logits = torch.randn(30, 7, dtype=torch.float64).mul(3).requires_grad_()
    (gradient,) = torch.autograd.grad(logits.softmax(-1).amax(-1).sum(), logits)
    torch.testing.assert_close(scaling.gradient_norm(logits.detach()), gradient.norm(dim=-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", [16, 128])
def test_the_scale_of_a_function_is_found(d: int, dtype: torch.dtype) -> None:
    sdpa = torch.nn.functional.scaled_dot_product_attention
    measured = scaling.scale_of(sdpa, d, dtype)
    assert measured == pytest.approx(1 / math.sqrt(d), rel=0.1 if dtype == torch.bfloat16 else 1e-5)
    doubled = scaling.scale_of(lambda q, k, v: sdpa(2 * q, k, v), d, dtype)
    assert doubled == pytest.approx(2 / math.sqrt(d), rel=0.1 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_scores_at_a_width_are_those_of_vectors_cut_to_it(seed: int) -> None:
    rows = scaling.nested_scores(seed)
    generator = torch.Generator().manual_seed(seed)
    q, *keys = torch.randn(17 * 1024, generator=generator, dtype=torch.float64).split(1024)
    for m, row in enumerate(rows.tolist()):
        d = 2**m
        for score, key in zip(row, keys, strict=True):
            products = [a * b for a, b in zip(q[:d].tolist(), key[:d].tolist(), strict=True)]
            assert score == pytest.approx(math.fsum(products), abs=1e-11)
    printed = [row for row in scaling.table_draws() if row["draw"] == seed]
    assert [row["d"] for row in printed] == [2**m for m in range(11)]
    for row, scores in zip(printed, rows.tolist(), strict=True):
        written = [float(score) for score in str(row["scores"]).replace("−", "-").split(",")]
        assert written == pytest.approx(scores, abs=5.001e-4)
