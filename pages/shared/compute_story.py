"""What page 3 says in words around its charts: prediction, crossings, where the chapter is off, the takeaway."""

from __future__ import annotations

import math

import streamlit as st

from core.estimate import catalogue
from core.estimate.curves import CONTEXTS, attention_equals_2p, attention_is_half, first_context
from core.estimate.estimate import Estimate
from core.estimate.flops import chapter_params
from core.estimate.gaps import Gap, decode_gap, prefill_gap
from core.estimate.shape import Attention
from pages.shared.compute_charts import attention_share
from pages.shared.costs import other_model
from pages.shared.guess import guess, reveal
from pages.shared.html import Html, fill, join
from pages.shared.html_parts import card, note, row, table
from pages.shared.language import t
from pages.shared.numbers import MINUS, count, gap_percent, percent, scaled

GUESS_MODEL = "llama-3.1-8b"
CHOICES = (1000, 5000, 30_000, 200_000)
"""Contexts that can be guessed; right is the one nearest by ratio."""
MOE_MODEL = "qwen3-30b-a3b"


def prediction() -> None:
    """Where attention overtakes the weights: guessed first, then reckoned."""
    shape = catalogue.shape(GUESS_MODEL)
    named = {choice: t("costs.about_tokens", n=count(choice)) for choice in CHOICES}
    said = guess(t("costs.guess_compute", model=shape.name), named, "cost_guess_compute")
    if said is not None:
        key = "guess_right" if said == answer() else "guess_wrong"
        why = t(
            "costs.guess_compute_why",
            model=shape.name,
            params=f"{scaled(chapter_params(shape))}".replace(" ", "\u00a0"),
            chapter=count(attention_equals_2p(shape)),
            exact=count(attention_is_half(shape) or 0),
        )
        reveal(f"{t(f'costs.{key}')} {why}")


def answer() -> int:
    """The right one of CHOICES."""
    equal = attention_equals_2p(catalogue.shape(GUESS_MODEL))
    return min(CHOICES, key=lambda choice: abs(math.log(choice / equal)))


def experts_or_dense(made: Estimate) -> bool:
    """Whether there are experts to draw; if not, says so and offers a model that has some."""
    if made.shape.has_experts:
        return True
    name = catalogue.models()[MOE_MODEL].name
    with st.container(key="compute_dense"):
        st.html(note(t("costs.dense", model=made.shape.name)))
        st.button(t("costs.dense_button", model=name), key="cost_to_moe", on_click=_to_experts)
    return False


def _to_experts() -> None:
    st.session_state["cost_model"] = MOE_MODEL
    other_model()


def crossings(made: Estimate) -> None:
    """Where attention costs as much as 2P, and where the cache is as large as the weights."""
    st.html(card(t("costs.crossings"), join([note(crossing_sentence(made)), note(t("costs.crossings_note"))])))


def crossing_sentence(made: Estimate) -> str:
    """The chapter's two crossings, and what parts them."""
    compute = attention_equals_2p(made.shape)
    memory = first_context(made.shape, made.request, made.weight_bytes)
    said = {"compute": count(compute)}
    if memory is None:
        return t("costs.crossings_never", **said)
    said["memory"] = count(memory)
    apart = parting(made)
    if apart is None:
        return t("costs.crossings_both", **said)
    if not apart:
        return t("costs.crossings_same", **said)
    factors = " · ".join(f"{name} = {value:.3g}" for name, value in apart)
    return t("costs.crossings_apart", **said, ratio=f"{math.prod(value for _, value in apart):.3g}", factors=factors)


def parting(made: Estimate) -> list[tuple[str, float]] | None:
    """The factors other than 1 whose product is memory's crossing over compute's; None where no formula has them."""
    shape, request = made.shape, made.request
    (group, *others) = shape.groups
    attention = group.attention
    if others or not isinstance(attention, Attention) or attention.window or made.kv_bytes_per_token is None:
        return None
    width = attention.head_dim + attention.value_dim
    kv_element = made.kv_bytes_per_token / (shape.n_layers * attention.n_kv_heads * width)
    factors = {
        "h/n_kv": attention.n_heads / attention.n_kv_heads,
        "2d/(h·(d_h + d_v))" if attention.value_dim != attention.head_dim else "d/(h·d_h)": 2
        * shape.d_model
        / (attention.n_heads * width),
        "b_w/b_kv": made.weight_bytes / made.params.total / kv_element,
        "P/P_act": made.params.total / chapter_params(shape),
        "1/B": 1 / request.batch,
    }
    return [(name, value) for name, value in factors.items() if abs(value - 1) > 0.004]


def chapter_against_exact(made: Estimate) -> None:
    """For each reason why the chapter's compute is not the exact one, how much that makes for this model."""
    shape, request = made.shape, made.request
    phases = (
        (decode_gap(shape, request.context, request.batch), made.decode.flops_exact),
        (prefill_gap(shape, request.context, request.batch), made.prefill.flops_exact),
    )
    rows = [
        row(t(f"costs.gap_{reason}"), *(_gap(getattr(gap, reason), exact) for gap, exact in phases))
        for reason in Gap._fields
    ]
    rows.append(row(_strong(t("costs.gap_whole")), *(_strong(_gap(gap.whole, exact)) for gap, exact in phases)))
    heads = [t(f"costs.gap_{name}") for name in ("why", "decode", "prefill")]
    st.html(card(t("costs.gaps"), fill("{note}{table}", note=note(t("costs.gaps_note")), table=table(heads, rows))))


def _gap(flops: int, exact: int) -> str:
    """+1.05 GFLOP (+6.1%); 0 where there is none."""
    if not flops:
        return "0"
    sign = "+" if flops > 0 else MINUS
    share = "< 0.001%" if abs(flops) < exact * 5e-6 else gap_percent(exact + flops, exact)
    return f"{sign}{scaled(abs(flops))}FLOP ({share})"


def _strong(text: str) -> Html:
    return fill("<b>{text}</b>", text=text)


def takeaway(made: Estimate) -> None:
    """One sentence that the charts prove, for whatever the dials say."""
    request = made.request
    text = t(
        "costs.takeaway_compute",
        batch=count(request.batch),
        n=count(request.context),
        attention=percent(attention_share(made)),
        kv=percent(made.kv_bytes / (made.kv_bytes + made.weight_bytes)),
        attention_half=_half(attention_is_half(made.shape)),
        kv_half=_half(first_context(made.shape, request, made.weight_bytes)),
    )
    st.html(fill('<p class="tbt-takeaway">{text}</p>', text=text))


def _half(context: int | None) -> str:
    most = CONTEXTS[-1]
    if context is None or context > most:
        return t("costs.half_never", n=count(most))
    return t("costs.half_from", n=count(context))
