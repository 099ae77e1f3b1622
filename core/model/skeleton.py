"""A model without contents: every matrix product of a `ModelShape`, run on torch's meta device to be counted.

A meta tensor has a shape and no numbers, so a pass over DeepSeek-V3 takes a second and no memory, and torch's own
counter (`torch.utils.flop_counter`) sees each product with its true shape. Only what multiplies is here: norms, rotary
positions, masks, softmax, activations, biases and sinks are left out. Attention is written out as two products,
because a fused kernel may hide from the counter. The parts are plain classes: the counter's hooks on `nn.Module` are
the whole process's, and other threads may be running models.

Letters in the shape comments: B sequences, m new positions each, R = B·m rows, n positions in all (of a window: those
that are seen), d hidden width, h query heads, n_kv KV heads, d_h width of a query or key head, d_v of a value head, r
width of the latent of keys and values, r_q of the queries', p width of a rotary part, k active experts of E, f
feed-forward width.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from core.estimate import shape as shapes

Part = Literal["attention_projections", "scores_and_gathering", "feed_forward", "experts", "router", "head"]
Meter = Callable[[Part], AbstractContextManager[object]]  # opened around the products of one part
OnLayer = Callable[[int, int], None]  # after each layer: how many are done, how many there are


def meta(*shape: int) -> Tensor:
    """A tensor of this shape and no contents; two bytes a number, so that its size stays countable for longest."""
    return torch.empty(shape, dtype=torch.bfloat16, device="meta")


class GroupedQueryAttention:
    """Multi-head, grouped-query and multi-query attention, with or without a window.

    Prefill compares all n queries with all n keys, masked or not; decode sees at most a window's positions.
    """

    def __init__(self, part: shapes.Attention, d_model: int) -> None:
        self.part = part
        self.to_queries = meta(part.n_heads * part.head_dim, d_model)  # (h·d_h, d)
        self.to_keys = meta(part.n_kv_heads * part.head_dim, d_model)  # (n_kv·d_h, d)
        self.to_values = meta(part.n_kv_heads * part.value_dim, d_model)  # (n_kv·d_v, d)
        self.to_output = meta(d_model, part.n_heads * part.value_dim)  # (d, h·d_v)

    def prefill(self, x: Tensor, meter: Meter) -> Tensor:
        """All positions at once, none cached: [B, n, d] → [B, n, d]."""
        return self._behind(0, x, meter)

    def decode(self, x: Tensor, n_tokens: int, meter: Meter) -> Tensor:
        """The last of `n_tokens` positions, those before it cached: [B, 1, d] → [B, 1, d]."""
        return self._behind(min(n_tokens, self.part.window or n_tokens) - 1, x, meter)

    def _behind(self, n_cached: int, x: Tensor, meter: Meter) -> Tensor:
        """New positions [B, m, d] that see `n_cached` older ones and each other."""
        part, batch = self.part, x.shape[0]
        cached_keys = meta(batch, part.n_kv_heads, n_cached, part.head_dim)
        cached_values = meta(batch, part.n_kv_heads, n_cached, part.value_dim)
        with meter("attention_projections"):
            queries = split_heads(F.linear(x, self.to_queries), part.n_heads)  # (B, m, d) → (B, h, m, d_h)
            new_keys = split_heads(F.linear(x, self.to_keys), part.n_kv_heads)  # (B, m, d) → (B, n_kv, m, d_h)
            new_values = split_heads(F.linear(x, self.to_values), part.n_kv_heads)  # (B, m, d) → (B, n_kv, m, d_v)
        keys = torch.cat([cached_keys, new_keys], 2)  # (B, n_kv, n, d_h)
        values = torch.cat([cached_values, new_values], 2)  # (B, n_kv, n, d_v)
        with meter("scores_and_gathering"):
            gathered = attend(queries, keys, values)  # (B, m, h·d_v)
        with meter("attention_projections"):
            return F.linear(gathered, self.to_output)  # (B, m, h·d_v) → (B, m, d)


class LatentAttention:
    """Multi-head latent attention: what is cached is one latent and one rotary key a position, for all heads.

    Prefill expands each latent once into keys and values per head. Decode never expands: it folds the expansion into
    the query on one side and into the gathered latent on the other ("absorbed"), and is then multi-query attention
    whose one key is latent and rotary key, and whose value is the latent.
    """

    def __init__(self, part: shapes.LatentAttention, d_model: int) -> None:
        self.part = part
        h, r, nope, rope = part.n_heads, part.kv_rank, part.nope_dim, part.rope_dim
        self.to_query_latent = None if part.query_rank is None else meta(part.query_rank, d_model)  # (r_q, d)
        self.to_queries = meta(h * (nope + rope), part.query_rank or d_model)  # (h·d_h, r_q or d)
        self.to_latent = meta(r + rope, d_model)  # (r + p, d)
        self.key_expansion = meta(h, nope, r)  # per head (d_h − p, r)
        self.value_expansion = meta(h, part.value_dim, r)  # per head (d_v, r)
        self.to_output = meta(d_model, h * part.value_dim)  # (d, h·d_v)

    def prefill(self, x: Tensor, meter: Meter) -> Tensor:
        """All positions at once: [B, n, d] → [B, n, d]."""
        h = self.part.n_heads
        with meter("attention_projections"):
            queries, rows = self._queries_and_rows(x)
            latent, rotary_key = rows[..., : self.part.kv_rank], rows[..., self.part.kv_rank :]
            nope_keys = F.linear(latent, self.key_expansion.flatten(0, 1))  # (B, n, r) → (B, n, h·(d_h − p))
            values = F.linear(latent, self.value_expansion.flatten(0, 1))  # (B, n, r) → (B, n, h·d_v)
        rotary_keys = rotary_key.unsqueeze(1).expand(-1, h, -1, -1)  # (B, n, p) → (B, h, n, p): one for all heads
        keys = torch.cat([split_heads(nope_keys, h), rotary_keys], 3)  # (B, h, n, d_h)
        with meter("scores_and_gathering"):
            gathered = attend(queries, keys, split_heads(values, h))  # (B, n, h·d_v)
        with meter("attention_projections"):
            return F.linear(gathered, self.to_output)  # (B, n, h·d_v) → (B, n, d)

    def decode(self, x: Tensor, n_tokens: int, meter: Meter) -> Tensor:
        """The last of `n_tokens` positions, those before it cached: [B, 1, d] → [B, 1, d]."""
        part, batch = self.part, x.shape[0]
        cached = meta(batch, n_tokens - 1, part.kv_rank + part.rope_dim)
        with meter("attention_projections"):
            queries, new_row = self._queries_and_rows(x)
            nope, rotary = queries[..., : part.nope_dim], queries[..., part.nope_dim :]
            nope = nope.squeeze(2).transpose(0, 1)  # (B, h, 1, d_h − p) → (h, B, d_h − p)
            folded = (nope @ self.key_expansion).transpose(0, 1).unsqueeze(2)  # (h, B, d_h − p) → (B, h, 1, r)
        queries = torch.cat([folded, rotary], 3)  # (B, h, 1, r + p)
        keys = torch.cat([cached, new_row], 1).unsqueeze(1)  # (B, n, r + p) → (B, 1, n, r + p): one KV head
        with meter("scores_and_gathering"):
            gathered = attend(queries, keys, keys[..., : part.kv_rank])  # (B, 1, h·r)
        with meter("attention_projections"):
            latents = gathered.view(batch, part.n_heads, part.kv_rank).transpose(0, 1)  # (B, 1, h·r) → (h, B, r)
            values = latents @ self.value_expansion.mT  # (h, B, r) → (h, B, d_v)
            values = values.transpose(0, 1).flatten(1).unsqueeze(1)  # (h, B, d_v) → (B, 1, h·d_v)
            return F.linear(values, self.to_output)  # (B, 1, h·d_v) → (B, 1, d)

    def _queries_and_rows(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [B, h, m, d_h], and what each position leaves in the cache: latent and rotary key [B, m, r + p]."""
        query_source = x if self.to_query_latent is None else F.linear(x, self.to_query_latent)  # (B, m, r_q or d)
        queries = split_heads(F.linear(query_source, self.to_queries), self.part.n_heads)  # → (B, h, m, d_h)
        return queries, F.linear(x, self.to_latent)  # (B, m, d) → (B, m, r + p)


