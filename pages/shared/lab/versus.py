"""Several sweeps side by side: those that were measured together, earlier ones, another machine's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from core.lab.sweep.plan import Cell
from pages.shared.html import Html
from pages.shared.html_parts import row, table
from pages.shared.lab.prediction import guessed, variant_name
from pages.shared.lab.shown import Shown
from pages.shared.lab.start import wanted_of
from pages.shared.language import t
from pages.shared.numbers import count, milliseconds, scaled_bytes
from pages.shared.units import units


def common_cell(all_shown: Sequence[Shown]) -> tuple[int, int] | None:
    """The longest context of the largest batch that all of them have measured; None where they share no point."""
    places = [{(cell.batch, cell.context) for cell in shown.found.cells} for shown in all_shown]
    shared = set.intersection(*places) if places else set()
    batch, context = max(shared, default=(0, 0))
    return (context, batch) if shared else None


def name_of(shown: Shown) -> str:
    """MHA, GQA, MQA, or the dtype, for one of several that were measured together; else its title."""
    sweep = shown.sweep
    if sweep is None or not sweep.compared:
        return shown.title
    wanted = wanted_of(sweep)
    kind = sweep.compared.partition(" ")[0]
    if kind == "heads" and wanted.shape is not None:
        return variant_name(replace(wanted, variant=f"kv{wanted.shape[2]}"))
    return sweep.head.get("dtype", shown.title)


def versus_table(all_shown: Sequence[Shown], place: tuple[int, int]) -> Html:
    """Bytes and seconds of each at one point."""
    cells = [_at(shown, place) for shown in all_shown]
    rows = [
        row(
            name_of(shown),
            scaled_bytes(cell.row.kv_bytes_formula, units()),
            scaled_bytes(cell.row.bytes_read, units()),
            milliseconds(cell.median_s),
            f"{milliseconds(cell.first_quartile_s)} – {milliseconds(cell.third_quartile_s)}",
            f"{cell.median_s / cells[0].median_s:.2f}×",
        )
        for shown, cell in zip(all_shown, cells, strict=True)
    ]
    heads = [t(f"lab.head_{name}") for name in ("which", "kv", "bytes_read", "median", "quartiles", "ratio")]
    return table(heads, rows)


def versus_text(all_shown: Sequence[Shown], place: tuple[int, int]) -> str:
    """Who is fastest there, and whether that is who reads least; of a comparison also what was guessed."""
    pairs = [(shown, _at(shown, place)) for shown in all_shown]
    fastest, quick = min(pairs, key=lambda pair: pair[1].median_s)
    least, small = min(pairs, key=lambda pair: pair[1].row.bytes_read)
    context, batch = place
    values = {
        "n": count(context),
        "batch": count(batch),
        "fastest": name_of(fastest),
        "seconds": milliseconds(quick.median_s),
        "least": name_of(least),
        "least_seconds": milliseconds(small.median_s),
        "bytes": scaled_bytes(small.row.bytes_read, units()),
    }
    key = "lab.versus_agree" if fastest is least else "lab.versus_differ"
    said = t(key, **values)
    kind = _kind(all_shown)
    if kind == "heads":
        said += " " + _heads_text([cell for _, cell in pairs])
    if kind == "dtypes":
        said += " " + t("lab.dtypes_why")
    guess = guessed(kind) if kind else None
    in_order = sorted(all_shown, key=lambda shown: shown.sweep.name if shown.sweep else "")
    if guess is not None and guess < len(in_order):
        is_right = in_order[guess] is fastest
        said += " " + t("lab.guess_right" if is_right else "lab.guess_wrong", guess=name_of(in_order[guess]))
    return said


def _kind(all_shown: Sequence[Shown]) -> str:
    """What they were measured together for; "" where they were not."""
    compared = {shown.sweep.compared if shown.sweep else "" for shown in all_shown}
    return compared.pop().partition(" ")[0] if len(compared) == 1 else ""


def _heads_text(cells: Sequence[Cell]) -> str:
    """Bytes against seconds from the most KV heads to the fewest; more is said where fewer take longer than more, and
    longer than repeats differ."""
    rising = sorted(cells, key=lambda cell: cell.row.kv_bytes_formula)
    least, most = rising[0], rising[-1]
    said = t(
        "lab.heads_ratio",
        kv=f"{most.row.kv_bytes_formula / least.row.kv_bytes_formula:.1f}",
        read=f"{most.row.bytes_read / least.row.bytes_read:.2f}",
        flops=f"{most.row.flops_exact / least.row.flops_exact:.2f}",
        seconds=f"{most.median_s / least.median_s:.2f}",
    )
    is_slower = any(more.third_quartile_s < fewer.first_quartile_s for fewer, more in pairwise(rising))
    return f"{said} {t('lab.heads_slower')}" if is_slower else said


def _at(shown: Shown, place: tuple[int, int]) -> Cell:
    cell = shown.found.cell(*place)
    assert cell is not None
    return cell
