"""Beyond one machine: the same sweep against a server. The command is shown, its file opened, and met by the formulas.

The page itself asks no server: an address typed here would be reached from the operator's network.
"""

from __future__ import annotations

import streamlit as st

from pages.shared.html_parts import note
from pages.shared.lab.drop import SERVER, drop_field
from pages.shared.lab.server.ask import expected, show_command
from pages.shared.lab.server.found import show_found
from pages.shared.lab.server.opened import SHOWN, ServerSweep, close_sweep, opened_sweeps
from pages.shared.language import t
from pages.shared.tools.job import heading
from pages.shared.trouble import notice


@st.fragment(key="lab_server_part")
def show_server() -> None:
    """From the question to the takeaway."""
    with st.container(border=True, key="lab_server"):
        heading(t("server.title"), t("server.question"))
        guessed = expected()
        show_command()
        with st.container(key=SERVER, gap="xsmall"):
            drop_field(SERVER, t("server.open"))
        sweep, earlier = _choice(opened_sweeps())
    if sweep is not None:
        show_found(sweep, earlier, guessed)


def _choice(opened: list[ServerSweep]) -> tuple[ServerSweep | None, ServerSweep | None]:
    """Which file is looked at, and which one it is compared with."""
    if not opened:
        st.html(note(t("server.none")))
        return None, None
    by_number = {sweep.number: sweep for sweep in opened}
    if st.session_state.get(SHOWN) not in by_number:
        st.session_state[SHOWN] = opened[0].number
    sweep = by_number[st.session_state[SHOWN]]
    earlier = None
    if len(opened) > 1:
        with st.container(key="lab_server_choice"):
            titles = {number: one.title for number, one in by_number.items()}
            number = st.selectbox(
                t("server.shown"), list(by_number), format_func=titles.__getitem__, key=SHOWN, filter_mode=None
            )
            sweep = by_number[number]
            others = [0, *(other for other in by_number if other != number)]
            compared = st.selectbox(
                t("server.compare"),
                others,
                format_func=({0: t("server.compare_none")} | titles).__getitem__,
                key=f"lab_server_earlier_{number}",
                filter_mode=None,
            )
            earlier = by_number.get(compared or 0)
    notice(t("server.opened", name=sweep.title, points=sweep.found.n_points))
    st.button(t("lab.close"), key="lab_server_close", on_click=close_sweep, args=(sweep.number,))
    return sweep, earlier
