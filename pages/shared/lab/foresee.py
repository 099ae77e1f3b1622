"""What a sweep will cost, before it begins: points, memory by formula, seconds from a short probe of this machine."""

from __future__ import annotations

import os
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from core.lab.sweep.plan import SweepPlan
from core.refusal import Refusal
from pages.shared.lab.asked import Asked, Wanted
from pages.shared.resources import engine, shelf

if TYPE_CHECKING:
    # All of these bring torch, which takes seconds to import.
    from core.lab.random_model import RandomShape
    from core.lab.sweep.forecast import Probe
    from core.model.device import Device
    from core.model.load import LanguageModel

MOST_SECONDS = 30 * 60.0
"""Of one visitor's sweep: others wait for their timings meanwhile."""
_probes: dict[tuple[str, str], Future[Probe]] = {}
_one_at_a_time = Lock()


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The cost of all models' sweeps together; `needed_bytes` beside the weights."""

    n_rows: int
    needed_bytes: int
    weight_bytes: int
    budget_bytes: int
    filling_s: float
    stepping_s: float

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return self.filling_s + self.stepping_s


def foresee(asked: Asked) -> Foreseen | None:
    """The cost; None while a model loads or the probe runs.

    Raises Refusal for what does not fit, takes too long, or cannot be loaded.
    """
    models = [sized(wanted) for wanted in asked.models]
    known = [model for model in models if model is not None]
    if len(known) < len(models):
        return None
    check_fit(known, asked.plan)
    return _cost(known, asked.plan, [wanted.shape is not None for wanted in asked.models])


def check_fit(models: list[LanguageModel], plan: SweepPlan) -> None:
    """Raises Refusal where the caches of all of them pass the engine's budget, or a context the model's."""
    from core.lab.sweep.forecast import check_room, needed_bytes

    budget = engine().status().budget_bytes
    for model in models:
        check_room(model, plan, budget)
    needed = sum(needed_bytes(model, plan) for model in models)
    if needed > budget:
        raise Refusal("lab.too_large_together", models=len(models), needed=needed / 2**20, budget=budget / 2**20)


def sized(wanted: Wanted) -> LanguageModel | None:
    """A model that has its sizes: a loaded one, or the outline of one with random weights. None while it loads."""
    if wanted.shape is None:
        future, problem = shelf().ask(wanted.name), shelf().problem(wanted.name)
        if problem is not None:
            raise problem
        return future.result() if future.done() else None
    from core.lab.random_model import check_size, outline

    shape, device, dtype = shape_and_place(wanted)
    check_size(shape.config, device, dtype)
    return outline(shape, device, dtype)


def shape_and_place(wanted: Wanted) -> tuple[RandomShape, Device, Any]:
    """What a model of random weights is made of, and where; the last is its torch dtype."""
    from core.lab.random_model import RandomShape
    from core.model.device import choose_device, choose_dtype

    assert wanted.shape is not None
    layers, heads, kv_heads, width = wanted.shape
    device = choose_device(os.environ.get("TBT_DEVICE") or None)
    dtype = choose_dtype(device, wanted.dtype or os.environ.get("TBT_DTYPE") or None)
    return RandomShape(n_layers=layers, n_heads=heads, n_kv_heads=kv_heads, head_dim=width), device, dtype


def _cost(models: list[LanguageModel], plan: SweepPlan, are_outlines: list[bool]) -> Foreseen | None:
    from core.lab.sweep.forecast import check_time, foreseen_seconds, needed_bytes
    from core.lab.sweep.sweep import N_STEPS

    n_spots = len(list(plan.spots()))
    filling = stepping = 0.0
    for model, is_outline in zip(models, are_outlines, strict=True):
        probe = _probe_for(model, is_outline)
        if probe is None:
            return None
        whole, fill = (foreseen_seconds(model, plan, N_STEPS, probe, done) for done in (0, n_spots))
        filling, stepping = filling + fill, stepping + whole - fill
    check_time(filling + stepping, MOST_SECONDS)
    return Foreseen(
        n_rows=n_spots * len(models),
        needed_bytes=sum(needed_bytes(model, plan) for model in models),
        weight_bytes=sum(model.transformer.product_bytes for model in models),
        budget_bytes=engine().status().budget_bytes,
        filling_s=filling,
        stepping_s=stepping,
    )


def _probe_for(model: LanguageModel, is_outline: bool) -> Probe | None:
    """The model's own; of an outline that of a loaded model, a step taking longer with the bytes of weights."""
    if not is_outline:
        return _probe(model)
    other = shelf().loaded[0]
    found = _probe(other)
    share = model.transformer.product_bytes / other.transformer.product_bytes
    return None if found is None else replace(found, decode_step_s=found.decode_step_s * share)


def _probe(model: LanguageModel) -> Probe | None:
    """Run once for each model, between two passes of the engine; None until it is done."""
    from core.lab.sweep.forecast import probe

    key = model.name, model.dtype_name
    with _one_at_a_time:
        if key not in _probes or (_probes[key].done() and _probes[key].exception() is not None):
            _probes[key] = engine().submit(lambda: probe(model))
        future = _probes[key]
    return future.result() if future.done() else None
