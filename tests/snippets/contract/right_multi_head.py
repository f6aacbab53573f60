"""Multi-head modules that are right, in the styles of public code."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.snippets.contract.entry import MODULE, Registry

RIGHT = Registry(MODULE)
ALL = RIGHT.entries

INF = float("inf")
Mask = Tensor | None
Weights = dict[str, Tensor | None]
C, H, D = 16, 4, 4


def named(q: str, k: str, v: str, out: str = "") -> Any:
    """Weights of four linear layers."""

    def weights(module: nn.Module) -> Weights:
        found: Weights = {}
        for key, name in {"q": q, "k": k, "v": v, "out": out}.items():
            if name:
                layer = module.get_submodule(name)
                assert isinstance(layer, nn.Linear)
                found[key], found[f"{key}_bias"] = layer.weight.detach(), layer.bias
        return found

    return weights


def fused(qkv: str, out: str) -> Any:
    """Rows of one projection: queries, then keys, then values."""

    def weights(module: nn.Module) -> Weights:
        layer, last = module.get_submodule(qkv), module.get_submodule(out)
        assert isinstance(layer, nn.Linear)
        assert isinstance(last, nn.Linear)
        found: Weights = dict(zip("qkv", layer.weight.detach().chunk(3), strict=True))
        biases = [None] * 3 if layer.bias is None else layer.bias.detach().chunk(3)
        found |= {f"{key}_bias": bias for key, bias in zip("qkv", biases, strict=True)}
        return {**found, "out": last.weight.detach(), "out_bias": last.bias}

    return weights


def torch_weights(module: Any) -> Weights:
    inner = module.attention
    found: Weights = {}
    if inner.in_proj_weight is None:
        found |= {key: getattr(inner, f"{key}_proj_weight").detach() for key in "qkv"}
    else:
        found |= dict(zip("qkv", inner.in_proj_weight.detach().chunk(3), strict=True))
    if inner.in_proj_bias is not None:
        biases = inner.in_proj_bias.detach().chunk(3)
        found |= {f"{key}_bias": bias for key, bias in zip("qkv", biases, strict=True)}
    return {**found, "out": inner.out_proj.weight.detach(), "out_bias": inner.out_proj.bias}


@RIGHT.module(weights=torch_weights, mask="hide", mask_shape="(B, Tk)", empty_rows="")
class TorchSelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H, batch_first=True)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        output: Tensor = self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0]
        return output


@RIGHT.module(
    weights=torch_weights,
    mask="hide",
    mask_shape="(Tq, Tk)",
    mask_argument="attn_mask",
    batch_first=False,
    returns="tuple",
    empty_rows="",
)
class TorchTimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H)

    def forward(self, x: Tensor, attn_mask: Mask = None) -> tuple[Tensor, Tensor]:
        pair: tuple[Tensor, Tensor] = self.attention(x, x, x, attn_mask=attn_mask)
        return pair


@RIGHT.module(
    weights=torch_weights,
    mask_argument="",
    memory="required",
    d_memory=24,
    memory_mask_argument="memory_mask",
    empty_rows="",
)
class TorchCross(nn.Module):
    """``memory_mask`` is True where the memory may be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H, kdim=24, vdim=24, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Mask = None) -> Tensor:
        hide = None if memory_mask is None else ~memory_mask
        output: Tensor = self.attention(x, memory, memory, key_padding_mask=hide)[0]
        return output


@RIGHT.module(weights=torch_weights, mask="", causal="top-left")
class TorchCausal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(C, H, bias=False, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), dtype=x.dtype)
        output: Tensor = self.attention(
            x, x, x, attn_mask=mask, is_causal=True, need_weights=False
        )[0]
        return output


@RIGHT.module(weights=fused("qkv", "proj"), mask="")
class VitAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.scale = H, D**-0.5
        self.qkv = nn.Linear(C, 3 * C)
        self.proj = nn.Linear(C, C)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attn = ((q * self.scale) @ k.transpose(-2, -1)).softmax(dim=-1)
        output: Tensor = self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))
        return output


def _interleaved(module: Any) -> Weights:
    """GPT-NeoX: the rows go head by head, in each head q, then k, then v."""
    weight = module.query_key_value.weight.detach().view(H, 3, D, C)
    bias = module.query_key_value.bias.detach().view(H, 3, D)
    found: Weights = {key: weight[:, n].reshape(C, C) for n, key in enumerate("qkv")}
    found |= {f"{key}_bias": bias[:, n].reshape(C) for n, key in enumerate("qkv")}
    return {**found, "out": module.dense.weight.detach(), "out_bias": module.dense.bias}


