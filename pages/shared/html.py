"""HTML put together so that a value can never become markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Text that is HTML already; everything else is escaped when it is filled in."""

    __slots__ = ()


def fill(template: str, **values: object) -> Html:
    """`template` with its {placeholders} filled: plain values escaped, Html as it is."""
    return Html(template.format(**{name: as_html(value) for name, value in values.items()}))


def as_html(value: object) -> Html:
    """A value as HTML: escaped, unless it is Html."""
    return value if isinstance(value, Html) else Html(escape(str(value)))


def join(parts: Iterable[Html], between: str = "") -> Html:
    """Pieces of HTML in a row."""
    return Html(between.join(parts))
