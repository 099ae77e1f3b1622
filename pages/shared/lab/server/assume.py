"""What a server is taken to run on: a file cannot tell, so the visitor says it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from core.estimate.accelerators import Accelerator, accelerator_named, accelerators, peak_flops
from core.estimate.custom import CUSTOM, NUMBERS, custom_accelerator
from core.estimate.dtypes import DTYPES, KvDtypes, WeightDtypes, kv_dtypes, weight_dtypes
from core.estimate.kv import kv_bytes_per_token
from core.estimate.query import NO_CARD
from core.lab.remote.under import Assumed
from core.refusal import Refusal
from pages.shared.html_parts import note
from pages.shared.lab.server.opened import ServerSweep
from pages.shared.language import t
from pages.shared.settings import PLANNER_WEIGHTS

RANKS = (1, 2, 4, 8, 16, 32)
Kind = TypeVar("Kind", WeightDtypes, KvDtypes)


def assume(sweep: ServerSweep) -> Assumed | None:
    """Accelerator, how many, dtypes; None where no accelerator is chosen, or the file's model has no formulas."""
    if sweep.shape is None:
        st.html(note(t("server.no_estimate", model=sweep.served or t("server.unnamed"))))
        return None
    st.html(note(t("server.floor_note", model=sweep.shape.name)))
    with st.container(key="lab_server_assumed"):
        card = _card()
        ranks = st.selectbox(
            t("server.ranks"),
            RANKS,
            key="lab_server_ranks",
            persist_state="session",
            filter_mode=None,
            help=t("server.ranks_help"),
        )
        weights, kv = (
            _dtype("weights", sweep, PLANNER_WEIGHTS, weight_dtypes),
            _dtype("kv", sweep, tuple(DTYPES), kv_dtypes),
        )
    if card is None:
        return None
    if peak_flops(card, weights.rest) is None:
        st.html(note(t("planner.no_peak")))
        return None
    return Assumed(shape=sweep.shape, weight_dtypes=weights, kv_dtypes=kv, accelerator=card, ranks=ranks or 1)


def bytes_per_token(sweep: ServerSweep, assumed: Assumed | None) -> int | None:
    """What a position's keys and values take, by what is assumed, else by what the file says; None where unknown."""
    if sweep.shape is None:
        return None
    dtypes = assumed.kv_dtypes if assumed is not None else _read(sweep.record.head.get("KV", ""), kv_dtypes)
    return kv_bytes_per_token(sweep.shape, dtypes)


def _card() -> Accelerator | None:
    names = {NO_CARD: t("server.no_card"), CUSTOM: t("server.custom_card")}
    names |= {slug: card.name for slug, card in accelerators().items()}
    slug = st.selectbox(
        t("server.card"),
        list(names),
        format_func=names.__getitem__,
        key="lab_server_card",
        persist_state="session",
        filter_mode=None,
    )
    if slug == CUSTOM:
        return custom_accelerator({name: _number(name) for name in NUMBERS})
    return None if slug in (None, NO_CARD) else accelerator_named(slug)


def _number(name: str) -> float:
    number = NUMBERS[name]
    value = st.number_input(
        t(f"costs.{name}"),
        float(number.least),
        float(number.most),
        float(number.default),
        step=1.0,
        format="%g",
        key=f"lab_server_{name}",
        persist_state="session",
    )
    return float(value)


def _dtype(name: str, sweep: ServerSweep, choices: Sequence[str], read: Callable[[str], Kind]) -> Kind:
    """Of the weights or of the cache: as the file says it, until the visitor says otherwise."""
    said = str(_read(sweep.record.head.get({"weights": "weights", "kv": "KV"}[name], ""), read))
    every = list(dict.fromkeys([said, *choices]))
    chosen = st.selectbox(
        t(f"server.{name}"), every, key=f"lab_server_{name}_{sweep.number}", persist_state="session", filter_mode=None
    )
    return read(chosen or said)


def _read(text: str, read: Callable[[str], Kind]) -> Kind:
    try:
        return read(text)
    except Refusal:
        return read("bf16")
