"""The live routes of the estimate pages: the command's figures over HTTP, what moves in a chart, and refusals."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.estimate.accelerators import accelerators
from core.estimate.catalogue import models
from core.estimate.catalogue import shape as shape_named
from core.estimate.query import MOST_BATCH, MOST_CONTEXT, SHAPE, shape_numbers
from core.words import LANGUAGES
from pages.shared.bundle import bundle
from pages.shared.charts import CHARTS
from tests.command import called, started
from tests.pages.asking import client, got

BURST, PATIENCE_S, MOST_BYTES, MOST_POINTS = 800, 60, 8192, 64
FLAGS: tuple[dict[str, object], ...] = (
    {},
    {"batch": 8, "context": 1},
    {"batch": MOST_BATCH, "context": MOST_CONTEXT, "weight_dtype": "f32", "kv_dtype": "f32"},
    {"weight_dtype": "int4", "kv_dtype": "q8_0:f16", "accelerator": "h100-sxm", "tp": 4, "memory_fraction": 0.8},
    {"weight_dtype": "bf16,experts=mxfp4,table=q8_0", "accelerator": "rtx-4090", "batch": 3, "context": 100_000},
    {"accelerator": "none"},
)
# A number of a shape → what a Hugging Face config calls it.
CONFIG_FIELDS = {
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "vocab_size": "vocab_size",
}
OWN = dict(zip(SHAPE, (7, 12, 4, 80, 1000, 3000, 50_000), strict=True))
OF_OWN = "&".join(f"{name}={value}" for name, value in OWN.items())
ABSURD = (
    "", "model=", "model=nothing", "model=../../etc/passwd", "model=qwen3-8b%00", "model=%00", "model=%ff%fe",
    "model=qwen3-8b&colour=red", "model=qwen3-8b&%00=1", "model=qwen3-8b&accelerator=abacus",
    *(f"model=qwen3-8b&batch={word}" for word in (
        "0", "-1", "", "1.5", "1e3", "many", "NaN", "inf", "1048577", "9" * 400, "1%00", "%EF%BC%91%EF%BC%92", "%D9%A3",
        "%C2%B2", "+1", "1_000", "0x10", "%3Cb%3E1%3C/b%3E")),
    "model=qwen3-8b&context=0", f"model=qwen3-8b&context={MOST_CONTEXT + 1}", "model=qwen3-8b&tp=0",
    *(f"model=qwen3-8b&memory_fraction={word}" for word in ("0", "-0.5", "2", "NaN", "inf", "half", "", "1e999",
        "%EF%BC%90.%EF%BC%95", "%D9%A0.%D9%A5")),
    "model=qwen3-8b&weight_dtype=f64", "model=qwen3-8b&weight_dtype=bf16,experts", "model=qwen3-8b&kv_dtype=bf16:",
    "model=qwen3-8b&kv_dtype=bf16:bf16:bf16", "model=qwen3-8b&n_kv_heads=5", "model=qwen3-8b&n_heads=33",
    f"model=qwen3-8b&n_layers={SHAPE['n_layers'] + 1}", "model=qwen3-8b&head_dim=0",
    *(f"model={slug}&n_layers=3" for slug in ("gemma-2-9b", "mistral-7b-v0.1", "gpt-oss-20b", "deepseek-v3")),
    "n_layers=3", OF_OWN.replace("n_kv_heads=4", "n_kv_heads=5"), OF_OWN.replace("&vocab_size=50000", ""),
    "model=qwen3-8b&batch=1&batch=2", "model=qwen3-8b&model=gpt2", f"model={'x' * 10_000}",
    "model=qwen3-8b&" + "batch=1&" * 1250, "model=qwen3-8b&lang=" + "e" * 10_000,
    "model=qwen3-30b-a3b&d_ff=5",  # its experts have their own width, which this would not change
)  # fmt: skip


@pytest.fixture
def command() -> Callable[..., Any]:
    """What `python -m core estimate … --json` prints."""

    def printed(model: tuple[str, str], flags: dict[str, object]) -> Any:
        words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        done = called("estimate", *model, *words, "--json")
        assert done.returncode == 0
        return json.loads(done.stdout)

    return printed


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: ",".join(flags) or "defaults")
def test_the_route_answers_what_the_command_prints(command: Any, flags: dict[str, object]) -> None:
    for slug in models():
        assert got("/api/estimate", model=slug, **flags) == command(("--model", slug), flags), slug


def test_every_accelerator_and_a_command_of_its_own_process(command: Any) -> None:
    for slug in accelerators():
        flags: dict[str, object] = {"accelerator": slug, "weight_dtype": "fp8"}
        assert got("/api/estimate", model="qwen3-8b", **flags) == command(("--model", "qwen3-8b"), flags)
    done = started("estimate", "--model", "deepseek-v3", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout) == got("/api/estimate", model="deepseek-v3")


def test_a_shape_of_ones_own_is_the_config_with_these_numbers(command: Any, tmp_path: Path) -> None:
    flags: dict[str, object] = {"batch": 5, "context": 777, "accelerator": "l4", "kv_dtype": "q4_0"}
    config = {CONFIG_FIELDS[name]: value for name, value in OWN.items()}
    file = written(tmp_path, config | {"model_type": "llama", "tie_word_embeddings": False})
    assert but_for_the_name(got("/api/estimate", **OWN, **flags)) == but_for_the_name(command(file, flags))


@pytest.mark.parametrize("slug", ["chapter-8b", "qwen3-8b", "qwen2.5-7b", "smollm2", "llama-3.1-8b", "olmo-2-7b"])
def test_a_changed_shape_is_the_models_config_changed(command: Any, slug: str, tmp_path: Path) -> None:
    own = {name: value for name, value in shape_numbers(shape_named(slug)).items() if name in CONFIG_FIELDS}
    everything = {"n_layers": 5, "n_heads": 24, "n_kv_heads": 6, "head_dim": 48}
    numbers = {"d_model": 640, "d_ff": 1000, "vocab_size": 777}
    for changed in ({"n_layers": own["n_layers"] + 1}, {"n_kv_heads": own["n_heads"]}, everything, numbers):
        new = own | changed
        config = dict(models()[slug].config) | {CONFIG_FIELDS[name]: value for name, value in new.items()}
        asked_for = got("/api/estimate", model=slug, **changed)
        assert but_for_the_name(asked_for) == but_for_the_name(command(written(tmp_path, config), {})), changed


def test_a_models_own_numbers_change_nothing() -> None:
    for slug in models():
        own = shape_numbers(shape_named(slug))
        assert got("/api/estimate", model=slug, **own) == got("/api/estimate", model=slug), slug


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("query", ABSURD, ids=lambda query: query[:60] or "nothing")
def test_what_is_absurd_is_refused_in_one_sentence(query: str, language: str) -> None:
    for path in ("estimate", "curves/kv_kinds", "curves/formulas"):
        answer = client().get(
            f"/api/{path}?lang={language}&{query}" if "lang=" not in query else f"/api/{path}?{query}"
        )
        assert answer.status_code == 422, answer.text[:300]
        assert answer.headers["content-type"] == "application/json" and answer.headers["cache-control"] == "no-store"
        assert list(answer.json()) == ["error"]
        said = answer.json()["error"]
        assert 10 < len(said) < 1000 and "\n" not in said and "Traceback" not in said
        is_chinese = bool(re.search("[\u4e00-\u9fff]", said))
        assert is_chinese == (language == "zh" and "lang=" not in query), said


def test_an_unknown_language_is_spoken_to_in_english() -> None:
    said = client().get("/api/estimate?model=nothing&lang=tlh").json()["error"]
    assert said == client().get("/api/estimate?model=nothing&lang=en").json()["error"]
    assert said == client().get("/api/estimate?model=nothing").json()["error"]


def test_routes_lie_under_the_servers_base_path() -> None:
    lab = client("/lab/")
    for path in ("estimate", "curves/kv_kinds", "curves/formulas"):
        assert lab.get(f"/lab/api/{path}?model=gpt2").json() == got(f"/api/{path}", model="gpt2")
        assert lab.get(f"/api/{path}?model=gpt2").status_code == 404


def test_a_burst_of_questions_is_answered_and_so_are_the_others() -> None:
    began = time.process_time()  # of this process alone: the others on the machine are not its doing
    paths = ["estimate", *(f"curves/{name}" for name in CHARTS), "curves/formulas"]
    with client():  # one loop for all of them
        for number in range(BURST):
            shape = {"n_layers": number % 90 + 1} if number % 3 else {}
            got(f"/api/{paths[number % len(paths)]}", model="qwen3-8b", context=number + 1, **shape)
            if number % 200 == 0:
                assert client().get("/api/ready").status_code in (200, 503)
                assert client().get(f"/{bundle().path}/costs/main.js").status_code == 200
                assert client().get("/api/estimate?batch=0").status_code == 422
    assert time.process_time() - began < PATIENCE_S


def written(folder: Path, config: dict[str, Any]) -> tuple[str, str]:
    (folder / "config.json").write_text(json.dumps(config))
    return "--config", str(folder / "config.json")


def but_for_the_name(figures: dict[str, Any]) -> dict[str, Any]:
    """Without what a shape in numbers does not say."""
    unsaid = {"name", "context_limit", "notes"}
    return figures | {"model": {name: value for name, value in figures["model"].items() if name not in unsaid}}
