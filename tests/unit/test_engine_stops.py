"""When a run ends and why, and that what it draws depends on nothing but its seed and its length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.engine import finish as finish_module
from core.engine.recorder import RecordConfig
from core.engine.run import Interrupted, Run, RunConfig
from core.engine.steps import decode_one_token, generate, prefill, step
from core.engine.trace import Phase
from core.model.load import LanguageModel, load_model
from core.model.sampling import SamplingConfig
from core.refusal import Refusal
from tests.checkpoints import random_model, save_huggingface
from tests.peer import random_ids, random_pair


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("llama", tmp_path_factory.mktemp("stops") / "m")[1]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """A model whose context holds 16 positions."""
    return random_pair("llama", tmp_path_factory.mktemp("stops") / "short", max_position_embeddings=16)[1]


def finished(model: LanguageModel, ids: list[int], **settings: Any) -> Run:
    run = Run(model, ids, RunConfig(**settings))
    list(generate(model, run))
    return run


def script(patch: pytest.MonkeyPatch, tokens: Sequence[int]) -> None:
    """The model says these tokens, whatever its logits are."""
    remaining = iter(tokens)
    patch.setattr(finish_module, "choose", lambda *_, **__: next(remaining))


# --- end tokens


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    ("ends", "said", "stopped"),
    [
        ({5, 9}, [3, 9], "end token 9"),
        ({5, 9}, [3, 5], "end token 5"),
        ({2}, [2], "end token 2"),
        ({1}, [3, 9, 4, 5, 7], "length"),
        (set(), [3, 9, 4, 5, 7], "length"),
    ],
)
def test_all_end_tokens_count(
    model: LanguageModel,
    monkeypatch: pytest.MonkeyPatch,
    ends: set[int],
    said: list[int],
    stopped: str,
    use_cache: bool,
) -> None:
    """B11: a model that would say 3, 9, 4, 5, 7 stops at the first of its end tokens, and says which."""
    script(monkeypatch, said if said[-1] in ends else [3, 9, 4, 5, 7])
    ending = replace(model, end_token_ids=frozenset(ends))
    run = finished(ending, random_ids(4), max_new=5, use_cache=use_cache)
    assert run.output_ids == said and str(run.stopped) == str(run.trace.stopped) == stopped
    assert len(run.steps) == len(said)
    if run.cache is not None:
        assert run.cache.n_tokens == 4 + len(said) - 1


@pytest.mark.parametrize(("declared", "ends"), [([5, 9], {5, 9}), (9, {9}), (None, set())])
def test_end_tokens_as_they_are_declared(
    declared: Any, ends: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B11 from the file on: an int, a list, and none at all."""
    folder = save_huggingface(random_model("llama"), tmp_path / "m")
    value = "null" if declared is None else str(declared)
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {value}}}', encoding="utf-8")
    model = load_model(str(folder), device="cpu", dtype="f32")
    assert model.end_token_ids == ends
    script(monkeypatch, [3, 9, 4, 5])
    run = finished(model, random_ids(4), max_new=4)
    assert run.output_ids == ([3, 9] if ends else [3, 9, 4, 5])
    assert str(run.stopped) == ("end token 9" if ends else "length")


def test_an_end_token_in_the_prompt_ends_nothing(model: LanguageModel) -> None:
    ending = replace(model, end_token_ids=frozenset({7}))
    run = Run(ending, [7, 7], RunConfig(max_new=2))
    assert run.stopped is None
    prefill(ending, [run])
    assert run.stopped is None or run.output_ids[-1] == 7
    assert str(finished(ending, [7, 7], max_new=0).stopped) == "length"


# --- length and context


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(("n_prompt", "n_said"), [(13, 4), (15, 2), (16, 1)])
def test_the_context_limit_stops_with_a_reason(
    short: LanguageModel, n_prompt: int, n_said: int, use_cache: bool
) -> None:
    """The last position of the context still says a token, which could not be fed any more."""
    run = finished(short, random_ids(n_prompt), max_new=100, use_cache=use_cache)
    assert str(run.stopped) == "context limit 16" and run.trace.stopped == run.stopped
    assert len(run.output_ids) == n_said and run.steps[-1].n_tokens == 16
    if run.cache is not None:
        assert run.cache.n_tokens == 16


def test_length_comes_before_the_context_limit(short: LanguageModel) -> None:
    for max_new in (0, 1):
        assert str(finished(short, random_ids(16), max_new=max_new).stopped) == "length"


