"""The cache holds what it says it holds: positions, bytes, contents; and forgets exactly what it is told to forget."""

from __future__ import annotations

import pytest
import torch

from core.engine.run import Run, RunConfig
from core.engine.steps import decode_one_token, generate, prefill
from core.engine.trace import Phase
from core.model.config import ModelConfig
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.load import LanguageModel
from tests.checkpoints import random_model
from tests.peer import loaded, random_ids, random_pair
from tests.runs import MADE_UP

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    """More layers than the usual two, and a head width that is not d / h."""
    folder = tmp_path_factory.mktemp("kv") / "llama"
    return random_pair("llama", folder, num_hidden_layers=3, head_dim=16)[1]


def new_cache(*, dtype: torch.dtype = torch.float32, block_tokens: int = 4) -> KVCache:
    return KVCache(MADE_UP, dtype=dtype, device=CPU, block_tokens=block_tokens)


def fill(cache: KVCache, n_new: int, *, seed: int) -> torch.Tensor:
    """Writes random keys and values as a pass does; returns them, [L, 2, n_new, n_kv, d_h]."""
    content = torch.randn(
        MADE_UP.n_layers, 2, n_new, MADE_UP.n_kv_heads, MADE_UP.head_dim, generator=torch.Generator().manual_seed(seed)
    )
    cache.reserve(n_new)
    for layer in range(MADE_UP.n_layers):
        joined = torch.cat(content[layer].unbind(), 1)  # (n_new, 2·n_kv, d_h)
        seen = cache.write(layer, joined)
        assert seen.shape == (2 * MADE_UP.n_kv_heads, cache.n_tokens + n_new, MADE_UP.head_dim)
        assert torch.equal(seen[:, -n_new:], joined.transpose(0, 1).to(cache.dtype))
    cache.commit(n_new)
    return content


def tensor_bytes(cache: KVCache) -> int:
    return sum(cache.keys(layer).nbytes + cache.values(layer).nbytes for layer in range(cache.config.n_layers))


