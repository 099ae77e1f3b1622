"""The planner's screen: a session that follows a link, its table cell by cell, and what core says it must show."""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from itertools import product
from typing import Any

from streamlit.testing.v1 import AppTest

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named
from core.estimate.dtypes import kv_dtypes, weight_dtypes
from core.estimate.estimate import Estimate, Request, estimate
from core.estimate.fit import rank_weight_bytes
from core.words import sentence
from pages.shared.numbers import count, milliseconds, scaled_bytes
from tests.pages.screen import arrive, html

PLANNER = "8_planner.py"
follow = partial(arrive, PLANNER)
"""A session that began with a link, on the planner."""
LINK = {
    "models": "deepseek-v3,gemma-3-4b,llama-3.1-8b",
    "accelerators": "rtx-4080,h100-sxm",
    "batch": "16",
    "context": "8192",
    "tp": "1,8",
    "weight_dtype": "fp8",
    "kv_dtype": "q8_0",
    "memory_fraction": "0.85",
}


def expected(link: dict[str, str]) -> list[Estimate]:
    """What core says for a link, row by row."""
    rows = product(link["models"].split(","), link["accelerators"].split(","), link["tp"].split(","))
    return [
        estimate(
            catalogue.shape(model),
            Request(
                batch=int(link["batch"]),
                context=int(link["context"]),
                weight_dtypes=weight_dtypes(link["weight_dtype"]),
                kv_dtypes=kv_dtypes(link["kv_dtype"]),
                accelerator=accelerator_named(card),
                ranks=int(ranks),
                memory_fraction=float(link["memory_fraction"]),
            ),
        )
        for model, card, ranks in rows
    ]


def table(session: AppTest) -> list[list[tuple[str, str]]]:
    """The table's lines: for each cell its text and its title."""
    (body,) = re.findall(r"<tbody>(.*?)</tbody>", html(session), flags=re.DOTALL)
    lines = re.findall(r"<tr.*?</tr>", body, flags=re.DOTALL)
    cells = [re.findall(r'<t[hd][^>]*?(?: title="([^"]*)")?>(.*?)</t[hd]>', line, flags=re.DOTALL) for line in lines]
    return [[(plain(inner), unescape(title)) for title, inner in line] for line in cells]


def plain(inner: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", inner)).split())


def line_of(made: Estimate, units: str, language: str) -> list[tuple[str, str]]:
    """What the table must say of an estimate."""
    fit, request, card = made.fit, made.request, made.request.accelerator
    assert fit is not None and card is not None
    weights = rank_weight_bytes(made.shape, request.weight_dtypes, request.ranks)
    kv = fit.needed_bytes - weights
    split = f" ×{request.ranks}" if request.ranks > 1 else ""

    def shown(value: int) -> str:
        return scaled_bytes(value, units)

    def exact(value: int) -> str:
        return f"{value:,} B"

    def said(key: str, **values: object) -> str:
        return sentence(f"planner.{key}", language, **values)

    def most(value: int | None, limit: int = 0) -> tuple[str, str]:
        if value is None:
            return said("no_limit"), said("no_limit_help")
        return f"{count(value)} {said('made_for', limit=count(limit))}" if limit and value > limit else count(value), ""

    def time(floor: Any) -> tuple[str, str]:
        if floor is None:
            return "–", said("no_peak")
        return f"≥ {milliseconds(floor.seconds)} {said(f'bound_{floor.bound}')}", f"{floor.seconds!r} s"

    line = [
        (f"{made.shape.name} {card.name}{split}", ""),
        (f"{card.name}{split}", ""),
        (shown(weights), exact(weights)),
        (shown(kv), exact(kv)),
        (
            f"{shown(fit.needed_bytes)} / {shown(fit.capacity_bytes)}",
            f"{exact(fit.needed_bytes)} / {exact(fit.capacity_bytes)}",
        ),
        (said("yes" if fit.fits else "no"), ""),
        most(fit.max_context, made.shape.context_limit),
        most(fit.max_batch),
        time(made.decode.floor),
    ]
    if made.decode.floor is None:
        rate = ("–", said("no_peak"))
    else:
        per_second = request.batch / made.decode.floor.seconds
        rate = (f"≤ {per_second:,.0f}" if per_second >= 99.95 else f"≤ {per_second:.3g}", f"{per_second!r} tokens/s")
    return [*line, rate, time(made.prefill.floor)]