def test_a_prompt_that_does_not_fit_is_refused(short: LanguageModel) -> None:
    with pytest.raises(Refusal) as caught:
        Run(short, random_ids(17), RunConfig())
    assert caught.value.key == "engine.prompt_too_long"
    assert "17" in str(caught.value) and "16" in str(caught.value)
    with pytest.raises(Refusal) as caught:
        short.prompt_ids("x" * 17, raw=True)
    assert caught.value.key == "engine.prompt_too_long"
    assert len(short.prompt_ids("x" * 16, raw=True)) == 16


def test_a_run_of_nothing_is_refused(model: LanguageModel) -> None:
    with pytest.raises(Refusal) as caught:
        Run(model, [], RunConfig())
    assert caught.value.key == "engine.prompt_empty"


@pytest.mark.parametrize("use_cache", [True, False])
def test_stop_is_honoured_between_steps(model: LanguageModel, use_cache: bool) -> None:
    """C05: the loop ends within one token, what was said stays, and the run can go on later."""
    run = Run(model, random_ids(5), RunConfig(max_new=200, use_cache=use_cache))
    seen = [event for event in generate(model, run, should_stop=lambda: len(run.output_ids) >= 5)]
    assert len(seen) == len(run.output_ids) == 5 and run.stopped is None
    assert list(generate(model, run, should_stop=lambda: True)) == []
    next(generate(model, run))
    straight = Run(model, random_ids(5), RunConfig(max_new=200, use_cache=use_cache))
    for _ in range(6):
        step(model, [straight])
    assert run.output_ids == straight.output_ids


def test_a_loop_that_is_left_early_leaves_a_whole_run(model: LanguageModel) -> None:
    run = Run(model, random_ids(5), RunConfig(max_new=200))
    for event in generate(model, run):
        if event.n_tokens == 7:
            break
    assert run.cache is not None and run.cache.n_tokens == 7 and len(run.output_ids) == 3
    assert next(generate(model, run)).n_tokens == 8


@pytest.mark.parametrize("settings", [{}, {"use_cache": False}, {"prefill_chunk": 4}])
def test_a_pass_over_a_prefix_can_be_interrupted_in_any_layer(model: LanguageModel, settings: dict[str, Any]) -> None:
    """The step leaves no trace: no position in the cache, no token, no record."""
    n_chunks = 3 if "prefill_chunk" in settings else 1
    for layer in range(model.config.n_layers * n_chunks):
        run = Run(model, random_ids(10), RunConfig(max_new=9, **settings))
        looked = iter(range(layer + 1))

        def look(run: Run = run, looked: Iterator[int] = looked, layer: int = layer) -> None:
            if next(looked) == layer:
                run.interrupt()
            Run.check_interrupt(run)

        run.check_interrupt = look  # type: ignore[method-assign]
        with pytest.raises(Interrupted):
            step(model, [run])
        assert run.steps == run.output_ids == [] and run.text == ""
        assert run.cache is None or run.cache.n_tokens == 0
        with pytest.raises(Interrupted):  # nor does it begin again
            Run.check_interrupt(run)


# --- draws

SETTINGS = SamplingConfig(temperature=1.2, top_k=100, top_p=0.95, repetition_penalty=1.1, seed=42)


def drawn(model: LanguageModel, sampling: SamplingConfig, **settings: Any) -> list[int]:
    return finished(model, random_ids(6), max_new=24, sampling=sampling, **settings).output_ids


def test_the_same_seed_gives_the_same_text(model: LanguageModel) -> None:
    tokens = drawn(model, SETTINGS)
    assert tokens == drawn(model, SETTINGS) == drawn(model, SETTINGS, use_cache=False)
    assert tokens == drawn(model, SETTINGS, prefill_chunk=2)
    assert tokens == drawn(model, SETTINGS, record=RecordConfig(candidates=5, kv_norms=True, queries=True))
    assert tokens != drawn(model, replace(SETTINGS, seed=43)) and len(set(tokens)) > 8


def test_the_same_seed_gives_the_same_text_in_any_company(model: LanguageModel) -> None:
    alone = drawn(model, SETTINGS)
    settings = [replace(SETTINGS, seed=1), SETTINGS, SamplingConfig(), SETTINGS]
    prompts = [random_ids(11, seed=8), random_ids(6), random_ids(2, seed=9), random_ids(6)]
    runs = [
        Run(model, ids, RunConfig(max_new=24, sampling=sampling))
        for ids, sampling in zip(prompts, settings, strict=True)
    ]
    prefill(model, runs)
    for _ in range(23):
        decode_one_token(model, runs)
    assert runs[1].output_ids == runs[3].output_ids == alone


