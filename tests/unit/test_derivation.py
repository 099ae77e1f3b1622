"""A derivation's value, formula and substituted formula are one thing: each is checked against what is written here."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.estimate.derivation import Derivation, Factor, Term, latex_number, latex_text
from core.estimate.dtypes import DTYPES, KvDtypes
from core.estimate.flops import (
    attended_pairs,
    attended_pairs_derivation,
    decode_chapter_derivation,
    decode_flops_chapter,
    head_flops,
    layers_flops,
    prefill_chapter_derivation,
    prefill_flops_chapter,
    step_flops_derivation,
)
from core.estimate.kv import kv_bytes, kv_derivation
from core.estimate.shape import shape_of
from core.estimate.symbols import group_symbols
from core.estimate.weights import parameters
from core.model.config import ModelConfig
from core.model.parameters import layer_shapes

CHAPTER_CONFIG = ModelConfig(
    name="chapter-8b",
    architecture="llama",
    n_layers=36,
    d_model=4096,
    n_heads=32,
    n_kv_heads=32,
    head_dim=128,
    d_ff=12_288,
    vocab_size=32_000,
    context_limit=32_768,
)
CHAPTER = shape_of(CHAPTER_CONFIG)
BRACE = re.compile(r"\\underbrace\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}_\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")


def key(name: str) -> str:
    """Words that are their own keys, as LaTeX would spoil an underscore."""
    return name.replace("_", " ")


def number(latex: str) -> int:
    return int(latex.replace("{,}", ""))


def evaluated(latex: str) -> int:
    """What the right-hand side of a substituted formula comes to, reckoned from its text alone."""
    text = BRACE.sub(lambda found: found[1], latex).replace("{,}", "").replace("\\cdot", "*").replace("\\quad", "")
    text = re.sub(r"\\(?:begin|end)\{aligned\}|\\\\\[3pt\]|&", " ", text).split("=", 1)[1]
    text = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1) // (\2))", text)
    text = re.sub(r"\{(\d+)\}\^\{(\d+)\}", r"\1 ** \2", text)
    assert re.fullmatch(r"[\d\s*+()/-]+", text), text
    return int(eval(text))


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    def size(most: int) -> int:
        return draw(st.integers(1, most))

    n_kv = size(6)
    return ModelConfig(
        name="drawn",
        architecture="llama",
        n_layers=size(80),
        d_model=size(9000),
        n_heads=n_kv * size(8),
        n_kv_heads=n_kv,
        head_dim=2 * size(128),
        d_ff=size(30_000),
        vocab_size=size(200_000),
        context_limit=4096,
    )


positions = st.integers(0, 40_000)
new_positions = st.integers(1, 40_000)


@given(config=configs(), n=positions, dtype=st.sampled_from(["int8", "bf16", "f32"]), batch=st.integers(1, 64))
def test_kv_memory_is_what_its_formula_says(config: ModelConfig, n: int, dtype: str, batch: int) -> None:
    shape, dtypes = shape_of(config), KvDtypes(DTYPES[dtype], DTYPES[dtype])
    derivation = kv_derivation(shape, n_tokens=n, dtypes=dtypes, batch=batch)
    one_layer = [batch * n * config.n_kv_heads * config.head_dim * DTYPES[dtype].block_bytes] * 2  # keys, values
    value = kv_bytes(shape, n_tokens=n, dtypes=dtypes, batch=batch)
    assert value == derivation.value == sum(one_layer) * config.n_layers == evaluated(derivation.substituted())


@given(config=configs(), n_new=new_positions, n_past=positions)
def test_the_exact_count_is_that_of_the_matrices(config: ModelConfig, n_new: int, n_past: int) -> None:
    """Weights from the one list of tensors, attention pair by pair; and the text comes to the same."""
    matrices = sum(shape[0] * shape[1] for _, shape in layer_shapes(config) if len(shape) == 2)
    pairs = n_new * (n_past + n_new) * config.n_heads
    layers = config.n_layers * 2 * (n_new * matrices + 2 * pairs * config.head_dim)
    head = 2 * config.vocab_size * config.d_model
    model = shape_of(config)
    derivation = step_flops_derivation(model, [(n_new, n_past)])
    assert layers_flops(model, n_new, n_past) == layers
    assert head_flops(model) == head and head_flops(model, 7) == 7 * head
    assert derivation.value == layers + head == evaluated(derivation.substituted())


def test_passes_add_up_and_the_head_comes_once() -> None:
    whole = step_flops_derivation(CHAPTER, [(5, 0), (5, 5), (2, 10)])
    assert len(whole.terms) == 3 * 4 + 1
    parts = [layers_flops(CHAPTER, *part) for part in ((5, 0), (5, 5), (2, 10))]
    assert whole.value == sum(parts) + head_flops(CHAPTER) == evaluated(whole.substituted())


@given(config=configs(), n=new_positions)
def test_the_chapters_two_formulas(config: ModelConfig, n: int) -> None:
    shape = shape_of(config)
    total = parameters(shape).total
    decode = decode_chapter_derivation(shape, n)
    prefill = prefill_chapter_derivation(shape, n)
    attention = 4 * config.n_layers * config.d_model * n
    assert decode_flops_chapter(shape, n) == 2 * total + attention == evaluated(decode.substituted())
    assert prefill_flops_chapter(shape, n) == n * (2 * total + attention) == evaluated(prefill.substituted())


@given(n_new=st.integers(1, 300), n_past=st.integers(0, 300))
def test_pairs_under_the_mask(n_new: int, n_past: int) -> None:
    derivation = attended_pairs_derivation(n_new, n_past)
    counted = sum(n_past + position + 1 for position in range(n_new))
    assert attended_pairs(n_new, n_past) == counted == evaluated(derivation.substituted())


def test_the_chapters_cache_token_by_token() -> None:
    """The text says 400-odd KB; the formula it stands beside says 576 KiB."""
    one = kv_derivation(CHAPTER, n_tokens=1)
    assert one.value == 589_824
    assert one.formula(key) == ("M_{\\mathrm{KV}} = 2\\, B\\, L\\, n_{\\mathrm{kv}}\\, n\\, d_h\\, b_{\\mathrm{kv}}")
    assert one.substituted() == ("M_{\\mathrm{KV}} = 2 \\cdot 1 \\cdot 36 \\cdot 32 \\cdot 1 \\cdot 128 \\cdot 2")
    assert "20{,}000" in kv_derivation(CHAPTER, n_tokens=20_000).substituted()


def test_a_sum_has_one_term_a_line_with_its_name_and_its_value() -> None:
    total = parameters(CHAPTER).total
    derivation = prefill_chapter_derivation(CHAPTER, 1024)
    formula, values = derivation.formula(key), derivation.substituted()
    assert formula == (
        "\\begin{aligned} C_{\\mathrm{prefill}} &= \\underbrace{2\\, n\\, P}_{\\text{parameters}} \\\\[3pt] "
        "&\\quad + \\underbrace{4\\, L\\, {n}^{2}\\, d}_{\\text{attention}} \\end{aligned}"
    )
    assert values.count("\\\\") == 1 and "{1{,}024}^{2}" in values
    assert [number(label) for _, label in BRACE.findall(values)] == [2 * 1024 * total, 4 * 36 * 1024**2 * 4096]


def test_every_brace_of_the_exact_count_holds_its_own_value() -> None:
    derivation = step_flops_derivation(CHAPTER, [(3, 9)])
    labels = [number(label) for _, label in BRACE.findall(derivation.substituted())]
    assert labels == [term.value for term in derivation.terms] and sum(labels) == derivation.value
    names = ("queries and output", "keys and values", "scores and gathering", "feed forward", "head")
    assert [label for _, label in BRACE.findall(derivation.formula(key))] == [f"\\text{{{name}}}" for name in names]
    assert "n_{\\text{new}}" in derivation.formula(key)


def test_a_quotient_of_times() -> None:
    """(total − TTFT) / (outputs − 1)."""
    total, first = Term((Factor("t", 1.5, "total"),)), Term((Factor("\\mathrm{TTFT}", 0.5),), sign=-1)
    derivation = Derivation("\\mathrm{TPOT}", (total, first), "s", over=(Factor("N", 5, plus=-1),))
    assert derivation.value == 0.25
    assert derivation.formula(key) == "\\mathrm{TPOT} = \\frac{t_{\\text{total}} - \\mathrm{TTFT}}{N - 1}"
    assert "\\frac{1{,}500.000\\,\\mathrm{ms} - 500.000\\,\\mathrm{ms}}{5 - 1}" in derivation.substituted()
    assert "\\frac{1{,}000.000\\,\\mathrm{ms}}{4}" in derivation.substituted()
    with pytest.raises(TypeError):
        _ = derivation.whole
    with pytest.raises(ZeroDivisionError):
        _ = Derivation("x", (total,), "s", over=(Factor("N", 1, plus=-1),)).value
    two = Derivation("x", (total,), "s", over=(Factor("N", 5, plus=-1), Factor("L", 3)))
    assert two.formula(key) == "x = \\frac{t_{\\text{total}}}{(N - 1) \\cdot L}" and two.value == 1.5 / 12


def test_times_that_add_up() -> None:
    parts = tuple(Term((Factor("t", seconds, name),)) for name, seconds in (("waiting", 0.001), ("model", 0.25)))
    derivation = Derivation("\\mathrm{TTFT}", parts, "s")
    assert derivation.value == pytest.approx(0.251) and "underbrace" not in derivation.substituted()
    assert "1.000\\,\\mathrm{ms}" in derivation.substituted() and "t_{\\text{waiting}}" in derivation.formula(key)


def test_a_dot_stands_before_a_number_only() -> None:
    term = Term((Factor("L", 3), Factor("", 2), Factor("n", 4), Factor("n", 4, plus=1)))
    assert term.formula(key) == "L \\cdot 2\\, n\\, (n + 1)"
    assert term.substituted() == "3 \\cdot 2 \\cdot 4 \\cdot (4 + 1)" and term.value == 3 * 2 * 4 * 5


def test_numbers_and_words_in_latex() -> None:
    assert [latex_number(value) for value in (0, 999, 1_082_880)] == ["0", "999", "1{,}082{,}880"]
    assert latex_number(0.0123456) == "12.346\\,\\mathrm{ms}"
    assert latex_text("100% {a_b} $x$ \\def") == "\\text{100\\% \\{a\\_b\\} \\$x\\$ \\textbackslash{}def}"


def test_named_factors_once_each() -> None:
    names = [factor.symbol for factor in decode_chapter_derivation(CHAPTER, 3).factors]
    assert names == ["P", "L", "n", "d"]
    assert group_symbols(CHAPTER)[0]["n_kv"].value == 32
