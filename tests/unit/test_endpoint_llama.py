"""The sweep against a server of somebody else's: llama.cpp's, on loopback, holding the real smollm2."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli.sweep_endpoint import sweep_endpoint
from core.lab.remote.address import Key, address_of
from core.lab.remote.faults import Kind
from core.lab.remote.interface import Api
from core.lab.remote.limits import Limits
from core.lab.remote.plan import PointKey, RemotePlan
from core.lab.remote.prompts import prompt_of
from core.lab.remote.server import Client, Server, count
from core.lab.remote.sweep import RemoteSweep
from core.lab.remote.watch import Watch
from core.model.load import LanguageModel
from tests.endpoint_options import options
from tests.llama_server import LlamaServer

N_NEW = 8


@pytest.fixture(scope="module")
def llama(smollm2_gguf: Path) -> Iterator[LlamaServer]:
    with LlamaServer(smollm2_gguf) as server:
        yield server


def rows_of(file: Path) -> list[dict[str, str]]:
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


@pytest.mark.parametrize("api", list(Api))
def test_counts_are_the_servers_and_the_tokenizers(llama: LlamaServer, smollm2_f32: LanguageModel, api: Api) -> None:
    """What the server counts for a prompt is what our own tokenizer makes of it, chat template and all."""
    with Watch(60) as watch:
        client = Client(address_of(llama.url), Key(), Limits(), watch)
        for n_words in (1, 30, 100):
            prompt = prompt_of(n_words, seed=n_words)
            usage = count(client, Server("", api, frozenset()), prompt)
            ours = smollm2_f32.prompt_ids(prompt, raw=api is Api.COMPLETIONS)
            assert usage is not None and usage.prompt_tokens == len(ours)


def test_the_sweep_runs(llama: LlamaServer, tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    asked = options(llama.url, file, model="smollm2", contexts=(32, 64), batches=(1, 3), repeats=1)
    assert sweep_endpoint(asked) == 0
    assert "# served model: SmolLM2-135M-Instruct.Q4_1.gguf\n" in file.read_text(encoding="utf-8")
    rows = rows_of(file)
    assert len(rows) == 4
    for row in rows:
        assert int(row["prompt_tokens"]) == int(row["context"]) - N_NEW // 2
        assert int(row["tokens"]) == int(row["pieces"]) == N_NEW  # greedy, but no end token ends it
        assert row["retries"] == "0" and float(row["tpot_s"]) > 0 and float(row["ttft_s"]) > 0
        assert int(row["kv_bytes_formula"]) == 23040 * int(row["context"]) * int(row["batch"])
        assert row["decode_step_s"] == "" if row["note"] else float(row["decode_step_s"]) > 0
    notes = {batch: {row["note"] for row in rows if row["batch"] == batch} for batch in ("1", "3")}
    assert notes["1"] == {""} and "" in notes["3"] <= {"", "queued"}  # a thread that wakes up late misses the others


def test_a_prompt_beyond_its_context_is_one_points_own(llama: LlamaServer) -> None:
    plan = RemotePlan(contexts=(16, 5000), batches=(1,), new_tokens=N_NEW)
    with RemoteSweep(address_of(llama.url), Key(), plan) as sweep:
        good, bad = sweep.points(sweep.greet())
    assert good.fault is None and bad.fault is not None and bad.fault.kind is Kind.REJECTED
    assert "context" in bad.fault.said


def test_killed_in_mid_sweep(smollm2_gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finished points stay, a sentence says why it ended, and behind a restart the same command goes on."""
    file = tmp_path / "a.csv"

    def kill_behind(server: LlamaServer, n_rows: int) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not (file.exists() and len(rows_of(file)) >= n_rows):
            time.sleep(0.01)
        server.kill()

    with LlamaServer(smollm2_gguf) as server:
        asked = options(server.url, file, "--retries", "1", contexts=(16, 32), batches=(1, 2), repeats=3)
        killer = threading.Thread(target=kill_behind, args=(server, 3))
        killer.start()
        assert sweep_endpoint(asked) == 2
        killer.join()
    # A connection to a dying process may stand for a moment: what that point met is marked, and counts as not there.
    kept = [row for row in rows_of(file) if not row["note"].startswith("failed:")]
    assert 3 <= len(kept) < 12
    assert f"The server cannot be reached. {len(kept)} of 12 points are in the file" in capsys.readouterr().err
    with LlamaServer(smollm2_gguf, server.port):
        assert sweep_endpoint(asked) == 0
    assert rows_of(file)[: len(kept)] == kept
    keys = [PointKey(int(row["context"]), int(row["batch"]), int(row["repeat"])) for row in rows_of(file)]
    plan = RemotePlan(contexts=(16, 32), batches=(1, 2), repeats=3)
    assert keys == list(plan.points())
