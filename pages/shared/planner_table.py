"""The planner's rows as a table, with the sentences below it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from core.estimate.estimate import notes_of
from core.estimate.floors import Floor
from core.words import sentence
from pages.shared.html import Html, fill, join
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds, scaled_bytes
from pages.shared.planner import Plan, PlannerRow, smallest_that_fit

NONE = "–"
# Column → whether a line below its name says in what it is counted. A column's key is its class in the sheet, too.
_COLUMNS = {
    "model": False,
    "accelerator": False,
    "weights": True,
    "kv": True,
    "needed": True,
    "fits": False,
    "max_context": True,
    "max_batch": True,
    "decode": True,
    "rate": True,
    "prefill": True,
}
_MOST_NAMED = 4


def planner_table(rows: Sequence[PlannerRow], plan: Plan, units: str) -> Html:
    """One line a row; the figure to the last digit is in the title of its cell."""
    models = [None, *((row.slug, row.model) for row in rows)]
    body = join(
        _line(row, units, is_first=(row.slug, row.model) != before) for row, before in zip(rows, models, strict=False)
    )
    cut = t("planner.cut", shown=count(len(rows)), asked=count(plan.n_rows)) if plan.n_rows > len(rows) else ""
    return fill(
        '<div class="tbt-scroll tbt-plan-scroll" tabindex="0" role="region" aria-label="{caption}">'
        '<table class="tbt-facts tbt-plan"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>{cut}'
        '<p class="tbt-note">{floors}</p>{notes}',
        caption=_caption(plan),
        heads=join(_head(name, has_unit) for name, has_unit in _COLUMNS.items()),
        body=body,
        cut=fill('<p class="tbt-notice tbt-info">{text}</p>', text=cut) if cut else Html(""),
        floors=t("planner.floors"),
        notes=_notes(rows),
    )


def plan_heading(plan: Plan) -> Html:
    """What the table is for: the batch, the context, the dtypes."""
    return fill('<h2 class="tbt-h2 tbt-plan-heading">{text}</h2>', text=_caption(plan))


def _caption(plan: Plan) -> str:
    request = plan.request
    return t(
        "planner.caption",
        batch=count(request.batch),
        context=count(request.context),
        weights=request.weight_dtypes,
        kv=request.kv_dtypes,
        share=f"{request.memory_fraction * 100:.4g}%",
    )


def _head(name: str, has_unit: bool) -> Html:
    return fill(
        '<th scope="col" class="tbt-plan-{name}">{text}{unit}</th>',
        name=name,
        text=t(f"planner.column_{name}"),
        unit=fill("<small>{text}</small>", text=t(f"planner.unit_{name}")) if has_unit else Html(""),
    )


def _line(row: PlannerRow, units: str, is_first: bool) -> Html:
    fit = row.fit
    cells = [
        fill(
            '<th scope="row" class="tbt-plan-model"><bdi>{name}</bdi><small>{card}</small></th>',
            name=row.model,
            card=row_card(row),
        ),
        _cell("accelerator", row_card(row), ""),
        _bytes("weights", row.weight_bytes, units),
        _bytes("kv", row.kv_bytes, units),
        _needed(row, units),
        _cell("fits", t("planner.yes") if fit.fits else t("planner.no"), ""),
        _most("max_context", fit.max_context, _beyond(row)),
        _most("max_batch", fit.max_batch),
        _time("decode", row.decode),
        _rate(row.most_tokens_per_s),
        _time("prefill", row.prefill),
    ]
    classes = f"tbt-plan-{'fits' if fit.fits else 'over'}-row{' tbt-plan-first' if is_first else ''}"
    return fill('<tr class="{classes}">{cells}</tr>', classes=classes, cells=join(cells))


def row_card(row: PlannerRow) -> str:
    """The accelerator, and how many of them where there are several: H100 SXM ×2."""
    return f"{row.accelerator.name} ×{row.ranks}" if row.ranks > 1 else row.accelerator.name


def _cell(name: str, text: object, title: str, below: str = "") -> Html:
    return fill(
        '<td class="tbt-plan-{name}"{title}>{text}{below}</td>',
        name=name,
        title=fill(' title="{title}"', title=title) if title else Html(""),
        text=text,
        below=fill("<small>{below}</small>", below=below) if below else Html(""),
    )


def _bytes(name: str, value: int, units: str) -> Html:
    return _cell(name, scaled_bytes(value, units), f"{count(value)} B")


def _needed(row: PlannerRow, units: str) -> Html:
    """Needed and capacity, and below them both as a bar: weights and cache against a mark where the device is full."""
    needed, capacity = row.fit.needed_bytes, row.fit.capacity_bytes
    whole = max(needed, capacity)
    text = fill(
        '<b>{needed}</b> / {capacity}<span class="tbt-plan-bar" aria-hidden="true">'
        '<i style="width:{weights}"></i><i style="width:{kv}"></i><u style="left:{mark}"></u></span>',
        needed=scaled_bytes(needed, units),
        capacity=scaled_bytes(capacity, units),
        weights=f"{row.weight_bytes / whole:.2%}",
        kv=f"{row.kv_bytes / whole:.2%}",
        mark=f"{capacity / whole:.2%}",
    )
    return _cell("needed", text, f"{count(needed)} B / {count(capacity)} B")


def _most(name: str, value: int | None, below: str = "") -> Html:
    if value is None:
        return _cell(name, t("planner.no_limit"), t("planner.no_limit_help"))
    return _cell(name, count(value), "", below)


def _beyond(row: PlannerRow) -> str:
    """What a reader of the longest context should know: the model itself was made for less."""
    limit, longest = row.made.shape.context_limit, row.fit.max_context
    return t("planner.made_for", limit=count(limit)) if limit and longest and longest > limit else ""


def _time(name: str, floor: Floor | None) -> Html:
    if floor is None:
        return _cell(name, NONE, t("planner.no_peak"))
    seconds = float(floor.seconds)
    return _cell(name, f"≥ {milliseconds(seconds)}", f"{seconds!r} s", t(f"planner.bound_{floor.bound}"))


def _rate(tokens_per_s: float | None) -> Html:
    if tokens_per_s is None:
        return _cell("rate", NONE, t("planner.no_peak"))
    return _cell("rate", f"≤ {rate(tokens_per_s)}", f"{tokens_per_s!r} tokens/s")


def rate(value: float) -> str:
    """So many a second, to three figures or the last whole one: 0.0123, 48.3, 12,345."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _notes(rows: Sequence[PlannerRow]) -> Html:
    """What a reader of the figures should know, by model or accelerator, folded away; empty where there is nothing."""
    told: dict[str, dict[str, None]] = {}
    for row in rows:
        no_peak = sentence("estimate.note_peak_unknown", language(), accelerator=row.accelerator.name)
        for note in notes_of(row.made, language()):
            told.setdefault(row.accelerator.name if note == no_peak else row.model, {})[note] = None
    if not told:
        return Html("")
    lines = join(
        fill("<dt><bdi>{model}</bdi></dt>{notes}", model=model, notes=join(fill("<dd>{n}</dd>", n=n) for n in notes_))
        for model, notes_ in told.items()
    )
    title = t("planner.notes", count=sum(len(said) for said in told.values()))
    return fill(
        '<details class="tbt-plan-notes"><summary>{title}</summary><dl>{lines}</dl></details>', title=title, lines=lines
    )


def takeaway(rows: Sequence[PlannerRow], plan: Plan) -> Html:
    """In which of the rows each model first fits."""
    found = smallest_that_fit(rows)
    clauses = [_clause(name, row) for name, row in found[:_MOST_NAMED]]
    if len(found) > _MOST_NAMED:
        fitting = sum(row is not None for _, row in found)
        clauses.append(t("planner.fitting_of_all", fitting=fitting, models=len(found)))
    named = reduce(lambda before, clause: t("planner.two_clauses", before=before, next=clause), clauses)
    request = plan.request
    text = t("planner.takeaway", batch=count(request.batch), context=count(request.context), found=named)
    return fill('<p class="tbt-takeaway">{text}</p>', text=text)


def _clause(name: str, row: PlannerRow | None) -> str:
    if row is None:
        return t("planner.fits_nowhere", model=name)
    return t("planner.fits_first", model=name, card=row_card(row))
