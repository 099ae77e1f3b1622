"""`python -m core sweep --endpoint URL`: the sweep against a server that speaks OpenAI's protocol."""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from core.cli.values import one_line
from core.estimate import catalogue
from core.estimate.dtypes import kv_dtypes, weight_dtypes
from core.lab.remote.address import Address, address_of, key_from_environment
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.interface import Api
from core.lab.remote.limits import Limits
from core.lab.remote.patience import Pausing
from core.lab.remote.plan import RemotePlan
from core.lab.remote.point import RemotePoint
from core.lab.remote.server import Server
from core.lab.remote.sweep import RemoteSweep
from core.lab.remote.table import RemoteTable, row_of
from core.words import sentence

_INTERRUPTED = 130
# What an earlier file must agree in, so that one file is one sweep.
_SAME = ("endpoint", "served model", "interface", "new tokens", "model", "weights", "KV")


def sweep_endpoint(options: argparse.Namespace) -> int:
    """Measures a server point by point into the file, or goes on with the file of an earlier sweep.

    Returns:
        0 when every point is in the file; 2 with a sentence on stderr when some are not; 130 when interrupted. Finished
        points are in the file in each case, and the same command goes on behind them.

    Raises:
        Refusal: what is asked for cannot be begun.
    """
    address, key = address_of(options.endpoint), key_from_environment()
    plan = RemotePlan(
        contexts=tuple(options.contexts),
        batches=tuple(options.batches),
        repeats=options.repeats,
        new_tokens=options.new_tokens,
        shape=catalogue.shape(options.model) if options.model else None,
        weight_dtypes=weight_dtypes(options.weight_dtype),
        kv_dtypes=kv_dtypes(options.kv_dtype),
    )
    limits = Limits(
        requests=options.requests,
        total_s=options.total_s,
        first_token_s=options.first_token_s,
        between_tokens_s=options.between_tokens_s,
        retries=options.retries,
    )
    api = Api(options.api) if options.api else None
    sweep = RemoteSweep(address, key, plan, limits, options.served_model, api, on_pause=_say_pause)
    if key and address.scheme == "http" and not address.is_here:
        _say(sentence("endpoint.key_in_clear", "en"))
    with _interrupts(sweep.cancel), sweep:
        try:
            server = sweep.greet()
            heads = _heads(options, address, plan, server, sweep.seed)
            with RemoteTable(Path(options.csv), heads, _SAME) as table:
                return _measure(sweep, server, table, plan)
        except Fault as fault:
            _say(fault.sentence())
            return _INTERRUPTED if fault.kind is Kind.CANCELLED else 2


def _measure(sweep: RemoteSweep, server: Server, table: RemoteTable, plan: RemotePlan) -> int:
    n_done, n_given_up = len(table.done & set(plan.points())), 0
    planned = {"points": plan.n_points, "requests": f"{plan.n_requests:,}", "tokens": f"{plan.tokens:,}"}
    _say(sentence("endpoint.begins", "en", done=n_done, **planned))
    try:
        for point in sweep.points(server, table.done):
            table.add(row_of(point, plan))
            n_done, n_given_up = n_done + point.is_measured, n_given_up + (not point.is_measured)
            print(_line(point), flush=True)
    except Fault as fault:
        _say(sentence("endpoint.ended_early", "en", reason=fault.sentence(), done=n_done, points=plan.n_points))
        return _INTERRUPTED if fault.kind is Kind.CANCELLED else 2
    if n_given_up:
        _say(sentence("endpoint.some_given_up", "en", n=n_given_up, points=plan.n_points))
        return 2
    return 0


def _heads(
    options: argparse.Namespace, address: Address, plan: RemotePlan, server: Server, seed: int
) -> dict[str, str]:
    """What the file says of itself, in `# name: value` lines. The server's name for a model may be a path: its end."""
    name = server.model.rstrip("/").rsplit("/", 1)[-1] if server.model.startswith("/") else server.model
    return {
        "endpoint": str(address),
        "served model": name,
        "interface": str(server.api),
        "new tokens": str(plan.new_tokens),
        "model": options.model or "",
        "weights": options.weight_dtype if options.model else "",
        "KV": options.kv_dtype if options.model else "",
        "asked from": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "words": str(seed),
        "units": sentence("endpoint.units", "en"),
        "decode_step_s": sentence("endpoint.about_step", "en"),
        "kv_bytes_measured": sentence("endpoint.about_kv", "en"),
    }


def _line(point: RemotePoint) -> str:
    """A point for a reader, with a sentence for each note."""
    key = point.key
    head = f"n={key.context:<7} B={key.batch:<4} {key.repeat}"
    if point.fault is not None:
        return one_line(f"{head}  {point.fault.sentence()}")
    step, first = _milliseconds(point.decode_step_s), _milliseconds(point.ttft_s)
    notes = " ".join(sentence(f"endpoint.note_{note}", "en") for note in point.notes)
    counts = f"prompt {'?' if point.prompt_tokens is None else point.prompt_tokens}, {point.tokens} tokens"
    again = f", begun again {point.retries} times" if point.retries else ""
    return f"{head}  step {step} ms  first token {first} ms  {counts}{again}  {notes}".rstrip()


def _milliseconds(seconds: float | None) -> str:
    return f"{'–' if seconds is None else f'{seconds * 1e3:,.2f}':>9}"


def _say(text: str) -> None:
    print(one_line(text), file=sys.stderr, flush=True)


def _say_pause(pausing: Pausing) -> None:
    _say(sentence("endpoint.pausing", "en", reason=pausing.fault.sentence(), seconds=f"{pausing.seconds:.1f}"))


@contextmanager
def _interrupts(cancel: threading.Event) -> Iterator[None]:
    """An interrupt from the keyboard ends the sweep in order; a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupted(*_: object) -> None:
        signal.signal(signal.SIGINT, earlier)
        cancel.set()

    earlier = signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
