"""The system prompt, and what was said before: behind one quiet button, because most visitors need neither."""

from __future__ import annotations

import streamlit as st

from core.model.text.chat_template import Message
from pages.shared.html import Html, fill, join
from pages.shared.language import t
from pages.shared.visit import Visit

MESSAGES_SHOWN = 12
CHARACTERS_SHOWN = 400


def conversation(visit: Visit) -> tuple[str, tuple[Message, ...]]:
    """The system prompt as written, and all that stands before the prompt: it, unless it is blank, and the turns."""
    n_turns = sum(message.role == "user" for message in visit.turns)
    label = t("settings.conversation_turns", count=n_turns) if n_turns else t("settings.conversation")
    with st.popover(label, key="conversation", type="tertiary"):
        system_prompt = st.text_area(
            t("settings.system_prompt"),
            key="system_prompt",
            height=90,
            persist_state="session",
            placeholder=t("settings.system_prompt_empty"),
        )
        st.html(_told(visit.turns))
        if visit.turns:
            st.button(t("settings.forget"), key="forget_turns", on_click=visit.forget_turns)
    system = (Message("system", system_prompt),) if system_prompt.strip() else ()
    return system_prompt, (*system, *visit.turns)


def _told(turns: tuple[Message, ...]) -> Html:
    """The newest messages, each clipped; a word about those before them."""
    if not turns:
        return fill('<p class="tbt-untold">{text}</p>', text=t("settings.no_turns"))
    older = len(turns) - MESSAGES_SHOWN
    return fill(
        '<ol class="tbt-told" tabindex="0" aria-label="{name}">{older}{messages}</ol>',
        name=t("settings.history"),
        older=fill("<li>{text}</li>", text=t("settings.older_messages", count=older)) if older > 0 else Html(""),
        messages=join(_message(message) for message in turns[-MESSAGES_SHOWN:]),
    )


def _message(message: Message) -> Html:
    text = message.content[:CHARACTERS_SHOWN] + ("…" if len(message.content) > CHARACTERS_SHOWN else "")
    return fill(
        "<li><b>{who}</b><bdi>{text}</bdi></li>",
        who=t(f"settings.role_{message.role}"),
        text=text,
    )
