"""The quantised cache: bytes to the unit, and attention that is right within what rounding allows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.engine.engine import Engine
from core.estimate.kv import kv_bytes
from core.estimate.quantised import CacheScheme, quantised_kv_bytes
from core.lab.before_after import Asked
from core.lab.cached_lane import CachedLane
from core.lab.quality import held_ids, held_text
from core.lab.quantised_cache.cache import QuantisedCache
from core.lab.quantised_cache.experiment import QuantisedCacheExperiment, QuantisedCacheLane, QuantisedKV
from core.model.attention import attend
from core.model.config import ModelConfig
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair

SCHEMES = [
    CacheScheme(8),
    CacheScheme(4),
    CacheScheme(8, 8),
    CacheScheme(4, 4),
    CacheScheme(8, None, 6),
    CacheScheme(4, 8, 5),
    CacheScheme(4, None, 1000),
]
CONFIG = ModelConfig(
    name="small",
    architecture="llama",
    n_layers=2,
    d_model=24,
    n_heads=6,
    n_kv_heads=2,
    head_dim=12,
    d_ff=8,
    vocab_size=9,
    context_limit=512,
)


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair(request.param, tmp_path_factory.mktemp("cache") / "m")[1]


def new_lane(model: LanguageModel, scheme: CacheScheme) -> QuantisedCacheLane:
    transformer = model.transformer
    return QuantisedCacheLane(
        model, QuantisedCache(model.config, scheme, dtype=transformer.dtype, device=transformer.device)
    )


@torch.inference_mode()
def rows(lane: QuantisedCacheLane | CachedLane, ids: list[int], chunk: int) -> Tensor:
    """The residual stream of all positions [n, d], `chunk` of them a pass."""
    return torch.cat([lane.hidden(ids[start : start + chunk]) for start in range(0, len(ids), chunk)])


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
@pytest.mark.parametrize("chunk", [1, 5, 30])
def test_bytes_measured_are_bytes_computed(model: LanguageModel, scheme: CacheScheme, chunk: int) -> None:
    lane = new_lane(model, scheme)
    for n in range(chunk, 31, chunk):
        rows(lane, random_ids(chunk), chunk)
        formula = quantised_kv_bytes(model.shape, scheme, n, head_dim=model.config.head_dim, rest=model.kv_dtypes)
        assert lane.kv_bytes == formula


def test_bytes_by_hand(tiny_f32: LanguageModel) -> None:
    """L = 4, n_kv = 2, d_h = 32, 100 positions; the cache is fp32 where it is not quantised."""
    heads = 4 * 2 * 100
    for scheme, expected in (
        (CacheScheme(8), 2 * heads * (32 + 2)),
        (CacheScheme(4), 2 * heads * (16 + 4)),
        # 96 positions are three groups: 32 channels a head, each 16 bytes and a pair of scales
        (CacheScheme(4, 32), 4 * 2 * (3 * 32 * (16 + 4) + 96 * (16 + 4) + 4 * 2 * 32 * 4)),
        (CacheScheme(8, None, 40), 2 * 4 * 2 * (60 * 34 + 40 * 32 * 4)),
    ):
        computed = quantised_kv_bytes(tiny_f32.shape, scheme, 100, head_dim=32, rest=tiny_f32.kv_dtypes)
        assert computed == expected


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_pass_of_many_is_many_passes_of_one(model: LanguageModel, scheme: CacheScheme) -> None:
    """Whatever the chunk, a position sees as integers what it would see as integers alone."""
    ids = random_ids(30, seed=2)
    one, other = new_lane(model, scheme), new_lane(model, scheme)
    torch.testing.assert_close(rows(one, ids, 1), rows(other, ids, 13), rtol=0, atol=1e-4)
    assert one.kv_bytes == other.kv_bytes


def test_a_window_over_everything_is_the_ordinary_cache(model: LanguageModel) -> None:
    ids = random_ids(30, seed=2)
    lane, ordinary = new_lane(model, CacheScheme(4, None, 1000)), CachedLane(model)
    torch.testing.assert_close(rows(lane, ids, 7), rows(ordinary, ids, 7), rtol=0, atol=1e-5)
    assert lane.kv_bytes == ordinary.kv_bytes == kv_bytes(model.shape, n_tokens=30, dtypes=model.kv_dtypes)


def test_a_copy_goes_its_own_way(model: LanguageModel) -> None:
    lane = new_lane(model, CacheScheme(4, 8, 3))
    rows(lane, random_ids(20), 20)
    copy, size = lane.copied(), lane.kv_bytes
    first = rows(copy, random_ids(12, seed=5), 1)
    assert lane.kv_bytes == size < copy.kv_bytes
    assert torch.equal(first, rows(lane.copied(), random_ids(12, seed=5), 1))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([4, 8]),
    st.sampled_from([None, 4, 6]),
    st.integers(0, 9),
    st.integers(1, 40),
    st.integers(0, 10**6),
)
def test_attention_is_right_within_its_error(bits: int, group: int | None, window: int, n: int, seed: int) -> None:
    """Keys and values miss by half a scale at most; from there on it is arithmetic.

    A score misses by e = |q|₁·(worst key error)/√d_h at most, so a weight's ratio to its right value lies within
    exp(±2e), and what is gathered misses by (worst value error) + (exp(2e) − 1)·(largest value).
    """
    generator = torch.Generator().manual_seed(seed)
    keys_values = torch.randn(n, 4, 12, generator=generator)
    query = torch.randn(1, 6, 12, generator=generator) / 8
    scheme = CacheScheme(bits, group, window)  # type: ignore[arg-type]
    cache = QuantisedCache(CONFIG, scheme, dtype=torch.float32, device=torch.device("cpu"))
    for start in range(n):
        attended = cache.attend(0, query, keys_values[start : start + 1])
        cache.commit(1)
    exact = keys_values.transpose(0, 1)
    errors = [(part - right).abs() for part, right in ((cache.keys(0), exact[:2]), (cache.values(0), exact[2:]))]
    layer = cache._layers[0]
    for error, stored in zip(errors, (layer.keys, layer.values), strict=True):
        largest_scale = 0.0 if stored is None else float(stored.scales.float().max())
        assert float(error.max()) <= largest_scale / 2 + 1e-5
        assert not error[:, scheme.n_quantised(n) :].any()
    score_error = float(query.abs().sum(-1).max() * errors[0].max()) * 12**-0.5
    bound = float(errors[1].max()) + (torch.tensor(2 * score_error).exp().item() - 1) * float(exact[2:].abs().max())
    assert float((attended - attend(query, exact)).abs().max()) <= bound + 1e-5


def experiment(model: LanguageModel, scheme: CacheScheme, asked: Asked, tries: int = 1) -> QuantisedKV:
    made = QuantisedCacheExperiment(model, scheme, asked)
    for point in made.measurement().points:
        for _ in range(tries):
            point()
    return made.result


def test_points_may_be_done_again(model: LanguageModel) -> None:
    asked = Asked(random_ids(70), 5, random_ids(40, seed=3))
    once, twice = (experiment(model, CacheScheme(4, 8, 3), asked, tries) for tries in (1, 2))
    assert once.compared.quality == twice.compared.quality and once.compared.texts == twice.compared.texts
    assert once.compared.kv_bytes == once.kv_bytes_formula == twice.compared.kv_bytes
    assert once.compared.n_tokens == 74 and 0 < once.kv_bytes_formula.ratio < 0.5


def test_more_bits_diverge_less(tiny_f32: LanguageModel) -> None:
    asked = Asked(tiny_f32.prompt_ids("白日依山尽"), 12, held_ids(tiny_f32, held_text("zh"), 96))
    results = [experiment(tiny_f32, CacheScheme(*scheme), asked) for scheme in ((8,), (4, 32), (4,))]
    divergences = [result.compared.quality.mean_divergence for result in results]
    assert 0 < divergences[0] < divergences[1] < divergences[2]
    assert results[0].compared.texts.first_difference is None
    # until the first group is whole, nothing is rounded
    assert all(p.divergence < 1e-6 for p in results[1].compared.quality.positions[:31])
    assert results[1].compared.quality.positions[40].divergence > 1e-6


def test_a_wrong_scale_shows(tiny_f32: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(tiny_f32.prompt_ids("白日依山尽"), 2, held_ids(tiny_f32, held_text("zh"), 64))
    right = experiment(tiny_f32, CacheScheme(8), asked).compared.quality
    stored = QuantisedCache._stored

    def wrongly(self: QuantisedCache, numbers: Tensor) -> object:
        made = stored(self, numbers)
        return type(made)(made.integers, made.scales * 1.33, made.zeros)

    monkeypatch.setattr(QuantisedCache, "_stored", wrongly)
    assert experiment(tiny_f32, CacheScheme(8), asked).compared.quality.mean_divergence > 20 * right.mean_divergence


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def test_in_the_exclusive_slot(model: LanguageModel, engine: Engine) -> None:
    made = QuantisedCacheExperiment(model, CacheScheme(8), Asked(random_ids(9), 3, random_ids(20)))
    assert made.result.compared.tokens == () and made.result.compared.kv_bytes == (0, 0) == made.result.kv_bytes_formula
    engine.measure(made.measurement()).future.result(PATIENCE)
    assert len(made.result.compared.tokens) == 3 and len(made.result.compared.quality.positions) == 19


def test_what_cannot_be_asked_is_refused(model: LanguageModel) -> None:
    asked = Asked(random_ids(9), 3, random_ids(20))
    with pytest.raises(Refusal):
        QuantisedCacheExperiment(model, CacheScheme(8, 14), asked)
    limit = model.config.context_limit
    for prompt, n_new in (([], 3), (random_ids(limit + 1), 1), (random_ids(limit), 3)):
        with pytest.raises(Refusal):
            QuantisedCacheExperiment(model, CacheScheme(8), Asked(prompt, n_new, asked.held_ids))


def test_the_real_model(smollm2_f32: LanguageModel) -> None:
    held = held_ids(smollm2_f32, held_text("en"), 48)
    asked = Asked(smollm2_f32.prompt_ids("Name three fruits."), 4, held)
    result = experiment(smollm2_f32, CacheScheme(8), asked)
    assert result.compared.kv_bytes == result.kv_bytes_formula
    assert result.kv_bytes_formula.ratio == (64 + 2) / (4 * 64)
    assert 0.98 < result.compared.quality.perplexity_ratio < 1.02
    assert 0 < result.compared.quality.mean_divergence < 0.01
