"""The planner's settings: widgets in, a frozen plan out."""

from __future__ import annotations

import streamlit as st

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named, accelerators
from core.estimate.dtypes import DTYPES, kv_dtypes, weight_dtypes
from core.estimate.estimate import Request
from core.estimate.query import LEAST_FRACTION, MOST_BATCH, MOST_CONTEXT
from core.refusal import Refusal
from pages.shared.html import Html, fill
from pages.shared.language import language, t
from pages.shared.link import fill_in_defaults
from pages.shared.planner import Plan, PlannedModel, dropped_model
from pages.shared.settings import PLANNER, PLANNER_RANKS, PLANNER_WEIGHTS

# Streamlit has these texts in English only, so the sheet writes the page's own words over them.
_WORDS_ON_THE_FIELD = """<style>.st-key-plan_config {{
  --tbt-drop-here: "{here}"; --tbt-drop-choose: "{choose}"; --tbt-drop-refused: "{refused}"; }}</style>"""


def planner_controls() -> Plan:
    """Draws the settings, keeps their values over page changes, and returns what they ask for."""
    defaults = fill_in_defaults(PLANNER)
    with st.container(key="plan_what"):
        chosen = st.multiselect(
            t("planner.models"),
            list(catalogue.models()),
            format_func=lambda slug: catalogue.model_named(slug).name,
            key="plan_models",
            placeholder=t("planner.models_none"),
            select_all=False,
            persist_state="session",
        )
        cards = st.multiselect(
            t("planner.accelerators"),
            list(accelerators()),
            format_func=lambda slug: accelerator_named(slug).name,
            key="plan_cards",
            placeholder=t("planner.accelerators_none"),
            select_all=False,
            persist_state="session",
        )
        dropped = _dropped()
    with st.container(key="plan_how"):
        batch = _whole("batch", MOST_BATCH, 1, defaults.get("plan_batch"))
        context = _whole("context", MOST_CONTEXT, 1024, defaults.get("plan_context"))
        weights = _dtype("weight_dtype", PLANNER_WEIGHTS)
        kv = _dtype("kv_dtype", tuple(DTYPES))
        fraction = st.number_input(
            t("planner.memory_fraction"),
            LEAST_FRACTION,
            1.0,
            defaults.get("plan_memory_fraction", "min"),
            step=0.05,
            format="%.2f",
            key="plan_memory_fraction",
            persist_state="session",
            help=t("planner.memory_fraction_help"),
        )
        ranks = st.segmented_control(
            t("planner.ranks"),
            PLANNER_RANKS,
            selection_mode="multi",
            format_func="×{}".format,
            key="plan_ranks",
            persist_state="session",
            help=t("planner.ranks_help"),
        )
    models = [PlannedModel(slug, catalogue.shape(slug)) for slug in chosen]
    return Plan(
        models=(*models, *([dropped] if dropped else [])),
        accelerators=tuple(accelerator_named(slug) for slug in cards),
        ranks=tuple(sorted(ranks)),
        request=Request(
            batch=batch,
            context=context,
            weight_dtypes=weight_dtypes(weights),
            kv_dtypes=kv_dtypes(kv),
            memory_fraction=round(fraction, 4),  # a browser that counts up in steps of 0.05 comes to 0.9500000000000001
        ),
    )


def _whole(name: str, most: int, step: int, default: int | None) -> int:
    value = st.number_input(
        t(f"planner.{name}"),
        1,
        most,
        "min" if default is None else default,
        step=step,
        key=f"plan_{name}",
        persist_state="session",
    )
    return int(value)


def _dtype(name: str, choices: tuple[str, ...]) -> str:
    # Without filter_mode the box would take typed text, and a phone would open its keyboard.
    key = f"plan_{name}"
    return str(st.selectbox(t(f"planner.{name}"), choices, key=key, persist_state="session", filter_mode=None))


def _dropped() -> PlannedModel | None:
    """The model of a dropped config.json, or the sentence that says why it is refused."""
    with st.container(key="plan_drop", gap="xsmall"):
        words = {name: t(f"planner.drop_{name}") for name in ("here", "choose", "refused")}
        st.html(Html(_WORDS_ON_THE_FIELD.format(**words)))
        file = st.file_uploader(t("planner.drop"), "json", key="plan_config", max_upload_size=1)
        if file is None:
            return None
        try:
            return dropped_model(file.getvalue(), file.name)
        except Refusal as refusal:
            sentence = refusal.sentence(language())
            st.html(fill('<p class="tbt-notice tbt-refusal" role="alert">{text}</p>', text=sentence))
            return None
