"""Which term each technique changes, for any model: every term before and after, by the estimator.

A request is a prompt and an answer of one sequence, or of each sequence of a batch. What a term becomes is reckoned;
only what becomes of the answers' quality can, for most techniques, not be reckoned at all, and is left to measuring.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS, KvDtypes, WeightDtypes, kv_dtypes, weight_dtypes
from core.estimate.flops import decode_flops, head_flops, layers_flops
from core.estimate.kv import kv_bytes
from core.estimate.query import changed, shape_numbers
from core.estimate.shape import Experts, FeedForward, ModelShape
from core.estimate.speculative import operations, tokens_per_pass
from core.estimate.weights import weight_bytes, weight_bytes_read
from core.questions.techniques import LONG_THOUGHT, SHORT_ANSWER

TECHNIQUES = (
    *("sampling", "weights", "cache", "draft", "thought", "heads"),
    *("surgery", "batching", "experts", "chunks", "prefix"),
)
TERMS = ("rule", "weights", "cache", "flops", "read", "steps", "prefill", "resident", "quality")
EXACT = ("draft", "batching", "chunks", "prefix")
"""What gives the same answer but for rounding; of all others the quality has to be measured."""
N_PROMPT, BATCH, CHUNK, GAMMA, ALPHA = 2048, 16, 512, 4, 0.7
N_EXPERTS, N_ACTIVE = 8, 2
"""What a dense model's feed-forward part is split into, as Mixtral has it."""
SHARED = 4
"""Query heads to one KV head, where a model shares none of its own."""


class Mark(StrEnum):
    """What becomes of a term. OTHER: it is another one, neither more nor less; MEASURE: no formula says."""

    DOWN = "down"
    UP = "up"
    SAME = "same"
    OTHER = "other"
    MEASURE = "measure"


