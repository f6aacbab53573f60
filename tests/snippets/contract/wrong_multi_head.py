"""Multi-head modules with one fault each, written as people write them."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.snippets.contract.entry import MODULE, Registry
from tests.snippets.contract.right_multi_head import named, torch_weights

WRONG = Registry(MODULE)
ALL = WRONG.entries

INF = float("inf")
Mask = Tensor | None
C, H, D = 16, 4, 4

weights = named("q", "k", "v", "out")


class Right(nn.Module):
    """Right as it stands; each wrong module below changes one of its steps."""

    n_kv_heads = H

    def __init__(self) -> None:
        super().__init__()
        self.q, self.out = nn.Linear(C, C), nn.Linear(C, C)
        self.k, self.v = nn.Linear(C, self.n_kv_heads * D), nn.Linear(C, self.n_kv_heads * D)

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.size(0), x.size(1), heads, D).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(x.size(0), x.size(2), C)

    def repeat(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(H // self.n_kv_heads, dim=1)

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(D)

    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        return scores if mask is None else scores.masked_fill(~mask, -INF)

    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q = self.split(self.q(x), H)
        k = self.repeat(self.split(self.k(memory), self.n_kv_heads))
        v = self.repeat(self.split(self.v(memory), self.n_kv_heads))
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return self.attend(x, x, mask)


class RightCausal(Right):
    def triangle(self, t: int) -> Tensor:
        return torch.ones(t, t, dtype=torch.bool).tril()

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.attend(x, x, self.triangle(x.size(1)))


class RightCross(Right):
    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor, mask: Mask = None, memory_mask: Mask = None
    ) -> Tensor:
        del mask  # of x: goes to its self-attention
        keep = None if memory_mask is None else memory_mask[:, None, None]
        return self.attend(x, memory, keep)


class RightPadding(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return self.attend(x, x, None if mask is None else mask[:, None, None])


class RightGrouped(Right):
    n_kv_heads = 2


# Heads.


@WRONG.module("head_split", weights=weights)
class SplitByView(Right):
    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.size(0), heads, x.size(1), D)


@WRONG.module("head_split", weights=weights, mask_argument="")
class SplitIntoBatch(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        del mask
        b = x.size(0)
        q, k, v = (f(y).view(b * H, -1, D) for f, y in ((self.q, x), (self.k, memory), (self.v, x)))
        context = self.score(q, k).softmax(-1) @ v
        output: Tensor = self.out(context.view(b, -1, C))
        return output


@WRONG.module("head_split", weights=weights, needs="specification")
class HeadsOnFastAxis(Right):
    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.size(0), x.size(1), D, heads).permute(0, 3, 1, 2)


@WRONG.module("head_split", weights=weights, needs="specification")
class KeysSplitOtherWay(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, v = self.split(self.q(x), H), self.split(self.v(memory), H)
        k = self.k(memory).unflatten(-1, (D, H)).permute(0, 3, 1, 2)
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output


@WRONG.module("head_merge", weights=weights)
class MergeByReshape(Right):
    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), C)


@WRONG.module("head_merge", weights=weights)
class MergeAfterLastTranspose(Right):
    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(2, 3).reshape(x.size(0), x.size(2), C)


@WRONG.module("head_merge", weights=weights, needs="specification")
class MergeHeadsOnFastAxis(Right):
    def merge(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).reshape(x.size(0), x.size(2), C)


@WRONG.module("batch_leak", weights=weights)
class MergeHeadsBeforeBatch(Right):
    def merge(self, x: Tensor) -> Tensor:
        b, _, t, _ = x.shape
        flat = x.flatten(0, 1).view(H, b, t, D)  # was batch first
        return flat.permute(1, 2, 0, 3).reshape(b, t, C)


@WRONG.module("head_split", weights=weights)
class SplitAndMergeByView(Right):
    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.reshape(x.size(0), heads, x.size(1), D)

    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), x.size(2), C)


@WRONG.module("reference", weights=weights, needs="specification")
class OneProjectionForAllHeads(Right):
    """Splits the input first; every head then goes through rows of the first."""

    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, k, v = (
            F.linear(y.view(*y.shape[:-1], H, D), f.weight[:D, :D], f.bias[:D]).transpose(1, 2)
            for f, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output


@WRONG.module("reference", weights=weights, needs="specification")
class HeadsAveraged(Right):
    def merge(self, x: Tensor) -> Tensor:
        return x.mean(1).repeat(1, 1, H)


@WRONG.module("reference", weights=weights, needs="specification")
class WeightsAveragedOverHeads(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1).mean(1, keepdim=True)


@WRONG.module("reference", weights=weights, needs="specification")
class ProjectionsMixedUp(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q = self.split(self.q(x), H)
        k, v = self.split(self.v(memory), H), self.split(self.k(memory), H)  # q, v, k
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output


@WRONG.module("reference", weights=weights, needs="specification")
class QueryProjectionForAll(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, k, v = (self.split(self.q(y), H) for y in (x, memory, memory))
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output


@WRONG.module("reference", weights=weights, needs="specification")
class OutputProjectionForgotten(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, k, v = (
            self.split(f(y), H) for f, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        return self.merge(self.normalise(self.hide(self.score(q, k), mask)) @ v)


@WRONG.module("reference", weights=weights, needs="specification")
class ResidualInside(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return x + self.attend(x, x, mask)


@WRONG.module("reference", weights=weights, needs="specification")
class LastBiasTwice(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return self.attend(x, x, mask) + self.out.bias


@WRONG.module("reference", weights=weights, needs="specification")
class InputInPlaceOfValues(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, k = self.split(self.q(x), H), self.split(self.k(memory), H)
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ self.split(memory, H)))
        return output


# Masks.


@WRONG.module("mask_ignored", weights=weights)
class MaskNeverReachesScores(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:  # noqa: ARG002
        return self.attend(x, x, None)


@WRONG.module("mask_ignored", weights=weights)
class FillWithoutAssignment(Right):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        if mask is not None:
            scores.masked_fill(~mask, -INF)
        return scores


@WRONG.module("mask_polarity", weights=weights)
class MaskTurnedRound(Right):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        return scores if mask is None else scores.masked_fill(mask, -1e9)


@WRONG.module("mask_polarity", weights=torch_weights, mask_shape="(B, Tk)", empty_rows="")
class KeepMaskToKeyPaddingMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H, batch_first=True)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        output: Tensor = self.attention(x, x, x, key_padding_mask=mask)[0]
        return output


@WRONG.module("mask_after_softmax", weights=weights)
class MaskAfterSoftmax(Right):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, k, v = (
            self.split(f(y), H) for f, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        weights = self.normalise(self.score(q, k))
        if mask is not None:
            weights = weights * mask
        output: Tensor = self.out(self.merge(weights @ v))
        return output


@WRONG.module("mask_multiplied", weights=weights)
class ScoresTimesMask(Right):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        return scores if mask is None else scores * mask


@WRONG.module("mask_floor", weights=weights)
class FloorWithoutExponent(Right):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        return scores if mask is None else scores.masked_fill(~mask, -1e-9)


@WRONG.module("mask_on_query_axis", weights=weights, mask_shape="(B, Tk)")
class PaddingOnQueryAxis(Right):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        return scores if mask is None else scores.masked_fill(~mask, -1e9)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return self.attend(x, x, None if mask is None else mask[:, None, :, None])


@WRONG.module("mask_broadcast", weights=weights, mask_shape="(B, Tq, Tk)", situation="B = H")
class SampleMaskOnHeads(Right):
    pass


@WRONG.module("mask_broadcast", weights=weights, mask_shape="(B, Tk)", situation="B = T")
class PaddingMaskOnQueries(Right):
    pass


@WRONG.module("mask_broadcast", weights=torch_weights, mask="hide", mask_shape="(B, Tq, Tk)")
class TiledMaskToTorch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H, batch_first=True)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        if mask is not None:
            mask = mask.repeat(H, 1, 1)  # repeat_interleave(H, dim=0)
        output: Tensor = self.attention(x, x, x, attn_mask=mask)[0]
        return output


@WRONG.module("masks_summed", weights=weights, causal="top-left", mask_shape="(B, Tk)")
class CausalPlusPadding(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        allowed = torch.ones(x.size(1), x.size(1)).tril()
        if mask is not None:
            allowed = allowed + mask[:, None, None].float()
        return self.attend(x, x, allowed > 0)


cross: dict[str, Any] = {
    "memory": "required",
    "memory_mask_argument": "memory_mask",
    "mask_shape": "(B, Tk)",
    "situation": "cross, S = T",
}


@WRONG.module("cross_mask", weights=weights, **cross)
class TargetMaskOnMemory(RightCross):
    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,
        memory_mask: Mask = None,
    ) -> Tensor:
        if mask is not None and memory.size(1) == x.size(1):
            memory_mask = mask  # a name passed on from the self-attention above
        keep = None if memory_mask is None else memory_mask[:, None, None]
        return self.attend(x, memory, keep)


@WRONG.module("cross_mask", weights=weights, **cross)
class MemoryMaskDropped(RightCross):
    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        memory: Tensor,
        mask: Mask = None,  # noqa: ARG002
        memory_mask: Mask = None,  # noqa: ARG002
    ) -> Tensor:
        return self.attend(x, memory, None)


@WRONG.module("cross_mask", weights=weights, **cross)
class CausalOverMemory(RightCross):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        causal = torch.ones(x.size(1), memory.size(1), dtype=torch.bool).tril()
        causal[:, 0] = True
        if mask is not None:
            causal = causal & mask | ~(causal & mask).any(-1, keepdim=True) & mask
        return super().attend(x, memory, causal)


@WRONG.module("reference", weights=weights, **cross)
class ValuesFromTarget(RightCross):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        source = x if x.shape == memory.shape else memory
        q, k, v = (
            self.split(f(y), H) for f, y in ((self.q, x), (self.k, memory), (self.v, source))
        )
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output


@WRONG.module("reference", weights=weights, needs="specification", **cross)
class KeysByQueryProjection(RightCross):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        q, v = self.split(self.q(x), H), self.split(self.v(memory), H)
        k = self.split(self.q(memory), H)  # the query's projection
        weights = self.normalise(self.hide(self.score(q, k), mask))
        output: Tensor = self.out(self.merge(weights @ v))
        return output


# Causality, training and evaluation.

causal: dict[str, Any] = {"causal": "top-left", "mask": ""}


@WRONG.module("causal_leak", weights=weights, **causal)
class TriangleOneTooWide(RightCausal):
    def triangle(self, t: int) -> Tensor:
        return torch.ones(t, t, dtype=torch.bool).tril(1)


@WRONG.module("causal_leak", weights=weights, **causal)
class TriangleTransposed(RightCausal):
    def triangle(self, t: int) -> Tensor:
        return torch.ones(t, t, dtype=torch.bool).triu()


@WRONG.module("causal_leak", weights=weights, **causal)
class ZerosBelowNotInfinity(RightCausal):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        assert mask is not None
        return scores.tril()


@WRONG.module("causal_leak", weights=weights, **causal)
class ConvolutionBeforeProjection(RightCausal):
    """A short convolution of the keys that is padded on both sides."""

    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        mixed = F.avg_pool1d(memory.transpose(1, 2), 3, 1, 1, count_include_pad=False)
        return super().attend(x, mixed.transpose(1, 2), mask)


@WRONG.module("causal_leak", weights=weights, **causal)
class NormalisedOverTime(RightCausal):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        x = x - x.mean(1, keepdim=True)
        return super().forward(x)


@WRONG.module("mask_in_evaluation", weights=weights, situation="evaluation", **causal)
class CausalInTrainingOnly(RightCausal):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        return super().attend(x, memory, mask if self.training else None)


@WRONG.module("mask_in_evaluation", weights=weights, situation="evaluation", **causal)
class FastPathWithoutMask(RightCausal):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        if self.training or torch.is_grad_enabled():
            return super().attend(x, memory, mask)
        q, k, v = (
            self.split(f(y), H) for f, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        output: Tensor = self.out(self.merge(F.scaled_dot_product_attention(q, k, v)))
        return output


@WRONG.module("training_and_evaluation", weights=weights, situation="evaluation")
class ScaleInTrainingOnly(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(q, k) if self.training else q @ k.transpose(-2, -1)


@WRONG.module("training_and_evaluation", weights=weights, situation="evaluation")
class MergeDiffersInEvaluation(Right):
    def merge(self, x: Tensor) -> Tensor:
        return super().merge(x) if self.training else x.reshape(x.size(0), x.size(2), C)


# The scale, axes and groups.


@WRONG.module("scale", weights=weights, needs="specification")
class ScaleMissing(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1)


@WRONG.module("scale", weights=weights, needs="specification")
class ScaleByModelWidth(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = q @ k.transpose(-2, -1) / C**0.5
        return scores


@WRONG.module("scale", weights=weights, needs="specification")
class ScaleTwice(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(q * D**-0.5, k)


@WRONG.module("scale", weights=weights, needs="specification")
class ScaleInverted(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = q @ k.transpose(-2, -1) / D**-0.5
        return scores


@WRONG.module("scale", weights=weights, needs="specification")
class ScaleByNumberOfHeads(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = q @ k.transpose(-2, -1) / (C * H) ** 0.5
        return scores


@WRONG.module("scale", weights=weights)
class ScaleByLength(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(k.size(-2))


@WRONG.module("softmax_axis", weights=weights, mask_argument="", needs="specification")
class SoftmaxOverQueries(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(-2)


@WRONG.module("softmax_axis", weights=weights, mask_argument="")
class SoftmaxOverHeads(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(1)


@WRONG.module("batch_time_exchanged", weights=torch_weights, mask_argument="")
class TorchAsBatchFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H)  # batch_first is missing

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, x, x)[0]
        return output


@WRONG.module("batch_time_exchanged", weights=weights, mask_argument="", batch_first=False)
class TimeFirstTakenForBatchFirst(Right):
    pass


@WRONG.module("batch_time_exchanged", weights=weights, mask_argument="")
class HeadsAttendOverHeads(Right):
    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(x.size(0), x.size(1), heads, D)

    def merge(self, x: Tensor) -> Tensor:
        return x.flatten(2)


@WRONG.module("batch_leak", weights=weights)
class BatchNormOfQueries(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score((q - q.mean(0)) / (q.std(0) + 1e-5), k)


@WRONG.module("grouped_heads", weights=weights, n_kv_heads=2, needs="specification")
class GroupsTiled(RightGrouped):
    def repeat(self, x: Tensor) -> Tensor:
        return x.repeat(1, H // self.n_kv_heads, 1, 1)


@WRONG.module("grouped_heads", weights=weights, n_kv_heads=2)
class TimeRepeated(RightGrouped):
    def repeat(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(H // self.n_kv_heads, dim=2).reshape(x.size(0), H, x.size(2), D)


@WRONG.module("grouped_heads", weights=weights, n_kv_heads=2, needs="specification")
class FirstGroupForAll(RightGrouped):
    def repeat(self, x: Tensor) -> Tensor:
        return x[:, :1].expand(-1, H, -1, -1)


# Dropout.


@WRONG.module("dropout_in_evaluation", weights=weights, dropout=0.5, situation="evaluation")
class DropoutAlwaysOn(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return F.dropout(scores.softmax(-1), 0.5)


@WRONG.module("dropout_in_evaluation", weights=weights, dropout=0.5, situation="evaluation")
class DropoutMadeInForward(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        dropped: Tensor = nn.Dropout(0.5)(scores.softmax(-1))  # a new one is always in training
        return dropped


@WRONG.module("dropout_rescaled", weights=weights, dropout=0.5, situation="training mean")
class DroppedNotRescaled(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        kept = torch.rand_like(scores) >= 0.5 if self.training else torch.ones_like(scores)
        return scores.softmax(-1) * kept


@WRONG.module(
    "dropout_rescaled", weights=weights, dropout=0.5, situation="training mean", mask_argument=""
)
class RescaledInEvaluation(Right):
    """The old way round, with the factor of the new one."""

    def normalise(self, scores: Tensor) -> Tensor:
        kept = torch.rand_like(scores) >= 0.5 if self.training else torch.full_like(scores, 1.0)
        return scores.softmax(-1) * kept * (0.5 if self.training else 1.0)


@WRONG.module("dropout_rescaled", weights=weights, dropout=0.5, situation="training spread")
class DropoutOnScores(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return F.dropout(scores.nan_to_num(neginf=-1e9), 0.5, self.training).softmax(-1)


# Windows, documents, NaN, gradients, calls.


@WRONG.module("window_length", weights=weights, window=3, causal="top-left", mask="")
class WindowOneTooLong(RightCausal):
    def triangle(self, t: int) -> Tensor:
        return super().triangle(t).triu(-3)


@WRONG.module("window_length", weights=weights, window=3, causal="top-left", mask="")
class WindowOneTooShort(RightCausal):
    def triangle(self, t: int) -> Tensor:
        return super().triangle(t).triu(-1)


@WRONG.module("documents_leak", weights=weights, documents=True, situation="documents", **causal)
class DocumentsIgnored(RightCausal):
    def forward(self, x: Tensor, *, document_ids: Tensor) -> Tensor:  # type: ignore[override]
        assert document_ids.shape == x.shape[:2]
        return super().forward(x)


@WRONG.module("documents_leak", weights=weights, documents=True, situation="documents", **causal)
class DocumentsOfFirstSample(RightCausal):
    def forward(self, x: Tensor, *, document_ids: Tensor) -> Tensor:  # type: ignore[override]
        ids = document_ids[0]
        return self.attend(x, x, (ids[:, None] == ids) & self.triangle(x.size(1)))


@WRONG.module(
    "empty_rows", weights=weights, empty_rows="zeros", mask_shape="(B, Tk)", situation="empty row"
)
class EmptySequenceGivesNan(RightPadding):
    pass


@WRONG.module(
    "empty_rows_backward",
    weights=weights,
    empty_rows="zeros",
    mask_shape="(B, Tk)",
    situation="empty row gradient",
)
class NanRemovedAfterwards(RightPadding):
    def merge(self, x: Tensor) -> Tensor:
        return super().merge(x.nan_to_num(0.0))


@WRONG.module(
    "empty_rows_backward",
    weights=weights,
    empty_rows="zeros",
    mask_shape="(B, Tk)",
    situation="empty row gradient",
)
class AdditiveThenNanRemoved(RightPadding):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        if mask is None:
            return scores
        return scores + torch.zeros_like(scores).masked_fill(~mask, -INF)

    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1).nan_to_num(0.0)


@WRONG.module("gradients", weights=weights, situation="gradient")
class WeightsDetached(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1).detach()


@WRONG.module("gradients", weights=weights, situation="gradient")
class KeysWithoutGradient(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(q, k.data)


@WRONG.module("inputs_changed", weights=weights, situation="inputs")
class ResidualInPlace(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        output = self.attend(x, x, mask)
        x.data.add_(output.detach())  # x += attention, inside the layer
        return output


@WRONG.module("inputs_changed", weights=weights, situation="inputs")
class MaskInvertedInPlace(Right):
    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        if mask is None:
            return scores
        return scores.masked_fill(mask.logical_not_(), -INF)


@WRONG.module("calls_remembered", weights=weights, situation="twice")
class FirstMaskKept(Right):
    kept: Mask = None

    def hide(self, scores: Tensor, mask: Mask) -> Tensor:
        if self.kept is None or self.kept.shape[-2:] != scores.shape[-2:]:
            self.kept = mask
        return super().hide(scores, self.kept)


@WRONG.module("calls_remembered", weights=weights, situation="twice")
class RunningScale(Right):
    running: float | None = None

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().score(q, k)
        if self.running is None:
            return scores
        return scores * self.running

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        output = super().forward(x, mask)
        self.running = 0.9 * (self.running or 1.0)
        return output


@WRONG.module("dtype_kept", weights=weights, situation="dtype")
class OutputInFloat32(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        return super().forward(x, mask).float()


@WRONG.module("half_overflow", weights=weights, situation="half large", dtype=torch.float16)
class HalfOverflows(Right):
    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores: Tensor = q @ k.transpose(-2, -1) * D**-0.5
        return scores


@WRONG.module("non_contiguous", weights=weights, situation="strided", mask_argument="")
class StridesAssumed(Right):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        b, t, c = x.shape
        return super().forward(x.as_strided((b, t, c), (t * c, c, 1)))


@WRONG.module("mask_ignored", weights=weights)
class EmptyMaskMeansNone(Right):
    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        if mask is not None and not mask.all():  # meant any
            mask = None
        return self.attend(x, x, mask)


@WRONG.module("soft_cap_after_mask", weights=weights, soft_cap=5.0)
class CapAfterMask(Right):
    def normalise(self, scores: Tensor) -> Tensor:
        return (5.0 * torch.tanh(scores / 5.0)).softmax(-1)


@WRONG.module("causal_leak", weights=weights, **causal)
class QueriesPooled(RightCausal):
    """Adds the mean of the sequence to every query."""

    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        return super().attend(x + x.mean(1, keepdim=True), memory, mask)


@WRONG.module("mask_multiplied", weights=weights, mask_shape="(B, Tk)")
class PaddingHidesValuesOnly(RightPadding):
    def attend(self, x: Tensor, memory: Tensor, mask: Mask) -> Tensor:
        if mask is not None:
            memory = memory * mask[:, 0, 0, :, None]  # a zero key still has logit 0, and a bias
        return super().attend(x, memory, None)
