"""Memory over one request, measured: activations that come and go with every layer, a cache that climbs and is freed.

A prefill in one pass, then decode steps, while `TensorBytes` follows every tensor that is made. Two switches bring back
what a good implementation leaves out: the whole table of n×n scores a head, and the logits of all positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from core.engine.exclusive import Measurement
from core.engine.trace import Phase
from core.estimate.kv import kv_bytes
from core.lab.moments import Moment, Part, Switches, Timeline
from core.lab.score_table import ScoreTable
from core.lab.tensor_bytes import TensorBytes
from core.model.cached_attention import CachedAttention
from core.model.device import Device
from core.model.kv_cache import BLOCK_TOKENS, KVCache
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig, choose
from core.model.transformer import Attend
from core.refusal import Refusal

N_DECODE = 6


def most_positions(device: Device) -> int:
    """Positions of the prefill, which is one pass and should take about a second: SmolLM2 on one or two CPU cores."""
    return 512 if device.kind == "cpu" else 4096


class MemoryTimeline:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(
        self,
        model: LanguageModel,
        prompt_ids: Sequence[int],
        switches: Switches | None = None,
        n_tokens: int | None = None,
    ) -> None:
        """`n_tokens`: positions of the prefill; the prompt is repeated or cut to so many.

        Raises Refusal for a prompt that cannot be fed, and for a prefill that is too long for one pass.
        """
        model.check_prompt(prompt_ids)
        most = min(most_positions(model.device), model.config.context_limit - N_DECODE)
        n = min(len(prompt_ids), most) if n_tokens is None else n_tokens
        if not 1 <= n <= most:
            raise Refusal("timeline.too_long", n_tokens=n, most=most)
        self._model, self._switches, self._n_prompt, self._n_tokens = model, switches or Switches(), len(prompt_ids), n
        self._ids = [prompt_ids[position % len(prompt_ids)] for position in range(n)]
        self._tracked = TensorBytes()
        self._cache: KVCache | None = None
        self._moments: list[Moment] = []
        self._allocated_before: int | None = None
        self._allocator_peak: int | None = None

    @property
    def result(self) -> Timeline:
        """What has been measured by now."""
        config, width = self._model.config, self._model.transformer.activation_dtype.itemsize
        rows = self._n_tokens if self._switches.all_logits else 1
        return Timeline(
            n_prompt=self._n_prompt,
            n_tokens=self._n_tokens,
            switches=self._switches,
            moments=tuple(self._moments),
            score_table_bytes=config.n_heads * self._n_tokens**2 * width,
            logits_bytes=rows * config.vocab_size * width,
            allocator_peak_bytes=self._allocator_peak,
        )

    def measurement(self) -> Measurement:
        """The whole request for the exclusive slot."""
        return Measurement("timeline", self.points(), n_bytes=self.needed_bytes)

    @property
    def needed_bytes(self) -> int:
        """A bound on what it takes: the cache, one layer's activations, and the tables that are switched on."""
        model, config, n = self._model, self._model.config, self._n_tokens
        row = 4 * (config.d_ff + config.d_model) + 3 * (config.attention_width + 2 * config.kv_width)
        tables = n * config.n_heads * n if self._switches.score_table else 0
        logits = 2 * config.vocab_size * (n if self._switches.all_logits else 1)
        held = kv_bytes(model.shape, n_tokens=n + N_DECODE, dtypes=model.kv_dtypes, page_tokens=BLOCK_TOKENS)
        return int(held) + 4 * (n * row + tables + logits)

    def points(self) -> list[Callable[[], None]]:
        """The prefill, the decode steps, and the end of the request. A point may be measured again."""
        return [*(partial(self._step, step) for step in range(N_DECODE + 1)), self._end]

    def _step(self, step: int) -> None:
        model, device = self._model, self._model.device
        begin = 0 if step == 0 else self._n_tokens + step - 1
        self._moments = [moment for moment in self._moments if moment.step < step]
        del self._ids[self._n_tokens + step :]
        with torch.inference_mode():
            with self._tracked:
                if step == 0:
                    self._cache = None
                    device.reset_peak_memory()
                    self._allocated_before = device.allocated_memory_bytes()
                    self._cache = model.transformer.new_cache()
                assert self._cache is not None
                self._cache.truncate(begin)
                logits = self._pass(step, self._cache, self._ids[begin:])
            n_tokens, n_usable = len(self._ids), model.tokenizer.vocab_size
            self._ids.append(choose(logits, SamplingConfig(), (), n_usable, n_tokens=n_tokens))
        del logits
        self._mark(step, Part.FREED)
        peak = device.peak_memory_bytes()
        if peak is not None and self._allocated_before is not None:
            self._allocator_peak = peak - self._allocated_before

    def _pass(self, step: int, cache: KVCache, new_ids: list[int]) -> Tensor:
        """One pass, marked part by part; the newest position's logits [vocab]."""
        model, n_new = self._model, len(new_ids)
        self._tracked.begin_part()
        cache.reserve(n_new)
        self._mark(step, Part.CACHE)
        ids = torch.tensor([new_ids], device=model.device.torch_device)  # (1, n_new)
        hidden = model.transformer.hidden(ids, [cache], attend=self._marking(step, cache, n_new))
        self._mark(step, Part.REST, model.config.n_layers - 1)
        rows = hidden[0] if self._switches.all_logits else hidden[0, -1:]  # (n_new, d), or (1, d)
        logits = model.transformer.logits(rows)  # (n_new, vocab), or (1, vocab)
        self._mark(step, Part.HEAD)
        return logits[-1]

    def _marking(self, step: int, cache: KVCache, n_new: int) -> Attend:
        """The attention that was asked for, with a mark before and behind it in every layer."""
        if self._switches.score_table:
            inner: Attend = ScoreTable(cache).attend
        else:
            inner = CachedAttention([cache], n_new, self._model.transformer.activation_dtype).attend
        layer_bytes = cache.reserved_bytes // cache.reserved_tokens // self._model.config.n_layers * n_new

        def attend(layer: int, queries: Tensor, keys_values: Tensor) -> Tensor:
            self._mark(step, Part.REST if layer else Part.EMBEDDING, layer - 1 if layer else None, layer * layer_bytes)
            gathered = inner(layer, queries, keys_values)
            self._mark(step, Part.ATTENTION, layer, (layer + 1) * layer_bytes)
            return gathered

        return attend

    def _mark(self, step: int, part: Part, layer: int | None = None, written_bytes: int = 0) -> None:
        """Ends a part. `written_bytes`: of the pass under way, which the cache does not count yet."""
        cache, tracked = self._cache, self._tracked
        reserved = 0 if cache is None else cache.reserved_bytes
        self._moments.append(
            Moment(
                step=step,
                phase=Phase.DECODE if step else Phase.PREFILL,
                part=part,
                layer=layer,
                activation_bytes=tracked.now - reserved,
                peak_bytes=tracked.peak - reserved,
                largest_bytes=tracked.largest,
                kv_used_bytes=(0 if cache is None else cache.used_bytes) + written_bytes,
                kv_reserved_bytes=reserved,
            )
        )
        tracked.begin_part()

    def _end(self) -> None:
        if self._moments and self._moments[-1].part is Part.END:
            return
        self._cache = None
        self._mark(N_DECODE, Part.END)
