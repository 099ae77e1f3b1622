"""With and without the cache the numbers are the same: in fp32, where an off-by-one cannot hide in rounding (B06)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.engine.trace import Phase, StepEvent
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel, load_model
from core.model.sampling import SamplingConfig
from tests.checkpoints import random_model, save_huggingface
from tests.peer import PASSAGE, largest_difference, our_logits, random_pair

N_STEPS = 32
# The bound that was asked for, and the room that fp32 leaves below it: SmolLM2's logits reach 40, and over 30 texts the
# rounding of one row against that of n rows came to 4e-5 … 1.4e-4 (in transformers, with and without its own cache, to
# 6e-5 … 1.5e-4). So the text is fixed, to one that stays at 7e-5 for all four lengths.
TOLERANCE = 1e-4
FIRST_TOKEN = 140
# A small random model leaves far less open, and a wrong position moves its logits by as little as 1e-3.
RANDOM_TOLERANCE = 1e-5
# A draw, not the best token, so that the text does not run in a circle.
SAMPLED = SamplingConfig(temperature=1.0, seed=7)


@pytest.fixture(scope="module")
def random_qwen3(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return random_pair("qwen3", tmp_path_factory.mktemp("cached") / "qwen3", num_key_value_heads=1)[1]


@pytest.fixture(params=["smollm2", "tiny", "qwen3"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    names = {"smollm2": "smollm2_f32", "tiny": "tiny_f32", "qwen3": "random_qwen3"}
    chosen: LanguageModel = request.getfixturevalue(names[request.param])
    return chosen


def text_of(model: LanguageModel, n_tokens: int) -> list[int]:
    ids = model.tokenizer.encode(PASSAGE + PASSAGE)[FIRST_TOKEN : FIRST_TOKEN + n_tokens]
    assert len(ids) == n_tokens
    return ids


@torch.inference_mode()
def one_more(model: LanguageModel, cache: KVCache, token_id: int) -> torch.Tensor:
    """Logits [vocab] behind one more token, through the cache."""
    return model.transformer.logits(model.transformer.hidden(torch.tensor([[token_id]]), [cache]))[0, 0]


@pytest.mark.parametrize("n_prompt", [1, 2, 17, 200])
def test_logits_of_32_steps(model: LanguageModel, n_prompt: int) -> None:
    """Every step against one pass over all tokens, which gives a causal model's logits of every step at once; and some
    against the whole prefix sent through again."""
    tolerance = RANDOM_TOLERANCE if model.config.architecture == "qwen3" else TOLERANCE
    ids = text_of(model, n_prompt + N_STEPS)
    cache = model.transformer.new_cache()
    with torch.inference_mode():
        hidden = model.transformer.hidden(torch.tensor([ids[:n_prompt]]), [cache])
        cached = [model.transformer.logits(hidden[0, -1])]
    cached += [one_more(model, cache, token_id) for token_id in ids[n_prompt:]]
    assert cache.n_tokens == n_prompt + N_STEPS
    assert largest_difference(torch.stack(cached), our_logits(model, ids)[n_prompt - 1 :]) <= tolerance
    for step in (1, 2, 3, 16, N_STEPS):
        again = our_logits(model, ids[: n_prompt + step])[-1]
        assert largest_difference(cached[step], again) <= tolerance


@pytest.mark.parametrize("n_prompt", [1, 17])
def test_the_engine_says_the_same_with_and_without(model: LanguageModel, n_prompt: int) -> None:
    """Same tokens, same candidates, same probabilities; only the phase and what is reused differ."""
    prompt = text_of(model, n_prompt)

    def events(use_cache: bool) -> list[StepEvent]:
        config = RunConfig(max_new=8, sampling=SAMPLED, use_cache=use_cache, record=RecordConfig(candidates=40))
        return list(generate(model, Run(model, prompt, config)))

    cached, recomputed = events(True), events(False)
    assert [event.phase for event in cached] == [Phase.PREFILL] + [Phase.DECODE] * (len(cached) - 1)
    assert {event.phase for event in recomputed} == {Phase.RECOMPUTE} and len(cached) == len(recomputed) > 1
    for with_cache, without in zip(cached, recomputed, strict=True):
        assert (without.n_tokens, without.new_positions, without.reused_positions) == (with_cache.n_tokens,) * 2 + (0,)
        assert without.kv_bytes == without.kv_bytes_formula == without.kv_reserved_bytes == 0
        assert with_cache.sampled and without.sampled
        assert with_cache.sampled.token_id == without.sampled.token_id
        there = {c.token_id: c.probability for c in with_cache.sampled.candidates}
        here = {c.token_id: c.probability for c in without.sampled.candidates}
        assert len(there) == 40 and len(there.keys() & here.keys()) >= 39  # the last place may be a tie
        assert all(abs(there[i] - here[i]) <= 1e-5 for i in there.keys() & here.keys())


# Three times what was measured on these models, whose logits are of size 4: 0.0020 and 0.049 between the splits (the
# cache rounds keys and values, a pass without it does not), 0.0056 and 0.064 between half and full weights.
@pytest.mark.parametrize(("dtype", "between_splits", "to_fp32"), [("f16", 0.006, 0.017), ("bf16", 0.15, 0.19)])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_half_precision_differs_by_rounding_alone(
    architecture: str, dtype: str, between_splits: float, to_fp32: float, tmp_path: Path
) -> None:
    """B06: split 17, 10 + 7 and 17 times 1, and against no cache at all."""
    folder = str(save_huggingface(random_model(architecture), tmp_path / "m"))
    exact, half = (load_model(folder, device="cpu", dtype=name) for name in ("f32", dtype))
    ids = text_of(half, 17)

    @torch.inference_mode()
    def split(*sizes: int) -> torch.Tensor:
        cache = half.transformer.new_cache()
        hidden = [half.transformer.hidden(part[None], [cache]) for part in torch.tensor(ids).split(list(sizes))]
        assert cache.dtype == half.transformer.dtype
        return half.transformer.logits(torch.cat(hidden, 1))[0]

    uncached = our_logits(half, ids)
    for logits in (split(17), split(10, 7), split(*[1] * 17)):
        assert largest_difference(logits, uncached) <= between_splits
    assert 0 < largest_difference(uncached, our_logits(exact, ids)) <= to_fp32
