"""How far a sweep of a server may go, and how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass

MOST_CONCURRENT = 256
"""Requests at once: a thread and a connection each."""
MOST_CONTEXT = 2**20
MOST_TOKENS_AT_ONCE = 2**23
"""Context × batch: the prompts of a point are held as text, some six bytes a token."""
LEAST_NEW_TOKENS, DEFAULT_NEW_TOKENS, MOST_NEW_TOKENS = 4, 32, 4096
MOST_REPEATS = 100
MOST_EVENT_BYTES = 2**20
"""One line of a stream."""
MOST_ANSWER_BYTES = 2**26
"""All of one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a whole sweep, and patience with one request; seconds.

    Attributes:
        requests: the most that are sent, probes and repetitions included.
        total_s: how long the sweep may take.
        connect_s: for a connection, encryption included.
        first_token_s: from sending a request to its first token, or to the whole of an answer that is no stream.
        between_tokens_s: from one token to the next.
        retries: how many times a point is repeated after a fault that may pass.
        longest_pause_s: the most that is waited before a repetition, whatever a server asks for.
        first_pause_s: waited before the first repetition; doubled with each further one.
    """

    requests: int = 5000
    total_s: float = 3600.0
    connect_s: float = 5.0
    first_token_s: float = 120.0
    between_tokens_s: float = 30.0
    retries: int = 3
    longest_pause_s: float = 60.0
    first_pause_s: float = 0.5
