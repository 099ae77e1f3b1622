"""An option whose choices the live model decides: each model keeps its own, and the address says the one in use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from pages.shared.technique_settings import MODELS_OWN


def chosen_of(setting: str, key: str, choices: Sequence[int], first: int, draw: Callable[[], int]) -> int:
    """What `draw` returns; its widget, which the session keeps under `key`, begins with what the link says.

    What this model does not have is passed over: it begins with `first`, which the address does not say.
    """
    state = st.session_state
    if key not in state:
        state[key] = state[setting] if state[setting] in choices else first
    chosen = int(draw())
    state[setting] = MODELS_OWN if chosen == first else chosen
    return chosen
