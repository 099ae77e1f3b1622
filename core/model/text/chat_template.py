"""From a conversation to the one text a chat model was trained to continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

from jinja2.exceptions import SecurityError, TemplateError

from core.model.text.template_budget import Budget
from core.model.text.template_sandbox import BUDGET, TemplateSandbox
from core.refusal import Refusal

LONGEST_SOURCE = 65_536
LONGEST_ROOM = 1_000_000
"""Characters a template may add to a conversation."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `role` is "system", "user" or "assistant"."""

    role: str
    content: str


class ChatTemplate:
    """A model's chat template: jinja2, run in a sandbox with limits (see `template_sandbox`). Shared, immutable."""

    def __init__(self, source: str, *, start_token: str, end_token: str) -> None:
        """Raises Refusal when the template is too long, broken, or uses what chat templates have no use for."""
        if len(source) > LONGEST_SOURCE:
            raise Refusal("text.template_too_long", limit=LONGEST_SOURCE)
        self._tokens = {"bos_token": start_token, "eos_token": end_token}
        try:
            self._template = TemplateSandbox().prepare(source)
        except Exception as problem:
            _refuse(problem)

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The text of a conversation, ending where the assistant's answer begins.

        Raises Refusal when the template refuses the conversation (roles in a wrong order, say), fails, costs too much
        or writes too much.
        """
        told = sum(len(message.role) + len(message.content) for message in messages)
        variables = {
            "messages": [asdict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
            **self._tokens,
            BUDGET: Budget(extra=32 * told),
        }
        try:
            text = str(self._template.render(variables))
        except Exception as problem:
            _refuse(problem)
        if len(text) > LONGEST_ROOM + 2 * told:
            raise Refusal("text.template_too_costly")
        return text


class UnusableTemplate(ChatTemplate):
    """Stands for a template that cannot be used: the model runs on raw prompts, and a conversation is told why not."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """Raises the Refusal that the template met when the model was opened."""
        raise self._refusal


def _refuse(problem: Exception) -> NoReturn:
    """One sentence for whatever went wrong inside a template. jinja2's own words name no file of this machine."""
    if isinstance(problem, Refusal):
        raise problem
    reason = " ".join(str(problem).split())[:160]
    if isinstance(problem, SecurityError):
        raise Refusal("text.template_not_allowed", reason=reason) from problem
    if type(problem) is TemplateError:
        raise Refusal("text.template_refuses", reason=reason) from problem
    if isinstance(problem, RecursionError | MemoryError | OverflowError):
        raise Refusal("text.template_too_costly") from problem
    raise Refusal("text.template_broken", reason=reason) from problem
