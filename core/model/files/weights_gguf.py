"""The weights of a GGUF file, one tensor at a time: stored numbers as they are, quantised ones as float32."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from core.model.config import ModelConfig
from core.model.files.config_gguf import ROPE_DIVISORS, config_from_gguf, gguf_tensor_name
from core.model.files.gguf_header import GGUFTensor, read_gguf_header
from core.model.files.model_folder import readable
from core.model.files.tensor_check import check_finite, check_tensors
from core.model.files.text_side import gguf_text_side
from core.model.parameters import parameter_shapes
from core.refusal import Refusal

Bytes = NDArray[np.uint8]

_STORED = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
_ROTATED = ("q_proj.weight", "k_proj.weight", "q_proj.bias", "k_proj.bias")
_WEIGHTS_AT_A_TIME = 1 << 21  # dequantising makes several copies of what it works on


class GGUFCheckpoint:
    """A `Checkpoint` in one GGUF file, checked as a whole when it is opened and read tensor by tensor.

    Bytes are copied out of the file, not mapped: a tensor outlives the file, and a file that shrinks under a running
    server is a refusal rather than a bus error.
    """

    def __init__(self, path: Path) -> None:
        """Open an ordinary file; Refusal for whatever stands in the way of loading every tensor of the model."""
        self.file = path.name
        with readable(self.file):
            self._opened = path.open("rb")
        self._lock = Lock()
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with readable(self.file):
            header = read_gguf_header(self._opened, os.fstat(self._opened.fileno()).st_size, self.file)
        self._tensors = header.tensors
        shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
        name = self.file.removesuffix(".gguf")
        config = config_from_gguf(header.fields, shapes, name=name, file=self.file)
        expected = {gguf_tensor_name(name): shape for name, shape in parameter_shapes(config).items()}
        if ROPE_DIVISORS in shapes:
            expected[ROPE_DIVISORS] = (config.head_dim // 2,)
        check_tensors(expected, shapes, self.file)
        self.config: ModelConfig = self._with_divisors(config) if ROPE_DIVISORS in shapes else config
        text = gguf_text_side(header.fields, config.vocab_size, self.file)
        self.tokenizer, self.chat_template, self.end_token_ids = text.tokenizer, text.chat_template, text.end_token_ids

    def tensor(self, name: str) -> torch.Tensor:
        """The parameter of this Hugging Face name, as `parameter_shapes` has its shape, on the CPU and its own owner.

        float32 for quantised storage, else the stored float32, float16 or bfloat16. llama's query and key rows come
        back from the order that llama.cpp rotates them in to the one that Hugging Face does.

        Raises:
            KeyError: no parameter of this model.
            Refusal: the file is no longer what it was when it was opened, or a number in it is none.
        """
        stored_name = gguf_tensor_name(name)
        entry = self._tensors[stored_name]
        raw = self._read(entry)
        if self.config.architecture == "llama" and name.endswith(_ROTATED):
            heads = self.config.n_heads if "q_proj" in name else self.config.n_kv_heads
            raw = _halves_together(raw, heads, self.config.head_dim)
        if entry.type in _STORED:
            tensor = torch.from_numpy(raw).view(_STORED[entry.type]).view(entry.shape)
        else:
            tensor = torch.from_numpy(_dequantised(raw, entry))
        check_finite(tensor, stored_name, self.file)
        return tensor

    def close(self) -> None:
        """Close the file; tensors that were read stay."""
        self._opened.close()

    def _read(self, entry: GGUFTensor) -> Bytes:
        """The stored bytes [rows, bytes of a row]; a vector is read as rows of one element, or as one quantised row."""
        raw = np.empty(entry.n_bytes, dtype=np.uint8)
        with readable(self.file), self._lock:
            self._opened.seek(entry.offset)
            n_read = self._opened.readinto(raw.data)
        if n_read < entry.n_bytes:
            raise Refusal("model.file_truncated", file=self.file)
        return raw.reshape(entry.shape[0] if len(entry.shape) > 1 or entry.type in _STORED else 1, -1)

    def _with_divisors(self, config: ModelConfig) -> ModelConfig:
        """The configuration with the numbers of `rope_freqs.weight`, which stretch each frequency by its own factor."""
        entry = self._tensors[ROPE_DIVISORS]
        divisors: list[float] = []
        if entry.type == GGMLQuantizationType.F32:
            divisors = self._read(entry).view(np.float32).ravel().tolist()
        if not divisors or config.rope.scaling != "none" or not all(0.0 < divisor < 1e6 for divisor in divisors):
            raise Refusal("model.rope_unsupported", kind=ROPE_DIVISORS, file=self.file)
        return replace(config, rope=replace(config.rope, scaling="divisors", divisors=tuple(divisors)))


def _halves_together(raw: Bytes, n_heads: int, head_dim: int) -> Bytes:
    """Rows of each head from the order 0, half, 1, half+1, … (pairs side by side) to 0, 1, …, half, half+1, ….

    Whole rows move, so quantised ones may too.
    """
    pairs = raw.reshape(n_heads, head_dim // 2, 2, -1)  # (head, pair, half, row bytes)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(raw.shape)  # (head, half, pair, row bytes)


def _dequantised(raw: Bytes, entry: GGUFTensor) -> NDArray[np.float32]:
    """float32 in the tensor's shape, a few rows at a time."""
    width = entry.shape[-1]
    numbers = np.empty((len(raw), width), dtype=np.float32)
    n_rows = max(1, _WEIGHTS_AT_A_TIME // width)
    with np.errstate(all="ignore"):  # scales that are no numbers are found afterwards
        for first in range(0, len(raw), n_rows):
            numbers[first : first + n_rows] = dequantize(raw[first : first + n_rows], entry.type)
    return numbers.reshape(entry.shape)
