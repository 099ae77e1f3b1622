"""The layer as a path of operators, and the card of the one that was chosen."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from core.engine.dissection import Dissection
from core.engine.layer_operators import FUSED, LayerOperator, Operand
from pages.shared.figures.microscope import Product, Stop, path_of_layer
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.numbers import count, milliseconds, scaled, scaled_bytes
from pages.shared.opened_parts import word
from pages.shared.units import units

_CHOSEN = "microscope_operator"
FIRST = "qkv"
BYTES = ("weights_read", "kv_read", "kv_written", "activations_read", "activations_written")
"""What is counted of an operator besides its FLOP, in bytes."""
KINDS = {"W": "weights", "Q": "q", "K": "k", "V": "v", "S": "a", "A": "a"}
"""What colour a tensor has by its symbol; rows of activations have none."""


def walk(shown: Dissection) -> None:
    """The path with its operators to choose from, one after another or any, and the chosen one's card."""
    listed = {one.name: one for one in (*shown.operators, *shown.head)}
    called = {name: operator_name(name) for name in listed}
    names = list(listed)
    if st.session_state.get(_CHOSEN) not in listed:
        st.session_state[_CHOSEN] = FIRST
    at = names.index(st.session_state[_CHOSEN])
    # The head is far wider than anything in a layer: it is named, not drawn.
    drawn = {one.name: product_of(one) for one in shown.operators}
    stops = [Stop(name, called[name], drawn.get(name), _below(shown, one)) for name, one in listed.items()]
    title = t("microscope.path", layer=count(shown.layer))
    st.html(Html(path_of_layer(stops, names[at], title)))
    st.html(note(t("microscope.path_legend")))
    with st.container(horizontal=True, key="microscope_walk"):
        for key, to in (("previous", at - 1), ("next", at + 1)):
            is_there = 0 <= to < len(names)
            st.button(
                t(f"microscope.{key}"),
                key=f"microscope_{key}",
                disabled=not is_there,
                on_click=_go,
                args=(names[to] if is_there else names[at],),
            )
        st.pills(
            t("microscope.walk"),
            names,
            format_func=called.__getitem__,
            key=_CHOSEN,
            required=True,
            label_visibility="collapsed",
            persist_state="session",
        )
    _card(shown, listed[names[at]])


def _go(name: str) -> None:
    st.session_state[_CHOSEN] = name


def operator_name(name: str) -> str:
    """What an operator is called."""
    return t(f"microscope.op_{name}")


def product_of(one: LayerOperator) -> Product | None:
    """An operator as a product of two blocks; of attention, what one KV head has to do."""
    if not one.is_product:
        return None
    left, right = one.inputs
    columns, inner = right.sizes[-2:]
    if one.name == "gathering":
        columns, inner = inner, columns
    return Product(one.n_rows, inner, columns, KINDS.get(left.symbol, "x"), KINDS.get(right.symbol, "x"))


def _below(shown: Dissection, one: LayerOperator) -> str:
    """The operator's time, where it was timed alone, else its FLOP."""
    if seconds := shown.seconds_of(one.name):
        return short_time(seconds)
    return f"{scaled(one.cost.flops)}FLOP" if one.is_product else ""


def _card(shown: Dissection, one: LayerOperator) -> None:
    with st.container(key="microscope_card"):
        with st.container():
            st.html(
                fill(
                    "<h3>{name}</h3><p>{about}</p>{operands}{notes}",
                    name=operator_name(one.name),
                    about=t(f"microscope.about_{one.name}"),
                    operands=_operands(one),
                    notes=join(note(text) for text in _notes(one)),
                )
            )
            if one.flops is not None:
                st.html(note(t("microscope.formula_c")))
                st.latex(one.flops.formula(word))
                st.latex(one.flops.substituted())
        st.html(fill('<dl class="tbt-figures">{rows}</dl>', rows=join(_figures(shown, one))))


def _operands(one: LayerOperator) -> Html:
    """Shapes in symbols and in numbers: what goes in, and what comes out."""
    rows = [_operand(each, "") for each in one.inputs] + [_operand(one.output, t("microscope.comes_out"))]
    return fill('<ul class="tbt-operands">{rows}</ul>', rows=join(rows))


def _operand(operand: Operand, says: str) -> Html:
    return fill(
        '<li class="tbt-of-{kind}"><small>{says}</small>{symbol} [{axes}] = [{sizes}]</li>',
        kind=KINDS.get(operand.symbol, "x"),
        says=says,
        symbol=operand.symbol,
        axes=", ".join(axis for axis, _ in operand.axes),
        sizes=", ".join(map(count, operand.sizes)),
    )


def _notes(one: LayerOperator) -> list[str]:
    if not one.is_product:
        return [t("microscope.no_product")]
    if one.name not in FUSED:
        return []
    heads = one.inputs[0].sizes[1] // one.inputs[1].sizes[1]
    return [t("microscope.rows_shared", heads=count(heads), rows=count(one.n_rows))] if heads > 1 else []


def _figures(shown: Dissection, one: LayerOperator) -> list[Html]:
    cost = one.cost
    rows: Mapping[str, tuple[str, str]] = {
        "flops": (f"{count(cost.flops)} FLOP", ""),
        **{name: (f"{count(getattr(cost, name))} B", "") for name in BYTES if getattr(cost, name)},
        "intensity": (intensity(one), _why(one)),
        "seconds": (time_of(shown, one.name), ""),
    }
    return [
        fill(
            "<dt>{name}</dt><dd>{value}{why}</dd>",
            name=t(f"microscope.{name}"),
            value=value,
            why=fill("<small>{why}</small>", why=why) if why else Html(""),
        )
        for name, (value, why) in rows.items()
    ]


def _why(one: LayerOperator) -> str:
    if not one.is_product:
        return ""
    values = {"flops": f"{scaled(one.cost.flops)}FLOP", "bytes": scaled_bytes(one.cost.bytes_moved, units())}
    return t("microscope.intensity_why", **values)


def intensity(one: LayerOperator) -> str:
    """FLOP a byte to three figures; none where nothing is multiplied."""
    return f"{one.cost.intensity:.3g}" if one.is_product else t("microscope.not_counted")


def time_of(shown: Dissection, name: str) -> str:
    """An operator's time; of one that a kernel computes with others, theirs together."""
    timed = next((timed for timed in shown.timings if name in timed.covers), None)
    if timed is None:
        return t("microscope.not_counted")
    others = ", ".join(operator_name(other) for other in timed.covers if other != name)
    seconds = short_time(timed.seconds)
    return t("microscope.together", seconds=seconds, others=others) if others else seconds


def short_time(seconds: float) -> str:
    """Three figures: microseconds up to a millisecond, else as everywhere."""
    return f"{seconds * 1e6:.3g} µs" if seconds < 0.9995e-3 else milliseconds(seconds)
