"""Answers that are measured on the live model: each makes an experiment for the engine's exclusive slot.

What measures is imported when it is asked for, because torch takes seconds to import. Each `…_outcome` says what a
result means, and is a plain function of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import TYPE_CHECKING

from core.questions.question import Experiment, Given, Ids, Outcome, Quantity

if TYPE_CHECKING:
    from core.engine.run import Run
    from core.lab.causality import Causality
    from core.lab.decode_times import DecodeTime
    from core.lab.race import RaceResult
    from core.model.load import LanguageModel

ROUNDING_SHARE = 0.01
"""Of the largest number: what changed by less is rounding, in halves as well."""
BEYOND = 1.1
"""Times what the bytes explain: from there on a longer step is said to have another reason too."""


def live_contexts(given: Given) -> tuple[int, ...]:
    """The lengths at which a decode step is timed."""
    return given.n // 16, given.n // 4, given.n // 2, given.n


def decode_times(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """A decode step's seconds along the context."""
    from core.lab.decode_times import DecodeTimes

    contexts = live_contexts(given)
    times, read = DecodeTimes(model, ids, contexts), _bytes_read(model, contexts[-1]) / _bytes_read(model, contexts[0])
    return Experiment(times.measurement(), lambda: decode_times_outcome(times.result, len(contexts), read))


def decode_times_outcome(result: Sequence[DecodeTime], n_wanted: int, read: float) -> Outcome | None:
    """Each length's seconds in times the first's; `read`: how many times the bytes the longest reads."""
    if len(result) < n_wanted:
        return None
    first, *others = result
    case = "beyond" if others[-1].seconds / first.seconds > BEYOND * read else ""
    facts = {
        "short": Quantity(first.seconds, "s"),
        "long": Quantity(others[-1].seconds, "s"),
        "times": Quantity(others[-1].seconds / first.seconds, "times"),
        "read": Quantity(read, "times"),
    }
    return Outcome(answer=tuple(time.seconds / first.seconds for time in others), facts=facts, case=case)


def _bytes_read(model: LanguageModel, n: int) -> int:
    """What a decode step of one sequence reads at a context length: weights and cache."""
    from core.estimate.dtypes import DTYPES, WeightDtypes
    from core.estimate.kv import kv_bytes
    from core.estimate.weights import weight_bytes_read

    weights = weight_bytes_read(model.shape, WeightDtypes(DTYPES[model.dtype_name]), 1)
    return int(weights + kv_bytes(model.shape, n_tokens=n, dtypes=model.kv_dtypes))


def race(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """The same prompt with the cache and recomputed."""
    from core.lab.race import Race

    made = Race(_endless(model), lengthened(ids, given.n), given.n_new)
    return Experiment(made.measurement(), lambda: race_outcome(made.result) if made.has_ended else None)


def race_outcome(result: RaceResult) -> Outcome:
    """How many times the seconds recomputing takes after the first step, against how many times the compute."""
    decoding = result.after_prefill
    facts = {
        "cached": Quantity(decoding.seconds.cached, "s"),
        "recomputed": Quantity(decoding.seconds.recomputed, "s"),
        "positions": Quantity(decoding.positions.recomputed, ""),
        "steps": Quantity(decoding.positions.cached, ""),
        "flops": Quantity(decoding.flops.ratio, "times"),
    }
    return Outcome(answer=decoding.seconds.ratio, believed=decoding.flops.ratio, facts=facts)


def past(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """The prompt's keys and values before and after the model has written on."""
    from core.lab.causality import CausalityProof

    proof = CausalityProof(model, ids)
    return Experiment(proof.measurement(), lambda: past_outcome(proof.result))


def past_outcome(result: Causality) -> Outcome | None:
    """In how many layers something changed by more than rounding: in none, in some, in all."""
    masked, unmasked = result.masked, result.unmasked
    if masked is None or unmasked is None:
        return None
    changed, without = (
        sum(layer.largest > ROUNDING_SHARE * change.magnitude for layer in change.layers)
        for change in (masked, unmasked)
    )
    n_layers = len(masked.layers)
    facts = {
        "positions": Quantity(result.n_past, ""),
        "written": Quantity(len(result.right_ids), "tokens"),
        "changed": Quantity(changed, ""),
        "without": Quantity(without, ""),
        "layers": Quantity(n_layers, ""),
    }
    return Outcome(answer="none" if changed == 0 else "all" if changed == n_layers else "some", facts=facts)


def rate(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """A run, and what its tokens a second are by two readings."""
    return _of_a_run(model, ids, given, rate_outcome)


def rate_outcome(run: Run) -> Outcome:
    """Prompt and answer over all seconds, in times the rate of decoding: the tokens after the first over their time."""
    trace = run.trace
    first, each = trace.time_to_first_token_s or 0.0, trace.time_per_output_token_s or 0.0
    n_prompt, n_new = len(run.prompt_ids), len(run.output_ids)
    decode_rate, whole = 1 / each, first + each * (n_new - 1)
    both_rate = (n_prompt + n_new) / whole
    facts = {
        "decode": Quantity(decode_rate, "tokens/s"),
        "both": Quantity(both_rate, "tokens/s"),
        "first": Quantity(first, "s"),
        "each": Quantity(each, "s"),
        "prompt": Quantity(n_prompt / first, "tokens/s"),
    }
    return Outcome(answer=both_rate / decode_rate, believed=1.0, facts=facts)


def cached_positions(model: LanguageModel, ids: Ids, given: Given) -> Experiment:
    """A run, and how many positions its cache then holds."""
    return _of_a_run(model, ids, given, cached_positions_outcome)


def cached_positions_outcome(run: Run) -> Outcome:
    """The cache's own count, by name: of prompt and answer together, one fewer, or of one of the two."""
    assert run.cache is not None
    held, n_prompt, n_new = run.cache.n_tokens, len(run.prompt_ids), len(run.output_ids)
    named = {n_prompt: "prompt", n_new: "new", n_prompt + n_new: "both", n_prompt + n_new - 1: "one_fewer"}
    facts = {
        "held": Quantity(held, ""),
        "prompt": Quantity(n_prompt, "tokens"),
        "new": Quantity(n_new, "tokens"),
        "bytes": Quantity(run.cache.used_bytes, "B"),
    }
    return Outcome(answer=named[held], facts=facts)


def lengthened(ids: Ids, n: int) -> list[int]:
    """The ids, again and again, up to n of them; none stay none."""
    return list(islice(cycle(ids), n)) if ids else []


def _endless(model: LanguageModel) -> LanguageModel:
    """The same model that no token ends: how many tokens there are is part of the question."""
    return replace(model, end_token_ids=frozenset())


def _of_a_run(model: LanguageModel, ids: Ids, given: Given, outcome: Callable[[Run], Outcome]) -> Experiment:
    """Steps of a run as points: a step that is measured again is undone first."""
    from core.engine.exclusive import Measurement
    from core.engine.run import Run, RunConfig
    from core.engine.steps import step
    from core.estimate.kv import kv_bytes

    model = _endless(model)
    run = Run(model, lengthened(ids, given.n), RunConfig(max_new=given.n_new))

    def take(number: int) -> None:
        while len(run.steps) > number:
            run.step_back()
        step(model, [run])

    points = [lambda number=number: take(number) for number in range(given.n_new)]
    held = kv_bytes(model.shape, n_tokens=given.n + given.n_new, dtypes=model.kv_dtypes)
    measurement = Measurement("question", points, n_bytes=int(held))
    return Experiment(measurement, lambda: outcome(run) if len(run.steps) == given.n_new else None)
