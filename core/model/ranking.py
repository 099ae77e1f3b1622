"""Token ids from the best score down, as deep as somebody asks: the vocabulary is never sorted further."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

Scores = npt.NDArray[np.floating]
TokenIds = npt.NDArray[np.int64]

RANKED_IN_GROUPS_OF = 256


class Ranking:
    """Token ids from the highest score to the lowest, ties by lower id, found only as deep as somebody asks."""

    def __init__(self, scores: Scores) -> None:
        self._scores = scores
        self._ids: TokenIds = np.empty(0, dtype=np.int64)

    def first(self, count: int) -> TokenIds:
        """The best `count` ids (all of them where there are fewer)."""
        size = len(self._scores)
        count = min(count, size)
        if len(self._ids) < count:
            if count * 8 >= size:
                found = np.arange(size)
            else:
                # Everything that ties with the last place comes along, so the order of ties is ours, not topk's.
                threshold = _reached_by(self._scores, count)
                found = np.flatnonzero(self._scores >= threshold)
            self._ids = found[np.argsort(-self._scores[found], kind="stable")]
        return self._ids[:count]


def _reached_by(scores: Scores, count: int) -> float:
    """A score that at least `count` tokens reach: the lowest of as many groups' best, a third of topk's time."""
    n_groups = len(scores) // RANKED_IN_GROUPS_OF
    if count > n_groups:
        return float(torch.topk(torch.from_numpy(scores), count).values[-1])
    best = scores[: n_groups * RANKED_IN_GROUPS_OF].reshape(n_groups, -1).max(1)
    return float(np.partition(best, -count)[-count])
