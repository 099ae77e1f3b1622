"""All settings that live in the address, page by page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log

import streamlit as st

from core.estimate.accelerators import accelerators
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.custom import CUSTOM, Number
from core.estimate.custom import NUMBERS as CUSTOM_NUMBERS
from core.estimate.dtypes import DTYPES
from core.estimate.query import LEAST_FRACTION, MOST_BATCH, MOST_CONTEXT, NO_CARD, SHAPE, shape_numbers
from core.lab.sweep.plan import FILLS
from core.questions.technique_terms import can_be_asked
from core.words import LANGUAGES
from pages.shared.language import browser_language, language
from pages.shared.prompts import default_prompt
from pages.shared.question_settings import question_settings
from pages.shared.resources import shelf
from pages.shared.setting import (
    Setting,
    as_digit,
    decimal,
    one_of,
    one_or_none,
    or_none,
    plain,
    several_of,
    switch,
    whole,
    whole_numbers,
    with_commas,
)
from pages.shared.shelf import REAL_MODEL, SMALL_MODEL
from pages.shared.technique_settings import technique_settings
from pages.shared.units import UNITS

MOST_NEW, MOST_TOP_K, MOST_TEMPERATURE, LARGEST_SEED = 1024, 1_000_000, 5.0, 2**31 - 1
SPEEDS = (1, 2, 4, 8, 16, 32)
"""Steps a second."""
ANY_PAGE, HOME, PAGE_1, PLANNER, QUESTIONS = "", "home", "prefill_and_decode", "planner", "questions"
LAB = "lab"
TECHNIQUES = "which_term_does_it_change"
EXPERIMENTS = (
    *("sampling", "weights", "cache", "draft", "thought", "heads"),
    *("surgery", "two", "batching", "experts", "chunks", "prefix"),
)
"""Techniques of page 6, each with its experiment, in the order of their row."""
COST_PAGES = ("kv_cache", "memory_and_compute", "where_the_time_goes")
PLANNER_RANKS = (1, 2, 4, 8)
COMPARED, RANDOM, MOST_LAB_REPEATS = ("points", "heads", "dtypes"), "random", 50
"""What a sweep compares; what a model of random weights is called among the others; repeats of a point."""
RANDOM_LIMITS = {"n_layers": 64, "n_heads": 64, "n_kv_heads": 64, "head_dim": 256}
_RANDOM_FIRST = {"n_layers": 8, "n_heads": 8, "n_kv_heads": 2, "head_dim": 64}
TOOLS = ("microscope", "race", "causality", "timeline", "keepsake")
"""What can be opened below the stage of page 1, in the order of their row."""
PLANNER_WEIGHTS = (*DTYPES, "bf16,experts=mxfp4")
"""Every dtype alone, and the mixture that gpt-oss is published in."""


def _model(word: str) -> str:
    return str(one_of(REAL_MODEL, SMALL_MODEL, *shelf().choices)(word))


def _lab_model(word: str) -> str:
    return RANDOM if word == RANDOM else _model(word)


def _first_model() -> str:
    models = shelf()
    return REAL_MODEL if REAL_MODEL in models.loading else models.choices[0]


def _first_prompt() -> str:
    return default_prompt(st.session_state.get("model") or _first_model(), language())


def _first_terms_prompt() -> str:
    return default_prompt(st.session_state.get("terms_live") or _first_model(), language())


def terms_models() -> list[str]:
    """Models of the catalogue for which every technique's terms can be reckoned."""
    return [slug for slug in models() if can_be_asked(shape_named(slug))]


FIRST_MODEL, FIRST_TERMS_MODEL = "chapter-8b", "llama-3.1-8b"
_FIRST_MODELS = ("llama-3.1-8b", "qwen3-32b", "qwen3-30b-a3b")
_FIRST_CARDS = ("rtx-4090", "a100-sxm-80gb", "h200-sxm")


def _of_shape(name: str) -> Callable[[], int]:
    """A number of the chosen model's shape; 0 where its layers are not all alike and none can be changed."""

    def read() -> int:
        shape = shape_named(st.session_state.get("cost_model", FIRST_MODEL))
        return shape_numbers(shape).get(name, 0)

    return read


def _cost_settings(page: str) -> tuple[Setting, ...]:
    """The estimate pages show one model: what is set on one holds on the others."""
    cards = (NO_CARD, *accelerators(), CUSTOM)
    return (
        Setting(page, "model", "cost_model", lambda: FIRST_MODEL, one_of(*models())),
        Setting(page, "batch", "cost_batch", lambda: 1, whole(1, MOST_BATCH)),
        Setting(page, "context", "cost_context", lambda: 4096, whole(1, MOST_CONTEXT)),
        *(Setting(page, name, f"cost_{name}", _of_shape(name), whole(1, SHAPE[name])) for name in SHAPE),
        Setting(page, "weight_dtype", "cost_weight_dtype", lambda: "bf16", one_of(*PLANNER_WEIGHTS)),
        Setting(page, "kv_dtype", "cost_kv_dtype", lambda: "bf16", one_of(*DTYPES)),
        Setting(page, "accelerator", "cost_accelerator", lambda: NO_CARD, one_of(*cards)),
        *(
            Setting(page, name, f"cost_{name}", _default_of(number), decimal(number.most, number.least), plain)
            for name, number in CUSTOM_NUMBERS.items()
        ),
    )


