"""What is asked in words: the parameters of the live routes and of a link, under the names of the command's flags.

A model of the catalogue (`model=qwen3-8b`), a shape of one's own (all of SHAPE), or a model whose shape is changed in
some of its numbers (`model=qwen3-8b&n_kv_heads=4`), as dials do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from re import fullmatch

from core.estimate import catalogue
from core.estimate.accelerators import Accelerator, accelerator_named
from core.estimate.custom import CUSTOM, NUMBERS, custom_asked
from core.estimate.dtypes import kv_dtypes, weight_dtypes
from core.estimate.estimate import Request
from core.estimate.shape import Attention, FeedForward, LayerGroup, ModelShape
from core.model.files.fields import MOST_LAYERS, MOST_TOKENS, MOST_WIDTH
from core.refusal import Refusal

# Far above anything that is built, and low enough that every figure stays a number that JSON readers can hold.
MOST_BATCH, MOST_CONTEXT, MOST_RANKS = 2**20, 2**27, 2**16
LEAST_FRACTION = 0.01
NO_CARD = "none"
# Number of a shape → the most it may be.
SHAPE = {
    "n_layers": MOST_LAYERS,
    "n_heads": MOST_WIDTH,
    "n_kv_heads": MOST_WIDTH,
    "head_dim": MOST_WIDTH,
    "d_model": MOST_WIDTH,
    "d_ff": MOST_WIDTH,
    "vocab_size": MOST_TOKENS,
}
_REQUEST = ("batch", "context", "weight_dtype", "kv_dtype", "accelerator", "tp", "memory_fraction")


def asked(words: Mapping[str, str]) -> tuple[ModelShape, Request]:
    """The shape and the request that the words name. Raises Refusal, which names the word."""
    known = ("model", *_REQUEST, *NUMBERS, *SHAPE)
    for name in words:
        if name not in known:
            raise Refusal("estimate.query_unknown", name=name[:40], known=", ".join(known))
    own = tuple((name, _whole(words, name, most)) for name, most in SHAPE.items() if name in words)
    return shape_asked(words.get("model", ""), own), request_asked(words)


def request_asked(words: Mapping[str, str]) -> Request:
    """Batch, context, dtypes and card; the command's defaults for what is not said. Raises Refusal."""
    return Request(
        batch=_whole(words, "batch", MOST_BATCH, 1),
        context=_whole(words, "context", MOST_CONTEXT, 4096),
        weight_dtypes=weight_dtypes(words.get("weight_dtype", "bf16")),
        kv_dtypes=kv_dtypes(words.get("kv_dtype", "bf16")),
        accelerator=_accelerator(words),
        ranks=_whole(words, "tp", MOST_RANKS, 1),
        memory_fraction=_fraction(words.get("memory_fraction", "0.9")),
    )


def _accelerator(words: Mapping[str, str]) -> Accelerator | None:
    """One of the catalogue, or a custom one by its numbers, which are nobody's without it."""
    card = words.get("accelerator", NO_CARD)
    if card == CUSTOM:
        return custom_asked(words)
    stray = [name for name in NUMBERS if name in words]
    if stray:
        raise Refusal("estimate.query_needs_custom", name=stray[0])
    return None if card == NO_CARD else accelerator_named(card)


@lru_cache(maxsize=512)
def shape_asked(model: str, numbers: tuple[tuple[str, int], ...]) -> ModelShape:
    """The shape of a model of the catalogue with these numbers changed, or of these alone. Raises Refusal."""
    if not numbers and not model:
        raise Refusal("estimate.query_missing", name="model")
    if not numbers:
        return catalogue.shape(model)
    if model:
        return changed(catalogue.shape(model), dict(numbers))
    own = dict(numbers)
    for name in SHAPE:
        if name not in own:
            raise Refusal("estimate.query_missing", name=name)
    return _checked(dense_shape(**own))


