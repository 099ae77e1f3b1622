"""A sweep as one HTML file that a learner hands in: it fetches nothing, runs no script, and prints on A4.

What the learner wrote, and what the machine calls itself, is escaped; the policy lets nothing run besides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from core.lab.sweep.report import SweepReport, findings
from pages.shared.bundle import ASSETS
from pages.shared.html import Html, fill, join
from pages.shared.lab.report_sections import facts, sections
from pages.shared.lab.report_tables import word
from pages.shared.language import HTML_TAGS

SHEETS = ("page.css", "tools.css", "report.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_PAGE = """<!doctype html>
<html lang="{tag}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>{css}</style>
</head>
<body class="stApp tbt-report">
<header>
<h1>{heading}</h1>
<p class="tbt-report-subtitle">{subtitle}</p>
<dl>{facts}</dl>
</header>
<main>{sections}</main>
<footer>{made_with}</footer>
</body>
</html>
"""
_PAGE_RULE = """@page {{
  @top-left {{ content: {title}; }}
  @bottom-left {{ content: {made_with}; }}
  @bottom-right {{ content: {number}; }}
}}
"""
_NUMBERS = {"page": "counter(page)", "pages": "counter(pages)"}


class Section(NamedTuple):
    """A part of the sheet below its head."""

    name: str
    title: str
    body: Html


def report_html(report: SweepReport, language: str) -> str:
    """The file's text, in `language`: "zh" or "en"."""
    return sheet_html(
        language,
        title=word("running_title", language, model=report.model),
        heading=word("title", language),
        subtitle=word("subtitle", language, model=report.model),
        facts=facts(report, language),
        sections=(
            Section(name, word(f"section_{name}", language), body)
            for name, body in sections(report, findings(report), language)
        ),
    )


def sheet_html(
    language: str, *, title: str, heading: str, subtitle: str, facts: Html, sections: Iterable[Section]
) -> str:
    """A sheet to hand in: `title` stands on the edge of each page, `facts` are the lines of its head."""
    return fill(
        _PAGE,
        tag=HTML_TAGS[language],
        policy=POLICY,
        title=title,
        css=Html(f"\n{_css()}\n{_page_rule(title, language)}"),
        heading=heading,
        subtitle=subtitle,
        facts=facts,
        sections=join(_section(section) for section in sections),
        made_with=word("made_with", language),
    )


def css_text(text: str) -> str:
    """A text as CSS writes it: whatever is no letter or digit by its number, so that it ends nothing."""
    return '"' + "".join(sign if sign.isalnum() else f"\\{ord(sign):x} " for sign in text) + '"'


def _section(section: Section) -> Html:
    return fill(
        '<section class="tbt-report-{name}"><h2>{title}</h2>{body}</section>',
        name=section.name,
        title=section.title,
        body=section.body,
    )


def _page_rule(title: str, language: str) -> str:
    """What stands at the edges of a printed page; a browser that does not know these leaves them out."""
    parts = re.split(r"\{(\w+)\}", word("page", language, page="{page}", pages="{pages}"))
    number = " ".join(_NUMBERS.get(part) or css_text(part) for part in parts if part)
    return _PAGE_RULE.format(title=css_text(title), made_with=css_text(word("made_with", language)), number=number)


@cache
def _css() -> str:
    css = "\n".join((ASSETS / sheet).read_text(encoding="utf-8") for sheet in SHEETS)
    if "</" in css:
        raise ValueError("a style sheet in a page must not hold what ends it")
    return css
