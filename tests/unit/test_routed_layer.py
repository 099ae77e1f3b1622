"""The layer with experts: equal to a sum written out, every byte counted, and as many experts as probability says."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor

from core.engine.exclusive import Point
from core.estimate.distinct_experts import (
    Interval,
    distinct_experts_interval,
    distinct_experts_of_shares,
    distinct_experts_variance,
)
from core.estimate.shape import Experts
from core.estimate.weights import expected_distinct_experts
from core.lab.routed_layer import Routing, choose_experts, probabilities, random_layer, uniform_routing
from core.lab.routed_record import ROUTERS, RoutedResult
from core.lab.routed_runs import RoutedRuns
from core.lab.router_training import Training, balance_loss, feed_forward_states, sequences, unit_scale
from core.model.load import LanguageModel

SMALL = Experts(n_experts=16, n_active=2, d_expert=32)
BATCHES = (1, 2, 8, 32, 128)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def written_out(gate_up: Tensor, down: Tensor, x: Tensor, routing: Routing) -> Tensor:
    """Every expert on every token, kept where it was chosen."""
    rows = []
    for token, chosen, weights in zip(x, routing.experts.tolist(), routing.weights.tolist(), strict=True):
        row = torch.zeros_like(token)
        for expert, weight in zip(chosen, weights, strict=True):
            gate, up = (gate_up[expert] @ token).chunk(2)
            row += weight * (down[expert] @ (F.silu(gate) * up))
        rows.append(row)
    return torch.stack(rows)


@settings(deadline=None)
@given(
    n_experts=some.integers(1, 12),
    data=some.data(),
    n_tokens=some.integers(1, 20),
    seed=some.integers(0, 1000),
    is_uniform=some.booleans(),
)
def test_it_is_the_sum_over_the_chosen_experts(
    n_experts: int, data: some.DataObject, n_tokens: int, seed: int, is_uniform: bool
) -> None:
    experts = Experts(n_experts=n_experts, n_active=data.draw(some.integers(1, n_experts)), d_expert=6)
    generator = seeded(seed)
    layer = random_layer(experts, 10, generator)
    x = torch.randn(n_tokens, 10, generator=generator)
    router = torch.randn(n_experts, 10, generator=generator)
    if is_uniform:
        routing = uniform_routing(n_tokens, experts, generator)
    else:
        routing = choose_experts(probabilities(router, x), experts.n_active)
    passed = layer(x, routing)
    torch.testing.assert_close(passed.outputs, written_out(layer.gate_up, layer.down, x, routing))
    assert passed.touched == tuple(sorted(set(routing.experts.flatten().tolist())))
    assert passed.bytes_read == len(passed.touched) * layer.expert_bytes
    assert layer.expert_bytes == 3 * 6 * 10 * 4
    torch.testing.assert_close(routing.weights.sum(1), torch.ones(n_tokens))
    assert all(len(set(row)) == experts.n_active for row in routing.experts.tolist())


def test_experts_that_are_not_chosen_are_not_read() -> None:
    """Their weights may be anything, NaN too."""
    layer = random_layer(SMALL, 10, seeded())
    routing = Routing(torch.tensor([[3, 7], [7, 3]]), torch.full((2, 2), 0.5))
    for expert in set(range(16)) - {3, 7}:
        layer.gate_up[expert] = layer.down[expert] = math.nan
    passed = layer(torch.ones(2, 10), routing)
    assert passed.outputs.isfinite().all() and passed.touched == (3, 7)


@pytest.mark.parametrize(("n_experts", "n_active", "n_tokens"), [(4, 1, 3), (4, 2, 3), (5, 3, 2), (3, 3, 2), (5, 2, 1)])
def test_mean_and_variance_by_counting_all_cases(n_experts: int, n_active: int, n_tokens: int) -> None:
    experts = Experts(n_experts=n_experts, n_active=n_active, d_expert=1)
    sets = list(combinations(range(n_experts), n_active))
    counts = [len(set().union(*chosen)) for chosen in product(sets, repeat=n_tokens)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / len(counts)
    assert expected_distinct_experts(experts, n_tokens) == pytest.approx(mean)
    assert distinct_experts_variance(experts, n_tokens) == pytest.approx(variance, abs=1e-9)


def test_an_interval_shrinks_with_the_root_of_the_batches() -> None:
    one, hundred = (distinct_experts_interval(SMALL, 8, n) for n in (1, 100))
    assert one.high - one.low == pytest.approx(10 * (hundred.high - hundred.low))
    wider = distinct_experts_interval(SMALL, 8, 100, level=0.999)
    assert wider.low < hundred.low < hundred.high < wider.high
    assert hundred.high - hundred.low == pytest.approx(
        2 * 2.5758293 * math.sqrt(distinct_experts_variance(SMALL, 8) / 100)
    )
    assert Interval(1, 2).holds(2) and not Interval(1, 2).holds(2.01)
    assert distinct_experts_interval(SMALL, 1, 5) == (2, 2)


@given(shares=some.lists(some.floats(0, 1), min_size=2, max_size=20), n_tokens=some.integers(1, 300))
def test_uniform_is_the_maximum(shares: list[float], n_tokens: int) -> None:
    """Of all shares with the same sum; equal shares are on the curve."""
    mean = sum(shares) / len(shares)
    assert distinct_experts_of_shares(shares, n_tokens) <= len(shares) * (1 - (1 - mean) ** n_tokens) + 1e-9
    E, k = SMALL.n_experts, SMALL.n_active
    equal = distinct_experts_of_shares([k / E] * E, n_tokens)
    assert equal == pytest.approx(expected_distinct_experts(SMALL, n_tokens))


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_forced_uniform_routing_lies_in_the_interval(batch: int) -> None:
    """200 batches of 32 experts, 2 each: the issue's own bound."""
    experts = Experts(n_experts=32, n_active=2, d_expert=2)
    layer, generator = random_layer(experts, 4, seeded()), seeded(batch)
    x = torch.ones(batch, 4)
    counts = [len(layer(x, uniform_routing(batch, experts, generator)).touched) for _ in range(200)]
    assert distinct_experts_interval(experts, batch, 200, level=0.99).holds(sum(counts) / 200)


