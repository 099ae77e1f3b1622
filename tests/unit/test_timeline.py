"""Memory as measured against what shapes say: peaks, the cache's stairs, both tables, and everything freed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from core.engine.engine import Engine
from core.estimate.kv import kv_bytes
from core.lab.moments import Part, Switches, Timeline
from core.lab.score_table import ScoreTable
from core.lab.tensor_bytes import TensorBytes
from core.lab.timeline import N_DECODE, MemoryTimeline, most_positions
from core.model.kv_cache import BLOCK_TOKENS
from core.model.load import LanguageModel, load_model
from core.refusal import Refusal
from tests.engines import MANY_BYTES, PATIENCE
from tests.peer import random_ids

BYTES = 4  # a number of an activation on a CPU
N = 70  # more than a block of the cache


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(lambda: MANY_BYTES)
    yield engine
    engine.stop()


def measured(model: LanguageModel, tries: int = 1, n: int = N, **switches: bool) -> Timeline:
    timeline = MemoryTimeline(model, random_ids(n), Switches(**switches), n)
    for point in timeline.points():
        for _ in range(tries):
            point()
    return timeline.result


def layer_peak(model: LanguageModel, rows: int) -> int:
    """Of the feed-forward part: the residual stream, what attention left, four times its width, and the rotations."""
    config = model.config
    numbers = config.d_model + 2 * config.attention_width + 2 * config.kv_width + 4 * config.d_ff + 2 * config.head_dim
    return rows * BYTES * numbers


@pytest.mark.parametrize("tries", [1, 2])
def test_activations_rise_and_fall_in_every_layer(tiny_f32: LanguageModel, tries: int) -> None:
    made = measured(tiny_f32, tries)
    assert made.layer_peaks(0) == [layer_peak(tiny_f32, N)] * tiny_f32.config.n_layers
    for step in range(N_DECODE + 1):
        moments = made.of(step)
        layers = [moment.layer for moment in moments if moment.part is Part.ATTENTION]
        assert layers == list(range(tiny_f32.config.n_layers))
        freed = moments[-1] if step < N_DECODE else moments[-2]
        assert freed.part is Part.FREED and freed.activation_bytes == 0
        assert all(moment.peak_bytes >= moment.activation_bytes >= 0 for moment in moments)
    assert made.peak(1) < made.peak(0) / 10


def test_the_cache_climbs_its_stairs_and_is_freed(tiny_f32: LanguageModel) -> None:
    made, shape, dtypes = measured(tiny_f32), tiny_f32.shape, tiny_f32.kv_dtypes
    for step in range(N_DECODE + 1):
        n_tokens = N + step
        n_blocks = -(-n_tokens // BLOCK_TOKENS)
        (head,) = made.of(step, Part.HEAD)
        assert head.kv_used_bytes == kv_bytes(shape, n_tokens=n_tokens, dtypes=dtypes)
        assert head.kv_reserved_bytes == kv_bytes(shape, n_tokens=n_blocks * BLOCK_TOKENS, dtypes=dtypes)
        written = [moment.kv_used_bytes for moment in made.of(step, Part.ATTENTION)]
        past = kv_bytes(shape, n_tokens=n_tokens - 1 if step else 0, dtypes=dtypes)
        stair = (head.kv_used_bytes - past) // tiny_f32.config.n_layers
        assert written == [past + (layer + 1) * stair for layer in range(tiny_f32.config.n_layers)]
    end = made.moments[-1]
    assert made.has_ended and end.part is Part.END
    assert end.activation_bytes == end.kv_used_bytes == end.kv_reserved_bytes == 0


def test_the_score_table_is_as_large_as_its_formula(tiny_f32: LanguageModel) -> None:
    fused, written = measured(tiny_f32), measured(tiny_f32, score_table=True)
    h, d_h = tiny_f32.config.n_heads, tiny_f32.config.head_dim
    assert written.score_table_bytes == h * N**2 * BYTES
    assert written.largest(0, Part.ATTENTION) == written.score_table_bytes
    assert fused.largest(0, Part.ATTENTION) == h * N * d_h * BYTES < fused.score_table_bytes
    assert written.largest(1, Part.ATTENTION) <= max(h * (N + 1), h * d_h, 2 * h * d_h) * BYTES
    twice = measured(tiny_f32, n=2 * N, score_table=True)
    assert twice.largest(0, Part.ATTENTION) == 4 * written.score_table_bytes
    assert written.layer_peaks(0) == fused.layer_peaks(0)  # at this n the feed-forward part is still larger


def test_a_long_prompt_lets_the_score_table_lead(tiny_f32: LanguageModel) -> None:
    n = min(most_positions(tiny_f32.device), tiny_f32.config.context_limit - N_DECODE)
    fused, written = measured(tiny_f32, n=n), measured(tiny_f32, n=n, score_table=True)
    grown = written.peak(0, Part.ATTENTION) - fused.peak(0, Part.ATTENTION)
    assert grown > 0.9 * written.score_table_bytes


@pytest.mark.parametrize("all_logits", [False, True])
def test_the_logits_are_as_large_as_their_formula(tiny_f32: LanguageModel, all_logits: bool) -> None:
    made, rows = measured(tiny_f32, all_logits=all_logits), N if all_logits else 1
    assert made.logits_bytes == rows * tiny_f32.config.vocab_size * BYTES
    assert made.largest(0, Part.HEAD) == made.logits_bytes
    assert made.peak(0, Part.HEAD) >= made.logits_bytes


def test_the_switches_change_memory_and_no_token(tiny_f32: LanguageModel) -> None:
    ids = random_ids(N)
    ended = []
    for switches in (Switches(), Switches(score_table=True), Switches(all_logits=True)):
        timeline = MemoryTimeline(tiny_f32, ids, switches)
        for point in timeline.points():
            point()
        ended.append(timeline._ids)
        assert timeline._tracked.now == 0
    assert ended[0] == ended[1] == ended[2] and len(ended[0]) == N + N_DECODE + 1


def test_the_written_table_gives_the_same_attention(tiny_f32: LanguageModel) -> None:
    transformer, ids = tiny_f32.transformer, torch.tensor([random_ids(9)])
    with torch.inference_mode():
        fused, cache = transformer.new_cache(), transformer.new_cache()
        for part in (ids[:, :6], ids[:, 6:]):
            expected = transformer.hidden(part, [fused])
            got = transformer.hidden(part, [cache], attend=ScoreTable(cache).attend)
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_a_half_precision_cache_is_measured_as_it_lies(engine: Engine) -> None:
    """The products of fp16 weights and the room that a cache is converted in."""
    model = load_model("tiny", device="cpu", dtype="f16")
    timeline = MemoryTimeline(model, random_ids(20), n_tokens=40)
    engine.measure(timeline.measurement()).future.result(PATIENCE)
    made = timeline.result
    assert made.has_ended and made.n_tokens == 40 and made.n_prompt == 20 and made.allocator_peak_bytes is None
    (head,) = made.of(0, Part.HEAD)
    assert head.kv_used_bytes == kv_bytes(model.shape, n_tokens=40, dtypes=model.kv_dtypes)
    config = model.config
    room = 2 * config.kv_width * 40 * BYTES
    assert set(made.layer_peaks(0)) == {layer_peak(model, 40) + room}
    assert max(moment.peak_bytes + moment.kv_reserved_bytes for moment in made.moments) <= timeline.needed_bytes
    assert made.moments[-1].activation_bytes == 0


def test_what_does_not_fit_one_pass_is_refused(tiny_f32: LanguageModel) -> None:
    most = min(most_positions(tiny_f32.device), tiny_f32.config.context_limit - N_DECODE)
    assert MemoryTimeline(tiny_f32, random_ids(most)).result.n_tokens == most
    for prompt, n_tokens in (([], None), (random_ids(3), most + 1), (random_ids(3), 0)):
        with pytest.raises(Refusal):
            MemoryTimeline(tiny_f32, prompt, n_tokens=n_tokens)


def test_tensors_are_counted_once_and_counted_off() -> None:
    tracked, outside = TensorBytes(), torch.zeros(1000)
    with tracked:
        made = torch.zeros(10, 10)
        view = made.view(100)[5:]
        assert tracked.now == tracked.peak == tracked.largest == 400
        seen = outside[3:]
        added = outside.add_(1)
        assert tracked.now == 400  # nothing new: a view of, and a change to, what was there before
        both = made + 1
        assert tracked.now == 800
    del made
    assert tracked.now == 800  # the view holds it
    del view, both
    assert tracked.now == 0 and tracked.peak == 800
    tracked.begin_part()
    assert tracked.peak == tracked.largest == 0
    del seen, added
