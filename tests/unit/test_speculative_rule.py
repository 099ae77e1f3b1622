"""Sampled speculative decoding gives the model's own distribution, and a rule that is nearly right does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from core.lab.speculative import acceptance
from core.lab.speculative.acceptance import ACCEPT, is_accepted, judge, what_is_left
from core.lab.speculative.decoding import SpeculativeDecoder
from core.lab.speculative.drafting import DRAFT, Draft, Drafter, FirstLayers, PromptLookup
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, Weights, filter_probabilities, uniform
from tests.small_model import chi_square_deviations, probabilities, small_model

PROMPT = [2, 5, 1, 0, 2, 5]
N_NEW = 2
N_SEEDS = 400
FAR = 4.0
"""Standard deviations: chance alone goes so far once in 30,000 times. Seeds are fixed, so this never varies."""
SETTINGS = (
    {"temperature": 1.0},
    {"temperature": 1.6, "top_k": 4, "top_p": 0.9},
    {"temperature": 1.3, "repetition_penalty": 1.5},
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return small_model()


def first_layers(model: LanguageModel, sampling: SamplingConfig) -> Drafter:
    return FirstLayers(model, PROMPT, 1, sampling)


def lookup(model: LanguageModel, sampling: SamplingConfig) -> Drafter:
    return PromptLookup()


DRAFTERS = (first_layers, lookup)


def written(model: LanguageModel, drafter: Callable[..., Drafter], **settings: Any) -> tuple[Counter[Any], int, int]:
    """Texts by how often they were written, one a seed; drafted tokens that stayed, and that were refused."""
    texts: Counter[Any] = Counter()
    accepted = refused = 0
    for seed in range(N_SEEDS):
        sampling = SamplingConfig(seed=seed, **settings)
        decoder = SpeculativeDecoder(model, PROMPT, drafter(model, sampling), 2, sampling)
        for point in decoder.lane.fill_points():
            point()
        while len(decoder.lane.ids) < len(PROMPT) + N_NEW:
            # One token more may be drafted than is kept: else the last token of a text would never be a draft.
            done = decoder.step(N_NEW + 1)
            accepted, refused = accepted + done.n_accepted, refused + done.is_corrected
        texts[tuple(decoder.lane.ids[len(PROMPT) :][:N_NEW])] += 1
    return texts, accepted, refused


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_distribution_is_the_models(model: LanguageModel, drafter: Any, settings: dict[str, Any]) -> None:
    texts, accepted, refused = written(model, drafter, **settings)
    assert min(accepted, refused) > N_SEEDS / 10  # both branches are in it
    expected = probabilities(model, PROMPT, N_NEW, SamplingConfig(**settings))
    assert sum(expected.values()) == pytest.approx(1)
    assert chi_square_deviations(texts, expected) < FAR


def always(u: float, p: float, q: float) -> bool:
    return p > 0


def the_other_way_round(u: float, p: float, q: float) -> bool:
    return u * p < q


def from_the_target(target: Weights, drawn_from: Weights | None, token_id: int) -> Weights:
    """Replaced from p and not from what is left of it."""
    return target


@pytest.mark.parametrize(
    ("drafter", "name", "wrong"),
    [
        (first_layers, "is_accepted", always),
        (first_layers, "is_accepted", the_other_way_round),
        (first_layers, "what_is_left", from_the_target),
        (lookup, "is_accepted", always),
        (lookup, "what_is_left", from_the_target),
    ],
)
def test_a_wrong_rule_is_noticed(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch, drafter: Any, name: str, wrong: Any
) -> None:
    monkeypatch.setattr(acceptance, name, wrong)
    texts, _, _ = written(model, drafter, **SETTINGS[0])
    expected = probabilities(model, PROMPT, N_NEW, SamplingConfig(**SETTINGS[0]))
    assert chi_square_deviations(texts, expected) > FAR


def test_the_same_draws_for_two_purposes_are_noticed(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token is likelier to be drawn for some u than for others, so the u that accepts it must be another."""
    monkeypatch.setattr(acceptance, "ACCEPT", DRAFT)
    texts, _, _ = written(model, first_layers, **SETTINGS[0])
    assert chi_square_deviations(texts, probabilities(model, PROMPT, N_NEW, SamplingConfig(**SETTINGS[0]))) > FAR


def test_what_a_refused_token_leaves() -> None:
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.2, 0.6, 0.1, 0.1])
    np.testing.assert_allclose(what_is_left(p, q, 1), [0.75, 0, 0.25, 0])
    np.testing.assert_allclose(what_is_left(p, None, 0), [0, 0.6, 0.4, 0])
    np.testing.assert_allclose(p, [0.5, 0.3, 0.2, 0.0])  # not touched
    np.testing.assert_allclose(what_is_left(p, p, 0), p)  # rounding alone can lead here


def test_accepted_with_the_ratio_of_both() -> None:
    assert is_accepted(0.999999, 0.4, 0.4) and is_accepted(0.999999, 0.5, 0.4)
    assert is_accepted(0.49, 0.2, 0.4) and not is_accepted(0.5, 0.2, 0.4)
    assert not is_accepted(0.0, 0.0, 0.4)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_draw_depends_on_seed_and_length_alone(model: LanguageModel, drafter: Any) -> None:
    """The same text whether it was written in one go, or taken back and written again."""
    sampling = SamplingConfig(temperature=1.2, seed=9)
    decoder = SpeculativeDecoder(model, PROMPT, drafter(model, sampling), 3, sampling)
    for point in decoder.lane.fill_points():
        point()
    standings, n_tokens = [], []
    for _ in range(6):
        standings.append(decoder.standing)
        decoder.step(100)
        n_tokens.append(len(decoder.lane.ids))
    ids = list(decoder.lane.ids)
    for number in (4, 1, 0):
        decoder.go_back(standings[number])
        for reached in n_tokens[number:]:
            decoder.step(100)
            assert len(decoder.lane.ids) == reached
        assert decoder.lane.ids == ids
    assert uniform(9, 5) != uniform(9, 5, DRAFT) != uniform(9, 5, ACCEPT)


def test_the_models_distribution_is_asked_for_no_more_than_needed(model: LanguageModel) -> None:
    asked: list[int] = []

    def target_at(place: int) -> Any:
        asked.append(place)
        return filter_probabilities(torch.tensor([0.0, 9.0, 1.0]), SamplingConfig())

    assert judge(Draft((1, 1, 0, 1), (None,) * 4), target_at, 0, 10) == acceptance.Verdict(2, 1)
    assert asked == [0, 1, 2]
