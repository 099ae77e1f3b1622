"""What the estimate pages share: the model and the point that their dials name, and what follows the dials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from core.estimate.accelerators import accelerators
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.custom import CUSTOM
from core.estimate.custom import NUMBERS as CUSTOM_NUMBERS
from core.estimate.estimate import Estimate, estimate, estimate_json
from core.estimate.query import MOST_BATCH, MOST_CONTEXT, NO_CARD, SHAPE, asked, shape_numbers
from pages.shared.bundle import plotly_js
from pages.shared.charts import CHARTS, formulas, say_in
from pages.shared.component import component
from pages.shared.custom_card import ask_about_sparse, custom_fields
from pages.shared.figures.chart import Figure
from pages.shared.language import language, t
from pages.shared.link import fill_in_defaults
from pages.shared.setting import plain
from pages.shared.settings import PLANNER_WEIGHTS, settle_costs
from pages.shared.units import units

LAB = "costs_lab"
"""The fragment that a dial draws again."""
NUMBERS = tuple(SHAPE)
"""The numbers of a shape, as the dials and the address name them."""
_STAMP = "cost_stamp"
"""Where the session keeps which change of the dials it has heard of."""
_BATCHES = tuple(2**power for power in range(11))
_CONTEXTS = tuple(sorted({2**power for power in range(21)} | {3 * 2**power for power in range(5, 19)}))
# Dial → symbol, stops, what it has to divide.
DIALS: dict[str, tuple[str, tuple[int, ...], str]] = {
    "batch": ("B", _BATCHES, ""),
    "context": ("n", _CONTEXTS, ""),
    "n_layers": ("L", tuple(range(1, 129)), ""),
    "n_heads": ("h", (1, 2, 4, 8, 9, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128), ""),
    "n_kv_heads": ("n_kv", (), "n_heads"),
    "head_dim": ("d_h", (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256, 512), ""),
    "d_model": ("d", tuple(512 * step for step in range(1, 33)), ""),
    "d_ff": ("d_ff", tuple(1024 * step for step in range(1, 65)), ""),
    "vocab_size": ("V", tuple(8000 * step for step in range(1, 33)), ""),
}


@dataclass(frozen=True, slots=True)
class Costs:
    """The words of the question the page asks, and the answer."""

    words: dict[str, str]
    made: Estimate

    def feed(self, figures: tuple[str, ...]) -> dict[str, Any]:
        """What the page's components ask the live routes with."""
        common = {"lang": language(), "units": units(), "figures": ",".join(figures)}
        return {"id": "costs", "words": self.words, "common": common, "stamp": st.session_state.get(_STAMP, 0)}


def controls(page: str) -> Costs:
    """Draws the choices above the dials and returns what is asked."""
    settle_costs()
    defaults = fill_in_defaults(page)
    with st.container(key="costs_choices"):
        st.selectbox(
            t("costs.model"),
            list(models()),
            format_func=lambda slug: models()[slug].name,
            key="cost_model",
            on_change=other_model,
            persist_state="session",
        )
        st.selectbox(t("costs.weight_dtype"), PLANNER_WEIGHTS, key="cost_weight_dtype", persist_state="session")
        st.selectbox(t("costs.kv_dtype"), list(_dtypes()), key="cost_kv_dtype", persist_state="session")
        cards = {NO_CARD: t("costs.no_card")} | {slug: card.name for slug, card in accelerators().items()}
        cards[CUSTOM] = t("costs.custom_card")
        st.selectbox(
            t("costs.accelerator"),
            list(cards),
            format_func=cards.__getitem__,
            key="cost_accelerator",
            persist_state="session",
        )
    is_custom = st.session_state["cost_accelerator"] == CUSTOM
    if is_custom:
        custom_fields(defaults)
    words = words_now()
    made = estimate(*asked(words))
    if is_custom:
        ask_about_sparse(made)
    return Costs(words, made)


def words_now() -> dict[str, str]:
    """The page's settings as a question; numbers of a shape only where they differ from the model's own."""
    state = st.session_state
    words = {name: str(state[f"cost_{name}"]) for name in ("model", "batch", "context", "weight_dtype", "kv_dtype")}
    if state["cost_accelerator"] != NO_CARD:
        words["accelerator"] = state["cost_accelerator"]
    if state["cost_accelerator"] == CUSTOM:
        words |= {name: plain(state[f"cost_{name}"]) for name in CUSTOM_NUMBERS}
    own = shape_numbers(shape_named(words["model"]))
    return words | {name: str(state[f"cost_{name}"]) for name in own if state[f"cost_{name}"] != own[name]}


