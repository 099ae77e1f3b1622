"""Every figure of an estimate opens to a derivation that comes to the same, in words that exist in both languages."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from core.estimate import catalogue
from core.estimate.accelerators import accelerator_named
from core.estimate.derivation import Derivation
from core.estimate.derivations import derivations
from core.estimate.dtypes import kv_dtypes, weight_dtypes
from core.estimate.estimate import Estimate, Request, estimate, estimate_json
from core.estimate.flops import attended_pairs, attended_pairs_derivation
from core.estimate.plain import as_text
from core.estimate.shape import Attention, LayerGroup, ModelShape
from core.words import LANGUAGES, sentence

REQUESTS = {
    "plain": Request(),
    "on a card": Request(batch=3, context=9000, accelerator=accelerator_named("h200-sxm")),
    "in blocks": Request(
        batch=2,
        context=5000,
        weight_dtypes=weight_dtypes("q8_0,experts=mxfp4,table=bf16"),
        kv_dtypes=kv_dtypes("q8_0:q4_0"),
        accelerator=accelerator_named("mi300x"),
        ranks=8,
        memory_fraction=0.95,
    ),
}


def made(slug: str, request: str) -> Estimate:
    return estimate(catalogue.shape(slug), REQUESTS[request])


def figure(found: dict[str, Any], name: str) -> Any:
    for key in name.split("."):
        found = found[key]
    return found


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("slug", list(catalogue.models()))
def test_a_derivation_comes_to_its_figure(slug: str, request_name: str) -> None:
    one = made(slug, request_name)
    found, opened = estimate_json(one), derivations(one)
    assert len(opened) >= 14
    for name, derivation in opened.items():
        if name.endswith((".compute_s", ".memory_s")):
            continue
        # What is expected of experts is rounded to whole bytes once, in the figure.
        assert derivation.value == pytest.approx(figure(found, name), rel=1e-9), name
        if isinstance(derivation.value, int) and ".bytes" not in name:
            assert derivation.value == figure(found, name), name


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("slug", list(catalogue.models()))
def test_whatever_grows_or_takes_time_can_be_opened(slug: str, request_name: str) -> None:
    one = made(slug, request_name)
    opened = derivations(one)
    if one.request.accelerator is None:
        assert not any(name.startswith("fit.") or name.endswith("_s") for name in opened)
        return
    assert {"fit.capacity_bytes", "fit.needed_bytes", "decode.time_floor_s", "prefill.memory_s"} <= set(opened)
    assert one.fit is not None
    assert ("fit.max_context" in opened) == bool(one.fit.max_context)
    assert ("fit.max_batch" in opened) == bool(one.fit.max_batch)


def test_what_is_shown_can_be_read_in_both_languages() -> None:
    for slug in catalogue.models():
        for request_name in REQUESTS:
            for name, derivation in derivations(made(slug, request_name)).items():
                for language in LANGUAGES:
                    text = as_text(derivation, lambda key, language=language: sentence(f"derivations.{key}", language))
                    assert not re.search(r"[\\{}_]\\|\\[a-z]", text), (slug, name, text)
                    assert text.count(" = ") in (2, 3)
                    sentence(f"derivations.source_{derivation.source}", language)


def test_layers_that_are_alike_are_written_once() -> None:
    """Gemma-2's layers differ in their windows alone: weights stand there over all 42, the cache in two terms."""
    opened = derivations(estimate(catalogue.shape("gemma-2-9b"), Request(context=8192)))
    assert as_text(opened["params.total"], str).startswith("P = V·d + 2·L·d·h·d_h + 2·L·d·n_kv·d_h + 3·L·d·d_ff")
    cache = as_text(opened["kv_bytes"], str)
    assert "2·B·L[window]·n_kv·W·d_h·b_kv + 2·B·L[full]·n_kv·n·d_h·b_kv" in cache
    assert cache.endswith("= 2·1·21·8·4,096·256·2 + 2·1·21·8·8,192·256·2 = 2,113,929,216 B")


def test_a_layer_without_attention_has_no_term() -> None:
    whole = catalogue.shape("qwen3-8b")
    (group,) = whole.groups
    mixed = replace(whole, groups=(replace(group, n_layers=9), replace(group, n_layers=27, attention=None)))
    opened = derivations(estimate(mixed, Request()))
    assert as_text(opened["kv_bytes"], str).startswith("M_KV = 2·B·L[full]·n_kv·n·d_h·b_kv = 2·1·9·8·4,096·128·2")
    assert "L[none]" not in as_text(opened["kv_bytes"], str)


def test_layers_that_no_word_tells_apart_have_numbers() -> None:
    wide, narrow = (Attention(n_heads=8, n_kv_heads=n_kv, head_dim=64) for n_kv in (8, 2))
    layers = tuple(
        LayerGroup(n_layers=n, attention=a, feed_forward=None, norm_width=0) for n, a in ((3, wide), (5, narrow))
    )
    shape = ModelShape(
        name="two kinds",
        architecture="x",
        d_model=512,
        vocab_size=100,
        context_limit=0,
        groups=layers,
        final_norm_width=0,
    )
    text = as_text(derivations(estimate(shape, Request(context=10)))["kv_bytes"], str)
    assert text.startswith("M_KV = 2·B·L^(1)·n_kv^(1)·n·d_h·b_kv + 2·B·L^(2)·n_kv^(2)·n·d_h·b_kv")


@pytest.mark.parametrize(("n_new", "n_past"), [(1, 0), (5, 0), (5, 3), (1, 9), (20, 4), (4, 20)])
@pytest.mark.parametrize("window", [None, 1, 4, 7, 100])
def test_pairs_are_counted_one_by_one(n_new: int, n_past: int, window: int | None) -> None:
    counted = sum(min(n_past + i + 1, window or n_past + i + 1) for i in range(n_new))
    derivation: Derivation = attended_pairs_derivation(n_new, n_past, window)
    assert attended_pairs(n_new, n_past, window) == counted == derivation.value
    assert derivation.formula(lambda key: sentence(f"derivations.{key}", "zh"))
