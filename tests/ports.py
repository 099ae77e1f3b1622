"""Loopback ports for servers that a test starts."""

from __future__ import annotations

import random
import socket

# Below what systems give to clients, and to whoever asks for port 0: of those, one that is free now may be somebody
# else's when the server listens some seconds later, and even a connection that has ended keeps it for a minute.
OURS = range(20_000, 32_000)


def free_port() -> int:
    """A port that nobody holds, and that nobody is given by chance before the server listens."""
    for port in random.SystemRandom().sample(OURS, 100):
        with socket.socket() as trying:
            try:
                trying.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("a hundred ports were all taken")