def other_model() -> None:
    """Another model brings its own numbers; to be called when one was chosen."""
    for name in NUMBERS:
        st.session_state.pop(f"cost_{name}", None)


def _dtypes() -> tuple[str, ...]:
    return tuple(name for name in PLANNER_WEIGHTS if "," not in name)


def show_dials(costs: Costs, names: tuple[str, ...], figures: tuple[str, ...]) -> None:
    """The dials; the page is drawn again when one is let go."""
    most = {"batch": MOST_BATCH, "context": MOST_CONTEXT, **SHAPE}
    can_change = shape_numbers(shape_named(costs.words["model"]))
    dials = [
        {
            "name": name,
            "symbol": DIALS[name][0],
            "label": t(f"costs.dial_{name}"),
            "value": st.session_state[f"cost_{name}"] or 1,
            "stops": DIALS[name][1],
            "of": DIALS[name][2],
            "least": 1,
            "most": most[name],
            "disabled": name in NUMBERS and name not in can_change,
        }
        for name in names
    ]
    _part("dials", "dials", costs, figures, dials=dials)


def show_cards(
    costs: Costs,
    key: str,
    cards: tuple[dict[str, str], ...],
    figures: tuple[str, ...],
    answer: dict[str, Any] | None = None,
    route: str = "estimate",
) -> None:
    """Figures of the estimate, or of another `answer` and the live `route` that gives it, with their formulas; one that
    is clicked opens."""
    named = [card["figure"] for card in cards]
    texts = formulas(costs.made, named, language())
    known = estimate_json(costs.made) if answer is None else answer
    _part("cards", key, costs, figures, cards=cards, estimate=known, formulas=texts, route=route)


def show_block(costs: Costs, figures: tuple[str, ...]) -> None:
    """The bytes as areas."""
    latent = costs.made.shape.has_latents
    _part("block", "block", costs, figures, estimate=estimate_json(costs.made), latent=latent)


def show_live_chart(
    costs: Costs,
    curve: str,
    figures: tuple[str, ...],
    scales: tuple[str, ...] = (),
    *,
    area: str = "costs",
    still: tuple[Figure, ...] = (),
    csv: bool = True,
) -> None:
    """A chart that follows the dials; `scales` are the axes that its switch turns logarithmic, `area` whose words say
    what is to be seen, `still` traces on top that no dial moves."""
    figure = CHARTS[curve](costs.made, say_in(language(), units()))
    figure = {**figure, "data": [*figure["data"], *still]}
    _part("chart", curve, costs, figures, figure=figure, curve=curve, scales=scales, csv=csv, **_drawn(curve, area))


def show_chart(key: str, figure: Figure) -> None:
    """A chart that stands still, beside a table that has its numbers."""
    data = {"kind": "chart", "key": key, "language": language(), "figure": figure, "scales": [], "csv": False}
    component("tbt_costs", "costs")(key=f"costs_{key}", data=data | _drawn(key))


def _drawn(name: str, area: str = "costs") -> dict[str, str]:
    alt = f"alt_{name}"
    return {
        "plotly": f"assets/{plotly_js().version}/plotly.min.js",
        "name": name,
        "alt": t(f"{area}.{alt}"),
    }


def _part(kind: str, key: str, costs: Costs, figures: tuple[str, ...], **data: Any) -> None:
    given = {"kind": kind, "key": key, "language": language(), "units": units(), "feed": costs.feed(figures), **data}
    name = f"costs_{key}"
    component("tbt_costs", "costs")(
        key=name,
        data=given,
        on_released_change=lambda: _released(name),
        on_opened_change=lambda: _opened(name),
    )


def _released(name: str) -> None:
    """A dial was let go: its numbers are the page's now. What is no sensible number is left out."""
    values = (st.session_state.get(name) or {}).get("released")
    most = {"batch": MOST_BATCH, "context": MOST_CONTEXT, **SHAPE}
    if not isinstance(values, Mapping):
        return
    if type(values.get("stamp")) is int:
        st.session_state[_STAMP] = values["stamp"]
    for dial in DIALS:
        value = values.get(dial)
        if type(value) is int and 1 <= value <= most[dial]:
            st.session_state[f"cost_{dial}"] = value


def _opened(name: str) -> None:
    figure = (st.session_state.get(name) or {}).get("opened")
    if isinstance(figure, str):
        st.session_state["cost_opened"] = figure[:64]


def opened_figure() -> str | None:
    """The figure that was just clicked, given out once."""
    figure = st.session_state.pop("cost_opened", None)
    return str(figure) if figure is not None else None
