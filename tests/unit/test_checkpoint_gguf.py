"""GGUF files: tensors come back as transformers has them, refusals name what is wrong, and no count is believed."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from core.model.config import RopeConfig
from core.model.files.checkpoint import Checkpoint, open_checkpoint
from core.model.parameters import parameter_shapes
from core.refusal import Refusal
from tests.checkpoints import permuted, random_model, save_gguf, vocabulary

MORE = [f"more{index}" for index in range(300 - len(vocabulary()))]
BYTE_LIMIT, SECONDS_LIMIT = 16 << 20, 10.0


def refused(path: Path) -> Refusal:
    """The refusal on opening `path`, which comes soon, allocates little and tells nobody where the file lies."""
    tracemalloc.start()
    started = time.process_time()  # what others do on the machine is not its business
    try:
        with pytest.raises(Refusal) as caught:
            open_checkpoint(path).close()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.process_time() - started < SECONDS_LIMIT and peak < BYTE_LIMIT
    for language in ("en", "zh"):
        sentence = caught.value.sentence(language)
        assert str(path.parent) not in sentence and "\n" not in sentence
    return caught.value


def all_equal(checkpoint: Checkpoint, state: dict[str, torch.Tensor]) -> bool:
    shapes = parameter_shapes(checkpoint.config)
    for name, shape in shapes.items():
        tensor = checkpoint.tensor(name)
        assert tensor.shape == shape and tensor.is_contiguous() and tensor.dtype == torch.float32
        if not torch.equal(tensor, state[name]):
            return False
    return True


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_tensors_equal_transformers(architecture: str, n_kv_heads: int, tied: bool, tmp_path: Path) -> None:
    """known-faults B14: llama's query and key rows are put back, the qwen families' are left alone."""
    model = random_model(architecture, num_key_value_heads=n_kv_heads, tie_word_embeddings=tied)
    checkpoint = open_checkpoint(save_gguf(model, tmp_path / "m.gguf"))
    config = checkpoint.config
    assert (config.name, config.architecture, config.n_kv_heads) == ("m", architecture, n_kv_heads)
    assert config.tied_head is tied and config.vocab_size == 288 and config.norm_eps == model.config.rms_norm_eps
    assert config.head_dim == (16 if architecture == "qwen3" else 8)
    assert set(parameter_shapes(config)) == {name for name, _ in model.named_parameters()}
    assert all_equal(checkpoint, model.state_dict())
    checkpoint.close()


def test_llamas_query_and_key_biases_are_put_back_too(tmp_path: Path) -> None:
    model = random_model("llama", num_hidden_layers=1)
    numbers = {part: torch.randn(n).numpy() for part, n in (("q", 32), ("k", 16), ("v", 16))}
    stored = {"q": permuted(numbers["q"], 4), "k": permuted(numbers["k"], 2), "v": numbers["v"]}
    extra = {f"blk.0.attn_{part}.bias": array for part, array in stored.items()}
    checkpoint = open_checkpoint(save_gguf(model, tmp_path / "m.gguf", extra_tensors=extra))
    assert checkpoint.config.qkv_bias
    for part, array in numbers.items():
        assert np.array_equal(checkpoint.tensor(f"model.layers.0.self_attn.{part}_proj.bias").numpy(), array)


QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_tensors_are_what_the_gguf_package_makes_of_them(name: str, tmp_path: Path) -> None:
    kind = GGMLQuantizationType[name]
    path = _with_one_tensor_as(kind, tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    stored = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == "blk.0.ffn_up.weight")
    tensor = checkpoint.tensor("model.layers.0.mlp.up_proj.weight")
    assert tensor.dtype == torch.float32 and tensor.shape == (512, 256)
    assert np.array_equal(tensor.numpy(), dequantize(stored.data, kind))


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    model = random_model("llama")
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 5] = float("nan")
    for kind in ("F32", "F16", "BF16"):
        checkpoint = open_checkpoint(save_gguf(model, tmp_path / "m.gguf", kind=GGMLQuantizationType[kind]))
        with pytest.raises(Refusal, match=r"blk\.1\.ffn_up\.weight"):
            checkpoint.tensor("model.layers.1.mlp.up_proj.weight")


def _with_one_tensor_as(kind: GGMLQuantizationType, path: Path) -> Path:
    """A model whose one matrix is random blocks of `kind`; bytes below 124 make no half-precision scale infinite."""
    block, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(1).integers(0, 124, (512, 256 // block * block_bytes), dtype=np.uint8)
    model = random_model("qwen3", num_hidden_layers=1, hidden_size=256, intermediate_size=512)
    return save_gguf(
        model, path, leave_out=("blk.0.ffn_up.weight",), raw_tensors={"blk.0.ffn_up.weight": (blocks, kind)}
    )


@pytest.mark.parametrize(("kind", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_stored_halves_come_back_as_they_are(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = random_model("llama")
    checkpoint = open_checkpoint(save_gguf(model, tmp_path / "m.gguf", kind=GGMLQuantizationType[kind]))
    name = "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(checkpoint.tensor(name), model.state_dict()[name].to(dtype))
    assert checkpoint.tensor("model.norm.weight").dtype == torch.float32


def test_tensors_outlive_the_file(tmp_path: Path) -> None:
    model = random_model("llama")
    path = save_gguf(model, tmp_path / "m.gguf")
    checkpoint = open_checkpoint(path)
    table = checkpoint.tensor("model.embed_tokens.weight")
    path.write_bytes(b"")  # the same file, emptied under the reader
    with pytest.raises(Refusal, match=r"m\.gguf"):
        checkpoint.tensor("model.norm.weight")
    checkpoint.close()
    assert torch.equal(table, model.state_dict()["model.embed_tokens.weight"])


def test_all_end_tokens_of_the_file_count(tmp_path: Path) -> None:
    ends = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 9}
    checkpoint = open_checkpoint(save_gguf(random_model("llama"), tmp_path / "m.gguf", settings=ends))
    assert checkpoint.end_token_ids == {1, 5, 9} and checkpoint.chat_template is None
    assert checkpoint.tokenizer.vocab_size == 261 and checkpoint.tokenizer.token_bytes(260) == b" the"


def test_chat_template_of_the_file(tmp_path: Path) -> None:
    settings = {"tokenizer.chat_template": "{{ bos_token }}{{ messages[0]['content'] }}"}
    checkpoint = open_checkpoint(save_gguf(random_model("llama"), tmp_path / "m.gguf", settings=settings))
    assert checkpoint.chat_template is not None


@pytest.mark.parametrize(
    ("settings", "rope"),
    [
        ({}, RopeConfig()),
        ({"scaling.type": "none", "scaling.factor": 4.0}, RopeConfig()),
        ({"scaling.type": "linear", "scaling.factor": 4.0}, RopeConfig(scaling="linear", factor=4.0)),
        ({"scaling.factor": 4.0}, RopeConfig(scaling="linear", factor=4.0)),
        ({"scale_linear": 2.0}, RopeConfig(scaling="linear", factor=2.0)),
        (
            {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 128},
            RopeConfig(scaling="yarn", factor=4.0, original_context=128),
        ),
    ],
)
def test_rope_scaling_is_honoured(settings: dict[str, Any], rope: RopeConfig, tmp_path: Path) -> None:
    settings = {f"llama.rope.{key}": value for key, value in settings.items()}
    assert open_checkpoint(save_gguf(random_model("llama"), tmp_path / "m.gguf", settings=settings)).config.rope == rope


def test_rope_divisors_are_read(tmp_path: Path) -> None:
    def save(divisors: np.ndarray, **settings: Any) -> Path:
        extra = {"rope_freqs.weight": divisors}
        return save_gguf(random_model("llama"), tmp_path / "m.gguf", extra_tensors=extra, **settings)

    divisors = np.array([1, 2, 4, 8], dtype=np.float32)
    rope = open_checkpoint(save(divisors)).config.rope
    assert rope == RopeConfig(scaling="divisors", divisors=(1.0, 2.0, 4.0, 8.0))
    assert "rope_freqs" in str(refused(save(divisors[:3])))
    assert "rope_freqs" in str(refused(save(np.array([1, 2, 0, 8], dtype=np.float32))))
    assert "rope_freqs" in str(refused(save(divisors, settings={"llama.rope.scaling.factor": 2.0})))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"general.architecture": "mistral3"}, "mistral3"),
        ({"llama.expert_count": 8}, "expert_count"),
        ({"llama.attention.sliding_window": 64}, "sliding_window"),
        ({"llama.attention.causal": False}, "causal"),
        ({"llama.logit_scale": 2.0}, "logit_scale"),
        ({"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}, "longrope"),
        ({"llama.rope.scaling.attn_factor": 0.5}, "attn_factor"),
        ({"llama.rope.scaling.factor": 0.5}, "scaling.factor"),
        ({"llama.rope.dimension_count": 4}, "dimension_count"),
        ({"llama.rope.freq_base": float("nan")}, "freq_base"),
        ({"llama.attention.value_length": 4}, "value_length"),
        ({"llama.attention.head_count_kv": [2, 1]}, "head_count_kv"),
        ({"llama.attention.head_count": None}, "head_count"),
        ({"llama.block_count": 3}, "blk.2.attn_norm.weight"),
        ({"llama.block_count": 1}, "blk.1."),
        ({"llama.block_count": 4_000_000_000}, "block_count"),
        ({"llama.embedding_length": 64}, "token_embd.weight"),
        ({"split.count": 2}, "split"),
        ({"tokenizer.ggml.eot_token_id": "two"}, "two"),
        ({"tokenizer.ggml.tokens": [*vocabulary(), *MORE], "tokenizer.ggml.token_type": [1] * 300}, "300"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(settings: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = save_gguf(random_model("llama"), tmp_path / "m.gguf", settings=settings)
    assert named in str(refused(path))


def test_heads_listed_per_layer_are_fine_while_they_agree(tmp_path: Path) -> None:
    settings = {"llama.attention.head_count_kv": [2, 2], "llama.expert_count": 0}
    path = save_gguf(random_model("llama"), tmp_path / "m.gguf", settings=settings)
    assert open_checkpoint(path).config.n_kv_heads == 2


def test_missing_and_unknown_tensors_are_refused_by_name(tmp_path: Path) -> None:
    model = random_model("qwen2")
    path = save_gguf(model, tmp_path / "m.gguf", leave_out=("blk.1.attn_k.bias",))
    assert "blk.1.attn_k.bias" in str(refused(path))
    path = save_gguf(model, path, extra_tensors={"blk.0.attn_output.bias": np.zeros(32, dtype=np.float32)})
    assert "blk.0.attn_output.bias" in str(refused(path))
    assert "token_embd" in str(refused(save_gguf(model, path, leave_out=("token_embd.weight",))))


@pytest.mark.parametrize("name", ["IQ4_NL", "MXFP4", "IQ2_XXS", "TQ1_0", "F64", "I32"])
def test_other_storage_types_are_refused_by_name(name: str, tmp_path: Path) -> None:
    assert name in str(refused(_with_one_tensor_as(GGMLQuantizationType[name], tmp_path / "m.gguf")))


# Files that lie. Numbers in GGUF are little-endian; strings are a length of 64 bits and their bytes.


def _string(text: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text


def _header(n_tensors: int, n_settings: int, body: bytes = b"", magic: bytes = b"GGUF", version: int = 3) -> bytes:
    return magic + struct.pack("<IQQ", version, n_tensors, n_settings) + body


def _array(kind: int, n_items: int, items: bytes = b"") -> bytes:
    return _header(0, 1, _string(b"a") + struct.pack("<IIQ", 9, kind, n_items) + items)


ENDLESS = b"\0" * (4 << 20)
LIES: dict[str, bytes] = {
    "empty": b"",
    "magic": _header(0, 0, magic=b"GGML"),
    "zip": b"PK\3\4" + b"\0" * 100,
    "pickle": b"\x80\x02}q\0.",
    "version 1": _header(0, 0, version=1),
    "big-endian": _header(0, 0, version=3 << 24),
    "no settings": _header(0, 0),
    "settings without end": _header(0, 2**63),
    "tensors without end": _header(2**63, 0, ENDLESS),
    "many settings": _header(0, 1 << 16, ENDLESS),
    "many tensors": _header(1 << 16, 0, ENDLESS),
    "long key": _header(0, 1, _string(b"a", 2**62)),
    "long key in a long file": _header(0, 1, _string(b"a", 3 << 20) + ENDLESS),
    "long string": _header(0, 1, _string(b"a") + struct.pack("<I", 8) + _string(b"", 2**40)),
    "not UTF-8": _header(0, 1, _string(b"a") + struct.pack("<I", 8) + _string(b"\xff\xfe")),
    "unknown kind": _header(0, 1, _string(b"a") + struct.pack("<I", 99)),
    "long array": _array(0, 2**60),
    "long array of strings": _array(8, 2**60),
    "array of empty strings": _array(8, 2**20, ENDLESS),
    "array of arrays": _array(9, 1, struct.pack("<IQ", 9, 1) * 1000),
    "key twice": _header(0, 2, (_string(b"a") + struct.pack("<II", 4, 1)) * 2),
    "many dimensions": _header(1, 0, _string(b"t") + struct.pack("<I", 2**31) + ENDLESS),
    "no dimensions": _header(1, 0, _string(b"t") + struct.pack("<IIQ", 0, 0, 0)),
    "size of 0": _header(1, 0, _string(b"t") + struct.pack("<IQIQ", 1, 0, 0, 0)),
    "sizes that overflow": _header(1, 0, _string(b"t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0)),
    "unknown type": _header(1, 0, _string(b"t") + struct.pack("<IQIQ", 1, 4, 4242, 0)),
    "broken block": _header(1, 0, _string(b"t") + struct.pack("<IQIQ", 1, 33, 8, 0)),
}


@pytest.mark.parametrize("lie", LIES)
def test_lying_headers_are_refused_soon_and_cheaply(lie: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(LIES[lie])
    assert refused(path).key.startswith("model.")


@pytest.fixture(scope="module")
def good_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    model = random_model("llama", num_hidden_layers=1)
    return save_gguf(model, tmp_path_factory.mktemp("good") / "m.gguf").read_bytes()


def _offset_field(data: bytes, tensor: bytes, n_dimensions: int) -> int:
    return data.index(tensor) + len(tensor) + 4 + 8 * n_dimensions + 4


@pytest.mark.parametrize(
    "change",
    [
        lambda offset: offset + 1,  # not aligned
        lambda offset: offset - 32,  # over the tensor before
        lambda offset: 2**63,  # beyond the file
        lambda offset: offset + 32,  # over the tensor behind
    ],
)
def test_lying_offsets_are_refused(change: Callable[[int], int], good_file: bytes, tmp_path: Path) -> None:
    data = bytearray(good_file)
    at = _offset_field(good_file, b"blk.0.attn_v.weight", 2)
    struct.pack_into("<Q", data, at, change(struct.unpack_from("<Q", data, at)[0]))
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    assert refused(path).key in ("model.gguf_lies", "model.file_truncated")


def test_truncated_files_are_refused_wherever_they_end(good_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    for length in [*range(0, len(good_file), len(good_file) // 60), len(good_file) - 1]:
        path.write_bytes(good_file[:length])
        refused(path)


def test_damaged_headers_are_refused_or_harmless(good_file: bytes, tmp_path: Path) -> None:
    """Any byte of the header may be wrong: the outcome is a refusal or an open model, nothing else."""
    path, chance, n_refused = tmp_path / "m.gguf", random.Random(5), 0
    end_of_header = _offset_field(good_file, b"output_norm.weight", 1) + 8
    for _ in range(300):
        data = bytearray(good_file)
        for _ in range(chance.choice([1, 1, 8])):
            data[chance.randrange(end_of_header)] = chance.randrange(256)
        path.write_bytes(data)
        try:
            checkpoint = open_checkpoint(path)
        except Refusal as refusal:
            assert refusal.sentence("en") and refusal.sentence("zh")
            n_refused += 1
        else:
            checkpoint.tensor("model.norm.weight")
            checkpoint.close()
    assert 50 < n_refused < 300


def test_smollm2_opens_as_it_is_known(smollm2_gguf: Path) -> None:
    checkpoint = open_checkpoint(smollm2_gguf)
    config = checkpoint.config
    shapes = parameter_shapes(config)
    assert (config.n_layers, config.d_model, config.n_heads, config.n_kv_heads, config.head_dim) == (30, 576, 9, 3, 64)
    assert (config.vocab_size, config.tied_head, config.norm_eps, config.context_limit) == (49_152, True, 1e-5, 8192)
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 134_515_008
    assert checkpoint.end_token_ids == {2} and checkpoint.chat_template is not None
    stored = next(t for t in gguf.GGUFReader(smollm2_gguf).tensors if t.name == "blk.7.attn_k.weight")
    expected = permuted(checkpoint.tensor("model.layers.7.self_attn.k_proj.weight").numpy(), 3)
    assert np.array_equal(expected, dequantize(stored.data, stored.tensor_type))
    checkpoint.close()
