"""A server's sweep in sentences: what is unusual about it, what its floors say, and what it proves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from statistics import median
from typing import NamedTuple

from core.estimate.observed import Against, against_floor
from core.lab.remote.findings import ServerCell, ServerFindings
from core.lab.remote.under import Assumed, against
from core.words import sentence
from pages.shared.figures.lab_server import Floors
from pages.shared.lab.written import duration, rate, signed_share
from pages.shared.numbers import count, milliseconds, percent


class Ratio(NamedTuple):
    """A cell whose time was put against its floor: of a token ("step"), or of the first one ("first")."""

    kind: str
    cell: ServerCell
    measured_s: float
    floor_s: float
    against: Against


def word(key: str, language: str, **values: object) -> str:
    """A text of this panel."""
    return sentence(f"server.{key}", language, **values)


def ratios(found: ServerFindings, floors: Floors) -> list[Ratio]:
    """Every measured time that has a floor."""
    made = []
    for cell in found.cells:
        under = floors.get((cell.context, cell.batch))
        if under is None:
            continue
        for kind, spread, floor in (("step", cell.step, under.step), ("first", cell.ttft, under.first)):
            one = against(spread and spread.median_s, floor)
            if one is not None and spread is not None and floor is not None:
                made.append(Ratio(kind, cell, spread.median_s, float(floor.seconds), one))
    return made


def unusual(found: ServerFindings, language: str) -> Iterator[str]:
    """Notes, points given up and repetitions, each with how many points it is true of."""
    every = count(found.n_points)
    told = chain(
        ((n, f"endpoint.note_{note}") for note, n in found.notes.most_common()),
        ((n, f"endpoint.fault_{kind}") for kind, n in found.faults.most_common()),
    )
    for n, key in told:
        name = "given_up" if key.startswith("endpoint.fault") else "noted"
        yield word(name, language, n=count(n), all=every, what=sentence(key, language))
    if found.n_again:
        yield word("again", language, n=count(found.n_again), times=count(found.n_retries), all=every)


def floor_sentences(found: ServerFindings, floors: Floors, assumed: Assumed, language: str) -> Iterator[str]:
    """What the floors are of, how far above them the points lie, and how much memory it would take."""
    every = ratios(found, floors)
    for kind in ("step", "first"):
        # Of whole answers only that a token is no faster than its floor is known, not how many shared its step.
        own = [one.against.ratio for one in every if one.kind == kind and (kind == "first" or one.cell.is_together)]
        if own and against_floor(min(own), 1.0).is_possible:  # else it is said that the floor is none
            values = {"least": f"{min(own):,.2f}", "most": f"{max(own):,.2f}", "middle": f"{median(own):,.2f}"}
            yield word(f"floor_{kind}", language, n=count(len(own)), **values)
    largest = max(found.cells, key=lambda cell: cell.context * cell.batch)
    fit = assumed.made(largest.context, largest.batch).fit
    if fit is not None and not fit.fits:
        yield word("floor_no_room", language, n=count(largest.context), batch=count(largest.batch))
    if assumed.shape.has_experts:
        yield word("floor_experts", language)


def impossible(found: ServerFindings, floors: Floors, language: str) -> str:
    """That the assumption cannot be right, by the point that lies farthest below its floor; "" where none does."""
    below = [one for one in ratios(found, floors) if not one.against.is_possible]
    if not below:
        return ""
    worst = min(below, key=lambda one: one.against.ratio)
    return word(
        f"impossible_{worst.kind}",
        language,
        n=count(worst.cell.context),
        batch=count(worst.cell.batch),
        measured=milliseconds(worst.measured_s),
        floor=milliseconds(worst.floor_s),
        points=count(len(below)),
    )


def cache_text(found: ServerFindings, language: str) -> str:
    """How many more positions the server counts than n·B; "" where it counts none."""
    gaps = [
        cell.kv_tokens / (cell.context * cell.batch) - 1
        for cell in found.cells
        if cell.kv_tokens is not None and cell.n_measured
    ]
    if not gaps:
        return ""
    if not any(gaps):
        return word("kv_exact", language, n=count(len(gaps)))
    return word("kv_between", language, n=count(len(gaps)), least=signed_share(min(gaps)), most=signed_share(max(gaps)))


def law_sentences(
    found: ServerFindings, kv_bytes_per_token: int | None, assumed: Assumed | None, language: str
) -> Iterator[str]:
    """How well the law foresees what it has not seen, and what its slope would mean as a bandwidth."""
    if found.tested is not None:
        out = len(found.tested.points)
        used = len(found.tested.fit.residuals)
        yield word("held_out", language, used=count(used), out=count(out), error=percent(found.tested.median_error))
    for law in reversed(found.laws):
        implied = None if kv_bytes_per_token is None else law.fit.implied_bandwidth(kv_bytes_per_token, law.batch)
        if implied is not None and assumed is not None:
            whole = assumed.accelerator.bandwidth_bytes_per_s * assumed.ranks
            values = {"implied": rate(implied), "whole": rate(whole), "share": percent(implied / whole)}
            yield word("implied", language, batch=count(law.batch), **values)
            return
        if law.fit.coefficient("n") <= 0:
            yield word("flat", language, batch=count(law.batch))
            return


def takeaway_text(found: ServerFindings, floors: Floors, language: str) -> str:
    """What the points prove, in a sentence or two."""
    parts = [_concurrency(found, language) or _length(found, language)]
    own = [one.against.ratio for one in ratios(found, floors) if one.kind == "step" and one.cell.is_together]
    if own and min(own) >= 1:
        parts.append(word("takeaway_floor", language, least=f"{min(own):,.1f}", most=f"{max(own):,.1f}"))
    return ("" if language == "zh" else " ").join(part for part in parts if part)


def earlier_text(found: ServerFindings, earlier: ServerFindings, language: str) -> str:
    """By how much a token and a first token changed, in the middle of the points that both have; "" without any."""
    pairs = [(cell, other) for cell in found.cells if (other := earlier.cell(cell.context, cell.batch))]
    first = [one.ttft.median_s / other.ttft.median_s for one, other in pairs if one.ttft and other.ttft]
    step = [
        one.step.median_s / other.step.median_s
        for one, other in pairs
        if one.step and other.step and one.is_together == other.is_together
    ]
    if not first or not step:
        return ""
    return word(
        "takeaway_earlier", language, n=count(len(step)), step=f"{median(step):.2f}", first=f"{median(first):.2f}"
    )


def _concurrency(found: ServerFindings, language: str) -> str:
    """From the fewest to the most requests at once, at the longest context that has both; "" where none has."""
    together = [cell for cell in found.cells if cell.tokens_per_s is not None]
    for context in sorted({cell.context for cell in together}, reverse=True):
        own = [cell for cell in together if cell.context == context]
        if len(own) < 2:
            continue
        few, many = own[0], own[-1]
        assert few.step and many.step and few.ttft and many.ttft
        rates = (few.batch / few.step.median_s, many.batch / many.step.median_s)
        return word(
            "takeaway_batch",
            language,
            n=count(context),
            few=count(few.batch),
            many=count(many.batch),
            tokens=f"{rates[1] / rates[0]:,.2f}",
            step=f"{many.step.median_s / few.step.median_s:,.2f}",
            first=f"{many.ttft.median_s / few.ttft.median_s:,.2f}",
        )
    return ""


def _length(found: ServerFindings, language: str) -> str:
    """From the shortest to the longest context of the first batch that has two; else what one point says."""
    measured = [cell for cell in found.cells if cell.ttft]
    for batch in found.batches:
        own = [cell for cell in measured if cell.batch == batch]
        if len(own) > 1:
            short, long = own[0], own[-1]
            assert short.ttft and long.ttft
            return word(
                "takeaway_length",
                language,
                batch=count(batch),
                short=count(short.context),
                long=count(long.context),
                times=f"{long.context / short.context:,.1f}",
                first=f"{long.ttft.median_s / short.ttft.median_s:,.2f}",
            )
    for cell in measured:
        assert cell.ttft
        return word(
            "takeaway_one",
            language,
            n=count(cell.context),
            batch=count(cell.batch),
            first=duration(cell.ttft.median_s, 3),
        )
    return word("takeaway_none", language)
