"""Everything the page shows of a run, put together from its record."""

from __future__ import annotations

import streamlit as st

from core.engine.trace import Phase, Stop, StopKind, Trace
from core.model.load import LanguageModel
from pages.shared.cards import candidates_card, card, latency_card, memory_card, step_card
from pages.shared.controls import Controls
from pages.shared.facts import machine_line
from pages.shared.html import Html, fill
from pages.shared.language import t
from pages.shared.ledger import ledger
from pages.shared.numbers import count
from pages.shared.strip import produced_text, token_strip
from pages.shared.trouble import notice, refuse
from pages.shared.visit import Started, Visit


def run_line(visit: Visit, asked: Controls) -> Html:
    """Model, cache, dtype and device of the run, and a word when the settings above are other ones by now."""
    model = visit.started.model if visit.started else asked.model
    if model is None:
        return Html("")
    config = visit.started.config if visit.started else asked.config
    changed = visit.started is not None and visit.started != Started(
        model=asked.model or model, config=asked.config, in_chat=asked.in_chat
    )
    return fill(
        '<p class="tbt-line">{cache} <b>{state}</b> · {name} · {machine}{changed}</p>',
        cache=t("kv_cache"),
        state=t("on" if config.use_cache else "off"),
        name=model.name,
        machine=machine_line(model),
        changed=fill("<br>{text}", text=t("settings_changed")) if changed else Html(""),
    )


def show_results(visit: Visit) -> None:
    """Refusal, reason for the end, tokens, cards, ledger and takeaway: as much of them as there is."""
    if visit.refusal is not None:
        refuse(visit.refusal)
    if visit.trace is None or visit.started is None:
        st.html(fill('<p class="tbt-empty">{text}</p>', text=t("before_prefill")))
        return
    started, trace, tokenizer = visit.started, visit.trace, visit.started.model.tokenizer
    if trace.stopped:
        notice(stop_reason(trace.stopped, started.model), "stop")
    st.html(
        fill(
            '<div class="tbt-results"><div class="tbt-wide">{tokens}</div><div class="tbt-column">{step}{text}</div>'
            '<div class="tbt-column">{next}</div><div class="tbt-column">{memory}{latency}</div>'
            '<div class="tbt-wide">{ledger}</div>'
            '<p class="tbt-takeaway tbt-wide">{takeaway}</p></div>',
            tokens=card(t("tokens"), token_strip(tokenizer, trace), "tbt-tokens"),
            step=step_card(started, trace),
            text=card(t("produced_text"), produced_text(trace.text)),
            next=candidates_card(started, trace.steps[-1]),
            memory=memory_card(started, trace),
            latency=latency_card(trace, visit.waiting_seconds),
            ledger=card(t("ledger"), ledger(trace)),
            takeaway=takeaway(trace),
        )
    )


def stop_reason(stopped: Stop, model: LanguageModel) -> str:
    """Why no further token will come, as a sentence."""
    if stopped.kind is StopKind.LENGTH or stopped.value is None:
        return t("stopped_length")
    if stopped.kind is StopKind.CONTEXT_LIMIT:
        return t("stopped_context", limit=count(stopped.value))
    return t("stopped_end_token", token=model.tokenizer.token_label(stopped.value), token_id=stopped.value)


def takeaway(trace: Trace) -> str:
    """The one sentence that these figures prove."""
    first, newest, n_steps = trace.steps[0], trace.steps[-1], len(trace.steps)
    token = (newest.sampled.label.strip() or newest.sampled.label) if newest.sampled else ""
    computed = sum(event.new_positions for event in trace.steps)
    if first.phase is Phase.RECOMPUTE:
        if n_steps == 1:
            return t("takeaway_first_no_cache", prompt=count(first.new_positions))
        with_cache = newest.n_tokens
        times = f"{computed / with_cache:.1f}"
        return t("takeaway_no_cache", steps=n_steps, computed=count(computed), cached=count(with_cache), times=times)
    if n_steps == 1:
        return t("takeaway_prefill", prompt=count(first.new_positions), token=token)
    return t("takeaway_decode", prompt=count(first.new_positions), steps=n_steps - 1, token=token)
