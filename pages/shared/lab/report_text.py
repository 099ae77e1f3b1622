"""The lab report's sentences: how it was measured, and what the rows show. Every number in them is computed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from core.lab.sweep.report import BatchLaw, Findings, SweepReport, is_tested
from pages.shared.lab.report_tables import ms_column, r_squared, word
from pages.shared.lab.written import duration, rate, share, significant
from pages.shared.numbers import count

_STEPS = re.compile(r"median of (\d+) decode steps")


def method_sentences(report: SweepReport, found: Findings, language: str) -> Iterator[str]:
    """What was done, and what has to be known of it."""
    plan = report.plan
    planned = len(list(plan.spots()))
    yield word(
        "method_swept",
        language,
        model=report.model,
        contexts=_set(plan.contexts),
        batches=_set(plan.batches),
        repeats=count(plan.repeats),
        planned=count(planned),
    )
    steps = _STEPS.search(report.machine.get("step", ""))
    if steps:
        yield word("method_step", language, count=steps[1])
    yield word(f"method_fill_{plan.fill}", language)
    yield word("method_order", language)
    yield word("method_cells", language)
    if found.n_missing:
        yield word("method_missing", language, count=count(found.n_missing), planned=count(planned))
    if not report.rows:
        return
    if found.n_disturbed is None:
        yield word("method_unknown", language)
    elif found.n_disturbed:
        rows = count(len(report.rows))
        yield word("method_disturbed", language, count=count(found.n_disturbed), rows=rows)
    else:
        yield word("method_quiet", language)


def fit_sentences(found: Findings, language: str) -> Iterator[str]:
    """How well the law holds, and on what it was tested."""
    if not found.laws:
        yield word("fit_no_line", language)
    if found.joint is None:
        yield word("fit_none", language)
    elif is_tested(found.joint):
        points = count(len(found.joint.residuals))
        yield word("fit_joint", language, points=points, r_squared=r_squared(found.joint))
    else:
        yield word("fit_untested", language)
    if found.tested is not None:
        n_out = len(found.tested.points)
        used, error = count(len(found.cells) - n_out), share(found.tested.median_error)
        yield word("fit_held_out", language, used=used, out=count(n_out), error=error)
    elif found.joint is not None:
        yield word("fit_not_tested", language)


def shown_sentences(report: SweepReport, found: Findings, language: str) -> Iterator[str]:
    """What follows from the rows, each as a sentence of its own."""
    if found.kv_gap_bytes:
        yield word("shows_kv_gap", language, gap=count(found.kv_gap_bytes))
    else:
        yield word("shows_kv_equal", language, count=count(len(found.cells)))
    if found.position_bytes is not None and found.weight_bytes is not None:
        position, weights = count(found.position_bytes), count(found.weight_bytes)
        yield word("shows_position", language, position=position, weights=weights)
    ends = found.laws if len(found.laws) < 3 else (found.laws[0], found.laws[-1])
    for law in ends:
        yield _growth(law, ms_column(found.cells), language)
    if ends:
        yield from _intercept(report, found, ends[0], language)
    yield from _batching(found, language)
    if ends:
        yield from _bandwidth(ends[-1], report.roof_bytes_per_s, language)
    if found.tested is not None:
        out = count(len(found.tested.points))
        yield word("shows_held_out", language, out=out, error=share(found.tested.median_error))
    yield from _predictions(found, language)


def _growth(law: BatchLaw, ms: Callable[[float], str], language: str) -> str:
    first, last, slope = law.cells[0], law.cells[-1], law.fit.seconds_per_position(law.batch)
    if slope <= 0:
        return word("shows_flat", language, batch=count(law.batch), slope=duration(slope, 3))
    return word(
        "shows_rises",
        language,
        batch=count(law.batch),
        first=f"{ms(1e3 * first.median_s)} ms",
        last=f"{ms(1e3 * last.median_s)} ms",
        n_first=count(first.context),
        n_last=count(last.context),
        ratio=significant(last.median_s / first.median_s),
        slope=duration(slope, 3),
    )


def _intercept(report: SweepReport, found: Findings, law: BatchLaw, language: str) -> Iterator[str]:
    if law.intercept_s <= 0:
        yield word("shows_no_intercept", language, batch=count(law.batch), intercept=duration(law.intercept_s, 3))
        return
    last = law.cells[-1]
    of_step = law.intercept_share(last)
    yield word(
        "shows_intercept", language, batch=count(law.batch), context=count(last.context), share=share(min(1.0, of_step))
    )
    roof, weights = report.roof_bytes_per_s, found.weight_bytes
    if roof is not None and weights is not None and weights / roof < law.intercept_s:
        seconds = weights / roof
        rest = duration(law.intercept_s - seconds, 3)
        yield word(
            "shows_weights",
            language,
            weights=count(weights),
            roof=rate(roof),
            seconds=duration(seconds, 3),
            rest=rest,
        )
    if of_step > 0.5:
        yield word("shows_hidden", language)


def _batching(found: Findings, language: str) -> Iterator[str]:
    """The smallest batch against the largest, at the longest context that both have. There is a cell at least."""
    batches = sorted({cell.batch for cell in found.cells})
    least, most = batches[0], batches[-1]
    few, many = ({c.context: c.median_s for c in found.cells if c.batch == batch} for batch in (least, most))
    both = few.keys() & many.keys()
    if least == most or not both:
        return
    context = max(both)
    ratio = many[context] / few[context]
    yield word(
        "shows_batch",
        language,
        context=count(context),
        batch=count(most),
        least=count(least),
        ratio=significant(ratio),
        gain=significant(most / least / ratio),
    )


def _bandwidth(law: BatchLaw, roof: float | None, language: str) -> Iterator[str]:
    implied = law.implied_bytes_per_s
    if implied is None:
        return
    values = {"rate": rate(implied), "batch": count(law.batch)}
    if roof is None:
        yield word("shows_bandwidth", language, **values)
    elif implied > roof:
        yield word("shows_bandwidth_over_roof", language, **values, roof=rate(roof))
    else:
        yield word("shows_bandwidth_of_roof", language, **values, roof=rate(roof), share=share(implied / roof))


def _predictions(found: Findings, language: str) -> Iterator[str]:
    errors = [one.error for one in found.checked if one.error is not None]
    middle = found.median_prediction_error
    if middle is None:
        return
    low, high = sum(error < 0 for error in errors), sum(error > 0 for error in errors)
    yield word(
        "shows_predictions",
        language,
        count=count(len(errors)),
        error=share(middle),
        low=count(low),
        high=count(high),
    )


def _set(values: tuple[int, ...]) -> str:
    return f"{{{', '.join(map(count, sorted(values)))}}}"
