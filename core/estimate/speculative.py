"""Speculative decoding: what a draft of γ tokens is worth when each of them is accepted with probability α.

Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (arXiv 2211.17192), section 3.
The draft model proposes γ tokens, the target model checks them all in one pass, and the pass yields what was accepted
and one token more. Acceptances are taken as independent and equally likely; real ones come in runs.
"""

from __future__ import annotations

from math import inf


def tokens_per_pass(alpha: float, gamma: int) -> float:
    """Tokens that one pass of the target model yields on average: (1 − α^(γ+1)) / (1 − α), the paper's equation 1.

    That is the geometric series 1 + α + … + α^γ, which is summed here: at α = 1 it is the limit, γ + 1.

    Raises:
        ValueError: α is not in [0, 1], or γ is no whole number from 0 up.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be between 0 and 1, not {alpha}")
    if isinstance(gamma, bool) or not isinstance(gamma, int) or gamma < 0:
        raise ValueError(f"gamma must be a whole number from 0 up, not {gamma}")
    return sum(alpha**i for i in range(gamma + 1))


def speedup(alpha: float, gamma: int, cost_ratio: float, pass_ratio: float = 1.0) -> float:
    """How many times faster than the target model alone: (1 − α^(γ+1)) / ((1 − α)(γc + r)), theorem 3.8 with r = 1.

    The theorem assumes that a pass over γ + 1 positions takes no longer than one over a single position, as it does
    where reading the weights is the bound; elsewhere it takes r times as long. Below 1 drafting is a loss.

    Args:
        cost_ratio: c, the time of a step of the draft model over that of the target model.
        pass_ratio: r.

    Raises:
        ValueError: as `tokens_per_pass`, or c or r is negative or not finite.
    """
    return tokens_per_pass(alpha, gamma) / (gamma * _checked(cost_ratio) + _checked(pass_ratio))


def break_even_cost(alpha: float, gamma: int, pass_ratio: float = 1.0) -> float:
    """The c at which `speedup` is 1: (E − r) / γ with E tokens a pass. Below 0 not even a free draft would pay.

    Raises:
        ValueError: as `speedup`, or γ is 0 and there is no draft.
    """
    gain = tokens_per_pass(alpha, gamma) - _checked(pass_ratio)
    if gamma == 0:
        raise ValueError("without a draft there is nothing to break even")
    return gain / gamma


def operations(alpha: float, gamma: int, cost_ratio: float) -> float:
    """How many times more is computed per token: (1 − α)(γĉ + γ + 1) / (1 − α^(γ+1)), theorem 3.11.

    Args:
        cost_ratio: ĉ, the operations of the draft model per token over those of the target model.

    Raises:
        ValueError: as `tokens_per_pass`, or ĉ is negative or not finite.
    """
    return (gamma * _checked(cost_ratio) + gamma + 1) / tokens_per_pass(alpha, gamma)


def _checked(cost_ratio: float) -> float:
    if not 0 <= cost_ratio < inf:
        raise ValueError(f"a ratio of costs must be a number from 0 up, not {cost_ratio}")
    return cost_ratio
