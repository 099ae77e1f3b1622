"""What one visitor may ask for, and what all caches together may take: numbers that the operator sets."""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from core.refusal import Refusal

KV_BYTES = "TBT_KV_BYTES"
MINUTE = 60.0
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*([A-Za-z]*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most one visitor may ask for; each is set by TBT_ and its name in capitals.

    Attributes:
        prompt_tokens: of a prompt, with everything before it in the conversation.
        prompt_tokens_no_cache: the same for the loop that recomputes the whole prefix for every token.
        new_tokens: of one run.
        starts_per_minute: runs a visitor begins in any minute.
    """

    prompt_tokens: int = 4096
    prompt_tokens_no_cache: int = 1024
    new_tokens: int = 1024
    starts_per_minute: int = 60

    def check(self, n_prompt: int, max_new: int, *, use_cache: bool) -> None:
        """Raises Refusal naming what is too long and how long it may be."""
        if n_prompt > self.prompt_tokens:
            raise Refusal("engine.prompt_over_limit", n_tokens=n_prompt, limit=self.prompt_tokens)
        if not use_cache and n_prompt > self.prompt_tokens_no_cache:
            raise Refusal("engine.prompt_over_limit_no_cache", n_tokens=n_prompt, limit=self.prompt_tokens_no_cache)
        if max_new > self.new_tokens:
            raise Refusal("engine.new_tokens_over_limit", n_tokens=max_new, limit=self.new_tokens)


class StartRate:
    """How many runs one visitor began within the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._starts: deque[float] = deque()

    def count(self, most: int) -> None:
        """Counts a start. Raises Refusal, and counts none, where `most` were made within a minute."""
        now = self._clock()
        while self._starts and now - self._starts[0] >= MINUTE:
            self._starts.popleft()
        if len(self._starts) >= most:
            seconds = max(1.0, MINUTE - (now - self._starts[0]))
            raise Refusal("engine.starts_over_limit", limit=most, seconds=seconds)
        self._starts.append(now)


def limits_set(environment: Mapping[str, str] = os.environ) -> Limits:
    """The limits as the operator set them. A setting that is no whole number from 1 on is logged and left out."""
    given = {}
    for field in fields(Limits):
        name = f"TBT_{field.name.upper()}"
        text = environment.get(name, "").strip()
        if text.isascii() and text.isdecimal() and 0 < len(text) < 10 and int(text) > 0:
            given[field.name] = int(text)
        elif text:
            _ignored(name, Refusal("engine.setting_no_number", name=name, value=text[:40]))
    return Limits(**given)


def kv_budget_bytes(free_bytes: int | None, environment: Mapping[str, str] = os.environ) -> int:
    """Bytes that all caches together may take: TBT_KV_BYTES, a number of bytes or with a unit as in "2GiB".

    Not set, it is half of what is free on the device when the first run begins, or 1 GiB where the system does not say.
    """
    default = 2**30 if free_bytes is None else free_bytes // 2
    text = environment.get(KV_BYTES, "").strip()
    amount = _AMOUNT.fullmatch(text)
    unit = None if amount is None else _UNITS.get(amount[2].upper())
    if amount is not None and unit is not None and float(amount[1]) * unit >= 1:
        return int(float(amount[1]) * unit)
    if text:
        _ignored(KV_BYTES, Refusal("engine.setting_no_size", name=KV_BYTES, value=text[:40]))
    return default


def _ignored(name: str, refusal: Refusal) -> None:
    logging.getLogger(__name__).warning("%s", refusal, extra={"setting": name})
