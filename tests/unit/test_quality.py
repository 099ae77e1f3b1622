"""Perplexity, divergence and texts against what a few lines of arithmetic say."""

from __future__ import annotations

import math

import pytest
import torch

from core.lab.quality import HeldPosition, Quality, Texts, compared, held_ids, held_text, knows_text, text_for
from core.model.load import LanguageModel
from core.refusal import Refusal


def test_known_distributions() -> None:
    """(1/2, 1/4, 1/4) against (1/4, 1/4, 1/2): KL = 1/2·ln 2 − 1/4·ln 2."""
    before = torch.tensor([[0.5, 0.25, 0.25, 9.0]]).log()
    after = torch.tensor([[0.25, 0.25, 0.5, 9.0]]).log()
    (position,) = compared(before, after, [0], 7, n_usable=3)
    assert position.n_tokens == 7 and not position.same_best
    assert position.nll_before == pytest.approx(math.log(2)) and position.nll_after == pytest.approx(math.log(4))
    assert position.divergence == pytest.approx(0.25 * math.log(2))


def test_identity_diverges_nowhere() -> None:
    logits = torch.randn(5, 40, generator=torch.Generator().manual_seed(0)) * 9
    positions = compared(logits, logits.clone(), [1, 2, 3, 4, 5], 1, 40)
    assert all(p.divergence == 0 and p.same_best and p.nll_before == p.nll_after for p in positions)
    assert [p.n_tokens for p in positions] == [1, 2, 3, 4, 5]
    shifted = compared(logits, logits + 3, [1, 2, 3, 4, 5], 1, 40)
    assert max(p.divergence for p in shifted) < 1e-6


def test_sums() -> None:
    quality = Quality(
        (HeldPosition(1, math.log(2), math.log(4), 0.5, True), HeldPosition(2, math.log(8), 0, 0.1, False))
    )
    assert quality.perplexity_before == pytest.approx(4) and quality.perplexity_after == pytest.approx(2)
    assert quality.perplexity_ratio == pytest.approx(0.5)
    assert quality.mean_divergence == pytest.approx(0.3) and quality.max_divergence == 0.5 and quality.agreement == 0.5


@pytest.mark.parametrize(
    ("before", "after", "first"), [((1, 2, 3), (1, 2, 4), 2), ((1, 2), (1, 2), None), ((1, 2), (1, 2, 3), None)]
)
def test_where_texts_part(before: tuple[int, ...], after: tuple[int, ...], first: int | None) -> None:
    assert Texts(before, after, "", "").first_difference == first


def test_held_texts(tiny_f32: LanguageModel) -> None:
    """Both are there; the tiny model is given what it knows, and finds it likely; nothing of it is in the held text."""
    for language in ("zh", "en"):
        assert len(held_text(language)) > 150 and knows_text(tiny_f32)
        known, new = text_for(tiny_f32, language), held_text(language)
        assert known != new and _perplexity(tiny_f32, known) < 20 < _perplexity(tiny_f32, new)
    ids = tiny_f32.tokenizer.encode(held_text("zh"))
    assert held_ids(tiny_f32, held_text("zh"), 10) == ids[:11]
    with pytest.raises(Refusal):
        held_ids(tiny_f32, "", 10)


def _perplexity(model: LanguageModel, text: str) -> float:
    ids = held_ids(model, text, 200)
    with torch.inference_mode():
        logits = model.transformer.logits(model.transformer.hidden(torch.tensor([ids[:-1]]))[0])
    expected = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).exp()
    quality = Quality(tuple(compared(logits, logits, ids[1:], 1, model.tokenizer.vocab_size)))
    assert quality.perplexity_before == pytest.approx(float(expected), rel=1e-4)
    return quality.perplexity_before
