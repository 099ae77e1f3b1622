"""Tokens as chips, and the text they make: always as text, never as markup."""

from __future__ import annotations

from core.engine.trace import Trace
from core.model.text.tokenizer import Tokenizer
from pages.shared.html import Html, fill, join
from pages.shared.language import t

MOST_CHIPS, FIRST_CHIPS = 320, 60


def token_strip(tokenizer: Tokenizer, trace: Trace) -> Html:
    """Prompt tokens, then produced ones; the newest, which has no column in the cache yet, is outlined."""
    ids = [*trace.prompt_ids, *trace.output_ids]
    n_prompt, last = len(trace.prompt_ids), len(ids) - 1
    chips = [
        _chip(tokenizer, position, ids[position], _kind(position, n_prompt, last)) for position in _shown(len(ids))
    ]
    n_hidden = len(ids) - len(chips)
    if n_hidden:
        chips.insert(FIRST_CHIPS, fill('<li class="tbt-more">{text}</li>', text=t("tokens_left_out", count=n_hidden)))
    label = t("strip_label", prompt=n_prompt, produced=len(trace.output_ids))
    return fill('<ol class="tbt-strip" aria-label="{label}">{chips}</ol>', label=label, chips=join(chips))


def produced_text(text: str) -> Html:
    """The answer so far, its spaces and line ends kept."""
    return fill('<div class="tbt-text" dir="auto" lang="">{text}</div>', text=text)


def _shown(n_tokens: int) -> list[int]:
    """All positions; of a long run the first few and the newest."""
    if n_tokens <= MOST_CHIPS:
        return list(range(n_tokens))
    return [*range(FIRST_CHIPS), *range(n_tokens - (MOST_CHIPS - FIRST_CHIPS), n_tokens)]


def _kind(position: int, n_prompt: int, last: int) -> str:
    if position < n_prompt:
        return "prompt"
    return "new" if position == last else "produced"


def _chip(tokenizer: Tokenizer, position: int, token_id: int, kind: str) -> Html:
    return fill(
        '<li class="tbt-chip tbt-{kind}" title="{title}"><bdi>{label}</bdi></li>',
        kind=kind,
        title=t("chip_title", position=position, token_id=token_id),
        label=tokenizer.token_label(token_id),
    )
