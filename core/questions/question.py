"""A question as a record: what is predicted, what the learner may set, and the function of core that answers it.

A question is one entry of `core.questions.registry` and its words: `questions.KEY_title`, `KEY_ask`, `KEY_why` (and
`KEY_why_CASE`, where what came out has another reason) and, as the prediction needs them, `KEY_believed`,
`KEY_choice_NAME`, `KEY_row_NAME`; where lines are drawn, `KEY_line_NAME`, `KEY_lines`, `KEY_x` and `KEY_y`. Nothing
here imports torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from core.estimate import catalogue
from core.estimate.accelerators import Accelerator, accelerator_named
from core.estimate.shape import ModelShape

if TYPE_CHECKING:
    from core.engine.exclusive import Measurement
    from core.model.load import LanguageModel

Unit = Literal["B", "FLOP", "s", "tokens/s", "times", "percent", "tokens", ""]
"""Of a figure: base units, and a percentage as such (28.1, not 0.281)."""
Ids = Sequence[int]
Answer = float | str | tuple[float, ...] | tuple[str, ...]
"""A number, the name of a choice, the heights of a curve, or the name of a choice for each row of a table."""

SHORT_CONTEXT = 1024
"""What longer contexts are compared with."""


class Quantity(NamedTuple):
    """A figure with its unit."""

    value: float
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What an experiment is made with: the learner's own settings, or these.

    Attributes:
        model, other, card, other_card: slugs of the catalogue.
        n, n_new, batch: tokens of context or prompt, new tokens, sequences.
        ranks, kv_dtype: devices a model is split over; how its cache is stored.
        gamma, alpha_percent: a draft's tokens, and how many of a hundred are accepted.
        live: the name of the model that runs here.
    """

    model: str = "llama-3.1-8b"
    other: str = "qwen3-8b"
    card: str = "h100-sxm"
    other_card: str = "a100-sxm-80gb"
    n: int = 8192
    n_new: int = 16
    batch: int = 1
    ranks: int = 16
    kv_dtype: str = "q4_0"
    gamma: int = 4
    alpha_percent: int = 70
    live: str = "smollm2"

    @property
    def shape(self) -> ModelShape:
        """Of the model."""
        return catalogue.shape(self.model)

    @property
    def other_shape(self) -> ModelShape:
        """Of the model it is compared with."""
        return catalogue.shape(self.other)

    @property
    def accelerator(self) -> Accelerator:
        """The card."""
        return accelerator_named(self.card)


class Dial(NamedTuple):
    """A setting of `Given` that the learner may choose."""

    name: str
    choices: tuple[str, ...] | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Amount:
    """The prediction is a number. Bytes are asked for with a prefix: `power` 1 thousands, 2 millions, 3 billions."""

    unit: Unit
    power: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """The prediction is one of these."""

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Curve:
    """The prediction is a height at each place but the first, in times the height there. `places` are tokens."""

    places: Callable[[Given], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Table:
    """The prediction is one of the options for each row."""

    rows: tuple[str, ...]
    options: tuple[str, ...]


Prediction = Amount | Choice | Curve | Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out.

    Attributes:
        answer: of the prediction's kind; a curve's first height, which is 1, is left out.
        believed: the number that the misconception gives instead; None where it gives none.
        facts: what the sentence of why is filled with.
        lines: heights along the positions or steps of an experiment, by name, to be drawn beside the answer.
        case: "" or what makes the sentence of why another one.
        does_not_fit: whether weights and cache need more than nine tenths of the card's memory.
        n_disturbed: points of the experiment that other programs disturbed to the last.
    """

    answer: Answer
    believed: float | None = None
    facts: Mapping[str, Quantity] = field(default_factory=dict)
    lines: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    case: str = ""
    does_not_fit: bool = False
    n_disturbed: int = 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """A measurement for the exclusive slot, and what came out of it by now: None until there is enough."""

    measurement: Measurement
    outcome: Callable[[], Outcome | None]


class Link(NamedTuple):
    """The page that shows more: its name in the address, settings it opens with, and those it takes over by name."""

    page: str
    words: tuple[tuple[str, str], ...] = ()
    taken: tuple[str, ...] = ()


# A live experiment: the model, the ids of a prompt that it continues well, and the settings.
Live = Callable[["LanguageModel", Ids, Given], Experiment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question. Either `answer` reckons the outcome, or `live` makes the experiment that measures it.

    `is_timed`: whether seconds are measured, which other programs disturb.
    """

    key: str
    prediction: Prediction
    link: Link
    dials: tuple[Dial, ...] = ()
    given: Given = Given()
    answer: Callable[[Given], Outcome] | None = None
    live: Live | None = None
    is_timed: bool = False

    def __post_init__(self) -> None:
        if (self.answer is None) == (self.live is None):
            raise ValueError(f"{self.key}: a question is reckoned or measured")
