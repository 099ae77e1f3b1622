"""What things of a run are called."""

from __future__ import annotations

from core.engine.trace import Phase, StepEvent
from pages.shared.language import t


def step_name(number: int, event: StepEvent) -> str:
    """What a step is called, as in the ledger: "Prefill", "Decode 3", "Recompute 3"; a prefill has no number."""
    name = t(f"stage.phase_{event.phase}")
    return name if event.phase is Phase.PREFILL else f"{name} {number + (event.phase is Phase.RECOMPUTE)}"
