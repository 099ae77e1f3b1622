"""A long chain of thought: by formula step by step, and for real up to the end of a context."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.engine.engine import Engine
from core.engine.exclusive import Point
from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.dtypes import DTYPES, KvDtypes, WeightDtypes
from core.estimate.estimate import Request, estimate
from core.estimate.flops import decode_flops
from core.lab.lane import cache_bytes
from core.lab.long_thought import STEPS_A_POINT, LongThought, ThoughtResult, ThoughtStep
from core.lab.thought_costs import thought_costs
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def test_up_to_the_context_limit(tiny_f32: LanguageModel) -> None:
    prompt = tiny_f32.prompt_ids("The sea")
    thought = LongThought(tiny_f32, prompt)
    for point in thought.points():
        point()
    steps, P, limit = thought.result.steps, len(prompt), tiny_f32.config.context_limit
    assert [step.n_tokens for step in steps] == list(range(P, limit + 1))
    assert len(steps) == thought.n_planned == thought.result.n_planned
    per_token = 2 * 4 * 2 * 32 * 4  # keys and values, L, n_kv, d_h, f32
    assert all(step.kv_bytes == step.kv_bytes_formula == per_token * step.n_tokens for step in steps)
    assert all(0 <= step.kv_reserved_bytes - step.kv_bytes < 64 * per_token for step in steps)
    assert [step.flops for step in steps[::100]] == [decode_flops(tiny_f32.shape, s.n_tokens) for s in steps[::100]]
    assert not {step.token_id for step in steps} & tiny_f32.end_token_ids
    assert thought.result.seconds == sum(step.seconds for step in steps)


def test_in_the_exclusive_slot(tiny_f32: LanguageModel, engine: Engine) -> None:
    thought = LongThought(tiny_f32, tiny_f32.prompt_ids("The sea"), 20)
    seen: list[int] = []
    measurement = thought.measurement(lambda result: seen.append(len(result.steps)))
    assert measurement.n_bytes == cache_bytes(tiny_f32, thought.result.n_prompt + 20)
    engine.measure(measurement).future.result(PATIENCE)
    assert seen == [0, 0, STEPS_A_POINT, 20] and thought.result.n_disturbed == 0


def test_steps_that_others_disturbed_are_marked(tiny_f32: LanguageModel) -> None:
    """The prompt's pass, the steps that warm up, and two points, of which the second stays disturbed."""
    thought = LongThought(tiny_f32, tiny_f32.prompt_ids("The sea"), STEPS_A_POINT + 4)
    measurement = thought.measurement()
    points = list(measurement.points)
    assert len(points) == 4
    for index, point in enumerate(points):
        point()
        assert len(thought.result.steps) == (0, 0, STEPS_A_POINT, STEPS_A_POINT + 4)[index]
        measurement.on_point(index, Point(None, 1.0, 3, index == 3))
    result = thought.result
    assert [step.is_disturbed for step in result.steps] == [False] * STEPS_A_POINT + [True] * 4
    assert result.n_disturbed == 1 and not result.is_disturbed(0, 16) and result.is_disturbed(-16, 0)
    assert result.is_disturbed(-1, 0) and not result.is_disturbed(-20, -4)


def test_medians_of_parts() -> None:
    steps = tuple(ThoughtStep(n, float(n), 1, 1, 1, 1, 7) for n in range(1, 10))
    result = ThoughtResult(1, 9, 10, steps)
    assert (result.median_seconds(0, 3), result.median_seconds(-3, 0), result.median_seconds(9, 12)) == (2, 8, None)


def test_a_point_may_be_done_again(tiny_f32: LanguageModel) -> None:
    def written(tries: int) -> list[int]:
        thought = LongThought(
            tiny_f32, tiny_f32.prompt_ids("Rain"), 2 * STEPS_A_POINT + 5, SamplingConfig(temperature=1.0)
        )
        for point in thought.points():
            for _ in range(tries):
                point()
        return [step.token_id for step in thought.result.steps]

    assert written(1) == written(2) and len(written(1)) == 2 * STEPS_A_POINT + 5


def test_a_large_model_runs_for_seconds_only(smollm2_f32: LanguageModel) -> None:
    assert 100 < LongThought(smollm2_f32, [5, 6]).n_planned < 1000 < smollm2_f32.config.context_limit


def test_no_room_to_think_is_refused(tiny_f32: LanguageModel) -> None:
    limit = tiny_f32.config.context_limit
    for ids, n_new in (([], 4), ([5] * limit, None), ([5], 0)):
        with pytest.raises(Refusal):
            LongThought(tiny_f32, ids, n_new)


@pytest.mark.parametrize("slug", ["llama-3.1-8b", "chapter-8b", "gpt-oss-20b", "deepseek-v3"])
@pytest.mark.parametrize("card", ["h100-sxm", "rtx-4090"])
def test_every_step_is_the_estimates(slug: str, card: str) -> None:
    made, accelerator = shape(slug), accelerator_named(card)
    weights, kv = WeightDtypes(DTYPES["int8"]), KvDtypes(DTYPES["fp8"], DTYPES["fp8"])
    costs = thought_costs(made, accelerator, 500, 3000, weight_dtypes=weights, kv_dtypes=kv)
    assert costs.n_tokens[0] == 501 and costs.n_tokens[-1] == 3500 and costs.step_s is not None
    for step in (0, 1234, 2999):
        n = int(costs.n_tokens[step])
        request = Request(context=n, weight_dtypes=weights, kv_dtypes=kv, accelerator=accelerator)
        right = estimate(made, request)
        assert costs.kv_bytes[step] == right.kv_bytes and costs.flops[step] == right.decode.flops_exact
        assert right.decode.floor is not None and right.fit is not None
        assert costs.step_s[step] == pytest.approx(right.decode.floor.seconds)
        assert (costs.weight_bytes, costs.weight_bytes_read) == (right.weight_bytes, right.decode.weights_read)
        assert costs.full_at == right.fit.max_context and costs.capacity_bytes == right.fit.capacity_bytes
    assert costs.seconds == pytest.approx(float(costs.step_s.sum()))
    assert costs.bytes_read == pytest.approx(float((costs.kv_bytes + costs.weight_bytes_read).sum()))
    assert costs.total_flops == pytest.approx(float(costs.flops.sum()))


def test_where_the_card_is_full() -> None:
    """The chapter's 8B model: 576 KiB a token beside 16.2 GB of weights."""
    made, card = shape("chapter-8b"), accelerator_named("rtx-4090")
    full_at = thought_costs(made, card, 100, 10).full_at
    assert full_at is not None and 5_000 < full_at < 15_000
    assert thought_costs(made, card, full_at - 10, 10).fits
    assert not thought_costs(made, card, full_at - 10, 11).fits
    with pytest.raises(ValueError):
        thought_costs(made, card, 0, 10)
    with pytest.raises(ValueError):
        thought_costs(made, card, 10, 0)
