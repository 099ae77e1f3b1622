"""Surgery on a cache: one column replaced, emptied or taken out, and what the steps behind it make of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques import surgery_chart
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, percent
from pages.shared.technique_settings import N_WRITTEN
from pages.shared.techniques.bench import Bench, measured, predict
from pages.shared.techniques.compared import HARDLY_NATS, NONE, as_bytes
from pages.shared.techniques.tokens import token_text
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.surgery import Surgery
    from core.lab.surgery_records import EditResult, SurgeryResult
    from core.model.load import LanguageModel

N_AFTER = 12
OLDEST_SHARE = 4
"""One in so many of all columns is the oldest part that is dropped."""
N_EDITS, LATER_DROPPED, FIRST_DROPPED = 7, 3, 4
"""How many edits there are, and where among them a single column is dropped: the chosen one, and the first."""
CLEARLY = 2.0
"""So many times the KL is more than chance."""
CHOICES = ("first", "middle", "alike")


def show(bench: Bench) -> None:
    """The guess, the column, all edits, what follows."""
    place = st.container()
    back = st.slider(t("terms.back"), 1, N_WRITTEN - 1, key="terms_back", persist_state="session")

    def make() -> Surgery:
        from core.lab.surgery import Surgery
        from core.lab.surgery_records import Edit, EditKind

        ids = bench.ids
        n_columns = len(ids) + N_WRITTEN - 1
        oldest = max(1, n_columns // OLDEST_SHARE)
        edits = [
            Edit(EditKind.RECOMPUTE, -back),
            Edit(EditKind.REPLACE, -back),
            Edit(EditKind.ZERO, -back),
            Edit(EditKind.DROP, -back),
            Edit(EditKind.DROP, 0),
            Edit(EditKind.DROP, 0, oldest),
            Edit(EditKind.DROP_AND_SHIFT, 0, oldest),
        ]
        return Surgery(bench.model, ids, edits, n_written=N_WRITTEN, n_after=N_AFTER)

    result: SurgeryResult | None = measured(
        "surgery",
        bench,
        str(back),
        make,
        lambda found: len(found.edits) == N_EDITS and len(found.edits[-1].steps) == N_AFTER,
    )
    with place:
        choices = {number: t(f"terms.guess_surgery_{name}") for number, name in enumerate(CHOICES)}
        predict("surgery", choices, None if result is None else hurts_most(result), _why(result))
    if result is not None:
        _show_result(bench.model, result)


def is_noticeable(edits: Sequence[EditResult]) -> bool:
    """Whether any of these edits moved a distribution by more than a hair."""
    return any(made.largest.kl >= HARDLY_NATS for made in edits)


def _dropped(result: SurgeryResult) -> tuple[EditResult, EditResult]:
    """The edits that drop the first column, and the chosen one."""
    return result.edits[FIRST_DROPPED], result.edits[LATER_DROPPED]


def hurts_most(result: SurgeryResult) -> int:
    """Which of CHOICES it was: the first column or the later one, or neither clearly."""
    if not is_noticeable(_dropped(result)):
        return CHOICES.index("alike")
    first, later = (made.largest.kl for made in _dropped(result))
    return 0 if first > CLEARLY * later else 1 if later > CLEARLY * first else 2


def _why(result: SurgeryResult | None) -> str:
    if result is None:
        return ""
    first, later = (made.largest.kl for made in _dropped(result))
    key = CHOICES[hurts_most(result)] if is_noticeable(_dropped(result)) else "nothing"
    moved = percent(math.sqrt(max(first, later) / 2))  # Pinsker: no event's probability moves further
    return t(f"terms.why_surgery_{key}", first=f"{first:.2g}", later=f"{later:.2g}", moved=moved)


def named(made: EditResult) -> str:
    """What was done, and to which columns."""
    kind = "first" if made.begin == 0 else "one"
    if made.edit.n_columns > 1:
        kind = "many"
    columns = t(f"terms.column_{kind}", begin=count(made.begin), end=count(made.begin + made.edit.n_columns - 1))
    return t(f"terms.edit_{made.edit.kind}", columns=columns)


def _show_result(model: LanguageModel, result: SurgeryResult) -> None:
    label = partial(token_text, model.tokenizer)
    rows = []
    for made in result.edits:
        new = NONE if made.new_id is None else label(made.new_id)
        rows.append(
            row(
                named(made),
                label(made.old_id) if made.edit.n_columns == 1 else NONE,
                new,
                as_bytes(made.kv_bytes),
                f"{made.largest.logit:.2g}",
                f"{made.largest.kl:.2g}",
                t("terms.of", some=count(made.n_changed), all=count(len(made.steps))),
            )
        )
    heads = ("edit", "old", "new", "kv_after", "logit", "kl", "changed")
    st.html(table([t(f"terms.head_{name}") for name in heads], rows))
    st.html(note(t("terms.surgery_bytes", before=as_bytes(result.kv_bytes))))
    show_drawn("terms_surgery_chart", Html(surgery_chart(result, named, language())))
    stale = next(made for made in result.edits if made.edit.kind == "replace")
    away = [step.from_recomputed.kl for step in stale.steps if step.from_recomputed is not None]
    stale_key = "surgery_stale" if max(away, default=0.0) >= HARDLY_NATS else "surgery_stale_little"
    st.html(note(t(f"terms.{stale_key}", most=f"{max(away, default=0.0):.2g}")))
    st.html(_texts(model, result))
    worst = max(result.edits, key=lambda made: made.largest.kl)
    least = min(result.edits, key=lambda made: made.largest.kl)
    first = result.edits[FIRST_DROPPED]
    kind = "_nothing" if not is_noticeable(result.edits) else "_ends" if first in (worst, least) else ""
    takeaway(
        t(
            f"terms.takeaway_surgery{kind}",
            worst=named(worst),
            most=f"{worst.largest.kl:.2g}",
            changed=count(worst.n_changed),
            all=count(len(worst.steps)),
            least=named(least),
            fewest=f"{least.largest.kl:.2g}",
            first=f"{first.largest.kl:.2g}",
        )
    )


def _texts(model: LanguageModel, result: SurgeryResult) -> Html:
    """How the untouched run goes on, and each edited one."""
    written = [(t("terms.untouched"), result.untouched_ids), *((named(made), made.free_ids) for made in result.edits)]
    sections = join(
        fill(
            "<section><h3>{name}</h3><p><bdi>{text}</bdi></p></section>",
            name=name,
            text=model.tokenizer.decode(list(ids), after=tuple(result.ids)),
        )
        for name, ids in written
    )
    return fill('<div class="tbt-terms-texts">{sections}</div>', sections=sections)
