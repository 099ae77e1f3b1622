"""What page 2 says in words around its pictures: the prediction, the chapter's findings, the pages, the takeaway."""

from __future__ import annotations

import streamlit as st

from core.estimate import catalogue
from core.estimate.curves import first_context
from core.estimate.dtypes import BF16_KV
from core.estimate.estimate import Estimate
from core.estimate.kv import kv_bytes, kv_bytes_per_token, kv_derivation
from core.estimate.plain import as_text
from core.estimate.query import shape_numbers
from pages.shared.costs import NUMBERS, Costs
from pages.shared.guess import guess, reveal
from pages.shared.html import fill, join
from pages.shared.html_parts import card, note, row, table
from pages.shared.language import t
from pages.shared.numbers import count, percent, scaled_bytes
from pages.shared.settings import FIRST_MODEL
from pages.shared.units import units

PAGE_SIZES = (16, 64, 128, 256)
"""Positions a page: vLLM's 16, this lab's own 64, and larger ones."""
CLAIMED_TOKENS = (20_000, 50_000)
"""Contexts at which the chapter calls its cache "a few GB"."""


def prediction() -> None:
    """What one token adds to the chapter's own model: guessed first, then reckoned."""
    shape = catalogue.shape(FIRST_MODEL)
    right, numbers = kv_bytes_per_token(shape) or 0, shape_numbers(shape)
    asked = t(
        "costs.guess_kv",
        L=numbers["n_layers"],
        n_kv=numbers["n_kv_heads"],
        d_h=numbers["head_dim"],
        dtype=BF16_KV,
    )
    choices = {value: scaled_bytes(value, units()) for value in (right // 4, right // 2, right, 2 * right)}
    said = guess(asked, choices, "cost_guess_kv")
    if said is not None:
        key = "guess_right" if said == right else "guess_wrong"
        opened = kv_derivation(shape, n_tokens=1)
        values = as_text(opened, str).split(" = ")[2].replace("·", " · ")
        why = t("costs.guess_kv_why", values=values, bytes=count(right), right=scaled_bytes(right, units()))
        reveal(f"{t(f'costs.{key}')} {why}")


def findings(costs: Costs) -> None:
    """Where the chapter rounds for its own model, and by how much."""
    if costs.words["model"] != FIRST_MODEL or set(costs.words) & set(NUMBERS):
        return
    shape = costs.made.shape
    one = kv_bytes_per_token(shape) or 0
    sizes = [kv_bytes(shape, n_tokens=n) for n in CLAIMED_TOKENS]
    said = [
        t(
            "costs.finding_token",
            bytes=count(one),
            binary=scaled_bytes(one, "binary"),
            decimal=scaled_bytes(one, "decimal"),
        ),
        t(
            "costs.finding_context",
            n=count(CLAIMED_TOKENS[0]),
            size=scaled_bytes(sizes[0], units()),
            more=count(CLAIMED_TOKENS[1]),
            larger=scaled_bytes(sizes[1], units()),
        ),
        t("costs.finding_n"),
    ]
    rows = join(fill("<li>{text}</li>", text=text) for text in said)
    st.html(card(t("costs.findings"), fill("<ul>{rows}</ul>", rows=rows)))


def pages_of_tokens(costs: Costs) -> None:
    """Memory that is reserved in whole pages against what is used."""
    made, request = costs.made, costs.made.request
    used = made.kv_bytes
    rows = []
    for size in PAGE_SIZES:
        reserved = kv_bytes(
            made.shape, n_tokens=request.context, batch=request.batch, dtypes=request.kv_dtypes, page_tokens=size
        )
        rows.append(
            row(
                count(size),
                scaled_bytes(used, units()),
                scaled_bytes(reserved, units()),
                scaled_bytes(reserved - used, units()),
                percent((reserved - used) / reserved) if reserved > used else "0%",
            )
        )
    heads = [t(f"costs.pages_{name}") for name in ("size", "used", "reserved", "spare", "share")]
    body = fill("{note}{table}", note=note(t("costs.pages_note")), table=table(heads, rows))
    st.html(card(t("costs.pages"), body))


def takeaway(made: Estimate) -> None:
    """One sentence that the picture proves, for whatever the dials say."""
    share = made.kv_bytes / (made.kv_bytes + made.weight_bytes)
    equal = first_context(made.shape, made.request, made.weight_bytes)
    batch = made.request.batch
    values = {"batch": count(batch), "share": percent(share), "weights": scaled_bytes(made.weight_bytes, units())}
    if equal is not None:
        values["n"] = count(equal)
    text = t("costs.takeaway_kv" if equal is not None else "costs.takeaway_kv_never", **values)
    st.html(fill('<p class="tbt-takeaway">{text}</p>', text=text))
