"""What the page on the contract runs: reports on wrong and on right code."""

import dataclasses
import inspect
import json
import math
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from snippets import contract
from snippets.contract import (
    CHECKS,
    Attention,
    Cache,
    MultiHead,
    Positions,
    Report,
    check_attention,
    check_cache,
    check_multi_head,
    check_positions,
)

SUBJECTS: dict[str, type[Any]] = {
    "attention": Attention,
    "multi_head": MultiHead,
    "positions": Positions,
    "cache": Cache,
}


def attend(q, k, v, mask=None):
    """Attention with two mistakes; True in the mask = hidden."""
    scores = q @ k.transpose(-2, -1) / k.shape[-1]  # (B, H, Tq, Tk)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(mask, 0.0)
    return weights @ v  # (B, H, Tq, d)


def mended(q, k, v, mask=None):
    """Scale by the root of the width, and hide keys before the softmax."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    return scores.softmax(-1) @ v  # (B, H, Tq, d)


def say(report: Report, *names: str) -> None:
    """Print what the report says of some checks, or of all that failed."""
    for finding in report.findings:
        if finding.check in (names or report.failures):
            print(textwrap.fill(str(finding), 72, subsequent_indent="  "))


def example_first():
    report = check_attention(attend, mask="hide")
    print(len(report.failures), "checks fail.")
    say(report)
    return {"failed": len(report.failures)}


def example_mended():
    report = check_attention(mended, mask="hide")
    print("fail:", *report.failures)
    print("hazard:", *(finding.check for finding in report.of("hazard")))
    for setting, found in report.detected.items():
        print(f"found out: {setting} = {found}")
    return {"failed": len(report.failures)}


def table_reports():
    """Both reports, without the checks that apply to neither."""
    before = check_attention(attend, mask="hide").findings
    after = check_attention(mended, mask="hide").findings
    return [
        {
            "check": f"`{old.check}`",
            "two mistakes": old.verdict,
            "mended": new.verdict,
            "what is wrong": plain(
                next(
                    (
                        f.wrong
                        for f in (old, new)
                        if f.verdict in ("fail", "hazard")
                    ),
                    "",
                )
            ),
        }
        for old, new in zip(before, after, strict=True)
        if {old.verdict, new.verdict} != {"skip"}
    ]


def example_polarity():
    def attention(q, k, v, mask=None):  # True = hidden, says its caller
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    report = check_attention(attention, mask="hide")
    say(report, "mask_polarity")
    return {"failed": ", ".join(report.failures)}


def example_axis():
    def attention(q, k, v, mask=None):
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, Tq, Tk)
        if mask is not None:
            scores = scores.masked_fill(~mask, -1e9)
        return F.softmax(scores, dim=1) @ v  # (B, H, Tq, d)

    report = check_attention(attention, mask="attend")
    say(report, "softmax_axis")
    return {"failed": ", ".join(report.failures)}


def example_summed():
    def attention(q, k, v, mask=None, is_causal=False):
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
        if mask is not None:
            scores = scores + torch.where(mask, 0.0, -1e9)
        if is_causal:
            future = torch.ones(scores.shape[-2:]).triu(1)
            scores = scores + future * -1e9
        return scores.softmax(-1) @ v  # (B, H, T, d)

    report = check_attention(attention, mask="attend")
    say(report, "masks_summed")
    return {"failed": ", ".join(report.failures)}


def example_dropout():
    def attention(q, k, v, mask=None, dropout=0.1):
        return F.scaled_dot_product_attention(q, k, v, mask, dropout)

    report = check_attention(attention, mask="attend")
    say(report, "dropout_in_evaluation")
    return {"failed": ", ".join(report.failures)}


def example_tiled():
    def attention(q, k, v, mask=None):
        groups = q.shape[1] // k.shape[1]
        k = k.repeat(1, groups, 1, 1)  # (B, H, Tk, d)
        v = v.repeat(1, groups, 1, 1)  # (B, H, Tk, d)
        return F.scaled_dot_product_attention(q, k, v, mask)

    report = check_attention(attention, mask="attend", n_kv_heads=2)
    say(report, "grouped_heads")
    return {"failed": ", ".join(report.failures)}


def example_split():
    class Layer(nn.Module):
        def __init__(self, d_model=16, n_heads=4):
            super().__init__()
            self.n_heads, self.d_model = n_heads, d_model
            self.qkv = nn.Linear(d_model, 3 * d_model)
            self.out = nn.Linear(d_model, d_model)

        def forward(self, x, mask=None):
            b, t, c = x.shape
            q, k, v = (
                y.reshape(b, self.n_heads, t, c // self.n_heads)
                for y in self.qkv(x).chunk(3, -1)  # three of (B, T, C)
            )
            y = F.scaled_dot_product_attention(q, k, v, mask)  # (B, H, T, d)
            return self.out(y.transpose(1, 2).reshape(b, t, c))  # (B, T, C)

    torch.manual_seed(0)
    report = check_multi_head(Layer(), mask="attend")
    say(report, "head_split")
    return {"failed": ", ".join(report.failures)}


def example_rotary():
    def rotate(x, positions):
        d = x.shape[-1]  # x (B, H, T, d)
        rates = 10_000 ** (-torch.arange(0, d, 2).double() / d)
        angles = (positions[..., None] * rates).repeat(
            1, 2
        )  # (T, d), two halves
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([-odd, even], -1).flatten(
            -2
        )  # (B, H, T, d), neighbours
        return x * angles.cos() + turned * angles.sin()

    report = check_positions(rotate)
    say(report, "pairs_mixed")
    return {"failed": ", ".join(report.failures)}


def example_cache():
    torch.manual_seed(0)
    wq, wk, wv, wo = torch.randn(4, 16, 16, dtype=torch.float64) / 4

    def heads(x):
        return x.unflatten(-1, (4, 4)).transpose(1, 2)  # (B, H, T, d)

    def step(x, state):
        k, v = heads(x @ wk), heads(x @ wv)
        if state is not None:
            k = torch.cat([state[0], k], 2)  # (B, H, Tk, d)
            v = torch.cat([state[1], v], 2)
        causal = x.shape[1] > 1  # one query may see all
        y = F.scaled_dot_product_attention(
            heads(x @ wq), k, v, is_causal=causal
        )
        return y.transpose(1, 2).flatten(2) @ wo, (k, v)  # (B, T, C)

    report = check_cache(step, lambda x: step(x, None)[0])
    say(report, "chunks_differ")
    return {"failed": ", ".join(report.failures)}


def example_builtin():
    report = check_multi_head(nn.MultiheadAttention(16, 4, batch_first=True))
    for setting, found in report.detected.items():
        print(f"found out: {setting} = {found}")
    print("fail:", *report.failures)
    say(report, "empty_rows")
    return {"failed": len(report.failures), "hazards": len(report.of("hazard"))}


def example_view():
    def attention(q, k, v):
        b, h, t, d = q.shape
        q = q.view(b * h, t, d)
        k, v = k.view(b * h, -1, d), v.view(b * h, -1, d)
        output = F.scaled_dot_product_attention(q, k, v)  # (B·H, Tq, d)
        return output.view(b, h, t, d)

    report = check_attention(attention)
    say(report, "non_contiguous")
    return {"failed": len(report.failures)}


def example_unscaled():
    def attention(q, k, v, mask=None):  # as in T5, whose weights hold the scale
        return F.scaled_dot_product_attention(q, k, v, mask, scale=1.0)

    for settings in ({}, {"scale": 1.0}):
        report = check_attention(attention, **settings)
        print(settings, "fail:", *report.failures)
    return {"failed": len(report.failures)}


def example_not_given():
    def attention(q, k, v, mask=None):  # True = hidden, says its caller
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    report = check_attention(attention)
    print("fail:", *report.failures)
    print("found out: mask =", report.detected["mask"])
    return {"failed": len(report.failures)}


def example_own_function():
    report = check_attention(F.scaled_dot_product_attention)
    for verdict in ("fail", "hazard"):
        print(f"{verdict}:", *(finding.check for finding in report.of(verdict)))
    return {"failed": len(report.failures)}


def listed(name: re.Match[str]) -> str:
    """The values that a constant of the contract lists."""
    values = getattr(contract, name[0], None)
    return ", ".join(values) if isinstance(values, tuple) else name[0]


def plain(text: str) -> str:
    """Text of the contract as it may stand in a table."""
    text = re.sub(r"\b[A-Z_]{6,}\b", listed, text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"(?<![`\w])(\w+\[\w+\])", r"`\1`", text)
    parts = text.split("`")  # what is within backticks stays
    parts[::2] = [
        part.replace("*", "\\*").replace("<", "&lt;") for part in parts[::2]
    ]
    return "`".join(parts)


def linked(page: str) -> str:
    """Link from this page to the page that explains a mistake."""
    section, _, name = page.partition("/")
    folder = "" if section == "practice" else f"../{section}/"
    return f"[{name.replace('-', ' ')}]({folder}{name}.md)"


def first_line(check: Callable[..., Any]) -> str:
    """What a check finds, in its own words."""
    return (inspect.getdoc(check) or "").split("\n")[0].rstrip(".")


def checks(kind: str, *reports: Report) -> list[dict[str, str]]:
    """Rows of a table of checks, from reports on right code, plainly called."""
    rows = []
    for name, (check, page) in CHECKS[kind].items():
        findings = [
            f for report in reports for f in report.findings if f.check == name
        ]
        reason = findings[0].wrong.removeprefix("Not asked: ")
        reason = re.split(r": give|\. Measured", reason)[0]
        skip = all(finding.verdict == "skip" for finding in findings)
        rows.append(
            {
                "check": f"`{name}`",
                "what it finds": plain(first_line(check)),
                "skipped, because": plain(reason.rstrip(".") if skip else ""),
                "explained on": linked(page),
            }
        )
    return rows


class Hidden(nn.Module):
    """Right attention, whose weights nobody finds in its only parameter."""

    def __init__(self, d_model: int = 16, n_heads: int = 4) -> None:
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.all = nn.Parameter(torch.randn(4, d_model, d_model).flatten() / 4)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Output (B, T, C) of inputs (B, T, C)."""
        b, t, c = x.shape
        q, k, v, out = self.all.view(4, c, c)
        q, k, v = (
            (x @ w).view(b, t, self.n_heads, -1).transpose(1, 2)
            for w in (q, k, v)
        )
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return y.transpose(1, 2).reshape(b, t, c) @ out


