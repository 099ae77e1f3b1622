"""What can go wrong between us and a server: each as a sentence, with whether to try again and whether to go on."""

from __future__ import annotations

from enum import StrEnum

from core.refusal import Refusal


class Kind(StrEnum):
    """The code of a fault, as it stands in a record."""

    UNREACHABLE = "unreachable"
    UNTRUSTED = "untrusted"  # its certificate
    UNAUTHORISED = "unauthorised"
    NOT_FOUND = "not_found"
    REDIRECTED = "redirected"
    REJECTED = "rejected"  # the request as such: too long a prompt, an unknown field
    RATE_LIMITED = "rate_limited"
    LONG_WAIT = "long_wait"  # the server asks to be left alone for longer than is waited
    SERVER_ERROR = "server_error"
    NOT_HTTP = "not_http"
    NOT_JSON = "not_json"
    NOT_STREAMED = "not_streamed"  # a whole answer, though a stream was asked for
    TOO_LARGE = "too_large"
    CUT = "cut"
    EMPTY = "empty"
    SLOW_ANSWER = "slow_answer"
    SLOW_TOKEN = "slow_token"
    NO_TIME = "no_time"
    CANCELLED = "cancelled"


# May pass by itself: the same is asked again, up to a limit.
_PASSING = frozenset(
    {Kind.UNREACHABLE, Kind.RATE_LIMITED, Kind.SERVER_ERROR, Kind.NOT_HTTP, Kind.NOT_JSON, Kind.CUT}
    | {Kind.SLOW_ANSWER, Kind.SLOW_TOKEN}
)
# Meets every other point too: the sweep ends, and what is finished stays.
_FINAL = frozenset(
    {Kind.UNREACHABLE, Kind.UNTRUSTED, Kind.UNAUTHORISED, Kind.NOT_FOUND, Kind.REDIRECTED}
    | {Kind.LONG_WAIT, Kind.NO_TIME, Kind.CANCELLED}
)


class Fault(Refusal):
    """A request that failed.

    Attributes:
        kind: what happened.
        status: the HTTP status; 0 where there was none.
        retry_after_s: how long the server asks to be left alone; None where it says nothing.
        said: what the server says about it: one short line without the key; empty where it says nothing.
    """

    def __init__(self, kind: Kind, *, status: int = 0, retry_after_s: float | None = None, said: str = "") -> None:
        super().__init__(f"endpoint.fault_{kind}")
        self.kind, self.status, self.retry_after_s, self.said = kind, status, retry_after_s, said

    @property
    def is_passing(self) -> bool:
        """Whether the same request may go through a little later."""
        return self.kind in _PASSING

    @property
    def is_final(self) -> bool:
        """Whether no other point would fare better."""
        return self.kind in _FINAL

    def sentence(self, language: str = "en") -> str:
        """What happened, and what the server says about it."""
        happened = super().sentence(language)
        status = f" (HTTP {self.status})" if self.status else ""
        said = f" [{self.said}]" if self.said else ""
        return f"{happened}{status}{said}"
