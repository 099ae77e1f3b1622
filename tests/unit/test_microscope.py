"""A layer taken apart: its figures add up to the step's own, its shapes are the model's, and nothing is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from core.engine.dissection import Dissection, dissection
from core.engine.engine import Engine
from core.engine.exclusive import Measurement
from core.engine.layer_at_work import LayerAtWork
from core.engine.layer_operators import FUSED, JOINED, layer_operators
from core.engine.microscope import Microscope, dissect
from core.engine.run import Run
from core.engine.steps import step
from core.engine.trace import Phase
from core.estimate.traffic import Pass, operators
from core.model.cached_attention import CachedAttention
from core.model.device import DTYPES
from core.model.load import LanguageModel
from core.model.transformer import Transformer
from tests.checkpoints import random_model
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import loaded, random_ids
from tests.runs import advance, assert_same_contents, contents, facts, new_run

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "multi-head": ("llama", {"num_key_value_heads": 4}),
    "grouped": ("llama", {"num_key_value_heads": 2, "num_hidden_layers": 3}),
    "one KV head": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "qkv bias": ("qwen2", {}),
    "qk norm": ("qwen3", {"num_key_value_heads": 2}),
}
# What a run is started with, and after how many steps it is looked at.
PHASES: dict[str, dict[str, Any]] = {
    "one pass": {},
    "chunks": {"prefill_chunk": 5},
    "a last chunk of one": {"prefill_chunk": 6},
    "without cache": {"use_cache": False},
    "without cache, in chunks": {"use_cache": False, "prefill_chunk": 4},
}
PROMPT = 13
TRIES = 8  # another program may take the core in the middle of a pass


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def models(kind: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LanguageModel]:
    """One model in every dtype that runs here."""
    architecture, changes = KINDS[kind]
    peer = random_model(architecture, **changes)
    return {dtype: loaded(peer, tmp_path_factory.mktemp(dtype) / "m", dtype=dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return loaded(random_model("qwen3", num_hidden_layers=3), tmp_path_factory.mktemp("one") / "m")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few readings as there can be."""
    monkeypatch.setattr("core.engine.microscope.READING_SECONDS", 0.0)


def stepped(model: LanguageModel, n_steps: int = 3, n_prompt: int = PROMPT, **settings: Any) -> Run:
    run = new_run(model, random_ids(n_prompt), **settings)
    advance(model, [run], n_steps)
    return run


def counted(run: Run, number: int, layer: int = 0) -> Dissection:
    return dissection(run.model, run.config, run.steps[number], number, layer)


# --- sums


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("phase", PHASES)
def test_layers_and_head_add_up_to_the_step(models: dict[str, LanguageModel], phase: str, dtype: str) -> None:
    """FLOP, weight bytes and cache bytes of every step; what is written is what the cache grew by."""
    run = stepped(models[dtype], **PHASES[phase])
    for number, event in enumerate(run.steps):
        found = counted(run, number, number % models[dtype].config.n_layers)
        assert found.gaps == (0, 0, 0)
        assert len(found.passes) == event.n_passes
        cost = found.step_cost
        assert (cost.flops, cost.weights_read, cost.kv_read) == (
            event.flops_exact,
            event.weight_bytes_read,
            event.kv_bytes_read,
        )
        if run.config.use_cache:
            before = run.steps[number - 1].kv_bytes if number else 0
            assert cost.kv_written == event.kv_bytes - before


def test_a_prompt_of_one_token_is_a_prefill(models: dict[str, LanguageModel]) -> None:
    """One row, and yet nothing is read from a cache."""
    run = stepped(models["f32"], 2, n_prompt=1)
    prefill, decode = counted(run, 0), counted(run, 1)
    assert prefill.gaps == decode.gaps == (0, 0, 0)
    assert prefill.step_cost.kv_read == 0 < decode.step_cost.kv_read


def test_a_layer_is_the_lth_part_of_the_pass(models: dict[str, LanguageModel]) -> None:
    """Nothing is lost where the layers' figures are divided, activations included."""
    run = stepped(models["f16"])
    for number in (0, 2):
        found = counted(run, number)
        whole = [one for one in operators(run.model.shape, found.made) if one.group is not None]
        for field in ("flops", "weights_read", "kv_read", "kv_written", "activations_written"):
            layers = found.n_layers * getattr(found.pass_cost, field)
            assert layers == sum(getattr(one, field) for one in whole), field
        inputs_once = [one for one in whole if one.name not in ("k_proj", "v_proj", "up")]
        layers = found.n_layers * found.pass_cost.activations_read
        assert layers == sum(one.activations_read for one in inputs_once)


