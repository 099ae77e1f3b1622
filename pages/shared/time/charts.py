"""Page 4's charts of an estimate: core's figures, and in words what they say where the dials stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from core.estimate.accelerators import accelerator_named
from core.estimate.attention_roof import attention_roofs
from core.estimate.batch_picture import batch_picture
from core.estimate.curves import CONTEXTS, reach, spread
from core.estimate.custom import CUSTOM
from core.estimate.estimate import Estimate, Request, estimate
from core.estimate.observed import decode_band
from core.estimate.roofline import Placed, Roof, decode_pass, placed, prefill_pass
from core.estimate.score_table import (
    attention_flops,
    attention_intensity,
    intensity_limit,
    linear_seconds,
    outweighs_at,
    table_bytes,
    table_traffic,
)
from core.estimate.shape import ModelShape
from core.estimate.where import roof, where_json
from pages.shared.figures.batching import batching
from pages.shared.figures.chart import Figure, Say, Told
from pages.shared.figures.roofline import Trail, roofline
from pages.shared.figures.time_bars import Step, time_bars
from pages.shared.figures.time_lines import TableTimes, score_table
from pages.shared.figures.time_lines import attention_roofs as attention_figure
from pages.shared.numbers import percent, significant
from pages.shared.time.machine import this_machine

FIRST_CARD = "h100-sxm"
"""What is drawn where no card is chosen, or one whose peak nobody states."""
STEP_CONTEXTS = (1024, 8192, 32_768, 131_072)
_POINTS_APART = 4


def on_a_card(made: Estimate) -> tuple[Estimate, Roof]:
    """The estimate on its card and the card's roof; on FIRST_CARD where it has none."""
    own = roof(made)
    if own is not None:
        return made, own
    there = estimate(made.shape, replace(made.request, accelerator=accelerator_named(FIRST_CARD)))
    found = roof(there)
    assert found is not None
    return there, found


def card_name(request: Request, say: Say) -> str:
    """What the card of a request is called."""
    card = request.accelerator
    return "" if card is None else say.word("custom") if card.slug == CUSTOM else card.name


def time_say(say: Say) -> Say:
    """The same, in this page's words."""
    return replace(say, area="time")


def _roofline(of_machine: bool, made: Estimate, say: Say) -> Figure:
    say = time_say(say)
    machine = this_machine() if of_machine else None
    on_card, own = on_a_card(made)
    device = card_name(on_card.request, say)
    if machine is not None:
        own, device = machine
    shape, request = made.shape, made.request
    decode, prefill = placed(shape, decode_pass(request), own), placed(shape, prefill_pass(request), own)
    told = [_told("decode", decode, own, say), _told("prefill", prefill, own, say)]
    return roofline(own, decode, prefill, trails(shape, request, own), told, device, say)


def trails(shape: ModelShape, request: Request, own: Roof) -> tuple[Trail, ...]:
    """Decode over the batch and over the context, prefill over its length; as wide as the charts of page 3."""
    contexts = spread(1, reach(request.context, CONTEXTS))[::_POINTS_APART]
    batches = spread(1, reach(request.batch, (4096, 1 << 20)))[::_POINTS_APART]
    return (
        Trail("decode_batch", tuple(placed(shape, decode_pass(request, batch=batch), own) for batch in batches)),
        Trail("decode_context", tuple(placed(shape, decode_pass(request, n_tokens=n), own) for n in contexts)),
        Trail("prefill_context", tuple(placed(shape, prefill_pass(request, n_tokens=n), own) for n in contexts)),
    )


def _told(phase: str, made: Placed, own: Roof, say: Say) -> Told:
    share = percent(made.flops_per_s / own.peak_flops)
    return Told("●", say.word(f"told_{phase}", intensity=significant(made.intensity), share=share))


def _step(made: Estimate, say: Say) -> Figure:
    say = time_say(say)
    made, own = on_a_card(made)
    return time_bars(steps(made, own), made.shape.has_latents, say)


def steps(made: Estimate, own: Roof) -> list[Step]:
    """The decode step of the dials and those of STEP_CONTEXTS; a band beside one request, where there are records."""
    request, band = made.request, decode_band()
    found = []
    for n in (request.context, *STEP_CONTEXTS):
        split = placed(made.shape, decode_pass(request, n_tokens=n), own).split
        is_observed = request.batch == 1 and request.ranks == 1 and split.bound == "memory"
        found.append(Step(n, split, (split.floor_s * band.least, split.floor_s * band.most) if is_observed else None))
    return found


def _batching(made: Estimate, say: Say) -> Figure:
    say = time_say(say)
    made, own = on_a_card(made)
    picture, figures = batch_picture(made.shape, made.request, own), where_json(made)["batching"]
    ceiling, limit, full = (figures[name] for name in ("ceiling", "limit", "limit_full"))
    now, most = significant(picture.now[1]), significant(ceiling or picture.now[1])
    told = [
        Told("●", say.word("told_now", intensity=now, ceiling=most)),
        Told(" ", say.word("told_no_limit") if limit is None else say.word("told_limit", n=say.written_count(limit))),
        Told(" ", _told_full(full, say)),
    ]
    return batching(picture, told, say)


def _told_full(full: int | None, say: Say) -> str:
    if full is None:
        return say.word("told_no_full")
    return say.word("told_full", n=say.written_count(full)) if full else say.word("told_full_never")


def _attention(made: Estimate, say: Say) -> Figure:
    say = time_say(say)
    made, own = on_a_card(made)
    rises, request = attention_roofs(made.shape, made.request), made.request
    last = rises.lines[-1]
    told = [
        Told(
            "━",
            say.word(
                "told_attention",
                model=last.model,
                intensity=significant(made.decode.intensity),
                roof=significant(last.roof),
            ),
        )
    ]
    return attention_figure(rises, own.ridge, request.context, told, say)


def _scores(made: Estimate, say: Say) -> Figure:
    say = time_say(say)
    made, own = on_a_card(made)
    shape, request = made.shape, made.request
    batch, n = request.batch, request.context
    x = spread(64, max(reach(n, CONTEXTS), 128))[::2]
    times = TableTimes(
        x=x,
        linear_s=tuple(linear_seconds(shape, one, own, batch) for one in x),
        attention_s=tuple(attention_flops(shape, one, batch) / own.peak_flops for one in x),
        table_s=tuple(table_traffic(shape, one, batch) / own.bandwidth_bytes_per_s for one in x),
    )
    crossing = outweighs_at(shape, own)
    told = []
    if crossing is not None:
        at = linear_seconds(shape, round(crossing), own, batch)
        told.append(Told("diamond", say.word("told_outweighs", n=say.written_count(round(crossing))), crossing, at))
        limit = significant(intensity_limit(shape))
        told.append(
            Told(" ", say.word("told_plain", intensity=significant(attention_intensity(shape, n)), limit=limit))
        )
    size = say.written_bytes(table_bytes(shape, n, batch))
    told.append(Told(" ", say.word("told_table", n=say.written_count(n), bytes=size)))
    return score_table(times, n, told, say)


TIME_CHARTS: dict[str, Callable[[Estimate, Say], Figure]] = {
    "roofline": partial(_roofline, False),
    "roofline_machine": partial(_roofline, True),
    "step_time": _step,
    "batching": _batching,
    "attention_roof": _attention,
    "score_table": _scores,
}
