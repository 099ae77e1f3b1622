"""`python -m core trace` as others rely on it: the JSON's exact form, and one sentence for whatever is wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.estimate.flops import (
    decode_flops_chapter,
    head_flops,
    layers_flops,
    prefill_flops_chapter,
)
from core.model.load import LanguageModel, load_model
from tests.checkpoints import random_model, save_huggingface
from tests.command import ROOT, Done, called, started

KEYS = ["model", "device", "dtype", "prompt_ids", "output_ids", "text", "stopped", "ttft_s", "tpot_s", "steps"]
STEP_KEYS = [
    "phase",
    "n_tokens",
    "new_positions",
    "reused_positions",
    "flops_exact",
    "flops_chapter",
    "kv_bytes",
    "kv_bytes_formula",
    "seconds",
    "token_id",
    "token_text",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model whose chat template shows that it was used."""
    path = save_huggingface(random_model("llama"), tmp_path_factory.mktemp("command") / "small")
    settings = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    (path / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": template}), encoding="utf-8")
    return path


def trace(model: Path | str, prompt: str, *arguments: str, command: Callable[..., Done] = called) -> dict[str, Any]:
    """The record of a run that must succeed, its form checked."""
    done = command("trace", "--model", str(model), "--prompt", prompt, *arguments, "--device", "cpu", "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    record: dict[str, Any] = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert list(record) == KEYS
    assert all(isinstance(record[name], str) for name in ("model", "device", "dtype", "text", "stopped"))
    for ids in (record["prompt_ids"], record["output_ids"]):
        assert all(type(token_id) is int for token_id in ids)
    for number in (record["ttft_s"], record["tpot_s"]):
        assert number is None or (type(number) is float and 0 < number < math.inf)
    for step in record["steps"]:
        assert list(step) == STEP_KEYS
        assert all(type(step[name]) is int for name in STEP_KEYS[1:8])
        assert type(step["seconds"]) is float and 0 < step["seconds"] < math.inf
        assert step["phase"] in ("prefill", "decode", "recompute") and isinstance(step["token_text"], str)
        assert step["token_id"] is None or type(step["token_id"]) is int
    return record


@pytest.fixture(scope="module")
def cached(folder: Path) -> dict[str, Any]:
    return trace(folder, "the cat", "--max-new", "5", "--dtype", "f32", command=started)


def test_the_record_of_a_run(cached: dict[str, Any], folder: Path) -> None:
    model = load_model(str(folder), device="cpu", dtype="f32")
    assert (cached["model"], cached["device"], cached["dtype"]) == ("small", "cpu", "f32")
    assert model.tokenizer.decode(cached["prompt_ids"]) == "[the cat]"
    assert cached["stopped"] == "length" or cached["stopped"] == "end token 1"
    assert cached["text"] == model.tokenizer.decode(cached["output_ids"], after=cached["prompt_ids"])
    n_prompt, steps = len(cached["prompt_ids"]), cached["steps"]
    assert [step["token_id"] for step in steps] == cached["output_ids"] and len(steps) == 5
    assert [step["phase"] for step in steps] == ["prefill"] + ["decode"] * 4
    assert [step["n_tokens"] for step in steps] == [*range(n_prompt, n_prompt + 5)]
    assert [step["new_positions"] for step in steps] == [n_prompt, 1, 1, 1, 1]
    assert [step["reused_positions"] for step in steps] == [0, *range(n_prompt, n_prompt + 4)]
    for step in steps:
        n, new = step["n_tokens"], step["new_positions"]
        assert step["kv_bytes"] == step["kv_bytes_formula"] == 2 * 1 * 2 * 2 * n * 8 * 4
        assert step["flops_exact"] == layers_flops(model.shape, new, n - new) + head_flops(model.shape)
        chapter = prefill_flops_chapter if step["phase"] == "prefill" else decode_flops_chapter
        assert step["flops_chapter"] == chapter(model.shape, n)
    assert cached["ttft_s"] >= steps[0]["seconds"]
    assert cached["tpot_s"] == pytest.approx(sum(step["seconds"] for step in steps[1:]) / 4)


def test_without_the_cache(cached: dict[str, Any], folder: Path) -> None:
    record = trace(folder, "the cat", "--max-new", "5", "--dtype", "f32", "--no-cache")
    for name in ("prompt_ids", "output_ids", "text", "stopped"):
        assert record[name] == cached[name]
    n_prompt = len(record["prompt_ids"])
    for produced, step in enumerate(record["steps"]):
        assert step["phase"] == "recompute" and step["kv_bytes"] == step["kv_bytes_formula"] == 0
        assert step["new_positions"] == step["n_tokens"] == n_prompt + produced and step["reused_positions"] == 0
        whole = 2 * (32 * 32 * 2 + 2 * 32 * 16 + 3 * 32 * 64) * 2 * step["n_tokens"]
        assert step["flops_exact"] == whole + 4 * 2 * step["n_tokens"] ** 2 * 32 + 2 * 288 * 32


def test_no_new_tokens(folder: Path) -> None:
    record = trace(folder, "the cat", "--max-new", "0")
    assert record["output_ids"] == [] and record["text"] == "" and record["stopped"] == "length"
    assert record["ttft_s"] is None and record["tpot_s"] is None
    (step,) = record["steps"]
    assert step["phase"] == "prefill" and step["token_id"] is None and step["token_text"] == ""
    assert step["n_tokens"] == step["new_positions"] == len(record["prompt_ids"])
    bytes_per_element = {"f16": 2, "bf16": 2, "f32": 4}[record["dtype"]]
    assert step["kv_bytes"] == 2 * 2 * 2 * step["n_tokens"] * 8 * bytes_per_element


def test_one_new_token_has_no_pause_between_tokens(folder: Path) -> None:
    record = trace(folder, "the cat", "--max-new", "1", "--no-cache")
    assert len(record["output_ids"]) == len(record["steps"]) == 1
    assert record["ttft_s"] is not None and record["tpot_s"] is None


def test_raw_leaves_the_template_out_and_an_empty_prompt_is_the_start_token(folder: Path) -> None:
    """B31."""
    assert trace(folder, "", "--max-new", "0", "--raw")["prompt_ids"] == [0]
    model = load_model(str(folder), device="cpu", dtype="f32")
    raw = trace(folder, "你好 🙂", "--max-new", "0", "--raw")
    assert raw["prompt_ids"] == model.tokenizer.encode("你好 🙂")


def test_sampling_options_reach_the_run(folder: Path) -> None:
    options = ["--max-new", "12", "--raw", "--temperature", "1.5", "--top-k", "50", "--top-p", "0.9"]
    first, again, other = (trace(folder, "the", *options, "--seed", seed) for seed in ("3", "3", "4"))
    assert first["output_ids"] == again["output_ids"] != other["output_ids"]


def test_the_real_model_answers(smollm2_f32: LanguageModel) -> None:
    record = trace("smollm2", "What is the capital of France?", "--max-new", "40", "--dtype", "f32")
    assert record["model"] == "smollm2" and record["dtype"] == "f32"
    assert record["prompt_ids"] == smollm2_f32.prompt_ids("What is the capital of France?")
    assert "Paris" in record["text"] and record["stopped"] in ("end token 2", "length")
    step = record["steps"][-1]
    assert step["kv_bytes"] == step["kv_bytes_formula"] == 2 * 30 * 3 * step["n_tokens"] * 64 * 4
    assert step["n_tokens"] == len(record["prompt_ids"]) + len(record["output_ids"]) - 1


def test_for_a_reader(folder: Path) -> None:
    done = called("trace", "--model", str(folder), "--prompt", "the cat", "--max-new", "3")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.count("\ndecode") == 2 and done.stdout.startswith("prefill")
    assert "time per output token" in done.stdout and str(folder.parent) not in done.stdout


# --- what is wrong

GOOD = ["trace", "--model", "tiny", "--prompt", "x", "--max-new", "1"]


def assert_one_line(done: Done) -> str:
    """Exit status 2 and exactly one line on stderr: no traceback, no path, nothing on stdout."""
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.endswith("\n") and len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.stderr and str(ROOT) not in done.stderr and len(done.stderr) < 400
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([*GOOD, "--temperature", "-1"], "--temperature"),
        ([*GOOD, "--temperature", "nan"], "--temperature"),
        ([*GOOD, "--temperature", "inf"], "--temperature"),
        ([*GOOD, "--temperature", ""], "--temperature"),
        ([*GOOD, "--top-p", "1.5"], "--top-p"),
        ([*GOOD, "--top-k", "-3"], "--top-k"),
        ([*GOOD, "--top-k", "2.5"], "--top-k"),
        ([*GOOD, "--seed", "-1"], "--seed"),
        ([*GOOD, "--seed", str(2**64)], "--seed"),
        ([*GOOD, "--max-new", "-1"], "--max-new"),
        ([*GOOD, "--max-new", "9" * 5000], "--max-new"),
        ([*GOOD, "--dtype", "fp8"], "--dtype"),
        ([*GOOD, "--frobnicate"], "--frobnicate"),
        ([*GOOD, "a\nb"], "a"),
        ([*GOOD, "--a\nb\nc"], "--a"),
        (["trace", "--model", "tiny"], "--prompt"),
        (["trace", "--prompt", "x"], "--model"),
        (["fly"], "fly"),
        ([], "command"),
    ],
    ids=lambda value: " ".join(value[-2:])[:24] if isinstance(value, list) else "",
)
def test_bad_arguments_are_one_sentence_without_torch(arguments: list[str], named: str) -> None:
    before = time.perf_counter()
    done = started(*arguments, PYTHONPROFILEIMPORTTIME="")
    seconds = time.perf_counter() - before
    assert named in assert_one_line(done)
    assert seconds < 5  # torch alone takes seconds; what is imported is looked at below


