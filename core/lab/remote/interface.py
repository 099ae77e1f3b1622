"""The two interfaces of the protocol that write text."""

from __future__ import annotations

from enum import StrEnum


class Api(StrEnum):
    """Text that is continued as it stands, or a message that is answered through the model's chat template."""

    COMPLETIONS = "completions"
    CHAT = "chat"

    @property
    def route(self) -> str:
        """Behind /v1/."""
        return "chat/completions" if self is Api.CHAT else "completions"
