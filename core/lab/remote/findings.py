"""What the points of a server's sweep say together: medians at each context and batch, and the law of their steps.

No torch, and no words: a page and a report say it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from core.lab.fit import Fit, HeldOut, Observed, fit_context, fit_together_or_none, held_out_or_none
from core.lab.remote.faults import Kind
from core.lab.remote.point import Note, RemotePoint
from core.lab.spread import Spread, spread


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCell:
    """All repeats at one context and batch. Counts are of tokens, one request's; None where no repeat has them.

    Attributes:
        n_repeats, n_measured: points in the file, and those that were not given up.
        n_used: repeats whose time per token counts: those in which all wrote together, where there are any.
        is_together: the time per token is that of a step of the whole batch. Else the requests were answered one after
            another, and it is that of whole answers, each beside as many others as there happened to be.
        step: a token's time.
        ttft: to the first token, the middle request of the batch. `ttft_last_s`: the slowest.
        kv_tokens, kv_share: positions in the server's cache while all wrote, and the share of it that they take.
    """

    context: int
    batch: int
    n_repeats: int
    n_measured: int
    n_used: int
    is_together: bool
    step: Spread | None
    ttft: Spread | None
    ttft_last_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    kv_tokens: float | None
    kv_share: float | None

    @property
    def tokens_per_s(self) -> float | None:
        """Of the whole batch: a token of each request in every step. None where they did not write together."""
        return self.batch / self.step.median_s if self.step and self.is_together else None


class ServerLaw(NamedTuple):
    """a + b·n of one batch, fitted to its `cells`, n rising; two at least."""

    batch: int
    fit: Fit
    cells: tuple[ServerCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFindings:
    """What the points say, as far as there are enough of them.

    Attributes:
        cells: context and batch rising.
        laws: of every batch whose requests wrote together at two contexts or more.
        joint, tested: a + b·n + c·B + e·B·n of all those cells; the same on a part, with its errors on the others.
        notes, faults: how many points have which.
        n_points, n_again, n_retries: in the file; those that were begun again, and how many times all of them.
    """

    cells: tuple[ServerCell, ...]
    laws: tuple[ServerLaw, ...]
    joint: Fit | None
    tested: HeldOut | None
    notes: Counter[Note]
    faults: Counter[Kind]
    n_points: int
    n_again: int
    n_retries: int

    @property
    def batches(self) -> list[int]:
        """Those with a point that was measured."""
        return sorted({cell.batch for cell in self.cells if cell.n_measured})

    def of(self, batch: int) -> list[ServerCell]:
        """The cells of a batch, n rising."""
        return [cell for cell in self.cells if cell.batch == batch]

    def cell(self, context: int, batch: int) -> ServerCell | None:
        """At one place; None where nothing is."""
        return next((cell for cell in self.cells if (cell.context, cell.batch) == (context, batch)), None)


def server_findings(points: Iterable[RemotePoint]) -> ServerFindings:
    """All of it, from the points alone."""
    points = list(points)
    grouped: dict[tuple[int, int], list[RemotePoint]] = {}
    for point in points:
        grouped.setdefault((point.key.context, point.key.batch), []).append(point)
    cells = tuple(_cell(context, batch, repeats) for (context, batch), repeats in sorted(grouped.items()))
    steps = [(cell, cell.step.median_s) for cell in cells if cell.step and cell.is_together]
    observed = [Observed(cell.context, cell.batch, seconds) for cell, seconds in steps]
    return ServerFindings(
        cells=cells,
        laws=tuple(_laws(steps)),
        joint=fit_together_or_none(observed),
        tested=held_out_or_none(observed),
        notes=Counter(note for point in points for note in point.notes),
        faults=Counter(point.fault.kind for point in points if point.fault),
        n_points=len(points),
        n_again=sum(point.retries > 0 for point in points),
        n_retries=sum(point.retries for point in points),
    )


def _cell(context: int, batch: int, repeats: Sequence[RemotePoint]) -> ServerCell:
    measured = [point for point in repeats if point.is_measured]
    together = [point.decode_step_s for point in measured if point.decode_step_s]
    steps = together or [point.tpot_s for point in measured if point.tpot_s]
    firsts = [point.ttft_s for point in measured if point.ttft_s]
    return ServerCell(
        context=context,
        batch=batch,
        n_repeats=len(repeats),
        n_measured=len(measured),
        n_used=len(steps),
        is_together=bool(together),
        step=spread(steps) if steps else None,
        ttft=spread(firsts) if firsts else None,
        ttft_last_s=_middle(measured, lambda point: point.ttft_last_s),
        prompt_tokens=_whole_middle(measured, lambda point: point.prompt_tokens),
        cached_tokens=_whole_middle(measured, lambda point: point.cached_tokens),
        kv_tokens=_middle(measured, lambda point: point.kv_tokens),
        kv_share=_middle(measured, lambda point: point.kv_share),
    )


def _laws(steps: Sequence[tuple[ServerCell, float]]) -> Iterable[ServerLaw]:
    for batch in sorted({cell.batch for cell, _ in steps}):
        own = [(cell, seconds) for cell, seconds in steps if cell.batch == batch]
        if len(own) > 1:
            fit = fit_context([Observed(cell.context, batch, seconds) for cell, seconds in own])
            yield ServerLaw(batch, fit, tuple(cell for cell, _ in own))


def _middle(points: Sequence[RemotePoint], value: Callable[[RemotePoint], float | None]) -> float | None:
    known = [found for point in points if (found := value(point)) is not None]
    return median(known) if known else None


def _whole_middle(points: Sequence[RemotePoint], value: Callable[[RemotePoint], int | None]) -> int | None:
    middle = _middle(points, value)
    return None if middle is None else round(middle)
