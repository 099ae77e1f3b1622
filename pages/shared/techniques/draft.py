"""Speculative decoding for real: what is drafted, what is accepted, and whether the pass was worth the draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.questions.technique_terms import Mark
from pages.shared.drawn import show_drawn
from pages.shared.figures.techniques import pass_chart
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import note, row, table
from pages.shared.language import language, t
from pages.shared.numbers import count, milliseconds
from pages.shared.prompts import repeating_prompt
from pages.shared.technique_settings import DRAFTERS, MOST_GAMMA
from pages.shared.techniques.bench import Bench, measured, predict_mark
from pages.shared.techniques.compared import NONE, Line, as_flops, before_after, note_disturbed, share
from pages.shared.techniques.matrix import written_ratio
from pages.shared.techniques.of_model import chosen_of
from pages.shared.techniques.tokens import token_text
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.speculative.experiment import DrafterName, Speculation
    from core.lab.speculative.records import SpeculativePass, SpeculativeResult
    from core.model.load import LanguageModel

N_NEW = 40
NEAR_SHARE = 0.05
"""Tokens a pass so near to the formula's are as it says: so few tokens do not tell smaller differences from chance."""


def show(bench: Bench) -> None:
    """The guess, the draft, both ways of decoding, what follows."""
    predict_mark("draft", Mark.UP, t("terms.why_draft"))
    st.button(t("terms.repeating"), key="terms_repeating", on_click=_repeating, args=(bench.model.name,))
    n_layers = bench.model.config.n_layers
    with st.container(key="terms_options"):
        drafter: DrafterName = st.selectbox(
            t("terms.drafter"),
            DRAFTERS,
            format_func={name: t(f"terms.drafter_{name}") for name in DRAFTERS}.__getitem__,
            key="terms_drafter",
            persist_state="session",
        )
        gamma = st.slider(t("terms.gamma"), 1, MOST_GAMMA, key="terms_gamma", persist_state="session")
        layers = 1
        if drafter == "layers" and n_layers > 2:
            layers = _draft_layers(n_layers)
        sampled = st.toggle(t("terms.draft_sampled"), key="terms_draft_sampled", persist_state="session")

    def make() -> Speculation:
        from core.lab.speculative.experiment import GREEDY, Speculation
        from core.model.sampling import SamplingConfig

        return Speculation(
            bench.model,
            bench.ids,
            N_NEW,
            gamma=gamma,
            drafter=drafter,
            draft_layers=layers,
            sampling=SamplingConfig(temperature=1.0) if sampled else GREEDY,
        )

    asked = f"{drafter} {gamma} {layers} {sampled}"
    ends = bench.model.end_token_ids
    result: SpeculativeResult | None = measured(
        "draft", bench, asked, make, lambda found: bool(found.passes) and _has_ended(found, ends)
    )
    if result is not None:
        _show_result(bench.model, result)


def _draft_layers(n_layers: int) -> int:
    """How many of the model's first layers draft: three quarters, unless something else is asked for."""
    key, label = f"terms_layers_{n_layers}", t("terms.draft_layers", all=count(n_layers))
    return chosen_of(
        "terms_draft_layers",
        key,
        range(1, n_layers),
        n_layers * 3 // 4,
        lambda: st.slider(label, 1, n_layers - 1, key=key, persist_state="session"),
    )


def _repeating(model_name: str) -> None:
    st.session_state["terms_prompt"] = repeating_prompt(model_name)


def _has_ended(found: SpeculativeResult, ends: frozenset[int]) -> bool:
    return len(found.token_ids) >= found.n_planned or found.token_ids[-1] in ends


def _show_result(model: LanguageModel, result: SpeculativeResult) -> None:
    st.html(_tokens(model, result))
    st.html(note(t("terms.draft_legend")))
    st.html(_sums(result))
    st.html(_measures(result))
    show_drawn("terms_draft_pass", Html(pass_chart(result.pass_times, language())))
    st.html(note(_break_even(result)))
    st.html(_places(result))
    if (said := _independence(result)) is not None:
        st.html(note(said))
    note_disturbed(result.n_disturbed)
    takeaway(_takeaway(result))


def _tokens(model: LanguageModel, result: SpeculativeResult) -> Html:
    """The text token by token: accepted ones with a tick, the model's own, and what was refused struck out."""
    spans = join(join(_of_pass(model, done)) for done in result.passes)
    return fill('<p class="tbt-terms-tokens">{spans}</p>', spans=spans)


