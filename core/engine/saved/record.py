"""A run as a file holds it: everything its record shows, and nothing that needs the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from core.engine.begun import Begun
from core.engine.run import RunConfig
from core.engine.trace import FloatArray, Trace
from core.estimate.dtypes import DTYPES, KvDtypes
from core.estimate.shape import ModelShape, shape_of
from core.model.config import ModelConfig
from core.model.load import LanguageModel
from core.model.products import available_cores
from core.model.text.chat_template import Message


@dataclass(frozen=True, slots=True)
class RecordedLabels:
    """The tokens that a record names, by id: a label, and whether it is only part of a character."""

    vocab_size: int
    known: Mapping[int, tuple[str, bool]]

    def token_label(self, token_id: int) -> str:
        """What a chip shows of a token that the record names."""
        return self.known[token_id][0]

    def is_part_of_a_character(self, token_id: int) -> bool:
        """Whether its bytes are no whole characters."""
        return self.known[token_id][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedModel:
    """What a record says of its model and of the machine it ran on.

    `config` has the numbers that fix the shape; rotary settings and the norms' epsilon are not kept, no figure needs
    them. `n_cores` is 0 where they do not matter or nobody knows.
    """

    config: ModelConfig
    dtype_name: str
    tokenizer: RecordedLabels
    device: str
    n_cores: int

    @property
    def name(self) -> str:
        """What it is called."""
        return self.config.name

    @property
    def element_bytes(self) -> int:
        """b_kv: bytes of one number of its cache."""
        return DTYPES[self.dtype_name].block_bytes

    @property
    def shape(self) -> ModelShape:
        """The model as the estimates see it."""
        return shape_of(self.config)

    @property
    def kv_dtypes(self) -> KvDtypes:
        """What its cache is kept in."""
        return KvDtypes(DTYPES[self.dtype_name], DTYPES[self.dtype_name])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptRow:
    """How strongly a step's newest position looked at each position, in one layer and head: read-only fp32 [n]."""

    step: int
    layer: int
    head: int
    weights: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedRun:
    """A run that needs no model any more.

    Attributes:
        prompt, history: what was asked, and what stood before it in the conversation.
        computed_again: positions at the prompt's head that the run before it had in its cache already.
        waiting_seconds: what the first step waited for those of others.
        trace: the record. Of keys and values it has the norms of the columns that each step added.
        rows: attention as far as it was kept, one row a step at most, in the order of the steps.
        saved_at: seconds since 1970, UTC.
    """

    model: RecordedModel
    config: RunConfig
    in_chat: bool
    prompt: str
    history: tuple[Message, ...]
    computed_again: int
    waiting_seconds: float
    trace: Trace
    rows: tuple[KeptRow, ...]
    saved_at: int


def recorded_model(model: LanguageModel, trace: Trace) -> RecordedModel:
    """What a record has to say of a model, with the labels of all tokens that its trace names."""
    tokens = model.tokenizer
    labels = {each: (tokens.token_label(each), tokens.is_part_of_a_character(each)) for each in _named(trace)}
    kind = model.device.kind
    return RecordedModel(
        config=model.config,
        dtype_name=model.dtype_name,
        tokenizer=RecordedLabels(tokens.vocab_size, labels),
        device=kind,
        n_cores=available_cores() if kind == "cpu" else 0,
    )


def saved_run(
    model: LanguageModel, begun: Begun, trace: Trace, *, rows: tuple[KeptRow, ...], waiting_seconds: float, now: float
) -> SavedRun:
    """A run of a model that is here, as it can be saved at the time `now`."""
    return SavedRun(
        model=recorded_model(model, trace),
        config=begun.config,
        in_chat=begun.in_chat,
        prompt=begun.prompt,
        history=begun.history,
        computed_again=begun.computed_again,
        waiting_seconds=waiting_seconds,
        trace=trace,
        rows=rows,
        saved_at=int(now),
    )


def _named(trace: Trace) -> Iterator[int]:
    """The ids of all tokens that a record shows, each once."""
    seen = dict.fromkeys((*trace.prompt_ids, *trace.output_ids))
    for step in trace.steps:
        seen |= dict.fromkeys(each.token_id for each in (step.sampled.candidates if step.sampled else ()))
    return iter(seen)
