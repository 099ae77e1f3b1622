"""Models of random weights: an outline has the sizes of the real one, what is too large is refused, turns are taken."""

from __future__ import annotations

import pytest
import torch

from core.engine.exclusive import Measurement, Point
from core.estimate.weights import parameters
from core.lab.random_model import MOST_PARAMETERS, RandomShape, outline, random_model
from core.lab.sweep.forecast import Probe, foreseen_seconds, needed_bytes
from core.lab.sweep.plan import SweepPlan
from core.lab.sweep.sweep import N_STEPS, Sweep
from core.lab.sweep.together import together
from core.model.device import Device
from core.refusal import Refusal

CPU = Device(torch.device("cpu"))
SHAPE = RandomShape(n_layers=2, n_heads=6, n_kv_heads=2, head_dim=16)
PLAN = SweepPlan(contexts=(8, 70), batches=(1, 2), repeats=1, fill="fast")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_an_outline_has_the_sizes_of_the_model(dtype: torch.dtype) -> None:
    real, sizes = random_model(SHAPE, CPU, dtype), outline(SHAPE, CPU, dtype)
    assert real.config == sizes.config and real.dtype_name == sizes.dtype_name
    assert real.transformer.product_bytes == sizes.transformer.product_bytes
    assert real.transformer.activation_dtype == sizes.transformer.activation_dtype
    assert needed_bytes(real, PLAN) == needed_bytes(sizes, PLAN)
    probe = Probe(1e9, 1e-3, 129)
    assert foreseen_seconds(real, PLAN, N_STEPS, probe) == foreseen_seconds(sizes, PLAN, N_STEPS, probe)
    assert parameters(real.shape).total * dtype.itemsize > real.transformer.product_bytes
    assert sizes.transformer.embedding.device.type == "meta"


def test_a_random_model_is_swept() -> None:
    model = random_model(SHAPE, CPU, torch.float32)
    sweep = Sweep(model, PLAN, 2**30)
    measurement = sweep.measurement()
    for index, point in enumerate(measurement.points):
        measurement.on_point(index, Point(point(), 0.1, 1, None))
    assert [row.spot for row in sweep.rows] == list(PLAN.spots())
    # 2·L·n_kv·d_h·b_kv bytes a position
    assert [row.kv_bytes_measured for row in sweep.rows] == [
        2 * 2 * 2 * 16 * 4 * row.context * row.batch for row in sweep.rows
    ]


def test_the_same_seed_draws_the_same_numbers() -> None:
    one, same, other = (random_model(SHAPE, CPU, torch.float32, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.transformer.embedding, same.transformer.embedding)
    assert not torch.equal(one.transformer.embedding, other.transformer.embedding)


def test_too_large_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refusal) as refused:
        random_model(RandomShape(n_layers=64, n_heads=64, n_kv_heads=64, head_dim=128), CPU, torch.float32)
    assert refused.value.key == "sweep.random_too_large" and str(MOST_PARAMETERS // 10**6) in str(refused.value)
    monkeypatch.setattr(Device, "free_memory_bytes", lambda self: 1000)
    with pytest.raises(Refusal) as refused:
        random_model(SHAPE, CPU, torch.float32)
    assert refused.value.key == "engine.model_too_large"
    with pytest.raises(Refusal):
        random_model(RandomShape(n_layers=2, n_heads=6, n_kv_heads=4, head_dim=16), CPU, torch.float32)


def test_turns_are_taken() -> None:
    """Points alternate, each measurement hears of its own by its own numbers, and room is kept for all."""
    heard: list[tuple[str, int, str]] = []

    def made(name: str, n_points: int) -> Measurement:
        points = [lambda value=f"{name}{index}": value for index in range(n_points)]
        return Measurement(
            name, points, n_bytes=n_points, on_point=lambda index, point: heard.append((name, index, point.value))
        )

    whole = together([made("a", 3), made("b", 1), made("c", 2)])
    values = [point() for point in whole.points]
    assert values == ["a0", "b0", "c0", "a1", "c1", "a2"] and whole.n_bytes == 6
    for index, value in enumerate(values):
        whole.on_point(index, Point(value, 0.0, 1, None))
    assert heard == [(value[0], int(value[1]), value) for value in values]
