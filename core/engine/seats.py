"""Who sits in the engine now, as a status shows it."""

from __future__ import annotations

from core.engine.residents import Place, Residents
from core.engine.run import Run
from core.engine.scheduler import Scheduler
from core.engine.status import Doing, Seat
from core.engine.turn import Turn


def seats(residents: Residents, scheduler: Scheduler, now: float) -> tuple[Seat, ...]:
    """Those who are in, in the order they came, then those who wait for memory. May be called from any thread."""
    at_work = {id(turn.run): turn for turn in reversed(scheduler.turns)}  # of two turns of a run, the earlier one
    queue = [(turn, turn.run) for turn in list(scheduler.queue)]  # before those inside: nobody is missed on the way in
    inside = residents.places()
    known = {id(run) for run, _ in inside}
    waiting = [(turn, run) for turn, run in queue if run is not None and id(run) not in known]
    seated = [_seat(run, place, at_work.get(id(run)), now) for run, place in inside]
    return (*seated, *(_waiting(turn, run, number) for number, (turn, run) in enumerate(waiting, 1)))


def _seat(run: Run, place: Place, turn: Turn | None, now: float) -> Seat:
    prefix = None if turn is None else turn.prefix
    rate = place.tokens_per_s(now)
    doing = Doing.PREFILLING if prefix is not None else Doing.DECODING if turn is not None or rate else Doing.RESTING
    return Seat(
        tag=place.tag,
        model=run.model.name,
        doing=doing,
        n_tokens=prefix.n_done if prefix is not None else _cached(run),
        n_prefix=0 if prefix is None else prefix.n_tokens,
        kv_bytes=0 if run.cache is None else run.cache.used_bytes,
        held_bytes=run.held_bytes,
        place=0,
        tokens_per_s=rate,
    )


def _waiting(turn: Turn, run: Run, place: int) -> Seat:
    return Seat(
        tag=turn.tag,
        model=run.model.name,
        doing=Doing.QUEUED,
        n_tokens=0,
        n_prefix=len(run.ids),
        kv_bytes=0,
        held_bytes=0,
        place=place,
        tokens_per_s=0.0,
    )


def _cached(run: Run) -> int:
    """Positions in its cache, in the middle of a pass one more than its steps say; without one, those of its prefix."""
    return run.n_to_cache if run.cache is None else run.cache.n_tokens
