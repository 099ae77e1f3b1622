"""The stage's byte format: what the picture shows is what the cache holds, and a cell keeps its colour."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import step
from core.model.load import LanguageModel
from pages.shared import wire
from pages.shared.resources import shelf
from pages.shared.started import Started

RECORD = RecordConfig(candidates=4, kv_norms=True)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    shelf().wait_until_started()
    return shelf().loaded[-1]


def run_of(model: LanguageModel, n_steps: int, prompt: str = "床前明月光，", *, use_cache: bool = True) -> Run:
    run = Run(model, model.prompt_ids(prompt, raw=True), RunConfig(record=RECORD, use_cache=use_cache))
    for _ in range(n_steps):
        step(model, [run])
    return run


def started(run: Run) -> Started:
    return Started(model=run.model, config=run.config, in_chat=False)


def test_a_frame_is_read_as_it_was_packed() -> None:
    header = {"text": "床前 <b>\u202e😀", "none": None, "list": [1, 2.5, True]}
    assert wire.unpack(wire.pack(header, b"\x00\xff")) == (header, b"\x00\xff")
    for junk in (b"", b"TBT1", b"PK\x03\x04aaaaaaa"):
        with pytest.raises(ValueError):
            wire.unpack(junk)
    with pytest.raises(ValueError):
        wire.pack({"seconds": math.nan})


def test_a_cell_is_the_norm_of_what_lies_in_the_cache(model: LanguageModel) -> None:
    run = run_of(model, 4)
    assert run.cache is not None
    config, trace = model.config, run.trace
    levels = np.frombuffer(wire.cells(trace, 0), np.uint8).reshape(-1, config.n_layers, 2, config.n_kv_heads)
    columns = run.cache.columns(0, run.cache.n_tokens)  # (L, 2, n_kv, n, d_h)
    norms = torch.linalg.vector_norm(columns.float(), dim=-1).permute(3, 0, 1, 2).numpy()  # (n, L, 2, n_kv)
    low, high = wire.scales(trace)[None, :, :, :1], wire.scales(trace)[None, :, :, 1:]
    inside = (norms > low) & (norms < high)
    shown = low + (high - low) * levels / 255
    assert inside.mean() > 0.7 and len(levels) == run.cache.n_tokens
    assert np.abs(shown - norms)[inside].max() <= ((high - low).max() / 255)
    assert (levels[norms <= low] == 0).all() and (levels[norms >= high] == 255).all()


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_cell_once_drawn_never_changes(model: LanguageModel, use_cache: bool) -> None:
    run, sent = run_of(model, 1, use_cache=use_cache), b""
    for number in range(6):
        sent += wire.cells(run.trace, number)
        assert wire.cells(run.trace, 0) == sent
        step(model, [run])


def test_what_a_step_adds_does_not_grow_with_the_run(model: LanguageModel) -> None:
    run, sizes = run_of(replace(model, end_token_ids=frozenset()), 1), []
    for number in range(1, 61):
        step(run.model, [run])
        header = wire.run_header(started(run), run.trace, number, waiting_seconds=0.0)
        sizes.append(len(wire.pack(header, wire.cells(run.trace, number))))
    assert abs(np.mean(sizes[:20]) - np.mean(sizes[-20:])) < 60  # labels and readings differ in length


def test_a_prompt_of_one_token_has_a_scale(model: LanguageModel) -> None:
    run = run_of(model, 3, "月")
    scales = wire.scales(run.trace)
    assert np.isfinite(scales).all() and (scales[..., 1] > scales[..., 0]).all()
    assert len(wire.cells(run.trace, 0)) == run.steps[-1].n_tokens * model.config.n_layers * 2 * model.config.n_kv_heads


def test_text_pieces_and_tail_make_the_whole_text(model: LanguageModel) -> None:
    run = Run(model, model.prompt_ids("月😀", raw=True), RunConfig(record=RECORD, max_new=5))
    while run.stopped is None:
        step(model, [run])
    header = wire.run_header(started(run), run.trace, 0, waiting_seconds=0.0)
    assert "".join(each["text"] for each in header["steps"]) + header["facts"]["tail"] == run.trace.text
