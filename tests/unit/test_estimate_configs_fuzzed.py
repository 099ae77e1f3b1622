"""Configs that were tampered with, and objects that never were one: a sound shape or one sentence, nothing else."""

from __future__ import annotations

import copy
import math
from dataclasses import asdict
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.estimate.configs.families import FAMILIES, SAME_AS
from core.estimate.configs.huggingface import from_hf
from core.estimate.shape import ModelShape
from core.refusal import Refusal

# Everything that any family asks for; each takes what it knows.
COMMON: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 10,
    "intermediate_size": 76,
    "vocab_size": 101,
    "max_position_embeddings": 512,
    "sliding_window": 16,
    "use_sliding_window": True,
    "max_window_layers": 2,
    "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"],
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 36,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [0],
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "kv_lora_rank": 14,
    "q_lora_rank": 22,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 6,
    "v_head_dim": 9,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8"},
    "multi_query_attention": True,
    "add_qkv_bias": True,
    "no_rope_layers": [1, 1, 0, 1],
    "sliding_window_pattern": 3,
}


def valid(model_type: str) -> dict[str, Any]:
    """A config of that type under the family's own spellings."""
    family = FAMILIES[SAME_AS.get(model_type, model_type)]
    values = {**COMMON, "num_experts": 8}
    if family.is_latent:
        del values["layer_types"]
    for ours, spellings in family.spelled.items():
        if ours in values:
            values[spellings[0]] = values.pop(ours)
    return {"model_type": model_type, "architectures": [family.architectures[0]], **values}


TYPES = sorted({*FAMILIES, *SAME_AS})
FIELDS = sorted(
    {*COMMON, *(name for family in FAMILIES.values() for names in family.spelled.values() for name in names)}
)
FIELDS += ["model_type", "architectures", "text_config", "is_encoder_decoder", "use_bidirectional_attention", "rmsnorm"]
ODD_NUMBERS = [0, -1, 1, 2, 5, 7, 64, 1 << 20, (1 << 20) + 1, 1 << 63, 10**300]
ODD_NUMBERS += [0.5, 4.0, -0.0, 1e308, math.nan, math.inf, -math.inf]
ODD_WORDS = ["", "4", "full_attention", "llama", "qwen3", "a\nb", "{limit}{0.__class__}", "/etc/passwd", "\x00", "专家"]
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(ODD_NUMBERS),
    st.sampled_from(ODD_WORDS),
    st.sampled_from([[], {}, [1], ["full_attention"] * 4, ["conv"] * 4, [None], [[]], [True, 1, 0, 1], {"a": {}}]),
)
json_values = st.recursive(
    odd | st.text(max_size=8) | st.floats() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def tampered(draw: st.DrawFn) -> dict[str, Any]:
    """A valid config with up to four fields deleted or replaced, some of them inside a `text_config`."""
    values = copy.deepcopy(valid(draw(st.sampled_from(TYPES))))
    if draw(st.integers(0, 3)) == 0:
        values = {"model_type": values["model_type"], "text_config": values}
    for _ in range(draw(st.integers(0, 4))):
        inner = values.get("text_config")
        target = inner if isinstance(inner, dict) and draw(st.booleans()) else values
        name = draw(st.sampled_from(sorted(target) or FIELDS) | st.sampled_from(FIELDS))
        if draw(st.booleans()):
            target.pop(name, None)
        else:
            target[name] = draw(odd)
    return values


def assert_sound(shape: ModelShape) -> None:
    """Whole numbers, none negative, and none zero where there is a thing to count."""
    leaves = [(name, value) for group in asdict(shape)["groups"] for name, value in flat(group)]
    leaves += [(name, value) for name, value in asdict(shape).items() if not isinstance(value, tuple)]
    may_be_zero = ("context_limit", "n_positions", "d_shared")
    for name, value in leaves:
        if isinstance(value, bool | str | None):
            continue
        assert type(value) is int and value < 1 << 40, name
        assert value >= (0 if name in may_be_zero else 1), name
    for group in shape.groups:
        assert group.feed_forward is not None and group.attention is not None
    assert all(one_line(note.sentence(language)) for note in shape.notes for language in ("en", "zh"))


def flat(values: dict[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += flat(value) if isinstance(value, dict) else [(name, value)]
    return found


def one_line(text: str) -> bool:
    return text.isprintable() and 10 < len(text) < 900


def assert_read_or_refused(values: dict[str, Any]) -> bool:
    try:
        shape = from_hf(values, name="m")
    except Refusal as refusal:
        english, chinese = refusal.sentence("en"), refusal.sentence("zh")
        assert one_line(english) and one_line(chinese) and "site-packages" not in english + chinese
        assert any(str(value)[:20] in english for value in refusal.values.values())
        return False
    assert_sound(shape)
    return True


fuzzed = settings(
    max_examples=1500, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@fuzzed
@given(tampered())
def test_tampered_configs_are_read_or_refused(values: dict[str, Any]) -> None:
    assert_read_or_refused(values)


@settings(fuzzed, max_examples=500)
@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), json_values, max_size=8), st.sampled_from(TYPES))
def test_random_objects_are_read_or_refused(values: dict[str, Any], model_type: str) -> None:
    assert_read_or_refused(values)
    assert_read_or_refused({**values, "model_type": model_type})


def test_what_is_tampered_with_is_read_before() -> None:
    for model_type in TYPES:
        assert assert_read_or_refused(valid(model_type)), model_type
