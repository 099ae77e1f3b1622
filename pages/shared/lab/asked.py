"""What a visitor wants to sweep: widgets in, a frozen record out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from core.lab.sweep.plan import FILLS, SweepPlan
from core.refusal import Refusal
from pages.shared.html_parts import note
from pages.shared.language import t
from pages.shared.link import fill_in_defaults
from pages.shared.resources import shelf
from pages.shared.setting import whole_numbers
from pages.shared.settings import COMPARED, LAB, MOST_LAB_REPEATS, RANDOM, RANDOM_LIMITS
from pages.shared.shelf import REAL_MODEL

MOST_ROWS = 2000


@dataclass(frozen=True, slots=True)
class Wanted:
    """One model of a sweep: a loaded one by its name, or random weights of a shape.

    `shape` is (L, h, n_kv, d_h), `dtype` "" for what the operator or the device decides. `variant` says what it is
    among those it is compared with: "kv4", "f32"; "" for a sweep alone.
    """

    name: str
    shape: tuple[int, int, int, int] | None = None
    dtype: str = ""
    variant: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """The plan, and the models that go through it side by side."""

    plan: SweepPlan
    models: tuple[Wanted, ...]
    compared: str


def controls() -> Asked | Refusal:
    """Draws the settings; what they ask for, or why that is no sweep."""
    defaults = fill_in_defaults(LAB)
    with st.container(key="lab_what"):
        compared = st.selectbox(
            t("lab.compare"),
            COMPARED,
            format_func={name: t(f"lab.compare_{name}") for name in COMPARED}.__getitem__,
            key="lab_compare",
            persist_state="session",
            filter_mode=None,
        )
        name = RANDOM if compared != COMPARED[0] else _model()
        contexts = st.text_input(t("lab.contexts"), key="lab_contexts", persist_state="session")
        batches = st.text_input(t("lab.batches"), key="lab_batches", persist_state="session")
        repeats = _whole("repeats", 1, MOST_LAB_REPEATS, defaults)
        fill = st.selectbox(
            t("lab.fill"),
            FILLS,
            format_func={fill: t(f"lab.fill_{fill}") for fill in FILLS}.__getitem__,
            key="lab_fill",
            persist_state="session",
            filter_mode=None,
        )
    shape = _shape(compared, defaults) if name == RANDOM else None
    st.html(note(t(f"lab.compare_{compared}_note")))
    try:
        plan = SweepPlan(
            contexts=numbers(contexts, "contexts"),
            batches=numbers(batches, "batches"),
            repeats=repeats,
            fill=fill,
        )
    except Refusal as refusal:
        return refusal
    models = _models(compared, Wanted(name, shape))
    n_rows = len(models) * len(list(plan.spots()))
    if n_rows > MOST_ROWS:
        return Refusal("lab.too_many_rows", rows=n_rows, most=MOST_ROWS)
    if shape is not None and shape[1] % shape[2]:
        return Refusal("model.heads_not_divisible", n_heads=shape[1], n_kv_heads=shape[2])
    return Asked(plan, models, compared)


def kv_head_counts(n_heads: int, n_kv_heads: int) -> tuple[int, ...]:
    """MHA, GQA, MQA: as many KV heads as query heads, some, one. Where `n_kv_heads` is none of the middle, the divisor
    that is nearest to a quarter."""
    between = [n for n in range(2, n_heads) if n_heads % n == 0]
    middle = [n_kv_heads] if n_kv_heads in between else sorted(between, key=lambda n: abs(n - n_heads / 4))[:1]
    return tuple(dict.fromkeys((n_heads, *middle, 1)))


def _models(compared: str, wanted: Wanted) -> tuple[Wanted, ...]:
    if wanted.shape is None or compared == COMPARED[0]:
        return (wanted,)
    layers, heads, kv_heads, width = wanted.shape
    if compared == "heads":
        counts = kv_head_counts(heads, kv_heads)
        return tuple(replace(wanted, shape=(layers, heads, n, width), variant=f"kv{n}") for n in counts)
    return tuple(replace(wanted, dtype=dtype, variant=dtype) for dtype in ("f32", "bf16", "f16"))


def _model() -> str:
    choices = (*shelf().choices, RANDOM)
    if st.session_state["lab_model"] not in choices:  # an older link's, or one that could not be loaded
        st.session_state["lab_model"] = REAL_MODEL if REAL_MODEL in choices else choices[0]
    named = {name: t("lab.random") if name == RANDOM else name for name in choices}
    return str(
        st.selectbox(
            t("lab.model"),
            choices,
            format_func=named.__getitem__,
            key="lab_model",
            persist_state="session",
            filter_mode=None,
        )
    )


def _shape(compared: str, defaults: dict[str, int]) -> tuple[int, int, int, int]:
    with st.container(key="lab_shape"):
        layers = _whole("n_layers", 1, RANDOM_LIMITS["n_layers"], defaults)
        heads = _whole("n_heads", 1, RANDOM_LIMITS["n_heads"], defaults)
        kv_heads = _whole("n_kv_heads", 1, RANDOM_LIMITS["n_kv_heads"], defaults)
        width = _whole("head_dim", 2, RANDOM_LIMITS["head_dim"], defaults, step=2)
    return layers, heads, kv_heads, width - width % 2


def _whole(name: str, least: int, most: int, defaults: dict[str, int], step: int = 1) -> int:
    value = st.number_input(
        t(f"lab.{name}"),
        least,
        most,
        defaults.get(f"lab_{name}", "min"),
        step=step,
        key=f"lab_{name}",
        persist_state="session",
    )
    return int(value)


def numbers(text: str, name: str) -> tuple[int, ...]:
    """What was typed. Raises Refusal for what is no list of whole numbers."""
    try:
        return tuple(map(int, whole_numbers(text).split(",")))
    except ValueError:
        raise Refusal("lab.no_numbers", name=t(f"lab.{name}")) from None
