"""What stands behind the two probabilities of a candidate: the model's own, and the one it is drawn with.

Their figures are called `model_probability_R` and `drawn_probability_R`, R being the candidate's place in the step's
list, from 0. Here is nothing of streamlit. The value is the record's own; a derivation shows how it comes about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from core.engine.begun import Begun
from core.engine.trace import Sampled, StepEvent
from core.estimate.probability import (
    DrawnProbability,
    GreedyProbability,
    ModelProbability,
    Probability,
    percent,
    plain,
)
from core.model.sampling import Candidate, Filtered, SamplingConfig, choose, exponentials, penalised
from pages.shared.source_code import Source, sources

MODEL, DRAWN = "model_probability", "drawn_probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedChance:
    """A probability of a candidate with all that stands behind it.

    Attributes:
        name: which of the two it is, MODEL or DRAWN.
        place, token: the candidate's place in the list, from 0, and its label.
        value: the record's probability, in [0, 1].
        about: keys of the sentences that say what it is; `values` fills them in.
        other: the candidate's other probability.
    """

    name: str
    place: int
    token: str
    value: float
    derivation: Probability
    about: tuple[str, ...]
    values: Mapping[str, str]
    sources: tuple[Source, ...]
    other: float

    @property
    def other_name(self) -> str:
        """The name of the other probability."""
        return MODEL if self.name == DRAWN else DRAWN


def is_chance(name: str, event: StepEvent) -> bool:
    """Whether this names a probability of a candidate that the step has."""
    kind, _, place = name.rpartition("_")
    return kind in (MODEL, DRAWN) and event.sampled is not None and place in map(str, range(len(_listed(event))))


def chance_of(name: str, started: Begun, event: StepEvent) -> OpenedChance:
    """The probability, opened. For names that `is_chance` knows."""
    kind, _, place = name.rpartition("_")
    sampled, candidate = event.sampled, _listed(event)[int(place)]
    assert sampled is not None
    model, config = started.model, started.config.sampling
    n_tokens = min(model.tokenizer.vocab_size, model.config.vocab_size)
    values = {
        "kept": f"{sampled.kept_count:,}",
        "all": f"{n_tokens:,}",
        "mass": percent(sampled.kept_mass),
        "top_k": f"{config.top_k:,}",
        "top_p": plain(config.top_p),
    }
    own, drawn = candidate.probability, candidate.probability_kept
    is_model = kind == MODEL
    return OpenedChance(
        name=kind,
        place=int(place),
        token=model.tokenizer.token_label(candidate.token_id),
        value=own if is_model else drawn,
        derivation=_model(sampled, candidate, n_tokens) if is_model else _drawn(sampled, candidate, config),
        about=("about_model_probability",) if is_model else _about_drawn(sampled, candidate, config, n_tokens),
        values=values,
        sources=sources(Filtered.probability, exponentials) if is_model else _drawn_by(config),
        other=drawn if is_model else own,
    )


def _listed(event: StepEvent) -> tuple[Candidate, ...]:
    return event.sampled.candidates if event.sampled else ()


def _model(sampled: Sampled, candidate: Candidate, n_tokens: int) -> Probability:
    best = sampled.candidates[0].logit  # they are listed by the model's own probability
    return ModelProbability(logit=candidate.logit, best=best, total=sampled.model_total, n_tokens=n_tokens)


def _drawn(sampled: Sampled, candidate: Candidate, config: SamplingConfig) -> Probability:
    if config.is_greedy:
        return GreedyProbability(
            score=candidate.score,
            best=sampled.best_score,
            token_id=candidate.token_id,
            best_id=sampled.token_id,
            penalised=config.repetition_penalty != 1,
        )
    return DrawnProbability(
        logit=candidate.logit,
        score=candidate.score,
        best=sampled.best_score,
        total=sampled.kept_total,
        n_kept=sampled.kept_count,
        kept=not _is_cut(candidate),
        temperature=config.temperature,
        penalty=config.repetition_penalty,
    )


def _about_drawn(sampled: Sampled, candidate: Candidate, config: SamplingConfig, n_tokens: int) -> tuple[str, ...]:
    first = ["about_penalty"] if config.repetition_penalty != 1 else []
    if config.is_greedy:
        return (*first, "about_greedy")
    first += ["about_temperature", "about_all_kept" if sampled.kept_count == n_tokens else "about_kept_of_all"]
    if _is_cut(candidate):
        # Where fewer are kept than top-k leaves, it is top-p that ends the list.
        if config.top_p == 1 or sampled.kept_count == config.top_k:
            first.append("about_cut_by_top_k")
        else:
            first.append("about_cut_by_top_p_of_top_k" if 0 < config.top_k < n_tokens else "about_cut_by_top_p")
    return tuple(first)


def _is_cut(candidate: Candidate) -> bool:
    """Whether a filter took it away; a logit of −∞ needs no filter, its exponential is 0."""
    return not candidate.kept and candidate.score > -math.inf


def _drawn_by(config: SamplingConfig) -> tuple[Source, ...]:
    changed = sources(penalised) if config.repetition_penalty != 1 else ()
    if config.is_greedy:
        return (*changed, *sources(choose, Filtered.probability_kept))
    nucleus = sources(Filtered.nucleus) if config.top_p < 1 else ()
    filtered = sources(Filtered.probability_kept, exponentials, Filtered.top_k_then_top_p)
    return (*changed, *filtered, *nucleus)
