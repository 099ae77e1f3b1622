"""Page 6's settings in the address besides model and prompt: what each experiment is asked, and within which limits."""

from __future__ import annotations

from typing import Literal

from core.estimate.quantised import GROUPS, INT8_ROWS, Bits, Scheme
from core.questions.dials import CARDS
from pages.shared.setting import Setting, as_digit, decimal, one_of, plain, switch, whole

LEAST_TEMPERATURE, MOST_TEMPERATURE, FIRST_TEMPERATURE = 0.1, 2.0, 1.5
FIRST_TOP_P = 0.95
WEIGHT_SCHEMES = {"int8": INT8_ROWS} | {f"int4_{group}": Scheme(4, group, has_zero=True) for group in GROUPS}
CACHE_BITS: tuple[Bits, ...] = (8, 4)
DRAFTERS: tuple[Literal["lookup", "layers"], ...] = ("lookup", "layers")
MOST_GAMMA, FIRST_GAMMA = 8, 4
THOUGHTS, FIRST_THOUGHT = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000), 8000
N_WRITTEN, FIRST_BACK = 16, 8
"""Tokens that are written before surgery, and how far back the column lies that is operated on."""
MODELS_OWN = 0
"""Of an option whose choices depend on the live model: what that model begins with."""
MOST_OF_A_MODEL = 1000
"""Layers or heads; which of them the live model has is looked at when it is there."""


def technique_settings(page: str, most_top_k: int) -> tuple[Setting, ...]:
    """The options of all experiments; a link carries those that are not as they begin."""
    return (
        Setting(
            page,
            "temp",
            "terms_temperature",
            lambda: FIRST_TEMPERATURE,
            decimal(MOST_TEMPERATURE, LEAST_TEMPERATURE),
            plain,
        ),
        Setting(page, "topk", "terms_top_k", int, whole(0, most_top_k)),
        Setting(page, "topp", "terms_top_p", lambda: FIRST_TOP_P, decimal(1.0), plain),
        Setting(page, "scheme", "terms_scheme", lambda: next(iter(WEIGHT_SCHEMES)), one_of(*WEIGHT_SCHEMES)),
        Setting(page, "bits", "terms_bits", lambda: CACHE_BITS[0], one_of(*CACHE_BITS)),
        Setting(page, "by_channel", "terms_by_channel", bool, switch, as_digit),
        Setting(page, "window", "terms_window", bool, switch, as_digit),
        Setting(page, "drafter", "terms_drafter", lambda: DRAFTERS[0], one_of(*DRAFTERS)),
        Setting(page, "gamma", "terms_gamma", lambda: FIRST_GAMMA, whole(1, MOST_GAMMA)),
        Setting(page, "draft_layers", "terms_draft_layers", lambda: MODELS_OWN, whole(1, MOST_OF_A_MODEL)),
        Setting(page, "sampled", "terms_draft_sampled", bool, switch, as_digit),
        Setting(page, "card", "terms_card", lambda: CARDS[0], one_of(*CARDS)),
        Setting(page, "thought", "terms_n_thought", lambda: FIRST_THOUGHT, one_of(*THOUGHTS)),
        Setting(page, "kv_heads", "terms_kv_heads", lambda: MODELS_OWN, whole(1, MOST_OF_A_MODEL)),
        Setting(page, "back", "terms_back", lambda: FIRST_BACK, whole(1, N_WRITTEN - 1)),
    )
