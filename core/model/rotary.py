"""Rotary positions: how fast each pair of dimensions turns, for every way of stretching the context we know."""

from __future__ import annotations

import math

import torch

from core.model.config import RopeConfig
from core.model.yarn import yarn_magnitude


def inverse_frequencies(rope: RopeConfig, head_dim: int, context_limit: int) -> tuple[torch.Tensor, float]:
    """Radians per position of each pair of dimensions, and the factor that cos and sin are multiplied with.

    Args:
        rope: the base and the stretching; `original_context` 0 means the model was trained at `context_limit`.
        head_dim: d_h, even.
        context_limit: the model's longest context in tokens.

    Returns:
        float32 [head_dim / 2], fastest first, and 1.0, or yarn's attention factor.

    Sources: RoFormer (arXiv 2104.09864) for the base form, Meta's Llama 3.1 for `llama3`, YaRN (arXiv 2309.00071,
    sections 3.2 to 3.4) for `yarn`; `divisors` are what GGUF files carry as `rope_freqs.weight`.
    """
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim  # [head_dim / 2]
    plain = 1.0 / rope.theta**exponents
    original_context = rope.original_context or context_limit
    if rope.scaling == "linear":
        return plain / rope.factor, 1.0
    if rope.scaling == "llama3":
        return _llama3(plain, rope, original_context), 1.0
    if rope.scaling == "yarn":
        stated = rope.attention_factor
        factor = yarn_magnitude(rope.factor) if stated is None else stated
        return _yarn(plain, rope, head_dim, original_context), factor
    if rope.scaling == "divisors":
        return plain / torch.tensor(rope.divisors, dtype=torch.float32), 1.0
    return plain, 1.0


def _llama3(plain: torch.Tensor, rope: RopeConfig, original_context: int) -> torch.Tensor:
    """Slow pairs are stretched, fast ones kept, those between blended by how often they turn in the old context."""
    turns = original_context * plain / (2 * math.pi)
    kept = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return (1 - kept) * plain / rope.factor + kept * plain


def _yarn(plain: torch.Tensor, rope: RopeConfig, head_dim: int, original_context: int) -> torch.Tensor:
    """Pairs that turn more than beta_fast times are kept, fewer than beta_slow stretched, a straight ramp between."""

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(original_context / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

    first = max(math.floor(pair_that_turns(rope.beta_fast)), 0)
    last = min(math.ceil(pair_that_turns(rope.beta_slow)), head_dim - 1)
    width = (last - first) or 0.001  # the published code's guard where both ends fall on one pair
    stretched = (torch.arange(head_dim // 2, dtype=torch.float32) - first) / width
    stretched = stretched.clamp(0.0, 1.0)
    return plain / rope.factor * stretched + plain * (1 - stretched)
