"""What every panel of page 4 is made of: a heading, a guess, figures that open, and one sentence at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import streamlit as st

from core.estimate.accelerators import accelerator_named, peak_flops
from core.estimate.catalogue import shape
from core.estimate.custom import CUSTOM
from core.estimate.dtypes import BF16
from core.estimate.estimate import Estimate, Request, estimate, estimate_json
from core.estimate.query import NO_CARD
from core.estimate.where import where_json
from pages.shared.costs import Costs, show_cards, show_live_chart
from pages.shared.figures.chart import Figure
from pages.shared.guess import guess, reveal
from pages.shared.html import fill
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.time.charts import FIRST_CARD

# Figure → its unit, in the order of the panels; all that are asked for while a dial is dragged.
UNITS = {
    "roof.ridge": "FLOP/B",
    "decode.time_floor_s": "s",
    "prefill.time_floor_s": "s",
    "decode.intensity": "FLOP/B",
    "batching.ceiling": "FLOP/B",
    "batching.batch": "",
    "batching.limit_chapter": "",
    "batching.limit": "",
    "batching.limit_full": "",
    "attention.roof": "FLOP/B",
    "scores.intensity": "FLOP/B",
    "scores.outweighs_at": "",
    "scores.table_bytes": "B",
}
FIGURES = tuple(UNITS)
GUESS_MODEL = "llama-3.1-8b"


def settle_card() -> None:
    """Page 4 needs a roof: where no card is chosen, or one whose peak nobody states, it takes FIRST_CARD."""
    chosen = st.session_state.get("cost_accelerator", NO_CARD)
    if chosen == CUSTOM:
        return
    if chosen == NO_CARD or peak_flops(accelerator_named(chosen), BF16) is None:
        st.session_state["cost_accelerator"] = FIRST_CARD
        if chosen != NO_CARD:
            names = {"card": accelerator_named(chosen).name, "first": accelerator_named(FIRST_CARD).name}
            st.html(fill('<p class="tbt-notice tbt-info">{text}</p>', text=t("time.no_peak", **names)))


def example() -> Estimate:
    """What is guessed about: GUESS_MODEL on FIRST_CARD, at the dials' defaults."""
    return estimate(shape(GUESS_MODEL), Request(accelerator=accelerator_named(FIRST_CARD)))


def names() -> dict[str, str]:
    """How the guesses call their model and card."""
    return {"model": shape(GUESS_MODEL).name, "card": accelerator_named(FIRST_CARD).name}


def heading(name: str) -> None:
    """A panel's question."""
    st.html(fill('<h2 class="tbt-h2">{title}</h2>', title=t(f"time.panel_{name}")))


def predict(name: str, choices: Mapping[int, str], right: float, why: str, **asked: str) -> None:
    """Asks first; then says which of the choices lies nearest to what core reckons, by ratio, and why."""
    said = guess(t(f"time.guess_{name}", **asked), choices, f"time_guess_{name}")
    if said is not None:
        nearest = min(choices, key=lambda choice: abs(math.log(choice / right)))
        reveal(f"{t('costs.guess_right' if said == nearest else 'costs.guess_wrong')} {why}")


def figures(costs: Costs, name: str, shown: Sequence[str]) -> None:
    """Figures that follow the dials and open when they are clicked."""
    cards = tuple({"figure": figure, "unit": UNITS[figure], "kind": ""} for figure in shown)
    answer = estimate_json(costs.made) | where_json(costs.made)
    show_cards(costs, f"cards_{name}", cards, FIGURES, answer, "curves/where")


def picture(costs: Costs, curve: str, *, still: tuple[Figure, ...] = (), csv: bool = True) -> None:
    """A chart that follows the dials."""
    show_live_chart(costs, curve, FIGURES, area="time", still=still, csv=csv)


def remark(text: str) -> None:
    """A quiet sentence between pictures."""
    st.html(note(text))


def takeaway(text: str) -> None:
    """The panel's last sentence."""
    st.html(fill('<p class="tbt-takeaway">{text}</p>', text=text))
