"""The moving part of the estimate pages' charts, and formulas, over HTTP."""

from __future__ import annotations

import json
import math
import re
from itertools import cycle
from typing import Any

import pytest

from core.estimate.catalogue import models
from core.estimate.derivations import derivations
from core.estimate.estimate import estimate, estimate_json
from core.estimate.kv import kv_bytes
from core.estimate.query import MOST_BATCH, MOST_CONTEXT, asked
from core.words import LANGUAGES
from pages.shared.charts import CHARTS, formulas, say_in
from pages.shared.figures.chart import live_part
from pages.shared.units import UNITS
from tests.pages.asking import client, got

MOST_BYTES, MOST_POINTS = 8192, 64
DIALLED: tuple[dict[str, object], ...] = (
    {},
    {"batch": 64, "context": 131_072, "accelerator": "h100-sxm", "kv_dtype": "q8_0:f16"},
    {"batch": MOST_BATCH, "context": MOST_CONTEXT, "kv_dtype": "f32", "weight_dtype": "f32", "accelerator": "t4"},
    {"batch": 1, "context": 1, "weight_dtype": "int4", "accelerator": "b200"},
)


@pytest.mark.parametrize("words", DIALLED, ids=lambda words: f"B={words.get('batch')}")
@pytest.mark.parametrize("name", CHARTS)
def test_a_live_curve_is_what_moves_in_the_figure(name: str, words: dict[str, object]) -> None:
    spoken = cycle((("en", "binary"), ("zh", "decimal")))
    for slug, (language, units) in zip(models(), spoken, strict=False):
        said = {name: str(word) for name, word in {"model": slug, **words}.items()}
        figure = CHARTS[name](estimate(*asked(said)), say_in(language, units))
        answer = client().get(f"/api/curves/{name}", params=said | {"lang": language, "units": units})
        assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
        assert len(answer.content) <= MOST_BYTES, (slug, len(answer.content))
        assert answer.json() == json.loads(json.dumps(live_part(figure)))
        for trace in answer.json()["data"]:
            assert len(trace["x"]) == len(trace["y"]) <= MOST_POINTS
            assert all(math.isfinite(value) for value in (*trace["x"], *trace["y"]) if not isinstance(value, str))


@pytest.mark.parametrize("units", UNITS)
def test_a_curve_is_kv_bytes_in_the_unit_that_its_axis_names(units: str) -> None:
    divisor, unit = {"binary": (2**30, "GiB"), "decimal": (10**9, "GB")}[units]
    for slug in models():
        shape, request = asked({"model": slug, "batch": "3", "context": "20000"})
        for over in ("context", "batch"):
            figure = CHARTS[f"kv_against_{over}"](estimate(shape, request), say_in("en", units))
            assert figure["layout"]["yaxis"]["title"]["text"].endswith(f"({unit})")
            (place,) = (at for at, trace in enumerate(figure["data"]) if trace["meta"] == f"kv_{unit.lower()}")
            words = {"model": slug, "batch": 3, "context": 20_000, "units": units}
            curve = got(f"/api/curves/kv_against_{over}", **words)["data"][place]
            for x, y in zip(curve["x"], curve["y"], strict=True):
                n, batch = (x, 3) if over == "context" else (20_000, x)
                exact = kv_bytes(shape, n_tokens=n, batch=batch) / divisor
                assert y == pytest.approx(exact, rel=1e-5), (slug, over, x)


@pytest.mark.parametrize("name", CHARTS)
def test_a_figure_with_the_live_part_of_another_point_is_the_figure_there(name: str) -> None:
    """Dials only move what the route sends: nothing of the first figure stays behind."""
    points: tuple[dict[str, str], ...] = (
        {},
        {"batch": "700", "context": "3000000"},
        {"n_layers": "120", "n_heads": "128"},
        {"n_layers": "1"},
    )
    cards: tuple[dict[str, str], ...] = ({}, {"accelerator": "rtx-4090"}, {"accelerator": "t4"})
    for card in cards:
        made = [estimate(*asked({"model": "chapter-8b", **card, **point})) for point in points]
        figures = [CHARTS[name](each, say_in("en", "binary")) for each in made]
        for first in figures:
            for second in figures:
                assert shown(moved(first, live_part(second))) == shown(second)


def test_unknown_curves_are_not_there() -> None:
    for path in ("curves/nothing", "curves/KV_KINDS", "curves/", "curves", "curves/kv_kinds/x", "curves/..%2fready"):
        for query in ("?model=qwen3-8b", ""):
            answer = client().get(f"/api/{path}{query}")
            assert answer.status_code == 404 and answer.json()["error"], path
    for path in ("estimate", "curves/kv_kinds"):
        answer = client().post(f"/api/{path}?model=qwen3-8b")
        assert answer.status_code in (404, 405) and answer.json()["error"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_formulas_are_those_of_the_page_and_come_out_at_the_figures(language: str) -> None:
    for slug in models():
        words = {"model": slug, "batch": "3", "context": "5000", "accelerator": "h200-sxm"}
        made = estimate(*asked(words))
        names = list(derivations(made))
        for some in (names[:20], names[20:]):
            wanted = ",".join([*some[:19], "<b>nothing</b>"])
            found = got("/api/curves/formulas", **words, lang=language, figures=wanted)["formulas"]
            assert found == formulas(made, some[:19], language) and set(found) == set(some[:19])
        for name in ("kv_bytes", "weight_bytes"):
            values = formulas(made, [name], language)[name]["values"].replace(",", "").replace("·", "*")
            if re.fullmatch(r"[\d*+() ]+", values):
                assert eval(values) == estimate_json(made)[name], (slug, name, values)


def moved(figure: Any, news: Any) -> Any:
    """As assets/costs/chart.js puts an answer into a figure."""
    own = {
        name: part if isinstance(part, list) else {**figure["layout"][name], **part}
        for name, part in news["layout"].items()
    }
    traces = zip(figure["data"], news["data"], strict=True)
    return {"data": [{**trace, **new} for trace, new in traces], "layout": {**figure["layout"], **own}}


def shown(figure: Any) -> Any:
    """What is not said to be invisible is visible; an invisible line has no looks."""
    data = [{"visible": True, **trace} for trace in figure["data"]]
    return {**figure, "data": [trace if trace["visible"] else {"meta": trace["meta"]} for trace in data]}
