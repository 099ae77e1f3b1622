"""Streams: events out of lines, times out of arrivals, and the cache out of a page of figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.lab.remote.events import Chunk, Usage, chunk_of, data_of, usage_of
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.metrics import kv_use
from core.lab.remote.plan import PointKey
from core.lab.remote.point import Note, Window, point_of
from core.lab.remote.prompts import WORDS, Ruler, prompt_of
from core.lab.remote.stream import Stream


def test_events_are_found_in_lines() -> None:
    lines = [b": ping", b"event: x", b"data: a", b"data:b", b"", b"", b"id: 7", b"data:  c", b"", b"data: d"]
    assert list(data_of(lines)) == ["a\nb", " c", "d"]
    with pytest.raises(Fault) as caught:
        list(data_of([b"data: \xff", b""]))
    assert caught.value.kind is Kind.NOT_JSON


@pytest.mark.parametrize(
    ("event", "chunk"),
    [
        ({"choices": [{"text": "a", "finish_reason": None}]}, Chunk(True, None, None)),
        ({"choices": [{"text": "", "finish_reason": "length"}]}, Chunk(False, "length", None)),
        ({"choices": [{"delta": {"role": "assistant", "content": None}}]}, Chunk(False, None, None)),
        ({"choices": [{"delta": {"content": "a"}}], "usage": None}, Chunk(True, None, None)),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, Chunk(True, None, None)),
        (
            {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
            Chunk(False, None, Usage(3, 2)),
        ),
        (
            {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}},
            Chunk(False, None, Usage(3, 2, 1)),
        ),
    ],
)
def test_chunks(event: dict[str, Any], chunk: Chunk) -> None:
    assert chunk_of(json.dumps(event)) == chunk


@pytest.mark.parametrize(
    "data",
    [
        *("{", "[]", "1", "null", '{"choices": 1}', '{"choices": [1]}', "[" * 100_000, '{"usage": 5}'),
        *('{"usage": {}}', '{"usage": {"prompt_tokens": -1}}', '{"usage": {"prompt_tokens": true}}'),
        '{"usage": {"prompt_tokens": 1e9, "completion_tokens": 1}}',
    ],
)
def test_what_is_no_chunk(data: str) -> None:
    with pytest.raises(Fault) as caught:
        chunk_of(data)
    assert caught.value.kind is Kind.NOT_JSON


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_no_usage_is_worse_than_a_fault(value: object) -> None:
    for found in ({"usage": value}, {"usage": {"prompt_tokens": value, "completion_tokens": value}}):
        try:
            usage_of(found)
        except Fault as fault:
            assert fault.kind is Kind.NOT_JSON


def stream(arrivals: list[float], *, tokens: int | None = None, ended_at: float | None = None) -> Stream:
    usage = None if tokens is None else Usage(10, tokens)
    return Stream(0.0, tuple(arrivals), arrivals[-1] if ended_at is None else ended_at, usage)


@given(step=st.floats(1e-4, 1.0), pieces=st.integers(2, 50), bundle=st.integers(1, 8), first=st.floats(0.0, 10.0))
def test_a_steady_stream_has_its_steps_time(step: float, pieces: int, bundle: int, first: float) -> None:
    """Whatever is bundled: a piece of k tokens comes when its last one is made, k steps behind the one before."""
    at = [first + i * bundle * step for i in range(pieces)]
    one = stream(at, tokens=pieces * bundle)
    assert one.tpot_s == pytest.approx(step, rel=1e-6) and one.ttft_s == first
    assert one.tokens_a_piece == bundle


def test_tpot_is_by_its_definition() -> None:
    one = stream([1.0, 1.5, 1.6, 2.5], tokens=4)
    assert one.tpot_s == (2.5 - 1.0) / (4 - 1)
    assert stream([1.0, 2.0], ended_at=2.5).tpot_s == 1.5  # the last token was over when the server said so
    assert stream([1.0], tokens=5).tpot_s is None


def test_a_batchs_step_is_taken_while_all_write() -> None:
    """The first stream writes alone at first, twice as fast; what counts begins with the other's first token."""
    early = stream([1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 1.9], tokens=7)
    late = stream([1.3, 1.5, 1.7, 1.9, 2.0, 2.1, 2.2], tokens=7)
    window = Window.of([early, late])
    assert (window.begin, window.end) == (1.3, 1.9) and window.share([early, late]) == pytest.approx(0.6 / 0.9)
    point = point_of(
        PointKey(13, 2, 0),
        [early, late],
        wanted_prompt=10,
        counted_prompt=10,
        new_tokens=7,
        use=None,
        use_before=None,
        retries=0,
    )
    assert point.decode_step_s == pytest.approx(0.2) and point.tpot_s == pytest.approx(0.15)
    assert point.ttft_s == pytest.approx(1.15) and point.ttft_last_s == 1.3 and point.notes == ()


