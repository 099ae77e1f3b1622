"""The record of a run: one immutable event a step. Nothing draws while it computes; everything is drawn from these."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from core.model.sampling import Candidate

FloatArray = npt.NDArray[np.float32]


class Phase(StrEnum):
    """The chapter's two phases, and the loop of its third chapter that knows no cache."""

    PREFILL = "prefill"
    DECODE = "decode"
    RECOMPUTE = "recompute"


class StopKind(StrEnum):
    """Why a run ends."""

    END_TOKEN = "end token"
    LENGTH = "length"
    CONTEXT_LIMIT = "context limit"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a run: an end token (`value` its id), the length asked for, or the full context (`value` its size)."""

    kind: StopKind
    value: int | None = None

    def __str__(self) -> str:
        """ "end token 2", "length", "context limit 8192"."""
        return str(self.kind) if self.value is None else f"{self.kind} {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRow:
    """How strongly the newest position looked at each of the n positions, in one layer. Read-only fp32 [n], sum 1."""

    layer: int
    head: int
    weights: FloatArray
    mean_over_heads: FloatArray


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class Recorded:
    """What a recorder was asked to keep of a step; None where it was not asked. Each is equal to itself alone.

    `key_norms`, `value_norms`: read-only fp32 [L, n_kv, new positions], the length of each new key and value vector.
    """

    key_norms: FloatArray | None = None
    value_norms: FloatArray | None = None
    attention: AttentionRow | None = None

    def columns(self, n_last: int) -> FloatArray:
        """The norms of the last `n_last` new positions, position first: [n_last, L, 2, n_kv], K before V."""
        if self.key_norms is None or self.value_norms is None:
            raise ValueError("this run's record keeps no norms of keys and values")
        both = np.stack([self.key_norms, self.value_norms], axis=1)  # (L, n_kv, n_new) → (L, 2, n_kv, n_new)
        return both[..., both.shape[-1] - n_last :].transpose(3, 0, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The token a step produced, and from what it was chosen.

    Attributes:
        token_id, label: the token, and what a chip shows of it.
        text: the text that became complete with it; perhaps nothing, perhaps more than one character.
        seconds: from logits to the token.
        candidates: the likeliest next tokens before and after the filters, as many as were asked for.
        kept_count, kept_mass: how many tokens the filters kept, and their share of the probability.
        model_total: the sum of exp(logit − best logit) over all tokens, by which the model's own probabilities divide.
        best_score: the largest logit after the repetition penalty.
        kept_total: the sum of exp((score − best_score) / temperature) over the kept tokens; 1 without temperature.
            These three, like the two above them, are 0 where no candidates were asked for.
    """

    token_id: int
    label: str
    text: str
    seconds: float
    candidates: tuple[Candidate, ...]
    kept_count: int
    kept_mass: float
    model_total: float
    best_score: float
    kept_total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """One step of one run.

    Attributes:
        n_tokens: context length, the new positions included; so many keys the newest query saw.
        new_positions: positions sent through the layers in this step.
        reused_positions: positions whose keys and values were read from the cache instead.
        attended_pairs: (query, key) pairs under the causal mask, in one layer and head.
        flops_exact, flops_chapter: FLOP of this run's share of the step; see core.estimate.flops.
        kv_bytes: bytes of the cache's own tensors after the step (0 without a cache).
        kv_bytes_formula: the chapter's M_KV for as many positions (0 without a cache).
        kv_reserved_bytes: bytes allocated for the cache, whole blocks.
        n_passes: passes through the layers: one, or the chunks of a long prefix.
        weight_bytes_read: bytes of the matrices the step multiplied with, once a pass; the head's once.
        kv_bytes_read: bytes of cached keys and values it read: in a decode step all n positions, the new one included;
            in a prefix what the passes before it had written, which is none for one pass.
        batch: runs that shared the pass, B; 1 for a pass over a prefix.
        seconds: the model's pass on the clock, the device waited for; shared by all runs of the step.
        sampled: the token it produced; None when none was asked for.
        recorded: what the run's RecordConfig asked for besides.
    """

    phase: Phase
    n_tokens: int
    new_positions: int
    reused_positions: int
    attended_pairs: int
    flops_exact: int
    flops_chapter: int
    kv_bytes: int
    kv_bytes_formula: int
    kv_reserved_bytes: int
    n_passes: int
    weight_bytes_read: int
    kv_bytes_read: int
    batch: int
    seconds: float
    sampled: Sampled | None
    recorded: Recorded

    @property
    def bytes_read(self) -> int:
        """Bytes the step must read at least: weights and cache."""
        return self.weight_bytes_read + self.kv_bytes_read

    @property
    def total_seconds(self) -> float:
        """The pass and the sampling: what the step adds to the time a reader waits."""
        return self.seconds + (self.sampled.seconds if self.sampled else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A run as it stands: its prompt, its steps, and what they add up to."""

    prompt_ids: tuple[int, ...]
    steps: tuple[StepEvent, ...]
    text: str
    stopped: Stop | None
    tokenising_seconds: float = 0.0

    @property
    def output_ids(self) -> tuple[int, ...]:
        """The tokens produced so far."""
        return tuple(step.sampled.token_id for step in self.steps if step.sampled)

    def n_added(self, number: int) -> int:
        """Positions that a step brought: all of a prompt, then one a step, also where it computes all of them again."""
        before = self.steps[number - 1].n_tokens if number else 0
        return self.steps[number].n_tokens - before

    @property
    def time_to_first_token_s(self) -> float | None:
        """TTFT: tokenising the prompt, the first pass and its sampling; None before the first token."""
        if not self.output_ids:
            return None
        return self.tokenising_seconds + self.steps[0].total_seconds

    @property
    def time_per_output_token_s(self) -> float | None:
        """TPOT = (total − TTFT) / (outputs − 1): the pauses of a person who steps by hand are not part of it."""
        n_outputs = len(self.output_ids)
        return sum(step.total_seconds for step in self.steps[1:]) / (n_outputs - 1) if n_outputs > 1 else None
