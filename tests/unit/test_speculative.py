"""Speculative decoding: greedily the tokens of plain decoding, a cache as if nothing had been refused, its sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from core.engine.engine import Engine
from core.engine.exclusive import Point
from core.engine.steps import generate
from core.estimate.flops import decode_flops, head_flops, layers_flops
from core.estimate.speculative import break_even_cost, speedup, tokens_per_pass
from core.lab.lane import cache_bytes, fill
from core.lab.speculative.decoding import SpeculativeDecoder
from core.lab.speculative.drafting import Drafter, FirstLayers, PromptLookup, first_layers, followers
from core.lab.speculative.experiment import MOST_GAMMA, DrafterName, Speculation
from core.lab.speculative.records import PassTime, PlainStep, SpeculativePass, SpeculativeResult
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids, random_pair
from tests.runs import SAMPLED, new_run

GREEDY = SamplingConfig()
PROMPTS = (
    *("The sea", "The moon", "A ship", "Rain", "Snow falls", "Once upon a time", "the the the the", "a, b, c, a, b"),
    *(
        "In the morning",
        "Why is the sky blue?",
        "春眠不觉晓，",
        "床前明月光，",
        "白日依山尽，",
        "红豆",
        "空山",
        "静夜思",
    ),
    *("千山鸟飞绝，", "1 2 3 1 2 3 1 2", "Bread is", "x"),
)
N_NEW = 64
ROUNDING = 2e-5
"""fp32: a pass over several positions adds up in another order than a single one."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("speculative") / "m", num_hidden_layers=3)[1]


@pytest.fixture(scope="module")
def endless(tiny_f32: LanguageModel) -> LanguageModel:
    """The tiny model, which no token ends."""
    return replace(tiny_f32, end_token_ids=frozenset())


@pytest.fixture(scope="module")
def plain(endless: LanguageModel) -> dict[str, list[int]]:
    """What the engine's own steps write."""
    return {prompt: plainly(endless, endless.prompt_ids(prompt), N_NEW) for prompt in PROMPTS}


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def plainly(model: LanguageModel, ids: list[int], n_new: int, sampling: SamplingConfig = GREEDY) -> list[int]:
    run = new_run(model, ids, max_new=n_new, sampling=sampling)
    return [event.sampled.token_id for event in generate(model, run) if event.sampled]


def a_drafter(name: DrafterName, model: LanguageModel, ids: list[int], n_layers: int = 2) -> Drafter:
    return PromptLookup() if name == "lookup" else FirstLayers(model, ids, n_layers, GREEDY)


def started(model: LanguageModel, ids: list[int], drafter: Drafter, gamma: int) -> SpeculativeDecoder:
    decoder = SpeculativeDecoder(model, ids, drafter, gamma, GREEDY)
    for point in (*decoder.lane.fill_points(), *drafter.fill_points()):
        point()
    return decoder


def speculatively(
    model: LanguageModel, ids: list[int], drafter: Drafter, gamma: int, n_new: int
) -> list[SpeculativePass]:
    decoder, done = started(model, ids, drafter, gamma), list[SpeculativePass]()
    while (left := len(ids) + n_new - len(decoder.lane.ids)) > 0:
        done.append(decoder.step(left))
    return done


def tokens(passes: list[SpeculativePass]) -> list[int]:
    return [token_id for done in passes for token_id in done.token_ids]


def run_points(speculation: Speculation, tries: int = 1) -> SpeculativeResult:
    for point in speculation.points():
        for _ in range(tries):
            point()
    return speculation.result


# Greedy decoding is plain decoding


