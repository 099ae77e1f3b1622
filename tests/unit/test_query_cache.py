"""Queries are kept for nothing: no later step reads them, and every key and value is read by each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.engine.engine import Engine
from core.engine.steps import generate
from core.lab import query_cache as query_cache_module
from core.lab.query_cache import Kind, Kinds, QueryCache, QueryCacheResult
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair
from tests.runs import new_run

PROMPT = random_ids(11)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair(request.param, tmp_path_factory.mktemp("queries") / "m")[1]


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def kept(model: LanguageModel, n_steps: int = 6, tries: int = 1) -> QueryCacheResult:
    experiment = QueryCache(model, PROMPT, n_steps)
    for point in experiment.points():
        for _ in range(tries):
            point()
    return experiment.result


@pytest.mark.parametrize("tries", [1, 2])
def test_no_later_step_reads_a_query(model: LanguageModel, tries: int) -> None:
    result = kept(model, tries=tries)
    L, P = model.config.n_layers, len(PROMPT)
    assert result.steps[0].earlier_read == Kinds(0, 0, 0) and result.steps[0].own_read == Kinds(L * P, L * P, L * P)
    for number, step in enumerate(result.steps[1:], 1):
        n = P + number
        assert step.n_tokens == n and step.n_new == 1
        assert step.earlier_read == Kinds(0, L * (n - 1), L * (n - 1)) and step.own_read == Kinds(L, L, L)
        assert step.change is not None and step.change.queries == 0.0
        assert step.change.keys > 1e-3 < step.change.values
    assert result.earlier_read.queries == 0 == result.largest_change.queries
    assert result.earlier_read.keys == L * sum(range(P, P + 6))


def test_bytes_kept_for_nothing(model: LanguageModel) -> None:
    """h·d_h a position and layer for queries, 2·n_kv·d_h for keys and values."""
    result, config = kept(model), model.config
    n = len(PROMPT) + 6
    assert result.wasted_bytes == config.n_layers * config.attention_width * n * 4
    assert result.useful_bytes == config.n_layers * 2 * config.kv_width * n * 4
    assert result.wasted_bytes / result.useful_bytes == config.n_heads / (2 * config.n_kv_heads)


def test_the_tokens_are_plain_decodings(model: LanguageModel) -> None:
    run = new_run(model, PROMPT, max_new=7)
    written = [event.sampled.token_id for event in generate(model, run) if event.sampled]
    assert [step.token_id for step in kept(model).steps] == written


def test_a_read_would_be_noticed(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention that looks at earlier queries is counted, and changes when they are gone."""
    attend = query_cache_module.QueryCache._attend

    def looking_back(self: QueryCache, begin: int, layer: int, *tensors: object) -> object:
        gathered = attend(self, begin, layer, *tensors)  # type: ignore[arg-type]
        earlier = self._columns[Kind.QUERIES].read(layer, 0, len(self._ids), begin)
        return gathered + earlier.mean(0)

    monkeypatch.setattr(query_cache_module.QueryCache, "_attend", looking_back)
    result = kept(model)
    assert result.earlier_read.queries > 0 < result.largest_change.queries


def test_in_the_exclusive_slot(tiny_f32: LanguageModel, engine: Engine) -> None:
    experiment = QueryCache(tiny_f32, tiny_f32.prompt_ids("The sea"), 4)
    engine.measure(experiment.measurement()).future.result(PATIENCE)
    assert len(experiment.result.steps) == 5 and experiment.result.largest_change.queries == 0


def test_too_long_is_refused(model: LanguageModel) -> None:
    limit = model.config.context_limit
    for ids, n_steps in (([], 3), (random_ids(limit), 3), ([3], 0)):
        with pytest.raises(Refusal):
            QueryCache(model, ids, n_steps)