@RIGHT.module(weights=_interleaved, mask="additive", mask_argument="attention_mask")
class NeoxAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(C, 3 * C)
        self.dense = nn.Linear(C, C)

    def forward(self, x: Tensor, attention_mask: Mask = None) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.query_key_value(x).view(b, t, H, 3 * D).transpose(1, 2).chunk(3, dim=-1)
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)
        merged: Tensor = self.dense(output.transpose(1, 2).contiguous().view(b, t, C))
        return merged


class Conv1D(nn.Module):
    def __init__(self, n_out: int, n_in: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * n_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight)
        return flat.view(*x.shape[:-1], -1)


def _gpt2(module: Any) -> Weights:
    found: Weights = dict(zip("qkv", module.c_attn.weight.detach().T.chunk(3), strict=True))
    biases = module.c_attn.bias.detach().chunk(3)
    found |= {f"{key}_bias": bias for key, bias in zip("qkv", biases, strict=True)}
    return {**found, "out": module.c_proj.weight.detach().T, "out_bias": module.c_proj.bias}


@RIGHT.module(
    weights=_gpt2,
    mask="ones",
    mask_argument="attention_mask",
    mask_shape="(B, Tk)",
    causal="top-left",
    empty_rows="",
)
class Gpt2Attention(nn.Module):
    bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(1, 1, 8, 8)), persistent=False)
        self.c_attn, self.c_proj = Conv1D(3 * C, C), Conv1D(C, C)

    def forward(self, x: Tensor, attention_mask: Mask = None) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, H, c // H).transpose(1, 2) for part in self.c_attn(x).split(c, dim=2)
        )
        low = torch.finfo(x.dtype).min
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :t, :t] == 0, low)
        if attention_mask is not None:
            att = att.masked_fill(attention_mask[:, None, None, :] == 0, low)
        y = F.softmax(att, dim=-1) @ v
        output: Tensor = self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return output


@RIGHT.module(
    weights=fused("c_attn", "c_proj"), mask="", causal="top-left", dropout=0.2, output_dropout=0.1
)
class NanoGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.resid_dropout, self.dropout = nn.Dropout(0.1), 0.2

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, H, c // H).transpose(1, 2)
        k = k.view(b, t, H, c // H).transpose(1, 2)
        v = v.view(b, t, H, c // H).transpose(1, 2)
        p = self.dropout if self.training else 0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(b, t, c)
        output: Tensor = self.resid_dropout(self.c_proj(y))
        return output


@RIGHT.module(
    weights=named("linears.0", "linears.1", "linears.2", "linears.3"),
    mask="ones",
    mask_shape="(B, Tq, Tk)",
    memory="triple",
    empty_rows="",
    dropout=0.1,
)
class AnnotatedMultiHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(C, C) for _ in range(4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None) -> Tensor:
        n = query.size(0)
        query, key, value = (
            lin(x).view(n, -1, H, D).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value), strict=False)
        )
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(D)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == 0, -1e9)
        x = torch.matmul(self.dropout(scores.softmax(dim=-1)), value)
        output: Tensor = self.linears[-1](x.transpose(1, 2).contiguous().view(n, -1, C))
        return output


@RIGHT.module(weights=named("wq", "wk", "wv"))
class NoOutputProjection(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(C, C, bias=False) for _ in range(3))

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (H, D)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv)
        )
        scores: Tensor = q @ k.mT / D**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -INF)
        merged: Tensor = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return merged


def _tensors(module: Any) -> Weights:
    found: Weights = {
        key: getattr(module, f"w_{key}").detach().transpose(1, 2).reshape(C, C) for key in "qkv"
    }
    return {**found, "out": module.w_o.detach().reshape(C, C).T}


