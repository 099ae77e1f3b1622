"""What the experiments of page 6 show alike: a table before and after, quality on a held text, texts side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import streamlit as st

from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques import divergence_chart
from pages.shared.html import Html, fill
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, gap_percent, milliseconds, percent, scaled, scaled_bytes
from pages.shared.prompts import spoken
from pages.shared.techniques.matrix import written_ratio
from pages.shared.units import units

if TYPE_CHECKING:
    from core.lab.before_after import Both, Compared
    from core.lab.quality import Texts
    from core.model.load import LanguageModel

NONE = "–"
HARDLY_NATS = 0.02
"""Of KL: below it no token's probability has moved by more than √(KL/2) = 10 points (Pinsker's inequality), and another
token is the likeliest only where two were as good as equal."""


@dataclass(frozen=True, slots=True)
class Line:
    """One term before and after as it was measured or counted, and by formula where there is one."""

    name: str
    found: Both
    write: Callable[[float], str]
    formula: Both | None = None


def as_bytes(value: float) -> str:
    """Bytes in the reader's units."""
    return scaled_bytes(round(value), units())


def as_flops(value: float) -> str:
    """FLOP with a prefix."""
    return f"{scaled(value)}FLOP"


def as_perplexity(value: float) -> str:
    """Four figures, and no exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def share(value: float) -> str:
    """A share of one; none of it is 0%."""
    return percent(value) if value else "0%"


def written_difference(value: float) -> str:
    """The largest difference of any number: two figures, or a plain 0."""
    return f"{value:.2g}"


def note_disturbed(n_points: int) -> None:
    """Says how many points stayed disturbed by other programs, where there are any."""
    if n_points:
        st.html(note(t("terms.disturbed", points=count(n_points))))


def note_spoken(model: LanguageModel) -> None:
    """Says which language the model is spoken to in, where it is not the page's."""
    spoken_language = spoken(model.name, language())
    if spoken_language != language():
        st.html(note(t("terms.speaks", model=model.name, spoken=t(f"terms.spoken_{spoken_language}"))))


def bytes_line(name: str, found: Both, formula: Both) -> Line:
    """Measured bytes against their formula."""
    return Line(name, found, as_bytes, formula)


def ratio_of(both: Both) -> str:
    """How many times as much; the word for "same" where nothing changed."""
    return t("terms.mark_same") if both.before == both.after else written_ratio(both.ratio)


def before_after(lines: Sequence[Line]) -> Html:
    """Everything before and after, with formula and gap."""
    rows = []
    for line in lines:
        reckoned = [NONE, NONE]
        if line.formula is not None:
            written = line.write(line.formula.after)
            reckoned = [written, gap_percent(round(line.found.after), round(line.formula.after))]
        cells = (t(f"terms.line_{line.name}"), line.write(line.found.before), line.write(line.found.after))
        rows.append(row(*cells, ratio_of(line.found), *reckoned))
    return table(
        [t(f"terms.head_{name}") for name in ("what", "before", "after", "ratio", "after_formula", "gap")], rows
    )


def quality_lines(compared: Compared) -> list[Line]:
    """Seconds of a step, and the perplexity of the held text."""
    from core.lab.before_after import Both

    quality = compared.quality
    perplexity = Both(quality.perplexity_before, quality.perplexity_after)
    return [
        Line("decode_seconds", compared.decode_seconds, milliseconds),
        Line("perplexity", perplexity, as_perplexity),
    ]


def show_quality(name: str, model: LanguageModel, compared: Compared) -> None:
    """Divergence against n, what it comes to, and both texts."""
    from core.lab.quality import knows_text

    quality = compared.quality
    show_drawn(f"terms_{name}_divergence", Html(divergence_chart(name, quality.positions, language())))
    said = t(
        "terms.divergence",
        positions=count(len(quality.positions)),
        mean=f"{quality.mean_divergence:.2g}",
        most=f"{quality.max_divergence:.2g}",
        agreement=share(quality.agreement),
    )
    st.html(note(said))
    kind = "knows_text" if knows_text(model) else "held_text"
    st.html(note(t(f"terms.{kind}", spoken=t(f"terms.spoken_{compared.held_language}"))))
    note_spoken(model)
    note_disturbed(compared.n_disturbed)
    show_texts(model, compared.prompt_ids, compared.texts, _remark(compared))


def _remark(compared: Compared) -> str:
    """What follows where both texts part: that depends on how far the distributions themselves have moved."""
    quality = compared.quality
    if quality.mean_divergence < HARDLY_NATS:
        return t("terms.texts_close", mean=f"{quality.mean_divergence:.2g}")
    return t(
        "terms.texts_moved",
        mean=f"{quality.mean_divergence:.2g}",
        perplexity=written_ratio(quality.perplexity_ratio),
        agreement=share(quality.agreement),
    )


def show_texts(model: LanguageModel, prompt_ids: Sequence[int], texts: Texts, remark: str) -> None:
    """Both texts; from the first token that differs on, underlined, and what that means."""
    same = texts.first_difference
    decode = partial(model.tokenizer.decode, after=tuple(prompt_ids))
    sections = []
    for name, ids, text in (("before", texts.before_ids, texts.before), ("after", texts.after_ids, texts.after)):
        common = text if same is None else decode(list(ids[:same]))
        begin, rest = (common, text[len(common) :]) if text.startswith(common) else ("", text)
        sections.append(
            fill(
                "<section><h3>{name}</h3><p><bdi>{begin}<u>{rest}</u></bdi></p></section>",
                name=t(f"terms.head_{name}"),
                begin=begin,
                rest=rest,
            )
        )
    st.html(fill('<div class="tbt-terms-texts">{before}{after}</div>', before=sections[0], after=sections[1]))
    if same is None:
        st.html(note(t("terms.texts_same")))
    else:
        st.html(note(t("terms.texts_differ", token=count(same + 1))))
        st.html(note(remark))


def is_whole(compared: Compared, n_new: int) -> bool:
    """Whether both texts were written to the end."""
    return len(compared.tokens) == n_new