def _default_of(number: Number) -> Callable[[], float]:
    return lambda: float(number.default)


# A prompt's default depends on the model, so the model stands before it.
SETTINGS = (
    Setting(ANY_PAGE, "lang", "language", browser_language, one_of(*LANGUAGES), always=True),
    Setting(ANY_PAGE, "units", "units", lambda: UNITS[0], one_of(*UNITS)),
    Setting(PAGE_1, "model", "model", _first_model, _model),
    Setting(PAGE_1, "chat", "chat_template", lambda: True, switch, as_digit),
    Setting(PAGE_1, "system", "system_prompt", str, str),
    Setting(PAGE_1, "cache", "use_cache", lambda: True, switch, as_digit),
    Setting(PAGE_1, "temp", "temperature", float, decimal(MOST_TEMPERATURE), plain),
    Setting(PAGE_1, "topk", "top_k", int, whole(0, MOST_TOP_K)),
    Setting(PAGE_1, "topp", "top_p", lambda: 1.0, decimal(1.0), plain),
    Setting(PAGE_1, "seed", "seed", int, whole(0, LARGEST_SEED)),
    Setting(PAGE_1, "max", "max_new", lambda: 64, whole(1, MOST_NEW)),
    Setting(PAGE_1, "speed", "speed", lambda: 4, one_of(*SPEEDS)),
    Setting(PAGE_1, "prompt", "prompt", _first_prompt, str),
    Setting(PAGE_1, "tool", "tool", lambda: None, one_or_none(*TOOLS), or_none),
    *_cost_settings(COST_PAGES[0]),
    *_cost_settings(COST_PAGES[1]),
    *_cost_settings(COST_PAGES[2]),
    Setting(COST_PAGES[2], "machine", "time_machine", lambda: False, switch, as_digit),
    Setting(COST_PAGES[1], "causal", "cost_causal", lambda: False, switch, as_digit),
    Setting(LAB, "compare", "lab_compare", lambda: COMPARED[0], one_of(*COMPARED)),
    Setting(LAB, "model", "lab_model", _first_model, _lab_model),
    Setting(LAB, "contexts", "lab_contexts", lambda: "128,256,512,1024", whole_numbers),
    Setting(LAB, "batches", "lab_batches", lambda: "1,2,4", whole_numbers),
    Setting(LAB, "repeats", "lab_repeats", lambda: 3, whole(1, MOST_LAB_REPEATS)),
    Setting(LAB, "fill", "lab_fill", lambda: FILLS[0], one_of(*FILLS)),
    *(
        Setting(LAB, name, f"lab_{name}", partial(int, first), whole(1, RANDOM_LIMITS[name]))
        for name, first in _RANDOM_FIRST.items()
    ),
    Setting(TECHNIQUES, "technique", "technique", lambda: EXPERIMENTS[0], one_of(*EXPERIMENTS)),
    Setting(TECHNIQUES, "model", "terms_model", lambda: FIRST_TERMS_MODEL, one_of(*terms_models())),
    Setting(TECHNIQUES, "live", "terms_live", _first_model, _model),
    Setting(TECHNIQUES, "prompt", "terms_prompt", _first_terms_prompt, str),
    *technique_settings(TECHNIQUES, MOST_TOP_K),
    *question_settings(QUESTIONS),
    Setting(PLANNER, "models", "plan_models", lambda: list(_FIRST_MODELS), several_of(models), with_commas),
    Setting(PLANNER, "accelerators", "plan_cards", lambda: list(_FIRST_CARDS), several_of(accelerators), with_commas),
    Setting(PLANNER, "batch", "plan_batch", lambda: 1, whole(1, MOST_BATCH)),
    Setting(PLANNER, "context", "plan_context", lambda: 32768, whole(1, MOST_CONTEXT)),
    Setting(PLANNER, "tp", "plan_ranks", lambda: [1], several_of(lambda: PLANNER_RANKS), with_commas),
    Setting(PLANNER, "weight_dtype", "plan_weight_dtype", lambda: "bf16", one_of(*PLANNER_WEIGHTS)),
    Setting(PLANNER, "kv_dtype", "plan_kv_dtype", lambda: "bf16", one_of(*DTYPES)),
    Setting(PLANNER, "memory_fraction", "plan_memory_fraction", lambda: 0.9, decimal(1.0, LEAST_FRACTION), plain),
)


def settle_costs() -> None:
    """Puts right what a link or a late dial has set on the estimate pages and what does not go together.

    What cannot be changed for the model is forgotten; KV heads become a divisor of the query heads, the nearest in
    ratio.
    """
    state = st.session_state
    own = shape_numbers(shape_named(state.get("cost_model", FIRST_MODEL)))
    for name in SHAPE:
        if name not in own:
            state.pop(f"cost_{name}", None)
    if own:
        heads, kv_heads = (state.get(f"cost_{name}") or own[name] for name in ("n_heads", "n_kv_heads"))
        if heads % kv_heads:
            divisors = (divisor for divisor in range(1, heads + 1) if heads % divisor == 0)
            state["cost_n_kv_heads"] = min(divisors, key=lambda divisor: abs(log(divisor / kv_heads)))
