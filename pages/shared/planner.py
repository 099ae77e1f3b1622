"""The planner's rows: a model on an accelerator, split over so many ranks, every figure as core's estimate has it.

Here is nothing of streamlit.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import PurePosixPath
from typing import NamedTuple

from core.cli.wanted import MOST_CONFIG_BYTES
from core.estimate.accelerators import Accelerator
from core.estimate.configs.huggingface import from_hf
from core.estimate.estimate import Estimate, Request, estimate
from core.estimate.fit import Fit, rank_weight_bytes
from core.estimate.floors import Floor
from core.estimate.kv import kv_bytes
from core.estimate.shape import ModelShape
from core.model.files.fields import shown
from core.model.files.json_file import parse_json_object
from core.refusal import Refusal

MOST_ROWS = 60
PLAIN_NAME = "config"
"""What a dropped file without a name of its own calls its model."""


class PlannedModel(NamedTuple):
    """A model of the catalogue, or without a slug the one that was dropped."""

    slug: str
    shape: ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked for. Rows come in this order: model, then accelerator, then ranks."""

    models: tuple[PlannedModel, ...]
    accelerators: tuple[Accelerator, ...]
    ranks: tuple[int, ...]
    request: Request

    @property
    def n_rows(self) -> int:
        """How many rows that makes."""
        return len(self.models) * len(self.accelerators) * len(self.ranks)


@dataclass(frozen=True, slots=True)
class PlannerRow:
    """One model on one accelerator. Bytes are those of one rank, times those of the whole batch."""

    slug: str
    accelerator: Accelerator
    made: Estimate
    fit: Fit
    weight_bytes: int
    kv_bytes: int

    @property
    def model(self) -> str:
        """What the model is called."""
        return self.made.shape.name

    @property
    def ranks(self) -> int:
        """Over how many devices it is split."""
        return self.made.request.ranks

    @property
    def memory_bytes(self) -> int:
        """The memory of all its devices."""
        return self.ranks * self.accelerator.memory_bytes

    @property
    def decode(self) -> Floor | None:
        """The least time of a decode step; None where the device's peak is not known."""
        return self.made.decode.floor

    @property
    def prefill(self) -> Floor | None:
        """The least time of a prefill, and so of the first token."""
        return self.made.prefill.floor

    @property
    def most_tokens_per_s(self) -> float | None:
        """At most so many tokens a second over the whole batch: one a sequence in each decode step."""
        return None if self.decode is None else self.made.request.batch / float(self.decode.seconds)


def planner_rows(plan: Plan) -> tuple[PlannerRow, ...]:
    """The first MOST_ROWS rows of a plan."""
    asked = product(plan.models, plan.accelerators, plan.ranks)
    return tuple(_row(model, card, ranks, plan.request) for model, card, ranks in islice(asked, MOST_ROWS))


def _row(model: PlannedModel, accelerator: Accelerator, ranks: int, request: Request) -> PlannerRow:
    asked = replace(request, accelerator=accelerator, ranks=ranks)
    made = estimate(model.shape, asked)
    assert made.fit is not None  # there is an accelerator
    return PlannerRow(
        slug=model.slug,
        accelerator=accelerator,
        made=made,
        fit=made.fit,
        weight_bytes=rank_weight_bytes(model.shape, asked.weight_dtypes, ranks),
        kv_bytes=kv_bytes(model.shape, n_tokens=asked.context, batch=asked.batch, dtypes=asked.kv_dtypes, ranks=ranks),
    )


def dropped_model(data: bytes, file_name: str) -> PlannedModel:
    """The model that a config.json describes, called as its file is. Raises Refusal."""
    path = PurePosixPath(file_name.replace("\\", "/"))
    file = shown(path.name) or f"{PLAIN_NAME}.json"
    if len(data) > MOST_CONFIG_BYTES:
        raise Refusal("model.file_too_large", file=file, most=MOST_CONFIG_BYTES // 2**20)
    return PlannedModel(
        "", from_hf(parse_json_object(data, file), name=shown(path.stem).strip() or PLAIN_NAME, file=file)
    )


def smallest_that_fit(rows: Iterable[PlannerRow]) -> list[tuple[str, PlannerRow | None]]:
    """Each model with the row of the least memory in which it fits, the first of equals; None where it fits in none."""
    found: dict[tuple[str, str], PlannerRow | None] = {}
    for row in rows:
        key = row.slug, row.model  # a dropped file may be called as a model of the catalogue is
        best = found.setdefault(key, None)
        if row.fit.fits and (best is None or row.memory_bytes < best.memory_bytes):
            found[key] = row
    return [(name, row) for (_, name), row in found.items()]


COLUMNS = (
    "model",
    "model_slug",
    "accelerator",
    "accelerator_slug",
    "tensor_parallel_ranks",
    "weights_per_rank_bytes",
    "kv_per_rank_bytes",
    "needed_per_rank_bytes",
    "capacity_per_rank_bytes",
    "fits",
    "max_context_tokens",
    "max_batch_sequences",
    "decode_step_floor_s",
    "decode_bound",
    "decode_tokens_per_s_at_most",
    "prefill_floor_s",
    "prefill_bound",
)


def planner_csv(rows: Iterable[PlannerRow], plan: Plan) -> str:
    """The rows in base units, one a line, below `#` lines that say what was asked for.

    A field is empty where the page shows a dash: a floor without a known peak, a limit where nothing grows.
    """
    request = plan.request
    settings = {
        "batch_sequences": request.batch,
        "context_tokens": request.context,
        "weight_dtype": request.weight_dtypes,
        "kv_dtype": request.kv_dtypes,
        "memory_fraction": request.memory_fraction,
        "rows_asked_for": plan.n_rows,
    }
    text = io.StringIO()
    text.write("# Token by Token: planner\n")
    text.writelines(f"# {name} = {value}\n" for name, value in settings.items())
    written = csv.writer(text, lineterminator="\n")
    written.writerow(COLUMNS)
    written.writerows(_fields(row) for row in rows)
    return text.getvalue()


def _fields(row: PlannerRow) -> tuple[object, ...]:
    decode, prefill = row.decode, row.prefill
    return (
        _no_formula(row.model),
        row.slug,
        row.accelerator.name,
        row.accelerator.slug,
        row.ranks,
        row.weight_bytes,
        row.kv_bytes,
        row.fit.needed_bytes,
        row.fit.capacity_bytes,
        int(row.fit.fits),
        row.fit.max_context,
        row.fit.max_batch,
        decode and float(decode.seconds),
        decode and decode.bound,
        row.most_tokens_per_s,
        prefill and float(prefill.seconds),
        prefill and prefill.bound,
    )


def _no_formula(name: str) -> str:
    """A file's name as a field that no spreadsheet takes for a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name
