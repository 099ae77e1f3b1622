"""What came out beside what was predicted, why, and where to see more."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from core.estimate.query import SHAPE
from core.questions.judge import Verdict
from core.questions.question import Amount, Answer, Curve, Given, Link, Outcome, Quantity, Question, Table
from pages.shared.drawn import show_drawn
from pages.shared.figures.questions import SEPARATOR, Mark, curves_html, lines_html, strip_html
from pages.shared.html import Html, fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.link import apply_settings
from pages.shared.numbers import count
from pages.shared.questions.progress import SIGNS, Answered
from pages.shared.questions.written import alone, answer_words, given_words, number, thousand_of, why

PAGES = Path(__file__).resolve().parents[2]


def reveal(question: Question, answered: Answered, now: Given) -> None:
    """The verdict, both answers in one picture, and the sentence."""
    said, outcome = answered.pledge.said, answered.outcome
    st.html(verdict_html(answered.verdict))
    picture = comparison(question, answered)
    if picture:
        show_drawn("questions_picture", picture)
    else:
        st.html(words_html(question, said, outcome))
    if outcome.lines:
        show_drawn("questions_lines", drawn_lines(answered))
    for remark in remarks(question, answered):
        st.html(remark)
    _with_other_settings(question, answered, now)
    st.html(why_html(question, answered))


def verdict_html(verdict: Verdict) -> Html:
    """How near it came, with its sign."""
    return fill(
        '<p class="tbt-verdict" role="status"><b>{sign}</b> {text}</p>',
        sign=SIGNS[verdict],
        text=t(f"questions.verdict_{verdict}"),
    )


def remarks(question: Question, answered: Answered) -> list[Html]:
    """What to know of an answer besides: a card that is too small, a model that ends before, seconds that waver."""
    given, found = answered.pledge.given, []
    if answered.outcome.does_not_fit:
        found.append(note(t("questions.does_not_fit")))
    if question.answer is not None and "n" in {dial.name for dial in question.dials} and given.n > _limit(given):
        words = {"model": given_words(given)["model"], "limit": count(_limit(given)), "n": count(given.n)}
        found.append(note(t("questions.beyond_limit", **words)))
    if question.is_timed and answered.outcome.n_disturbed:
        found.append(note(t("questions.disturbed", points=count(answered.outcome.n_disturbed))))
    return found


def _limit(given: Given) -> int:
    return given.shape.context_limit


def why_html(question: Question, answered: Answered) -> Html:
    """The sentence that the figures prove."""
    text = why(question, answered.pledge.given, answered.outcome)
    return fill('<p class="tbt-takeaway">{text}</p>', text=text)


def comparison(question: Question, answered: Answered) -> Html | None:
    """Prediction and outcome as a drawing; None where they are words."""
    said, outcome = answered.pledge.said, answered.outcome
    match question.prediction, said, outcome.answer:
        case Amount(), float(), float():
            return None if outcome.answer == float("inf") else _strip(question, question.prediction, said, outcome)
        case Curve(), tuple(), tuple():
            places = question.prediction.places(answered.pledge.given)
            drawn, right = ([float(height) for height in curve] for curve in (said, outcome.answer))
            return Html(curves_html(places, drawn, right, language(), lambda height: f"{number(height)}×"))
    return None


def drawn_lines(answered: Answered) -> Html:
    """What the experiment found along its positions or steps."""
    return Html(lines_html(answered.pledge.key, answered.outcome.lines, language(), number))


def _strip(question: Question, amount: Amount, said: float, outcome: Outcome) -> Html:
    def write(value: float) -> str:
        return alone(Quantity(value, amount.unit))

    right = outcome.answer
    assert isinstance(right, float)
    texts = {
        "said": t("questions.strip_said", value=write(said)),
        "outcome": t("questions.strip_outcome", value=write(right)),
    }
    marks = [Mark("said", said, texts["said"]), Mark("outcome", right, texts["outcome"])]
    if outcome.believed is not None:
        named = t(f"questions.{question.key}_believed", value=write(outcome.believed))
        marks.append(Mark("believed", outcome.believed, named))
    told = SEPARATOR.join(mark.text for mark in marks)
    return Html(strip_html(f"question-{question.key}", marks, told, language(), write, thousand_of(amount)))


def words_html(question: Question, said: Answer, outcome: Outcome) -> Html:
    """Prediction and outcome as words: a line each, or a table row by row."""
    heads = [t("questions.mark_said"), t("questions.mark_outcome")]
    if not (isinstance(question.prediction, Table) and isinstance(said, tuple) and isinstance(outcome.answer, tuple)):
        return table(heads, [row(answer_words(question, said), answer_words(question, outcome.answer))])
    rows = [
        row(
            t(f"questions.{question.key}_row_{name}"),
            t(f"questions.{question.key}_choice_{one}"),
            t(f"questions.{question.key}_choice_{other}"),
            SIGNS[Verdict.CLOSE if one == other else Verdict.FAR],
        )
        for name, one, other in zip(question.prediction.rows, said, outcome.answer, strict=True)
    ]
    return table([t("questions.what"), *heads, ""], rows)


def _with_other_settings(question: Question, answered: Answered, now: Given) -> None:
    """What comes out with the settings as they stand now, where those were moved behind the prediction."""
    if question.answer is not None and now != answered.pledge.given:
        came = answer_words(question, question.answer(now).answer)
        st.html(fill('<p class="tbt-notice tbt-info" role="status">{text}</p>', text=t("questions.now", value=came)))


def see_more(link: Link, given: Given) -> None:
    """A button to the page that shows more, with these settings; none before that page is there."""
    files = [file.name for file in PAGES.glob(f"*_{link.page}.py")]
    if files and st.button(t("questions.more", page=t(f"heading_{link.page}")), key="questions_more", type="tertiary"):
        values = dict(link.words) | {name: str(_taken(name, given)) for name in link.taken}
        if "model" in link.taken:  # another model brings its own numbers
            for name in SHAPE:
                st.session_state.pop(f"cost_{name}", None)
        apply_settings(values, link.page)
        st.switch_page(files[0])


def _taken(name: str, given: Given) -> str | int:
    value: str | int = given.n if name == "context" else getattr(given, name)
    return value
