"""Multi-head attention: several softmaxes over slices of one projection."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """Attend with several heads, each on its own slice of the projections.

    Every head has queries, keys and values of width d = d_model / n_heads and
    a softmax of its own; the outputs of the heads, side by side, are projected
    once more.

    Parameters
    ----------
    d_model : int
        Width C of the input, of the memory and of the output. A memory of
        another width needs a projection to d_model before this module.
    n_heads : int
        Number of query heads H, a divisor of d_model.
    n_kv_heads : int, optional
        Number of key and value heads Hkv, a divisor of n_heads, which is the
        default. Query head h uses key and value head h // (H / Hkv).
    bias : bool
        Whether both projections have one.
    dropout : float
        Share of the weights that is dropped, in training only.

    Raises
    ------
    TypeError, ValueError
        When these numbers, or later the inputs, do not fit.

    Notes
    -----
    Weights start uniform with variance 1 / d_model, biases at 0. Inputs of
    variance 1 then give queries, keys and values of variance 1 and logits of
    variance 1, which is what the scale 1 / sqrt(d) assumes, for any number of
    heads. (It is Xavier's rule for each square projection by itself.)

    The rows of ``qkv.weight`` are those of the queries, then the keys, then
    the values, in each part head after head, as in the ``in_proj_weight`` of
    `nn.MultiheadAttention` and other fused projections [q; k; v]: load such a
    state under the names ``qkv`` and ``out``. Some models fuse head by head
    instead, [q0; k0; v0; q1; ...]: the shape is the same, so nothing would
    complain. Reorder the rows of those (of the bias, too) with
    ``w.unflatten(0, (H, 3, d)).transpose(0, 1).flatten(0, 2)``.

    Inputs must be finite, which is not checked: a NaN in a masked value reaches
    the output, because 0 · NaN is NaN.

    Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.2,
    arXiv:1706.03762; fewer key and value heads: Ainslie et al. (2023), "GQA",
    arXiv:2305.13245.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        for name, n in (
            ("d_model", d_model),
            ("n_heads", n_heads),
            ("n_kv_heads", n_kv_heads),
        ):
            if not isinstance(n, int) or n < 1:
                raise ValueError(
                    f"{name} must be an int, 1 or more, got {n!r}: "
                    "for quotients use //, for other numbers int"
                )
        if d_model % n_heads:
            fits = -(-d_model // n_heads) * n_heads
            raise ValueError(
                f"d_model must be divisible by n_heads, got {d_model} and "
                f"{n_heads}: heads have one width, d_model / n_heads; change "
                f"one of them, for example to d_model={fits}"
            )
        if n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads must be divisible by n_kv_heads, got {n_heads} and "
                f"{n_kv_heads}: each key and value head serves equally many "
                "query heads; n_kv_heads=1 always fits"
            )
        if not 0 <= dropout < 1:
            raise ValueError(
                "dropout must be the share to drop, 0 or more and below 1, "
                f"got {dropout}"
            )
        self.d_model, self.dropout = d_model, dropout
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.kv_width = n_kv_heads * (d_model // n_heads)  # of all their heads
        self.qkv = nn.Linear(d_model, d_model + 2 * self.kv_width, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew and set the biases to 0."""
        bound = math.sqrt(3 / self.d_model)  # uniform of variance 1 / d_model
        for linear in (self.qkv, self.out):
            nn.init.uniform_(linear.weight, -bound, bound)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Copy a layer of PyTorch's, on its device and in its dtype and mode.

        The copy wants the batch first, whatever ``batch_first`` was, and all of
        its weights are trainable, also those of a frozen layer. Its masks say
        who *may* attend. Of boolean ones pass ``~attn_mask``, or
        ``~attn_mask.unflatten(0, (B, H))`` where it is (B·H, Tq, Tk), and
        ``~key_padding_mask[:, None, None]``.

        Raises
        ------
        TypeError
            When the layer is not an `nn.MultiheadAttention`.
        ValueError
            When it has keys or values of another width (kdim, vdim), extra keys
            (add_bias_kv) or zero keys (add_zero_attn).
        """
        if not isinstance(layer, nn.MultiheadAttention):
            raise TypeError(
                "layer must be an nn.MultiheadAttention, "
                f"got {type(layer).__name__}: "
                "load other fused weights with load_state_dict"
            )
        for refused, option in (
            (layer.in_proj_weight is None, "kdim or vdim other than embed_dim"),
            (layer.bias_k is not None, "add_bias_kv=True"),
            (layer.add_zero_attn, "add_zero_attn=True"),
        ):
            if refused:
                raise ValueError(
                    f"a layer with {option} cannot be represented, "
                    f"got embed_dim {layer.embed_dim}, kdim {layer.kdim}, "
                    f"vdim {layer.vdim}: keep nn.MultiheadAttention for it"
                )
        state = {
            "qkv.weight": layer.in_proj_weight,
            "qkv.bias": layer.in_proj_bias,
            "out.weight": layer.out_proj.weight,
            "out.bias": layer.out_proj.bias,
        }
        with torch.device("meta"):  # draws no random numbers
            copy = cls(
                layer.embed_dim,
                layer.num_heads,
                bias=layer.in_proj_bias is not None,
                dropout=layer.dropout,
            )
        copy.load_state_dict(
            {k: x.detach().clone() for k, x in state.items() if x is not None},
            assign=True,
        )
        return copy.train(layer.training)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from x to the memory, or from x to x.

        Parameters
        ----------
        x : Tensor, shape (B, Tq, C)
            What the queries are made of, in the dtype of the weights (in any
            but float64 under autocast).
        memory : Tensor, shape (B, Tk, C), optional
            What the keys and values are made of; x unless given.
        mask : Tensor of bool, broadcastable to (B, H, Tq, Tk), optional
            True = may attend. Two dimensions are (Tq, Tk), else give all four.
            A query that may attend to no key gets nothing from that head, and
            zero weights. With B = Tq a padding (B, Tk) passes for (Tq, Tk):
            always write ``padding[:, None, None]``.
        is_causal : bool
            Whether query i may attend to keys 0 to i only, and to those of
            them that the mask allows. Needs Tq = Tk.
        need_weights : bool
            Whether to return the weights, which makes a matrix of (Tq, Tk) for
            each head, while PyTorch's fused kernels make none. Those kernels
            have no second derivatives on a CPU; this way has.

        Returns
        -------
        output : Tensor, shape (B, Tq, C)
        weights : Tensor, shape (B, H, Tq, Tk), or None
            One matrix a head. In training they are those after dropout, so that
            rows need not sum to 1.

        Raises
        ------
        TypeError, ValueError
            When the inputs do not fit, with what to change.
        """
        memory = x if memory is None else memory
        self._check(x, memory, mask, is_causal)
        q, k, v = self._project(x, memory)
        if mask is not None:  # PyTorch's fast kernels want four dimensions
            mask = mask[None, None] if mask.ndim == 2 else mask
        if is_causal and (mask is not None or need_weights):
            past = x.new_ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
            mask = past if mask is None else mask & past
            is_causal = False
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            output, weights = self._attend(q, k, v, mask, dropout)
        else:
            output = F.scaled_dot_product_attention(
                q,
                k,
                v,
                mask,
                dropout,
                is_causal,
                enable_gqa=self.n_kv_heads < self.n_heads,
            )
        heads = output.transpose(1, 2).flatten(2)  # (B, H, Tq, d) -> (B, Tq, C)
        return self.out(heads), weights

    def _project(self, x: Tensor, memory: Tensor) -> list[Tensor]:
        """Queries (B, H, Tq, d), keys and values (B, Hkv, Tk, d)."""
        if memory is x:  # one product is faster than two
            rows = [self.d_model, self.kv_width, self.kv_width]
            projected = torch.split(self.qkv(x), rows, -1)
        else:
            rows = [self.d_model, 2 * self.kv_width]
            weight, bias = self.qkv.weight, self.qkv.bias
            parts = (None, None) if bias is None else torch.split(bias, rows)
            q, kv = map(F.linear, (x, memory), torch.split(weight, rows), parts)
            projected = (q, *kv.chunk(2, -1))
        heads = (self.n_heads, self.n_kv_heads, self.n_kv_heads)
        d = self.d_model // self.n_heads
        # Each (B, T, n·d) -> (B, T, n, d) -> (B, n, T, d)
        return [
            y.view(*y.shape[:2], n, d).transpose(1, 2)
            for y, n in zip(projected, heads, strict=True)
        ]

    def _attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        dropout: float,
    ) -> tuple[Tensor, Tensor]:
        """Output (B, H, Tq, d) and weights (B, H, Tq, Tk), step by step."""
        dtype, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
        n = self.n_heads // self.n_kv_heads
        k, v = (x.repeat_interleave(n, dim=1) for x in (k, v))  # (B, H, Tk, d)
        q, k, v = q.to(wide), k.to(wide), v.to(wide)
        # The meta device, which holds shapes only, has no autocast of its own.
        device = "cpu" if q.is_meta else q.device.type
        with torch.autocast(device, enabled=False):
            logits = (q * (1 / math.sqrt(q.shape[-1]))) @ k.mT  # (B, H, Tq, Tk)
            if mask is None:
                weights = logits.softmax(-1)
            else:
                alive = mask.any(-1, keepdim=True)
                # A row of nothing but -inf would have NaN weights.
                hidden = torch.where(alive, -math.inf, 0.0).to(wide)
                weights = torch.where(mask, logits, hidden).softmax(-1) * alive
            weights = F.dropout(weights, dropout)
            output = weights @ v  # (B, H, Tq, d)
        return output.to(dtype), weights.to(dtype)

    def _check(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        is_causal: bool,
    ) -> None:
        """Refuse inputs that do not fit, saying what to change."""
        own = self.qkv.weight.dtype
        for name, y in (("x", x), ("memory", memory)):
            if not isinstance(y, Tensor):
                raise TypeError(
                    f"{name} must be a tensor, got {type(y).__name__}: "
                    "use torch.tensor"
                )
            if y.ndim != 3 or y.shape[-1] != self.d_model:
                raise ValueError(
                    f"{name} must be (B, T, d_model) with d_model = "
                    f"{self.d_model}, got {tuple(y.shape)}: add the batch, for "
                    f"example {name}[None], or project to that width"
                )
            # The meta device has no autocast of its own.
            device = "cpu" if y.is_meta else y.device.type
            if y.dtype != own and (
                torch.float64 in (y.dtype, own)
                or not y.is_floating_point()
                or not torch.is_autocast_enabled(device)
            ):
                raise TypeError(
                    f"{name} must have the dtype of the weights, {own}, got "
                    f"{y.dtype}: convert it, or the module with .to; mixed "
                    "precision needs torch.autocast"
                )
        (b, t_q), (memory_b, t_k) = x.shape[:2], memory.shape[:2]
        if b != memory_b:
            raise ValueError(
                f"x and memory must have one batch size, got {b} and {memory_b}"
                f" (x {tuple(x.shape)}, memory {tuple(memory.shape)}): "
                "expand the one that is shared, and put the batch first"
            )
        if is_causal and t_q != t_k:
            raise ValueError(
                "is_causal needs as many keys as queries, "
                f"got Tq = {t_q} and Tk = {t_k}: PyTorch aligns its mask at "
                "the top left, so that the first query would see the first "
                "key only; build the mask that you mean, for example "
                "torch.ones(Tq, Tk, dtype=torch.bool).tril(Tk - Tq)"
            )
        if mask is None:
            return
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            tensor = isinstance(mask, Tensor)
            swapped = tensor and mask.is_floating_point()  # perhaps the values
            raise TypeError(
                "mask must be a boolean tensor (True = may attend), got "
                f"{mask.dtype if tensor else type(mask).__name__}: "
                "where 0 means attend (additive masks, nn.MultiheadAttention's "
                "inverted masks) pass mask == 0, "
                "where 1 means attend pass mask != 0"
                + "; the third argument is the mask: "
                "keys and values both come from memory" * swapped
            )
        shape = (b, self.n_heads, t_q, t_k)
        sizes = zip(reversed(mask.shape), reversed(shape), strict=False)
        if mask.ndim not in (2, 4) or any(m not in (1, n) for m, n in sizes):
            raise ValueError(
                f"mask must broadcast to (B, H, Tq, Tk) = {shape} and have 2 "
                f"of its dimensions or all, got {tuple(mask.shape)}: pass "
                "mask[:, None] for (B, Tq, Tk), mask[None] for (H, Tq, Tk), "
                "mask[:, None, None] for (B, Tk), "
                "mask.unflatten(0, (B, H)) for (B·H, Tq, Tk)"
            )