def formula(config: ModelConfig, n_tokens: int, bytes_per_element: int) -> int:
    """2·B·L·n_kv·n·d_h·b for one sequence, written out here once more."""
    return 2 * 1 * config.n_layers * config.n_kv_heads * n_tokens * config.head_dim * bytes_per_element


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 4), (torch.float16, 2), (torch.bfloat16, 2)])
def test_bytes_are_the_tensors_own(dtype: torch.dtype, width: int) -> None:
    cache = new_cache(dtype=dtype)
    assert (cache.n_tokens, cache.used_bytes, cache.reserved_bytes) == (0, 0, 0)
    for n_new in (1, 3, 1, 5, 1):
        fill(cache, n_new, seed=n_new)
        assert cache.used_bytes == tensor_bytes(cache) == formula(MADE_UP, cache.n_tokens, width)
        assert cache.reserved_tokens == -(-cache.n_tokens // 4) * 4
        assert cache.reserved_bytes == formula(MADE_UP, cache.reserved_tokens, width)
    assert cache.dtype == dtype


def test_contents_stay_when_it_grows_and_nothing_moves_in_between() -> None:
    cache, written, moved = new_cache(block_tokens=8), [], 0
    place = 0
    for step in range(40):
        written.append(fill(cache, 1, seed=step))
        if (now := cache.keys(0).data_ptr()) != place:
            place, moved = now, moved + 1
    assert moved <= 40 // 8  # a new place only where a block is added: never one concatenation a step
    content = torch.cat(written, 2)  # (L, 2, 40, n_kv, d_h)
    for layer in range(MADE_UP.n_layers):
        assert torch.equal(cache.keys(layer), content[layer, 0].transpose(0, 1))
        assert torch.equal(cache.values(layer), content[layer, 1].transpose(0, 1))
    columns = cache.columns(5, 9)  # (L, 2, n_kv, 4, d_h)
    assert torch.equal(columns, content[:, :, 5:9].transpose(2, 3))
    columns.zero_()
    assert torch.equal(cache.keys(0), content[0, 0].transpose(0, 1))  # a copy, not a view


def test_what_was_not_committed_is_not_there() -> None:
    cache = new_cache()
    before = fill(cache, 3, seed=1)
    cache.reserve(6)
    for layer in range(2):  # the third layer fails
        cache.write(layer, torch.ones(6, 4, 6))
    assert cache.n_tokens == 3 and tensor_bytes(cache) == formula(MADE_UP, 3, 4)
    after = fill(cache, 2, seed=2)
    for layer in range(MADE_UP.n_layers):
        assert torch.equal(cache.keys(layer), torch.cat([before, after], 2)[layer, 0].transpose(0, 1))


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 16, 19, 20])
def test_truncating_keeps_exactly_the_first(kept: int) -> None:
    """Across the blocks' ends, to nothing, and to all of it."""
    cache = new_cache(block_tokens=8)
    content = fill(cache, 20, seed=3)
    cache.truncate(kept)
    assert cache.n_tokens == kept and cache.used_bytes == formula(MADE_UP, kept, 4)
    assert cache.reserved_tokens == -(-kept // 8) * 8  # whole unused blocks are given back
    more = fill(cache, 13, seed=4)
    expected = torch.cat([content[:, :, :kept], more], 2)
    for layer in range(MADE_UP.n_layers):
        assert torch.equal(cache.keys(layer), expected[layer, 0].transpose(0, 1))
        assert torch.equal(cache.values(layer), expected[layer, 1].transpose(0, 1))


@pytest.mark.parametrize("n_tokens", [-1, 4, 1000])
def test_truncating_to_what_never_was_is_an_error(n_tokens: int) -> None:
    cache = new_cache()
    fill(cache, 3, seed=1)
    with pytest.raises(ValueError):
        cache.truncate(n_tokens)
    assert cache.n_tokens == 3


def test_two_caches_share_nothing() -> None:
    one, other = new_cache(), new_cache()
    fill(one, 3, seed=1)
    assert other.n_tokens == 0 and other.reserved_bytes == 0
    content = fill(other, 3, seed=2)
    fill(one, 1, seed=3)
    assert torch.equal(other.values(2), content[2, 1].transpose(0, 1))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_the_record_counts_the_tensors_at_every_step(
    dtype: str, tmp_path_factory: pytest.TempPathFactory, model: LanguageModel
) -> None:
    if dtype != "f32":
        folder = tmp_path_factory.mktemp("kv") / dtype
        model = loaded(random_model("llama", num_hidden_layers=3, head_dim=16), folder, dtype=dtype)
    width = 4 if dtype == "f32" else 2
    n_prompt, n_new = 61, 12  # over the end of a block
    run = Run(model, random_ids(n_prompt), RunConfig(max_new=n_new))
    reserved = []
    for produced, event in enumerate(generate(model, run), start=1):
        assert run.cache is not None
        n = n_prompt + produced - 1
        assert event.n_tokens == run.cache.n_tokens == n
        assert event.kv_bytes == tensor_bytes(run.cache) == formula(model.config, n, width) == event.kv_bytes_formula
        assert event.kv_reserved_bytes == run.cache.reserved_bytes >= event.kv_bytes
        reserved.append(event.kv_reserved_bytes // formula(model.config, 1, width))
    assert len(run.steps) == n_new
    assert set(reserved) == {BLOCK_TOKENS, 2 * BLOCK_TOKENS}


@pytest.mark.parametrize(("n_prompt", "n_new", "held"), [(5, 3, 7), (9, 4, 12), (1, 1, 1), (1, 2, 2), (64, 2, 65)])
def test_a_prompt_and_its_tokens_leave_one_position_less(
    model: LanguageModel, n_prompt: int, n_new: int, held: int
) -> None:
    """B02: the last token was never fed back. 9 are written by prefill; the steps see 10, 11, 12 keys."""
    run = Run(model, random_ids(n_prompt), RunConfig(max_new=n_new))
    events = list(generate(model, run))
    assert len(run.output_ids) == n_new and run.cache is not None
    assert run.cache.n_tokens == held == n_prompt + n_new - 1
    assert [event.n_tokens for event in events] == list(range(n_prompt, n_prompt + n_new))
    assert [event.new_positions for event in events] == [n_prompt] + [1] * (n_new - 1)
    assert [event.reused_positions for event in events] == [0, *range(n_prompt, n_prompt + n_new - 1)]


def test_no_new_tokens_is_a_prefill_and_nothing_else(model: LanguageModel) -> None:
    """B31: and one new token is a prefill too, with its token."""
    for n_new in (0, 1):
        run = Run(model, random_ids(6), RunConfig(max_new=n_new))
        (event,) = generate(model, run)
        assert event.phase is Phase.PREFILL and run.cache is not None and run.cache.n_tokens == 6
        assert len(run.output_ids) == len(run.trace.output_ids) == n_new
        assert (event.sampled is None) == (n_new == 0)
        assert str(run.stopped) == "length" and run.ids == [*run.prompt_ids, *run.output_ids]


def test_every_slot_is_written_by_the_position_it_belongs_to(model: LanguageModel) -> None:
    """B02 again: after a run the cache equals that of one pass over the same ids, position by position."""
    run = Run(model, random_ids(9), RunConfig(max_new=4))
    prefill(model, [run])
    for _ in range(3):
        decode_one_token(model, [run])
    whole = model.transformer.new_cache()
    with torch.inference_mode():
        model.transformer.hidden(torch.tensor([run.ids[:-1]]), [whole])
    assert run.cache is not None and whole.n_tokens == run.cache.n_tokens == 12
    for layer in range(model.config.n_layers):
        torch.testing.assert_close(run.cache.keys(layer), whole.keys(layer), rtol=0, atol=1e-5)
        torch.testing.assert_close(run.cache.values(layer), whole.values(layer), rtol=0, atol=1e-5)
