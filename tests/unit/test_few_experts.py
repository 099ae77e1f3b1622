"""A few experts instead of all, measured: bytes and FLOP by the estimate, experts met as probability says."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from core.estimate.distinct_experts import distinct_experts_interval
from core.lab.few_experts import WAYS, FewExperts, FewExpertsResult
from core.lab.routed_layer import random_layer, uniform_routing
from core.lab.routed_record import EXPERTS
from core.model.load import LanguageModel

BATCHES, N_BATCHES = (1, 8, 40), 12


@pytest.fixture(scope="module")
def result(tiny_f32: LanguageModel) -> FewExpertsResult:
    prompt = tiny_f32.prompt_ids("The moon over the river is bright tonight")
    experiment = FewExperts(tiny_f32, prompt, batches=BATCHES, n_batches=N_BATCHES)
    for point in experiment.points():
        point()
        point()  # as after a disturbance
    return experiment.result


def test_bytes_are_those_of_the_experts_that_were_met(tiny_f32: LanguageModel, result: FewExpertsResult) -> None:
    one = 3 * EXPERTS.d_expert * tiny_f32.config.d_model * 4
    assert result.has_ended and result.batches == BATCHES
    assert result.expert_bytes == one and result.resident_bytes == EXPERTS.n_experts * one
    for point in result.points:
        assert point.bytes_read == tuple(one * distinct for distinct in point.distinct)
    for batch in BATCHES:
        assert set(result.at("all", batch).bytes_read) == {result.resident_bytes}
        assert result.expected_bytes("all", batch) == result.resident_bytes
        expected = one * result.expected_distinct(batch)
        assert result.expected_bytes("uniform", batch) == pytest.approx(expected, abs=3)
    assert set(result.at("uniform", 1).distinct) == set(result.at("random", 1).distinct) == {EXPERTS.n_active}


def test_chance_meets_as_many_as_the_formula_says(result: FewExpertsResult) -> None:
    for batch in BATCHES:
        interval = distinct_experts_interval(EXPERTS, batch, N_BATCHES, level=0.999)
        assert interval.holds(result.at("uniform", batch).mean_distinct)
    means = [result.at("uniform", batch).mean_distinct for batch in BATCHES]
    assert all(fewer < more for fewer, more in pairwise(means))


@pytest.mark.parametrize("batch", BATCHES)
def test_flops_are_what_torch_counts(tiny_f32: LanguageModel, result: FewExpertsResult, batch: int) -> None:
    generator, d = torch.Generator().manual_seed(3), tiny_f32.config.d_model
    layer, x = random_layer(EXPERTS, d, generator), torch.randn(batch, d)
    with FlopCounterMode(display=False) as counter:
        layer(x, uniform_routing(batch, EXPERTS, generator))
    assert result.flops("uniform", batch) == counter.get_total_flops()
    assert result.flops("all", batch) * EXPERTS.n_active == result.flops("uniform", batch) * EXPERTS.n_experts


def test_the_same_positions_go_every_way(result: FewExpertsResult) -> None:
    assert {point.router for point in result.points} == set(WAYS) and len(result.points) == len(WAYS) * len(BATCHES)
    assert all(min(point.seconds) > 0 and len(point.seconds) == N_BATCHES for point in result.points)
