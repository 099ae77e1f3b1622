"""Every reckoned answer of page 7: the right value, reckoned here from the published shapes alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from core.questions import registry
from core.questions.question import Given, Outcome, Question
from core.questions.registry import QUESTIONS
from core.questions.techniques import Terms, changed_term


@dataclass(frozen=True)
class Llama:
    """A dense model as its config.json states it."""

    layers: int
    d: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    vocab: int

    @property
    def multiplied(self) -> int:
        """Weights that a token meets: projections, MLP, head; no norms, no table."""
        attention = 2 * self.d * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.d * self.ff) + self.vocab * self.d

    @property
    def total(self) -> int:
        return self.multiplied + self.vocab * self.d + (2 * self.layers + 1) * self.d

    def attention(self, n: int) -> int:
        """FLOP of scores and weighted sums of one decode step."""
        return 4 * self.layers * n * self.heads * self.head_dim

    def decode(self, n: int) -> int:
        return 2 * self.multiplied + self.attention(n)

    def kv(self, n: int, n_bytes: float = 2) -> float:
        return 2 * self.layers * self.kv_heads * self.head_dim * n * n_bytes


L8 = Llama(32, 4096, 32, 8, 128, 14336, 128256)  # Llama-3.1-8B
L7 = Llama(32, 4096, 32, 32, 128, 11008, 32000)  # Llama-2-7B
H100_BANDWIDTH, H100_PEAK = 3.35e12, 989.4e12
A100_BANDWIDTH, A100_PEAK = 2.039e12, 312e12
MIXTRAL_TOTAL, MIXTRAL_ACTIVE = 46_702_792_704, 12_748_853_248  # known-faults A10; DESIGN section 5
LLAMA = Given(model="llama-3.1-8b")


def outcome(key: str, **settings: object) -> Outcome:
    question = QUESTIONS[key]
    assert question.answer is not None
    return question.answer(replace(question.given, **settings))  # type: ignore[arg-type]


def step_seconds(model: Llama, n: int, batch: int = 1, b_w: float = 2, bandwidth: float = H100_BANDWIDTH) -> float:
    """The least time of a decode step that is bound by memory."""
    return (model.multiplied * b_w + batch * model.kv(n)) / bandwidth


def near(value: float) -> object:
    """Norms are weights too and are read: a ten-thousandth at most."""
    return pytest.approx(value, rel=1e-4)


def test_two_shapes_are_the_published_ones() -> None:
    assert L8.total == 8_030_261_248 and L7.total == 6_738_415_616


def test_dense_is_not_large() -> None:
    """Qwen3-30B-A3B: 48 layers, 8 of 128 experts of width 768; Qwen3-8B from the design's own exact count."""
    d, layers, kv = 2048, 48, 4
    attention = 2 * d * 128 * (32 + kv)
    active = layers * (attention + 8 * 3 * d * 768 + 128 * d) + 151_936 * d
    ours = 2 * active + 4 * layers * 1024 * 32 * 128
    dense = Llama(36, 4096, 32, 8, 128, 12288, 151_936)
    made = outcome("dense")
    assert made.answer == pytest.approx(ours / dense.decode(1024), rel=1e-12)
    assert made.believed == pytest.approx(30_532_122_624 / 8_190_735_360, rel=1e-12)
    assert dense.decode(1025) == pytest.approx(15.74e9, rel=1e-3)


@pytest.mark.parametrize("n", [1024, 16_384])
def test_flash_attention_stays_quadratic(n: int) -> None:
    made = outcome("flash", n=n)
    assert made.answer == 4.0 and made.believed == 2.0
    assert made.facts["flops"].value == L8.layers * 4 * n**2 * 4096
    assert made.facts["table"].value == L8.layers * L8.heads * (2 * n) ** 2 * 2
    assert made.facts["kv"].value == L8.kv(2 * n)


def test_each_technique_changes_one_term() -> None:
    made = outcome("techniques")
    assert made.answer == ("none", "weights", "cache", "passes", "length")
    assert made.facts["weights"].value == 2 * L8.total and made.facts["weights_after"].value == L8.total / 2
    assert made.facts["cache_after"].value == 69_632  # known-faults A09
    assert made.facts["per_pass"].value == pytest.approx((1 - 0.7**5) / 0.3)
    assert made.facts["kv_after"].value == L8.kv(9000)
    assert made.facts["kv"].value == L8.kv(1200)


