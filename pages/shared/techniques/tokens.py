"""A token alone in a cell or on a chip, where a space would not be seen."""

from __future__ import annotations

from core.model.text.tokenizer import Tokenizer


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The token's label with a sign for every space at its edges; what stands inside, between the bytes of a part of a
    character for example, is part of the label."""
    label = tokenizer.token_label(token_id)
    before, after = len(label) - len(label.lstrip(" ")), len(label) - len(label.rstrip(" "))
    return "␣" * len(label) if before == len(label) else "␣" * before + label.strip(" ") + "␣" * after
