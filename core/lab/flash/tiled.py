"""Attention tile by tile with an online softmax: no table of scores is ever written.

Two orders of the loops: FlashAttention-2 (arXiv 2307.08691, Algorithm 1) holds a tile of queries and lets the keys and
values stream by; the first paper (arXiv 2205.14135, Algorithm 1) holds keys and values and meets the queries, whose
output, sum and maximum are loaded and stored every time.
"""

from __future__ import annotations

from itertools import groupby

from torch import Tensor

from core.estimate.flash import Square, Tiles, visited
from core.lab.flash.slow_memory import Head, SlowMemory, later_keys
from core.lab.flash.walk import Walker

Running = tuple[Tensor, Tensor, Tensor]
"""Of a tile's rows: the maximum [r, 1], the sum of e^(score − maximum) [r, 1], and the values so weighted [r, d_h]."""


def tiled_attention(memory: SlowMemory, tiles: Tiles, *, causal: bool = False, walker: Walker | None = None) -> Tensor:
    """softmax(QKᵀ/√d_h)·V [B, h, n, d_h]; with `causal`, tiles that lie above the diagonal are left out."""
    output = memory.make("O", memory.head_dim, None if tiles.order == "query_outer" else 0.0)
    if tiles.order == "key_outer":
        memory.make("l", 1, 0.0)
        memory.make("m", 1, float("-inf"))
    walk = visited(Square(n_tokens=memory.n_tokens, head_dim=memory.head_dim), tiles, causal=causal)
    for head in memory.heads:
        own_walker = walker if memory.follows(head) else None
        if tiles.order == "query_outer":
            for query_rows, pairs in groupby(walk, lambda pair: pair[0]):
                _stream_keys(memory, head, query_rows, [keys for _, keys in pairs], causal, own_walker)
        else:
            for key_rows, pairs in groupby(walk, lambda pair: pair[1]):
                _meet_queries(memory, head, key_rows, [queries for queries, _ in pairs], causal, own_walker)
    return output


def _stream_keys(
    memory: SlowMemory, head: Head, query_rows: range, key_tiles: list[range], causal: bool, walker: Walker | None
) -> None:
    """One query tile from its first key to its last; its output is divided and stored once."""
    queries = memory.load("Q", head, query_rows)  # (r, d_h)
    maximum, total = queries.new_full((len(query_rows), 1), float("-inf")), queries.new_zeros(len(query_rows), 1)
    running: Running = maximum, total, queries.new_zeros(queries.shape)
    for key_rows in key_tiles:
        keys, values = memory.load("K", head, key_rows), memory.load("V", head, key_rows)  # (c, d_h) each
        later = later_keys(query_rows, key_rows, keys.device) if causal else None
        running, rescaled = fold(queries, keys, values, running, later)
        if key_rows is key_tiles[-1]:
            memory.store("O", head, query_rows, running[2] / running[1])
        if walker is not None:
            walker.step(query_rows, key_rows, (running[0], running[1], rescaled))


def _meet_queries(
    memory: SlowMemory, head: Head, key_rows: range, query_tiles: list[range], causal: bool, walker: Walker | None
) -> None:
    """One key tile with every query; between two key tiles the rows' state lies in slow memory."""
    keys, values = memory.load("K", head, key_rows), memory.load("V", head, key_rows)  # (c, d_h) each
    for query_rows in query_tiles:
        queries, output = memory.load("Q", head, query_rows), memory.load("O", head, query_rows)  # (r, d_h) each
        total, maximum = memory.load("l", head, query_rows), memory.load("m", head, query_rows)  # (r, 1) each
        later = later_keys(query_rows, key_rows, keys.device) if causal else None
        running, rescaled = fold(queries, keys, values, (maximum, total, output * total), later)
        memory.store("O", head, query_rows, running[2] / running[1])
        memory.store("l", head, query_rows, running[1])
        memory.store("m", head, query_rows, running[0])
        if walker is not None:
            walker.step(query_rows, key_rows, (running[0], running[1], rescaled))


def fold(
    queries: Tensor, keys: Tensor, values: Tensor, running: Running, later: Tensor | None
) -> tuple[Running, Tensor]:
    """Takes one more tile in: what was summed under the old maximum shrinks by e^(old − new), which comes back too.

    The first key of all is in the first tile that a row meets, so that no maximum stays −∞.
    """
    maximum, total, gathered = running
    scores = queries * queries.shape[1] ** -0.5 @ keys.mT  # (r, d_h) → (r, c)
    if later is not None:
        scores.masked_fill_(later, float("-inf"))
    highest = scores.amax(-1, keepdim=True).maximum(maximum)  # (r, c) → (r, 1)
    weights, rescaled = scores.sub_(highest).exp_(), (maximum - highest).exp()
    total = total * rescaled + weights.sum(-1, keepdim=True)  # (r, c) → (r, 1)
    return (highest, total, gathered * rescaled + weights @ values), rescaled  # (r, c) → (r, d_h)
