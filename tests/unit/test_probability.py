"""A candidate's two probabilities, reckoned again from what is recorded, against a softmax written here."""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt
import pytest
import torch

from core.estimate.probability import (
    DrawnProbability,
    GreedyProbability,
    ModelProbability,
    latex,
    plain,
    significant,
)
from core.model.sampling import Candidate, Filtered, SamplingConfig, choose, filter_probabilities

N = 600
SEEN = (*range(0, N, 3), 3, 3)
CONFIGS = [
    SamplingConfig(temperature=temperature, **filters)
    for temperature in (0.0, 0.3, 1.0, 2.5)
    for filters in (
        {},
        {"top_k": 5},
        {"top_p": 0.6},
        {"top_k": 40, "top_p": 0.9, "repetition_penalty": 1.4},
        {"repetition_penalty": 0.7},
    )
]


def logits_of(seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Around zero: the penalty divides some and multiplies others, also among the best."""
    return (torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3 - 6).to(dtype)


def own(filtered: Filtered, listed: Candidate, best: Candidate) -> ModelProbability:
    return ModelProbability(logit=listed.logit, best=best.logit, total=filtered.model_total, n_tokens=N)


def drawn(
    filtered: Filtered, listed: Candidate, config: SamplingConfig, taken: int
) -> DrawnProbability | GreedyProbability:
    if config.is_greedy:
        return GreedyProbability(
            score=listed.score, best=filtered.best_score, token_id=listed.token_id, best_id=taken, penalised=False
        )
    return DrawnProbability(
        logit=listed.logit,
        score=listed.score,
        best=filtered.best_score,
        total=filtered.kept_total,
        n_kept=filtered.kept_count,
        kept=listed.kept,
        temperature=config.temperature,
        penalty=config.repetition_penalty,
    )


def softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def expected(logits: npt.NDArray[np.float64], config: SamplingConfig) -> npt.NDArray[np.float64]:
    """What each token is drawn with, by sorting everything."""
    scores = logits.copy()
    for i in set(SEEN):
        scores[i] = scores[i] / config.repetition_penalty if scores[i] > 0 else scores[i] * config.repetition_penalty
    if config.temperature == 0:
        return np.eye(N)[scores.argmax()]
    order = np.argsort(-scores, kind="stable")
    kept = order[: config.top_k or N]
    if config.top_p < 1:
        reached = np.cumsum(softmax(scores[kept] / config.temperature))
        kept = kept[: int((reached < config.top_p).sum()) + 1]
    shares = np.zeros(N)
    shares[kept] = softmax(scores[kept] / config.temperature)
    return shares


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize("seed", [0, 1])
def test_both_are_those_of_a_softmax_and_of_the_record(seed: int, config: SamplingConfig, dtype: torch.dtype) -> None:
    logits = logits_of(seed, dtype)
    filtered = filter_probabilities(logits, config, SEEN)
    listed = filtered.candidates(80)
    numbers = logits.double().numpy()
    model, after = softmax(numbers), expected(numbers, config)
    taken = choose(logits, config, SEEN, n_tokens=5)
    close = 1e-9 if dtype == torch.float64 else 1e-5  # the penalty is reckoned in the logits' own precision
    for candidate in listed:
        first, second = own(filtered, candidate, listed[0]), drawn(filtered, candidate, config, taken)
        assert first.value == pytest.approx(candidate.probability, rel=1e-12)
        assert second.value == pytest.approx(candidate.probability_kept, rel=1e-12)
        assert first.value == pytest.approx(model[candidate.token_id], rel=close)
        assert second.value == pytest.approx(after[candidate.token_id], rel=close)
        assert (second.value > 0) == candidate.kept


def test_the_cases_are_all_among_these() -> None:
    """Cut by a filter, kept, made smaller, made larger, left alone."""
    kinds = set()
    for config in CONFIGS[10:]:
        for listed in filter_probabilities(logits_of(1), config, SEEN).candidates(80):
            kinds |= {listed.kept, f"{np.sign(listed.score - listed.logit)} {listed.logit > 0}"}
    assert kinds == {True, False, *(f"{sign}.0 {over}" for sign in ("-1", "1", "0") for over in (True, False))}


def evaluated(text: str) -> list[float]:
    """What every fraction of a substituted formula comes to, reckoned from its text alone."""
    text = text.replace("{,}", "").replace("\\cdot 10^", "* 10.0**").replace("\\exp", "math.exp").replace("\\cdot", "*")
    found = re.findall(r"\\frac\{((?:[^{}]|\{[^{}]*\})*)\}\{((?:[^{}]|\{[^{}]*\})*)\}", text)
    sides = [tuple(re.sub(r"[{}]", " ", side) for side in pair) for pair in found]
    assert all(re.fullmatch(r"(math\.exp|[\d\s.*+()/-])+", side) for pair in sides for side in pair), text
    return [eval(above, {"math": math}) / eval(below, {"math": math}) for above, below in sides]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_the_shown_numbers_come_to_the_value(config: SamplingConfig) -> None:
    """Logits have three decimals, so an exponent is off by a thousandth at most, divided by the temperature;
    four digits above and below a line are off by a thousandth together."""
    logits = logits_of(2)
    filtered = filter_probabilities(logits, config, SEEN)
    listed = filtered.candidates(80)
    for candidate in listed:
        shown = [own(filtered, candidate, listed[0])]
        if candidate.kept and not config.is_greedy:
            shown.append(drawn(filtered, candidate, config, 0))  # type: ignore[arg-type]
        for derivation, off in zip(shown, (0.002, 0.002 / (config.temperature or 1)), strict=False):
            by_logits, by_weights = evaluated(derivation.substituted())
            assert by_logits == pytest.approx(derivation.value, rel=off)
            assert by_weights == pytest.approx(derivation.value, rel=1.1e-3)


def words(key: str) -> str:
    return key


KEPT = DrawnProbability(
    logit=12.0, score=10.0, best=15.5, total=1.25, n_kept=7, kept=True, temperature=0.5, penalty=1.2
)


def test_formulas_as_they_are_written() -> None:
    model = ModelProbability(logit=12.34567, best=-0.5, total=1234.5678, n_tokens=49_152)
    assert model.formula(words) == ("p_i = \\frac{\\exp(z_i - z_{\\max})}{\\sum_{j=1}^{V} \\exp(z_j - z_{\\max})}")
    assert "\\frac{\\exp(12.346 - (-0.5))}{1{,}234.568}" in model.substituted()
    assert [f.shown for f in model.factors] == ["12.346", "−0.5", "49,152", "1,234.568"]
    rows = KEPT.substituted()
    assert "\\tilde{z}_i &= 12 / 1.2 = 10" in rows and "\\frac{\\exp((10 - 15.5)/0.5)}{1.25}" in rows
    assert "\\tilde{z}_i &= z_i / \\rho" in KEPT.formula(words) and "\\sum_{j \\in S}" in KEPT.formula(words)
    assert "cases" not in KEPT.formula(words)


def changed(**fields: object) -> DrawnProbability:
    return DrawnProbability(**{**{name: getattr(KEPT, name) for name in KEPT.__slots__}, **fields})  # type: ignore


def test_the_penalty_multiplies_what_is_negative_and_leaves_what_is_new() -> None:
    worse, same, without = changed(logit=-2.0, score=-2.4), changed(logit=10.0), changed(penalty=1.0)
    assert "\\tilde{z}_i &= z_i \\cdot \\rho" in worse.formula(words) and "-2 \\cdot 1.2 = -2.4" in worse.substituted()
    assert "\\tilde{z}_i &= z_i \\\\" in same.formula(words) and "\\tilde{z}_i &= 10 \\\\" in same.substituted()
    assert "tilde" not in without.formula(words) + without.substituted()
    assert [f.symbol for f in without.factors] == ["z_i", "z_{\\max}", "T", "|S|", "\\Sigma_S"]


def test_what_is_cut_is_zero_and_both_cases_are_shown() -> None:
    cut = changed(kept=False, penalty=1.0)
    assert cut.value == 0 and "0 & i \\notin S" in cut.formula(words)
    assert "p'_i &= 0 \\quad (i \\notin S)" in cut.substituted()


def test_without_temperature_the_best_is_taken() -> None:
    best = GreedyProbability(score=3.5, best=3.5, token_id=1042, best_id=1042)
    other = GreedyProbability(score=2.25, best=3.5, token_id=17, best_id=1042, penalised=True)
    assert (best.value, other.value) == (1, 0)
    assert "argmax" in best.formula(words) and "p'_{1042} &= 1" in best.substituted()
    assert "\\tilde{z}_{17} &= 2.25 \\le 3.5" in other.substituted() and "p'_{17} &= 0" in other.substituted()


@pytest.mark.parametrize("temperature", [1e-5, 1e300])
def test_extremes_stay_numbers(temperature: float) -> None:
    masked = changed(score=-math.inf, logit=-math.inf, temperature=temperature, penalty=1.0)
    assert masked.value == 0 and "-\\infty" in masked.substituted()
    assert 0 <= changed(temperature=temperature).value <= 1
    far = ModelProbability(logit=-1e4, best=3.0, total=1.0, n_tokens=4)
    assert far.value == 0 and "\\frac{0}{1}" in far.substituted()


@pytest.mark.parametrize(
    ("value", "text", "in_latex"),
    [
        (0.0, "0", "0"),
        (1.0, "1", "1"),
        (1.00004, "1.00004", "1.00004"),
        (0.99996, "0.99996", "0.99996"),
        (99.9999, "99.9999", "99.9999"),
        (0.0356789, "0.03568", "0.03568"),
        (-12.3456789, "−12.346", "-12.346"),
        (1.23456e-7, "1.235 × 10⁻⁷", "1.235 \\cdot 10^{-7}"),
        (49_152.0, "49,152", "49{,}152"),
        (-math.inf, "−∞", "-\\infty"),
    ],
)
def test_numbers(value: float, text: str, in_latex: str) -> None:
    assert (plain(value), latex(value)) == (text, in_latex)
    assert significant(value, 8) == significant(value, 8).strip()
