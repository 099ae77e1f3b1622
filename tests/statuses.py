"""Made-up statuses of the engine: what a class of so many would look like."""

from __future__ import annotations

from core.engine.status import BatchPoint, Doing, Measuring, ModelStatus, Seat, Status

KV_PER_TOKEN, WEIGHTS = 23_040, 269_030_016
MODEL, SMALL = "smollm2", "tiny"


def seat(tag: str, doing: Doing, n: int, *, prefix: int = 0, place: int = 0, rate: float = 0.0) -> Seat:
    """One run; its cache is held in blocks of 64 positions."""
    return Seat(
        tag=tag,
        model=MODEL,
        doing=doing,
        n_tokens=n,
        n_prefix=prefix,
        kv_bytes=n * KV_PER_TOKEN,
        held_bytes=-(-n // 64) * 64 * KV_PER_TOKEN,
        place=place,
        tokens_per_s=rate,
    )


def points(most: int) -> tuple[BatchPoint, ...]:
    """A step of B runs takes 14 ms and 1.9 ms for each further one."""
    steps = {batch: 0.0142 + 0.0019 * (batch - 1) for batch in range(1, most + 1)}
    return tuple(
        BatchPoint(batch=batch, n_passes=max(1, 160 // batch), step_s=step_s, tokens_per_s=batch / step_s)
        for batch, step_s in steps.items()
    )


def status(seats: tuple[Seat, ...], by_batch: tuple[BatchPoint, ...], *, measuring: Measuring | None = None) -> Status:
    """The engine with these runs; all that decode are in its newest pass."""
    batch = sum(seat.doing is Doing.DECODING for seat in seats)
    step_s = 0.0142 + 0.0019 * (batch - 1)
    model = ModelStatus(
        model=MODEL,
        batch=batch,
        step_s=step_s,
        tokens_per_s=batch / step_s if batch else 0.0,
        weight_bytes=WEIGHTS,
        by_batch=by_batch,
    )
    held = sum(seat.held_bytes for seat in seats)
    return Status(
        seats=seats,
        models=(model,),
        budget_bytes=2 * 2**30,
        promised_bytes=held + len(seats) * 64 * KV_PER_TOKEN,
        held_bytes=held,
        n_queued=sum(seat.doing is Doing.QUEUED for seat in seats),
        n_restarts=0,
        measuring=measuring,
    )


def alone(own: str) -> Status:
    """One visitor, who decodes."""
    return status((seat(own, Doing.DECODING, 61, rate=70.4),), points(1))


def beside_home(own: str) -> Status:
    """One visitor, who decodes together with the run of the home page."""
    return status((seat("home", Doing.DECODING, 44, rate=3.3), *alone(own).seats), points(2))


def seven(own: str) -> Status:
    """Seven people: five decode, one is prefilled, one rests."""
    return status(
        (
            *(seat(f"a{n}", Doing.DECODING, 40 + 83 * n, rate=45.8) for n in range(1, 5)),
            seat(own, Doing.DECODING, 118, rate=45.8),
            seat("b1", Doing.PREFILLING, 128, prefix=512),
            seat("b2", Doing.RESTING, 77),
        ),
        points(5),
    )


def queued(own: str) -> Status:
    """Seven people, and three who wait for memory, the visitor last."""
    waiting = (seat(tag, Doing.QUEUED, 0, place=n) for n, tag in ((1, "g1"), (2, "g2"), (3, own)))
    return status((*seven("a5").seats, *waiting), points(5))


def forty(own: str) -> Status:
    """Forty people: most decode, some wait for memory."""
    return status(
        (
            *(seat(f"c{n:02}", Doing.DECODING, 60 + (n * 97) % 900, rate=14.8) for n in range(1, 29)),
            seat(own, Doing.DECODING, 402, rate=14.8),
            *(seat(f"d{n}", Doing.RESTING, 90 + 31 * n) for n in range(1, 7)),
            seat("e1", Doing.PREFILLING, 256, prefix=1900),
            *(seat(f"f{n}", Doing.QUEUED, 0, place=n) for n in range(1, 5)),
        ),
        points(29),
    )
