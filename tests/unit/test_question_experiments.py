"""What is measured for page 7: the experiments run in the engine, and their answers are the engine's own counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from core.engine.engine import Engine
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.lab.causality import Causality, Change, LayerChange
from core.lab.decode_times import REPEATS, DecodeTime, DecodeTimes
from core.lab.race import LaneStep, RaceResult, RaceStep
from core.model.load import LanguageModel
from core.questions import measured
from core.questions.question import Given, Outcome
from core.questions.registry import QUESTIONS
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair

SMALL = Given(n=32, n_new=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("questions") / "m")[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def run(engine: Engine, model: LanguageModel, key: str, given: Given) -> Outcome:
    """An experiment from the registry, through the exclusive slot."""
    live = QUESTIONS[key].live
    assert live is not None
    made = live(model, random_ids(9), given)
    assert made.outcome() is None
    engine.measure(made.measurement).future.result(PATIENCE)
    outcome = made.outcome()
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(("n", "n_new"), [(8, 4), (16, 6)])
def test_the_newest_token_is_not_cached(engine: Engine, model: LanguageModel, n: int, n_new: int) -> None:
    outcome = run(engine, model, "positions", Given(n=n, n_new=n_new))
    assert outcome.answer == "one_fewer" and outcome.facts["held"].value == n + n_new - 1
    config = model.config
    per_token = 2 * config.n_layers * config.n_kv_heads * config.head_dim * model.element_bytes
    assert outcome.facts["bytes"].value == (n + n_new - 1) * per_token


def test_a_step_that_is_measured_again_is_undone_first(model: LanguageModel) -> None:
    made = measured.cached_positions(model, random_ids(9), SMALL)
    for point in made.measurement.points:
        point()
        point()
    outcome = made.outcome()
    assert outcome is not None and outcome.facts["held"].value == SMALL.n + SMALL.n_new - 1


def test_the_rate_is_that_of_the_tokens_after_the_first(engine: Engine, model: LanguageModel) -> None:
    facts = {name: quantity.value for name, quantity in run(engine, model, "rate", SMALL).facts.items()}
    assert facts["decode"] == pytest.approx(1 / facts["each"])
    whole = facts["first"] + 3 * facts["each"]
    assert facts["both"] == pytest.approx((32 + 4) / whole) and facts["prompt"] == pytest.approx(32 / facts["first"])


def test_another_model_another_answer(engine: Engine, model: LanguageModel, tiny_f32: LanguageModel) -> None:
    """Bytes of the same cache, and FLOP of the same race: the model's own."""
    for key, fact in (("positions", "bytes"), ("race", "flops")):
        one, other = (run(engine, each, key, SMALL).facts[fact].value for each in (model, tiny_f32))
        assert one != other, key


def test_the_race_ends_with_both_lanes(engine: Engine, model: LanguageModel) -> None:
    outcome = run(engine, model, "race", SMALL)
    facts = {name: quantity.value for name, quantity in outcome.facts.items()}
    assert facts["steps"] == 3 and facts["positions"] == 33 + 34 + 35
    assert outcome.answer == pytest.approx(facts["recomputed"] / facts["cached"]) and outcome.believed == facts["flops"]


def test_the_race_by_hand() -> None:
    steps = tuple(
        RaceStep(n, LaneStep(1.0, 1, 10, 5), LaneStep(seconds, n, 10 * n, 5), 0.0)
        for n, seconds in ((8, 1.0), (9, 3.0), (10, 5.0))
    )
    outcome = measured.race_outcome(RaceResult(8, 3, 3, steps))
    assert outcome.answer == 4.0 and outcome.believed == 9.5


def test_the_past_stays(engine: Engine, model: LanguageModel) -> None:
    outcome = run(engine, model, "past", Given())
    assert outcome.answer == "none" and outcome.facts["layers"].value == model.config.n_layers


@pytest.mark.parametrize(
    ("changes", "answer"),
    [((0.0, 0.05, 0.0), "none"), ((0.0, 0.2, 3.0), "some"), ((0.2, 0.2, 3.0), "all")],
)
def test_what_is_rounding_is_no_change(changes: tuple[float, ...], answer: str) -> None:
    """Of numbers as large as ten, a tenth is the line."""
    change = Change(tuple(LayerChange(0.0, size) for size in changes), 10.0)
    outcome = measured.past_outcome(Causality(5, 5, (1, 2), masked=change, unmasked=change))
    assert outcome is not None and outcome.answer == answer
    assert measured.past_outcome(Causality(5, 5, (1,), masked=change, unmasked=None)) is None


