"""Two tokens in one pass: right exactly where the first was guessed, another text's distribution where it was not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from core.engine.engine import Engine
from core.engine.steps import generate
from core.lab.lane import difference
from core.lab.two_at_once import Filler, TwoAtOnce, TwoAtOnceResult
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import our_logits, random_ids, random_pair
from tests.runs import new_run

ROUNDING = 1e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("two") / "m", num_hidden_layers=4)[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def tried(model: LanguageModel, prompt: list[int], n_steps: int, tries: int = 1) -> TwoAtOnceResult:
    experiment = TwoAtOnce(model, prompt, n_steps)
    for point in experiment.points():
        for _ in range(tries):
            point()
    return experiment.result


@pytest.mark.parametrize("tries", [1, 2])
def test_every_attempt_is_the_pass_it_says(model: LanguageModel, tries: int) -> None:
    """First and second are plain decoding's; an attempt's numbers are those of the text with the guess in it."""
    prompt, n_usable = random_ids(7) * 2, model.tokenizer.vocab_size
    result = tried(model, prompt, 6, tries)
    run = new_run(model, prompt, max_new=7)
    written = [event.sampled.token_id for event in generate(model, run) if event.sampled]
    assert [step.first_id for step in result.steps] == written[:-1]
    assert [step.second_id for step in result.steps] == written[1:]
    for place, step in enumerate(result.steps):
        ids = [*prompt, *written[:place]]
        assert step.n_tokens == len(ids) and step.likely[0].token_id == step.second_id
        true = our_logits(model, [*ids, step.first_id])[-1, :n_usable]
        for attempt in step.attempts:
            assert attempt.first_difference < ROUNDING and attempt.seconds > 0
            if attempt.guessed_id is not None:
                other = our_logits(model, [*ids, attempt.guessed_id])[-1, :n_usable]
                away = difference(true, other)
                assert attempt.second_id == int(other.argmax()) == attempt.likely[0].token_id
                best = other.softmax(-1).topk(len(attempt.likely))
                assert [likely.token_id for likely in attempt.likely] == best.indices.tolist()
                assert [likely.probability for likely in attempt.likely] == pytest.approx(
                    best.values.tolist(), rel=1e-3
                )
                assert attempt.logit_difference == pytest.approx(away.logit, abs=ROUNDING)
                assert attempt.kl == pytest.approx(away.kl, abs=ROUNDING)


def test_the_mean_embedding_says_nothing_but_is_no_token(model: LanguageModel) -> None:
    """In its slot stands the mean of the table's rows, checked by a pass over embeddings made by hand."""
    from core.model.attention import AttentionWithin

    prompt = random_ids(9)
    step = tried(model, prompt, 1).steps[0]
    transformer, n_usable = model.transformer, model.tokenizer.vocab_size
    with torch.inference_mode():
        x = torch.cat([transformer.embedding[prompt], transformer.embedding[:n_usable].mean(0, keepdim=True)])
        for layer in range(model.config.n_layers):
            x = transformer.through_layer(layer, x, transformer.rotations([0], len(x)), AttentionWithin(1).attend)
        logits = transformer.logits(x)[:, :n_usable]
    attempt = next(attempt for attempt in step.attempts if attempt.filler is Filler.MEAN)
    away = difference(our_logits(model, [*prompt, step.first_id])[-1, :n_usable], logits[-1])
    assert attempt.guessed_id is None and attempt.second_id == int(logits[-1].argmax())
    assert attempt.logit_difference == pytest.approx(away.logit, abs=ROUNDING)


def test_a_right_guess_is_worth_a_token(tiny_f32: LanguageModel, engine: Engine) -> None:
    experiment = TwoAtOnce(tiny_f32, tiny_f32.prompt_ids("The sea is blue"), 16)
    engine.measure(experiment.measurement()).future.result(PATIENCE)
    result = experiment.result
    guessed = result.of(Filler.LAYERS)
    assert guessed.n_tried == 16 and 0 < guessed.n_right < 16 and guessed.acceptance == guessed.n_right / 16
    assert guessed.n_second_right_behind_right == guessed.n_right
    assert guessed.kl_behind_right is not None and guessed.kl_behind_wrong is not None
    assert guessed.kl_behind_right < 1e-6 < 0.1 < guessed.kl_behind_wrong
    assert result.of(Filler.MEAN).n_right == 0
    assert result.seconds_apart and result.seconds_at_once
    assert result.of(Filler.LOOKUP).n_tried < 16  # not every token has a place before


def test_what_cannot_be_tried_is_refused(model: LanguageModel) -> None:
    limit = model.config.context_limit
    for prompt, n_steps in (([], 3), (random_ids(limit), 3), ([3], 0)):
        with pytest.raises(Refusal):
            TwoAtOnce(model, prompt, n_steps)
    assert len(tried(model, (random_ids(20) * 40)[: limit - 2], 9).steps) == 2
