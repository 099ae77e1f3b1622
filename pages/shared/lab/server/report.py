"""A server's sweep as one HTML file that a learner hands in: the sheet of the lab's report with this sweep's sections.

What the learner, the server and the file's head say is escaped; the sheet's policy lets nothing run besides.
"""

from __future__ import annotations

from collections.abc import Iterator

from core.estimate.accelerators import Accelerator
from core.estimate.custom import CUSTOM
from core.lab.remote.under import Assumed, floors_under
from pages.shared.figures.lab_server import Floors, first_chart, step_chart, tokens_chart
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note
from pages.shared.lab.report import Section, sheet_html
from pages.shared.lab.report_sections import bullets, facts_html, own_words, paragraph, ruled, when
from pages.shared.lab.report_tables import word as report_word
from pages.shared.lab.server.assume import bytes_per_token
from pages.shared.lab.server.opened import ServerSweep
from pages.shared.lab.server.said import (
    cache_text,
    floor_sentences,
    impossible,
    law_sentences,
    takeaway_text,
    unusual,
    word,
)
from pages.shared.lab.server.tables import floor_table, kv_table, law_table, points_table
from pages.shared.lab.written import rate, significant
from pages.shared.numbers import count

# A line of the file's head → its word.
_HEAD = {
    "endpoint": "head_endpoint",
    "served model": "head_served",
    "interface": "head_interface",
    "new tokens": "head_new_tokens",
    "model": "head_model",
    "weights": "weights",
    "KV": "kv",
    "asked from": "head_asked_from",
}
_HEAD_LINE = "<div><dt>{name}</dt><dd><bdi>{value}</bdi></dd></div>"


def server_report_html(
    sweep: ServerSweep,
    assumed: Assumed | None,
    language: str,
    *,
    question: str = "",
    conclusion: str = "",
    guessed: int | None = None,
) -> str:
    """The file's text, in `language`. `assumed`: what the floors are of; `guessed`: how many times the floor."""
    head, found = sweep.record.head, sweep.found
    measured = count(found.n_points - found.faults.total())
    model = sweep.served or word("unnamed", language)
    told = {
        report_word("date", language): when(head.get("date", ""), language),
        word("head_endpoint", language): head.get("endpoint", ""),
        report_word("points", language): word("report_points", language, n=measured, all=count(found.n_points)),
    }
    return sheet_html(
        language,
        title=report_word("running_title", language, model=model),
        heading=word("report_title", language),
        subtitle=word("report_subtitle", language, model=model),
        facts=facts_html(told, language),
        sections=(
            Section(name, _title(name, language), body)
            for name, body in _sections(sweep, assumed, language, question, conclusion, guessed)
        ),
    )


def _sections(
    sweep: ServerSweep, assumed: Assumed | None, language: str, question: str, conclusion: str, guessed: int | None
) -> Iterator[tuple[str, Html]]:
    found = sweep.found
    floors = floors_under(assumed, found.cells) if assumed is not None else {}
    yield "question", own_words(question) or paragraph([word("question", language)], language)
    yield "prediction", _prediction(guessed, language)
    yield "method", paragraph(_method(sweep, language), language)
    tables = [points_table(found, language), kv_table(found)]
    yield "table", join(one.in_report(language) for one in tables if one is not None)
    drawn = (step_chart(found, floors, None, language), first_chart(found, floors, None, language))
    yield "figures", join(Html(chart) for chart in (*drawn, tokens_chart(found, language)) if chart)
    yield "floor", _floor(sweep, assumed, floors, language)
    kv = bytes_per_token(sweep, assumed)
    if found.laws:
        sentences = bullets(law_sentences(found, kv, assumed, language))
        yield "fit", join([law_table(found, kv, language).in_report(language), sentences])
    yield (
        "shows",
        bullets(
            [
                takeaway_text(found, floors, language),
                *filter(None, [cache_text(found, language)]),
                *unusual(found, language),
            ]
        ),
    )
    yield "conclusion", own_words(conclusion) or ruled(language)
    known = ((key, value) for name, key in _HEAD.items() if (value := sweep.record.head.get(name)))
    lines = (fill(_HEAD_LINE, name=word(key, language), value=value) for key, value in known)
    yield "machine", fill('<dl class="tbt-report-machine">{lines}</dl>', lines=join(lines))


def _prediction(guessed: int | None, language: str) -> Html:
    if guessed is None:
        return note(report_word("none_prediction", language))
    return paragraph([word("guess", language), word("guess_times", language, times=count(guessed))], language)


def _method(sweep: ServerSweep, language: str) -> Iterator[str]:
    found = sweep.found
    contexts, batches = (
        sorted({cell[axis] for cell in ((c.context, c.batch) for c in found.cells)}) for axis in (0, 1)
    )
    yield word(
        "method",
        language,
        contexts="{" + ", ".join(map(count, contexts)) + "}",
        batches="{" + ", ".join(map(count, batches)) + "}",
        points=count(found.n_points),
    )
    yield word("measured_note", language)


def _floor(sweep: ServerSweep, assumed: Assumed | None, floors: Floors, language: str) -> Html:
    if assumed is None:
        key = "report_no_floor" if sweep.shape is not None else "no_estimate"
        return note(word(key, language, model=sweep.served or word("unnamed", language)))
    values = {
        "model": assumed.shape.name,
        "card": _called(assumed.accelerator, language),
        "ranks": count(assumed.ranks),
        "weights": str(assumed.weight_dtypes),
        "kv": str(assumed.kv_dtypes),
    }
    wrong = impossible(sweep.found, floors, language)
    said = [*([wrong] if wrong else []), *floor_sentences(sweep.found, floors, assumed, language)]
    return join(
        [
            paragraph([word("report_assumed", language, **values)], language),
            floor_table(sweep.found, floors, language).in_report(language),
            bullets(said),
        ]
    )


def _title(section: str, language: str) -> str:
    own = {"floor": "floor", "machine": "section_server"}
    return word(own[section], language) if section in own else report_word(f"section_{section}", language)


def _called(accelerator: Accelerator, language: str) -> str:
    """A card of the catalogue by its name, one of the visitor's own by its numbers."""
    if accelerator.slug != CUSTOM:
        return accelerator.name
    peak = dict(accelerator.dense_flops)["bf16"]
    bandwidth = rate(accelerator.bandwidth_bytes_per_s)
    return word("card_by_numbers", language, bandwidth=bandwidth, peak=significant(peak / 1e12))
