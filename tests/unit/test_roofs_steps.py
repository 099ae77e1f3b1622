"""A run's steps on roofs: every figure from the run's own ledger, the floor from the roofs, and who is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.engine.trace import Trace
from core.lab.roofs.steps import measured_steps, middle_step, with_floor
from core.model.load import LanguageModel
from tests.roofs import GB, reading, roofs_of

N_NEW = 6


@pytest.fixture(scope="module")
def trace(tiny_f32: LanguageModel) -> Trace:
    run = Run(tiny_f32, tiny_f32.prompt_ids("The sea is"), RunConfig(max_new=N_NEW))
    for _ in generate(tiny_f32, run):
        pass
    return run.trace


def test_every_figure_is_the_ledgers(trace: Trace) -> None:
    steps = measured_steps(trace, "f32", roofs_of())
    assert [step.phase for step in steps] == ["prefill", *["decode"] * (N_NEW - 1)]
    for step, event in zip(steps, trace.steps, strict=True):
        assert (step.n_tokens, step.flops, step.seconds) == (event.n_tokens, event.flops_exact, event.seconds)
        assert step.bytes_read == event.weight_bytes_read + event.kv_bytes_read
        assert step.intensity == step.flops / step.bytes_read
        assert step.flops_per_s == step.flops / step.seconds and step.bytes_per_s == step.bytes_read / step.seconds


def test_the_share_is_what_was_reached_of_the_roof_that_binds(trace: Trace) -> None:
    """20 GB/s and 100 GFLOP/s meet at 5 FLOP a byte: decode in f32 (0.5) lies below, the prefill of the prompt above
    or below by its length."""
    roofs = roofs_of()
    for step in measured_steps(trace, "f32", roofs):
        assert step.floor_s is not None and step.share is not None
        if step.intensity > 5:
            assert step.bound == "compute" and step.share == pytest.approx(step.flops_per_s / (100 * GB))
        else:
            assert step.bound == "memory" and step.share == pytest.approx(step.bytes_per_s / (20 * GB))
        assert step.share == pytest.approx(step.floor_s / step.seconds)
    decode = measured_steps(trace, "f32", roofs)[-1]
    assert 0.4 < decode.intensity < 0.6 and decode.bound == "memory"
    low = roofs_of(readings=(*roofs.readings[:4], reading("product", 1 * GB)))
    assert measured_steps(trace, "f32", low)[-1].bound == "compute", "a slow product is the lower roof"


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_without_a_roof_there_is_no_share(trace: Trace, dtype: str) -> None:
    steps = measured_steps(trace, dtype, None if dtype == "f32" else roofs_of())
    assert len(steps) == len(trace.steps)
    assert {(step.floor_s, step.share, step.bound) for step in steps} == {(None, None, None)}
    assert middle_step(steps, "decode") is None and with_floor(steps, "decode") == []


def test_a_pass_that_others_shared_is_left_out(trace: Trace) -> None:
    shared = replace(trace, steps=(*trace.steps[:2], replace(trace.steps[2], batch=3), *trace.steps[3:]))
    numbers = [step.n_tokens for step in measured_steps(shared, "f32", roofs_of())]
    assert numbers == [event.n_tokens for k, event in enumerate(trace.steps) if k != 2]


def test_the_middle_step_is_the_median_of_its_phase(trace: Trace) -> None:
    made = measured_steps(trace, "f32", roofs_of())
    steps = [replace(step, share=share) for step, share in zip(made, (0.9, 0.3, 0.1, 0.2, 0.5, 0.4), strict=True)]
    middle = middle_step(steps, "decode")
    assert middle is not None and middle.share == 0.3
    assert [step.share for step in with_floor(steps, "decode")] == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert middle_step(steps, "recompute") is None
