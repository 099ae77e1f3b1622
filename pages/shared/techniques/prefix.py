"""A reused prefix for real: a chat whose turns are computed anew and behind the kept cache, and where it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from core.words import sentence
from pages.shared.html import Html
from pages.shared.html_parts import note, row, table
from pages.shared.language import t
from pages.shared.numbers import count, gap_percent, milliseconds
from pages.shared.techniques.bench import Bench, measured
from pages.shared.techniques.compared import (
    NONE,
    Line,
    as_bytes,
    as_flops,
    before_after,
    bytes_line,
    note_disturbed,
    note_spoken,
    written_difference,
)
from pages.shared.techniques.matrix import written_ratio
from pages.shared.techniques.reckoned import predict_term, show_reckoned
from pages.shared.techniques.tokens import token_text
from pages.shared.tools.job import takeaway

if TYPE_CHECKING:
    from core.lab.reused_prefix import ReusedPrefix
    from core.lab.reused_records import ReusedResult
    from core.model.load import LanguageModel

LATER_MESSAGES = ("second", "third")
ADDED = "!"
"""What the first message is given more where the chat is to begin otherwise."""


def show(bench: Bench) -> None:
    """The guess, the chat both ways, where the cache would end, the formulas for a large model, what follows."""
    predict_term("prefix")

    def make() -> ReusedPrefix:
        from core.lab.reused_prefix import ReusedPrefix

        system = sentence("terms.message_system", bench.language)
        return ReusedPrefix(bench.model, messages(bench), system=system, first=bench.prompt + ADDED)

    result: ReusedResult | None = measured("prefix", bench, "", make, lambda found: bool(found.cases))
    if result is not None:
        _show_result(bench.model, result)
    show_reckoned("prefix")
    if result is not None:
        takeaway(_takeaway(result))


def messages(bench: Bench) -> list[str]:
    """What is said turn by turn: the prompt, then what the model can be asked in its own language."""
    return [bench.prompt, *(sentence(f"terms.message_{name}", bench.language) for name in LATER_MESSAGES)]


def _show_result(model: LanguageModel, result: ReusedResult) -> None:
    st.html(note(t("terms.prefix_pair", turns=count(len(result.turns)))))
    st.html(_pair(result))
    note_spoken(model)
    st.html(_chat(model, result))
    st.html(_turns(result))
    most, cached = map(written_difference, (result.largest_difference, result.largest_kv_difference))
    key = "prefix_same" if result.has_same_tokens else "prefix_parted"
    st.html(note(t(f"terms.{key}", most=most, cached=cached)))
    st.html(note(t("terms.prefix_condition")))
    st.html(_cases(model, result))
    key = "prefix_cuts_same" if result.n_same_cuts == result.n_cuts else "prefix_cuts"
    st.html(note(t(f"terms.{key}", same=count(result.n_same_cuts), cuts=count(result.n_cuts))))
    note_disturbed(result.n_disturbed)


def _pair(result: ReusedResult) -> Html:
    """All turns that had something to reuse, anew and behind what was kept."""
    from core.lab.before_after import Both

    last = result.turns[-1]
    return before_after(
        [
            Line("positions", Both(*result.of_later("positions")), lambda value: count(int(value))),
            Line("flops_prefill", Both(*result.of_later("flops")), as_flops),
            Line("seconds_prefill", Both(*result.of_later("seconds")), milliseconds),
            bytes_line("kv_bytes", Both(*last.kv_bytes), Both(last.kv_bytes_formula, last.kv_bytes_formula)),
        ]
    )


def _chat(model: LanguageModel, result: ReusedResult) -> Html:
    """What was said, in the language it was said in."""
    rows = [
        row(count(number), message, model.tokenizer.decode(turn.kept_ids))
        for number, (message, turn) in enumerate(zip(result.messages, result.turns, strict=True), 1)
    ]
    return table([t(f"terms.head_{name}") for name in ("turn", "message", "answer")], rows)


def _turns(result: ReusedResult) -> Html:
    """Every turn in numbers."""
    rows = [
        row(
            count(number),
            count(turn.n_tokens),
            t("terms.of", some=count(turn.n_reused), all=count(turn.n_cached)) if turn.n_cached else NONE,
            count(int(turn.positions.kept)),
            milliseconds(turn.seconds.anew),
            milliseconds(turn.seconds.kept),
            as_bytes(turn.kv_bytes.kept),
            gap_percent(int(turn.kv_bytes.kept), turn.kv_bytes_formula),
            written_difference(turn.logit_difference),
            "=" if turn.has_same_tokens else "≠",
        )
        for number, turn in enumerate(result.turns, 1)
    ]
    heads = ("turn", "prompt_n", "reused", "computed", "anew_s", "kept_s", "kv_measured", "gap", "logit", "answers")
    return table([t(f"terms.head_{name}") for name in heads], rows)


def _cases(model: LanguageModel, result: ReusedResult) -> Html:
    """Which next prompt the last cache would serve, and how far."""
    rows = [
        row(
            t(f"terms.case_{found.case}", added=ADDED),
            t("terms.of", some=count(found.n_reused), all=count(found.n_cached)),
            *(NONE if one is None else token_text(model.tokenizer, one) for one in (found.cached_id, found.prompt_id)),
        )
        for found in result.cases
    ]
    return table([t(f"terms.head_{name}") for name in ("next", "serve", "cached_token", "prompt_token")], rows)


def _takeaway(result: ReusedResult) -> str:
    positions, edited = result.of_later("positions"), next(one for one in result.cases if one.case == "edited")
    return t(
        f"terms.takeaway_prefix_{'same' if result.has_same_tokens else 'parted'}",
        turns=count(len(result.turns)),
        kept=count(int(positions.kept)),
        anew=count(int(positions.anew)),
        flops=written_ratio(result.of_later("flops").ratio),
        seconds=written_ratio(result.of_later("seconds").ratio),
        added=ADDED,
        some=count(edited.n_reused),
        all=count(edited.n_cached),
    )