def test_a_draw_depends_on_the_length_of_the_context_not_on_how_it_came_about(model: LanguageModel) -> None:
    """What a run wrote so far, given as the prompt of another, is continued with the same token."""
    run = finished(model, random_ids(6), max_new=12, sampling=SETTINGS)
    for n_written in (1, 5, 11):
        prompt = [*run.prompt_ids, *run.output_ids[:n_written]]
        again = finished(model, prompt, max_new=1, sampling=SETTINGS)
        assert again.output_ids == [run.output_ids[n_written]]


def test_the_repetition_penalty_sees_the_prompt_too(model: LanguageModel) -> None:
    """B10, end to end: with a strong penalty nothing of the prompt or of the text so far is said greedily."""
    ids = [*range(2, 100)]
    plain = finished(model, ids, max_new=30)
    penalised = finished(model, ids, max_new=30, sampling=SamplingConfig(repetition_penalty=100.0))
    assert len(set(plain.output_ids)) < 30 or set(plain.output_ids) & set(ids)
    assert len(set(penalised.output_ids)) == 30 and not set(penalised.output_ids) & set(ids)


def test_ids_without_a_token_are_never_said(model: LanguageModel) -> None:
    """B29: the table has 288 rows and the tokenizer 261 tokens; the last rows are made the likeliest by far."""
    assert model.config.vocab_size == 288 and model.tokenizer.vocab_size == 261

    class Padded:
        def __getattr__(self, name: str) -> Any:
            return getattr(model.transformer, name)

        def logits(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = model.transformer.logits(hidden)
            logits[..., 261:] += 1000
            return logits

    padded = replace(model, transformer=Padded())  # type: ignore[arg-type]
    for sampling in (SamplingConfig(), SETTINGS, SamplingConfig(temperature=5.0, seed=3)):
        run = finished(padded, random_ids(6), max_new=24, sampling=sampling, record=RecordConfig(candidates=300))
        assert len(run.output_ids) == 24 and max(run.output_ids) < 261
        assert run.output_ids == finished(model, random_ids(6), max_new=24, sampling=sampling).output_ids
        for event in run.steps:
            assert event.sampled and {c.token_id for c in event.sampled.candidates} == set(range(261))
    # FLOP and bytes go by the model's width all the same.
    event = finished(model, random_ids(1), max_new=1).steps[0]
    in_layers = 2 * (32 * (32 + 2 * 16 + 32) + 3 * 32 * 64)
    assert event.flops_exact == 2 * in_layers + 4 * 2 * 1 * 32 + 2 * 288 * 32
    assert event.weight_bytes_read == 4 * (in_layers + 288 * 32)


def test_a_seed_at_each_end_of_its_range(model: LanguageModel) -> None:
    for seed in (0, 2**64 - 1):
        assert len(drawn(model, replace(SETTINGS, seed=seed))) == 24


# --- the text


def test_the_record_holds_the_text_piece_by_piece(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """B12: 你好 in bytes, said in six tokens, and one that never becomes complete."""
    table = {model.tokenizer.token_bytes(i): i for i in range(2, 258)}
    said = [table[bytes([byte])] for byte in "你好".encode() + b"\xe4\xbd"]
    script(monkeypatch, said)
    run = Run(model, random_ids(3), RunConfig(max_new=len(said)))
    texts = []
    for event in generate(model, run):
        assert event.sampled
        texts.append(event.sampled.text)
        assert "\ufffd" not in run.text
    assert texts == ["", "", "你", "", "", "好", "", ""]
    assert run.text == "你好" and run.trace.text == "你好\ufffd"


def test_the_clock_readings_add_up(model: LanguageModel) -> None:
    run = Run(model, random_ids(5), RunConfig(max_new=4), tokenising_seconds=2.0)
    assert run.trace.time_to_first_token_s is None and run.trace.time_per_output_token_s is None
    prefill(model, [run])
    first = run.trace
    assert first.time_to_first_token_s == pytest.approx(2.0 + first.steps[0].total_seconds)
    assert first.time_per_output_token_s is None
    list(generate(model, run))
    trace = run.trace
    assert trace.time_to_first_token_s == first.time_to_first_token_s
    after = sum(event.seconds + event.sampled.seconds for event in trace.steps[1:] if event.sampled)
    assert trace.time_per_output_token_s == pytest.approx(after / 3)
    assert all(event.seconds > 0 for event in trace.steps)
    nothing = finished(model, random_ids(5), max_new=0).trace
    assert nothing.time_to_first_token_s is None and nothing.steps[0].phase is Phase.PREFILL
