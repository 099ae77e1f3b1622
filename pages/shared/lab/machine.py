"""What is known of this machine besides the sweep."""

from __future__ import annotations


def this_machine_bandwidth() -> float | None:
    """Bytes a second at which its memory was measured to be read; None while that has not been measured."""
    return None
