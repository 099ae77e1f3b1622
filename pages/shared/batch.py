"""The batch, live: who decodes together at this moment, as JSON for the browser, and the component that draws it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pages.shared.component import component
from pages.shared.language import language
from pages.shared.units import units

if TYPE_CHECKING:
    from core.engine.status import Status

KEY = "batch"


def status_json(status: Status) -> dict[str, Any]:
    """The engine's status in base units. It knows visitors by their tags alone: there is nothing to leave out."""
    return asdict(status)


def show_batch(tag: str) -> None:
    """Draws the line about everybody who is here, with the view that opens from it. `tag` marks this visitor's run."""
    component("tbt_batch", KEY)(key=KEY, data={"tag": tag, "language": language(), "units": units()})
