"""What sampling changes, and what it leaves exactly as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.engine.engine import Engine
from core.engine.recorder import RecordConfig
from core.engine.steps import generate
from core.lab import sampling_changes as sampling_module
from core.lab.sampling_changes import SamplingExperiment, distribution
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair
from tests.runs import new_run

HOT = SamplingConfig(temperature=2.0, top_k=50, top_p=0.95, seed=7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("sampling") / "m")[1]


def test_the_distribution_moves() -> None:
    """Logits ln 8, ln 4, ln 2, ln 2 at temperature 2: √8 : 2 : √2 : √2, and top-k 2 keeps two of them."""

    class Known:
        vocab_size = 4

    class Stub:
        tokenizer = Known()

    logits = torch.tensor([8.0, 4, 2, 2, 99]).log()
    moved = distribution(Stub(), logits, SamplingConfig(temperature=2.0, top_k=2))  # type: ignore[arg-type]
    assert [c.token_id for c in moved.candidates] == [0, 1, 2, 3] and moved.n_tokens_known == 4
    assert [c.probability for c in moved.candidates] == pytest.approx([0.5, 0.25, 0.125, 0.125])
    root = 2**0.5
    kept = [2 * root / (2 * root + 2), 2 / (2 * root + 2), 0, 0]
    assert [c.probability_kept for c in moved.candidates] == pytest.approx(kept)
    assert moved.kept_count == 2 and moved.kept_mass == pytest.approx((2 * root + 2) / (4 * root + 2))


@pytest.mark.parametrize("tries", [1, 2])
def test_costs_are_equal_exactly(model: LanguageModel, tries: int) -> None:
    prompt, n_new = random_ids(11), 9
    experiment = SamplingExperiment(model, prompt, n_new, HOT)
    for point in experiment.points():
        for _ in range(tries):
            point()
    result = experiment.result
    assert result.costs_equal and len(result.greedy) == len(result.sampled) == n_new
    assert result.flops.ratio == result.bytes_read.ratio == result.kv_bytes.ratio == 1
    assert result.kv_bytes.before == result.greedy[-1].kv_bytes_formula > 0
    assert result.texts.before_ids != result.texts.after_ids
    assert min(*result.pass_seconds, *result.choosing_seconds) > 0
    for sampling, events in ((SamplingConfig(), result.greedy), (HOT, result.sampled)):
        alone = generate(model, new_run(model, prompt, max_new=n_new, sampling=sampling))
        assert [e.sampled.token_id for e in alone if e.sampled] == [e.sampled.token_id for e in events if e.sampled]


def test_a_different_cost_would_be_seen(model: LanguageModel) -> None:
    experiment = SamplingExperiment(model, random_ids(5), 3, HOT)
    for point in experiment.points():
        point()
    result = experiment.result
    more = replace(result.sampled[1], kv_bytes_read=result.sampled[1].kv_bytes_read + 1)
    assert not replace(result, sampled=(result.sampled[0], more, result.sampled[2])).costs_equal


def test_an_end_token_ends_the_text_and_not_the_steps(model: LanguageModel) -> None:
    free = SamplingExperiment(model, random_ids(5), 6, HOT)
    for point in free.points():
        point()
    end = free.result.texts.before_ids[2]
    ending = SamplingExperiment(replace(model, end_token_ids=frozenset([end])), random_ids(5), 6, HOT)
    for point in ending.points():
        point()
    assert len(ending.result.greedy) == 6
    assert ending.result.texts.before_ids == free.result.texts.before_ids[: free.result.texts.before_ids.index(end) + 1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def test_in_the_exclusive_slot(model: LanguageModel, engine: Engine) -> None:
    experiment = SamplingExperiment(model, random_ids(9), 3, HOT)
    assert experiment.result.greedy == () and experiment.result.kv_bytes == (0, 0)
    assert experiment.result.pass_seconds == (0, 0)
    engine.measure(experiment.measurement()).future.result(PATIENCE)
    assert len(experiment.result.sampled) == 3


def test_the_distribution_is_the_first_steps(model: LanguageModel) -> None:
    prompt = random_ids(7)
    config = SamplingConfig(temperature=0.7, top_k=3, repetition_penalty=1.3)
    experiment = SamplingExperiment(model, prompt, 2, config)
    assert experiment.result.first is None
    experiment.points()[0]()
    run = new_run(model, prompt, max_new=1, sampling=config, record=RecordConfig(candidates=12))
    (event,) = generate(model, run)
    first = experiment.result.first
    assert event.sampled is not None and first is not None and first.kept_count == event.sampled.kept_count == 3
    for own, engines in zip(first.candidates, event.sampled.candidates, strict=True):
        assert own.token_id == engines.token_id and own.kept == engines.kept
        assert own.probability_kept == pytest.approx(engines.probability_kept, abs=1e-4)


def test_a_long_prompt_is_cut_to_its_end(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling_module, "MOST_PROMPT", 5)
    experiment = SamplingExperiment(model, random_ids(12), 2, HOT)
    assert experiment.result.n_prompt == 5 and experiment._greedy.prompt_ids == tuple(random_ids(12)[-5:])


def test_what_cannot_be_asked_is_refused(model: LanguageModel) -> None:
    for prompt, n_new in (([], 4), (random_ids(4), 1), (random_ids(4), model.config.context_limit)):
        with pytest.raises(Refusal):
            SamplingExperiment(model, prompt, n_new, HOT)
