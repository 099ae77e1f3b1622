"""Plain attention and both tiled ones on the same random queries, keys and values: counted, weighed, timed often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from core.engine.exclusive import Measurement
from core.estimate.flash import ORDERS, Square, Tiles, plain_flops, plain_kept_elements, tiles_for, visited
from core.lab.flash.plain import STRIP_ROWS, plain_attention
from core.lab.flash.product_flops import ProductFlops
from core.lab.flash.slow_memory import SlowMemory
from core.lab.flash.tiled import tiled_attention
from core.lab.flash.walk import Walker, WalkStep
from core.lab.tensor_bytes import TensorBytes
from core.model.device import Device, Stopwatch
from core.refusal import Refusal

Way = Literal["plain", "query_outer", "key_outer"]
Timed = Way | Literal["fused"]
WAYS: tuple[Way, ...] = ("plain", *ORDERS)
TIMED: tuple[Timed, ...] = (*WAYS, "fused")
"""The last is torch's own attention, tiled as well where it has such a kernel."""
REPEATS = 5
SEED = 0
DTYPE = torch.float32
MOST_TILES = 1600
"""Of all heads in one run: the run that counts takes about a second for so many on a CPU core."""


def most_flops(device: Device) -> int:
    """What one run may compute to take about half a second: on a CPU core, on a GPU without tensor cores."""
    return 2 * 10**10 if device.kind == "cpu" else 2 * 10**12


@dataclass(frozen=True, slots=True)
class Counted:
    """One way, run once under the counters. Elements and FLOP are those of all heads.

    Attributes:
        filled: elements that were there filled with a constant before it began.
        difference: the largest |difference| of any output number from plain attention's.
        steps: the walk of the first head.
    """

    loaded: int
    stored: int
    filled: int
    flops: int
    difference: float
    steps: tuple[WalkStep, ...]


@dataclass(frozen=True, slots=True)
class FlashResult:
    """What was measured by now.

    Attributes:
        counted: by way; those that are not done are not there.
        peak_bytes: the most that lived at any time of a run, tiles included, besides Q, K and V.
        seconds: of each run.
        n_disturbed: points that stayed disturbed by other programs.
    """

    square: Square
    fast_elements: int
    causal: bool
    tiles: dict[Way, Tiles]
    device: str
    counted: dict[Way, Counted]
    peak_bytes: dict[Way, int]
    seconds: dict[Timed, tuple[float, ...]]
    n_disturbed: int

    @property
    def has_ended(self) -> bool:
        """Whether every way was counted, weighed, and timed as often as planned."""
        return len(self.counted) == len(self.peak_bytes) == len(WAYS) and all(
            len(self.seconds.get(name, ())) == REPEATS for name in TIMED
        )

    def median_seconds(self, name: Timed) -> float:
        """The middle one of a way's runs."""
        return median(self.seconds[name])


