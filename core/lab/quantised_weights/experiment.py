"""Quantised weights before and after: bytes, a decode step's seconds, a held text, and the text that is written."""

from __future__ import annotations

from dataclasses import dataclass

from core.engine.exclusive import Measurement
from core.estimate.dtypes import DTYPES, WeightDtypes
from core.estimate.quantised import Scheme, quantised_weight_bytes
from core.estimate.weights import weight_bytes_read
from core.lab.before_after import Asked, BeforeAfter, Both, Compared
from core.lab.cached_lane import CachedLane, Lane
from core.lab.quantised_weights.model import Quantiser
from core.model.load import LanguageModel


@dataclass(frozen=True, slots=True)
class QuantisedWeights:
    """What has been measured by now.

    Attributes:
        weight_bytes: of all matrices that a position is multiplied with, by the products' own size; None until the
            quantised model is made.
        weight_bytes_formula: the same by formula: whole groups with their scales.
    """

    scheme: Scheme
    with_head: bool
    weight_bytes: Both | None
    weight_bytes_formula: Both
    compared: Compared


class QuantisedWeightsExperiment:
    """Made anywhere; its measurement runs in the engine's thread, and `result` may be asked from any."""

    def __init__(self, model: LanguageModel, scheme: Scheme, asked: Asked, *, with_head: bool = True) -> None:
        """Raises Refusal for what cannot be asked of the model."""
        self._model, self._scheme, self._with_head = model, scheme, with_head
        self._quantiser = Quantiser(model, scheme, with_head=with_head)
        self._comparison = BeforeAfter(model, self._lanes, asked)
        self._weight_bytes: Both | None = None

    @property
    def result(self) -> QuantisedWeights:
        """What has been measured by now."""
        return QuantisedWeights(
            self._scheme, self._with_head, self._weight_bytes, self._formula, self._comparison.result
        )

    @property
    def _formula(self) -> Both:
        shape, rest = self._model.shape, DTYPES[self._model.dtype_name]
        after = quantised_weight_bytes(shape, self._scheme, rest, with_head=self._with_head)
        return Both(int(weight_bytes_read(shape, WeightDtypes(rest), 1)), after)

    def measurement(self) -> Measurement:
        """The whole experiment for the exclusive slot: a layer or a piece of the head at a time, then both lanes."""
        config = self._model.config
        widest = max(2 * config.d_ff, config.vocab_size)
        beside = 4 * widest * config.d_model  # the largest matrix as fp32 while it is quantised
        measurement = self._comparison.measurement(
            "quantised_weights", self._quantiser.steps(), int(self._formula.after) + beside
        )
        measurement.future.add_done_callback(lambda _: self._quantiser.let_go())
        return measurement

    def _lanes(self) -> tuple[Lane, Lane]:
        made = self._quantiser.model
        self._weight_bytes = Both(self._model.transformer.product_bytes, made.transformer.product_bytes)
        return CachedLane(self._model), CachedLane(made)
