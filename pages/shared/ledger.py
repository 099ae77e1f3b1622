"""The ledger: one row a step, chapter, exact and measured side by side with the gap between them."""

from __future__ import annotations

from core.engine.trace import Phase, StepEvent, Trace
from pages.shared.html import Html, as_html, fill, join
from pages.shared.language import t
from pages.shared.numbers import count, gap_percent, milliseconds, scaled

COLUMNS = (
    "step",
    "token",
    "computed",
    "reused",
    "n",
    "flop_chapter",
    "flop_exact",
    "flop_gap",
    "kv_formula",
    "kv_tensors",
    "kv_gap",
    "time",
)


def ledger(trace: Trace) -> Html:
    """The table, in a box of its own that scrolls sideways on a narrow screen and stays at the newest row."""
    head = join(fill('<th scope="col">{text}</th>', text=t(f"column_{column}")) for column in COLUMNS)
    body = join(_row(number, event) for number, event in enumerate(trace.steps))
    return fill(
        '<div class="tbt-scroll tbt-newest" tabindex="0" role="region" aria-label="{label}"><table class="tbt-table">'
        "<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>",
        label=t("ledger"),
        head=head,
        body=body,
    )


def step_name(number: int, event: StepEvent) -> str:
    """What a step is called: "Prefill", "Decode 3", "Recompute 3"; the first of a run has no number."""
    name = t(f"phase_{event.phase}")
    return name if event.phase is Phase.PREFILL else f"{name} {number + (event.phase is Phase.RECOMPUTE)}"


def _row(number: int, event: StepEvent) -> Html:
    cells = (
        fill('<span class="tbt-{phase}-ink">{name}</span>', phase=event.phase, name=step_name(number, event)),
        fill('<bdi class="tbt-mono">{label}</bdi>', label=event.sampled.label if event.sampled else ""),
        count(event.new_positions),
        count(event.reused_positions),
        count(event.n_tokens),
        scaled(event.flops_chapter),
        scaled(event.flops_exact),
        gap_percent(event.flops_chapter, event.flops_exact),
        count(event.kv_bytes_formula),
        count(event.kv_bytes),
        f"{count(event.kv_bytes - event.kv_bytes_formula)} B",
        milliseconds(event.total_seconds),
    )
    return fill("<tr>{cells}</tr>", cells=join(Html(f"<td>{as_html(cell)}</td>") for cell in cells))
