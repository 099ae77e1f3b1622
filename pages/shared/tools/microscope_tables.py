"""The microscope's table: all operators of a layer, and their sums beside the ledger."""

from __future__ import annotations

import streamlit as st

from core.engine.dissection import Dissection
from core.engine.layer_operators import LayerOperator
from core.estimate.traffic import Operator
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.numbers import MINUS, count
from pages.shared.tools.microscope_walk import intensity, operator_name, short_time, time_of

COLUMNS = ("flops", "weights_read", "kv_read", "kv_written", "activations_read", "activations_written")
"""What is counted, as it stands in the table; all but the first in bytes."""
IN_LEDGER = COLUMNS[:3]


def all_operators(shown: Dissection) -> None:
    """Every operator of the layer in its pass, and what they add up to for the step, beside the step's own record."""
    st.html(fill('<h3 class="tbt-h2">{title}</h3>', title=t("microscope.table")))
    titles = [t(f"microscope.{name}") + ("" if name == "flops" else " (B)") for name in COLUMNS]
    names = [t("microscope.operator"), t("microscope.shapes"), *titles, t("microscope.intensity")]
    heads = join(column_head(name, is_shape=place == 1) for place, name in enumerate([*names, t("microscope.seconds")]))
    st.html(
        fill(
            '<div class="tbt-scroll" tabindex="0"><table class="tbt-anatomy"><thead><tr>{heads}</tr></thead>'
            "<tbody>{rows}</tbody><tfoot>{sums}</tfoot></table></div>",
            heads=heads,
            rows=join(_operator_row(shown, one) for one in shown.operators),
            sums=join(_sums(shown)),
        )
    )
    if any(len(timed.covers) > 1 for timed in shown.timings):
        st.html(note(t("microscope.fused")))


def column_head(name: str, is_shape: bool) -> Html:
    """Shapes are read from the left, figures from the right."""
    return fill('<th scope="col" class="{kind}">{name}</th>', kind="tbt-shape" if is_shape else "", name=name)


def _operator_row(shown: Dissection, one: LayerOperator) -> Html:
    timed = next((timed for timed in shown.timings if one.name in timed.covers), None)
    if timed is None or len(timed.covers) == 1:
        seconds = fill("<td>{time}</td>", time=time_of(shown, one.name))
    elif timed.covers[0] == one.name:
        seconds = fill('<td rowspan="{n}">{time}</td>', n=len(timed.covers), time=short_time(timed.seconds))
    else:
        seconds = Html("")
    shapes = " · ".join(f"{each.symbol} [{', '.join(map(count, each.sizes))}]" for each in one.inputs)
    return fill(
        '<tr class="{kind}"><td>{name}</td><td class="tbt-shape">{shapes}</td>'
        "{figures}<td>{intensity}</td>{seconds}</tr>",
        kind="" if one.is_product else "tbt-small-operator",
        name=operator_name(one.name),
        shapes=shapes,
        figures=_figures(one.cost),
        intensity=intensity(one),
        seconds=seconds,
    )


def _figures(cost: Operator) -> Html:
    return join(fill("<td>{value}</td>", value=count(getattr(cost, name))) for name in COLUMNS)


def _sums(shown: Dissection) -> list[Html]:
    """From the layer to the step, and the step as it is recorded."""
    head = shown.head[-1].cost
    layer, all_layers = shown.layer_seconds, shown.n_layers * shown.layer_seconds
    several = len(shown.passes) > 1
    whole_layer = shown.layer_cost
    layers = whole_layer._replace(**{name: shown.n_layers * getattr(whole_layer, name) for name in COLUMNS})
    rows = [_sum("sum_pass", shown.pass_cost, layer, is_part=True)]
    if several:
        rows.append(_sum("sum_layer", whole_layer, 0, is_part=True, passes=count(len(shown.passes))))
    rows += [
        _sum("sum_layers", layers, 0 if several else all_layers, is_part=True, layers=count(shown.n_layers)),
        _sum("sum_head", head, shown.head_seconds, is_part=True),
        _sum("sum_step", shown.step_cost, 0 if several or not layer else all_layers + shown.head_seconds),
        _ledger(
            t("microscope.sum_ledger"), [count(value) for value in _recorded(shown)], short_time(shown.event.seconds)
        ),
        _ledger(t("microscope.sum_gap"), [_signed(gap) for gap in shown.gaps], ""),
    ]
    return rows


def _sum(key: str, cost: Operator, seconds: float, is_part: bool = False, **values: str) -> Html:
    return fill(
        '<tr class="{kind}"><td colspan="2">{name}</td>{figures}<td>{intensity}</td><td>{time}</td></tr>',
        kind="tbt-part" if is_part else "",
        name=t(f"microscope.{key}", **values),
        figures=_figures(cost),
        intensity=f"{cost.intensity:.3g}",
        time=short_time(seconds) if seconds else t("microscope.not_counted"),
    )


def _recorded(shown: Dissection) -> tuple[int, int, int]:
    event = shown.event
    return event.flops_exact, event.weight_bytes_read, event.kv_bytes_read


def _ledger(name: str, values: list[str], time: str) -> Html:
    return fill(
        '<tr><td colspan="2">{name}</td>{values}<td colspan="{rest}"></td><td>{time}</td></tr>',
        name=name,
        values=join(fill("<td>{value}</td>", value=value) for value in values),
        rest=len(COLUMNS) - len(IN_LEDGER) + 1,
        time=time,
    )


def _signed(gap: int) -> str:
    return f"{MINUS if gap < 0 else '+' if gap > 0 else ''}{count(abs(gap))}"