def test_a_step_is_timed_along_the_context(engine: Engine, model: LanguageModel) -> None:
    model = replace(model, end_token_ids=frozenset())
    outcome = run(engine, model, "slower", SMALL)
    assert isinstance(outcome.answer, tuple) and len(outcome.answer) == 3
    short, long = (outcome.facts[name].value for name in ("short", "long"))
    assert outcome.answer[-1] == pytest.approx(long / short) and short > 0
    read = []
    for n in (SMALL.n // 16, SMALL.n):
        two_tokens = Run(model, [1] * (n - 1), RunConfig(max_new=2))
        list(generate(model, two_tokens))
        read.append(two_tokens.steps[-1].bytes_read)
    assert outcome.facts["read"].value == pytest.approx(read[1] / read[0]), "the ledger's bytes of the same steps"


def test_the_curve_is_in_times_the_first() -> None:
    times = [DecodeTime(n, seconds) for n, seconds in ((2, 0.5), (8, 0.75), (16, 1.0), (32, 2.0))]
    outcome = measured.decode_times_outcome(times, 4, 1.5)
    assert outcome is not None and outcome.answer == (1.5, 2.0, 4.0) and outcome.case == "beyond"
    explained = measured.decode_times_outcome(times, 4, 3.9)
    assert explained is not None and explained.case == "" and explained.facts["read"].value == 3.9
    assert measured.decode_times_outcome(times[:3], 4, 1.5) is None


def test_the_steps_are_timed_behind_a_real_cache(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every point twice, as after a disturbance: each step still finds exactly n − 1 positions, filled in chunks."""
    monkeypatch.setattr("core.lab.decode_times.chunk_for", lambda device: 5)
    times = DecodeTimes(model, random_ids(3), (4, 16))
    points = times.points()
    assert len(points) == 1 + REPEATS + 3 + REPEATS
    for point in points:
        point()
        point()
        assert times._cache.n_tokens in (3, 8, 13, 15)
    assert [time.n_tokens for time in times.result] == [4, 16] and all(time.seconds > 0 for time in times.result)
    assert times._ids == (random_ids(3) * 6)[:16]


def test_no_earlier_query_is_read(engine: Engine, model: LanguageModel) -> None:
    """Of each earlier position one key a layer and step: P, P + 1, … of them."""
    outcome = run(engine, model, "queries", Given(n_new=4))
    facts = {name: quantity.value for name, quantity in outcome.facts.items()}
    assert outcome.answer == "none" and facts["queries"] == facts["without_queries"] == 0
    assert facts["keys"] == facts["values"] == model.config.n_layers * (9 + 10 + 11 + 12)
    assert facts["without_keys"] > 0 < facts["without_values"]
    assert facts["wasted"] / facts["useful"] == model.config.n_heads / (2 * model.config.n_kv_heads)
    assert outcome.lines["queries"] == (0, 0, 0, 0)


def test_a_training_step_gives_all_losses_at_once(engine: Engine, tiny_f32: LanguageModel) -> None:
    outcome = run(engine, tiny_f32, "training", Given())
    facts = {name: quantity.value for name, quantity in outcome.facts.items()}
    assert facts["positions"] == 8 == len(outcome.lines["before"]) == len(outcome.lines["after"])
    assert facts["difference"] < 1e-3 and facts["after"] < facts["before"] and facts["change"] > 0
    assert facts["before"] == pytest.approx(sum(outcome.lines["before"]) / 8)
    assert outcome.answer == pytest.approx(facts["one_by_one"] / facts["forward"])


def test_what_cannot_be_asked_is_refused(model: LanguageModel) -> None:
    limit = model.config.context_limit
    for key in ("slower", "rate", "race"):
        live = QUESTIONS[key].live
        assert live is not None
        with pytest.raises(Refusal):
            live(model, random_ids(9), replace(SMALL, n=16 * limit))