class Change(NamedTuple):
    """One term before and after. Bytes, FLOP or passes; `rule` and `quality` have no numbers."""

    mark: Mark
    before: float = 0
    after: float = 0

    @property
    def ratio(self) -> float:
        """After, divided by before."""
        return self.after / self.before if self.before else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One request and how it is served.

    Attributes:
        is_sampled: whether the token is drawn; the likeliest one is taken otherwise.
        gamma, alpha: tokens of a draft looked up in the text, which costs nothing, and the share that is accepted.
        n_reused: positions of the prompt whose keys and values are there already.
        chunk: positions of the prompt in one pass; None for all.
        share_dropped: of the oldest positions, when the answer ends.
    """

    shape: ModelShape
    is_sampled: bool = False
    weight_dtypes: WeightDtypes = BF16_WEIGHTS
    kv_dtypes: KvDtypes = BF16_KV
    batch: int = 1
    gamma: int = 0
    alpha: float = ALPHA
    n_prompt: int = N_PROMPT
    n_reused: int = 0
    chunk: int | None = None
    n_new: int = SHORT_ANSWER
    share_dropped: float = 0.0


class Amounts(NamedTuple):
    """The terms that are numbers.

    `weights`: bytes of all weights; `cache`: of one sequence at the answer's end; `flops` and `read`: FLOP and bytes of
    the last decode step, for each token it gives; `steps`: passes of one sequence; `prefill`: FLOP of its prompt;
    `resident`: bytes of weights and all caches.
    """

    weights: int
    cache: int
    flops: float
    read: float
    steps: float
    prefill: int
    resident: int


def can_be_asked(shape: ModelShape) -> bool:
    """Whether all of this can be reckoned: layers all alike, with heads whose number can be changed, and a context
    that holds the longest answer."""
    has_room = not 0 < shape.context_limit < N_PROMPT + LONG_THOUGHT
    return has_room and bool(shape_numbers(shape))


def amounts(setup: Setup) -> Amounts:
    """All terms of one request."""
    shape, n = setup.shape, setup.n_prompt + setup.n_new
    n_held = n - int(n * setup.share_dropped)
    per_pass = tokens_per_pass(setup.alpha, setup.gamma)
    held = weight_bytes(shape, setup.weight_dtypes)
    cache = int(kv_bytes(shape, n_tokens=n_held, dtypes=setup.kv_dtypes))
    read = float(weight_bytes_read(shape, setup.weight_dtypes, setup.batch * (setup.gamma + 1)))
    first, chunk = setup.n_reused, setup.chunk or setup.n_prompt
    parts = [(min(chunk, setup.n_prompt - begin), begin) for begin in range(first, setup.n_prompt, chunk)]
    return Amounts(
        weights=held,
        cache=cache,
        flops=float(decode_flops(shape, n_held)) * operations(setup.alpha, setup.gamma, 0),
        read=(read / setup.batch + cache) / per_pass,
        steps=len(parts) + (setup.n_new - 1) / per_pass,
        prefill=int(sum(layers_flops(shape, *part, pairs="causal") for part in parts) + head_flops(shape)),
        resident=held + setup.batch * cache,
    )


def with_technique(name: str, shape: ModelShape) -> tuple[Setup, Setup]:
    """A request before a technique and with it. Raises KeyError for an unknown name."""
    plain = Setup(shape=shape)
    after = {
        "sampling": replace(plain, is_sampled=True),
        "weights": replace(plain, weight_dtypes=weight_dtypes("int4")),
        "cache": replace(plain, kv_dtypes=kv_dtypes("q8_0")),
        "draft": replace(plain, gamma=GAMMA),
        "thought": replace(plain, n_new=LONG_THOUGHT),
        "surgery": replace(plain, share_dropped=0.5),
        "batching": replace(plain, batch=BATCH),
        "chunks": replace(plain, chunk=CHUNK),
        "prefix": replace(plain, n_reused=N_PROMPT // 2),
    }
    if name in after:
        return plain, after[name]
    pair = {"heads": shared_heads, "experts": split_experts}[name](shape)
    return replace(plain, shape=pair[0]), replace(plain, shape=pair[1])


def shared_heads(shape: ModelShape) -> tuple[ModelShape, ModelShape]:
    """A KV head for each query head, and as many as the model has, or one for SHARED where it shares none."""
    numbers = shape_numbers(shape)
    heads, own = numbers["n_heads"], numbers["n_kv_heads"]
    if own == heads:
        own = next(n for n in range(max(1, heads // SHARED), 0, -1) if heads % n == 0)
    return changed(shape, {"n_kv_heads": heads}), changed(shape, {"n_kv_heads": own})


def split_experts(shape: ModelShape) -> tuple[ModelShape, ModelShape]:
    """All of the feed-forward part for every token, and a few experts: the model's own, or N_ACTIVE of N_EXPERTS."""
    (group,) = shape.groups
    feed_forward = group.feed_forward
    if isinstance(feed_forward, Experts):
        dense = replace(group, feed_forward=replace(feed_forward, n_active=feed_forward.n_experts))
        return replace(shape, groups=(dense,)), shape
    assert isinstance(feed_forward, FeedForward)
    experts = Experts(
        n_experts=N_EXPERTS,
        n_active=N_ACTIVE,
        d_expert=feed_forward.d_ff // N_EXPERTS,
        is_gated=feed_forward.is_gated,
        has_bias=feed_forward.has_bias,
    )
    return shape, replace(shape, groups=(replace(group, feed_forward=experts),))


@lru_cache(maxsize=256)
def changes(name: str, shape: ModelShape) -> dict[str, Change]:
    """What becomes of each of TERMS with a technique. Raises KeyError for an unknown name."""
    before, after = with_technique(name, shape)
    pairs = zip(Amounts._fields, amounts(before), amounts(after), strict=True)
    found = {term: Change(_mark(one, other), one, other) for term, one, other in pairs}
    found["rule"] = Change(Mark.OTHER if before.is_sampled != after.is_sampled else Mark.SAME)
    found["quality"] = Change(Mark.SAME if name in EXACT else Mark.MEASURE)
    return {term: found[term] for term in TERMS}


def _mark(before: float, after: float) -> Mark:
    return Mark.SAME if after == before else Mark.UP if after > before else Mark.DOWN
