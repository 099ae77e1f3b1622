"""Attention as the formula writes it: the table of scores and the table of weights are written out in slow memory."""

from __future__ import annotations

from torch import Tensor

from core.lab.flash.slow_memory import SlowMemory, later_keys
from core.lab.flash.walk import Walker

STRIP_ROWS = 256


def plain_attention(memory: SlowMemory, *, causal: bool = False, walker: Walker | None = None) -> Tensor:
    """softmax(QKᵀ/√d_h)·V [B, h, n, d_h] in three passes over all heads: S, then P, then O.

    A pass takes the rows strip by strip and holds K, or V, in the meantime: every operand is loaded once a pass, as if
    it always fitted. The mask is applied to the whole square; no strip is left out.
    """
    n, d_h = memory.n_tokens, memory.head_dim
    everything, strips = range(n), [range(begin, min(begin + STRIP_ROWS, n)) for begin in range(0, n, STRIP_ROWS)]
    output = memory.make("O", d_h)

    def walked(head: tuple[int, int], rows: range) -> None:
        if walker is not None and memory.follows(head):
            walker.step(rows, everything)

    memory.make("S", n)
    for head in memory.heads:
        keys = memory.load("K", head, everything)  # (n, d_h)
        for rows in strips:
            scores = memory.load("Q", head, rows) * d_h**-0.5 @ keys.mT  # (r, d_h) → (r, n)
            if causal and (later := later_keys(rows, everything, scores.device)) is not None:
                scores.masked_fill_(later, float("-inf"))
            memory.store("S", head, rows, scores)
            walked(head, rows)
    memory.make("P", n)
    for head in memory.heads:
        for rows in strips:
            memory.store("P", head, rows, memory.load("S", head, rows).softmax(-1))
            walked(head, rows)
    memory.drop("S")
    for head in memory.heads:
        values = memory.load("V", head, everything)  # (n, d_h)
        for rows in strips:
            memory.store("O", head, rows, memory.load("P", head, rows) @ values)  # (r, n) → (r, d_h)
            walked(head, rows)
    return output
