"""A sweep begins, or goes on where it was stopped: models, files, and a measurement in the engine's exclusive slot."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from re import fullmatch
from typing import TYPE_CHECKING
from weakref import ref

from core.lab.sweep.report import Prediction
from core.refusal import Refusal
from pages.shared.lab.asked import Asked, Wanted
from pages.shared.lab.foresee import Foreseen, check_fit, foresee, shape_and_place, sized
from pages.shared.lab.kept import Begun, KeptSweep, Writing
from pages.shared.lab.notes import notes_of
from pages.shared.lab.visitor import store
from pages.shared.resources import engine
from pages.shared.settings import COMPARED, RANDOM

if TYPE_CHECKING:
    from core.engine.exclusive import Point
    from core.model.load import LanguageModel


def begin(key: str, asked: Asked, predictions: Sequence[Prediction]) -> None:
    """Puts the sweeps of all models in the line, side by side. Raises Refusal with the reason why not."""
    from core.lab.sweep.head import head_of

    foreseen = _checked(key, asked)
    models = _made(asked.models)
    check_fit(models, asked.plan)
    several = f"{asked.compared} {time.time_ns() // 10**6}" if len(models) > 1 else ""
    paths = store().new_paths(key, len(models))
    kept = [
        KeptSweep(
            head_of(model, asked.plan) | notes_of(asked.plan, predictions, several),
            asked.plan,
            tuple(predictions),
            path,
            [],
        )
        for model, path in zip(models, paths, strict=True)
    ]
    _run(kept, models, foreseen)
    for sweep in reversed(kept):  # the first of them comes to stand first
        store().add(key, sweep)


def go_on(key: str, sweep: KeptSweep) -> None:
    """Measures the rows that a stopped sweep does not have yet. Raises Refusal where it cannot be gone on with."""
    wanted = wanted_of(sweep)
    asked = Asked(sweep.plan, (wanted,), COMPARED[0])
    foreseen = _checked(key, asked)
    _run([sweep], _made((wanted,)), foreseen)


def wanted_of(sweep: KeptSweep) -> Wanted:
    """The model that a sweep was of, by its file's head. What is another by now is refused when the file is opened."""
    name = sweep.head.get("model", "")
    numbers = fullmatch(r"random-L(\d{1,3})-h(\d{1,3})-kv(\d{1,3})-dh(\d{1,3})", name)
    if numbers is None:
        return Wanted(name)
    layers, heads, kv_heads, width = map(int, numbers.groups())
    return Wanted(RANDOM, (layers, heads, kv_heads, width), sweep.head.get("dtype", ""))


def _checked(key: str, asked: Asked) -> Foreseen:
    if store().under_way(key) is not None:
        raise Refusal("lab.one_at_a_time")
    try:
        foreseen = foresee(asked)
    except KeyError:
        raise Refusal("lab.model_gone") from None
    if foreseen is None:
        raise Refusal("lab.not_ready")
    return foreseen


def _made(wanted: Sequence[Wanted]) -> list[LanguageModel]:
    """The models themselves. Random weights are drawn between two passes of the engine: beside one they would slow it,
    and be timed with it."""
    from core.lab.random_model import random_model

    made = []
    for one in wanted:
        if one.shape is None:
            model = sized(one)
            assert model is not None
        else:
            model = engine().submit(partial(random_model, *shape_and_place(one))).result()
        made.append(model)
    return made


def _run(kept: Sequence[KeptSweep], models: Sequence[LanguageModel], foreseen: Foreseen) -> None:
    from core.lab.sweep.sweep import Sweep
    from core.lab.sweep.together import together

    writing = Writing(kept)
    try:
        pairs = zip(models, kept, strict=True)
        sweeps = [Sweep(model, one.plan, foreseen.budget_bytes, {row.spot for row in one.rows}) for model, one in pairs]
    except Refusal:
        writing.close()
        raise
    tellers = zip(sweeps, writing.tellers, strict=True)
    measurement = together([sweep.measurement(tell) for sweep, tell in tellers])
    n_spots = sum(sweep.n_spots for sweep in sweeps)
    begun = Begun(measurement, foreseen.filling_s, foreseen.stepping_s * n_spots / foreseen.n_rows, n_spots)
    told, known = measurement.on_point, ref(begun)  # no circle: caches should go with whoever holds the measurement

    def on_point(index: int, point: Point) -> None:
        if (mine := known()) is not None and mine.begun_at is None:
            mine.begun_at = time.monotonic() - point.seconds
        told(index, point)

    measurement.on_point = on_point
    writing.until_over(begun)
    engine().measure(measurement)
