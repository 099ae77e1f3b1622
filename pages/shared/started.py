"""What a visitor's run began with, and where it lies. Nothing of streamlit here."""

from __future__ import annotations

from dataclasses import dataclass

from core.engine.prefix import n_common
from core.engine.run import Run, RunConfig
from core.engine.trace import Trace
from core.model.load import LanguageModel
from core.model.text.chat_template import Message


@dataclass
class Slot:
    """Where a visitor's run lies with its cache; empty before the first step and after the visitor has gone."""

    run: Run | None = None

    def release(self) -> None:
        """Gives the memory back; whoever still waits for something of the run is told that it is gone."""
        if self.run is not None:
            self.run.interrupt()
        self.run = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a run was started with.

    `history` is what stood before the prompt in the conversation, a system message first if there was one.
    `computed_again` counts the positions at its head that the run before it had in its cache already.
    """

    model: LanguageModel
    config: RunConfig
    in_chat: bool
    prompt: str = ""
    history: tuple[Message, ...] = ()
    computed_again: int = 0

    def same_settings(self, other: Started) -> bool:
        """Whether both would treat a prompt alike."""
        return (self.model, self.config, self.in_chat) == (other.model, other.config, other.in_chat)


def telling_head(run: Run) -> tuple[int, int]:
    """A (layer, head) worth a look: in the middle layer, the one that cares least for the first token.

    Many heads of a trained model rest on the first position whenever they have nothing to say.
    """
    layer = run.model.config.n_layers // 2
    heads = range(run.model.config.n_heads)
    newest = len(run.steps) - 1
    return layer, min(heads, key=lambda head: float(run.attention(newest, layer, head).weights[0]))


def n_shared(trace: Trace, ids: list[int]) -> int:
    """How many tokens at the head of `ids` have their keys and values in the cache that this record left."""
    return n_common([*trace.prompt_ids, *trace.output_ids[:-1]], ids)
