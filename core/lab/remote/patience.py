"""Asking again: what may pass by itself is waited out, longer each time, and as long as the server says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from core.lab.remote.faults import Fault, Kind
from core.lab.remote.limits import Limits
from core.lab.remote.watch import Watch

Answer = TypeVar("Answer")


class Pausing(NamedTuple):
    """A repetition to come: what happened, and how long is waited before it."""

    fault: Fault
    seconds: float


def patiently(
    ask: Callable[[], Answer], limits: Limits, watch: Watch, on_pause: Callable[[Pausing], None]
) -> tuple[Answer, int]:
    """What `ask` returns, and how many times it had to be asked again.

    Pauses double, each by a random part shorter so that many clients do not come back at once; a server's Retry-After
    counts where it is longer.

    Raises:
        Fault: the last one met; one that cannot pass at once; LONG_WAIT where the server asks for a longer pause than
            is allowed, which is not cut short.
    """
    for n_retries in range(limits.retries + 1):
        try:
            watch.check()
            return ask(), n_retries
        except Fault as fault:
            if not fault.is_passing or n_retries == limits.retries:
                raise
            asked_for = fault.retry_after_s or 0.0
            if asked_for > limits.longest_pause_s:
                raise Fault(Kind.LONG_WAIT, status=fault.status, said=fault.said) from None
            doubled = min(limits.first_pause_s * 2**n_retries, limits.longest_pause_s)
            seconds = max(asked_for, doubled * random.uniform(0.5, 1.0))
            on_pause(Pausing(fault, seconds))
            watch.pause(seconds)
    raise AssertionError("the last attempt returns or raises")
