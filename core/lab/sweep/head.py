"""What stands at the head of a sweep's file: the model, how it was measured, the machine and the versions."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

from core.lab.roofs.machine import processor_name
from core.lab.sweep.plan import SweepPlan
from core.lab.sweep.sweep import N_TIMED
from core.lab.sweep.table import DATE
from core.model.load import LanguageModel
from core.model.products import available_cores


def head_of(model: LanguageModel, plan: SweepPlan) -> dict[str, str]:
    """All of it by name, each in one line. What is another in a second run makes it another sweep, but for the date."""
    config = model.config
    described = {
        "model": model.name,
        "shape": f"L={config.n_layers} d={config.d_model} h={config.n_heads} n_kv={config.n_kv_heads} "
        f"d_h={config.head_dim}",
        "dtype": model.dtype_name,
        "device": str(model.device.torch_device),
        "caches": "filled by prefill" if plan.fill == "prefill" else "fast fill: random keys and values",
        "step": f"median of {N_TIMED} decode steps behind one that warms up",
        "processor": processor_name(),
        "cores": f"{os.cpu_count()}, {available_cores()} used",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        DATE: datetime.now(UTC).isoformat(timespec="seconds"),
        "units": "contexts in tokens, the new one included; bytes, FLOP and seconds of the whole batch",
    }
    return {name: " ".join(text.split()) for name, text in described.items()}
