"""Two tokens at once, the first one unknown: whatever stands in its slot is a guess, and speculation is a good one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.numbers import count, milliseconds
from pages.shared.techniques.bench import Bench, measured, predict
from pages.shared.techniques.compared import NONE, note_disturbed, share
from pages.shared.techniques.matrix import written_ratio
from pages.shared.techniques.tokens import token_text
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.two_at_once import TwoAtOnce, TwoAtOnceResult
    from core.model.load import LanguageModel

N_STEPS = 24
N_SHOWN = 6
CHOICES = ("no", "guess", "yes")


def show(bench: Bench) -> None:
    """The guess, all steps, what follows."""
    named = {number: t(f"terms.guess_two_{name}") for number, name in enumerate(CHOICES)}
    predict("two", named, CHOICES.index("guess"), t("terms.why_two"))

    def make() -> TwoAtOnce:
        from core.lab.two_at_once import TwoAtOnce

        return TwoAtOnce(bench.model, bench.ids, N_STEPS)

    result: TwoAtOnceResult | None = measured(
        "two", bench, "", make, lambda found: bool(found.steps) and len(found.steps) == found.n_planned
    )
    if result is not None:
        _show_result(bench.model, result)


def _show_result(model: LanguageModel, result: TwoAtOnceResult) -> None:
    from core.lab.two_at_once import Filler

    sums = {filler: result.of(filler) for filler in Filler}
    rows = [
        row(
            t(f"terms.filler_{filler}", layers=count(result.draft_layers)),
            count(one.n_tried),
            count(one.n_right),
            t("terms.of", some=count(one.n_second_right_behind_right), all=count(one.n_right)),
            t("terms.of", some=count(one.n_second_right_behind_wrong), all=count(one.n_tried - one.n_right)),
            NONE if one.kl_behind_right is None else f"{one.kl_behind_right:.2g}",
            NONE if one.kl_behind_wrong is None else f"{one.kl_behind_wrong:.2g}",
        )
        for filler, one in sums.items()
        if one.n_tried
    ]
    heads = ("filler", "tried", "first_right", "behind_right", "behind_wrong", "kl_right", "kl_wrong")
    st.html(table([t(f"terms.head_{name}") for name in heads], rows))
    st.html(_steps(model, result))
    apart, at_once = result.seconds_apart or 0.0, result.seconds_at_once or 0.0
    times = {"apart": milliseconds(apart), "at_once": milliseconds(at_once), "ratio": written_ratio(at_once / apart)}
    st.html(note(t("terms.two_seconds", **times)))
    note_disturbed(result.n_disturbed)
    best = max(sums, key=lambda filler: sums[filler].n_right)
    takeaway(
        t(
            "terms.takeaway_two",
            filler=t(f"terms.filler_{best}", layers=count(result.draft_layers)),
            acceptance=share(sums[best].acceptance or 0.0),
            right=count(sums[best].n_right),
            second=count(sums[best].n_second_right_behind_right),
            mean=count(sums[Filler.MEAN].n_second_right_behind_wrong),
            steps=count(len(result.steps)),
        )
    )


def _steps(model: LanguageModel, result: TwoAtOnceResult) -> Html:
    """The first steps: both true tokens, and what each filler made of the second."""
    from core.lab.two_at_once import Filler

    label = partial(token_text, model.tokenizer)
    rows = []
    for step in result.steps[:N_SHOWN]:
        second = {attempt.filler: attempt.second_id for attempt in step.attempts}
        cells = [
            f"{'=' if second[filler] == step.second_id else '≠'} {label(second[filler])}" if filler in second else NONE
            for filler in Filler
        ]
        rows.append(row(label(step.first_id), label(step.second_id), *cells))
    named = [t(f"terms.filler_{filler}", layers=count(result.draft_layers)) for filler in Filler]
    return table([t("terms.head_true_first"), t("terms.head_true_second"), *named], rows)
