"""Bytes of tensors, followed from the operator that makes them to the moment the last reference goes.

Every storage that an operator returns is counted once, with the size it was given. What an operator takes and gives
back while it runs is inside torch and not seen, and neither is what `torch.tensor` makes out of Python's numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class TensorBytes(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Counts, inside `with`, what this thread's operators make; what goes is counted off at any time.

    Attributes:
        now: bytes alive.
        peak: the most since `begin_part`.
        largest: the largest single storage made since then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.largest = 0
        self._alive: dict[int, int] = {}  # a storage's address → its bytes

    def begin_part(self) -> None:
        """Begins a new peak."""
        self.peak, self.largest = self.now, 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs the operator and counts the storages that are new with it."""
        returned = func(*args, **(kwargs or {}))
        given = {storage._cdata for storage in _storages((args, kwargs))}
        for storage in _storages(returned):
            if storage._cdata not in given:
                self._made(storage)
        return returned

    def _made(self, storage: torch.UntypedStorage) -> None:
        address = storage._cdata
        if address in self._alive:
            return
        n_bytes = storage.nbytes()
        self._alive[address] = n_bytes
        self.now += n_bytes
        self.peak = max(self.peak, self.now)
        self.largest = max(self.largest, n_bytes)
        weakref.finalize(storage, self._gone, address).atexit = False

    def _gone(self, address: int) -> None:
        self.now -= self._alive.pop(address)


def _storages(tree: Any) -> Iterator[torch.UntypedStorage]:
    """Where the tensors among some values lie; views share it. Packed weights have a layout that shows none."""
    for leaf in tree_leaves(tree):
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
            yield leaf.untyped_storage()
