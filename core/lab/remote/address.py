"""Where a server is, and the key it asks for: an address without secrets, and a secret that nothing prints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from core.refusal import Refusal

KEY_VARIABLES = ("TBT_ENDPOINT_KEY", "OPENAI_API_KEY")
"""Environment variables that may hold the key; the first that is set counts."""
MOST_URL, MOST_KEY, MOST_SAID = 500, 4096, 200
_SHORTEST_LEAK = 6
"""A run of so many characters of the key in a server's words, and the words are left out."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address: `path` is where its /v1 begins, "" for most."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_here(self) -> bool:
        """Whether what is sent stays on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def of(self, route: str) -> str:
        """The request path of a route of the protocol, such as "models"."""
        return f"{self.path}/v1/{route}"

    @property
    def metrics(self) -> str:
        """The request path of its figures in Prometheus's text form, beside /v1."""
        return f"{self.path}/metrics"


def address_of(url: str) -> Address:
    """The address a URL names, with or without /v1 at its end.

    Raises:
        Refusal: it is not http or https, or holds what does not belong there: a user name, a password, a query. The
            sentence does not repeat the URL, which may hold a secret.
    """
    if len(url) > MOST_URL or not url.isascii() or any(not 32 < ord(letter) < 127 for letter in url):
        raise Refusal("endpoint.url_unreadable")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise Refusal("endpoint.url_unreadable") from None
    if parts.scheme not in ("http", "https"):
        raise Refusal("endpoint.url_scheme")
    if "@" in parts.netloc:
        raise Refusal("endpoint.url_credentials", variable=KEY_VARIABLES[0])
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise Refusal("endpoint.url_query", variable=KEY_VARIABLES[0])
    if not host or port == 0:
        raise Refusal("endpoint.url_unreadable")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path)


class Key:
    """A key from the environment. It leaves this object only as a header: no text, copy or file of it has it."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str = "") -> None:
        """Raises Refusal for what cannot stand in a header; the sentence does not repeat it."""
        if len(secret) > MOST_KEY or any(not 32 < ord(letter) < 127 for letter in secret):
            raise Refusal("endpoint.key_unreadable", variables=" / ".join(KEY_VARIABLES))
        self._secret = secret

    def __bool__(self) -> bool:
        return bool(self._secret)

    def __repr__(self) -> str:
        return "Key(…)" if self else "Key()"

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")

    def headers(self) -> dict[str, str]:
        """The header that carries it; none without a key."""
        return {"Authorization": f"Bearer {self._secret}"} if self else {}

    def without(self, said: str) -> str:
        """A server's words as one short printable line; empty where they hold the key or a piece of it."""
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in said).split())
        secret = self._secret
        run = min(_SHORTEST_LEAK, len(secret))
        pieces = {secret[begin : begin + run] for begin in range(len(secret) - run + 1)} if secret else set()
        if any(piece in line for piece in pieces):
            return ""
        return line if len(line) <= MOST_SAID else line[: MOST_SAID - 1] + "…"


def key_from_environment(environment: Mapping[str, str] = os.environ) -> Key:
    """The key that the environment holds, or none. Raises Refusal for one that cannot be sent."""
    found = (environment.get(name, "").strip() for name in KEY_VARIABLES)
    return Key(next((secret for secret in found if secret), ""))