@pytest.fixture(scope="module")
def result(tiny_f32: LanguageModel) -> RoutedResult:
    """All of it on the tiny model, with smaller experts and 200 batches."""
    runs = RoutedRuns(
        tiny_f32, experts=SMALL, batches=BATCHES, n_batches=200, n_states=512, n_training_steps=60, seed=1
    )
    measurement = runs.measurement()
    assert not runs.result.has_ended and runs.result.points == () and runs.result.shares == {}
    for index, point in enumerate(measurement.points):
        for _ in range(2):  # a point may be measured again
            point()
        measurement.on_point(index, Point(None, 0.0, 1, index == 0))
    assert runs.result.n_disturbed == 0
    measurement.on_point(len(measurement.points) - 1, Point(None, 0.0, 3, True))
    assert runs.result.n_disturbed == 1
    return runs.result


def test_every_point_is_counted_and_timed(result: RoutedResult) -> None:
    assert result.has_ended and result.batches == BATCHES
    assert {(point.router, point.batch) for point in result.points} == set(product(ROUTERS, BATCHES))
    for point in result.points:
        assert len(point.distinct) == len(point.bytes_read) == len(point.seconds) == 200
        assert point.bytes_read == tuple(n * result.expert_bytes for n in point.distinct)
        assert min(point.seconds) > 0 and max(point.distinct) <= min(16, 2 * point.batch)
        assert min(point.distinct) >= 2
    assert result.at("uniform", 1).distinct == (2,) * 200


def test_uniform_lies_on_the_curve_and_others_on_it_or_below(result: RoutedResult) -> None:
    for batch in BATCHES:
        assert result.interval(batch, 0.999).holds(result.at("uniform", batch).mean_distinct)
        expected = float(expected_distinct_experts(SMALL, batch))
        noise = result.interval(batch, 0.999).high - expected
        for router in ROUTERS:
            mean = result.at(router, batch).mean_distinct
            assert mean <= expected + noise + 1e-9, (router, batch)
            assert mean == pytest.approx(result.expected(router, batch), abs=4 * noise + 0.25)
    for shares in result.shares.values():
        assert sum(shares) == pytest.approx(SMALL.n_active) and max(shares) <= 1


def test_training_teaches_and_balance_spreads(result: RoutedResult) -> None:
    assert {router: last < 0.8 * first for router, (first, last) in result.errors.items()} == {
        "unbalanced": True,
        "balanced": True,
    }
    assert max(result.shares["unbalanced"]) > max(result.shares["balanced"])
    for batch in BATCHES[2:]:
        balanced, unbalanced = (result.at(router, batch).mean_distinct for router in ("balanced", "unbalanced"))
        assert unbalanced < balanced or balanced == SMALL.n_experts
    uniform, uneven = result.same_work
    assert uniform.batch == uneven.batch and uniform.mean_bytes > uneven.mean_bytes


def test_hidden_states_are_those_of_a_pass(tiny_f32: LanguageModel) -> None:
    """What goes in and out of the feed-forward part adds up to the residual stream behind the layer."""
    ids = sequences(tiny_f32, 60)[0]
    assert len(ids) == 10  # as much of each of six texts
    model, last = tiny_f32.transformer, tiny_f32.config.n_layers - 1
    inputs, outputs = feed_forward_states(tiny_f32, ids, last)
    whole = model.hidden(torch.tensor([ids]))[0]
    before = whole - outputs
    torch.testing.assert_close(model.norm(before, model.layers[last].mlp_norm), inputs, atol=1e-4, rtol=1e-3)


def test_the_balancing_loss() -> None:
    """1 where all is spread alike; E where all goes to one."""
    even = torch.full((4, 4), 0.25)
    assert float(balance_loss(even, torch.tensor([[0], [1], [2], [3]]))) == pytest.approx(1)
    one = torch.eye(4)[[1, 1, 1]]
    assert float(balance_loss(one, torch.tensor([[1], [1], [1]]))) == pytest.approx(4)


def test_a_seed_makes_the_same_training() -> None:
    inputs, targets = torch.randn(2, 64, 10, generator=seeded()).unbind()
    errors = [
        [training.step() for _ in range(3)]
        for training in (
            Training(SMALL, inputs, targets, balanced=True, seed=3),
            Training(SMALL, inputs, targets, balanced=True, seed=3),
        )
    ]
    assert errors[0] == errors[1]
    assert float(unit_scale(inputs).square().mean()) == pytest.approx(1)
