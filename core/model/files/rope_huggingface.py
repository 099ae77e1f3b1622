"""The rotary settings of a config.json, in the old spelling (`rope_theta`, `rope_scaling`) and the new one."""

from __future__ import annotations

from typing import Any

from core.model.config import RopeConfig
from core.model.files.fields import MOST_POSITIONS, Fields, shown
from core.model.yarn import yarn_magnitude
from core.refusal import Refusal

# Any kind may carry these; the rest belongs to one kind each, so that nothing is read past.
_COMMON = {"type", "rope_type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings", "finetuned"}
_OWN = {
    "default": set[str](),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor"},
    "yarn": {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"},
}

# Bounds of good sense: they keep every logarithm and division below defined.
_MOST_THETA = 1e15
_MOST_FACTOR = 1e6


def rope_from_huggingface(fields: Fields, context_limit: int) -> RopeConfig:
    """The rotary settings in `fields`, the top level of a config.json.

    yarn's `mscale` and `mscale_all_dim` become one attention factor, as the published code has it: their quotient where
    both are given and no factor is stated.

    Raises:
        Refusal: a kind or option that we do not compute, a missing or absurd number, or two spellings that differ.
    """
    options = Fields(_rope_options(fields), fields.file)
    for holder in (fields, options):
        if holder.number("partial_rotary_factor", at_least=0.0, at_most=1.0, default=1.0) != 1.0:
            holder.refuse("partial_rotary_factor")
    theta = options.number("rope_theta", at_least=1.0, open_below=True, at_most=_MOST_THETA, default=10_000.0)
    kind = _agreed(options, "rope_type", "type") or "default"
    if not isinstance(kind, str) or kind not in _OWN:
        raise Refusal("model.rope_unsupported", kind=shown(kind), file=fields.file)
    for name in options.values:
        if name not in _COMMON | _OWN[kind]:
            options.refuse(name)
    if kind == "default":
        return RopeConfig(theta=theta)
    factor = options.number("factor", at_least=1.0, at_most=_MOST_FACTOR)
    if kind == "linear":
        return RopeConfig(theta=theta, scaling="linear", factor=factor)
    original_context = _original_context(fields, options, context_limit)
    if kind == "llama3":
        low = options.number("low_freq_factor", at_least=0.0, open_below=True, at_most=_MOST_FACTOR)
        high = options.number("high_freq_factor", at_least=low, open_below=True, at_most=_MOST_FACTOR)
        return RopeConfig(
            theta=theta,
            scaling="llama3",
            factor=factor,
            original_context=original_context,
            low_freq_factor=low,
            high_freq_factor=high,
        )
    if not options.flag("truncate", default=True):
        options.refuse("truncate")
    slow = options.number("beta_slow", at_least=0.0, open_below=True, at_most=_MOST_FACTOR, default=1.0)
    fast = options.number("beta_fast", at_least=slow, at_most=_MOST_FACTOR, default=32.0)
    return RopeConfig(
        theta=theta,
        scaling="yarn",
        factor=factor,
        original_context=original_context,
        beta_fast=fast,
        beta_slow=slow,
        attention_factor=_attention_factor(options, factor),
    )


def _rope_options(fields: Fields) -> dict[str, Any]:
    """`rope_parameters` or `rope_scaling`, with a `rope_theta` of the top level in it."""
    options = _agreed(fields, "rope_parameters", "rope_scaling") or {}
    if not isinstance(options, dict):
        raise Refusal("model.rope_unsupported", kind=shown(options), file=fields.file)
    theta = fields.get("rope_theta")
    if theta is not None and options.get("rope_theta") not in (None, theta):
        raise Refusal("model.field_contradicts", field="rope_theta", file=fields.file)
    return options if theta is None else {**options, "rope_theta": theta}


def _agreed(fields: Fields, *spellings: str) -> Any:
    """The one value under any of the spellings, or None; an empty object is none."""
    values = [fields.get(name) for name in spellings if fields.get(name)]
    if any(value != values[0] for value in values):
        raise Refusal("model.field_contradicts", field=spellings[0], file=fields.file)
    return values[0] if values else None


def _original_context(fields: Fields, options: Fields, context_limit: int) -> int:
    """The context the model was trained at: stated at the top level, among the options, or the limit itself."""
    name = "original_max_position_embeddings"
    inner = options.whole(name, at_most=MOST_POSITIONS, default=context_limit)
    return fields.whole(name, at_most=MOST_POSITIONS, default=inner)


def _attention_factor(options: Fields, factor: float) -> float | None:
    """What yarn multiplies cos and sin with, if the file says so."""
    if "attention_factor" in options:
        return options.number("attention_factor", at_least=0.0, open_below=True, at_most=_MOST_FACTOR)
    numerator = options.number("mscale", at_least=0.0, at_most=_MOST_FACTOR, default=0.0)
    denominator = options.number("mscale_all_dim", at_least=0.0, at_most=_MOST_FACTOR, default=0.0)
    if numerator and denominator:
        return yarn_magnitude(factor, numerator) / yarn_magnitude(factor, denominator)
    return None