def test_each_formula_is_its_products_figure(models: dict[str, LanguageModel]) -> None:
    run = stepped(models["f32"], prefill_chunk=5)
    for number in (0, 2):
        found = counted(run, number)
        products = [one for one in (*found.operators, *found.head) if one.flops is not None]
        assert [one.name for one in products] == ["qkv", "scores", "gathering", "o_proj", "gate_up", "down", "head"]
        for one in products:
            assert one.flops is not None and one.flops.whole == one.cost.flops > 0
        others = [one for one in (*found.operators, *found.head) if one.flops is None]
        assert {one.cost.flops for one in others} == {0}
        assert {one.name for one in others if one.cost.bytes_moved} == {"kv_write"}


def test_a_layer_that_does_not_exist_is_no_layer(model: LanguageModel) -> None:
    run = stepped(model, 1)
    for layer in (-1, 3):
        with pytest.raises(ValueError):
            counted(run, 0, layer)
        with pytest.raises(ValueError):
            Microscope(run, 0, layer)
    with pytest.raises(IndexError):
        Microscope(run, 1, 0)


# --- shapes


def test_shapes_are_those_of_the_model(models: dict[str, LanguageModel]) -> None:
    run = stepped(models["f32"])
    config, n = run.model.config, PROMPT + 2
    shapes = {one.name: one for one in counted(run, 2).operators}
    q, k = shapes["scores"].inputs
    assert [symbol for symbol, _ in q.axes] == ["B", "h", "n_new", "d_h"]
    assert q.sizes == (1, config.n_heads, 1, config.head_dim)
    assert [symbol for symbol, _ in k.axes] == ["B", "n_kv", "n", "d_h"]
    assert k.sizes == (1, config.n_kv_heads, n, config.head_dim)
    assert shapes["gathering"].inputs[0].sizes == (1, config.n_heads, 1, n)
    for name, learned in (("qkv", "qkv"), ("o_proj", "attention_out"), ("gate_up", "gate_up"), ("down", "down")):
        numbers = getattr(run.model.transformer.layers[0], learned).n_bytes // 4
        x, weight = shapes[name].inputs
        assert weight.sizes[0] * weight.sizes[1] == numbers
        assert x.sizes == (1, 1, weight.sizes[1]) and shapes[name].output.sizes == (1, 1, weight.sizes[0])


def test_one_row_is_a_vector_many_are_a_matrix(models: dict[str, LanguageModel]) -> None:
    """The same operators in both phases; only the number of rows differs, and for keys the heads that share them."""
    run = stepped(models["f32"])
    share = run.model.config.n_heads // run.model.config.n_kv_heads
    prefill, decode = counted(run, 0), counted(run, 1)
    assert [one.name for one in prefill.operators] == [one.name for one in decode.operators]
    for many, one in zip(prefill.operators, decode.operators, strict=True):
        assert many.n_rows == PROMPT * one.n_rows
        if many.is_product:
            assert one.n_rows == (1 if one.name in JOINED else share)
            assert one.cost.weights_read == many.cost.weights_read
            assert one.name in FUSED or one.cost.intensity < many.cost.intensity


# --- the counter of torch


@pytest.mark.parametrize("n_past", [0, 7])
@pytest.mark.parametrize("n_new", [1, 6])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_operator_against_torchs_counter(
    model: LanguageModel, architecture: str, n_new: int, n_past: int
) -> None:
    """On plain products and the mathematical path of attention; the small operators multiply nothing."""
    peer = random_model(architecture, num_hidden_layers=3)
    plain = loaded_plainly(model, peer, architecture)
    transformer, ids = plain.transformer, torch.tensor([random_ids(n_past + n_new)])
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        cache = transformer.new_cache()
        if n_past:
            transformer.hidden(ids[:, :n_past], [cache])
        cache.reserve(n_new)
        rotations = transformer.rotations([n_past], n_new)
        work = LayerAtWork(transformer, 0, transformer.embed(ids[0, n_past:]), cache, rotations)
        flops = {}
        for names, operator in work.operators():
            with FlopCounterMode(display=False) as counter:
                operator()
            flops[names] = counter.get_total_flops()
    made = Pass(n_new, n_past, of_prefix=n_past == 0 or n_new > 1)
    costs = {one.name: one.cost.flops for one in layer_operators(plain, made)}
    assert {names: sum(costs[name] for name in names) for names in flops} == flops
    assert sum(flops.values()) == sum(costs.values()) > 0


def loaded_plainly(model: LanguageModel, peer: Any, architecture: str) -> LanguageModel:
    config = replace(
        model.config,
        architecture=architecture,
        head_dim=getattr(peer.config, "head_dim", None) or 8,
        qk_norm=architecture == "qwen3",
        qkv_bias=architecture == "qwen2",
    )
    transformer = Transformer(config, peer.state_dict().__getitem__, packed=False)
    return replace(model, config=config, transformer=transformer)


