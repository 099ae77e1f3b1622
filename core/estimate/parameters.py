"""How many numbers a model consists of, exactly: the sum over the one list of its tensors."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from core.model.config import ModelConfig
from core.model.parameters import EMBEDDING, parameter_shapes


@lru_cache(maxsize=256)
def n_params(config: ModelConfig) -> int:
    """Every trained number; a tied head is counted once, as the input table."""
    return sum(prod(shape) for shape in parameter_shapes(config).values())


def n_active_params(config: ModelConfig) -> int:
    """What one token multiplies with or adds: everything but the input table, unless the table is the head too."""
    embedding = prod(parameter_shapes(config)[EMBEDDING])
    return n_params(config) - (0 if config.tied_head else embedding)