class FlashComparison:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, square: Square, fast_elements: int, *, causal: bool, device: Device) -> None:
        """Raises Refusal where no tile fits into M, and for what would keep the machine too long."""
        self._square, self._fast, self._causal, self._device = square, fast_elements, causal, device
        self._tiles: dict[Way, Tiles] = {order: tiles_for(order, fast_elements, square.head_dim) for order in ORDERS}
        n_tiles = square.n_heads * max(len(visited(square, tiles, causal=causal)) for tiles in self._tiles.values())
        if n_tiles > MOST_TILES:
            raise Refusal("flash.too_many_tiles", tiles=n_tiles, most=MOST_TILES)
        if plain_flops(square) > most_flops(device):
            flops, most = (value / 10**9 for value in (plain_flops(square), most_flops(device)))
            raise Refusal("flash.too_much_work", flops=flops, most=most)
        self._inputs: tuple[Tensor, Tensor, Tensor] | None = None
        self._plain_output: Tensor | None = None
        self._counted: dict[Way, Counted] = {}
        self._peaks: dict[Way, int] = {}
        self._seconds: dict[Timed, dict[int, float]] = {}
        self._n_disturbed = 0

    @property
    def result(self) -> FlashResult:
        """What has been measured by now."""
        return FlashResult(
            square=self._square,
            fast_elements=self._fast,
            causal=self._causal,
            tiles=self._tiles,
            device=self._device.kind,
            counted=dict(self._counted),
            peak_bytes=dict(self._peaks),
            seconds={name: tuple(runs.values()) for name, runs in self._seconds.items()},
            n_disturbed=self._n_disturbed,
        )

    @property
    def needed_bytes(self) -> int:
        """A bound on what it takes: Q, K, V, what plain attention keeps, one more output, and the strips or tiles."""
        square, n = self._square, self._square.n_tokens
        numbers = square.n_heads * n * square.head_dim
        areas = [min(n, tiles.query_rows) * min(n, tiles.key_rows) for tiles in self._tiles.values()]
        in_work = 3 * max(STRIP_ROWS * n, *areas) + 8 * n * square.head_dim
        return DTYPE.itemsize * (5 * numbers + plain_kept_elements(square) + in_work)

    def measurement(self) -> Measurement:
        """All runs for the exclusive slot."""
        measurement = Measurement("flash", self.points(), n_bytes=self.needed_bytes)

        def heard(_: int, point: object) -> None:
            self._n_disturbed += bool(getattr(point, "disturbed", False))

        measurement.on_point = heard
        return measurement

    def points(self) -> list[Callable[[], None]]:
        """Every way counted and weighed, then all of them timed in turn. A point may be measured again."""
        counted = [partial(measure, way) for way in WAYS for measure in (self._count, self._weigh)]
        return [*counted, *(partial(self._time, name, k) for k in range(REPEATS) for name in TIMED)]

    def _operands(self) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [1, h, n, d_h], the same in every run."""
        if self._inputs is None:
            shape = (1, self._square.n_heads, self._square.n_tokens, self._square.head_dim)
            generator = torch.Generator().manual_seed(SEED)
            queries, keys, values = (
                torch.randn(shape, generator=generator, dtype=DTYPE).to(self._device.torch_device) for _ in range(3)
            )
            self._inputs = queries, keys, values
        return self._inputs

    def _run(self, way: Way, memory: SlowMemory, walker: Walker | None = None) -> Tensor:
        if way == "plain":
            return plain_attention(memory, causal=self._causal, walker=walker)
        return tiled_attention(memory, self._tiles[way], causal=self._causal, walker=walker)

    def _count(self, way: Way) -> None:
        memory = SlowMemory(*self._operands(), followed=(0, 0))
        walker, flops = Walker(memory), ProductFlops()
        with torch.no_grad(), flops:  # inference mode would show products before they are taken apart
            output = self._run(way, memory, walker)
        if way == "plain":
            self._plain_output = output
        assert self._plain_output is not None
        self._counted[way] = Counted(
            loaded=memory.loaded,
            stored=memory.stored,
            filled=memory.filled,
            flops=flops.total,
            difference=float((output - self._plain_output).abs().max()),
            steps=tuple(walker.steps),
        )

    def _weigh(self, way: Way) -> None:
        memory, tracked = SlowMemory(*self._operands()), TensorBytes()
        self._device.reset_peak_memory()
        before = self._device.allocated_memory_bytes()
        with torch.no_grad(), tracked:
            self._run(way, memory)
        on_device = self._device.peak_memory_bytes()
        self._peaks[way] = tracked.peak if on_device is None or before is None else on_device - before

    def _time(self, name: Timed, repeat: int) -> None:
        queries, keys, values = self._operands()
        with torch.inference_mode(), Stopwatch(self._device) as watch:
            if name == "fused":
                scaled_dot_product_attention(queries, keys, values, is_causal=self._causal)
            else:
                self._run(name, SlowMemory(queries, keys, values))
        self._seconds.setdefault(name, {})[repeat] = watch.seconds
