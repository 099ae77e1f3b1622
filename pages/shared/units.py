"""The prefixes of bytes: GiB (1024) or GB (1000), everywhere at once."""

from __future__ import annotations

import streamlit as st

from pages.shared.language import t

UNITS = ("binary", "decimal")


def units() -> str:
    """What this visitor reads bytes in: "binary" or "decimal"."""
    return str(st.session_state.get("units", UNITS[0]))


def units_switch() -> None:
    """The switch between the two."""
    st.session_state.setdefault("units", UNITS[0])
    st.segmented_control(
        t("settings.units"),
        UNITS,
        format_func={"binary": "GiB", "decimal": "GB"}.__getitem__,
        key="units",
        required=True,
        label_visibility="collapsed",
    )
