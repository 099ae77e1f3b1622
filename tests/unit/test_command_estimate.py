"""`python -m core estimate`: the fixed form of its answer, what it refuses and how, and how long it takes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.estimate import catalogue
from core.estimate.accelerators import accelerators
from core.estimate.dtypes import DTYPES
from tests.command import ROOT, called

LAYOUT: dict[str, Any] = {
    "model": [
        "name",
        "architecture",
        "n_layers",
        "d_model",
        "n_heads",
        "n_kv_heads",
        "head_dim",
        "context_limit",
        "notes",
    ],
    "params": ["total", "embedding", "active"],
    "weight_bytes": None,
    "kv_bytes_per_token": None,
    "kv_bytes": None,
    "decode": ["flops_chapter", "flops_exact", "bytes_read", "intensity", "time_floor_s", "bound"],
    "prefill": ["flops_chapter", "flops_exact", "flops_exact_causal", "bytes", "time_floor_s", "bound"],
    "fit": ["capacity_bytes", "needed_bytes", "fits", "max_context", "max_batch"],
}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


@pytest.fixture
def asked() -> Any:
    """Runs the command in this process: (exit status, output, what was said on stderr)."""

    def ask(*arguments: str) -> tuple[int, str, str]:
        done = called("estimate", *arguments)
        return done.returncode, done.stdout, done.stderr

    return ask


def figures(asked: Any, *arguments: str) -> dict[str, Any]:
    status, out, err = asked(*arguments, "--json")
    assert (status, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("slug", list(catalogue.models()))
def test_the_layout_is_the_same_for_every_model(asked: Any, slug: str) -> None:
    found = figures(asked, "--model", slug, "--accelerator", "h100-sxm")
    assert list(found) == list(LAYOUT)
    for name, keys in LAYOUT.items():
        assert keys is None or list(found[name]) == keys
    assert list(found["decode"]["bytes_read"]) == ["weights", "kv"]
    assert list(found["prefill"]["bytes"]) == ["weights_read", "kv_written"]
    assert {found["decode"]["bound"], found["prefill"]["bound"]} <= {"memory", "compute"}
    assert all(isinstance(note, str) and note for note in found["model"]["notes"])
    for flops in (found["decode"]["flops_exact"], found["prefill"]["flops_exact"], found["weight_bytes"]):
        assert type(flops) is int and flops > 0


def test_llama_8b_as_published(asked: Any) -> None:
    found = figures(asked, "--model", "llama-3.1-8b", "--context", "8192", "--accelerator", "h100-sxm")
    assert found["params"] == {"total": 8_030_261_248, "embedding": 525_336_576, "active": 7_504_924_672}
    assert (found["weight_bytes"], found["kv_bytes_per_token"]) == (16_060_522_496, 131_072)
    assert found["kv_bytes"] == found["decode"]["bytes_read"]["kv"] == 2**30
    decode, read = found["decode"], found["decode"]["bytes_read"]
    assert (decode["bound"], found["prefill"]["bound"]) == ("memory", "compute")
    assert decode["flops_exact"] == 19_304_284_160
    assert decode["flops_chapter"] == 2 * 8_030_261_248 + 4 * 32 * 8192 * 4096
    assert read["weights"] == 2 * (8_030_261_248 - 525_336_576 - 65 * 4096)  # neither the look-up nor the norms
    assert decode["intensity"] == decode["flops_exact"] / (read["weights"] + read["kv"])
    assert decode["time_floor_s"] == pytest.approx((read["weights"] + read["kv"]) / 3.35e12)
    assert found["prefill"]["time_floor_s"] == pytest.approx(found["prefill"]["flops_exact_causal"] / 989e12)
    fit = found["fit"]
    assert fit["capacity_bytes"] == 80 * 2**30 * 9 // 10
    assert fit["needed_bytes"] == 16_060_522_496 + 2**30 and fit["fits"] is True
    assert fit["max_context"] == (fit["capacity_bytes"] - 16_060_522_496) // 131_072
    assert fit["max_batch"] == (fit["capacity_bytes"] - 16_060_522_496) // 2**30


def test_batch_is_in_every_figure_but_the_one_tokens(asked: Any) -> None:
    one = figures(asked, "--model", "qwen3-8b")
    eight = figures(asked, "--model", "qwen3-8b", "--batch", "8")
    assert eight["kv_bytes_per_token"] == one["kv_bytes_per_token"]
    assert eight["decode"]["bytes_read"]["weights"] == one["decode"]["bytes_read"]["weights"]
    for name in ("flops_chapter", "flops_exact"):
        assert eight["decode"][name] == 8 * one["decode"][name] and eight["prefill"][name] == 8 * one["prefill"][name]
    assert eight["kv_bytes"] == eight["prefill"]["bytes"]["kv_written"] == 8 * one["kv_bytes"]


def test_without_a_card_nothing_is_said_about_time_and_room(asked: Any) -> None:
    found = figures(asked, "--model", "smollm2")
    assert found["fit"] is None
    for phase in ("decode", "prefill"):
        assert found[phase]["time_floor_s"] is found[phase]["bound"] is None
    no_peak = figures(asked, "--model", "smollm2", "--accelerator", "rtx-4080")
    assert no_peak["decode"]["time_floor_s"] is None and no_peak["fit"]["fits"] is True
    assert any("RTX 4080" in note for note in no_peak["model"]["notes"])


def test_what_depends_on_n_is_null_and_says_so(asked: Any) -> None:
    window = figures(asked, "--model", "gpt-oss-20b")
    assert window["kv_bytes_per_token"] is None and len(window["model"]["notes"]) >= 2
    latent = figures(asked, "--model", "deepseek-v3")
    assert latent["model"]["n_kv_heads"] is latent["model"]["head_dim"] is None
    assert latent["model"]["n_heads"] == 128 and latent["kv_bytes_per_token"] == 70_272
    assert any("512" in note and "64" in note for note in latent["model"]["notes"])


def test_dtypes_of_parts_of_keys_and_of_values(asked: Any) -> None:
    found = figures(asked, "--model", "gpt-oss-20b", "--weight-dtype", "bf16,experts=mxfp4", "--kv-dtype", "q8_0:f16")
    experts = 24 * 32 * 3 * 2880 * 2880
    assert found["weight_bytes"] == 2 * (found["params"]["total"] - experts) + experts * 17 // 32
    rows = 12 * 4096 + 12 * 128
    assert found["kv_bytes"] == rows * (8 * 64 * 34 // 32 + 8 * 64 * 2)
    for dtype in DTYPES:
        assert figures(asked, "--model", "smollm2", "--weight-dtype", dtype, "--kv-dtype", dtype)["weight_bytes"] > 0


def test_tensor_parallel_is_per_rank(asked: Any) -> None:
    arguments = ("--model", "llama-3.1-8b", "--context", "8192", "--accelerator", "a100-sxm-80gb")
    needed = [figures(asked, *arguments, "--tp", str(ranks))["fit"]["needed_bytes"] for ranks in (1, 2, 8, 16)]
    weights = 16_060_522_496
    assert needed == [weights + 2**30, weights // 2 + 2**29, weights // 8 + 2**27, weights // 16 + 2**27]


def test_a_config_of_ones_own(asked: Any, tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")
    found = figures(asked, "--config", str(file))
    assert found["model"]["name"] == "my-model" and found["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 2
    assert any("4,096" in note or "4096" in note for note in found["model"]["notes"])  # beyond the limit of 512


def test_the_text_shows_each_formula_with_its_values(asked: Any) -> None:
    status, out, _ = asked("--model", "llama-3.1-8b", "--accelerator", "h100-sxm", "--tp", "2")
    assert status == 0 and "it fits" in out and "on 2 × H100 SXM" in out
    assert "M_KV = 2·B·L·n_kv·n·d_h·b_kv" in out and "= 2·1·32·8·4,096·128·2" in out and "536,870,912 B" in out
    for slug in catalogue.models():
        status, out, _ = asked("--model", slug, "--accelerator", "h100-sxm", "--kv-dtype", "q8_0:f16", "--batch", "3")
        assert status == 0 and "\\" not in out and "{" not in out and "None" not in out, slug
    _, out, _ = asked("--model", "llama-3.1-8b", "--accelerator", "h100-sxm", "--tp", "3", "--batch", "300")
    assert "memory needed, each rank" in out and "M_need = ⌈M_w/N⌉ + M_KV[on a rank]" in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model", "no-such"], "no-such"),
        (["--model", "smollm2", "--weight-dtype", "bf17"], "bf17"),
        (["--model", "smollm2", "--weight-dtype", "bf16,nose=f32"], "nose"),
        (["--model", "smollm2", "--weight-dtype", "bf16,head=f32,head=f32"], "head"),
        (["--model", "smollm2", "--kv-dtype", "q8_0:"], "kv_dtype"),
        (["--model", "smollm2", "--kv-dtype", "a:b:c"], "kv_dtype"),
        (["--model", "smollm2", "--accelerator", ""], "accelerator"),
        (["--model", "smollm2", "--accelerator", "h100"], "h100"),
        (["--model", "smollm2", "--batch", "0"], "--batch"),
        (["--model", "smollm2", "--batch", "1e3"], "--batch"),
        (["--model", "smollm2", "--context", "-1"], "--context"),
        (["--model", "smollm2", "--context", "9" * 30], "--context"),
        (["--model", "smollm2", "--tp", "0"], "--tp"),
        (["--model", "smollm2", "--memory-fraction", "nan"], "--memory-fraction"),
        (["--model", "smollm2", "--memory-fraction", "1.1"], "--memory-fraction"),
        (["--model", "smollm2", "--config", "x"], "--config"),
        ([], "--model"),
        (["--config", "/nowhere/at/all/config.json"], "config.json"),
        (["--config", "\0"], "cannot be read"),
        (["--config", ""], "config.json"),
        (["--config", "/dev/zero"], "zero"),
        (["--config", "/"], "config.json"),
    ],
)
def test_a_refusal_is_one_sentence(asked: Any, arguments: list[str], named: str) -> None:
    status, out, err = asked(*arguments, "--json")
    assert status == 2 and out == ""
    assert err.count("\n") == 1 and named in err and "Traceback" not in err and "/nowhere" not in err


@pytest.mark.parametrize(
    "change", [{"model_type": "t5"}, {"hidden_size": -4}, {"num_key_value_heads": 3}, {"vocab_size": None}]
)
def test_a_config_that_is_not_understood_is_refused_by_its_field(asked: Any, tmp_path: Path, change: Any) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | change), encoding="utf-8")
    status, out, err = asked("--config", str(file))
    (field, value), *_ = change.items()
    assert (status, out) == (2, "") and err.count("\n") == 1
    assert (field in err or str(value) in err) and str(tmp_path) not in err


def test_every_card_and_dtype_gives_finite_figures(asked: Any) -> None:
    for slug in accelerators():
        for dtype in ("bf16", "fp8", "q4_0"):
            found = figures(
                asked, "--model", "deepseek-v3", "--accelerator", slug, "--weight-dtype", dtype, "--tp", "64"
            )
            floor = found["decode"]["time_floor_s"]
            assert floor is None or 0 < floor < 10


def test_it_answers_in_half_a_second_and_without_torch() -> None:
    """In seconds of the processor, of the best of five starts: a busy machine is not the command's doing."""
    command = [sys.executable, "-X", "importtime", "-m", "core", "estimate", "--model", "qwen3-8b", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=os.environ, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "core.estimate.estimate" in imported
    assert not {name.partition(".")[0] for name in imported} & {"torch", "numpy", "streamlit", "plotly", "transformers"}
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [part for part in command if "import" not in part and part != "-X"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert 0 < min(seconds) < 0.5
