"""The arrays of a saved run: as many numbers as the header's steps ask for, all of them finite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.engine.run import RunConfig
from core.engine.saved.fields import Entry
from core.engine.saved.record import KeptRow, RecordedModel
from core.engine.saved.write import FULL_WEIGHT
from core.engine.trace import FloatArray, Recorded, StepEvent
from core.refusal import Refusal

MOST_WEIGHTS = 2_000_000
"""Of attention, in all rows: what the stage keeps in a browser too."""


def read_norms(arrays: bytes, steps: tuple[StepEvent, ...], model: RecordedModel) -> tuple[tuple[StepEvent, ...], int]:
    """The steps with the norms of the columns that each of them added, and where these numbers end."""
    sizes = model.config
    shape = (steps[-1].n_tokens, sizes.n_layers, 2, sizes.n_kv_heads)
    end = 4 * shape[0] * shape[1] * shape[2] * shape[3]
    if len(arrays) < end:
        raise Refusal("saved.arrays_disagree")
    norms = np.frombuffer(arrays[:end], "<f4").reshape(shape).astype(np.float32)
    if not np.isfinite(norms).all() or norms.min() < 0:
        raise Refusal("saved.arrays_not_numbers")
    made, before = [], 0
    for step in steps:
        columns = norms[before : step.n_tokens].transpose(1, 2, 3, 0)  # (added, L, 2, n_kv) → (L, 2, n_kv, added)
        keys, values = (_read_only(columns[:, kind]) for kind in (0, 1))
        made.append(replace(step, recorded=Recorded(key_norms=keys, value_norms=values)))
        before = step.n_tokens
    return tuple(made), end


def read_rows(
    numbers: bytes, top: Entry, model: RecordedModel, config: RunConfig, steps: tuple[StepEvent, ...]
) -> tuple[KeptRow, ...]:
    """The rows of attention that the header names, which take exactly the rest of the numbers."""
    entries = top.entries("rows", at_most=len(steps))
    if entries and not config.use_cache:
        raise top.wrong("rows")
    if len(numbers) > 2 * MOST_WEIGHTS:
        raise Refusal("saved.arrays_disagree")
    rows: list[KeptRow] = []
    begin = 0
    for entry in entries:
        step = entry.whole("step", least=rows[-1].step + 1 if rows else 0, most=len(steps) - 1)
        layer = entry.whole("layer", most=model.config.n_layers - 1)
        head = entry.whole("head", most=model.config.n_heads - 1)
        end = begin + 2 * steps[step].n_tokens
        if end > len(numbers):
            raise Refusal("saved.arrays_disagree")
        weights = np.frombuffer(numbers[begin:end], "<u2").astype(np.float32) / np.float32(FULL_WEIGHT)
        rows.append(KeptRow(step=step, layer=layer, head=head, weights=_read_only(weights)))
        begin = end
    if begin != len(numbers):
        raise Refusal("saved.arrays_disagree")
    return tuple(rows)


def _read_only(array: FloatArray) -> FloatArray:
    copy: FloatArray = np.ascontiguousarray(array, np.float32)
    copy.setflags(write=False)
    return copy
