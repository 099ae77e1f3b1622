"""The floor under a server's points: the least time that what it did can take on the accelerators it is said to run on.

A floor of core.estimate, whose question is put so that it holds for what a client sees: where it does not, there is
none, rather than one that a right assumption could fall below.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from core.estimate.accelerators import Accelerator
from core.estimate.dtypes import KvDtypes, WeightDtypes
from core.estimate.estimate import Estimate, Request, estimate
from core.estimate.floors import Floor
from core.estimate.observed import Against, against_floor
from core.estimate.shape import ModelShape
from core.lab.remote.findings import ServerCell


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What a server is taken to be: the model in these dtypes, each layer split over `ranks` such accelerators."""

    shape: ModelShape
    weight_dtypes: WeightDtypes
    kv_dtypes: KvDtypes
    accelerator: Accelerator
    ranks: int = 1

    def made(self, context: int, batch: int) -> Estimate:
        """Everything core reckons for it."""
        return estimate(
            self.shape,
            Request(
                batch=batch,
                context=context,
                weight_dtypes=self.weight_dtypes,
                kv_dtypes=self.kv_dtypes,
                accelerator=self.accelerator,
                ranks=self.ranks,
            ),
        )


class Under(NamedTuple):
    """A cell's floors: of its time per token, and of its first token; None where none holds."""

    step: Floor | None
    first: Floor | None


def floors_under(assumed: Assumed, cells: Iterable[ServerCell]) -> dict[tuple[int, int], Under]:
    """Context and batch → floors."""
    return {(cell.context, cell.batch): Under(_step(assumed, cell), _first(assumed, cell)) for cell in cells}


def against(measured_s: float | None, floor: Floor | None) -> Against | None:
    """Measured over floor; None where one of them is not there."""
    return against_floor(measured_s, float(floor.seconds)) if measured_s and floor else None


def _step(assumed: Assumed, cell: ServerCell) -> Floor | None:
    """Of a decode step: the whole batch's where all wrote together, else of one request, since one at least wrote."""
    if cell.step is None:
        return None
    return assumed.made(cell.context, cell.batch if cell.is_together else 1).decode.floor


def _first(assumed: Assumed, cell: ServerCell) -> Floor | None:
    """Of the first token: when the middle request has its own, half of the prompts are computed.

    None where the server does not count the prompt, or found a part of it in its cache.
    """
    if cell.ttft is None or not cell.prompt_tokens or cell.cached_tokens:
        return None
    return assumed.made(cell.prompt_tokens, (cell.batch + 1) // 2).prefill.floor