def test_two_changed_terms_are_no_answer() -> None:
    before = Terms(1, 2, 3.0, 4)
    assert changed_term(before, before) == "none"
    with pytest.raises(ValueError):
        changed_term(before, Terms(1, 3, 3.0, 5))


def test_a_longer_context_takes_longer() -> None:
    made = outcome("constant")
    assert made.answer == near(step_seconds(L8, 131_072) / step_seconds(L8, 1024)) and made.believed == 1
    assert made.facts["kv"].value == 16 * 2**30


def test_a_step_grows_with_n() -> None:
    made = outcome("order_one")
    assert made.answer == pytest.approx([L8.decode(n) / L8.decode(1024) for n in (32_768, 65_536, 131_072)])
    assert made.facts["share"].value == pytest.approx(100 * L8.attention(131_072) / L8.decode(131_072))


def test_a_batch_shares_weights_alone() -> None:
    made = outcome("batch", n=8192, batch=32)
    assert made.answer == near(32 * step_seconds(L8, 8192) / step_seconds(L8, 8192, 32))
    assert made.believed == 32 and not made.does_not_fit
    assert outcome("batch", n=131_072, batch=32).does_not_fit


def test_shared_heads_save_no_scores() -> None:
    made = outcome("gqa")
    assert made.answer == 100 and made.believed == 25
    assert made.facts["projections"].value == 25 and made.facts["cache"].value == 25


def test_all_experts_are_resident() -> None:
    made = outcome("experts")
    assert made.answer == 2 * MIXTRAL_TOTAL and made.believed == 2 * MIXTRAL_ACTIVE


@pytest.mark.parametrize(
    ("model", "limit", "named"),
    [("llama-3.1-8b", 131_072, "binary"), ("qwen3-8b", 40_960, "binary"), ("deepseek-v3", 163_840, "binary")],
)
def test_a_k_is_1024(model: str, limit: int, named: str) -> None:
    made = outcome("kilo", model=model)
    assert made.answer == named and made.facts["limit"].value == limit
    assert made.facts["fewer"].value == limit - limit // 1024 * 1000


def test_a_k_of_a_thousand_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.estimate import catalogue

    shape = catalogue.shape("llama-3.1-8b")
    for limit, named in ((128_000, "thousand"), (131_073, "neither")):
        changed = replace(shape, context_limit=limit)
        monkeypatch.setattr("core.questions.question.catalogue.shape", lambda slug, changed=changed: changed)
        assert outcome("kilo").answer == named


@pytest.mark.parametrize(("model", "right", "wrong"), [("llama-3.1-8b", 131_072, 524_288), ("smollm2", 23_040, 69_120)])
def test_a_token_leaves_its_kv_heads(model: str, right: int, wrong: int) -> None:
    made = outcome("query_heads", model=model)
    assert made.answer == right and made.believed == wrong


@pytest.mark.parametrize(
    ("stored", "named", "share"),
    [("q4_0", "more", 28.125), ("q8_0", "more", 53.125), ("mxfp4", "more", 26.5625), ("int4", "exactly", 25)],
)
def test_scales_take_room(stored: str, named: str, share: float) -> None:
    made = outcome("quarter", kv_dtype=stored)
    assert made.answer == named and made.facts["share"].value == share


def test_a_prompt_shares_the_weights() -> None:
    """2,048 positions are bound by compute: causal pairs, and the head for the last position alone."""
    n, head = 2048, L8.vocab * L8.d
    flops = 2 * (n * (L8.multiplied - head) + head) + L8.layers * 4 * 4096 * n * (n + 1) // 2
    made = outcome("prompt")
    assert made.answer == pytest.approx(flops / H100_PEAK / step_seconds(L8, n), rel=1e-3) and made.believed == n


def test_bandwidth_decides() -> None:
    made = outcome("card")
    assert made.answer == near(H100_BANDWIDTH / A100_BANDWIDTH)
    assert made.believed == pytest.approx(H100_PEAK / A100_PEAK, rel=1e-3)


