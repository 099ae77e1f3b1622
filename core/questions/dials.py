"""What the learner may set: the models a question makes sense for, cards, lengths, batches."""

from __future__ import annotations

from collections.abc import Callable

from core.estimate import catalogue
from core.estimate.shape import ModelShape
from core.questions.question import Dial

CARDS = ("h100-sxm", "h200-sxm", "a100-sxm-80gb", "rtx-4090", "l4", "m2-ultra")
CONTEXTS = tuple(1024 * 2**power for power in range(8))
BATCHES = tuple(2**power for power in range(1, 9))
LIVE = Dial("live", ("smollm2", "tiny"))
"""Our own two models; an operator's further ones are asked on the other pages."""


def models_where(holds: Callable[[ModelShape], bool]) -> Dial:
    """The models of the catalogue of which it holds."""
    return Dial("model", tuple(slug for slug in catalogue.models() if holds(catalogue.shape(slug))))


def has_windows(shape: ModelShape) -> bool:
    """Whether some layers keep a part of the context alone."""
    return any(group.attention is not None and group.attention.window for group in shape.groups)


def is_plain(shape: ModelShape) -> bool:
    """Whether every layer is dense, with heads of its own that keep everything."""
    return not (shape.has_experts or shape.has_latents or has_windows(shape))


def shares_heads(shape: ModelShape) -> bool:
    """Whether query heads share keys and values, the same number in every layer, with all positions kept."""
    kinds = {group.attention for group in shape.groups}
    return (
        not shape.has_latents
        and not has_windows(shape)
        and all(kind is not None and getattr(kind, "n_kv_heads", 0) < kind.n_heads for kind in kinds)
        and len(shape.groups) == 1
    )


PLAIN, GROUPED = models_where(is_plain), models_where(shares_heads)
EXPERTS, WINDOWED = models_where(lambda shape: shape.has_experts), models_where(has_windows)
DENSE = Dial("other", PLAIN.choices)
CARD, N, BATCH = Dial("card", CARDS), Dial("n", CONTEXTS), Dial("batch", BATCHES)
