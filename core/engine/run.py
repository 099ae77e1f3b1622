"""One run: a prompt, its settings, its own cache, and the steps so far. Two runs on one model never meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor

from core.engine.recorder import RecordConfig, attention_row
from core.engine.trace import AttentionRow, StepEvent, Stop, StopKind, Trace
from core.model.kv_cache import KVCache
from core.model.load import LanguageModel
from core.model.sampling import SamplingConfig
from core.model.text.text_stream import TextStream
from core.refusal import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """How a prompt is continued.

    `use_cache=False` is the loop that sends the whole prefix through the model for every token. `prefill_chunk` cuts
    a prefill into passes of so many positions (None: one pass); the results are equal.
    """

    max_new: int = 64
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    use_cache: bool = True
    prefill_chunk: int | None = None
    record: RecordConfig = field(default_factory=RecordConfig)

    def __post_init__(self) -> None:
        if not isinstance(self.max_new, int) or isinstance(self.max_new, bool) or self.max_new < 0:
            raise Refusal("engine.max_new_negative", value=repr(self.max_new)[:40])
        chunk = self.prefill_chunk
        if chunk is not None and (not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1):
            raise Refusal("engine.prefill_chunk_not_positive", value=repr(chunk)[:40])


class Interrupted(Exception):
    """A pass was ended before it was done, because its run's owner asked for it; the step left no trace."""


class Run:
    """The state of one continuation. It changes only through `core.engine.steps` and `step_back`.

    `interrupt` may be called from any thread; everything else belongs to the thread that steps the run.
    """

    def __init__(
        self, model: LanguageModel, prompt_ids: list[int], config: RunConfig, *, tokenising_seconds: float = 0.0
    ) -> None:
        """Raises Refusal when the prompt is empty, longer than the context, or the recorded layer does not exist."""
        model.check_prompt(prompt_ids)
        config.record.check(model.config)
        self.model, self.config = model, config
        self.prompt_ids = tuple(prompt_ids)
        self.tokenising_seconds = tokenising_seconds
        self.cache: KVCache | None = model.transformer.new_cache() if config.use_cache else None
        self.steps: list[StepEvent] = []
        self.output_ids: list[int] = []
        self.queries: list[Tensor] = []  # one (L, h, d_h) a step, of its newest position, in the cache's dtype
        self._stream = self._new_stream()
        self._interrupted = False

    @property
    def text(self) -> str:
        """The generated text as far as its characters are complete."""
        return self._stream.text

    @property
    def ids(self) -> list[int]:
        """Prompt and output together: the prefix of the next step."""
        return [*self.prompt_ids, *self.output_ids]

    @property
    def n_to_cache(self) -> int:
        """Positions that its steps have put in the cache: all but the newest token, whose keys are not computed yet."""
        return len(self.prompt_ids) + max(0, len(self.output_ids) - 1) if self.steps else 0

    @property
    def is_resident(self) -> bool:
        """Whether the cache holds what the steps put in it; a run without a cache lacks nothing."""
        return self.cache is None or self.cache.n_tokens == self.n_to_cache

    @property
    def held_bytes(self) -> int:
        """Bytes it holds beside its record: the cache in whole blocks, and the queries that are kept with it."""
        return (0 if self.cache is None else self.cache.reserved_bytes) + sum(q.nbytes for q in self.queries)

    @property
    def stopped(self) -> Stop | None:
        """Why no further token will come; None while one can."""
        if not self.steps:
            return None
        if self.output_ids and self.output_ids[-1] in self.model.end_token_ids:
            return Stop(StopKind.END_TOKEN, self.output_ids[-1])
        if len(self.output_ids) >= self.config.max_new:
            return Stop(StopKind.LENGTH)
        limit = self.model.config.context_limit
        return Stop(StopKind.CONTEXT_LIMIT, limit) if len(self.ids) > limit else None

    @property
    def trace(self) -> Trace:
        """The record so far. A finished run's text includes the mark for a character that never became complete."""
        text = self.text
        if self.stopped:
            text = self.model.tokenizer.decode(self.output_ids, after=self.prompt_ids)
        return Trace(
            prompt_ids=self.prompt_ids,
            steps=tuple(self.steps),
            text=text,
            stopped=self.stopped,
            tokenising_seconds=self.tokenising_seconds,
        )

    def interrupt(self) -> None:
        """Ends the run's work: a pass over its prefix stops at the next layer with `Interrupted`, as do later ones."""
        self._interrupted = True

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._interrupted

    def check_interrupt(self) -> None:
        """Raises Interrupted once `interrupt` was called."""
        if self._interrupted:
            raise Interrupted

    def push_token(self, token_id: int) -> str:
        """Appends a produced token; returns the text that became complete."""
        self.output_ids.append(token_id)
        return self._stream.push(token_id)

    def step_back(self) -> None:
        """Undoes the last step exactly: its token, its record, and its positions in the cache."""
        if self.steps:
            self.steps.pop()
            self.settle()

    def drop_cache(self) -> None:
        """Gives the memory back and keeps tokens and record; the next step begins with a refill."""
        if self.cache is not None:
            self.cache.truncate(0)
        self.queries = []

    @contextmanager
    def whole_steps(self) -> Iterator[None]:
        """A step that fails half-way leaves the run as it was: no positions and no token without a record."""
        try:
            yield
        except BaseException:
            self.settle()
            raise

    def settle(self) -> None:
        """Makes tokens, text and cache agree with the recorded steps: what belongs to no finished step goes.

        A cache that lacks positions of finished steps is dropped as a whole.
        """
        self.output_ids = [step.sampled.token_id for step in self.steps if step.sampled]
        self._stream = self._new_stream()
        for token_id in self.output_ids:
            self._stream.push(token_id)
        if self.cache is not None and self.cache.n_tokens < self.n_to_cache:
            self.drop_cache()
        elif self.cache is not None:
            self.cache.truncate(self.n_to_cache)
        del self.queries[len(self.steps) :]

    def attention(self, step: int, layer: int, head: int) -> AttentionRow:
        """The attention of a past step's newest position in any layer and head, from cached keys and kept queries.

        Needs a run with a cache whose record keeps queries.
        """
        RecordConfig(attention=(layer, head)).check(self.model.config)
        n_tokens = self.steps[step].n_tokens
        if self.cache is None or not self.config.record.queries:
            raise ValueError("this run keeps no cache or no queries")
        return attention_row(self.queries[step][layer][None], self.cache.keys(layer)[:, :n_tokens], layer, head)

    def _new_stream(self) -> TextStream:
        return TextStream(self.model.tokenizer, after=self.prompt_ids)