def test_streams_that_do_not_overlap_are_no_batch() -> None:
    apart = [stream([1.0, 1.1, 1.2], tokens=3), stream([1.2, 1.3, 1.4], tokens=3)]
    point = point_of(
        PointKey(11, 2, 0),
        apart,
        wanted_prompt=10,
        counted_prompt=10,
        new_tokens=3,
        use=None,
        use_before=None,
        retries=0,
    )
    assert point.decode_step_s is None and point.notes == (Note.QUEUED,) and point.together == 0


@given(st.integers(1, 400), st.integers(0, 2**32), st.integers(0, 2**32))
def test_prompts_of_one_length_have_the_same_words(n_words: int, one: int, other: int) -> None:
    first, second = prompt_of(n_words, one).split(), prompt_of(n_words, other).split()
    assert sorted(first) == sorted(second) and len(first) == n_words and set(first) <= set(WORDS)


@given(
    targets=st.lists(st.integers(250, 5000), min_size=1, max_size=4),
    a_word=st.floats(1.0, 7.0),
    overhead=st.integers(0, 200),
)
def test_the_ruler_finds_the_nearest_length(targets: list[int], a_word: float, overhead: int) -> None:
    """On any tokenizer that counts about so many tokens a word, behind so many of the template's."""

    def count(n_words: int) -> int:
        return overhead + int(a_word * n_words)

    ruler = Ruler()
    for target in targets:
        sized = ruler.sized(target, count)
        assert sized.n_tokens is not None and abs(sized.n_tokens - target) < a_word
        assert sized.n_tokens == overhead + int(a_word * sized.n_words)


def test_the_ruler_asks_little() -> None:
    """A token a word behind a template: two probes for the first length, one for each further one."""
    asked: list[int] = []

    def count(n_words: int) -> int:
        asked.append(n_words)
        return n_words + 31

    ruler = Ruler()
    assert [ruler.sized(target, count).n_words for target in (112, 240, 4080)] == [81, 209, 4049]
    assert asked == [112, 81, 209, 4049]
    assert Ruler().sized(50, lambda _: None).n_tokens is None


VLLM = """# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.1
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="2000"} 1.0
"""


@pytest.mark.parametrize(
    ("text", "share", "tokens", "running"),
    [
        (VLLM, 0.3, 0.5 * 16000 + 0.1 * 32000, 3),
        (
            'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1\n',
            *(0.25, 400, None),
        ),
        ('vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n', 0.25, None, None),
        (
            'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1\n',
            *(0.5, None, None),
        ),
        ("sglang:token_usage 0.28\nsglang:num_used_tokens 123859\nsglang:num_running_reqs 2\n", 0.28, 123859, 2),
        ("sglang:token_usage 0.5\nsglang:max_total_num_tokens 1000\n", 0.5, 500, None),
        ("llamacpp:kv_cache_usage_ratio 0.1\nllamacpp:kv_cache_tokens 410\n", 0.1, 410, None),
        ("llamacpp:requests_processing 1\n", None, None, 1),
    ],
)
def test_the_cache_in_the_figures_of_servers(
    text: str, share: float | None, tokens: float | None, running: int
) -> None:
    use = kv_use(text, 1.0)
    assert use is not None and use.at == 1.0
    assert (use.share, use.tokens, use.running) == (pytest.approx(share), pytest.approx(tokens), running)


@pytest.mark.parametrize(
    "text", ["", "<html>", "up 1\n", "vllm:kv_cache_usage_perc NaN\n", 'vllm:kv_cache_usage_perc{engine="0 1\n']
)
def test_figures_that_say_nothing(text: str) -> None:
    assert kv_use(text, 1.0) is None