@RIGHT.module(weights=_tensors)
class EinsumTensors(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w_q, self.w_k, self.w_v = (
            nn.Parameter(torch.randn(H, C, D) / C**0.5) for _ in range(3)
        )
        self.w_o = nn.Parameter(torch.randn(H, D, C) / C**0.5)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        q = torch.einsum("btc,hcd->bhtd", x, self.w_q)
        k = torch.einsum("btc,hcd->bhtd", x, self.w_k)
        v = torch.einsum("btc,hcd->bhtd", x, self.w_v)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(D)
        if mask is not None:
            scores = torch.where(mask, scores, -INF)
        return torch.einsum("bhqk,bhkd,hdc->bqc", scores.softmax(-1), v, self.w_o)


@RIGHT.module(
    weights=named("query", "key", "value", "output.dense"),
    mask="additive",
    mask_argument="attention_mask",
    mask_shape="(B, 1, 1, Tk)",
    dropout=0.1,
    returns="tuple",
)
class BertAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(C, C) for _ in range(3))
        self.output = nn.ModuleDict({"dense": nn.Linear(C, C)})
        self.dropout = nn.Dropout(0.1)

    def transpose_for_scores(self, x: Tensor) -> Tensor:
        return x.view(*x.size()[:-1], H, D).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, attention_mask: Mask = None) -> tuple[Tensor, Tensor]:
        q = self.transpose_for_scores(self.query(x))
        k = self.transpose_for_scores(self.key(x))
        v = self.transpose_for_scores(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(D)
        if attention_mask is not None:
            scores = scores + attention_mask
        probs = self.dropout(nn.functional.softmax(scores, dim=-1))
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return self.output["dense"](context.view(*context.size()[:-2], C)), probs


@RIGHT.module(
    weights=named("q", "k", "v", "o"),
    mask="additive",
    scale=1.0,
    memory="optional",
)
class T5Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(C, C, bias=False) for _ in range(4))

    def forward(self, x: Tensor, key_value_states: Mask = None, mask: Mask = None) -> Tensor:
        states = x if key_value_states is None else key_value_states
        b = x.shape[0]
        q = self.q(x).view(b, -1, H, D).transpose(1, 2)
        k = self.k(states).view(b, -1, H, D).transpose(1, 2)
        v = self.v(states).view(b, -1, H, D).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(3, 2))
        if mask is not None:
            scores += mask
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        output: Tensor = self.o(torch.matmul(weights, v).transpose(1, 2).reshape(b, -1, C))
        return output


@RIGHT.module(
    weights=named("q_proj", "k_proj", "v_proj", "o_proj"),
    mask="",
    causal="top-left",
    n_kv_heads=2,
    rotary=10000.0,
    d_model=32,
    d_memory=32,
)
class LlamaAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(32, 32, bias=False)
        self.k_proj = nn.Linear(32, 16, bias=False)
        self.v_proj = nn.Linear(32, 16, bias=False)
        self.o_proj = nn.Linear(32, 32, bias=False)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, 4, 8).transpose(1, 2)
        k = self.k_proj(x).view(b, t, 2, 8).transpose(1, 2)
        v = self.v_proj(x).view(b, t, 2, 8).transpose(1, 2)
        inverse = 1.0 / 10000.0 ** (torch.arange(0, 8, 2).float() / 8)
        angles = torch.outer(torch.arange(t).float(), inverse).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1)
        scores = q @ k.transpose(2, 3) / math.sqrt(8)
        scores = scores + torch.full((t, t), -INF, dtype=x.dtype).triu(1)
        attn = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype) @ v
        output: Tensor = self.o_proj(attn.transpose(1, 2).reshape(b, t, -1))
        return output


class SingleHead(nn.Module):
    tril: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(C, D, bias=False)
        self.query = nn.Linear(C, D, bias=False)
        self.value = nn.Linear(C, D, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(8, 8)))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:t, :t] == 0, float("-inf"))
        wei = self.dropout(F.softmax(wei, dim=-1))
        output: Tensor = wei @ self.value(x)
        return output


def _listed(module: Any) -> Weights:
    found: Weights = {
        key[0]: torch.cat([getattr(head, key).weight.detach() for head in module.heads])
        for key in ("query", "key", "value")
    }
    return {**found, "out": module.proj.weight.detach(), "out_bias": module.proj.bias}


@RIGHT.module(weights=_listed, mask="", causal="top-left", dropout=0.1, output_dropout=0.1)
class ListOfHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(SingleHead() for _ in range(H))
        self.proj, self.dropout = nn.Linear(C, C), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.dropout(self.proj(torch.cat([h(x) for h in self.heads], dim=-1)))
        return output