def dense_shape(
    *, n_layers: int, n_heads: int, n_kv_heads: int, head_dim: int, d_model: int, d_ff: int, vocab_size: int
) -> ModelShape:
    """A plain decoder as llama is one: no biases, a gate, an output head of its own."""
    layers = LayerGroup(
        n_layers=n_layers,
        attention=Attention(n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim),
        feed_forward=FeedForward(d_ff=d_ff),
        norm_width=2 * d_model,
    )
    return ModelShape(
        name="",
        architecture="llama",
        d_model=d_model,
        vocab_size=vocab_size,
        context_limit=0,
        groups=(layers,),
        final_norm_width=d_model,
    )


def shape_numbers(shape: ModelShape) -> dict[str, int]:
    """The numbers of SHAPE that can be changed one by one; empty where the layers are not all alike."""
    if not is_changeable(shape):
        return {}
    (group,) = shape.groups
    attention, feed_forward = group.attention, group.feed_forward
    assert isinstance(attention, Attention)
    numbers = {
        "n_layers": group.n_layers,
        "n_heads": attention.n_heads,
        "n_kv_heads": attention.n_kv_heads,
        "head_dim": attention.head_dim,
        "d_model": shape.d_model,
        "vocab_size": shape.vocab_size,
    }
    return numbers | ({"d_ff": feed_forward.d_ff} if isinstance(feed_forward, FeedForward) else {})


def is_changeable(shape: ModelShape) -> bool:
    """Whether its numbers can be changed one by one: all layers alike, with heads of their own and one width."""
    attention = shape.groups[0].attention
    return len(shape.groups) == 1 and isinstance(attention, Attention) and attention.window is None


def changed(shape: ModelShape, numbers: Mapping[str, int]) -> ModelShape:
    """The shape with some of its numbers changed. Raises Refusal where its layers are not alike."""
    if not numbers:
        return shape
    fixed = [name for name in numbers if name not in shape_numbers(shape)]
    if fixed:
        raise Refusal("estimate.shape_not_changeable", model=shape.name, name=fixed[0])
    (group,) = shape.groups
    attention, feed_forward = group.attention, group.feed_forward
    assert isinstance(attention, Attention)
    if "d_ff" in numbers and isinstance(feed_forward, FeedForward):
        feed_forward = replace(feed_forward, d_ff=numbers["d_ff"])
    d_model = numbers.get("d_model", shape.d_model)
    layers = replace(
        group,
        n_layers=numbers.get("n_layers", group.n_layers),
        attention=replace(
            attention,
            n_heads=numbers.get("n_heads", attention.n_heads),
            n_kv_heads=numbers.get("n_kv_heads", attention.n_kv_heads),
            head_dim=numbers.get("head_dim", attention.head_dim),
            value_dim=numbers.get("head_dim", attention.value_dim),
        ),
        feed_forward=feed_forward,
        norm_width=group.norm_width // shape.d_model * d_model,
    )
    return _checked(
        replace(
            shape,
            d_model=d_model,
            vocab_size=numbers.get("vocab_size", shape.vocab_size),
            groups=(layers,),
            final_norm_width=shape.final_norm_width // shape.d_model * d_model,
        )
    )


def _checked(shape: ModelShape) -> ModelShape:
    """Refuses KV heads that cannot be shared out evenly."""
    attention = shape.groups[0].attention
    assert isinstance(attention, Attention)
    if attention.n_heads % attention.n_kv_heads:
        raise Refusal("model.heads_not_divisible", n_heads=attention.n_heads, n_kv_heads=attention.n_kv_heads)
    return shape


def _whole(words: Mapping[str, str], name: str, most: int, default: int | None = None) -> int:
    word = words.get(name, "" if default is None else str(default))
    if not (word.isascii() and word.isdecimal() and len(word) <= 12 and 1 <= int(word) <= most):
        raise Refusal("estimate.query_not_whole", name=name, most=most, value=word[:40])
    return int(word)


def _fraction(word: str) -> float:
    is_plain = fullmatch(r"[0-9]{1,3}(\.[0-9]{1,20})?|\.[0-9]{1,20}", word)
    value = float(word) if is_plain else 0.0
    if not LEAST_FRACTION <= value <= 1:
        raise Refusal("estimate.query_not_a_share", name="memory_fraction", least=LEAST_FRACTION, value=word[:40])
    return value