# A draft of layers costs a pass a token: these have every third prompt.
@pytest.mark.parametrize(
    ("name", "gamma", "every"),
    [
        *(("lookup", gamma, 1) for gamma in range(1, MOST_GAMMA + 1)),
        *(("layers", gamma, 3) for gamma in (1, 4, MOST_GAMMA)),
    ],
)
def test_greedy_is_plain_decoding(
    endless: LanguageModel, plain: dict[str, list[int]], name: DrafterName, gamma: int, every: int
) -> None:
    n_accepted = 0
    chosen = list(plain.items())[gamma % every :: every]
    for prompt, written in chosen:
        ids = endless.prompt_ids(prompt)
        passes = speculatively(endless, ids, a_drafter(name, endless, ids), gamma, N_NEW)
        assert tokens(passes) == written, prompt
        n_accepted += sum(done.n_accepted for done in passes)
        assert all(len(done.drafted_ids) <= gamma for done in passes)
    assert n_accepted > len(chosen)


@pytest.mark.parametrize(("name", "gamma"), [("lookup", 1), ("lookup", 4), ("lookup", 8), ("layers", 3)])
def test_the_real_model_greedily(smollm2_f32: LanguageModel, name: DrafterName, gamma: int) -> None:
    ids = smollm2_f32.prompt_ids("Repeat three times: red, green, blue, red, green, blue.")
    n_new = 24
    passes = speculatively(smollm2_f32, ids, a_drafter(name, smollm2_f32, ids, 20), gamma, n_new)
    written = plainly(smollm2_f32, ids, n_new)
    assert tokens(passes)[: len(written)] == written  # the decoder alone goes on behind an end token
    if name == "lookup":
        assert sum(done.n_accepted for done in passes) > 0


# The cache


@pytest.mark.parametrize("name", ["lookup", "layers"])
def test_a_cache_after_refusals_is_one_that_was_filled_plainly(endless: LanguageModel, name: DrafterName) -> None:
    ids = endless.prompt_ids("a, b, c, a, b")
    decoder = started(endless, ids, a_drafter(name, endless, ids, 1), 6)
    refused = 0
    while refused < 4:
        refused += decoder.step(N_NEW).is_corrected
    cache, plain_cache = decoder.lane.cache, endless.transformer.new_cache()
    n = len(decoder.lane.ids) - 1
    fill(endless.transformer, decoder.lane.ids[:n], plain_cache)
    assert cache.n_tokens == plain_cache.n_tokens == n
    assert cache.reserved_bytes == plain_cache.reserved_bytes == cache_bytes(endless, n)
    assert cache.used_bytes == plain_cache.used_bytes
    torch.testing.assert_close(cache.columns(0, n), plain_cache.columns(0, n), rtol=0, atol=ROUNDING)


def test_the_first_layers_are_the_models_own(model: LanguageModel) -> None:
    ids = random_ids(9)
    shorter = first_layers(model.transformer, 2)
    caches = model.transformer.new_cache(), shorter.new_cache()
    for transformer, cache in zip((model.transformer, shorter), caches, strict=True):
        fill(transformer, ids, cache)
    assert torch.equal(caches[0].columns(0, 9)[:2], caches[1].columns(0, 9))
    assert shorter.embedding is model.transformer.embedding and model.config.n_layers == 3
    assert len(model.transformer.layers) == 3


# The experiment


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("tries", [1, 2])
@pytest.mark.parametrize("name", ["lookup", "layers"])
def test_the_experiment(model: LanguageModel, sampling: SamplingConfig, tries: int, name: DrafterName) -> None:
    prompt, n_new, gamma = random_ids(9) * 2, 21, 3
    speculation = Speculation(model, prompt, n_new, gamma=gamma, drafter=name, draft_layers=2, sampling=sampling)
    result = run_points(speculation, tries)
    assert speculation.has_ended and len(result.token_ids) == len(result.plain) == n_new
    plainly_written = plainly(model, prompt, n_new, sampling)
    if sampling.is_greedy:
        assert list(result.token_ids) == plainly_written and result.is_same_text
    else:
        assert result.plain[0].token_id == plainly_written[0]
    n_tokens = len(prompt)
    for done in result.passes:
        n_new_positions = 1 + len(done.drafted_ids)
        assert done.n_tokens == n_tokens and done.draft_seconds >= 0 < done.verify_seconds
        flops = layers_flops(model.shape, n_new_positions, n_tokens - 1) + head_flops(model.shape, n_new_positions)
        assert done.verify_flops == flops
        assert (done.draft_flops > 0) == (name == "layers" and bool(done.drafted_ids))
        n_tokens += len(done.token_ids)
    lengths = range(len(prompt), len(prompt) + n_new)
    assert [step.flops for step in result.plain] == [decode_flops(model.shape, n) for n in lengths]
    assert [time.n_positions for time in result.pass_times] == [1, 2, 3, 4]


