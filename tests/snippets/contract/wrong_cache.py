"""Wrong decoders with a cache; `right_cache` says what the settings mean.

`settings` say what the author meant. Where `needs` is empty the full pass is right, and the steps
differ from it; else both are wrong alike. `situation` says where:

one_by_one       single tokens from the start           prefill        4 tokens, then single tokens
chunks           chunks of 3, 3, 1, 2, ...               long_chunk     4 tokens, then 7, then 1
second_sequence  the same after another sequence          after_longer   after a longer sequence
in_turns         two sequences, a token of each in turn   after_full     a full pass in between
left_padded      rows of 9, 6 and 2 real tokens: prefill, then single tokens
full             the full pass alone
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.snippets.contract.entries import Apply, Entry, Pair, Weights, cached, collect, weights
from tests.snippets.contract.right_cache import (
    BUCKETS,
    EMBEDDING,
    SLOPES,
    TABLE,
    Blocks,
    Buffer,
    Padded,
    State,
    alibi_full,
    attend,
    causal,
    growing_learned_distance,
    learned_full,
    left_padded_learned_positions,
    left_padded_shared_rotary_positions,
    merge,
    padded_causal,
    plain_full,
    pool,
    rope,
    rotary_full,
    scaled_by_log_of_position,
    sinks_and_window,
    sinks_at_places_in_the_cache,
    split,
    two_layers_of_tokens,
)

ALL: dict[str, Entry] = {}
SPEC = "specification"


def past_of(state: State) -> int:
    return 0 if state is None else state[0].shape[2]


def span(start: int, x: Tensor) -> Tensor:
    return torch.arange(start, start + x.shape[1])


def turned(w: Weights, x: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return rope(split(x @ w.q), at), rope(split(x @ w.k), at), split(x @ w.v)


def straight(w: Weights, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return split(x @ w.q), split(x @ w.k), split(x @ w.v)


def join(state: State, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    if state is None:
        return k, v
    return torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)


def out_of(w: Weights, mixed: Tensor) -> Tensor:
    return merge(mixed) @ w.o


Result = tuple[Tensor, State]

# Chunks against one pass.


@collect(
    ALL,
    cached(),
    mistake="chunks_differ",
    situation="one_by_one",
    source="https://github.com/pytorch/executorch/pull/2010",
)
def positions_start_again_with_every_chunk() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = turned(w, x, span(0, x))
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


@collect(ALL, cached(), mistake="chunks_differ", situation="one_by_one")
def only_keys_know_the_cached_length() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q = rope(split(x @ w.q), span(0, x))
        k, v = rope(split(x @ w.k), span(past_of(state), x)), split(x @ w.v)
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


@collect(ALL, cached(), mistake="chunks_differ", situation="prefill")
def decoded_keys_one_position_late() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        start = past_of(state) if state is None else past_of(state) + 1
        q, k, v = turned(w, x, span(start, x))
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(),
    mistake="chunks_differ",
    situation="prefill",
    listed=False,
)
def positions_count_calls() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, int] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, int]]:
        calls = 0 if state is None else state[2]
        q, k, v = turned(w, x, span(calls, x))
        k, v = join(None if state is None else state[:2], k, v)
        out = attend(q, k, v, causal(q.shape[2], k.shape[2]))
        return out_of(w, out), (k, v, calls + 1)

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(positions="none"),
    mistake="chunks_differ",
    also=("causal_leak",),
    situation="chunks",
    source="https://github.com/Mikyx-1/TinyLLM/issues/17",
)
def no_mask_once_there_is_a_cache() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        k, v = join(state, k, v)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=state is None)
        return out_of(w, out), (k, v)

    return Pair(plain_full(w), step)


@collect(
    ALL,
    cached(positions="none"),
    mistake="chunks_differ",
    also=("causal_alignment",),
    situation="one_by_one",
    source="https://github.com/pytorch/pytorch/issues/103082",
)
def mask_aligned_at_the_first_key() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        k, v = join(state, k, v)
        return out_of(w, F.scaled_dot_product_attention(q, k, v, is_causal=True)), (k, v)

    return Pair(plain_full(w), step)


@collect(
    ALL,
    cached(positions="none"),
    mistake="chunks_differ",
    also=("causal_alignment",),
    situation="chunks",
    source="https://github.com/hyprstream/hyprstream/pull/1521",
)
def mask_aligned_at_the_first_key_in_chunks_only() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        k, v = join(state, k, v)
        allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        return out_of(w, attend(q, k, v, allowed.tril() if x.shape[1] > 1 else allowed)), (k, v)

    return Pair(plain_full(w), step)


@collect(
    ALL,
    cached(positions="none"),
    mistake="chunks_differ",
    also=("causal_leak", "causal_alignment"),
    situation="chunks",
    listed=False,
)
def mask_with_the_past_on_the_wrong_side() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        past, n = past_of(state), x.shape[1]
        k, v = join(state, k, v)
        square = torch.ones(n, n, dtype=torch.bool).tril()
        allowed = torch.cat((square, torch.ones(n, past, dtype=torch.bool)), 1)
        return out_of(w, attend(q, k, v, allowed)), (k, v)

    return Pair(plain_full(w), step)


@collect(ALL, cached(), mistake="chunks_differ", situation="one_by_one", listed=False)
def only_the_last_chunk_is_kept() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, int] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, int]]:
        past = 0 if state is None else state[2]
        q, new_k, new_v = turned(w, x, span(past, x))
        k, v = join(None if state is None else state[:2], new_k, new_v)
        out = attend(q, k, v, causal(q.shape[2], k.shape[2]))
        return out_of(w, out), (new_k, new_v, past + x.shape[1])

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(positions="none"),
    mistake="chunks_differ",
    situation="chunks",
    listed=False,
)
def new_keys_in_front_of_the_old() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        if state is not None:
            k, v = torch.cat((k, state[0]), 2), torch.cat((v, state[1]), 2)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(plain_full(w), step)


@collect(
    ALL, cached(positions="none"), mistake="chunks_differ", situation="one_by_one", listed=False
)
def keys_and_values_joined_in_different_order() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((v, state[1]), 2)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(plain_full(w), step)


@collect(ALL, cached(max_length=64), mistake="chunks_differ", situation="prefill", listed=False)
def length_grows_by_one_a_call() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x)) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        q, k, v = turned(w, x, span(start, x))
        state.k[:, :, start:end], state.v[:, :, start:end] = k, v
        out = attend(q, state.k[:, :, :end], state.v[:, :, :end], causal(x.shape[1], end))
        state.length += 1
        return out_of(w, out), state

    return Pair(rotary_full(w), step)


@collect(ALL, cached(max_length=64), mistake="chunks_differ", situation="one_by_one", listed=False)
def last_slot_overwritten() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x)) if state is None else state
        start = max(state.length - 1, 0)
        end = start + x.shape[1]
        q, k, v = turned(w, x, span(state.length, x))
        state.k[:, :, start:end], state.v[:, :, start:end] = k, v
        out = attend(q, state.k[:, :, :end], state.v[:, :, :end], causal(x.shape[1], end))
        state.length += x.shape[1]
        return out_of(w, out), state

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(positions="learned", max_length=64),
    mistake="chunks_differ",
    also=("offset_ignored",),
    situation="one_by_one",
)
def learned_positions_start_again() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x + TABLE[: x.shape[1]])
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(learned_full(w), step)


@collect(
    ALL,
    cached(positions="alibi"),
    mistake="chunks_differ",
    also=("alibi_while_decoding",),
    situation="one_by_one",
    source="https://github.com/keras-team/keras-hub/issues/2861",
)
def alibi_over_the_chunk_only() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        past = past_of(state)
        k, v = join(state, k, v)
        n = x.shape[1]
        bias = SLOPES[:, None, None] * (torch.arange(n) - torch.arange(n)[:, None])
        bias = F.pad(bias, (past, 0))
        return out_of(w, attend(q, k, v, causal(n, k.shape[2]), bias)), (k, v)

    return Pair(alibi_full(w), step)


@collect(
    ALL,
    cached(positions="alibi"),
    mistake="chunks_differ",
    also=("alibi_while_decoding",),
    situation="one_by_one",
)
def alibi_absolute_distance_from_the_first_key() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        k, v = join(state, k, v)
        distance = (torch.arange(x.shape[1])[:, None] - torch.arange(k.shape[2])).abs()
        allowed = causal(x.shape[1], k.shape[2])
        return out_of(w, attend(q, k, v, allowed, -SLOPES[:, None, None] * distance)), (k, v)

    return Pair(alibi_full(w), step)


@collect(
    ALL,
    cached(positions="t5"),
    mistake="chunks_differ",
    also=("alibi_while_decoding",),
    situation="one_by_one",
    source="https://github.com/NVIDIA/TensorRT-LLM/pull/13870",
    listed=False,
)
def learned_distance_dropped_with_a_cache() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        n = x.shape[1]
        bias: Tensor | float = 0.0
        if state is None:
            at = torch.arange(n)
            bias = BUCKETS[(at[:, None] - at).clamp(0, 7)].movedim(-1, 0)
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(n, k.shape[2]), bias)), (k, v)

    return Pair(growing_learned_distance().full, step)


@collect(
    ALL,
    cached(scaling={"kind": "dynamic linear", "original_length": 8}),
    mistake="chunks_differ",
    situation="prefill",
    source="https://github.com/huggingface/transformers/issues/25104",
    listed=False,
)
def positions_scaled_by_the_length_so_far() -> Pair:
    w = weights()

    def full(x: Tensor) -> Tensor:
        return step(x, None)[0]

    def step(x: Tensor, state: State) -> Result:
        at = span(past_of(state), x)
        scale = max(1.0, (int(at[-1]) + 1) / 8)  # cached keys were turned with an earlier one
        q, k, v = turned(w, x, at / scale)
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(full, step)


@collect(
    ALL,
    cached(n_kv_heads=2),
    mistake="chunks_differ",
    also=("grouped_heads",),
    situation="prefill",
    listed=False,
)
def groups_repeated_then_tiled() -> Pair:
    w = weights(4, 2)

    def step(x: Tensor, state: State) -> Result:
        q, k, v = turned(w, x, span(past_of(state), x))
        if state is None:
            k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        else:
            k, v = k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(),
    mistake="chunks_differ",
    situation="prefill",
    source="https://github.com/InfiniTensor/InfiniLM/pull/553",
    listed=False,
)
def eight_bits_by_the_scale_of_the_first_chunk() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        past = 0 if state is None else state[0].shape[2]
        q, k, v = turned(w, x, span(past, x))
        # Half of the range that was seen first: later keys saturate.
        scale = k.abs().amax() / 127 / 2 if state is None else state[2]
        k = (k / scale).round().clamp(-128, 127).to(torch.int8)
        if state is not None:
            k, v = torch.cat((state[0], k), 2), torch.cat((state[1], v), 2)
        out = attend(q, k * scale, v, causal(q.shape[2], k.shape[2]))
        return out_of(w, out), (k, v, scale)

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(positions="none", log_n=True),
    mistake="chunks_differ",
    situation="one_by_one",
    listed=False,
)
def log_of_the_place_in_the_chunk() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = straight(w, x)
        q = q * (torch.log(4.0 + torch.arange(x.shape[1])) / math.log(4))[:, None]
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(scaled_by_log_of_position().full, step)


@collect(
    ALL,
    cached(layers=2, input="tokens", vocabulary=11),
    mistake="chunks_differ",
    situation="one_by_one",
    listed=False,
)
def second_layer_reads_the_cache_of_the_first() -> Pair:
    right = two_layers_of_tokens()
    layers, embedding = [weights(seed=0), weights(seed=1)], EMBEDDING

    def step(ids: Tensor, state: State) -> Result:
        at, x, cache = span(past_of(state), ids), embedding[ids], state
        kept: State = None
        for index, w in enumerate(layers):
            q, k, v = turned(w, x, at)
            k, v = join(cache, k, v)
            if index == 0:  # every layer was built with layer_idx = 0
                kept = (k, v)
            x = x + out_of(w, attend(q, k, v, causal(len(at), k.shape[2])))
        return x @ embedding.T, kept

    return Pair(right.full, step)


@collect(
    ALL,
    cached(layers=2, input="tokens", vocabulary=11),
    mistake="chunks_differ",
    situation="one_by_one",
    listed=False,
)
def length_counted_once_a_layer() -> Pair:
    right = two_layers_of_tokens()
    layers, embedding = [weights(seed=0), weights(seed=1)], EMBEDDING

    def step(
        ids: Tensor, state: tuple[list[State], int] | None
    ) -> tuple[Tensor, tuple[list[State], int]]:
        caches, length = ([None, None], 0) if state is None else state
        x, new = embedding[ids], list[State]()
        for w, cache in zip(layers, caches, strict=True):
            q, k, v = turned(w, x, span(length, ids))
            k, v = join(cache, k, v)
            length += ids.shape[1]
            x = x + out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2])))
            new.append((k, v))
        return x @ embedding.T, (new, length)

    return Pair(right.full, step)


@collect(
    ALL, cached(positions="none"), mistake="chunks_differ", situation="one_by_one", listed=False
)
def every_slot_is_the_same_scratch_tensor() -> Pair:
    w = weights()

    def step(x: Tensor, state: dict[str, Any] | None) -> tuple[Tensor, dict[str, Any]]:
        if state is None:
            state = {"k": [], "v": [], "scratch": torch.empty(2, len(x), 4, 1, 4)}
        outs = []
        for token in torch.split(x, 1, 1):
            q, k, v = straight(w, token)
            state["scratch"][0], state["scratch"][1] = k, v
            state["k"].append(state["scratch"][0])
            state["v"].append(state["scratch"][1])
            keys, values = torch.cat(state["k"], 2), torch.cat(state["v"], 2)
            outs.append(out_of(w, attend(q, keys, values, torch.tensor(True))))
        return torch.cat(outs, 1), state

    return Pair(plain_full(w), step)


# Keys turned twice.


@collect(ALL, cached(), mistake="rotated_twice", also=("chunks_differ",), situation="one_by_one")
def turned_before_and_after_the_cache() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = turned(w, x, span(past_of(state), x))
        old = None if state is None else (rope(state[0], torch.arange(past_of(state))), state[1])
        k, v = join(old, k, v)
        kept = join(state, k[:, :, -x.shape[1] :], v[:, :, -x.shape[1] :])
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), kept

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(),
    mistake="rotated_twice",
    also=("chunks_differ",),
    situation="one_by_one",
    source="https://github.com/NeuraLegion/shainet/pull/110",
)
def all_keys_turned_again_at_every_step() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        past = past_of(state)
        k, v = join(state, split(x @ w.k), split(x @ w.v))
        at = torch.arange(k.shape[2])
        q, k = rope(split(x @ w.q), at[past:]), rope(k, at)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


@collect(ALL, cached(), mistake="rotated_twice", also=("chunks_differ",), situation="prefill")
def prefilled_keys_turned_again_by_the_first_step() -> Pair:
    w = weights()

    def step(
        x: Tensor, state: tuple[Tensor, Tensor, bool] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor, bool]]:
        past = 0 if state is None else state[0].shape[2]
        q, k, v = turned(w, x, span(past, x))
        if state is not None:
            old = rope(state[0], torch.arange(past)) if state[2] else state[0]
            k, v = torch.cat((old, k), 2), torch.cat((state[1], v), 2)
        out = attend(q, k, v, causal(q.shape[2], k.shape[2]))
        return out_of(w, out), (k, v, state is None)

    return Pair(rotary_full(w), step)


# Slots that nobody wrote.


@collect(
    ALL,
    cached(max_length=16),
    mistake="unwritten_slots",
    also=("chunks_differ",),
    situation="one_by_one",
)
def zeros_attended() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x), 16) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        q, k, v = turned(w, x, span(start, x))
        state.k[:, :, start:end], state.v[:, :, start:end] = k, v
        future = torch.zeros(x.shape[1], 16, dtype=torch.bool)
        future[:, start:end] = ~causal(x.shape[1], x.shape[1])
        state.length = end
        return out_of(w, attend(q, state.k, state.v, ~future)), state

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(max_length=64),
    mistake="unwritten_slots",
    also=("chunks_differ", "causal_leak"),
    situation="one_by_one",
)
def one_slot_too_many() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x)) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        at = span(start, x)
        q, k, v = turned(w, x, at)
        state.k[:, :, start:end], state.v[:, :, start:end] = k, v
        allowed = torch.arange(64) <= at[:, None]
        if x.shape[1] == 1:
            allowed = torch.arange(64)[None] <= end  # the length after the token, and one more
        state.length = end
        return out_of(w, attend(q, state.k, state.v, allowed)), state

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(max_length=64),
    mistake="unwritten_slots",
    also=("chunks_differ",),
    situation="one_by_one",
)
def empty_slots_hidden_by_a_small_number() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x)) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        at = span(start, x)
        q, k, v = turned(w, x, at)
        state.k[:, :, start:end], state.v[:, :, start:end] = k, v
        state.length = end
        hidden = torch.arange(64) > at[:, None]
        scores = (q @ state.k.transpose(-1, -2)) / 2 + hidden * -3.0
        return out_of(w, scores.softmax(-1) @ state.v), state

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(max_length=64),
    mistake="unwritten_slots",
    also=("chunks_differ",),
    situation="one_by_one",
    source="https://github.com/tanishqkumar/ssd/issues/23",
    listed=False,
)
def blocks_read_in_the_order_of_the_pool() -> Pair:
    w = weights()

    def step(x: Tensor, state: Blocks | None) -> tuple[Tensor, Blocks]:
        state = pool(len(x)) if state is None else state
        start, end = state.length, state.length + x.shape[1]
        at = span(start, x)
        q, k, v = turned(w, x, at)
        write(state, at, k.transpose(1, 2), v.transpose(1, 2))
        tables = torch.tensor(state.tables).sort(-1).values
        keys = state.k[tables].flatten(1, 2)[:, :end].transpose(1, 2)
        values = state.v[tables].flatten(1, 2)[:, :end].transpose(1, 2)
        return out_of(w, attend(q, keys, values, causal(len(at), end))), state

    return Pair(rotary_full(w), step)


def write(state: Blocks, at: Tensor, k: Tensor, v: Tensor) -> None:
    for row, table in enumerate(state.tables):
        while 4 * len(table) < int(at[-1]) + 1:
            table.append(state.free.pop())
        for i, position in enumerate(at.tolist()):
            state.k[table[position // 4], position % 4] = k[row, i]
            state.v[table[position // 4], position % 4] = v[row, i]
    state.length = int(at[-1]) + 1


# A window of another length.

Windowed = tuple[Tensor, Tensor, int]


def windowed(crop: int, seen: int | None) -> Apply:
    """Keep `crop` keys for the next step, and see `seen` of them."""
    w = weights()

    def step(x: Tensor, state: Windowed | None) -> tuple[Tensor, Windowed]:
        past = 0 if state is None else state[2]
        q, k, v = turned(w, x, span(past, x))
        k, v = join(None if state is None else state[:2], k, v)
        out = attend(q, k, v, causal(x.shape[1], k.shape[2], seen))
        return out_of(w, out), (k[:, :, -crop:], v[:, :, -crop:], past + x.shape[1])

    return step


@collect(
    ALL, cached(window=4), mistake="window_length", also=("chunks_differ",), situation="one_by_one"
)
def window_kept_and_the_new_key_added() -> Pair:
    return Pair(rotary_full(weights(), 4), windowed(4, None))


@collect(
    ALL, cached(window=4), mistake="window_length", also=("chunks_differ",), situation="one_by_one"
)
def window_one_too_short_while_decoding() -> Pair:
    return Pair(rotary_full(weights(), 4), windowed(2, 4))


@collect(
    ALL, cached(window=4), mistake="window_length", also=("chunks_differ",), situation="one_by_one"
)
def window_by_less_or_equal_while_decoding() -> Pair:
    return Pair(rotary_full(weights(), 4), windowed(16, 5))


@collect(
    ALL,
    cached(window=4),
    mistake="window_length",
    also=("chunks_differ",),
    situation="one_by_one",
    listed=False,
)
def no_window_while_decoding() -> Pair:
    return Pair(rotary_full(weights(), 4), windowed(1000, None))


@collect(ALL, cached(window=4), mistake="window_length", needs=SPEC, situation="full")
def window_one_too_long_everywhere() -> Pair:
    return Pair(rotary_full(weights(), 5), windowed(4, 5))


@collect(ALL, cached(window=4), mistake="window_length", needs=SPEC, situation="full")
def window_one_too_short_everywhere() -> Pair:
    return Pair(rotary_full(weights(), 3), windowed(2, 3))


@collect(
    ALL,
    cached(window=4),
    mistake="window_length",
    also=("chunks_differ", "rolled_early"),
    situation="chunks",
)
def chunk_cropped_to_one_window() -> Pair:
    w = weights()

    def step(x: Tensor, state: Windowed | None) -> tuple[Tensor, Windowed]:
        past = 0 if state is None else state[2]
        q, k, v = turned(w, x, span(past, x))
        k, v = join(None if state is None else state[:2], k, v)
        if state is not None:
            k, v = k[:, :, -4:], v[:, :, -4:]
        n = k.shape[2]
        out = attend(q[:, :, -n:], k, v, causal(min(x.shape[1], n), n, 4))
        out = F.pad(out, (0, 0, x.shape[1] - out.shape[2], 0))
        return out_of(w, out), (k, v, past + x.shape[1])

    return Pair(rotary_full(w, 4), step)


@collect(
    ALL,
    cached(window=3, sinks=2),
    mistake="window_length",
    also=("chunks_differ",),
    situation="one_by_one",
    listed=False,
)
def sinks_counted_within_the_window() -> Pair:
    return Pair(sinks_and_window().full, with_sinks(kept=1))


@collect(
    ALL,
    cached(window=3, sinks=2),
    mistake="window_length",
    also=("chunks_differ", "rolled_early"),
    situation="one_by_one",
    listed=False,
)
def sinks_evicted_with_the_rest() -> Pair:
    return Pair(sinks_and_window().full, with_sinks(kept=3, sinks=0))


@collect(
    ALL,
    cached(window=3, sinks=2),
    mistake="rolled_early",
    also=("chunks_differ", "window_length"),
    situation="one_by_one",
    source="https://github.com/JaydenLyh/Reward-Forcing/issues/5",
    listed=False,
)
def newest_keys_evicted() -> Pair:
    return Pair(sinks_and_window().full, with_sinks(kept=3, newest=True))


def with_sinks(kept: int, sinks: int = 2, newest: bool = False) -> Apply:
    """Token by token."""
    w = weights()

    def step(x: Tensor, state: Windowed | None) -> tuple[Tensor, Windowed]:
        outs = []
        for token in torch.split(x, 1, 1):
            past = 0 if state is None else state[2]
            q, k, v = turned(w, token, torch.tensor([past]))
            k, v = join(None if state is None else state[:2], k, v)
            if k.shape[2] > sinks + kept:
                drop = slice(-2, -1) if newest else slice(sinks, k.shape[2] - kept)
                hold = torch.ones(k.shape[2], dtype=torch.bool)
                hold[drop] = False
                k, v = k[:, :, hold], v[:, :, hold]
            outs.append(out_of(w, attend(q, k, v, torch.tensor(True))))
            state = (k, v, past + 1)
        assert state is not None
        return torch.cat(outs, 1), state

    return step


@collect(
    ALL,
    cached(window=3, sinks=2, positions="rotary in cache"),
    mistake="chunks_differ",
    also=("rotated_twice",),
    situation="one_by_one",
    source="https://github.com/huggingface/transformers/issues/33691",
    listed=False,
)
def new_key_not_moved_into_the_cache() -> Pair:
    w = weights()

    def step(x: Tensor, state: Windowed | None) -> tuple[Tensor, Windowed]:
        outs = []
        for token in torch.split(x, 1, 1):
            past = 0 if state is None else state[2]
            k, v = split(token @ w.k), split(token @ w.v)
            k, v = join(None if state is None else state[:2], k, v)
            if k.shape[2] > 5:
                k, v = (torch.cat((t[:, :, :2], t[:, :, -3:]), 2) for t in (k, v))
            at = torch.arange(k.shape[2])
            at[-1] = past  # the query and its key are where they are in the text
            q = rope(split(token @ w.q), at[-1:])
            outs.append(out_of(w, attend(q, rope(k, at), v, torch.tensor(True))))
            state = (k, v, past + 1)
        assert state is not None
        return torch.cat(outs, 1), state

    return Pair(sinks_at_places_in_the_cache().full, step)


# Rolled too early.


@collect(
    ALL,
    cached(window=4),
    mistake="rolled_early",
    also=("chunks_differ", "window_length"),
    situation="one_by_one",
    source="https://github.com/huggingface/transformers/issues/37574",
)
def rolled_before_it_is_full() -> Pair:
    return Pair(rotary_full(weights(), 4), rolling(full_at=3))


@collect(
    ALL,
    cached(window=4),
    mistake="rolled_early",
    also=("chunks_differ",),
    situation="one_by_one",
    listed=False,
)
def keys_rolled_values_not() -> Pair:
    return Pair(rotary_full(weights(), 4), rolling(full_at=4, values=False))


def rolling(full_at: int, values: bool = True) -> Apply:
    """Token by token."""
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x), 4) if state is None else state
        outs = []
        for token in torch.split(x, 1, 1):
            q, k, v = turned(w, token, torch.tensor([state.length]))
            slot = min(state.length, 3)
            if state.length >= full_at:
                state.k = state.k.roll(-1, 2)
                state.v = state.v.roll(-1, 2) if values else state.v
            state.k[:, :, slot], state.v[:, :, slot] = k[:, :, 0], v[:, :, 0]
            state.length += 1
            allowed = torch.arange(4) < state.length
            outs.append(out_of(w, attend(q, state.k, state.v, allowed)))
        return torch.cat(outs, 1), state

    return step


@collect(
    ALL,
    cached(window=4),
    mistake="rolled_early",
    also=("chunks_differ", "causal_leak"),
    situation="chunks",
    source="https://github.com/Lightning-AI/litgpt/issues/2182",
)
def ring_written_before_it_is_read() -> Pair:
    w = weights()

    def step(x: Tensor, state: Buffer | None) -> tuple[Tensor, Buffer]:
        state = Buffer.empty(len(x), 4) if state is None else state
        at = span(state.length, x)
        q, k, v = turned(w, x, at)
        state.k[:, :, at[-4:] % 4], state.v[:, :, at[-4:] % 4] = k[:, :, -4:], v[:, :, -4:]
        state.length += x.shape[1]
        seen = min(state.length, 4)
        # By slots, as if slot and position were the same.
        allowed = torch.arange(seen) <= at[:, None]
        out = attend(q, state.k[:, :, :seen], state.v[:, :, :seen], allowed)
        return out_of(w, out), state

    return Pair(rotary_full(w, 4), step)


@collect(
    ALL,
    cached(window=4),
    mistake="rolled_early",
    also=("chunks_differ", "window_length"),
    situation="chunks",
)
def oldest_keys_dropped_before_the_chunk_is_done() -> Pair:
    w = weights()

    def step(x: Tensor, state: Windowed | None) -> tuple[Tensor, Windowed]:
        past = 0 if state is None else state[2]
        q, k, v = turned(w, x, span(past, x))
        if state is not None:
            room = max(4 - x.shape[1], 0)
            old = (t[:, :, t.shape[2] - min(room, t.shape[2]) :] for t in state[:2])
            old_k, old_v = old
            k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
        out = attend(q, k, v, causal(x.shape[1], k.shape[2], 4))
        return out_of(w, out), (k[:, :, -4:], v[:, :, -4:], past + x.shape[1])

    return Pair(rotary_full(w, 4), step)


# Left padding.


@collect(
    ALL,
    cached(padding="left", positions="learned", max_length=64),
    mistake="left_padding",
    needs="",
    situation="left_padded",
    source="https://github.com/ndif-team/nnsight/pull/673",
)
def learned_positions_count_the_padding() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((state[2], mask), 1)
        x = x + TABLE[seen.shape[1] - n : seen.shape[1]]
        q, k, v = straight(w, x)
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, padded_causal(seen, n))), (k, v, seen)

    return Pair(lambda x, mask: step(x, None, mask)[0], step)


@collect(
    ALL,
    cached(padding="left"),
    mistake="left_padding",
    also=("chunks_differ",),
    situation="left_padded",
    source="https://github.com/unslothai/unsloth/issues/3699",
)
def positions_by_row_in_prefill_by_length_after() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        if state is None:
            seen, at = mask, (mask.long().cumsum(1) - 1).clamp(min=0)
        else:
            seen = torch.cat((state[2], mask), 1)
            at = span(seen.shape[1] - n, x).expand(len(x), n)
        q, k, v = turned(w, x, at)
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, padded_causal(seen, n))), (k, v, seen)

    return Pair(left_padded_shared_rotary_positions().full, step)


@collect(
    ALL,
    cached(padding="left"),
    mistake="left_padding",
    also=("chunks_differ",),
    situation="left_padded",
)
def padding_hidden_in_the_prefill_only() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((torch.ones_like(state[2]), mask), 1)
        q, k, v = turned(w, x, span(seen.shape[1] - n, x))
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, padded_causal(seen, n))), (k, v, seen)

    return Pair(left_padded_shared_rotary_positions().full, step)


@collect(
    ALL,
    cached(padding="left"),
    mistake="left_padding",
    also=("chunks_differ",),
    situation="left_padded",
    listed=False,
)
def mask_grown_at_its_front() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((mask, state[2]), 1)
        q, k, v = turned(w, x, span(seen.shape[1] - n, x))
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, padded_causal(seen, n))), (k, v, seen)

    return Pair(left_padded_shared_rotary_positions().full, step)


@collect(
    ALL,
    cached(padding="left", positions="learned", max_length=64),
    mistake="left_padding",
    also=("chunks_differ",),
    situation="left_padded",
)
def position_is_the_number_of_real_tokens() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        if state is None:
            seen, at = mask, (mask.long().cumsum(1) - 1).clamp(min=0)
        else:
            seen = torch.cat((state[2], mask), 1)
            at = seen.long().cumsum(1)[:, -n:]  # one more than in the prefill
        q, k, v = straight(w, x + TABLE[at])
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, padded_causal(seen, n))), (k, v, seen)

    return Pair(left_padded_learned_positions().full, step)


@collect(
    ALL,
    cached(padding="left", positions="learned", max_length=64),
    mistake="left_padding",
    also=("sequences_mixed",),
    situation="left_padded",
    listed=False,
)
def padding_of_the_first_row_for_all() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((state[2], mask), 1)
        at = (seen[:1].long().cumsum(1) - 1).clamp(min=0)[:, -n:]
        q, k, v = straight(w, x + TABLE[at])
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, padded_causal(seen, n))), (k, v, seen)

    return Pair(lambda x, mask: step(x, None, mask)[0], step)


@collect(
    ALL,
    cached(padding="left"),
    mistake="left_padding",
    situation="left_padded",
    listed=False,
)
def padding_mask_left_out() -> Pair:
    w = weights()

    def step(x: Tensor, state: Padded, mask: Tensor) -> tuple[Tensor, Padded]:
        n = x.shape[1]
        seen = mask if state is None else torch.cat((state[2], mask), 1)
        at = (seen.long().cumsum(1) - 1).clamp(min=0)[:, -n:]
        q, k, v = turned(w, x, at)
        k, v = join(None if state is None else state[:2], k, v)
        return out_of(w, attend(q, k, v, causal(n, k.shape[2]))), (k, v, seen)

    return Pair(lambda x, mask: step(x, None, mask)[0], step)


# Sequences mixed, calls remembered.


@collect(
    ALL,
    cached(),
    mistake="sequences_mixed",
    also=("calls_remembered",),
    situation="in_turns",
    listed=False,
)
def one_dict_for_all_sequences() -> Pair:
    w = weights()
    kept: dict[str, Tensor] = {}  # as a mutable default argument is

    def step(x: Tensor, state: dict[str, Tensor] | None) -> tuple[Tensor, dict[str, Tensor]]:
        if state is None:
            kept.clear()
            state = kept
        past = state["k"].shape[2] if "k" in state else 0
        q, k, v = turned(w, x, span(past, x))
        if past:
            k, v = torch.cat((state["k"], k), 2), torch.cat((state["v"], v), 2)
        state["k"], state["v"] = k, v
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), state

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(max_length=64),
    mistake="sequences_mixed",
    also=("calls_remembered",),
    situation="in_turns",
    listed=False,
)
def one_buffer_for_all_sequences() -> Pair:
    w = weights()
    keys, values = torch.zeros(2, 8, 4, 64, 4)

    def step(x: Tensor, state: int | None) -> tuple[Tensor, int]:
        start = 0 if state is None else state
        end = start + x.shape[1]
        q, k, v = turned(w, x, span(start, x))
        keys[: len(x), :, start:end], values[: len(x), :, start:end] = k, v
        k, v = keys[: len(x), :, :end], values[: len(x), :, :end]
        return out_of(w, attend(q, k, v, causal(len(x[0]), end))), end

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(),
    mistake="sequences_mixed",
    also=("chunks_differ", "batch_leak"),
    situation="prefill",
    listed=False,
)
def past_of_the_first_row_for_all() -> Pair:
    w = weights()

    def step(x: Tensor, state: State) -> Result:
        q, k, v = turned(w, x, span(past_of(state), x))
        if state is not None:
            # The prompt was taken for the same in every row.
            k = torch.cat((state[0][:1].expand(len(x), -1, -1, -1), k), 2)
            v = torch.cat((state[1][:1].expand(len(x), -1, -1, -1), v), 2)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(max_length=64),
    mistake="sequences_mixed",
    also=("chunks_differ", "batch_leak"),
    situation="one_by_one",
    listed=False,
)
def rows_write_into_the_same_blocks() -> Pair:
    w = weights()

    def step(x: Tensor, state: Blocks | None) -> tuple[Tensor, Blocks]:
        if state is None:
            state = pool(len(x))
            state.tables = [[]] * len(x)
        at = span(state.length, x)
        q, k, v = turned(w, x, at)
        write(state, at, k.transpose(1, 2), v.transpose(1, 2))
        tables, end = torch.tensor(state.tables), state.length
        keys = state.k[tables].flatten(1, 2)[:, :end].transpose(1, 2)
        values = state.v[tables].flatten(1, 2)[:, :end].transpose(1, 2)
        return out_of(w, attend(q, keys, values, causal(len(at), end))), state

    return Pair(rotary_full(w), step)


@collect(
    ALL,
    cached(),
    mistake="calls_remembered",
    also=("sequences_mixed",),
    situation="second_sequence",
    listed=False,
)
def prefix_looked_up_by_its_length() -> Pair:
    w = weights()
    prefixes: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def step(x: Tensor, state: State) -> Result:
        past = past_of(state)
        q, k, v = turned(w, x, span(past, x))
        if state is None:
            k, v = prefixes.setdefault(tuple(x.shape), (k, v))
        k, v = join(state, k, v)
        return out_of(w, attend(q, k, v, causal(q.shape[2], k.shape[2]))), (k, v)

    return Pair(rotary_full(w), step)


class Holds(nn.Module):
    """Holds its cache; what is forgotten at a reset differs."""

    def __init__(self, forget: tuple[str, ...] = ("cache", "length")) -> None:
        super().__init__()
        self.w, self.forget = weights(), forget
        self.cache: State = None
        self.length = 0

    def reset(self) -> None:
        if "cache" in self.forget:
            self.cache = None
        if "length" in self.forget:
            self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = straight(self.w, x + TABLE[span(self.length, x) % len(TABLE)])
        k, v = join(self.cache, k, v)
        self.cache, self.length = (k, v), self.length + x.shape[1]
        return out_of(self.w, attend(q, k, v, causal(q.shape[2], k.shape[2])))


@collect(
    ALL,
    cached(state="inside", positions="learned", max_length=64),
    mistake="calls_remembered",
    situation="second_sequence",
)
def reset_forgets_the_positions() -> Pair:
    module = Holds(("cache",))
    return Pair(learned_full(module.w), module, module.reset)


class HoldsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.length, self.longest = weights(), 0, 0
        self.buffer: Buffer | None = None

    def reset(self) -> None:
        self.length = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.buffer is None or len(self.buffer.k) != len(x):
            self.buffer, self.longest = Buffer.empty(len(x)), 0
        start, end = self.length, self.length + x.shape[1]
        q, k, v = turned(self.w, x, span(start, x))
        self.buffer.k[:, :, start:end], self.buffer.v[:, :, start:end] = k, v
        self.length, self.longest = end, max(self.longest, end)
        k, v = self.buffer.k[:, :, : self.longest], self.buffer.v[:, :, : self.longest]
        allowed = torch.ones(x.shape[1], self.longest, dtype=torch.bool)
        allowed[:, start:end] = causal(x.shape[1], x.shape[1])
        return out_of(self.w, attend(q, k, v, allowed))


@collect(
    ALL,
    cached(state="inside", max_length=64),
    mistake="calls_remembered",
    also=("unwritten_slots",),
    situation="after_longer",
)
def slots_of_a_longer_sequence_attended() -> Pair:
    module = HoldsBuffer()
    return Pair(rotary_full(module.w), module, module.reset)


@collect(
    ALL,
    cached(state="inside", positions="learned", max_length=64),
    mistake="calls_remembered",
    also=("chunks_differ",),
    situation="after_full",
    listed=False,
)
def full_pass_writes_the_cache() -> Pair:
    module = Holds()

    def full(x: Tensor) -> Tensor:
        module.reset()
        out: Tensor = module(x)
        return out

    return Pair(full, module, module.reset)
