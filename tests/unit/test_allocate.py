"""A cache allocated for real takes the bytes that the formula says, of every kind and in every format."""

from __future__ import annotations

import pytest

from core.estimate import catalogue
from core.estimate.dtypes import DTYPES, KvDtypes, kv_dtypes
from core.estimate.estimate import Request
from core.estimate.kv import kv_bytes
from core.lab.allocate import allocate
from core.refusal import Refusal

MOST = 48 * 2**20


@pytest.mark.parametrize(
    ("slug", "dtypes"),
    [
        *(("llama-3.1-8b", dtypes) for dtypes in ("bf16", "f32", "q8_0:f16", "q4_0", "int4", "fp8")),
        *(
            (slug, dtypes)
            for slug in ("chapter-8b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v2-lite", "gpt2")
            for dtypes in ("bf16", "q4_0")
        ),
    ],
)
def test_tensors_take_what_the_formula_says(slug: str, dtypes: str) -> None:
    shape, kinds = catalogue.shape(slug), kv_dtypes(dtypes)
    done = allocate(shape, Request(batch=2, context=170, kv_dtypes=kinds), MOST)
    assert done.bytes_tensors == done.bytes_formula <= MOST
    assert done.bytes_formula == kv_bytes(shape, n_tokens=done.n_tokens, batch=2, dtypes=kinds) > 0
    is_latent = slug == "deepseek-v2-lite"
    assert done.n_tensors == shape.n_layers * (1 if is_latent else 2) and done.seconds > 0


def test_it_stops_at_the_limit() -> None:
    shape = catalogue.shape("chapter-8b")
    done = allocate(shape, Request(context=100_000), MOST)
    assert done.n_tokens == MOST // 589_824 and done.bytes_tensors == done.n_tokens * 589_824
    with pytest.raises(Refusal) as refused:
        allocate(shape, Request(batch=1000), MOST)
    assert refused.value.key == "estimate.allocation_too_large"


def test_windows_that_are_full_allow_any_context() -> None:
    """All layers of Mistral-7B see 4,096 positions: what is beyond takes nothing."""
    shape, small = catalogue.shape("mistral-7b-v0.1"), KvDtypes(DTYPES["q4_0"], DTYPES["q4_0"])
    done = allocate(shape, Request(context=10**6, kv_dtypes=small), 2**28)
    assert done.n_tokens == 10**6 and done.bytes_tensors == kv_bytes(shape, n_tokens=4096, dtypes=small)