def table_attention_checks():
    return checks(
        "attention",
        check_attention(F.scaled_dot_product_attention, causal="never"),
    )


def table_multi_head_checks():
    return checks("multi_head", check_multi_head(Hidden(), mask="attend"))


def rotary(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary positions, right: halves, base 10000; x (B, H, T, d)."""
    half = x.shape[-1] // 2
    rates = 10_000 ** (-torch.arange(half).double() / half)
    angles = positions[..., None] * rates
    one, two = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


def alibi(n_queries: int, n_keys: int) -> Tensor:
    """Bias (H, Tq, Tk) of slopes times distances, right."""
    slopes = 2.0 ** -torch.arange(1, 9).double()
    rows = torch.arange(n_queries)[:, None] + n_keys - n_queries
    return slopes[:, None, None] * (torch.arange(n_keys) - rows)


def table_positions_checks():
    return checks("positions", check_positions(rotary), check_positions(alibi))


def attend_step(
    x: Tensor, state: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Any]:
    """Causal attention without projections, in chunks; x (B, T, C)."""
    keys = x if state is None else torch.cat([state[0], x], 1)
    seen = torch.ones(x.shape[1], keys.shape[1], dtype=torch.bool)
    mask = seen.tril(keys.shape[1] - x.shape[1])
    return F.scaled_dot_product_attention(x, keys, keys, mask), (keys, keys)


def table_cache_checks():
    return checks("cache", check_cache(attend_step))


def described(kind: type[Any]) -> dict[str, tuple[str, str]]:
    """The type and the meaning of each setting, from the docstring."""
    text = inspect.getdoc(kind) or ""
    text = text.partition("Attributes\n----------\n")[2]
    found = {}
    for entry in re.findall(
        r"^(\S.*) : (.+)\n((?:    .*\n?)+)|^(\S.*)\n((?:    .*\n?)+)",
        text,
        re.M,
    ):
        names, form, meaning = (
            (entry[0], *entry[1:3]) if entry[0] else (entry[3], "", entry[4])
        )
        for name in names.split(", "):
            found[name] = form, " ".join(meaning.split())
    return found


def setting_rows(kind: str) -> list[dict[str, str]]:
    """Rows of a table of settings."""
    subject = SUBJECTS[kind]
    default = {f.name: f.default for f in dataclasses.fields(subject)}
    return [
        {
            "setting": f"`{name}`",
            "type": plain(form),
            "default": ""
            if default[name] in (None, dataclasses.MISSING)
            else f"`{default[name]!r}`",
            "what it says": plain(meaning),
        }
        for name, (form, meaning) in described(subject).items()
    ]


def table_attention_settings():
    return setting_rows("attention")


def table_multi_head_settings():
    return setting_rows("multi_head")


def table_positions_settings():
    return setting_rows("positions")


def table_cache_settings():
    return setting_rows("cache")


RECORD = Path(__file__).with_name("contract.json")


def record() -> dict[str, Any]:
    """What a test counted on right and on wrong implementations."""
    counted: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return counted


KINDS = {
    "attention": "functions",
    "multi_head": "modules",
    "positions": "position schemes",
    "cache": "caches",
}


def table_detection():
    """Faults of the corpus that are found, and right code that fails."""
    rows, values = [], {}
    for kind, name in KINDS.items():
        counted = record()[kind]
        wrong, right = counted["wrong"], counted["right"]
        rows.append(
            {
                "subjects": name,
                "planted faults": wrong["all"],
                "found": wrong["found"],
                "reported as a hazard": wrong["hazard"],
                "found without settings": wrong["found without settings"],
                "right code": right["all"],
                "false alarms": right["failed"],
            }
        )
    columns = list(rows[0])[1:]
    total = {column: sum(row[column] for row in rows) for column in columns}
    values = {
        column.replace(" ", "_"): number for column, number in total.items()
    }
    return [*rows, {"subjects": "all", **total}], values


def table_hazards():
    """How much right code shows each hazard."""
    rows = []
    names = {
        name for kind in KINDS for name in record()[kind]["right"]["hazards"]
    }
    for name in sorted(names):
        counts = {
            title: record()[kind]["right"]["hazards"].get(name, 0)
            for kind, title in KINDS.items()
            if name in CHECKS[kind]
        }
        rows.append(
            {
                "hazard": f"`{name}`",
                **{title: counts.get(title, "") for title in KINDS.values()},
            }
        )
    of = {
        title: f"of {record()[kind]['right']['all']}"
        for kind, title in KINDS.items()
    }
    values = {
        f"{name}_{kind}": record()[kind]["right"]["hazards"].get(name, 0)
        for kind in ("attention", "multi_head")
        for name in (
            "empty_rows",
            "empty_rows_backward",
            "nan_spreads",
            "non_contiguous",
        )
    } | {f"all_{kind}": record()[kind]["right"]["all"] for kind in KINDS}
    return [{"hazard": "right code", **of}, *rows], values
