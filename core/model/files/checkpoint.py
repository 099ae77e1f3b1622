"""A model on disk: one interface over GGUF files and Hugging Face directories, complete and checked, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch

from core.model.config import ModelConfig
from core.model.files.model_folder import readable
from core.model.files.weights_gguf import GGUFCheckpoint
from core.model.files.weights_huggingface import HuggingFaceCheckpoint
from core.model.text.chat_template import ChatTemplate
from core.model.text.tokenizer import Tokenizer
from core.refusal import Refusal

LONGEST_NAME_SHOWN = 80
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")


class Checkpoint(Protocol):
    """What a model needs to come alive. An open one is complete: every tensor is there in its shape."""

    config: ModelConfig
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    end_token_ids: frozenset[int]

    def tensor(self, name: str) -> torch.Tensor:
        """One parameter by its Hugging Face name, read now: float32, float16 or bfloat16 on the CPU, its own owner."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


def open_checkpoint(path: Path | str) -> Checkpoint:
    """The model at `path`: a GGUF file, or a directory with config.json, safetensors and tokenizer.json.

    Everything that can be wrong with a model short of its numbers is found here, before a tensor is read. Sentences
    name the file, never the way to it.

    Raises:
        Refusal: there is no such file, or it is no model that can be loaded.
    """
    path = Path(path)
    name = path.name if len(path.name) <= LONGEST_NAME_SHOWN else path.name[:LONGEST_NAME_SHOWN] + "…"
    with readable(name):
        is_folder, is_file, exists = path.is_dir(), path.is_file(), path.exists()
    if is_folder:
        return HuggingFaceCheckpoint(path)
    if not is_file:
        raise Refusal("model.file_unreadable" if exists else "model.not_found", file=name)
    if path.suffix.lower() in _PICKLE_SUFFIXES:
        raise Refusal("model.pickle_refused", file=name)
    if path.suffix.lower() == ".safetensors":
        raise Refusal("model.folder_wanted", file=name)
    return GGUFCheckpoint(path)
