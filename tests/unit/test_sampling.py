"""The next token: filters at their edges, and draws that depend on seed and length alone (known faults B07, B08, B10,
B29)."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from core.model.sampling import SamplingConfig, candidates, choose, filter_probabilities, uniform
from core.refusal import Refusal


def logits_of(probabilities: list[float]) -> torch.Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def kept_set(logits: torch.Tensor, config: SamplingConfig) -> set[int]:
    return {c.token_id for c in candidates(logits, config, count=len(logits)) if c.kept}


# B07: temperature 0


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-6, 1e-300, 5e-324])
def test_no_temperature_takes_the_best_with_certainty(temperature: float) -> None:
    config = SamplingConfig(temperature=temperature)
    logits = torch.tensor([1.0, 2.0, 3.0])
    filtered = filter_probabilities(logits, config)
    assert [filtered.probability_kept(i) for i in range(3)] == [0.0, 0.0, 1.0]
    assert (filtered.kept_count, filtered.kept_mass) == (1, 1.0)
    assert choose(logits, config, n_tokens=7) == filtered.choose(7) == 2


def test_greedy_takes_the_first_of_equals() -> None:
    logits = torch.tensor([1.0, 3.0, 3.0, 2.0, 3.0])
    for temperature in (0.0, 1e-6):
        config = SamplingConfig(temperature=temperature)
        assert choose(logits, config, n_tokens=1) == filter_probabilities(logits, config).choose(1) == 1


@pytest.mark.parametrize("temperature", [1e-4, 1e-3, 1e300, 1.7e308])
def test_extreme_temperatures_stay_numbers(temperature: float) -> None:
    found = candidates(torch.tensor([-1e4, 2.0, 3.0, -math.inf]), SamplingConfig(temperature=temperature), count=4)
    assert math.isclose(sum(c.probability_kept for c in found), 1.0)
    assert math.isclose(sum(c.probability for c in found), 1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", value) for value in (-1, -0.001, math.nan, math.inf, None, "", "1", True, [1])]
    + [("top_k", value) for value in (-1, 2.0, None, "", "5", True, math.nan)]
    + [("top_p", value) for value in (-0.1, 1.1, math.nan, None, "", "0.5", True)]
    + [("repetition_penalty", value) for value in (0, -1, math.nan, math.inf, None, "", True, 1000)]
    + [("seed", value) for value in (-1, 0.5, None, "", True, 2**64)],
)
def test_settings_that_make_no_sense_are_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(Refusal) as refusal:
        SamplingConfig(**{field: value})
    assert refusal.value.key == f"text.{field}"
    for language in ("en", "zh"):
        assert repr(value) in refusal.value.sentence(language)


# B08: top-p


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("probabilities", "top_p", "kept", "mass"),
    [
        ([0.4, 0.3, 0.2, 0.1], 0.8, {0, 1, 2}, 0.9),
        ([0.5, 0.25, 0.125, 0.125], 0.75, {0, 1}, 0.75),
        ([0.5, 0.25, 0.125, 0.125], 1.0, {0, 1, 2, 3}, 1.0),
        ([0.5, 0.25, 0.125, 0.125], 0.0, {0}, 0.5),
        ([0.125, 0.25, 0.125, 0.5], 0.76, {3, 1, 0}, 0.875),
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(
    probabilities: list[float], top_p: float, kept: set[int], mass: float, dtype: torch.dtype
) -> None:
    logits = logits_of(probabilities).to(dtype)
    config = SamplingConfig(temperature=1, top_p=top_p)
    filtered = filter_probabilities(logits, config)
    assert kept_set(logits, config) == kept
    assert filtered.kept_count == len(kept)
    assert math.isclose(filtered.kept_mass, mass, rel_tol=1e-6)
    for token_id in kept:
        assert math.isclose(filtered.probability_kept(token_id), probabilities[token_id] / mass, rel_tol=1e-6)


def test_top_p_of_one_keeps_the_whole_vocabulary() -> None:
    logits = torch.randn(49_152, generator=torch.Generator().manual_seed(1)) * 8
    assert filter_probabilities(logits, SamplingConfig(temperature=1, top_p=1.0)).kept_count == 49_152


def test_top_p_on_a_flat_distribution_looks_as_far_as_it_must() -> None:
    filtered = filter_probabilities(torch.zeros(49_152), SamplingConfig(temperature=1, top_p=0.5))
    assert filtered.kept_count == 24_576
    assert filtered.keeps(24_575) and not filtered.keeps(24_576)


# top-k


@pytest.mark.parametrize(
    ("top_k", "kept"), [(0, {0, 1, 2, 3}), (1, {1}), (2, {1, 3}), (4, {0, 1, 2, 3}), (99, {0, 1, 2, 3})]
)
def test_top_k(top_k: int, kept: set[int]) -> None:
    assert kept_set(torch.tensor([0.0, 3.0, 1.0, 2.0]), SamplingConfig(temperature=1, top_k=top_k)) == kept


def test_ties_keep_the_lower_id() -> None:
    logits = torch.zeros(1000)
    logits[[500, 900]] = 1.0
    assert kept_set(logits, SamplingConfig(temperature=1, top_k=4)) == {500, 900, 0, 1}
    found = candidates(logits, SamplingConfig(temperature=1), count=5)
    assert [c.token_id for c in found] == [500, 900, 0, 1, 2]


def test_all_but_one_filtered_leaves_certainty() -> None:
    logits = torch.tensor([-math.inf, 0.5, -math.inf])
    config = SamplingConfig(temperature=1, top_k=2, top_p=0.9)
    filtered = filter_probabilities(logits, config)
    assert (filtered.kept_count, filtered.kept_mass, filtered.probability_kept(1)) == (1, 1.0, 1.0)
    assert {choose(logits, config, n_tokens=n) for n in range(50)} == {1}


# B10: repetition penalty


def test_penalty_lowers_positive_and_negative_logits() -> None:
    logits = torch.tensor([3.0, -3.0, 1.0], dtype=torch.float64)
    filtered = filter_probabilities(logits, SamplingConfig(temperature=1, repetition_penalty=1.5), [0, 1, 0, 0])
    expected = torch.tensor([2.0, -4.5, 1.0], dtype=torch.float64).softmax(0)
    assert [filtered.probability_kept(i) for i in range(3)] == pytest.approx(expected.tolist(), rel=1e-12)
    # What the model itself said is shown unchanged, and the caller's logits are left alone.
    before = logits.softmax(0).tolist()
    assert [c.probability for c in filtered.candidates(3)] == pytest.approx(sorted(before, reverse=True), rel=1e-12)
    assert logits.tolist() == [3.0, -3.0, 1.0]


def test_penalty_changes_a_greedy_choice() -> None:
    logits = torch.tensor([3.0, 2.5, 1.0])
    assert choose(logits, SamplingConfig(repetition_penalty=1.5), [0], n_tokens=1) == 1


# B29: rows without a token


def test_rows_without_a_token_are_never_candidates() -> None:
    logits = torch.zeros(16)
    logits[12] = 50.0
    for config in (SamplingConfig(), SamplingConfig(temperature=1.0), SamplingConfig(temperature=1.0, top_k=16)):
        assert max(c.token_id for c in candidates(logits, config, [12], n_usable=10, count=16)) == 9
        assert all(choose(logits, config, [12], 10, n_tokens=n) < 10 for n in range(200))


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [1.0, math.inf], [-math.inf, -math.inf]])
def test_numbers_nothing_can_be_drawn_from_are_refused(bad: list[float]) -> None:
    for config in (SamplingConfig(), SamplingConfig(temperature=1.0)):
        with pytest.raises(Refusal, match="no usable numbers"):
            choose(torch.tensor(bad), config, n_tokens=1)
        with pytest.raises(Refusal, match="no usable numbers"):
            candidates(torch.tensor(bad), config)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_of_logits(dtype: torch.dtype) -> None:
    logits = torch.tensor([0.0, 4.0, 2.0], dtype=dtype)
    assert choose(logits, SamplingConfig(), n_tokens=1) == 1
    assert candidates(logits, SamplingConfig(temperature=1))[0].probability == pytest.approx(0.8668, abs=1e-4)


# Against transformers


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "config",
    [
        SamplingConfig(temperature=0.7),
        SamplingConfig(temperature=1.3, top_k=40),
        SamplingConfig(temperature=1.0, top_p=0.9),
        SamplingConfig(temperature=0.8, top_k=50, top_p=0.95, repetition_penalty=1.2),
        SamplingConfig(temperature=2.0, top_p=0.999, repetition_penalty=1.1),
    ],
)
def test_same_distribution_as_transformers(seed: int, config: SamplingConfig) -> None:
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3
    seen = [3, 17, 3, 4999, 256]
    ids, scores = torch.tensor([seen]), logits[None]
    if config.repetition_penalty != 1:
        scores = RepetitionPenaltyLogitsProcessor(config.repetition_penalty)(ids, scores.clone())
    scores = TemperatureLogitsWarper(config.temperature)(ids, scores)
    if config.top_k:
        scores = TopKLogitsWarper(config.top_k)(ids, scores)
    if config.top_p < 1:
        scores = TopPLogitsWarper(config.top_p)(ids, scores)
    expected = scores[0].softmax(0)
    filtered = filter_probabilities(logits, config, seen)
    ours = torch.tensor([filtered.probability_kept(i) for i in range(5000)], dtype=torch.float64)
    assert filtered.kept_count == int((expected > 0).sum())
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-15)


# Draws


def test_a_draw_depends_on_seed_and_length_alone() -> None:
    logits = torch.randn(300, generator=torch.Generator().manual_seed(0))
    config = SamplingConfig(temperature=1.0, seed=11)
    forward = [choose(logits, config, n_tokens=n) for n in range(40)]
    torch.rand(5)
    backward = [choose(logits, config, n_tokens=n) for n in reversed(range(40))]
    assert forward == backward[::-1]
    assert forward != [choose(logits, SamplingConfig(temperature=1.0, seed=12), n_tokens=n) for n in range(40)]
    # Written down once: another machine, another version and another year draw the same.
    assert [uniform(0, 1), uniform(0, 2), uniform(7, 1)] == [
        0.9459165357046844,
        0.8099321172140698,
        0.30106175815395075,
    ]


def test_numbers_are_uniform_over_lengths_and_over_seeds() -> None:
    for numbers in ([uniform(5, n) for n in range(8000)], [uniform(seed, 100) for seed in range(8000)]):
        assert min(numbers) >= 0 and max(numbers) < 1
        counts = Counter(int(u * 16) for u in numbers)
        chi_square = sum((counts[i] - 500) ** 2 / 500 for i in range(16))
        assert chi_square < 37.7  # 99.9% point for 15 degrees of freedom
    pairs = Counter((int(uniform(5, n) * 4), int(uniform(5, n + 1) * 4)) for n in range(8000))
    assert sum((pairs[i, j] - 500) ** 2 / 500 for i in range(4) for j in range(4)) < 37.7


@pytest.mark.parametrize(
    "config",
    [
        SamplingConfig(temperature=1.0, seed=3),
        SamplingConfig(temperature=1.7, seed=4),
        SamplingConfig(temperature=1.0, top_k=5, seed=5),
        SamplingConfig(temperature=1.0, top_p=0.9, seed=6),
        SamplingConfig(temperature=0.8, top_k=6, top_p=0.95, repetition_penalty=1.3, seed=7),
    ],
)
def test_draws_follow_the_kept_probabilities(config: SamplingConfig) -> None:
    logits = torch.tensor([0.3, 2.0, -1.0, 1.1, 1.1, 0.0, -0.4, 0.9])
    filtered = filter_probabilities(logits, config, [1, 2])
    n_draws = 6000
    counts = Counter(filtered.choose(n) for n in range(n_draws))
    expected = {i: n_draws * filtered.probability_kept(i) for i in range(8)}
    assert all(expected[i] > 0 for i in counts)
    chi_square = sum((counts[i] - e) ** 2 / e for i, e in expected.items() if e)
    assert chi_square < 24.4  # 99.9% point for 7 degrees of freedom, more than any of these has


def test_every_point_of_the_line_belongs_to_its_token() -> None:
    filtered = filter_probabilities(logits_of([0.125, 0.5, 0.25, 0.125]), SamplingConfig(temperature=1))
    points = [0.0, 0.49, 0.51, 0.74, 0.76, 0.874, 0.876, 1 - 2**-53]
    assert [filtered.draw(u) for u in points] == [1, 1, 2, 2, 0, 0, 3, 3]


def test_a_draw_from_the_far_tail_of_a_large_vocabulary() -> None:
    filtered = filter_probabilities(torch.zeros(49_152), SamplingConfig(temperature=1))
    assert [filtered.draw(u) for u in (0.0, 0.5, 1 - 2**-53)] == [0, 24_576, 49_151]