@pytest.mark.parametrize("arguments", [[*GOOD, "--temperature", "nan"], ["--help"], ["trace", "--help"]])
def test_arguments_are_checked_before_torch_is_imported(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "core", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert "core.cli.arguments" in imported and not {"torch", "numpy", "gguf"} & imported


@pytest.mark.parametrize(
    ("model", "named", "command"),
    [
        ("no-such-model", "no-such-model", called),
        ("/nowhere/at/all/some-model", "some-model", started),
        ("x" * 5000, "", called),
        ("two\nlines", "", called),
        (".", "", called),
    ],
    ids=["name", "path", "long", "newline", "here"],
)
def test_a_bad_model_is_one_sentence(model: str, named: str, command: Callable[..., Done]) -> None:
    sentence = assert_one_line(command("trace", "--model", model, "--prompt", "x"))
    assert named in sentence and "/nowhere" not in sentence


def test_a_broken_model_is_one_sentence(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\x03\x00\x00\x00" + b"\xff" * 100)
    sentence = assert_one_line(called("trace", "--model", str(broken), "--prompt", "x"))
    assert "broken.gguf" in sentence and str(tmp_path) not in sentence


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cuda:x"])
def test_a_bad_device_is_one_sentence(device: str) -> None:
    assert device in assert_one_line(called(*GOOD, "--device", device))


def test_a_prompt_that_does_not_fit_is_one_sentence(folder: Path) -> None:
    sentence = assert_one_line(called("trace", "--model", str(folder), "--prompt", "x" * 600, "--raw"))
    assert "600" in sentence and "512" in sentence


def test_a_terminal_that_cannot_show_the_text_gets_what_it_can(folder: Path) -> None:
    """A Windows or C-locale terminal has no Chinese: no reason for a traceback."""
    for extra in ([], ["--json"]):
        arguments = ["trace", "--model", str(folder), "--prompt", "你好", "--max-new", "8", *extra]
        done = started(*arguments, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert "Traceback" not in done.stderr and done.returncode == 0
