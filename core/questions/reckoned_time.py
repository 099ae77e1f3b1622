"""Answers about time: the least that a card needs, by the estimator."""

from __future__ import annotations

from core.estimate.accelerators import Accelerator, accelerator_named, peak_flops
from core.estimate.dtypes import BF16, BF16_WEIGHTS, WeightDtypes, weight_dtypes
from core.estimate.estimate import Decode, Estimate, Request, estimate
from core.estimate.floors import Floor
from core.estimate.shape import ModelShape
from core.questions.question import SHORT_CONTEXT, Given, Outcome, Quantity

INT4 = "int4"


def at(
    shape: ModelShape, card: Accelerator, n: int, batch: int = 1, weights: WeightDtypes = BF16_WEIGHTS
) -> tuple[Estimate, float, float]:
    """The estimate, and the floors of its decode step and of its prefill in seconds."""
    made = estimate(shape, Request(context=n, batch=batch, accelerator=card, weight_dtypes=weights))
    return made, _seconds(made.decode.floor), _seconds(made.prefill.floor)


def _seconds(floor: Floor | None) -> float:
    if floor is None:
        raise ValueError("the cards of the questions have known peaks")
    return float(floor.seconds)


def overfull(made: Estimate) -> bool:
    """Whether it needs more memory than the card has for it: a floor in time all the same."""
    return made.fit is not None and not made.fit.fits


def longer_context(given: Given) -> Outcome:
    """How many times as long a decode step takes at the given context as at a short one."""
    _, short, _ = at(given.shape, given.accelerator, SHORT_CONTEXT)
    made, long, _ = at(given.shape, given.accelerator, given.n)
    facts = {"short": Quantity(short, "s"), "long": Quantity(long, "s"), **_read(made.decode)}
    return Outcome(answer=long / short, believed=1.0, facts=facts, does_not_fit=overfull(made))


def larger_batch(given: Given) -> Outcome:
    """How many times the tokens a second a batch gives, against as many times as there are sequences."""
    _, alone, _ = at(given.shape, given.accelerator, given.n)
    made, together, _ = at(given.shape, given.accelerator, given.n, given.batch)
    facts = {"alone": Quantity(alone, "s"), "together": Quantity(together, "s"), **_work(made.decode)}
    return Outcome(
        answer=given.batch * alone / together,
        believed=float(given.batch),
        facts=facts,
        case=_case(made.decode),
        does_not_fit=overfull(made),
    )


def prompt_against_answer(given: Given) -> Outcome:
    """How many decode steps a prefill of n tokens takes as long as, against n of them."""
    made, step, prefill = at(given.shape, given.accelerator, given.n)
    facts = {"prefill": Quantity(prefill, "s"), "step": Quantity(step, "s"), **_read(made.decode)}
    return Outcome(answer=prefill / step, believed=float(given.n), facts=facts, does_not_fit=overfull(made))


def faster_card(given: Given) -> Outcome:
    """How many times as fast a card decodes as another one, against the ratio of their peaks."""
    card, other = given.accelerator, accelerator_named(given.other_card)
    (made, fast, _), (other_made, slow, _) = (at(given.shape, one, given.n, given.batch) for one in (card, other))
    peaks = [peak_flops(one, BF16) or 0.0 for one in (card, other)]
    facts = {
        "bandwidth": Quantity(card.bandwidth_bytes_per_s / other.bandwidth_bytes_per_s, "times"),
        "peak": Quantity(peaks[0] / peaks[1], "times"),
        "fast": Quantity(fast, "s"),
        "slow": Quantity(slow, "s"),
    }
    is_overfull = overfull(made) or overfull(other_made)
    return Outcome(answer=slow / fast, believed=peaks[0] / peaks[1], facts=facts, does_not_fit=is_overfull)


def lighter_weights(given: Given) -> Outcome:
    """How many times as fast a decode step is with weights in four bits, against four times."""
    whole, slow, _ = at(given.shape, given.accelerator, given.n, given.batch)
    packed, fast, _ = at(given.shape, given.accelerator, given.n, given.batch, weight_dtypes(INT4))
    facts = {
        "whole": Quantity(whole.decode.weights_read, "B"),
        "packed": Quantity(packed.decode.weights_read, "B"),
        **_work(packed.decode),
    }
    believed = whole.decode.weights_read / packed.decode.weights_read
    case = _case(packed.decode)
    return Outcome(answer=slow / fast, believed=believed, facts=facts, case=case, does_not_fit=overfull(whole))


def _case(decode: Decode) -> str:
    """Whether the step waits for the arithmetic, and not for bytes as most do."""
    return "compute" if decode.floor is not None and decode.floor.bound == "compute" else ""


def _work(decode: Decode) -> dict[str, Quantity]:
    """What a step reads, and the least time that reading and computing take, each alone."""
    assert decode.floor is not None, "every card of the questions has a peak"
    times = {"reading": decode.floor.memory_s, "computing": decode.floor.compute_s}
    return {**_read(decode), **{name: Quantity(float(seconds), "s") for name, seconds in times.items()}}


def _read(decode: Decode) -> dict[str, Quantity]:
    return {"weights": Quantity(decode.weights_read, "B"), "kv": Quantity(decode.kv_read, "B")}
