"""What page 6 says is what was measured: its sentences, given results that are known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from core.estimate.quantised import CacheScheme
from core.lab.chunked import ChunkPoint, ChunkResult
from core.lab.lane import Difference
from core.lab.long_thought import ThoughtResult, ThoughtStep
from core.lab.quality import HeldPosition, Quality, held_ids, held_text
from core.lab.speculative.records import PassTime, PlainStep, SpeculativePass, SpeculativeResult
from core.lab.surgery_records import Edit, EditKind, EditResult, LaterStep, SurgeryResult
from core.words import catalogue, sentence
from pages.shared import language as language_module
from pages.shared.prompts import default_prompt, examples, spoken
from pages.shared.resources import shelf
from pages.shared.techniques import bench as bench_module
from pages.shared.techniques import chunks, compared, draft, prefix, quantised, surgery, thought
from pages.shared.techniques.bench import Bench
from pages.shared.techniques.tokens import token_text


@pytest.fixture(autouse=True)
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_module, "language", lambda: "en")


def word(key: str, **values: object) -> str:
    """The sentence up to its first placeholder, or all of it with values."""
    return sentence(f"terms.{key}", "en", **values) if values else catalogue("en")[f"terms.{key}"].split("{")[0]


def test_a_model_is_spoken_to_in_a_language_it_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """SmolLM2 reads Chinese as byte pieces: the text it is judged by, and what it is asked, are English on any page."""
    assert [spoken(name, "zh") for name in ("smollm2", "tiny", "brought")] == ["en", "zh", "zh"]
    assert default_prompt("smollm2", "zh") == examples("smollm2", "en")[0]
    monkeypatch.setattr(bench_module, "language", lambda: "zh")
    tiny = shelf().ask("tiny").result()
    for name, language in (("smollm2", "en"), ("brought", "zh")):
        bench = Bench(replace(tiny, name=name), "Rain")
        asked = bench.asked(4)
        assert asked.held_language == language
        assert list(asked.held_ids) == held_ids(tiny, held_text(language), 256)
        later = [sentence(f"terms.message_{number}", language) for number in prefix.LATER_MESSAGES]
        assert prefix.messages(bench) == ["Rain", *later]


@pytest.mark.parametrize(
    ("label", "shown"), [(" the", "␣the"), ("  ", "␣␣"), ("a b ", "a b␣"), ("E4 BD", "E4 BD"), ("", "")]
)
def test_a_token_of_spaces_is_seen(label: str, shown: str) -> None:
    tokenizer: Any = SimpleNamespace(token_label=lambda token_id: label)
    assert token_text(tokenizer, 5) == shown


# Surgery


def edited(kl: float, *, begin: int = 7, n_columns: int = 1, n_changed: int = 0) -> EditResult:
    steps = tuple(LaterStep(9, 1, 2 if i < n_changed else 1, Difference(kl, kl), None, 1) for i in range(4))
    return EditResult(Edit(EditKind.DROP, begin, n_columns), begin, 3, None, 1, steps)


def operated(first: float, later: float) -> SurgeryResult:
    edits = [edited(0.0)] * surgery.N_EDITS
    edits[surgery.FIRST_DROPPED], edits[surgery.LATER_DROPPED] = edited(first, begin=0), edited(later)
    return SurgeryResult((1, 2), 1, 4, (1, 1), 1, tuple(edits))


@pytest.mark.parametrize(
    ("first", "later", "choice", "why"),
    [
        (0.00074, 0.00015, "alike", "nothing"),  # five times as much of nothing
        (0.0085, 0.0031, "alike", "nothing"),
        (5.4, 0.1, "first", "first"),
        (0.009, 0.5, "middle", "middle"),
        (0.5, 0.4, "alike", "alike"),
    ],
)
def test_a_sink_is_announced_where_there_is_one(first: float, later: float, choice: str, why: str) -> None:
    result = operated(first, later)
    assert surgery.CHOICES[surgery.hurts_most(result)] == choice
    key = f"why_surgery_{why}"
    assert surgery._why(result).startswith(f"{word(key)}{first:.2g}")
    assert ("sink, and" in surgery._why(result)) == (why == "first")
    assert ("Neither is noticeable" in surgery._why(result)) == (why == "nothing")


def test_a_column_has_one_name() -> None:
    names = [surgery.named(made) for made in (edited(0, begin=0), edited(0), edited(0, begin=0, n_columns=13))]
    assert names == ["the first column dropped", "column 7 dropped", "columns 0–12 dropped"]


# Takeaways


def chunk(size: int, seconds: tuple[float, ...]) -> ChunkPoint:
    return ChunkPoint(
        chunk=size,
        pass_seconds=seconds,
        weight_bytes_read=100 * len(seconds) + 50,
        kv_bytes_read=0,
        bytes_read_formula=1,
        flops=10,
        flops_multiplied=20 if len(seconds) == 1 else 15,
        kv_bytes=1,
        kv_bytes_formula=1,
        logit_difference=0.0,
        kv_difference=0.0,
        token_id=1,
    )


def test_chunks_that_took_less_time_have_no_price() -> None:
    whole = chunk(64, (1.0,))
    for seconds, ratio in ((0.6, "1.20×"), (0.4, "0.80×")):
        text = chunks._takeaway(ChunkResult(8, 64, (chunk(32, (seconds, seconds)), whole)))
        assert "read 2 times, and the head's only with the last chunk: 1.67× the bytes in all" in text
        assert f"took {ratio} the time" in text
        assert ("multiply only 0.75×" in text) == (seconds < 0.5) and ("For that" in text) == (seconds > 0.5)


@pytest.mark.parametrize(
    ("last", "is_disturbed", "said"),
    [(1.3, False, "1.30×"), (0.61, False, "the clock does not show it"), (0.61, True, "proves nothing")],
)
def test_a_thought_that_did_not_slow_down(last: float, is_disturbed: bool, said: str) -> None:
    steps = tuple(
        ThoughtStep(n, 1.0 if n < 20 else last, 1, 1, 1, 100 + n, 7, is_disturbed and n > 35) for n in range(1, 41)
    )
    costs: Any = SimpleNamespace(n_tokens=range(8), kv_bytes=[1, 2], seconds=1.0)
    text = thought._takeaway(costs, ThoughtResult(1, 40, 40, steps), "Llama")
    assert said in text and ("proves nothing" in text) == is_disturbed


def moved(kl: float) -> Any:
    quality = Quality((HeldPosition(1, 1.0, 1.0 + kl, kl, True),))
    return SimpleNamespace(quality=quality)


def test_what_is_said_of_another_text_looks_at_the_measure() -> None:
    assert compared._remark(moved(0.004)).startswith(word("texts_close"))
    assert "11 nats on average" in compared._remark(moved(11.0)) and "not yet" not in compared._remark(moved(11.0))


def test_something_is_quantised_while_the_last_tokens_are_written() -> None:
    for scheme in (CacheScheme(8), CacheScheme(4, 32), CacheScheme(8, None, 32), CacheScheme(8, 32, 32)):
        for n_prompt in (1, 36, 64, 200):
            n_new = quantised.n_written(scheme, n_prompt)
            n = n_prompt + n_new - 1  # positions behind the last step
            assert scheme.n_quantised(n - quantised.N_NEW + 1) > 0 and n_new >= quantised.N_NEW
            assert scheme.n_quantised(scheme.least_tokens - 1) == 0


# Drafts


def speculated(drafter: str, accepted: tuple[int, ...], without: int, pass_seconds: float = 0.24) -> SpeculativeResult:
    drafts = [((7,) * 2, n) for n in accepted] + [((), 0)] * without
    passes = tuple(SpeculativePass(9, ids, n, 7, (7,) * (n + 1), 0.01, 0.24, 0, 4) for ids, n in drafts)
    plain = tuple(PlainStep(0.2, 2, 7) for done in passes for _ in done.token_ids)
    times = (PassTime(1, 0.2, 1), PassTime(2, 0.2, 2), PassTime(3, pass_seconds, 3))
    return SpeculativeResult(9, len(plain), 2, drafter, 1, True, passes, plain, times)


def test_what_the_formula_leaves_out_is_said_beside_it() -> None:
    full = speculated("layers", (2, 2, 1, 2), 0)
    assert "plain steps" not in draft._break_even(full) and draft._number(full.break_even_cost) in draft._break_even(
        full
    )
    some = draft._break_even(speculated("lookup", (2, 2, 1, 2), 20))
    assert "20 of 24 passes had none" in some and "Measured" not in some and "measured was 1." in some
    noise = draft._break_even(speculated("lookup", (2, 2), 0, 0.142))
    assert noise == word("pass_unusable", n="3", ratio="0.71×")
    assert str(draft._measures(speculated("lookup", (2, 2), 0, 0.142))).count("0.71×, not usable") == 2
    busy = speculated("lookup", (2, 2), 0)
    busy = replace(busy, pass_times=(replace(busy.pass_times[0], is_disturbed=True), *busy.pass_times[1:]))
    assert draft._break_even(busy) == word("pass_disturbed", n="3", ratio="1.20×")


@pytest.mark.parametrize(
    ("drafter", "accepted", "without", "key"),
    [
        ("layers", (2, 2, 1, 2), 0, "near"),
        ("lookup", (2, 2, 1, 2), 0, "near"),
        ("lookup", (2, 2, 0, 2), 20, "lookup"),
        ("layers", (0, 2, 0, 0, 2, 2, 2), 6, "layers"),
    ],
)
def test_a_note_on_drafts_is_about_this_drafter(
    drafter: str, accepted: tuple[int, ...], without: int, key: str
) -> None:
    result = speculated(drafter, accepted, without)
    found, reckoned = draft._number(result.tokens_per_pass), draft._number(result.tokens_per_pass_formula)
    counted = {"without": str(without), "passes": str(len(result.passes))}
    assert draft._independence(result) == word(f"note_draft_{key}", found=found, reckoned=reckoned, **counted)


def test_page_6_uses_the_words_of_the_others() -> None:
    """B and the floor have one name each in Chinese; no number stands in front of a plural it does not fit."""
    chinese = {key: text for key, text in catalogue("zh").items() if key.startswith("terms.")}
    assert [key for key, text in chinese.items() if "批大小" in text or "最短用时" in text] == []
    assert {sentence(f"terms.{key}", "zh") for key in ("axis_batch", "line_least_seconds")} == {
        "并发请求数 B（序列）",
        "一步的时间下限",
    }
    assert "mean" in word("router_fewer", batch="64", router="14.9", chance="21.3")
