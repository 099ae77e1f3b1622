"""A run as a file: it comes back as it was, and whatever is wrong with a file is told in a sentence."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.saved import container, versions
from core.engine.saved_run import KeptRow, SavedRun, open_saved, save, saved_run
from core.engine.steps import generate
from core.model.load import LanguageModel
from core.model.sampling import Candidate, SamplingConfig
from core.model.text.chat_template import Message
from core.refusal import Refusal
from core.words import LANGUAGES
from pages.shared import wire
from pages.shared.started import Started

PROMPT = "床前明月光，"
HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x00{t}😀"
SETTINGS: dict[str, dict[str, Any]] = {
    "cached": {},
    "uncached": {"use_cache": False},
    "sampled": {"sampling": SamplingConfig(temperature=1.3, top_k=50, top_p=0.9, repetition_penalty=1.2, seed=2**63)},
    "in chunks": {"prefill_chunk": 4},
    "one step": {"max_new": 1},
    "no token": {"max_new": 0},
}


def a_run(model: LanguageModel, prompt: str = PROMPT, **settings: Any) -> tuple[Run, SavedRun]:
    record = RecordConfig(candidates=4, kv_norms=True, queries=True)
    run = Run(model, model.prompt_ids(prompt, raw=True), RunConfig(**{"max_new": 6, "record": record, **settings}))
    list(generate(model, run)) if run.stopped is None else None
    started = Started(
        model=model,
        config=run.config,
        in_chat=True,
        prompt=prompt,
        history=(Message("system", HOSTILE), Message("user", "…")),
        computed_again=2,
    )
    numbers = range(len(run.steps)) if run.cache is not None else ()
    rows = tuple(KeptRow(step=each, layer=1, head=3, weights=run.attention(each, 1, 3).weights) for each in numbers)
    return run, saved_run(model, started, run.trace, rows=rows, waiting_seconds=0.0125, now=1_790_000_000.7)


@pytest.fixture(scope="module", params=SETTINGS)
def both(request: pytest.FixtureRequest, tiny_f32: LanguageModel) -> tuple[Run, SavedRun]:
    return a_run(tiny_f32, **SETTINGS[request.param])


@pytest.fixture(scope="module")
def file(tiny_f32: LanguageModel) -> bytes:
    return save(a_run(tiny_f32)[1])


def test_a_run_comes_back_as_it_was(both: tuple[Run, SavedRun]) -> None:
    run, saved = both
    again = open_saved(save(saved))
    assert (again.prompt, again.history, again.in_chat) == (PROMPT, saved.history, True)
    assert (again.computed_again, again.waiting_seconds, again.saved_at) == (2, 0.0125, 1_790_000_000)
    kept = ("max_new", "use_cache", "prefill_chunk", "sampling")
    assert [getattr(again.config, name) for name in kept] == [getattr(run.config, name) for name in kept]
    one, other = run.trace, again.trace
    same = ("prompt_ids", "output_ids", "text", "stopped", "tokenising_seconds", "time_per_output_token_s")
    assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
    for number, (step, found) in enumerate(zip(one.steps, other.steps, strict=True)):
        assert replace(step, recorded=found.recorded) == found
        added = one.n_added(number)
        assert np.array_equal(step.recorded.columns(added), found.recorded.columns(added))
        assert found.recorded.key_norms is not None and not found.recorded.key_norms.flags.writeable
    for row, found_row in zip(saved.rows, again.rows, strict=True):
        assert (row.step, row.layer, row.head) == (found_row.step, found_row.layer, found_row.head)
        assert np.abs(row.weights - found_row.weights).max() <= 0.51 / 65_535
    assert save(again) == save(saved)


def test_what_it_says_of_the_model_is_what_the_figures_need(both: tuple[Run, SavedRun]) -> None:
    run, saved = both
    model, tokens = open_saved(save(saved)).model, run.model.tokenizer
    assert (model.name, model.shape, model.kv_dtypes) == (run.model.name, run.model.shape, run.model.kv_dtypes)
    assert (model.dtype_name, model.element_bytes, model.device) == ("f32", 4, "cpu") and model.n_cores >= 1
    assert model.tokenizer.vocab_size == tokens.vocab_size
    for token_id in (*run.prompt_ids, *run.output_ids):
        assert model.tokenizer.token_label(token_id) == tokens.token_label(token_id)
        assert model.tokenizer.is_part_of_a_character(token_id) == tokens.is_part_of_a_character(token_id)


def test_a_frame_out_of_the_file_is_the_frame_of_the_run(both: tuple[Run, SavedRun]) -> None:
    run, saved = both
    started = Started(
        model=run.model, config=run.config, in_chat=True, history=saved.history, computed_again=2, prompt=PROMPT
    )
    wanted = wire.run_header(started, run.trace, 0, waiting_seconds=0.0125)
    header, body = wire.unpack(wire.saved_frame({"visit": "x"}, open_saved(save(saved)), 0))
    assert {name: header[name] for name in wanted} == wanted
    cells = wire.cells(run.trace, 0)
    assert body[: len(cells)] == cells
    rows = [*header.get("rows", []), *([header["attention"]] if "attention" in header else [])]
    assert [row["step"] for row in rows] == [row.step for row in saved.rows]
    assert body[len(cells) :] == b"".join(wire.weights(row.weights) for row in saved.rows)


def test_a_hostile_prompt_stays_what_it_is(tiny_f32: LanguageModel) -> None:
    again = open_saved(save(a_run(tiny_f32, HOSTILE)[1]))
    assert again.prompt == HOSTILE and again.history[0].content == HOSTILE


def test_a_logit_of_minus_infinity_is_kept(tiny_f32: LanguageModel) -> None:
    saved = a_run(tiny_f32, max_new=1)[1]
    (step,) = saved.trace.steps
    assert step.sampled is not None
    never = Candidate(step.sampled.token_id, 0.0, False, 0.0, -math.inf, -math.inf)
    sampled = replace(step.sampled, candidates=(*step.sampled.candidates, never))
    changed = replace(saved, trace=replace(saved.trace, steps=(replace(step, sampled=sampled),)))
    found = open_saved(save(changed)).trace.steps[0].sampled
    assert found is not None and found.candidates[-1] == never


def refused(file: bytes) -> str:
    """The key of the refusal, which has a sentence in both languages."""
    with pytest.raises(Refusal) as caught:
        open_saved(file)
    assert caught.value.key.startswith("saved.") and all(caught.value.sentence(language) for language in LANGUAGES)
    return caught.value.key


def parts(file: bytes) -> tuple[dict[str, Any], bytes]:
    _, header, arrays = container.unpack(file)
    return json.loads(header), arrays


def rebuilt(header: dict[str, Any], arrays: bytes, version: int = container.VERSION) -> bytes:
    return container.pack(json.dumps(header).encode(), arrays, version)


def test_what_is_no_file_of_ours(file: bytes) -> None:
    assert refused(b"") == "saved.empty"
    for junk in (b"TBT1", b"PK\x03\x04" + bytes(400), b"<html>", file[1:], gzip.compress(b"a letter to a friend")):
        assert refused(junk) == "saved.not_ours"
    assert refused(b"\x1f\x8b" + bytes(container.MOST_FILE_BYTES)) == "saved.file_too_large"


def test_cut_off_anywhere(file: bytes) -> None:
    places = [*range(1, 60), *random.Random(4).sample(range(60, len(file)), 40), len(file) - 1]
    assert {refused(file[:place]) for place in places} <= {"saved.damaged", "saved.not_ours"}
    assert refused(file + b"\0") == "saved.damaged" and refused(file + file) == "saved.damaged"


def test_a_flipped_bit_is_noticed_or_harmless(file: bytes) -> None:
    """Harmless is a bit that says nothing: deflate leaves up to seven unused ones before gzip's last eight bytes."""
    begin, trailer = 10 * 8, len(file) * 8 - 64  # the ten bytes before are gzip's own
    chance = random.Random(5)
    for place in (*range(trailer - 16, len(file) * 8), *(chance.randrange(begin, trailer) for _ in range(150))):
        flipped = bytearray(file)
        flipped[place // 8] ^= 1 << place % 8
        try:
            same = container.unpack(bytes(flipped)) == container.unpack(file)
        except Refusal:
            assert refused(bytes(flipped)) in ("saved.damaged", "saved.not_ours")
        else:
            assert same, f"bit {place} changed what the file holds, and nobody noticed"


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(b"token-by-token run 2 10\n" + bytes(4 * container.MOST_UNPACKED_BYTES))
    assert len(bomb) < 1 << 20 and refused(bomb) == "saved.too_large"
    monkeypatch.setattr(container, "_unzipped", lambda file: b"token-by-token run 2 999999999\n{}")
    assert refused(b"\x1f\x8b") == "saved.damaged"


def test_a_newer_version_says_so(file: bytes) -> None:
    header, arrays = parts(file)
    assert refused(rebuilt(header, arrays, version=3)) == "saved.newer"
    assert refused(rebuilt(header, arrays, version=0)) == "saved.damaged"


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"a":' * 50_000, b"{", b"[]", b'{"a": NaN}', b"\xff\xfe", b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_a_header_that_is_no_object(text: bytes) -> None:
    assert refused(container.pack(text, b"")) == "saved.header_broken"


Change = Callable[[dict[str, Any]], object]
WRONG: dict[str, Change] = {
    "no model": lambda h: h.pop("model"),
    "model a list": lambda h: h.update(model=[]),
    "layers": lambda h: h["model"].update(n_layers=10**9),
    "layers as text": lambda h: h["model"].update(n_layers="4"),
    "layers true": lambda h: h["model"].update(n_layers=True),
    "heads that are not shared out": lambda h: h["model"].update(n_heads=3),
    "dtype": lambda h: h["model"].update(dtype="__class__"),
    "device": lambda h: h["machine"].update(device="<b>"),
    "half a letter": lambda h: h["settings"].update(prompt="\ud800"),
    "a label that is half a letter": lambda h: h["labels"][0].update(label="\udfff"),
    "a long label": lambda h: h["labels"][0].update(label="x" * 5000),
    "no labels": lambda h: h.update(labels=[]),
    "role": lambda h: h["settings"].update(history=[{"role": "root", "content": ""}]),
    "seed": lambda h: h["settings"].update(seed="-1"),
    "seed of other digits": lambda h: h["settings"].update(seed="１"),
    "top-p": lambda h: h["settings"].update(top_p=2),
    "chunk": lambda h: h["settings"].update(prefill_chunk=0),
    "no prompt": lambda h: h.update(prompt_ids=[]),
    "a prompt of texts": lambda h: h.update(prompt_ids=["1"]),
    "an unknown token": lambda h: h["prompt_ids"].__setitem__(0, 4_000_000),
    "no steps": lambda h: h.update(steps=[]),
    "too many steps": lambda h: h.update(steps=[{}] * 5000),
    "phase": lambda h: h["steps"][1].update(phase="prefill"),
    "n": lambda h: h["steps"][2].update(n_tokens=7),
    "new positions": lambda h: h["steps"][1].update(new_positions=2),
    "a step without token": lambda h: h["steps"][1].update(sampled=None),
    "KV bytes": lambda h: h["steps"][0].update(kv_bytes=1),
    "a reserve without end": lambda h: h["steps"][0].update(kv_reserved_bytes=2**50),
    "a torn reserve": lambda h: h["steps"][0].update(kv_reserved_bytes=h["steps"][0]["kv_reserved_bytes"] + 1),
    "negative FLOP": lambda h: h["steps"][0].update(flops_exact=-1),
    "FLOP beyond a browser": lambda h: h["steps"][0].update(flops_exact=2**60),
    "infinite seconds": lambda h: h["steps"][0].update(seconds=1e308),
    "probability": lambda h: h["steps"][0]["sampled"]["candidates"][0].update(probability=3),
    "an unknown candidate": lambda h: h["steps"][0]["sampled"]["candidates"][0].update(id=3_999_999),
    "rows out of order": lambda h: h["rows"].reverse(),
    "a head that is not there": lambda h: h["rows"][0].update(head=4),
    "stopped by magic": lambda h: h.update(stopped={"kind": "magic", "value": None}),
    "a year beyond": lambda h: h.update(saved_at=10**12),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_entry_that_cannot_be(name: str, file: bytes) -> None:
    header, arrays = parts(file)
    WRONG[name](header)
    assert refused(rebuilt(header, arrays)) == "saved.field_wrong"


def test_arrays_that_do_not_fit(file: bytes) -> None:
    header, arrays = parts(file)
    for other in (b"", arrays[:-2], arrays + b"\0\0", arrays[:100]):
        assert refused(rebuilt(header, other)) == "saved.arrays_disagree"
    for number in (math.nan, math.inf, -1.0):
        spoilt = np.float32(number).tobytes() + arrays[4:]
        assert refused(rebuilt(header, spoilt)) == "saved.arrays_not_numbers"
    fewer = {**header, "model": header["model"] | {"n_layers": 2}}
    assert refused(rebuilt(fewer, arrays)) == "saved.field_wrong"  # bytes of the cache


def test_a_short_file_cannot_ask_for_a_long_screen(file: bytes) -> None:
    header, arrays = parts(file)
    for step in header["steps"]:
        step["sampled"]["candidates"] = step["sampled"]["candidates"][:1] * 64
    for label in header["labels"]:
        label["label"] = "x" * 1000
    open_saved(rebuilt(header, arrays))
    monstrous = {**header, "prompt_ids": header["prompt_ids"] * 1000}
    assert refused(rebuilt(monstrous, arrays)).startswith("saved.")


def test_a_run_too_large_is_not_written() -> None:
    for header, arrays in ((bytes(container.MOST_HEADER_BYTES + 1), b""), (b"", bytes(container.MOST_UNPACKED_BYTES))):
        with pytest.raises(Refusal) as caught:
            container.pack(header, arrays)
        assert caught.value.key == "saved.run_too_large"
    noise = random.Random(6).randbytes(container.MOST_FILE_BYTES + 1000)
    with pytest.raises(Refusal):
        container.pack(b"", noise)


def version_1(saved: SavedRun) -> bytes:
    """A file as version 1 was written: no rows of attention, and of the machine its device alone."""
    header, arrays = parts(save(replace(saved, rows=())))
    device = header.pop("machine")["device"]
    del header["rows"]
    return rebuilt({**header, "device": device}, arrays, version=1)


def test_an_old_version_is_read(tiny_f32: LanguageModel) -> None:
    run, saved = a_run(tiny_f32)
    again = open_saved(version_1(saved))
    assert again.trace.output_ids == run.trace.output_ids and again.trace.text == run.trace.text
    assert again.rows == () and (again.model.device, again.model.n_cores) == ("cpu", 0)
    assert open_saved(save(again)).trace.output_ids == run.trace.output_ids  # saved again, it is of today
    assert set(versions._STEPS) == set(range(1, container.VERSION))
