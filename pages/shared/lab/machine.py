"""What is known of this machine besides the sweep."""

from __future__ import annotations

from pages.shared.time.machine import roofs_here


def this_machine_bandwidth() -> float | None:
    """Bytes a second at which its memory was measured to be read; None while that has not been measured."""
    roofs = roofs_here()
    return None if roofs is None else roofs.read_bytes_per_s
