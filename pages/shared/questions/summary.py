"""What was predicted and what came out, as one HTML file to keep or to print: no script, nothing fetched."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from core.questions.judge import Verdict
from core.questions.registry import QUESTIONS
from pages.shared.figures.questions import SEPARATOR
from pages.shared.html import Html, fill, join
from pages.shared.language import HTML_TAGS, language, t
from pages.shared.numbers import count
from pages.shared.questions.overview import name
from pages.shared.questions.progress import Answered
from pages.shared.questions.reveal import comparison, drawn_lines, remarks, verdict_html, why_html, words_html
from pages.shared.questions.written import asked, settings_line

ASSETS = Path(__file__).resolve().parents[3] / "assets"
SHEETS = ("page.css", "tools.css", "questions.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PAGE = """<!doctype html>
<html lang="{tag}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="stApp tbt-summary">
<header class="tbt-header"><h1>{title}</h1><p>{tally}</p></header>
<main>{entries}</main>
</body>
</html>
"""


def summary(answered: dict[str, Answered]) -> bytes:
    """The file, in the visitor's language and units."""
    verdicts = [one.verdict for one in answered.values()]
    done = t("questions.progress", done=count(len(answered)), total=count(len(QUESTIONS)))
    shares = [t("questions.tally", what=t(f"questions.{one}"), count=count(verdicts.count(one))) for one in Verdict]
    page = fill(
        _PAGE,
        tag=HTML_TAGS[language()],
        policy=_POLICY,
        title=f"{t('app_name')} · {t('title_questions')}",
        css=_css(),
        tally=SEPARATOR.join([done, *shares]),
        entries=join(_entry(key, one) for key, one in answered.items()),
    )
    return page.encode()


def _entry(key: str, answered: Answered) -> Html:
    question, pledge = QUESTIONS[key], answered.pledge
    shown = comparison(question, answered) or words_html(question, pledge.said, answered.outcome)
    return fill(
        '<section class="tbt-card"><h2>{name}</h2><p>{asked}</p><p class="tbt-note">{settings}</p>'
        "{verdict}{shown}{lines}{remarks}{why}</section>",
        name=name(key),
        asked=asked(question, pledge.given),
        settings=settings_line(question, pledge.given),
        verdict=verdict_html(answered.verdict),
        shown=shown,
        lines=drawn_lines(answered) if answered.outcome.lines else Html(),
        remarks=join(remarks(question, answered)),
        why=why_html(question, answered),
    )


@cache
def _css() -> Html:
    return Html("\n" + "\n".join((ASSETS / sheet).read_text(encoding="utf-8") for sheet in SHEETS))
