"""A model before and after a change: who goes first alternates, and what disturbed it is counted."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from core.engine.exclusive import Point
from core.lab.before_after import Asked, BeforeAfter
from core.lab.cached_lane import CachedLane, Lane
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel


class NamedLane(CachedLane):
    """A lane that writes down when it was asked."""

    def __init__(self, model: LanguageModel, name: str, log: list[str], cache: KVCache | None = None) -> None:
        super().__init__(model, cache)
        self._name, self._log = name, log

    def hidden(self, ids: Sequence[int]) -> Tensor:
        self._log.append(self._name)
        return super().hidden(ids)

    def copied(self) -> Lane:
        return NamedLane(self.model, self._name, self._log, self._cache.first(self._cache.n_tokens))


def test_neither_lane_is_always_the_first(tiny_f32: LanguageModel) -> None:
    """The first one finds the processor's caches filled with something else: that must not always be the same one."""
    log: list[str] = []
    asked = Asked(tiny_f32.prompt_ids("Rain"), 6, tiny_f32.tokenizer.encode("Rain"), "en")
    comparison = BeforeAfter(
        tiny_f32, lambda: (NamedLane(tiny_f32, "before", log), NamedLane(tiny_f32, "after", log)), asked
    )
    measurement = comparison.measurement("test", (), 0)
    for index, point in enumerate(measurement.points):
        if index == len(measurement.points) - 6:  # the prompt, then five decode steps
            log.clear()
        point()
        measurement.on_point(index, Point(None, 1.0, 3, index == 2))
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert pairs == [("before", "after"), ("after", "before")] * 3
    result = comparison.result
    assert all(token.before_id == token.after_id for token in result.tokens) and len(result.tokens) == 6
    assert result.held_language == "en" and result.n_disturbed == 1
