"""What the tiny model remembers: greedy continuations, and couplets counted against hashes of their second halves.

couplets.json holds no verse: for each poem its title and author, and the hashes of the halves of its couplets. Whoever
lacks the poems can still put the question: the model recites a poem from its title, the hashes tell which of its lines
are true first halves, and each of these is then asked alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

import torch

from core.model.text.tokenizer import Tokenizer
from core.model.transformer import Transformer

PROMPTS_TOGETHER = 128  # bounds the memory of the caches
HALF_LINE = re.compile(r"[^，、。？！；：]+[，、。？！；：]")

# Hashes of first halves, each with those of all second halves that follow it somewhere.
Digests = Mapping[str, Sequence[str]]


def digest(text: str) -> str:
    """The first 16 hex digits of the SHA-256 of `text` in UTF-8: enough to tell some thousand lines apart."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def gather(pairs: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """Pairs of hashes (first half, second half) as `Digests`."""
    digests: dict[str, list[str]] = {}
    for first, second in pairs:
        digests.setdefault(first, []).append(second)
    return digests


def continue_greedily(
    model: Transformer, tokenizer: Tokenizer, prompts: Sequence[str], *, n_new: int, end_token_ids: frozenset[int]
) -> list[str]:
    """Continues each prompt by up to `n_new` most likely tokens, or to an end token; many prompts share a step."""
    written: list[str] = []
    for first in range(0, len(prompts), PROMPTS_TOGETHER):
        rows = [tokenizer.encode(prompt) for prompt in prompts[first : first + PROMPTS_TOGETHER]]
        written += map(tokenizer.decode, _continue_rows(model, rows, n_new, end_token_ids))
    return written


@torch.inference_mode()
def _continue_rows(
    model: Transformer, rows: Sequence[list[int]], n_new: int, end_token_ids: frozenset[int]
) -> list[list[int]]:
    """The new ids of each row, without the end token. Every row has its own cache; rows that ended leave the batch."""
    new_ids: list[list[int]] = [[] for _ in rows]
    caches = [model.new_cache() for _ in rows]
    hidden = [model.hidden(torch.tensor([row]), [cache])[:, -1] for row, cache in zip(rows, caches, strict=True)]
    last = torch.cat(hidden)  # (B, d)
    writing = list(range(len(rows)))
    for _ in range(n_new):
        chosen = model.logits(last).argmax(-1).tolist()  # (B, d) → (B, vocab) → B ids
        goes_on = [
            (index, token_id) for index, token_id in zip(writing, chosen, strict=True) if token_id not in end_token_ids
        ]
        for index, token_id in goes_on:
            new_ids[index].append(token_id)
        writing = [index for index, _ in goes_on]
        if not writing:
            break
        step = torch.tensor([[token_id] for _, token_id in goes_on])  # (B, 1)
        last = model.hidden(step, [caches[index] for index in writing])[:, -1]
    return new_ids


def n_recalled(continuations: Mapping[str, str], digests: Digests) -> int:
    """How many first halves are continued with a second half that follows them somewhere, its closing mark included.

    `continuations` has what the model wrote after each first half. A first half with several second halves counts once,
    and any of them will do.
    """
    recalled = 0
    for first, written in continuations.items():
        half = HALF_LINE.match(written)
        recalled += half is not None and digest(half[0]) in digests.get(digest(first), ())
    return recalled
