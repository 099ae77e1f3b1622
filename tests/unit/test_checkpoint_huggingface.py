"""Hugging Face directories: tensors as they lie there, every declared end token, nothing from outside the folder."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.model.files.checkpoint import open_checkpoint
from core.model.parameters import EMBEDDING, HEAD, parameter_shapes
from core.refusal import Refusal
from tests.checkpoints import END, START, random_model, save_huggingface

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_huggingface(random_model("llama"), tmp_path_factory.mktemp("saved") / "whole")


@pytest.fixture(scope="module")
def saved_sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "sharded"
    return save_huggingface(random_model("llama"), folder, max_shard_size="40KB")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of a good directory, to be spoiled."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture
def sharded(saved_sharded: Path, tmp_path: Path) -> Path:
    """A copy of a good sharded directory, to be spoiled."""
    return Path(shutil.copytree(saved_sharded, tmp_path / "model"))


def refused(path: Path) -> Refusal:
    """The refusal on opening `path`, one line that tells nobody where the model lies."""
    with pytest.raises(Refusal) as caught:
        open_checkpoint(path).close()
    for language in ("en", "zh"):
        sentence = caught.value.sentence(language)
        assert str(path.parent) not in sentence and "\n" not in sentence
    return caught.value


def change(folder: Path, file: str, **changes: Any) -> None:
    """Set or (with None) remove keys of a JSON file, which need not exist."""
    path = folder / file
    values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    values.update(changes)
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}), encoding="utf-8")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_tensors_are_as_transformers_saved_them(
    architecture: str, tied: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = random_model(architecture, tie_word_embeddings=tied).to(dtype)
    checkpoint = open_checkpoint(save_huggingface(model, tmp_path / "m"))
    shapes = parameter_shapes(checkpoint.config)
    assert checkpoint.config.name == "m" and checkpoint.config.tied_head is tied
    assert set(shapes) == {name for name, _ in model.named_parameters()}
    for name, shape in shapes.items():
        tensor = checkpoint.tensor(name)
        assert tensor.dtype == dtype and tensor.shape == shape
        assert torch.equal(tensor, model.state_dict()[name])
    checkpoint.close()


def test_shards_are_one_model(saved: Path, saved_sharded: Path) -> None:
    assert len(list(saved_sharded.glob("*.safetensors"))) > 2
    whole, shards = open_checkpoint(saved), open_checkpoint(saved_sharded)
    for name in parameter_shapes(whole.config):
        assert torch.equal(whole.tensor(name), shards.tensor(name))


def test_tensors_outlive_the_file(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    table = checkpoint.tensor(EMBEDDING)
    expected = table.clone()
    checkpoint.close()
    os.truncate(folder / WEIGHTS, 0)
    assert torch.equal(table, expected)


# known-faults B15: tied and untied heads.


def test_a_spare_head_in_a_tied_checkpoint_is_the_table(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(folder, "config.json", tie_word_embeddings=True)
    save_file({**tensors, HEAD: tensors[EMBEDDING].clone()}, folder / WEIGHTS)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.tied_head and HEAD not in parameter_shapes(checkpoint.config)
    save_file({**tensors, HEAD: tensors[EMBEDDING] + 1}, folder / WEIGHTS)
    assert refused(folder).key == "model.tied_head_differs"


def test_a_tied_flag_in_text_config_counts(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors[HEAD]
    save_file(tensors, folder / WEIGHTS)
    change(folder, "config.json", tie_word_embeddings=None, text_config={"tie_word_embeddings": True})
    assert open_checkpoint(folder).config.tied_head


def test_an_untied_model_without_its_head_is_refused(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors[HEAD]
    save_file(tensors, folder / WEIGHTS)
    assert HEAD in str(refused(folder))


# known-faults B11: end tokens.


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ([5, 9], 2, {5, 9}),
        (7, 2, {7}),
        ("null", 2, set()),
        ([], 2, set()),
        ("absent", [2, 3], {2, 3}),
        ("absent", None, {1}),
    ],
)
def test_all_declared_end_tokens_count(generation: Any, config: Any, expected: set[int], folder: Path) -> None:
    change(folder, "generation_config.json", eos_token_id=None)
    change(folder, "config.json", eos_token_id=config)
    if generation == "null":
        (folder / "generation_config.json").write_text('{"eos_token_id": null}', encoding="utf-8")
    elif generation != "absent":
        change(folder, "generation_config.json", eos_token_id=generation)
    assert open_checkpoint(folder).end_token_ids == expected


@pytest.mark.parametrize("value", ["</s>", [1, "2"], True, -1, {"a": 1}, 2**40])
def test_an_end_token_that_is_no_id_is_refused(value: Any, folder: Path) -> None:
    change(folder, "generation_config.json", eos_token_id=value)
    assert refused(folder).key == "model.end_token_not_an_id"


def test_text_side(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert checkpoint.tokenizer.vocab_size == 261 < checkpoint.config.vocab_size
    assert checkpoint.tokenizer.decode(checkpoint.tokenizer.encode("the 春 other")) == "the 春 other"
    assert checkpoint.tokenizer.token_name(checkpoint.tokenizer.start_token_id) == START
    assert checkpoint.tokenizer.token_name(checkpoint.tokenizer.end_token_id) == END
    assert checkpoint.chat_template is not None


def test_chat_template_file_comes_before_the_setting(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ 'from the file' }}", encoding="utf-8")
    change(folder, "tokenizer_config.json", chat_template="{{ 'from the setting' }}")
    template = open_checkpoint(folder).chat_template
    assert template is not None and template.render([]) == "from the file"
    (folder / "chat_template.jinja").unlink()
    change(folder, "tokenizer_config.json", chat_template=[{"name": "default", "template": "{{ messages }}"}])
    assert open_checkpoint(folder).chat_template is not None
    change(folder, "tokenizer_config.json", chat_template=None)
    assert open_checkpoint(folder).chat_template is None


def test_model_with_an_unusable_chat_template_opens_for_raw_prompts(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ nothing is closed", encoding="utf-8")
    template = open_checkpoint(folder).chat_template
    assert template is not None
    with pytest.raises(Refusal, match="raw prompt"):
        template.render([])


def test_a_tokenizer_of_characters(folder: Path) -> None:
    characters = {"type": "characters", "characters": list("春眠不觉晓"), "special": [START, END]}
    (folder / "tokenizer.json").write_text(json.dumps(characters), encoding="utf-8")
    (folder / "tokenizer_config.json").unlink()
    checkpoint = open_checkpoint(folder)
    assert checkpoint.tokenizer.decode(checkpoint.tokenizer.encode("春眠 x")) == "春眠 x"
    characters["characters"] = [chr(0x4E00 + index) for index in range(100)]
    (folder / "tokenizer.json").write_text(json.dumps(characters), encoding="utf-8")
    assert refused(folder).key == "model.more_tokens_than_rows"


# What is not there, or not where it should be.


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", WEIGHTS])
def test_a_missing_file_is_named(file: str, folder: Path) -> None:
    (folder / file).unlink()
    assert file in str(refused(folder))


def test_pickles_are_refused(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    assert refused(folder).key == refused(folder / "pytorch_model.bin").key == "model.pickle_refused"


def test_paths_that_are_no_model(folder: Path, tmp_path: Path) -> None:
    assert refused(folder / WEIGHTS).key == "model.folder_wanted"
    assert refused(tmp_path / "nothing").key == "model.not_found"
    assert refused(folder / "config.json").key == "model.gguf_magic"
    os.mkfifo(tmp_path / "pipe.gguf")
    assert refused(tmp_path / "pipe.gguf").key == "model.file_unreadable"


def _into_subfolder(name: str) -> str:
    return "sub/" + name


@pytest.mark.parametrize(
    "renamed",
    [
        lambda name: "../" + name,
        lambda name: "/etc/" + name,
        lambda name: "..\\" + name,
        _into_subfolder,
        lambda name: "",
        lambda name: "..",
        lambda name: "x.bin",
        lambda name: "a\0" + name,
        lambda name: "n" * 5000 + name,
        lambda name: [name],
        lambda name: 5,
    ],
)
def test_an_index_that_leads_out_of_the_folder_is_refused(renamed: Callable[[str], Any], sharded: Path) -> None:
    weight_map = json.loads((sharded / INDEX).read_text(encoding="utf-8"))["weight_map"]
    (sharded / "sub").mkdir()
    change(sharded, INDEX, weight_map={**weight_map, EMBEDDING: renamed(weight_map[EMBEDDING])})
    assert refused(sharded).key == "model.shard_name"


@pytest.mark.parametrize("weight_map", [{}, [], 5, None])
def test_an_index_without_a_map_is_refused(weight_map: Any, sharded: Path) -> None:
    change(sharded, INDEX, weight_map=weight_map)
    assert refused(sharded).key == "model.field_missing"


def test_an_index_that_does_not_fit_its_shards_is_refused(sharded: Path) -> None:
    weight_map = json.loads((sharded / INDEX).read_text(encoding="utf-8"))["weight_map"]
    change(sharded, INDEX, weight_map={**weight_map, EMBEDDING: weight_map[HEAD]})
    assert EMBEDDING in str(refused(sharded))
    change(sharded, INDEX, weight_map=weight_map)
    shard = sharded / weight_map[HEAD]
    shutil.copy(shard, sharded / "again.safetensors")
    change(sharded, INDEX, weight_map={**weight_map, EMBEDDING: "again.safetensors"})
    assert refused(sharded).key in ("model.tensor_twice", "model.tensor_missing")
    change(sharded, INDEX, weight_map=weight_map)
    shard.unlink()
    assert shard.name in str(refused(sharded))


@pytest.mark.parametrize("file", [WEIGHTS, "config.json", "tokenizer.json", "chat_template.jinja"])
def test_links_out_of_the_folder_are_refused(file: str, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    if (folder / file).exists():
        (folder / file).rename(outside)
    else:
        outside.write_text("secret", encoding="utf-8")
    (folder / file).symlink_to(outside)
    assert refused(folder).key == "model.file_outside"


def test_the_layout_of_hugging_faces_download_cache_works(folder: Path, tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "hub" / "snapshots" / "abc", tmp_path / "hub" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for file in folder.iterdir():
        shutil.copy(file, blobs / file.name)
        (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
    assert open_checkpoint(snapshot).config.name == "abc"


# Files of weights that lie.


def _entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _safetensors(header: Any, n_data: int = 0, announced: int | None = None) -> bytes:
    written = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(written) if announced is None else announced) + written + b"\0" * n_data


LIES = {
    "empty": b"",
    "short": b"\1\2",
    "pickle": b"\x80\x02}q\0.",
    "header beyond the file": _safetensors({}, announced=2**60),
    "header of 100 MB": _safetensors({}, announced=100_000_000),
    "header of nothing": _safetensors(b""),
    "not JSON": _safetensors(b"{nothing}"),
    "deep": _safetensors(b'{"a":' * 200_000),
    "truncated data": _safetensors({"a": _entry("F32", [2], 0, 8)}, 4),
    "data behind the end": _safetensors({"a": _entry("F32", [2], 0, 8)}, 40),
    "overlap": _safetensors({"a": _entry("F32", [2], 0, 8), "b": _entry("F32", [2], 4, 12)}, 12),
    "gap": _safetensors({"a": _entry("F32", [2], 0, 8), "b": _entry("F32", [2], 16, 24)}, 24),
    "shape beyond the bytes": _safetensors({"a": _entry("F32", [2**40], 0, 8)}, 8),
    "shape that overflows": _safetensors({"a": _entry("F32", [2**62, 4], 0, 0)}),
    "offsets backwards": _safetensors({"a": _entry("F32", [2], 8, 0)}, 8),
    "name twice": _safetensors(
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        4,
    ),
    "float8": _safetensors({"a": _entry("F8_E4M3", [2], 0, 2)}, 2),
    "whole numbers": _safetensors({"a": _entry("I64", [1], 0, 8)}, 8),
    "unheard-of dtype": _safetensors({"a": _entry("Q9", [1], 0, 8)}, 8),
    "another model": _safetensors({"a": _entry("F32", [2], 0, 8)}, 8),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_weights_are_refused(lie: str, folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(LIES[lie])
    assert refused(folder).key.startswith("model.")


def test_truncated_weights_are_refused_wherever_they_end(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    for length in [*range(0, len(data), len(data) // 40), len(data) - 1]:
        (folder / WEIGHTS).write_bytes(data[:length])
        refused(folder)


def test_tensors_that_do_not_fit_are_refused_by_name(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)

    def key_with(changed: dict[str, torch.Tensor]) -> str:
        save_file(changed, folder / WEIGHTS)
        return refused(folder).key

    up = "model.layers.0.mlp.up_proj.weight"
    assert key_with({**tensors, up: tensors[up][:-1].clone()}) == "model.tensor_shape"
    assert up in str(refused(folder))
    assert key_with({**tensors, up: tensors[up].T.contiguous()}) == "model.tensor_shape"
    assert key_with({**tensors, "model.layers.0.self_attn.o_proj.bias": torch.zeros(32)}) == "model.tensor_unknown"
    assert key_with({**tensors, up: tensors[up].double()}) == "model.dtype_unsupported"
    assert key_with({name.removeprefix("model."): tensor for name, tensor in tensors.items()}) == "model.tensor_missing"
    save_file({**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}, folder / WEIGHTS)
    open_checkpoint(folder).close()


def test_a_huge_config_is_refused_unread(folder: Path) -> None:
    with (folder / "config.json").open("wb") as file:
        file.truncate(1 << 33)
    assert refused(folder).key == "model.file_too_large"
