"""The other side of the comparisons: the same weights run by transformers, which knows nothing of this code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gguf
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from core.model.load import LanguageModel, load_model
from tests.checkpoints import random_model, save_huggingface

PASSAGE = (
    "The lighthouse at the edge of the bay was built in 1871, after three ships had been lost in one winter. "
    "Its keeper wrote down the weather every hour, the names of all ships that passed, and what he had for supper. "
    "北风从山上吹下来，海面上起了白色的浪。老人把灯点亮，然后坐在窗边等他的儿子回家。"
    "When the fog came, a bell was rung by hand: four strokes, a pause, and four strokes again, until morning.\n"
    "def keeper(hours):\n    return [ring(4) for hour in range(hours) if fog(hour)]\n"
    "Nobody remembers the day on which the lamp was lit for the last time, but everybody remembers the dark. "
    "The fog has no clock, the old man used to say, and neither has the sea."
)


def load_gguf(file: Path) -> PreTrainedModel:
    """What transformers' own GGUF reader makes of the file, in fp32.

    The public way, `from_pretrained(folder, gguf_file=name)`, reads with this same function but insists on the
    accelerate package, which nothing else here needs. It opens the file twice and makes its table of names for each
    module anew, half a minute of the processor: here once, as the answers are always the same.
    """
    once = {name: cache(getattr(gguf, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    with patch.multiple(gguf, **once):
        described = load_gguf_checkpoint(str(file))["config"]
        config = AutoConfig.for_model(**described)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        tensors = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    model.tie_weights()
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    return model


def loaded(peer: PreTrainedModel, folder: Path, *, dtype: str = "f32") -> LanguageModel:
    """The peer's weights as a model of ours, by way of a Hugging Face directory; no token ends its texts."""
    model = load_model(str(save_huggingface(peer, folder)), device="cpu", dtype=dtype)
    return replace(model, end_token_ids=frozenset())


def random_pair(architecture: str, folder: Path, **changes: Any) -> tuple[PreTrainedModel, LanguageModel]:
    """A small random model twice: as transformers runs it, and as we do."""
    peer = random_model(architecture, **changes)
    return peer, loaded(peer, folder)


def random_ids(n: int, *, seed: int = 0, below: int = 261) -> list[int]:
    """Token ids without a meaning, for models without one; `below` is the small tokenizer's vocabulary."""
    return torch.randint(2, below, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


@torch.inference_mode()
def peer_logits(peer: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """Logits of all positions, [n, vocab]."""
    logits: Tensor = peer(torch.tensor([list(ids)])).logits[0]
    return logits


@torch.inference_mode()
def peer_attention(peer: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """Attention weights of all layers, heads and positions, [L, h, n, n], by its plain (unfused) implementation."""
    peer.set_attn_implementation("eager")
    layers = peer(torch.tensor([list(ids)]), output_attentions=True).attentions
    peer.set_attn_implementation("sdpa")
    return torch.cat(layers)


def greedy_of_peer(peer: PreTrainedModel, ids: Sequence[int], produced: Sequence[int], n_usable: int) -> list[int]:
    """What the peer says greedily behind `ids`, if it has said `produced` so far, for each of its tokens.

    It equals `produced` exactly when the peer's own greedy loop writes `produced`, and costs one pass instead of many.
    Ids from `n_usable` on are never said.
    """
    logits = peer_logits(peer, [*ids, *produced[:-1]])
    said: list[int] = logits[len(ids) - 1 :, :n_usable].argmax(-1).tolist()
    return said


@torch.inference_mode()
def our_logits(model: LanguageModel, ids: Sequence[int], *, cached: bool = False) -> Tensor:
    """Logits of all positions in one pass, [n, vocab]: over whole sequences, or into an empty cache."""
    caches = [model.transformer.new_cache()] if cached else None
    hidden = model.transformer.hidden(torch.tensor([list(ids)]), caches)  # (1, n, d)
    return model.transformer.logits(hidden)[0]


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape."""
    assert a.shape == b.shape
    return (a - b).abs().max().item()
