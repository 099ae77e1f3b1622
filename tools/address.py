"""Where the server listens: the settings PORT and ADDRESS, checked before anything is installed."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from tools.problem import Problem

DEFAULT_PORT = 8501
# An address of the range kept for documentation: connecting a datagram socket to it sends nothing.
FAR_AWAY = ("192.0.2.1", 9)


@dataclass(frozen=True, slots=True)
class Address:
    """A port and the address to listen on; without an address the server listens on all of this machine's."""

    port: int
    host: str = ""

    @classmethod
    def from_settings(cls, settings: Mapping[str, str]) -> Address:
        """From PORT and ADDRESS of the environment. Raises Problem for a PORT that is none."""
        text = settings.get("PORT", "").strip() or str(DEFAULT_PORT)
        port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
        if not 1 <= port <= 65535:
            raise Problem(f"PORT={text} is not a port: give a whole number from 1 to 65535, as in PORT=8600.")
        return cls(port, settings.get("ADDRESS", "").strip())

    def require_free(self) -> None:
        """Raises Problem when a server could not listen here now."""
        try:
            with self._socket() as listener:
                listener.listen(1)
        except OSError as error:
            raise Problem(self._sentence(error)) from None

    def describe(self) -> str:
        """The addresses to type into a browser: here, and from other machines when they can reach it."""
        if self.host not in ("", "0.0.0.0", "::"):
            return _url(self.host, self.port)
        elsewhere = _address_in_the_network()
        here = _url("localhost", self.port)
        return f"{here}   (from other machines: {_url(elsewhere, self.port)})" if elsewhere else here

    def streamlit_options(self) -> list[str]:
        options = ["--server.port", str(self.port)]
        return [*options, "--server.address", self.host] if self.host else options

    def _socket(self) -> socket.socket:
        """Bound as the server will bind: IPv6 and IPv4 together where there is IPv6, else IPv4."""
        if self.host:
            return _bound(self.host, self.port)
        try:
            return _bound("::", self.port)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                raise
            return _bound("0.0.0.0", self.port)

    def _sentence(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            other = self.port + 1 if self.port < 65535 else DEFAULT_PORT
            return (
                f"port {self.port} is taken by another program: stop that one, or choose another, as in PORT={other}."
            )
        if error.errno == errno.EACCES:
            return f"port {self.port} is kept for the system: choose one from 1024 on, as in PORT={DEFAULT_PORT}."
        return (
            f"ADDRESS={self.host} is not an address of this machine ({error.strerror}): "
            "leave it out to listen on all of them, or use ADDRESS=127.0.0.1."
        )


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def _address_in_the_network() -> str:
    """This machine's address on the way out; nothing when it has no network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(FAR_AWAY)
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
