"""What `python -m core sweep --endpoint` is asked for, as its function sees it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from core.cli.endpoint_options import add_endpoint


def options(url: str, csv: Path, *flags: str, **more: Any) -> argparse.Namespace:
    """The options of a small sweep; `flags` are a server's own, `more` those that any sweep has."""
    parser = argparse.ArgumentParser()
    add_endpoint(parser)
    asked = parser.parse_args(["--endpoint", url, "--new-tokens", "8", *flags])
    of_any = {"model": None, "contexts": (20, 40), "batches": (1, 2), "repeats": 1, "csv": str(csv)}
    for name, value in (of_any | more).items():
        setattr(asked, name, value)
    return asked