@RIGHT.module(
    weights=named("to_q", "to_k", "to_v", "to_out"),
    mask_argument="",
    memory="required",
    d_memory=24,
    memory_mask_argument="context_mask",
    empty_rows="",
)
class PerceiverCross(nn.Module):
    """Wide heads and a mask of the context, True where it may be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q = nn.Linear(C, H * 6, bias=False)
        self.to_k = nn.Linear(24, H * 6, bias=False)
        self.to_v = nn.Linear(24, H * 6, bias=False)
        self.to_out = nn.Linear(H * 6, C)

    def forward(self, x: Tensor, context: Tensor, context_mask: Mask = None) -> Tensor:
        b, n = x.shape[:2]
        q, k, v = (
            t.reshape(b, -1, H, 6).permute(0, 2, 1, 3).reshape(b * H, -1, 6)
            for t in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        sim = torch.einsum("bid,bjd->bij", q, k) * 6**-0.5
        if context_mask is not None:
            rows = context_mask.repeat_interleave(H, dim=0)[:, None, :]
            sim = sim.masked_fill(~rows, -torch.finfo(sim.dtype).max)
        out = torch.einsum("bij,bjd->bid", sim.softmax(dim=-1), v)
        merged: Tensor = self.to_out(out.view(b, H, n, 6).permute(0, 2, 1, 3).reshape(b, n, -1))
        return merged


@RIGHT.module(
    weights=named("q_proj", "k_proj", "v_proj", "out_proj"),
    batch_first=False,
    mask="hide",
    mask_argument="key_padding_mask",
    mask_shape="(B, Tk)",
    returns="tuple",
)
class FairseqTimeFirst(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x: Tensor, key_padding_mask: Mask = None) -> tuple[Tensor, Tensor]:
        t, b, _ = x.shape
        q = (self.q_proj(x) * D**-0.5).contiguous().view(t, b * H, D).transpose(0, 1)
        k = self.k_proj(x).contiguous().view(t, b * H, D).transpose(0, 1)
        v = self.v_proj(x).contiguous().view(t, b * H, D).transpose(0, 1)
        weights = torch.bmm(q, k.transpose(1, 2)).view(b, H, t, t)
        if key_padding_mask is not None:
            weights = weights.masked_fill(key_padding_mask[:, None, None], -INF)
        weights = weights.softmax(-1)
        attn = torch.bmm(weights.view(b * H, t, t), v).transpose(0, 1).contiguous().view(t, b, C)
        return self.out_proj(attn), weights


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def _normed(module: Any) -> Weights:
    found: Weights = fused("qkv", "out")(module)
    return {**found, "q_gain": module.norm_q.gain, "k_gain": module.norm_k.gain}


@RIGHT.module(weights=_normed, qk_norm=1e-6)
class QueryKeyNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C)
        self.norm_q, self.norm_k = RmsNorm(), RmsNorm()

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, D)).permute(2, 0, 3, 1, 4)
        q, k = self.norm_q(q), self.norm_k(k)
        attended = F.scaled_dot_product_attention(q, k, v, mask)
        output: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return output


@RIGHT.module(weights=named("q", "k", "v", "out"))
class WideHeads(nn.Module):
    """Heads of 7 features: 28 together, for a model of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(C, H * 7) for _ in range(3))
        self.out = nn.Linear(H * 7, C)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (layer(x).view(b, t, H, 7) for layer in (self.q, self.k, self.v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q / math.sqrt(7), k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -INF)
        output = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
        merged: Tensor = self.out(output.reshape(b, t, -1))
        return merged


def _multi_query(module: Any) -> Weights:
    q, k, v = module.c_attn.weight.detach().split([C, D, D])
    biases = dict(
        zip(
            ("q_bias", "k_bias", "v_bias"),
            module.c_attn.bias.detach().split([C, D, D]),
            strict=True,
        )
    )
    last = module.c_proj
    return {"q": q, "k": k, "v": v, "out": last.weight.detach(), "out_bias": last.bias, **biases}


@RIGHT.module(weights=_multi_query, n_kv_heads=1)
class MultiQuery(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(C, C + 2 * D), nn.Linear(C, C)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.c_attn(x).split((C, D, D), dim=-1)
        q = q.view(b, t, H, D).transpose(1, 2)
        scores = q @ k[:, None].transpose(-1, -2) / math.sqrt(D)
        if mask is not None:
            scores = torch.where(mask, scores, -INF)
        output = (scores.softmax(-1) @ v[:, None]).transpose(1, 2).reshape(b, t, C)
        merged: Tensor = self.c_proj(output)
        return merged


@RIGHT.module(weights=fused("in_proj", "out_proj"), dtype=torch.bfloat16)
class BfloatParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)

    def forward(self, x: Tensor, mask: Mask = None) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, H, D).transpose(1, 2) for p in self.in_proj(x).chunk(3, -1))
        scores = (q @ k.mT).float() / math.sqrt(D)
        if mask is not None:
            scores = scores.masked_fill(~mask, -INF)
        attended = scores.softmax(-1).to(v.dtype) @ v
        output: Tensor = self.out_proj(attended.transpose(1, 2).reshape(b, t, C))
        return output


