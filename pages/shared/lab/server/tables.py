"""A server's sweep as tables: what was measured, the floor, the cache, the law, an earlier sweep beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from core.estimate.floors import Floor
from core.lab.fit import Fit
from core.lab.remote.findings import ServerFindings
from core.lab.remote.under import Under, against
from core.lab.spread import Spread
from core.lab.sweep.report import is_tested
from core.words import sentence
from pages.shared.figures.lab_server import Floors
from pages.shared.html import Html
from pages.shared.html_parts import row
from pages.shared.html_parts import table as page_table
from pages.shared.lab.report_tables import table as report_table
from pages.shared.lab.written import duration, rate
from pages.shared.numbers import count, gap_percent, milliseconds, percent

NOTHING = "–"


class Numbers(NamedTuple):
    """A table before it is markup: heads by their words, and rows of texts."""

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def on_page(self, language: str) -> Html:
        """As the page has it."""
        return page_table(
            [sentence(f"server.head_{head}", language) for head in self.heads], [row(*cells) for cells in self.rows]
        )

    def in_report(self, language: str) -> Html:
        """As the report has it, with its caption."""
        caption = sentence(f"server.table_{self.name}", language)
        return report_table(self.heads, self.rows, language, caption, area="server")


def points_table(found: ServerFindings, language: str) -> Numbers:
    """What a client saw at every point."""
    rows = [
        (
            count(cell.context),
            count(cell.batch),
            f"{cell.n_measured} / {cell.n_repeats}",
            middle(cell.ttft),
            time_or_nothing(cell.ttft_last_s),
            middle(cell.step),
            NOTHING
            if cell.step is None or cell.n_used < 2
            else f"{milliseconds(cell.step.first_quartile_s)} – {milliseconds(cell.step.third_quartile_s)}",
            NOTHING if cell.step is None else sentence(f"server.{_how(cell.is_together)}", language),
            NOTHING if cell.tokens_per_s is None else f"{cell.tokens_per_s:,.1f}",
        )
        for cell in found.cells
    ]
    heads = ("n", "batch", "repeats", "first", "first_last", "step", "quartiles", "how", "tokens_rate")
    return Numbers("points", heads, rows)


def floor_table(found: ServerFindings, floors: Floors, language: str) -> Numbers:
    """Measured over floor, for a token and for the first one."""
    rows = []
    for cell in found.cells:
        under = floors.get((cell.context, cell.batch), Under(None, None))
        step, first = cell.step and cell.step.median_s, cell.ttft and cell.ttft.median_s
        rows.append(
            (
                count(cell.context),
                count(cell.batch),
                *_against(step, under.step, language),
                *_against(first, under.first, language),
            )
        )
    heads = ("step", "step_floor", "bound", "ratio", "first", "first_floor", "bound", "ratio")
    return Numbers("floor", ("n", "batch", *heads), rows)


def kv_table(found: ServerFindings) -> Numbers | None:
    """Positions that the server says it holds, beside n·B; None where it says nothing."""
    told = [cell for cell in found.cells if cell.kv_tokens is not None or cell.kv_share is not None]
    if not told:
        return None
    rows = []
    for cell in told:
        wanted, said = cell.context * cell.batch, cell.kv_tokens
        rows.append(
            (
                count(cell.context),
                count(cell.batch),
                count(wanted),
                NOTHING if said is None else count(round(said)),
                NOTHING if said is None else gap_percent(round(said), wanted),
                NOTHING if cell.kv_share is None else percent(cell.kv_share),
            )
        )
    return Numbers("kv", ("n", "batch", "positions", "kv_tokens", "kv_gap", "kv_share"), rows)


def law_table(found: ServerFindings, kv_bytes_per_token: int | None, language: str) -> Numbers:
    """a + b·n of each batch, and of all together where the points tell its coefficients apart."""
    rows: list[Sequence[str]] = []
    for law in found.laws:
        implied = None if kv_bytes_per_token is None else law.fit.implied_bandwidth(kv_bytes_per_token, law.batch)
        rows.append(
            (
                f"B={count(law.batch)}",
                duration(law.fit.coefficient("1")),
                duration(law.fit.seconds_per_position(law.batch)),
                NOTHING,
                NOTHING,
                _r_squared(law.fit),
                NOTHING if implied is None else rate(implied),
            )
        )
    if found.joint is not None:
        joint = found.joint
        terms = [duration(joint.coefficient(term)) for term in ("1", "n", "B", "B·n")]
        rows.append((sentence("server.all_batches", language), *terms, _r_squared(joint), NOTHING))
    return Numbers("law", ("law", "a", "b", "c", "e", "r_squared", "implied"), rows)


def earlier_table(found: ServerFindings, earlier: ServerFindings) -> Numbers | None:
    """Both sweeps where both have measured; a time per token only where both are of the same kind. None for nowhere."""
    rows = []
    for cell in found.cells:
        other = earlier.cell(cell.context, cell.batch)
        if other is None or cell.ttft is None or other.ttft is None:
            continue
        is_alike = cell.step is not None and other.step is not None and cell.is_together == other.is_together
        steps = (cell.step, other.step) if is_alike else (None, None)
        rows.append(
            (
                count(cell.context),
                count(cell.batch),
                *(middle(step) for step in steps),
                _ratio(*steps),
                middle(cell.ttft),
                middle(other.ttft),
                _ratio(cell.ttft, other.ttft),
            )
        )
    heads = ("n", "batch", "step", "step_earlier", "change", "first", "first_earlier", "change")
    return Numbers("earlier", heads, rows) if rows else None


def middle(spread: Spread | None) -> str:
    """A median as text."""
    return NOTHING if spread is None else milliseconds(spread.median_s)


def time_or_nothing(seconds: float | None) -> str:
    """Seconds as text."""
    return NOTHING if seconds is None else milliseconds(seconds)


def _how(is_together: bool) -> str:
    return "how_together" if is_together else "how_apart"


def _against(measured_s: float | None, floor: Floor | None, language: str) -> tuple[str, str, str, str]:
    ratio = against(measured_s, floor)
    if floor is None:
        return time_or_nothing(measured_s), NOTHING, NOTHING, NOTHING
    bound = sentence(f"server.bound_{floor.bound}", language)
    times = NOTHING if ratio is None else f"{ratio.ratio:,.2f}×"
    return time_or_nothing(measured_s), duration(float(floor.seconds), 3), bound, times


def _ratio(one: Spread | None, other: Spread | None) -> str:
    return NOTHING if one is None or other is None else f"{one.median_s / other.median_s:.2f}×"


def _r_squared(fit: Fit) -> str:
    return f"{fit.r_squared:.4f}" if is_tested(fit) else NOTHING
