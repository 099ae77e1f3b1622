"""YaRN's growth of attention with the stretch of the context (arXiv 2309.00071, section 3.4)."""

from __future__ import annotations

import math


def yarn_magnitude(factor: float, scale: float = 1.0) -> float:
    """What cos and sin are multiplied with: 0.1·scale·ln(factor) + 1, and 1 where nothing is stretched."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0
