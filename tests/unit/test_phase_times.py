"""Prefill against n, with and without the cache: the passes are those of a run, what is too long is refused."""

from __future__ import annotations

import pytest
import torch

from core.estimate.flops import decode_flops, prefill_flops
from core.lab.phase_times import MOST_POSITIONS, PhaseSweep
from core.model.load import LanguageModel
from core.refusal import Refusal


def test_every_context_is_passed_through_whole_and_cached(tiny_f32: LanguageModel) -> None:
    seen: list[tuple[int, int]] = []
    hidden = tiny_f32.transformer.hidden

    def heard(ids: torch.Tensor, caches: list) -> torch.Tensor:  # type: ignore[type-arg]
        seen.append((caches[0].n_tokens, ids.shape[1]))
        return hidden(ids, caches)

    sweep = PhaseSweep(tiny_f32, (140, 20), 2)
    assert sweep.result == ()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_f32.transformer, "hidden", heard)
        for point in sweep.measurement().points:
            point()
            point()  # a disturbed one is measured again
    up, down = [(0, 20)], [(0, 128), (128, 12)]
    whole = [one for one in seen if one[1] > 1][::2]
    assert whole == [*up, *down, *down, *up]
    assert {one for one in seen if one[1] == 1} == {(19, 1), (139, 1)}
    assert [(one.context, one.n_repeats) for one in sweep.result] == [(20, 2), (140, 2)]
    for one in sweep.result:
        assert one.whole_flops == prefill_flops(tiny_f32.shape, one.context, chunk=128)
        assert one.cached_flops == decode_flops(tiny_f32.shape, one.context)
        assert one.whole_s > 0 and one.cached_s > 0


@pytest.mark.parametrize(
    ("contexts", "repeats", "key"),
    [((16, 10**6), 1, "sweep.context_too_long"), ((512,), MOST_POSITIONS // 512 + 1, "sweep.too_many_positions")],
)
def test_too_much_is_a_sentence(tiny_f32: LanguageModel, contexts: tuple[int, ...], repeats: int, key: str) -> None:
    with pytest.raises(Refusal) as refused:
        PhaseSweep(tiny_f32, contexts, repeats)
    assert refused.value.key == key