def test_measured_twice_it_is_the_same(model: LanguageModel) -> None:
    """FLOP too: the drafter's cache is taken back to exactly what it held."""

    def facts(tries: int) -> list[object]:
        speculation = Speculation(model, random_ids(9) * 2, 20, gamma=4, drafter="layers", draft_layers=2)
        passes = run_points(speculation, tries).passes
        return [replace(done, draft_seconds=0, verify_seconds=0) for done in passes]

    assert facts(1) == facts(3)


def test_a_pass_without_a_draft_is_a_decode_step(model: LanguageModel) -> None:
    result = run_points(Speculation(model, [5, 9, 3], 1, gamma=2))
    assert result.n_without_draft == 1 and result.alpha is None and result.cost_ratio is None
    assert result.passes[0].verify_flops == result.plain[0].flops
    assert result.tokens_per_pass == 1 and result.speedup_formula is None and result.break_even_cost is None


def test_an_end_token_ends_it_inside_a_draft(model: LanguageModel, engine: Engine) -> None:
    prompt = random_ids(9) * 2
    free = run_points(Speculation(model, prompt, 20, gamma=4, drafter="layers", draft_layers=2)).token_ids
    end = free[6]
    ending = replace(model, end_token_ids=frozenset([end]))
    speculation = Speculation(ending, prompt, 20, gamma=4, drafter="layers", draft_layers=2)
    engine.measure(speculation.measurement()).future.result(PATIENCE)
    assert speculation.result.token_ids == free[: free.index(end) + 1]
    assert speculation.result.is_same_text and speculation.has_ended


def test_up_to_the_very_end_of_the_context(model: LanguageModel) -> None:
    limit, gamma = model.config.context_limit, 4
    prompt = (random_ids(20) * 40)[: limit - gamma]
    for name in ("lookup", "layers"):
        result = run_points(Speculation(model, prompt, 100, gamma=gamma, drafter=name))
        assert len(result.token_ids) == result.n_planned == gamma + 1
        assert list(result.token_ids) == plainly(model, prompt, 100)


def test_in_the_exclusive_slot(model: LanguageModel, engine: Engine) -> None:
    seen: list[int] = []
    speculation = Speculation(model, random_ids(9), 8, gamma=2)
    measurement = speculation.measurement(lambda result: seen.append(len(result.token_ids)))
    assert measurement.n_bytes >= 2 * cache_bytes(model, 9 + 8)
    engine.measure(measurement).future.result(PATIENCE)
    assert seen[-1] == 8 and seen == sorted(seen) and speculation.result.n_disturbed == 0


def test_what_cannot_be_decoded_is_refused(model: LanguageModel) -> None:
    limit = model.config.context_limit
    for ids, n_new, changes in (
        ([], 4, {}),
        (random_ids(limit - 2), 4, {"gamma": 4}),
        ([3], 0, {}),
        ([3], 4, {"gamma": 0}),
        ([3], 4, {"gamma": MOST_GAMMA + 1}),
        ([3], 4, {"drafter": "layers", "draft_layers": 0}),
        ([3], 4, {"drafter": "layers", "draft_layers": 3}),
    ):
        with pytest.raises(Refusal):
            Speculation(model, ids, n_new, **changes)


# Looking up


