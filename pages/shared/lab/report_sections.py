"""The lab report's sections, one after the other, and the lines at its head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from core.lab.fit import Fit
from core.lab.sweep.report import Findings, SweepReport
from pages.shared.figures.lab_report import drawn_batches, kv_chart, latency_chart, residual_chart, step_heatmap
from pages.shared.html import Html, fill, join
from pages.shared.lab.report_tables import (
    batch_table,
    bytes_table,
    held_out_table,
    joint_table,
    latency_table,
    machine_facts,
    ms_column,
    prediction_table,
    word,
)
from pages.shared.lab.report_text import fit_sentences, method_sentences, shown_sentences
from pages.shared.lab.written import duration
from pages.shared.numbers import MINUS, count

N_EMPTY_LINES = 7
_BLANK = '<div><dt>{name}</dt><dd class="tbt-report-blank"></dd></div>'
_FACT = "<div><dt>{name}</dt><dd><bdi>{value}</bdi></dd></div>"
_IN_FORMULA = {"1": "", "n": "·n", "B": "·B", "B·n": "·B·n"}


def facts(report: SweepReport, language: str) -> Html:
    """Who hands it in, to be filled by hand, and when, on what and how often it was measured."""
    machine = report.machine
    planned = count(len(list(report.plan.spots())))
    told = {
        "date": when(machine.get("date", ""), language),
        "device": " · ".join(machine[name] for name in ("processor", "device", "dtype") if name in machine),
        "points": word("points_counted", language, rows=count(len(report.rows)), planned=planned),
    }
    return facts_html({word(name, language): value for name, value in told.items()}, language)


def facts_html(told: Mapping[str, str], language: str) -> Html:
    """Lines at the head: two to be filled by hand, then what is known, name by name."""
    own = [fill(_BLANK, name=word(name, language)) for name in ("name", "group")]
    known = [fill(_FACT, name=name, value=value) for name, value in told.items() if value]
    return join([*own, *known])


def sections(report: SweepReport, found: Findings, language: str) -> Iterator[tuple[str, Html]]:
    """Name and body of each."""
    yield "question", own_words(report.question) or _note(word("none_question", language))
    yield "prediction", _prediction(found, language)
    yield "method", paragraph(method_sentences(report, found, language), language)
    if found.cells:
        yield "table", _tables(found, language)
        yield "figures", _figures(found, language)
        yield "fit", _fit(found, language)
        yield "shows", bullets(shown_sentences(report, found, language))
    else:
        yield "table", _note(word("none_rows", language))
    yield "conclusion", own_words(report.conclusion) or ruled(language)
    yield "machine", machine_facts(report, language)


def _prediction(found: Findings, language: str) -> Html:
    if not found.checked:
        return _note(word("none_prediction", language))
    return prediction_table(found, language)


def _tables(found: Findings, language: str) -> Html:
    return join([_note(word("symbols", language)), latency_table(found, language), bytes_table(found, language)])


def _figures(found: Findings, language: str) -> Html:
    """Those that the rows suffice for. They are HTML already: a figure escapes what it is given."""
    drawn, n_batches = len(drawn_batches(found)), len({cell.batch for cell in found.cells})
    made = [latency_chart(found, language, _tick)]
    if any(found.fitted_s(cell) is not None for cell in found.cells):
        made.append(residual_chart(found, language, _tick))
    made += [step_heatmap(found, language, ms_column(found.cells)), kv_chart(found, language, _tick)]
    parts = [Html(figure) for figure in made]
    if drawn < n_batches:
        parts.append(_note(word("figure_some", language, shown=count(drawn), count=count(n_batches))))
    return join(parts)


def _fit(found: Findings, language: str) -> Html:
    parts = []
    if found.joint is not None:
        parts += [_formula(found.joint), joint_table(found.joint, language)]
    parts.append(paragraph(fit_sentences(found, language), language))
    if found.laws:
        parts += [batch_table(found.laws, language), _note(word("fit_share", language))]
    return join([*parts, held_out_table(found, language)])


def _formula(fit: Fit) -> Html:
    """The law with its numbers in it: t(n, B) = 1.2 ms + 3.4 µs·n …"""
    signed = (
        f"{MINUS if value < 0 else '+'} {duration(abs(value))}{_IN_FORMULA[term]}"
        for term, value in zip(fit.terms, fit.coefficients, strict=True)
    )
    return fill('<p class="tbt-report-formula">t(n, B) = {law}</p>', law=" ".join(signed).removeprefix("+ "))


def own_words(text: str) -> Html:
    """What the learner wrote, line by line; nothing for nothing."""
    return fill('<p class="tbt-report-own"><bdi>{text}</bdi></p>', text=text.strip()) if text.strip() else Html("")


def ruled(language: str) -> Html:
    """Lines to write on by hand, below what to write about."""
    lines = Html('<div class="tbt-report-line"></div>' * N_EMPTY_LINES)
    return join([_note(word("conclusion_lines", language)), lines])


def paragraph(texts: Iterable[str], language: str) -> Html:
    """Sentences in a row; Chinese puts no blank between them."""
    return fill("<p>{text}</p>", text=("" if language == "zh" else " ").join(texts))


def bullets(texts: Iterable[str]) -> Html:
    """Sentences one below the other."""
    return fill("<ul>{lines}</ul>", lines=join(fill("<li>{text}</li>", text=text) for text in texts))


def _note(text: str) -> Html:
    return fill('<p class="tbt-note">{text}</p>', text=text)


def _tick(value: float) -> str:
    return f"{value:,.10g}".replace("-", MINUS)


def when(date: str, language: str) -> str:
    """An ISO date as a reader writes it; what is none stays as it is."""
    try:
        moment = datetime.fromisoformat(date)
    except ValueError:
        return date
    return word("when", language, when=f"{moment:%Y-%m-%d %H:%M}")
