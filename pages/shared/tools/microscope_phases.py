"""One layer over a prefix and in a decode step, side by side: matrix–matrix against matrix–vector."""

from __future__ import annotations

import streamlit as st

from core.engine.dissection import Dissection
from core.engine.layer_operators import FUSED, LayerOperator
from core.engine.trace import Phase
from pages.shared.figures.microscope import Product, product_picture
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.names import step_name
from pages.shared.numbers import count, percent, scaled, scaled_bytes
from pages.shared.tools.microscope_tables import column_head
from pages.shared.tools.microscope_walk import intensity, operator_name, product_of
from pages.shared.units import units


def both_phases(many: Dissection | None, one: Dissection | None) -> None:
    """The layer's products over a prefix and in a decode step, side by side; a sentence where there is only one."""
    st.html(fill('<h3 class="tbt-h2">{title}</h3>', title=t("microscope.compare")))
    if many is None or one is None:
        is_cacheless = many is not None and many.event.phase is Phase.RECOMPUTE
        st.html(note(t("microscope.compare_no_cache" if is_cacheless else "microscope.compare_no_decode")))
        return
    st.html(note(t("microscope.compare_note")))
    sides = {"prefill": many, "decode": one}
    products = [each.name for each in many.operators if each.is_product]
    longest = max(_product(side, name).longest for side in sides.values() for name in products)
    rows = [
        fill(
            "<tr><td>{name}</td>{cells}</tr>",
            name=operator_name(name),
            cells=join(_side(phase, side, name, longest) for phase, side in sides.items()),
        )
        for name in products
    ]
    rows.append(
        fill(
            '<tr class="tbt-small-operator"><td>{name}</td>{cells}</tr>',
            name=t("microscope.others"),
            cells=join(
                fill('<td colspan="2"></td><td>{share}</td>', share=_share(phase, side, _between(side)))
                for phase, side in sides.items()
            ),
        )
    )
    phases = join(
        fill(
            '<th scope="colgroup" colspan="3" class="tbt-phase tbt-{phase}-ink">{text}</th>',
            phase=phase,
            text=_heading(side),
        )
        for phase, side in sides.items()
    )
    names = join(
        column_head(t(f"microscope.{name}"), is_shape=name == "shapes")
        for name in ("shapes", "intensity", "share") * len(sides)
    )
    st.html(
        fill(
            '<div class="tbt-scroll" tabindex="0"><table class="tbt-anatomy"><thead><tr><th></th>{phases}</tr>'
            '<tr><th scope="col">{product}</th>{names}</tr></thead><tbody>{rows}</tbody></table></div>',
            phases=phases,
            product=t("microscope.product"),
            names=names,
            rows=join(rows),
        )
    )


def _heading(side: Dissection) -> str:
    key = "side_vector" if side.made.n_new == 1 else "side_matrix"
    values = {} if side.made.n_new == 1 else {"rows": count(side.made.n_new)}
    return t(f"microscope.{key}", step=step_name(side.step, side.event), **values)


def _named(side: Dissection, name: str) -> LayerOperator:
    return next(one for one in side.operators if one.name == name)


def _product(side: Dissection, name: str) -> Product:
    found = product_of(_named(side, name))
    assert found is not None
    return found


def _side(phase: str, side: Dissection, name: str, longest: int) -> Html:
    """A product as a picture and in numbers, its intensity, its share of the time; attention's time is one."""
    one, product = _named(side, name), _product(side, name)
    rows, inner, columns = map(count, product[:3])
    words = t("microscope.picture", rows=rows, inner=inner, columns=columns)
    times = one.inputs[1].sizes[1] if name in FUSED else 1  # of attention one product a KV head
    if name == FUSED[0]:
        share = fill('<td rowspan="2">{share}</td>', share=_share(phase, side, FUSED))
    elif name in FUSED:
        share = Html("")
    else:
        share = fill("<td>{share}</td>", share=_share(phase, side, (name,)))
    return fill(
        '<td class="tbt-shape">{picture}{rows} × {inner} · {inner} × {columns}{times}</td><td>{intensity}</td>{share}',
        picture=Html(product_picture(product, longest, words)),
        rows=rows,
        inner=inner,
        columns=columns,
        times=f" ({t('microscope.a_head', count=count(times))})" if times > 1 else "",
        intensity=intensity(one),
        share=share,
    )


def _between(side: Dissection) -> tuple[str, ...]:
    return tuple(one.name for one in side.operators if not one.is_product and one.name not in FUSED)


def _share(phase: str, side: Dissection, names: tuple[str, ...]) -> Html:
    if not side.timings:
        return fill("{text}", text=t("microscope.not_counted"))
    share = side.seconds_of(*names) / side.layer_seconds
    return fill(
        '<span class="tbt-share tbt-share-{phase}"><i style="width: {width}%"></i></span>{text}',
        phase=phase,
        width=f"{100 * share:.1f}",
        text=percent(share),
    )


def takeaway(many: Dissection, one: Dissection) -> None:
    """One sentence that the two sides prove: the same weights for very different work."""
    first, then = many.pass_cost, one.pass_cost
    values = {
        "many": step_name(many.step, many.event),
        "one": step_name(one.step, one.event),
        "weights": scaled_bytes(then.weights_read, units()),
        "intensity_many": f"{first.intensity:.3g}",
        "intensity_one": f"{then.intensity:.3g}",
    }
    if many.timings and one.timings:
        values |= {
            "fewer": f"{first.flops / then.flops:.3g}",
            "faster": f"{many.layer_seconds / one.layer_seconds:.3g}",
        }
        text = t("microscope.takeaway_timed", **values)
    else:
        values |= {
            "rows": count(many.made.n_new),
            "flops_many": scaled(first.flops),
            "flops_one": scaled(then.flops),
        }
        text = t("microscope.takeaway", **values)
    st.html(fill('<p class="tbt-takeaway">{text}</p>', text=text))