@pytest.mark.parametrize(
    ("ids", "most", "found"),
    [
        ([1, 2, 3, 4, 1, 2, 3], 3, [4, 1, 2]),
        ([1, 2, 3, 4, 1, 2, 3], 9, [4, 1, 2, 3]),
        ([7, 3, 5, 3, 6, 3], 1, [6]),  # the latest place
        ([1, 2, 8, 9, 2, 4, 1, 2], 2, [8, 9]),  # two tokens rather than the later one
        ([5, 5, 5], 4, [5]),
        ([1, 2, 3], 4, []),
        ([1], 4, []),
    ],
)
def test_what_followed_before(ids: list[int], most: int, found: list[int]) -> None:
    assert list(followers(ids, most)) == found


# The sums


def made(drafted: int, accepted: int, draft_seconds: float = 0.0) -> SpeculativePass:
    text = (7,) * (accepted + 1)
    return SpeculativePass(10, (7,) * drafted, accepted, 7, text, draft_seconds, 0.5, 0, 4)


def test_what_passes_come_to() -> None:
    passes = (made(2, 2, 0.1), made(2, 0, 0.1), made(2, 1, 0.1), made(0, 0))
    times = (PassTime(1, 0.2, 1), PassTime(2, 0.3, 2), PassTime(3, 0.4, 3))
    plain = tuple(PlainStep(0.25, 2, 7) for _ in range(7))
    result = SpeculativeResult(5, 7, 2, "layers", 1, True, passes, plain, times)
    assert result.alpha == 3 / 5  # 2 of 2, 0 of 1, 1 of 2
    assert [(place.n_checked, place.n_accepted) for place in result.places] == [(3, 2), (2, 1)]
    assert result.tokens_per_pass == 7 / 4 and result.n_without_draft == 1
    assert result.tokens_per_pass_formula == tokens_per_pass(0.6, 2) == pytest.approx(1 + 0.6 + 0.36)
    assert result.seconds == pytest.approx(2.3) and result.plain_seconds == pytest.approx(1.75)
    assert result.speedup == pytest.approx(1.75 / 2.3)
    assert result.cost_ratio == pytest.approx(0.3 / 6 / 0.25) and result.pass_ratio == pytest.approx(2)
    assert result.last_position_ratio == pytest.approx(0.4 / 0.3)
    assert result.speedup_formula == pytest.approx(1.96 / (2 * 0.2 + 2))
    assert result.break_even_cost == pytest.approx(-0.02)
    assert (result.flops, result.plain_flops) == (16, 14)
    for shown, is_usable in ((0.71, False), (0.97, True), (1.0, True)):
        noisy = replace(result, pass_times=(*times[:2], PassTime(3, 0.2 * shown, 3)))
        assert noisy.pass_ratio == pytest.approx(shown)  # is said, but nothing is reckoned from it
        reckoned = (noisy.usable_pass_ratio, noisy.speedup_formula, noisy.break_even_cost)
        assert reckoned.count(None) == (0 if is_usable else 3)
    disturbed = replace(result, pass_times=(*times[:2], replace(times[2], is_disturbed=True)))
    assert disturbed.usable_pass_ratio is None and disturbed.speedup_formula is None


def test_a_disturbed_pass_is_marked(model: LanguageModel) -> None:
    speculation = Speculation(model, random_ids(6), 2, gamma=2)
    measurement = speculation.measurement()
    for index, point in enumerate(measurement.points):
        point()
        measurement.on_point(index, Point(None, 1.0, 3, True))
    result = speculation.result
    assert [time.is_disturbed for time in result.pass_times] == [True] * 3 and result.pass_ratio is not None
    assert result.usable_pass_ratio is None


def test_break_even_is_where_the_speedup_is_one() -> None:
    for alpha, gamma, ratio in ((0.8, 5, 1.0), (0.6, 3, 1.4), (1.0, 8, 2.0)):
        assert speedup(alpha, gamma, break_even_cost(alpha, gamma, ratio), ratio) == pytest.approx(1)
    assert break_even_cost(0.1, 8, 1.5) < 0
    for wrong in (lambda: break_even_cost(0.5, 0), lambda: break_even_cost(0.5, 2, -1), lambda: speedup(1, 1, 1, -1)):
        with pytest.raises(ValueError):
            wrong()
