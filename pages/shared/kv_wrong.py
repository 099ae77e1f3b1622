"""Common wrong formulas for the model at hand: how far each is off, and an exercise made of them."""

from __future__ import annotations

import random
from hashlib import sha256

import streamlit as st

from core.estimate.estimate import Estimate
from core.estimate.wrong import Wrong, wrong_formulas
from pages.shared.html import fill
from pages.shared.html_parts import card, note, row, table
from pages.shared.language import t
from pages.shared.numbers import scaled_bytes
from pages.shared.units import units

_ROUND = "cost_spot_round"


def wrong_table(made: Estimate) -> None:
    """Each mistake that gives another KV memory for this model: what it gives, and by what factor that is off."""
    rows = [
        row(t(f"costs.wrong_{wrong.name}"), scaled_bytes(round(wrong.value), units()), factor(wrong))
        for wrong in mistakes(made)
    ]
    heads = [t("costs.wrong_mistake"), t("costs.wrong_value"), t("costs.wrong_factor")]
    right = t("costs.wrong_right", value=scaled_bytes(made.kv_bytes, units()))
    st.html(card(t("costs.wrong"), fill("{note}{table}", note=note(right), table=table(heads, rows))))


def mistakes(made: Estimate) -> list[Wrong]:
    """Those about the cache, the farthest off first."""
    request = made.request
    found = wrong_formulas(
        made.shape,
        n_tokens=request.context,
        batch=request.batch,
        weight_dtypes=request.weight_dtypes,
        kv_dtypes=request.kv_dtypes,
    )
    of_cache = [wrong for wrong in found if wrong.quantity == "kv_bytes"]
    return sorted(of_cache, key=lambda wrong: max(wrong.factor, 1 / wrong.factor), reverse=True)


def factor(wrong: Wrong) -> str:
    """4× too large, 2× too small."""
    if wrong.factor >= 1:
        return t("costs.too_large", times=f"{wrong.factor:.3g}")
    return t("costs.too_small", times=f"{1 / wrong.factor:.3g}")


def spot_the_wrong_number(made: Estimate) -> None:
    """Three figures of this model, one of them reckoned with a common mistake: which?"""
    which = st.session_state.get(_ROUND, 0)
    statements, wrong, at = exercise(made, which)
    said = st.radio(
        t("costs.spot"),
        range(len(statements)),
        index=None,
        format_func=statements.__getitem__,
        key="cost_spot_" + sha256(f"{which} {' '.join(statements)}".encode()).hexdigest()[:16],
    )
    if said is not None:
        text = t(
            "costs.spot_right" if said == at else "costs.spot_wrong",
            number=at + 1,
            mistake=t(f"costs.wrong_{wrong.name}"),
            right=scaled_bytes(made.kv_bytes, units()),
        )
        st.html(fill('<p class="tbt-notice tbt-info">{text}</p>', text=text))
    st.button(t("costs.spot_again"), key="cost_spot_again", on_click=_another, type="tertiary")


def exercise(made: Estimate, which: int) -> tuple[list[str], Wrong, int]:
    """The statements, the mistake in one of them, and which one that is; another one for each `which`."""
    draw = random.Random(f"{made.shape.name} {made.request.context} {made.request.batch} {which}")
    found = [wrong for wrong in mistakes(made) if not 0.9 < wrong.factor < 1.1]
    wrong = draw.choice(found)
    shown = units()
    right = [
        t("costs.says_weights", value=scaled_bytes(made.weight_bytes, shown)),
        t("costs.says_both", value=scaled_bytes(made.weight_bytes + made.kv_bytes, shown)),
    ]
    at = draw.randrange(3)
    right.insert(at, t("costs.says_kv", value=scaled_bytes(round(wrong.value), shown)))
    return right, wrong, at


def _another() -> None:
    st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1
