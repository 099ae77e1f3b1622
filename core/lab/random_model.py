"""Models of any shape with random weights: a step reads as many bytes and multiplies as many numbers whatever they say.

An outline of one has the sizes and none of the contents, so that a sweep is planned without making the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.estimate.shape import shape_of
from core.estimate.weights import parameters
from core.model.config import ModelConfig
from core.model.device import Device
from core.model.load import LanguageModel
from core.model.parameters import parameter_shapes
from core.model.text.tokenizer import UNUSED, Tokenizer
from core.model.transformer import Transformer
from core.refusal import Refusal

VOCABULARY = 2048
"""Few tokens: a head of a large vocabulary would hide the layers, which are what is compared."""
CONTEXT_LIMIT = 131_072
MOST_PARAMETERS = 100_000_000
"""So many are drawn and packed in about a second."""
FREE_SHARE = 0.5
"""Of the free memory: caches and other visitors want the rest."""
META = torch.device("meta")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomShape:
    """L, h, n_kv and d_h; d is h·d_h, the feed-forward width 8/3 of it in whole 64s, as in llama models."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int

    @property
    def name(self) -> str:
        """What a model of this shape is called."""
        return f"random-L{self.n_layers}-h{self.n_heads}-kv{self.n_kv_heads}-dh{self.head_dim}"

    @property
    def config(self) -> ModelConfig:
        """All of its numbers. Raises Refusal where they make no model."""
        d_model = self.n_heads * self.head_dim
        return ModelConfig(
            name=self.name,
            architecture="llama",
            n_layers=self.n_layers,
            d_model=d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            d_ff=-(-8 * d_model // (3 * 64)) * 64,
            vocab_size=VOCABULARY,
            context_limit=CONTEXT_LIMIT,
            tied_head=True,
        )


class _NoText(Tokenizer):
    """A vocabulary whose ids stand for nothing."""

    def __init__(self) -> None:
        super().__init__([UNUSED] * VOCABULARY, start_token_id=None, end_token_id=None, adds_start_token=False)

    def _cut(self, text: str) -> list[int]:
        return []


def random_model(shape: RandomShape, device: Device, dtype: torch.dtype, seed: int = 0) -> LanguageModel:
    """A model of the shape: matrices from N(0, 0.02²), norms 1. The same seed draws the same numbers.

    Raises Refusal for more parameters than are made here, and for more than half of the free memory.
    """
    config = shape.config
    check_size(config, device, dtype)
    generator = torch.Generator().manual_seed(seed)
    sizes = parameter_shapes(config)

    def drawn(name: str) -> Tensor:
        size = sizes[name]
        return torch.ones(size) if len(size) == 1 else torch.randn(size, generator=generator).mul_(0.02)

    with torch.inference_mode():
        return _model(config, Transformer(config, drawn, device=device.torch_device, dtype=dtype), device)


def outline(shape: RandomShape, device: Device, dtype: torch.dtype) -> LanguageModel:
    """The same without contents, for what is reckoned from sizes alone. It cannot be run."""
    config = shape.config
    sizes = parameter_shapes(config)
    transformer = Transformer(
        config, lambda name: torch.empty(sizes[name], device=META), device=META, dtype=dtype, packed=False
    )
    transformer.activation_dtype = torch.float32 if device.kind == "cpu" else dtype
    return _model(config, transformer, device)


def check_size(config: ModelConfig, device: Device, dtype: torch.dtype) -> None:
    """Raises Refusal for a model that is too large to be made here."""
    n_parameters = parameters(shape_of(config)).total
    if n_parameters > MOST_PARAMETERS:
        raise Refusal("sweep.random_too_large", millions=n_parameters / 1e6, most=MOST_PARAMETERS / 1e6)
    needed, free = n_parameters * dtype.itemsize, device.free_memory_bytes()
    if free is not None and needed > FREE_SHARE * free:
        raise Refusal("engine.model_too_large", name=config.name, needed=needed / 2**30, free=FREE_SHARE * free / 2**30)


def _model(config: ModelConfig, transformer: Transformer, device: Device) -> LanguageModel:
    return LanguageModel(
        name=config.name,
        config=config,
        transformer=transformer,
        tokenizer=_NoText(),
        chat_template=None,
        end_token_ids=frozenset(),
        device=device,
    )
