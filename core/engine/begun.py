"""What a record is read with: what a run began with, and what is known of its model, whether it runs here or not.

A `LanguageModel` knows all of this. So does the file of a saved run, which is opened where the model is not.
"""

from __future__ import annotations

from typing import Protocol

from core.engine.run import RunConfig
from core.estimate.dtypes import KvDtypes
from core.estimate.shape import ModelShape
from core.model.config import ModelConfig
from core.model.text.chat_template import Message


class Labels(Protocol):
    """Tokens as a reader sees them."""

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""

    def token_label(self, token_id: int) -> str:
        """What a chip shows of a token."""

    def is_part_of_a_character(self, token_id: int) -> bool:
        """Whether its bytes are no whole characters."""


class ModelFacts(Protocol):
    """What the figures of a run need to know of its model."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def config(self) -> ModelConfig:
        """The numbers that fix its shape."""

    @property
    def tokenizer(self) -> Labels:
        """Its tokens."""

    @property
    def dtype_name(self) -> str:
        """ "f32", "bf16" or "f16"."""

    @property
    def element_bytes(self) -> int:
        """b_kv: bytes of one number of its cache."""

    @property
    def shape(self) -> ModelShape:
        """The model as the estimates see it."""

    @property
    def kv_dtypes(self) -> KvDtypes:
        """What its cache is kept in."""


class Begun(Protocol):
    """What a run began with, as `pages.shared.started.Started` and `SavedRun` both hold it."""

    @property
    def model(self) -> ModelFacts:
        """The model it is a run of."""

    @property
    def config(self) -> RunConfig:
        """Its settings."""

    @property
    def in_chat(self) -> bool:
        """Whether the prompt was a message."""

    @property
    def prompt(self) -> str:
        """The prompt as it was written."""

    @property
    def history(self) -> tuple[Message, ...]:
        """What stood before the prompt."""

    @property
    def computed_again(self) -> int:
        """Positions at its head that the run before it had in its cache already."""
