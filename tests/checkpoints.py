"""Tiny random models on disk for tests: made by transformers, saved as Hugging Face directories and as GGUF files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from core.model.files.config_gguf import gguf_tensor_name

START, END = "<s>", "</s>"
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the")]

_FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
# The split of text before merging that the names stand for in tests: the one of GPT-2.
_GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def vocabulary() -> list[str]:
    """Two special tokens, the 256 bytes and three merges: what id each text has."""
    return [START, END, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]


def random_model(architecture: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A small model of the family with every parameter random, norms and biases too, in float32.

    `changes` are settings of its transformers configuration. The table has more rows than there are tokens.
    """
    settings: dict[str, Any] = {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 288,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    if architecture == "qwen3":
        settings["head_dim"] = 16
    config_class, model_class = _FAMILIES[architecture]
    torch.manual_seed(seed)
    model: PreTrainedModel = model_class(config_class(**{**settings, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "norm" in name else 0.0
            parameter.normal_(mean, 0.3 if parameter.dim() == 1 else 0.15)
    return model


def save_huggingface(model: PreTrainedModel, folder: Path, *, max_shard_size: str = "1GB") -> Path:
    """The model as a Hugging Face directory with the tokenizer of `vocabulary`; returns the directory."""
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json of the small byte-level vocabulary."""
    ids = {text: token_id for token_id, text in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_GPT2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([START, END])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": START, "eos_token": END, "add_bos_token": False, "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def save_gguf(
    model: PreTrainedModel,
    path: Path,
    *,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    settings: dict[str, Any] | None = None,
    leave_out: tuple[str, ...] = (),
    extra_tensors: dict[str, np.ndarray] | None = None,
    raw_tensors: dict[str, tuple[np.ndarray, GGMLQuantizationType]] | None = None,
) -> Path:
    """The model as llama.cpp writes it, matrices stored as `kind`, norms and biases as F32; returns the path.

    Query and key rows of llama are permuted as llama.cpp's converter does. `settings` are added to the header or
    replace what it would say there (None leaves one out), `leave_out` drops tensors by their GGUF name, `extra_tensors`
    adds float arrays and `raw_tensors` rows of stored bytes with their type.
    """
    config = model.config
    header = {**_model_settings(config), **_tokenizer_settings(), **(settings or {})}
    writer = gguf.GGUFWriter(path, header.pop("general.architecture", config.model_type))
    for key, value in header.items():
        _add(writer, key, value)
    tied = config.tie_word_embeddings
    for name, parameter in model.state_dict().items():
        stored = parameter.to(torch.float32).numpy()
        if config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
            n_heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            stored = permuted(stored, n_heads)
        if (tied and name == "lm_head.weight") or gguf_tensor_name(name) in leave_out:
            continue
        _add_tensor(writer, gguf_tensor_name(name), stored, kind)
    for name, array in (extra_tensors or {}).items():
        writer.add_tensor(name, array)
    for name, (rows, raw_kind) in (raw_tensors or {}).items():
        writer.add_tensor(name, rows, raw_dtype=raw_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def permuted(rows: np.ndarray, n_heads: int) -> np.ndarray:
    """Each head's rows with its two halves interleaved: the order in which llama.cpp turns neighbours as pairs."""
    halves = rows.reshape(n_heads, 2, rows.shape[0] // n_heads // 2, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def _model_settings(config: Any) -> dict[str, Any]:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    settings = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "rope.dimension_count": head_dim,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }
    return {f"{config.model_type}.{key}": value for key, value in settings.items()}


def _tokenizer_settings() -> dict[str, Any]:
    tokens = vocabulary()
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in (START, END) else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _add_tensor(writer: gguf.GGUFWriter, name: str, numbers: np.ndarray, kind: GGMLQuantizationType) -> None:
    if numbers.ndim == 1 or kind == GGMLQuantizationType.F32:
        writer.add_tensor(name, np.ascontiguousarray(numbers))
    else:
        writer.add_tensor(name, quantize(numbers, kind), raw_dtype=kind)
