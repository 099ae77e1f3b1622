"""A random model with so small a vocabulary that the probability of every short text can be reckoned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch

from core.lab.lane import logits_behind
from core.model.device import Device
from core.model.load import LanguageModel
from core.model.parameters import parameter_shapes
from core.model.sampling import SamplingConfig, filter_probabilities
from core.model.transformer import Transformer
from tests.runs import MADE_UP

VOCABULARY = 6


def small_model(*, seed: int = 3) -> LanguageModel:
    """Two layers, six tokens, weights so large that its distributions are far from even."""
    config = replace(MADE_UP, n_layers=2, vocab_size=VOCABULARY)
    chance = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=chance) for name, shape in parameter_shapes(config).items()}
    tokenizer: Any = SimpleNamespace(vocab_size=VOCABULARY)
    return LanguageModel(
        name=config.name,
        config=config,
        transformer=Transformer(config, tensors.__getitem__),
        tokenizer=tokenizer,
        chat_template=None,
        end_token_ids=frozenset(),
        device=Device(torch.device("cpu")),
    )


def probabilities(
    model: LanguageModel, prompt: list[int], n_new: int, sampling: SamplingConfig
) -> dict[tuple[int, ...], float]:
    """How likely each continuation of `n_new` tokens is when every token is drawn from the filtered distribution."""
    return {text: _probability(model, prompt, text, sampling) for text in product(range(VOCABULARY), repeat=n_new)}


def _probability(model: LanguageModel, prompt: list[int], text: tuple[int, ...], sampling: SamplingConfig) -> float:
    ids = [*prompt, *text]
    logits = logits_behind(model.transformer, ids, model.transformer.new_cache())
    chance = 1.0
    for place, token_id in enumerate(text, len(prompt)):
        chance *= filter_probabilities(logits[place - 1], sampling, ids[:place], VOCABULARY).probability_kept(token_id)
    return chance


def chi_square_deviations(counts: dict[tuple[int, ...], int], expected: dict[tuple[int, ...], float]) -> float:
    """How many standard deviations the chi-square statistic lies above what chance gives (Wilson and Hilferty).

    `expected` are probabilities. Cells with fewer than five expected are put together. What cannot happen but did is
    infinitely far.
    """
    n = sum(counts.values())
    if any(expected[cell] == 0 for cell in counts):
        return float("inf")
    cells = list(_cells(counts, expected, n))
    statistic, free = sum((seen - due) ** 2 / due for seen, due in cells), len(cells) - 1
    spread = 2 / (9 * free)
    return float(((statistic / free) ** (1 / 3) - (1 - spread)) / spread**0.5)


def _cells(
    counts: dict[tuple[int, ...], int], expected: dict[tuple[int, ...], float], n: int
) -> Iterator[tuple[float, float]]:
    rare_seen, rare_due = 0.0, 0.0
    for cell, chance in expected.items():
        if n * chance >= 5:
            yield counts.get(cell, 0), n * chance
        else:
            rare_seen, rare_due = rare_seen + counts.get(cell, 0), rare_due + n * chance
    if rare_due > 0:
        yield rare_seen, rare_due