# --- the layer that runs is the pass's own


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_new", [1, 4])
def test_the_operators_one_by_one_are_the_layer(models: dict[str, LanguageModel], dtype: str, n_new: int) -> None:
    """Bit for bit, however often they are repeated."""
    transformer, ids = models[dtype].transformer, torch.tensor([random_ids(9 + n_new)])
    with torch.inference_mode():
        cache = transformer.new_cache()
        transformer.hidden(ids[:, :9], [cache])
        cache.reserve(n_new)
        rotations, x = transformer.rotations([9], n_new), transformer.embed(ids[0, 9:])
        attend = CachedAttention([cache], n_new, transformer.activation_dtype).attend
        x = transformer.through_layer(0, x, rotations, attend)
        work = LayerAtWork(transformer, 1, x, cache, rotations)
        whole = transformer.through_layer(1, x, rotations, attend)
        for _ in range(3):
            for _, operator in work.operators():
                operator()
            assert torch.equal(work.x, whole)


@pytest.mark.parametrize("phase", PHASES)
def test_what_is_listed_is_what_is_timed(models: dict[str, LanguageModel], phase: str, quick: None) -> None:
    for dtype in ("f32", "f16"):
        run = stepped(models[dtype], 2, **PHASES[phase])
        for number in range(2):
            found = dissect(run, number, 1)
            listed = [one.name for one in (*found.operators, *found.head)]
            assert [name for timed in found.timings for name in timed.covers] == listed
            assert all(timed.seconds > 0 for timed in found.timings)
            is_fused = found.made.n_new > 1
            assert (FUSED in [timed.covers for timed in found.timings]) == is_fused
            assert found.seconds_of("scores") == 0 if is_fused else found.seconds_of("scores") > 0
            parts = sum(found.seconds_of(*names) for names in (FUSED, *([x] for x in listed if x not in FUSED)))
            assert parts == pytest.approx(found.layer_seconds + found.head_seconds)


# --- looking changes nothing


@pytest.mark.parametrize("settings", [{}, {"prefill_chunk": 5}, {"use_cache": False}], ids=str)
def test_the_run_is_as_it_was(model: LanguageModel, settings: dict[str, Any], quick: None) -> None:
    run, other = stepped(model, **settings), stepped(model, **settings)
    before = contents(run) if run.cache else ()
    held, trace = run.held_bytes, run.trace
    for number in range(3):
        dissect(run, number, number)
    assert run.trace == trace and run.held_bytes == held
    if run.cache:
        assert run.cache.n_tokens == PROMPT + 2
        assert_same_contents(contents(run), before)
    advance(model, [run, other], 2)
    assert [facts(event) for event in run.steps] == [facts(event) for event in other.steps]


def test_a_dropped_cache_is_computed_again_elsewhere(model: LanguageModel, quick: None) -> None:
    """The columns are the same ones, the run stays dropped, and each point takes one chunk."""
    run = stepped(model, 4, n_prompt=300, prefill_chunk=128)
    assert run.cache is not None
    kept = Microscope(run, 3, 1)
    columns = kept._cache.columns(0, 302)
    run.drop_cache()
    again = Microscope(run, 3, 1)
    assert len(kept.points) == 3 and len(again.points) == 3 + 3
    *before, last = again.points
    for point in before:
        assert point() is None
        assert point() is None  # a point that was disturbed is repeated
    assert again._cache.n_tokens == 302 and run.held_bytes == 0 and not run.is_resident
    torch.testing.assert_close(again._cache.columns(0, 302), columns, rtol=0, atol=1e-4)
    found = last()
    assert found is not None and found.gaps == (0, 0, 0) and found.layer_seconds > 0
    assert again.n_bytes == kept.n_bytes == bytes_of(run, 320)


def bytes_of(run: Run, n_tokens: int) -> int:
    cache = run.model.transformer.new_cache()
    cache.reserve(n_tokens)
    return cache.reserved_bytes


# --- times


def test_the_layers_times_make_the_step(smollm2_f32: LanguageModel) -> None:
    """L such layers and the head take about what the same pass takes in one go; nothing is missing, nothing twice."""
    run = stepped(smollm2_f32, 2, n_prompt=40)
    for number in range(2):
        ratios = []
        for _ in range(TRIES):
            found = dissect(run, number, 15)
            whole = found.n_layers * found.layer_seconds + found.head_seconds
            ratios.append(whole / found.pass_seconds)
            products = found.seconds_of(*FUSED, *(one.name for one in found.operators if one.is_product))
            assert products < found.layer_seconds and found.n_readings >= 3
            if 0.3 < ratios[-1] < 3:
                break
        else:
            raise AssertionError(ratios)


def test_it_has_the_exclusive_slot(model: LanguageModel) -> None:
    run, engine = stepped(model), Engine(lambda: MANY_BYTES)
    scope = Microscope(run, 2, 0)
    try:
        done = engine.measure(Measurement("microscope", scope.points, n_bytes=scope.n_bytes)).future.result(PATIENCE)
        assert engine.status().promised_bytes == 0
    finally:
        engine.stop()
    assert [point.value for point in done[:-1]] == [None, None]
    point = done[-1]
    assert isinstance(point.value, Dissection) and point.value.event is run.steps[2]
    assert point.value.event.phase is Phase.DECODE
    step(model, [run])
