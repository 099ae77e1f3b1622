"""Products counted by torch on the meta device equal the exact estimate: every kind of layer, and real sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.estimate import catalogue
from core.estimate.flops import decode_flops, prefill_flops
from core.estimate.shape import Attention, Experts, FeedForward, LatentAttention, LayerGroup, ModelShape
from core.lab.count import MOST_NUMBERS, Counted, count, largest_tensor
from core.model.skeleton import MixtureOfExperts, Skeleton
from core.refusal import Refusal
from tests.command import ROOT, called, started

D, VOCAB = 48, 320
DENSE = FeedForward(d_ff=100)
GROUPED = Attention(n_heads=6, n_kv_heads=2, head_dim=8)


def model(*layers: tuple[int, Attention | LatentAttention | None, FeedForward | Experts | None]) -> ModelShape:
    """A small model of (how many, attention, feed-forward) groups."""
    groups = tuple(
        LayerGroup(n_layers=n, attention=attention, feed_forward=feed_forward, norm_width=2 * D)
        for n, attention, feed_forward in layers
    )
    return ModelShape(
        name="small",
        architecture="test",
        d_model=D,
        vocab_size=VOCAB,
        context_limit=4096,
        groups=groups,
        final_norm_width=D,
    )


def latent(query_rank: int | None) -> LatentAttention:
    return LatentAttention(n_heads=4, query_rank=query_rank, kv_rank=20, nope_dim=12, rope_dim=4, value_dim=10)


ROUTED = Experts(n_experts=8, n_active=3, d_expert=20)
SHAPES = {
    "multi-head": model((2, replace(GROUPED, n_kv_heads=6), DENSE)),
    "grouped": model((3, GROUPED, DENSE)),
    "one KV head": model((2, replace(GROUPED, n_kv_heads=1), DENSE)),
    "wide heads": model((2, replace(GROUPED, head_dim=20), DENSE)),
    "narrow heads": model((2, replace(GROUPED, head_dim=4), DENSE)),
    "other values": model((2, replace(GROUPED, value_dim=14), DENSE)),
    "biases and sinks": model(
        (2, replace(GROUPED, has_qkv_bias=True, has_output_bias=True, has_sinks=True, qk_norm="full"), DENSE)
    ),
    "window": model((2, replace(GROUPED, window=8), DENSE)),
    "window of one": model((2, replace(GROUPED, window=1), DENSE)),
    "window pattern": model((5, replace(GROUPED, window=8), DENSE), (1, GROUPED, DENSE)),
    "two head widths": model((3, replace(GROUPED, window=8), DENSE), (2, replace(GROUPED, head_dim=16), DENSE)),
    "no gate": model((2, GROUPED, FeedForward(d_ff=100, is_gated=False, has_bias=True))),
    "no attention": model((1, GROUPED, DENSE), (2, None, DENSE)),
    "no feed-forward": model((1, GROUPED, None), (2, GROUPED, DENSE)),
    "experts": model((2, GROUPED, ROUTED)),
    "all experts": model((2, GROUPED, replace(ROUTED, n_active=8))),
    "ungated experts": model((2, GROUPED, replace(ROUTED, is_gated=False, d_shared=30, has_bias=True))),
    "shared experts": model((1, GROUPED, DENSE), (2, GROUPED, replace(ROUTED, d_shared=40))),
    "gated shared expert": model((2, GROUPED, replace(ROUTED, d_shared=40, has_shared_gate=True))),
    "latent": model((2, latent(None), DENSE)),
    "latent queries": model(
        (1, latent(16), DENSE), (2, latent(16), replace(ROUTED, d_shared=20, has_router_bias=True))
    ),
}


def assert_equal(counted: Counted) -> None:
    for phase in (counted.prefill, counted.decode):
        assert phase.flops_counted == phase.flops_exact > 0
        assert phase.gap == 0
        assert sum(flops for _, flops in phase.parts) == phase.flops_counted


@pytest.mark.parametrize(("n_tokens", "batch"), [(1, 1), (2, 3), (7, 3), (8, 1), (9, 3), (33, 1)])
@pytest.mark.parametrize("kind", SHAPES)
def test_counted_equals_exact(kind: str, n_tokens: int, batch: int) -> None:
    """The window is 8: below, at and above it."""
    counted = count(SHAPES[kind], n_tokens=n_tokens, batch=batch)
    assert (counted.model, counted.n_tokens, counted.batch) == ("small", n_tokens, batch)
    assert_equal(counted)


def test_a_case_by_hand() -> None:
    """One layer, so that nothing rests on the estimate alone."""
    shape = model((1, replace(GROUPED, window=8), replace(ROUTED, d_shared=40)))
    counted = count(shape, n_tokens=20, batch=2)
    one_position = {
        "attention_projections": 2 * (48 * 48 + 48 * 32 + 48 * 48),
        "experts": 2 * 3 * 48 * (3 * 20 + 40),
        "router": 2 * 48 * 8,
    }
    expected_prefill: dict[str, int] = {part: 2 * 20 * flops for part, flops in one_position.items()}
    expected_decode: dict[str, int] = {part: 2 * flops for part, flops in one_position.items()}
    expected_prefill |= {"scores_and_gathering": 2 * 6 * 20 * 20 * 2 * (8 + 8), "head": 2 * 2 * 48 * 320}
    expected_decode |= {"scores_and_gathering": 2 * 6 * 8 * 2 * (8 + 8), "head": 2 * 2 * 48 * 320}
    assert {str(part): flops for part, flops in counted.prefill.parts} == expected_prefill
    assert {str(part): flops for part, flops in counted.decode.parts} == expected_decode


def test_latents_are_absorbed_in_decode_only() -> None:
    """Decode meets each cached latent once a head (2r + p); prefill compares and gathers expanded heads."""
    shape = model((1, latent(16), None))
    parts = [dict(count(shape, n_tokens=n).decode.parts)["scores_and_gathering"] for n in (1, 2)]
    assert parts[1] - parts[0] == parts[0] == 2 * 4 * (2 * 20 + 4)
    assert dict(count(shape, n_tokens=5).prefill.parts)["scores_and_gathering"] == 2 * 5 * 5 * 4 * (12 + 4 + 10)


@pytest.mark.parametrize("slug", catalogue.models())
def test_released_models(slug: str) -> None:
    assert_equal(count(catalogue.shape(slug), n_tokens=4096))


@pytest.mark.parametrize("n_tokens", [131_072, 2**27])
def test_long_contexts(n_tokens: int) -> None:
    assert_equal(count(catalogue.shape("deepseek-v3"), n_tokens=n_tokens))


def test_progress() -> None:
    seen: list[tuple[int, int]] = []
    count(SHAPES["window pattern"], n_tokens=4, on_layer=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 12) for done in range(1, 13)]


def test_a_layer_less_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    built = Skeleton.__init__

    def without_the_last(self: Skeleton, shape: ModelShape) -> None:
        built(self, shape)
        self.layers.pop()

    monkeypatch.setattr(Skeleton, "__init__", without_the_last)
    counted = count(SHAPES["grouped"], n_tokens=5)
    assert counted.prefill.flops_counted < counted.prefill.flops_exact and counted.prefill.gap > 0.001
    assert counted.decode.flops_counted < counted.decode.flops_exact and counted.decode.gap > 0.001


def test_an_expert_more_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    built = MixtureOfExperts.__init__

    def with_one_more(self: MixtureOfExperts, part: Experts, d_model: int) -> None:
        built(self, replace(part, n_active=part.n_active + 1), d_model)

    monkeypatch.setattr(MixtureOfExperts, "__init__", with_one_more)
    counted = count(SHAPES["experts"], n_tokens=5)
    assert counted.prefill.gap < -0.001 and counted.decode.gap < -0.001


def test_what_torch_cannot_address_is_refused() -> None:
    """The bound is the largest tensor's, and below it torch does not object."""
    shape = SHAPES["multi-head"]
    n_tokens = 2**27
    fitting = MOST_NUMBERS // largest_tensor(shape, n_tokens, 1)
    assert fitting > 1 and largest_tensor(shape, n_tokens, 1) == 6 * n_tokens**2
    assert_equal(count(shape, n_tokens=n_tokens, batch=fitting))
    with pytest.raises(Refusal) as refused:
        count(shape, n_tokens=n_tokens, batch=fitting + 1)
    assert refused.value.key == "estimate.count_too_large"
    assert "small" in refused.value.sentence("zh")