def test_every_card_waits_for_memory_there() -> None:
    """What the sentence says has to hold for everything that can be set."""
    question = QUESTIONS["card"]
    choices = {dial.name: dial.choices for dial in question.dials}
    for model in choices["model"]:
        for card in choices["card"]:
            for other in choices["other_card"]:
                made = outcome("card", model=model, card=card, other_card=other, batch=16)
                assert made.answer == pytest.approx(made.facts["bandwidth"].value), (model, card, other)


@pytest.mark.parametrize(("n", "right"), [(32_768, 2**29), (8192, 2**29)])
def test_a_window_ends_the_growth(n: int, right: int) -> None:
    """known-faults A12: half a GiB, against four at 32,768 without a window."""
    made = outcome("window", n=n)
    assert made.answer == right and made.believed == n * 131_072


def test_light_weights_leave_the_cache() -> None:
    made = outcome("int4", n=32_768, batch=8)
    assert made.answer == near(step_seconds(L8, 32_768, 8) / step_seconds(L8, 32_768, 8, 0.5))
    assert made.believed == pytest.approx(4, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "ranks", "share", "copies", "case"),
    [
        ("llama-3.1-8b", 2, 50, 1, "even"),
        ("llama-3.1-8b", 8, 12.5, 1, "even"),
        ("llama-3.1-8b", 16, 12.5, 2, ""),
        ("llama-3.1-8b", 32, 12.5, 4, ""),
        ("phi-4", 4, 30, 1, "uneven"),  # ten heads: three, three, two and two
        ("phi-4", 8, 20, 1, "uneven"),
        ("phi-4", 16, 10, 1.6, ""),
    ],
)
def test_heads_are_copied_only_where_there_are_fewer(
    model: str, ranks: int, share: float, copies: float, case: str
) -> None:
    made = outcome("ranks", model=model, ranks=ranks)
    assert made.answer == pytest.approx(share) and made.believed == 100 / ranks
    assert made.facts["copies"].value == pytest.approx(copies) and made.case == case


@pytest.mark.parametrize("key", ["batch", "int4"])
def test_a_step_that_waits_for_arithmetic_is_said_to(key: str) -> None:
    """An M2 Ultra multiplies slowly beside what it reads: with 64 sequences the products take longer."""
    bytes_first, products_first = (outcome(key, card="m2-ultra", n=1024, batch=batch) for batch in (2, 64))
    assert (bytes_first.case, products_first.case) == ("", "compute")
    reading, computing = (products_first.facts[name].value for name in ("reading", "computing"))
    assert computing > reading
    if key == "int4":
        assert products_first.answer == 1.0, "as many products, as fast"
    else:
        assert products_first.facts["together"].value == computing


def test_a_rejection_ends_the_draft() -> None:
    made = outcome("draft", gamma=4, alpha_percent=70)
    assert made.answer == pytest.approx(1 + 0.7 + 0.49 + 0.343 + 0.2401) and made.believed == pytest.approx(3.8)


def test_the_cache_catches_up_with_the_weights() -> None:
    made = outcome("weights", batch=8)
    assert made.answer == round(2 * L8.total / (8 * 131_072))


RECKONED = [question for question in QUESTIONS.values() if question.answer is not None]


@pytest.mark.parametrize("question", RECKONED, ids=lambda question: question.key)
def test_another_setting_gives_another_answer(question: Question) -> None:
    """Of every dial; where the answer is the same by nature (four times, 100%), the figures behind it are not."""
    answer: Callable[[Given], Outcome] | None = question.answer
    assert answer is not None and question.dials
    for dial in question.dials:
        found = {
            (made.answer, tuple(made.facts.items()))
            for made in (answer(replace(question.given, **{dial.name: choice})) for choice in dial.choices)
        }
        assert len(found) > 1, dial.name


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))
def test_what_can_be_set_is_set(question: Question) -> None:
    for dial in question.dials:
        assert getattr(question.given, dial.name) in dial.choices


def test_there_are_enough() -> None:
    assert len(registry.MISCONCEPTIONS) >= 12 and len(QUESTIONS) == len(registry.CHAPTER) + len(registry.MISCONCEPTIONS)


def test_nothing_of_torch_is_imported() -> None:
    code = "import sys, core.questions.registry; sys.exit(any(name in sys.modules for name in ('torch', 'streamlit')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
