"""The weights of a Hugging Face directory, whole or in shards, one tensor at a time and never from a pickle."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from core.model.config import ModelConfig
from core.model.files.config_huggingface import config_from_huggingface
from core.model.files.fields import shown
from core.model.files.json_file import parse_json_object
from core.model.files.model_folder import ModelFolder, readable
from core.model.files.tensor_check import check_finite, check_tensors
from core.model.files.text_side import huggingface_text_side
from core.model.parameters import EMBEDDING, HEAD, parameter_shapes
from core.refusal import Refusal

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_DTYPES = ("F32", "F16", "BF16")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors")
_MOST_SHARDS = 1 << 10
_MOST_HEADER_BYTES = 1 << 25
# Tables of angles that old checkpoints carry along; they follow from the configuration.
_RECOMPUTED = ".rotary_emb.inv_freq"


class HuggingFaceCheckpoint:
    """A `Checkpoint` in a directory of config.json, safetensors and tokenizer.json, checked whole when it is opened."""

    def __init__(self, path: Path) -> None:
        """Raises Refusal for whatever stands in the way of loading every tensor of the model."""
        self._folder = ModelFolder(path)
        self._shards = ExitStack()
        self._where: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        values = self._folder.read_json("config.json")
        if values is None:
            raise Refusal("model.file_missing", file="config.json")
        self.config: ModelConfig = config_from_huggingface(values, name=self._folder.name)
        self._open_shards()
        self._check_tensors()
        text = huggingface_text_side(self._folder, values, self.config.vocab_size)
        self.tokenizer, self.chat_template, self.end_token_ids = text.tokenizer, text.chat_template, text.end_token_ids

    def tensor(self, name: str) -> torch.Tensor:
        """The parameter of this name in its stored dtype, on the CPU.

        safetensors hands out views of the mapped file; the copy keeps a tensor whole when the file is closed, replaced
        or cut short.

        Raises:
            KeyError: no parameter of this model.
            Refusal: a number in it is none.
        """
        tensor: torch.Tensor = self._where[name].get_tensor(name).clone()
        check_finite(tensor, name, WHOLE)
        return tensor

    def close(self) -> None:
        """Let go of the files; tensors that were read stay."""
        self._where.clear()
        self._shards.close()

    def _open_shards(self) -> None:
        """Open every file of weights and note which tensor is where."""
        if self._folder.find(WHOLE) is not None:
            self._open_shard(WHOLE)
            return
        index = self._folder.read_json(INDEX, most_bytes=1 << 24)
        if index is None:
            for pattern in _PICKLES:
                for pickled in self._folder.path.glob(pattern):
                    raise Refusal("model.pickle_refused", file=shown(pickled.name))
            raise Refusal("model.file_missing", file=WHOLE)
        places = index.get("weight_map")
        if not isinstance(places, dict) or not places:
            raise Refusal("model.field_missing", field="weight_map", file=INDEX)
        # dict.fromkeys needs hashable values, which a hostile index need not have.
        for file in places.values():
            if not isinstance(file, str) or not _SHARD_NAME.fullmatch(file):
                raise Refusal("model.shard_name", name=shown(file), file=INDEX)
        shards = dict.fromkeys(places.values())
        if len(shards) > _MOST_SHARDS:
            raise Refusal("model.shard_name", name=len(shards), file=INDEX)
        held = {file: self._open_shard(file) for file in shards}
        for name, file in places.items():
            if name not in held[file]:
                raise Refusal("model.tensor_missing", tensor=shown(name), file=file)

    def _open_shard(self, file: str) -> frozenset[str]:
        """Open one file, check its header and dtypes, and return the names of its tensors."""
        path = self._folder.find(file)
        if path is None:
            raise Refusal("model.file_missing", file=file)
        _check_keys_stand_once(path, file)
        try:
            with readable(file):
                # The library holds lengths, offsets and shapes against the file: no gap, no overlap, nothing beyond.
                opened = self._shards.enter_context(safe_open(path, framework="pt", device="cpu"))
        except SafetensorError:
            raise Refusal("model.safetensors_broken", file=file) from None
        names = frozenset(opened.keys())
        for name in names:
            part = opened.get_slice(name)
            if part.get_dtype() not in _DTYPES:
                raise Refusal("model.dtype_unsupported", tensor=shown(name), dtype=str(part.get_dtype()), file=file)
            if name in self._where:
                raise Refusal("model.tensor_twice", tensor=shown(name), file=file)
            self._where[name] = opened
            self._shapes[name] = tuple(part.get_shape())
        return names

    def _check_tensors(self) -> None:
        """Hold the files against the configuration; a tied head may lie there once more if it is the same table."""
        expected = parameter_shapes(self.config)
        found = {name: shape for name, shape in self._shapes.items() if not name.endswith(_RECOMPUTED)}
        spare_head = self.config.tied_head and HEAD in found
        if spare_head:
            expected[HEAD] = expected[EMBEDDING]
        check_tensors(expected, found, WHOLE)
        if spare_head:
            head, table = (self._where[name].get_tensor(name) for name in (HEAD, EMBEDDING))
            if head.dtype != table.dtype or not torch.equal(head, table):
                raise Refusal("model.tied_head_differs", tensor=HEAD, file=WHOLE)


def _check_keys_stand_once(path: Path, file: str) -> None:
    """Refuse a header of absurd length, or one in which a name stands twice, of which the library would take one."""
    with readable(file), path.open("rb") as opened:
        n_bytes = int.from_bytes(opened.read(8), "little")
        if not 2 <= n_bytes <= min(_MOST_HEADER_BYTES, path.stat().st_size - 8):
            raise Refusal("model.safetensors_broken", file=file)
        parse_json_object(opened.read(n_bytes), file)
