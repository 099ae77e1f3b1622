"""A pass's runs shared out over the cores: each core takes some of the sequences through all of the model.

With fp16 weights on a CPU this beats sharing out every product. Threads that meet behind each of some 120 products wait
for the slowest one 120 times, and on a server there is always something else on one of the cores; here they meet twice.
(bf16 and fp32 products wait for memory more than they compute: there one core reads half of each matrix for all runs,
and only recording and sampling are shared out.) What a run gets does not depend on its share, because it does not
depend on who is beside it in a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

from core.model.device import Device
from core.model.products import available_cores, has_half_product, one_thread

Item = TypeVar("Item")
Result = TypeVar("Result")

LEAST_A_SHARE = 4
"""Fewer rows are as quick on one core: the weights are what is waited for."""


def shares_of_a_pass(items: Sequence[Item], device: Device, dtype: torch.dtype) -> list[list[Item]]:
    """The items dealt out for a pass with weights of `dtype`."""
    return shares(items, device) if dtype == torch.float16 and has_half_product() else [list(items)]


def shares(items: Sequence[Item], device: Device) -> list[list[Item]]:
    """The items dealt out, one share a core; all in one share where that is better."""
    n_shares = min(available_cores(), len(items) // LEAST_A_SHARE) if device.kind == "cpu" else 1
    return [list(items[first::n_shares]) for first in range(n_shares)] if n_shares > 1 else [list(items)]


def in_shares(work: Callable[[Item], Result], shared_out: Sequence[Item]) -> list[Result]:
    """`work` on every share at once, in inference mode, the results in order. Raises what the first of them raised,
    when all have come to their end."""

    def on_one_core(share: Item) -> Result:
        with one_thread(), torch.inference_mode():
            return work(share)

    if len(shared_out) == 1:
        with torch.inference_mode():
            return [work(shared_out[0])]
    others = [_pool().submit(on_one_core, share) for share in shared_out[1:]]
    try:
        mine = on_one_core(shared_out[0])
    finally:
        wait(others)
    return [mine, *(other.result() for other in others)]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, available_cores() - 1), thread_name_prefix="engine-share")
