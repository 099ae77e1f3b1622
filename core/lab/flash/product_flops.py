"""FLOP of the matrix products that run, by the formulas of torch's own counter without its tree of modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class ProductFlops(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Adds up `total` inside `with`."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs the operator and counts it if it is a product."""
        returned = func(*args, **(kwargs or {}))
        flops_of = flop_registry.get(getattr(func, "_overloadpacket", None))
        if flops_of is not None:
            self.total += flops_of(*args, **(kwargs or {}), out_val=returned)
        return returned