def _of_pass(model: LanguageModel, done: SpeculativePass) -> list[Html]:
    shown = [("accepted", "✓", token_id) for token_id in done.token_ids[: done.n_accepted]]
    if done.is_corrected:
        shown.append(("refused", "✗", done.drafted_ids[done.n_accepted]))
    shown += [("own", "", token_id) for token_id in done.token_ids[done.n_accepted :]]
    return [
        fill(
            '<span class="tbt-terms-{kind}"><small>{sign}</small><bdi>{label}</bdi></span>',
            kind=kind,
            sign=sign,
            label=token_text(model.tokenizer, token_id),
        )
        for kind, sign, token_id in shown
    ]


def _sums(result: SpeculativeResult) -> Html:
    """Plain decoding against drafts, for the same tokens."""
    from core.lab.before_after import Both

    return before_after(
        [
            Line("passes", Both(len(result.plain), len(result.passes)), lambda value: count(int(value))),
            Line("flops_all", Both(result.plain_flops, result.flops), as_flops),
            Line("seconds_all", Both(result.plain_seconds, result.seconds), milliseconds),
        ]
    )


def _measures(result: SpeculativeResult) -> Html:
    """What speculative decoding is known by, measured and by formula."""
    from core.lab.speculative.records import LEAST_PASS_RATIO

    is_usable = result.usable_pass_ratio is not None
    rows = [
        row(t("terms.alpha"), NONE if result.alpha is None else share(result.alpha), NONE),
        row(t("terms.per_pass"), _number(result.tokens_per_pass), _number(result.tokens_per_pass_formula)),
        row(t("terms.pass_ratio", n=count(result.gamma + 1)), _usable(result.pass_ratio, is_usable), NONE),
        row(
            t("terms.last_ratio", n=count(result.gamma + 1), gamma=count(result.gamma)),
            _usable(result.last_position_ratio, (result.last_position_ratio or 0.0) >= LEAST_PASS_RATIO),
            NONE,
        ),
        row(t("terms.cost_ratio"), _number(result.cost_ratio), NONE),
        row(t("terms.speedup"), _ratio(result.speedup), _ratio(result.speedup_formula)),
    ]
    return table([t(f"terms.head_{name}") for name in ("what", "measured", "formula")], rows)


def _usable(ratio: float | None, is_usable: bool) -> str:
    return _ratio(ratio) if is_usable else t("terms.not_usable", value=_ratio(ratio))


def _break_even(result: SpeculativeResult) -> str:
    """When drafting pays by formula, and what was measured; what the formula does not know is said beside it."""
    even = result.break_even_cost
    if result.alpha is None:
        return t("terms.draft_none")
    if even is None:
        key = "disturbed" if any(time.is_disturbed for time in result.pass_times) else "unusable"
        return t(f"terms.pass_{key}", n=count(result.gamma + 1), ratio=_ratio(result.pass_ratio))
    if even < 0:
        return t(
            "terms.break_even_never",
            per_pass=_number(result.tokens_per_pass_formula),
            ratio=_ratio(result.pass_ratio),
            measured=_ratio(result.speedup),
        )
    return t(
        "terms.break_even" if result.n_without_draft == 0 else "terms.break_even_some",
        even=_number(even),
        cost=_number(result.cost_ratio),
        formula=_ratio(result.speedup_formula),
        measured=_ratio(result.speedup),
        without=count(result.n_without_draft),
        passes=count(len(result.passes)),
    )


def _independence(result: SpeculativeResult) -> str | None:
    """What the formula supposes, and whether what was measured is as it says; None where nothing was drafted."""
    found, reckoned = result.tokens_per_pass, result.tokens_per_pass_formula
    if found is None or reckoned is None:
        return None
    is_near = abs(found / reckoned - 1) < NEAR_SHARE
    return t(
        f"terms.note_draft_{'near' if is_near else result.drafter}",
        found=_number(found),
        reckoned=_number(reckoned),
        without=count(result.n_without_draft),
        passes=count(len(result.passes)),
    )


def _places(result: SpeculativeResult) -> Html:
    """How each place of a draft fared."""
    rows = [
        row(
            count(place),
            count(found.n_checked),
            count(found.n_accepted),
            NONE if found.rate is None else share(found.rate),
        )
        for place, found in enumerate(result.places, 1)
    ]
    return table([t(f"terms.head_{name}") for name in ("place", "checked", "accepted", "rate")], rows)


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return NONE if value is None else written_ratio(value)


def _takeaway(result: SpeculativeResult) -> str:
    key = "sampled" if not result.is_greedy else "same" if result.is_same_text else "parted"
    return t(
        f"terms.takeaway_draft_{key}",
        tokens=count(len(result.token_ids)),
        passes=count(len(result.passes)),
        alpha=NONE if result.alpha is None else share(result.alpha),
        flops=written_ratio(result.flops / result.plain_flops),
        speedup=_ratio(result.speedup),
    )
