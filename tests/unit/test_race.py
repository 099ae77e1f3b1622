"""The race: both lanes are the engine's own steps, and every figure adds up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.engine.engine import Engine
from core.engine.steps import generate
from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.flops import decode_flops, prefill_flops
from core.estimate.recompute import recompute_gap
from core.lab import race as race_module
from core.lab.race import Race, n_steps_within
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair
from tests.runs import SAMPLED, new_run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("race") / "m")[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def run_points(race: Race, tries: int = 1) -> None:
    for point in race.points():
        for _ in range(tries):
            point()


@pytest.mark.parametrize("sampling", [SamplingConfig(temperature=0.0), SAMPLED])
@pytest.mark.parametrize("tries", [1, 2])
def test_both_lanes_are_the_engines_steps(model: LanguageModel, sampling: SamplingConfig, tries: int) -> None:
    """The same tokens and FLOP as runs with and without a cache, also where every point is measured twice."""
    prompt, n_new = random_ids(11), 7
    race = Race(model, prompt, n_new, sampling)
    run_points(race, tries)
    result = race.result
    for use_cache, lane in ((True, "cached"), (False, "recomputed")):
        events = list(generate(model, new_run(model, prompt, max_new=n_new, sampling=sampling, use_cache=use_cache)))
        steps = [getattr(step, lane) for step in result.steps]
        assert [step.token_id for step in steps] == [event.sampled.token_id for event in events if event.sampled]
        assert [step.flops for step in steps] == [event.flops_exact for event in events]
        assert [step.positions for step in steps] == [event.new_positions for event in events]
        assert [step.n_tokens for step in result.steps] == [event.n_tokens for event in events]
    assert result.tokens_equal and all(step.cached.seconds > 0 < step.recomputed.seconds for step in result.steps)
    assert result.logit_difference < 1e-4
    assert race.has_ended


def test_a_triangle_against_a_line(model: LanguageModel) -> None:
    prompt, n_new = random_ids(9), 6
    race = Race(model, prompt, n_new)
    run_points(race)
    P, N = len(prompt), n_new
    positions, flops = race.result.positions, race.result.flops
    assert positions.cached == P + N - 1
    assert positions.recomputed == P * N + N * (N - 1) // 2
    lengths = range(P, P + N)
    assert flops.recomputed == sum(prefill_flops(model.shape, n) for n in lengths)
    assert flops.cached == prefill_flops(model.shape, P) + sum(decode_flops(model.shape, n) for n in lengths[1:])
    assert race.result.after_prefill.positions.cached == N - 1
    assert positions.ratio == positions.recomputed / positions.cached


def test_long_steps_are_cut_into_points(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of at most a chunk, each point repeatable; tokens and logits stay those of whole passes."""
    prompt, n_new = random_ids(13), 5
    whole = Race(model, prompt, n_new)
    run_points(whole)
    monkeypatch.setattr(race_module, "chunk_for", lambda device: 4)
    cut = Race(model, prompt, n_new)
    assert len(cut.points()) == 4 + 4 + (n_new - 1) + 4 + 4 + 4 + 5
    run_points(cut, tries=2)
    assert [step.cached.token_id for step in cut.result.steps] == [step.cached.token_id for step in whole.result.steps]
    assert cut.result.positions == whole.result.positions
    assert cut.result.tokens_equal and cut.result.logit_difference < 1e-4
    assert cut.result.flops.recomputed < whole.result.flops.recomputed  # a chunk skips the square's upper part


def test_in_the_exclusive_slot(model: LanguageModel, engine: Engine) -> None:
    race = Race(model, random_ids(9), 4)
    seen: list[int] = []
    engine.measure(race.measurement(lambda result: seen.append(len(result.steps)))).future.result(PATIENCE)
    assert seen == [0, 1, 1, 2, 2, 3, 3, 4]
    assert len(race.result.steps) == 4 and race.result.n_disturbed == 0


def test_an_end_token_ends_it(model: LanguageModel, engine: Engine) -> None:
    prompt = random_ids(9)
    free = Race(model, prompt, 6)
    run_points(free)
    tokens = [step.cached.token_id for step in free.result.steps]
    ending = replace(model, end_token_ids=frozenset([tokens[2]]))
    race = Race(ending, prompt, 6)
    engine.measure(race.measurement()).future.result(PATIENCE)
    assert len(race.result.steps) == tokens.index(tokens[2]) + 1
    assert race.result.n_planned == 6


def test_lanes_that_part_are_not_compared(model: LanguageModel) -> None:
    race = Race(model, random_ids(9), 4)
    points = race.points()
    for point in points[:2]:
        point()
    race._lanes["recomputed"].ids[-1] ^= 1
    for point in points[2:]:
        point()
    assert [step.logit_difference is None for step in race.result.steps] == [False, True, True, True]


@pytest.mark.parametrize(
    ("n_prompt", "asked", "most", "steps"),
    [(10, 5, 10**6, 5), (10, 5, 10 * 3 + 3, 3), (10, 5, 10 * 3 + 2, 2), (1000, 64, 100, 2), (1, 1, 10**6, 1)],
)
def test_a_long_prompt_makes_fewer_tokens(n_prompt: int, asked: int, most: int, steps: int) -> None:
    assert n_steps_within(n_prompt, asked, most) == steps


def test_what_cannot_be_raced_is_refused(model: LanguageModel) -> None:
    limit = model.config.context_limit
    for prompt, n_new in (([], 4), (random_ids(limit + 1), 4), (random_ids(limit), 4), (random_ids(4), 1)):
        with pytest.raises(Refusal):
            Race(model, prompt, n_new)


def test_nothing_is_planned_beyond_the_context(model: LanguageModel) -> None:
    limit = model.config.context_limit
    assert Race(model, random_ids(limit - 2), 9).n_planned <= 3


def test_the_real_model_differs_by_rounding_alone(smollm2_f32: LanguageModel) -> None:
    race = Race(smollm2_f32, smollm2_f32.prompt_ids("Why is the sky blue?"), 3)
    run_points(race)
    assert race.result.tokens_equal and race.result.logit_difference < 1e-4
    assert not torch.is_inference_mode_enabled()


def test_the_formula_is_the_estimates() -> None:
    made, card = shape("llama-3.1-8b"), accelerator_named("h100-sxm")
    gap = recompute_gap(made, 8192, card)
    assert gap.decode_flops == decode_flops(made, 8192) and gap.recompute_flops == prefill_flops(made, 8192)
    assert gap.flops_ratio == gap.recompute_flops / gap.decode_flops
    assert gap.decode_floor is not None and gap.decode_floor.bound == "memory"
    assert gap.recompute_floor is not None and gap.recompute_floor.bound == "compute"
    assert gap.seconds_ratio is not None and 1 < gap.seconds_ratio < gap.flops_ratio
    assert recompute_gap(made, 8192).seconds_ratio is None