class FeedForward:
    """Gate, up and down; or up and down."""

    def __init__(self, d_ff: int, d_model: int, *, is_gated: bool, counted_as: Part = "feed_forward") -> None:
        self.counted_as = counted_as
        self.to_gate = meta(d_ff, d_model) if is_gated else None  # (f, d)
        self.to_up = meta(d_ff, d_model)  # (f, d)
        self.to_down = meta(d_model, d_ff)  # (d, f)

    def __call__(self, x: Tensor, meter: Meter) -> Tensor:
        with meter(self.counted_as):
            inner = F.linear(x, self.to_up)  # (B, m, d) → (B, m, f)
            if self.to_gate is not None:
                inner = F.linear(x, self.to_gate) * inner
            return F.linear(inner, self.to_down)  # (B, m, f) → (B, m, d)


class MixtureOfExperts:
    """A router and E experts, of which each row multiplies with its own k; shared experts run for every row."""

    def __init__(self, part: shapes.Experts, d_model: int) -> None:
        self.part = part
        self.to_experts = meta(part.n_experts, d_model)  # (E, d)
        self.gates = meta(part.n_experts, part.d_expert, d_model) if part.is_gated else None  # (E, f, d)
        self.ups = meta(part.n_experts, part.d_expert, d_model)  # (E, f, d)
        self.downs = meta(part.n_experts, d_model, part.d_expert)  # (E, d, f)
        self.shared: FeedForward | None = None
        if part.d_shared:
            self.shared = FeedForward(part.d_shared, d_model, is_gated=part.is_gated, counted_as="experts")
        self.to_shared_gate = meta(1, d_model) if part.has_shared_gate else None  # (1, d)

    def __call__(self, x: Tensor, meter: Meter) -> Tensor:
        with meter("router"):
            chosen = F.linear(x, self.to_experts).topk(self.part.n_active).indices.flatten()  # (B, m, E) → (R·k)
        rows = x.flatten(0, 1).repeat_interleave(self.part.n_active, 0).unsqueeze(2)  # (B, m, d) → (R·k, d, 1)
        with meter("experts"):
            # Each choice takes its expert's matrices along, as a batch of products: on meta a copy costs nothing.
            inner = self.ups.index_select(0, chosen) @ rows  # (R·k, d, 1) → (R·k, f, 1)
            if self.gates is not None:
                inner = (self.gates.index_select(0, chosen) @ rows) * inner
            routed = self.downs.index_select(0, chosen) @ inner  # (R·k, f, 1) → (R·k, d, 1)
        routed = routed.view(*x.shape[:2], self.part.n_active, -1).sum(2)  # (R·k, d, 1) → (B, m, d)
        if self.shared is None:
            return routed
        shared = self.shared(x, meter)
        if self.to_shared_gate is not None:
            with meter("router"):
                shared = F.linear(x, self.to_shared_gate) * shared  # (B, m, 1) scales (B, m, d)
        return routed + shared


