"""This machine as page 4 draws it: its measured roofs, once they are there, and the steps of the live model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.estimate.observed import Against, against_floor
from core.estimate.roofline import Roof
from core.lab.roofs.kept import kept_roofs
from core.lab.roofs.record import Roofs
from core.lab.roofs.steps import MeasuredStep
from core.lab.roofs.steps import measured_steps as steps_on_roofs
from pages.shared.resources import shelf

if TYPE_CHECKING:
    from pages.shared.visit import Visit


def roofs_here() -> Roofs | None:
    """The roofs that were measured on this machine; None before, and while no model is loaded yet.

    Which machine this is only torch can say, and nobody waits for its import here: it comes with the first model.
    """
    return kept_roofs() if shelf().loaded else None


def this_machine() -> tuple[Roof, str] | None:
    """The measured roofs of this machine for the dtype of its first model, and what it is called; None without any."""
    roofs = roofs_here()
    if roofs is None:
        return None
    peak = roofs.peak_flops(shelf().loaded[0].dtype_name)
    return None if peak is None else (Roof(peak, roofs.read_bytes_per_s), roofs.machine.device_name)


def measured_steps(visit: Visit | None) -> tuple[MeasuredStep, ...]:
    """The visitor's steps that had their pass to themselves, on this machine's roofs where they are known."""
    if visit is None or visit.started is None or visit.trace is None:
        return ()
    return steps_on_roofs(visit.trace, visit.started.model.dtype_name, roofs_here())


def against_roof(step: MeasuredStep, roof: Roof) -> Against:
    """A measured step's time over the least that the roof allows."""
    return against_floor(1 / step.flops_per_s, 1 / roof.reachable(step.intensity))