@pytest.mark.parametrize("kind", SHAPES)
def test_no_refusal_comes_too_late(kind: str) -> None:
    """Just under the bound torch can address every tensor, whatever the kind of layer."""
    batch = MOST_NUMBERS // largest_tensor(SHAPES[kind], 64, 1)
    assert_equal(count(SHAPES[kind], n_tokens=64, batch=batch))


def test_the_command_prints_its_json() -> None:
    done = started("count", "--model", "smollm2", "--context", "100", "--batch", "2", "--json")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    shape = catalogue.shape("smollm2")
    prefill, decode = prefill_flops(shape, 100, 2), decode_flops(shape, 100, 2)
    assert record == {
        "model": shape.name,
        "context": 100,
        "batch": 2,
        "prefill": {"flops_counted": prefill, "flops_exact": prefill, "gap": 0.0},
        "decode": {"flops_counted": decode, "flops_exact": decode, "gap": 0.0},
    }
    assert all(type(record[phase]["flops_counted"]) is int for phase in ("prefill", "decode"))


def test_the_command_reads_a_config_and_prints_a_table(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    settings = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 300,
        "max_position_embeddings": 512,
    }
    config.write_text(json.dumps(settings), encoding="utf-8")
    done = called("count", "--config", str(config), "--context", "10")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    exact = 2 * 2 * (4 * 64 * 64 + 3 * 64 * 128) + 2 * 4 * 10 * 64 + 2 * 300 * 64
    (decode,) = (line for line in done.stdout.splitlines() if line.startswith("decode"))
    assert decode.split()[:4] == ["decode", f"{exact:,}", f"{exact:,}", "+0.000%"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--context", "10"], "--model"),
        (["--model", "smollm2", "--config", "x.json", "--context", "10"], "--config"),
        (["--model", "smollm2"], "--context"),
        (["--model", "smollm2", "--context", "0"], "from 1 to 134217728"),
        (["--model", "smollm2", "--context", str(2**27 + 1)], "from 1 to 134217728"),
        (["--model", "smollm2", "--context", "10", "--batch", "0"], "from 1 to 1048576"),
        (["--model", "deepseek-v3", "--context", str(2**27), "--batch", "2"], "torch"),
        (["--model", "no-such-model", "--context", "10"], "no-such-model"),
        (["--config", "no/such/config.json", "--context", "10"], "config.json"),
        (["--config", "README.md", "--context", "10"], "README.md"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_is_one_sentence(arguments: list[str], named: str) -> None:
    done = called("count", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and named in done.stderr
    assert "Traceback" not in done.stderr


def test_arguments_are_checked_before_torch_is_imported() -> None:
    code = (
        "import sys\nfrom core.__main__ import main\n"
        "sys.argv = ['core', 'count', '--model', 'no-such-model', '--context', '1']\n"
        "assert main() == 2 and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, timeout=60)