AttentionPart = GroupedQueryAttention | LatentAttention
FeedForwardPart = FeedForward | MixtureOfExperts
Attended = Callable[[AttentionPart, Tensor], Tensor]


class Skeleton:
    """All layers of a model and its head. Passes return the last position's logits [B, 1, vocab], without contents."""

    def __init__(self, shape: shapes.ModelShape) -> None:
        self.table = meta(shape.vocab_size, shape.d_model)  # (vocab, d)
        self.head = self.table if shape.tied_head else meta(shape.vocab_size, shape.d_model)
        self.layers = [layer_of(group, shape.d_model) for group in shape.groups for _ in range(group.n_layers)]

    def prefill(self, n_tokens: int, batch: int, meter: Meter, on_layer: OnLayer | None = None) -> Tensor:
        """`batch` sequences of `n_tokens` positions through all layers, the last of each through the head."""
        return self._run(batch, n_tokens, lambda attention, x: attention.prefill(x, meter), meter, on_layer)

    def decode(self, n_tokens: int, batch: int, meter: Meter, on_layer: OnLayer | None = None) -> Tensor:
        """The `n_tokens`-th position of each of `batch` sequences, the n_tokens − 1 before it in the cache."""
        return self._run(batch, 1, lambda attention, x: attention.decode(x, n_tokens, meter), meter, on_layer)

    def _run(self, batch: int, n_new: int, attended: Attended, meter: Meter, on_layer: OnLayer | None) -> Tensor:
        ids = torch.empty(batch, n_new, dtype=torch.int64, device="meta")
        x = F.embedding(ids, self.table)  # (B, m) → (B, m, d): a look-up
        for done, (attention, feed_forward) in enumerate(self.layers, start=1):
            if attention is not None:
                x = x + attended(attention, x)
            if feed_forward is not None:
                x = x + feed_forward(x, meter)
            if on_layer is not None:
                on_layer(done, len(self.layers))
        with meter("head"):
            return F.linear(x[:, -1:], self.head)  # (B, m, d) → (B, 1, vocab)


def layer_of(group: shapes.LayerGroup, d_model: int) -> tuple[AttentionPart | None, FeedForwardPart | None]:
    """One layer of a kind; either part may be missing."""
    attention: AttentionPart | None = None
    if isinstance(group.attention, shapes.LatentAttention):
        attention = LatentAttention(group.attention, d_model)
    elif group.attention is not None:
        attention = GroupedQueryAttention(group.attention, d_model)
    feed_forward: FeedForwardPart | None = None
    if isinstance(group.feed_forward, shapes.Experts):
        feed_forward = MixtureOfExperts(group.feed_forward, d_model)
    elif group.feed_forward is not None:
        feed_forward = FeedForward(group.feed_forward.d_ff, d_model, is_gated=group.feed_forward.is_gated)
    return attention, feed_forward


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """[B, m, heads·width] → [B, heads, m, width]."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Scores and gathering, every query with every key.

    Queries [B, h, m, d_h], keys [B, n_kv, n, d_h], values [B, n_kv, n, d_v]; returns [B, m, h·d_v].
    """
    batch, n_heads, n_new, width = queries.shape
    queries = queries.reshape(batch, keys.shape[1], -1, width)  # (B, h, m, d_h) → (B, n_kv, h/n_kv·m, d_h)
    scores = queries @ keys.mT  # (B, n_kv, h/n_kv·m, n)
    gathered = scores @ values  # (B, n_kv, h/n_kv·m, d_v)
    return gathered.reshape(batch, n_heads, n_new, -1).transpose(1, 2).flatten(2)  # → (B, m, h·d_v)