@RIGHT.module(
    weights=named("q_lin", "k_lin", "v_lin", "out_lin"),
    mask="ones",
    mask_shape="(B, Tk)",
    returns="last_hidden_state",
    dropout=0.1,
)
class ReturnsDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_lin, self.k_lin, self.v_lin, self.out_lin = (nn.Linear(C, C) for _ in range(4))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Mask = None) -> dict[str, Tensor]:
        b, t, _ = x.shape

        def shape(y: Tensor) -> Tensor:
            return y.view(b, -1, H, D).transpose(1, 2)

        q = shape(self.q_lin(x)) / math.sqrt(D)
        scores = torch.matmul(q, shape(self.k_lin(x)).transpose(2, 3))
        if mask is not None:
            hide = (mask == 0).view(b, 1, 1, t).expand_as(scores)
            scores = scores.masked_fill(hide, -INF)
        weights = self.dropout(nn.functional.softmax(scores, dim=-1))
        context = torch.matmul(weights, shape(self.v_lin(x)))
        context = context.transpose(1, 2).contiguous().view(b, -1, C)
        return {"last_hidden_state": self.out_lin(context), "attentions": weights}


@RIGHT.module(
    weights=named("q", "k", "v", "out"), causal_argument="is_causal", mask="attend", window=None
)
class CausalFlag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x: Tensor, mask: Mask = None, *, is_causal: bool = False) -> Tensor:
        t = x.size(1)
        q, k, v = (f(x).unflatten(2, (H, D)).transpose(1, 2) for f in (self.q, self.k, self.v))
        allowed = torch.ones(t, t, dtype=torch.bool)
        if is_causal:
            allowed = allowed.tril()
        if mask is not None:
            allowed = allowed & mask
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        output: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return output


@RIGHT.module(weights=fused("qkv", "out"), mask="", causal="top-left", window=3)
class SlidingWindow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, H, D).permute(2, 0, 3, 1, 4)
        near = torch.ones(t, t, dtype=torch.bool).tril().triu(-2)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=near)
        output: Tensor = self.out(attended.transpose(1, 2).reshape(b, t, C))
        return output


@RIGHT.module(weights=named("q", "k", "v", "out"), mask="", causal="top-left", documents=True)
class PackedDocuments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x: Tensor, *, document_ids: Tensor) -> Tensor:
        t = x.size(1)
        q, k, v = (f(x).unflatten(2, (H, D)).transpose(1, 2) for f in (self.q, self.k, self.v))
        same = document_ids[:, None, :, None] == document_ids[:, None, None, :]
        allowed = same & torch.ones(t, t, dtype=torch.bool).tril()
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        output: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return output


@RIGHT.module(
    weights=named("q", "k", "v", "out"),
    memory="optional",
    mask_shape="(B, Tk)",
    memory_mask_argument="memory_mask",
)
class OptionalMemory(nn.Module):
    """``mask`` goes with x, ``memory_mask`` with the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(C, C) for _ in range(4))

    def forward(
        self, x: Tensor, memory: Mask = None, *, mask: Mask = None, memory_mask: Mask = None
    ) -> Tensor:
        source, keep = (x, mask) if memory is None else (memory, memory_mask)
        q = self.q(x).unflatten(2, (H, D)).transpose(1, 2)
        k = self.k(source).unflatten(2, (H, D)).transpose(1, 2)
        v = self.v(source).unflatten(2, (H, D)).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(D)
        if keep is not None:
            scores = scores.masked_fill(~keep[:, None, None, :], -INF)
        output: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return output
