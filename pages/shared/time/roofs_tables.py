"""The roofs and the steps below them as tables: records in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence

from core.lab.roofs.record import DTYPE_NAMES, Reading, Roofs
from core.lab.roofs.steps import MeasuredStep
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.numbers import count, milliseconds, percent, scaled, scaled_bytes
from pages.shared.units import units


def best_table(roofs: Roofs) -> Html:
    """One line a roof: what it is, how far it spread, what reached it."""
    best = [roofs.best("read"), roofs.best("copy"), *(roofs.best("product", name) for name in DTYPE_NAMES)]
    return _readings_table("best", [reading for reading in best if reading is not None])


def all_readings(roofs: Roofs) -> Html:
    """Every reading."""
    return _readings_table("kernel", roofs.readings)


def _readings_table(ran: str, readings: Sequence[Reading]) -> Html:
    heads = [t(f"roofs.head_{name}") for name in ("roof", "rate", "spread", ran, "threads")]
    return table(heads, [_reading_row(reading) for reading in readings])


def _reading_row(reading: Reading) -> Html:
    return row(
        t(f"roofs.roof_{reading.roof}", dtype=reading.dtype)
        if reading.roof == "product"
        else t(f"roofs.roof_{reading.roof}"),
        rate(reading.roof, reading.rate),
        f"{rate(reading.roof, reading.low)} – {rate(reading.roof, reading.high)}",
        f"{t(f'roofs.kernel_{reading.kernel}')} ({reading.dtype})",
        count(reading.n_threads),
    )


def rate(roof: str, value: float) -> str:
    """A roof's height: bytes a second in the visitor's units, or FLOP a second."""
    return f"{scaled(value)}FLOP/s" if roof == "product" else f"{scaled_bytes(round(value), units())}/s"


def caches_table(roofs: Roofs) -> Html:
    """The caches as the system describes them."""
    if roofs.caches is None:
        return note(t("roofs.caches_unknown"))
    rows = [
        row(
            t("roofs.cache_level", level=cache.level, kind=_cache_kind(cache.kind)),
            scaled_bytes(cache.n_bytes, "binary"),
            count(cache.count),
        )
        for cache in roofs.caches
    ]
    return table([t(f"roofs.head_{name}") for name in ("level", "size", "count")], rows)


def _cache_kind(kind: str) -> str:
    known = {"Data": "data", "Instruction": "instruction", "Unified": "unified"}
    return t(f"roofs.cache_{known[kind]}") if kind in known else kind


def curve_table(roofs: Roofs) -> Html:
    """How fast blocks of every size are read."""
    rows = [row(scaled_bytes(size, "binary"), rate("read", value)) for size, value in roofs.curve]
    return table([t("roofs.head_block"), t("roofs.head_rate")], rows)


def steps_table(steps: Sequence[MeasuredStep]) -> Html:
    """One line a step; its floor and share where there are roofs."""
    heads = ("phase", "n", "flops", "bytes", "intensity", "seconds", "reached", "floor", "share")
    return table([t(f"roofs.head_{name}") for name in heads], [_step_row(step) for step in steps])


def _step_row(step: MeasuredStep) -> Html:
    # What it reached, in the unit of its roof; where that is not known, of the one its phase is about.
    reads = step.phase == "decode" if step.bound is None else step.bound == "memory"
    return row(
        t(f"stage.phase_{step.phase}"),
        count(step.n_tokens),
        f"{scaled(step.flops)}FLOP",
        scaled_bytes(step.bytes_read, units()),
        intensity(step.intensity),
        milliseconds(step.seconds),
        rate("read", step.bytes_per_s) if reads else rate("product", step.flops_per_s),
        "–" if step.floor_s is None else milliseconds(step.floor_s),
        "–" if step.share is None else t(f"roofs.share_{step.bound}", share=percent(step.share)),
    )


def intensity(value: float) -> str:
    """FLOP a byte: 0.98, 1.6, 143."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
