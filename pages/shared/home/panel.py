"""The live run on the home page."""

from __future__ import annotations

from pages.shared.component import component
from pages.shared.language import language
from pages.shared.units import units

KEY = "live"


def show_live() -> None:
    """Draws the run that is under way, for as long as the visitor looks at it."""
    component("tbt_live", KEY)(key=KEY, data={"language": language(), "units": units()})
