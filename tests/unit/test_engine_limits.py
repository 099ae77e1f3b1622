"""What the operator sets: a budget for caches, and the most one visitor may ask for."""

from __future__ import annotations

import pytest

from core.engine.limits import Limits, kv_budget_bytes, limits_set
from core.refusal import Refusal


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("1", 1), ("2GiB", 2**31), (" 1.5 gib ", 3 * 2**29), ("3kB", 3000), ("7B", 7), ("0.5MiB", 2**19), ("12 MB", 12e6)],
)
def test_a_budget_is_a_number_of_bytes_with_or_without_a_unit(text: str, n_bytes: int) -> None:
    assert kv_budget_bytes(10, {"TBT_KV_BYTES": text}) == n_bytes


HOSTILE = [
    "-1",
    "0",
    "0.1",
    "1e9",
    "nan",
    "inf",
    "１２",
    "٣",
    "2TB",
    "GiB",
    "1,5GiB",
    "0x10",
    "9" * 5000,
    "{name}",
    "1\n2",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_budget_that_is_no_size_is_named_and_left_out(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert kv_budget_bytes(10, {"TBT_KV_BYTES": text}) == 5
    assert "TBT_KV_BYTES" in caplog.text and len(caplog.text) < 400


def test_without_a_setting_the_budget_is_half_of_what_is_free() -> None:
    assert kv_budget_bytes(10, {}) == 5 and kv_budget_bytes(None, {"TBT_KV_BYTES": " "}) == 2**30


@pytest.mark.parametrize("text", [*HOSTILE, "1.5", "+5", "1_000"])
def test_a_limit_that_is_no_whole_number_is_named_and_left_out(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert limits_set({"TBT_PROMPT_TOKENS": text, "TBT_NEW_TOKENS": " 7 "}) == Limits(new_tokens=7)
    assert "TBT_PROMPT_TOKENS" in caplog.text and len(caplog.text) < 400


def test_what_is_over_a_limit_is_refused_with_the_limit() -> None:
    limits = Limits(prompt_tokens=10, prompt_tokens_no_cache=5, new_tokens=3)
    limits.check(10, 3, use_cache=True)
    limits.check(5, 3, use_cache=False)
    for over, key in (
        ((11, 1, True), "engine.prompt_over_limit"),
        ((6, 1, False), "engine.prompt_over_limit_no_cache"),
        ((1, 4, True), "engine.new_tokens_over_limit"),
    ):
        with pytest.raises(Refusal) as refused:
            limits.check(over[0], over[1], use_cache=over[2])
        assert refused.value.key == key and str(refused.value.values["limit"]) in refused.value.sentence("zh")
