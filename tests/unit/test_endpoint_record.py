"""A server's sweep read back from its file: the points as written, or a sentence; medians, law, floors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from core.cli.sweep_endpoint import sweep_endpoint
from core.estimate.accelerators import accelerator_named
from core.estimate.catalogue import shape
from core.estimate.dtypes import BF16_KV, BF16_WEIGHTS
from core.estimate.estimate import Request, estimate
from core.lab.remote.faults import Fault, Kind
from core.lab.remote.findings import server_findings
from core.lab.remote.limits import MOST_CONCURRENT, MOST_CONTEXT
from core.lab.remote.plan import PointKey
from core.lab.remote.point import Note, RemotePoint
from core.lab.remote.record import MOST_CELLS, MOST_ROWS, read_record
from core.lab.remote.table import COLUMNS, FORMAT
from core.lab.remote.under import Assumed, against, floors_under
from core.refusal import Refusal
from tests.endpoint_options import options
from tests.fake_openai import FakeOpenAI
from tests.in_step import read_in_step
from tests.server_sweeps import HEADS, healthy, point, queued, step_s, written

seconds = some.floats(1e-9, 9e4)
counts = some.integers(1, 4096)
measured = some.builds(
    RemotePoint,
    key=some.builds(PointKey, some.integers(1, MOST_CONTEXT), some.integers(1, MOST_CONCURRENT), some.integers(0, 99)),
    decode_step_s=some.none() | seconds,
    tpot_s=some.none() | seconds,
    ttft_s=seconds,
    ttft_last_s=seconds,
    tokens=counts,
    prompt_tokens=some.none() | counts,
    pieces=counts,
    together=some.floats(0, 1),
    cached_tokens=some.none() | counts,
    kv_share=some.none() | some.floats(0, 1),
    kv_tokens=some.none() | some.floats(0, 1e9),
    retries=some.integers(0, 60),
    notes=some.lists(some.sampled_from(list(Note)), unique=True).map(tuple),
)


@settings(max_examples=40, deadline=None)
@given(one=measured, kind=some.none() | some.sampled_from(list(Kind)))
def test_what_is_written_is_read(one: RemotePoint, kind: Kind | None) -> None:
    if kind is not None:
        one = RemotePoint(key=one.key, retries=one.retries, fault=Fault(kind))
    (found,) = read_record(written([one]), "a.csv").points
    assert replace(found, fault=None) == replace(one, fault=None)
    assert (found.fault and found.fault.kind) == kind


def test_a_sweep_of_a_live_server_becomes_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own file, of a server that publishes its cache and refuses one length."""
    file = tmp_path / "a.csv"
    read_in_step(monkeypatch)
    with FakeOpenAI(metrics=True, step_s=0.1, most_prompt=50) as fake:
        assert sweep_endpoint(options(fake.url, file, model="smollm2", contexts=(20, 60))) == 2
    record = read_record(file.read_text(encoding="utf-8"), "a.csv")
    assert record.model == "smollm2" and record.head["endpoint"] == fake.url and record.head["new tokens"] == "8"
    found = server_findings(record.points)
    assert [(cell.context, cell.batch, cell.n_measured) for cell in found.cells] == [
        *((20, 1, 1), (20, 2, 1), (60, 1, 0), (60, 2, 0))
    ]
    for cell in found.of(1)[:1] + found.of(2)[:1]:
        assert cell.is_together and cell.step is not None and cell.step.median_s > 0
        assert cell.tokens_per_s == cell.batch / cell.step.median_s
        assert (cell.prompt_tokens, cell.kv_tokens, cell.kv_share) == (16, 400, 0.25)
    (alone,) = found.of(1)[:1]
    assert alone.step is not None and alone.ttft is not None
    assert alone.ttft.median_s + 7 * alone.step.median_s >= 0.79  # from the request to the last of eight pieces
    assert found.faults == {Kind.REJECTED: 2} and not found.laws and found.joint is None


GOOD = written([point(1024, 4)])
ROW = GOOD.splitlines()[-1]


def with_row(*rows: str) -> str:
    return GOOD + "".join(f"{row}\n" for row in rows)


def changed(column: str, value: str) -> str:
    cells = dict(zip(COLUMNS, ROW.split(","), strict=True)) | {"context": "2048", column: value}
    return with_row(",".join(cells.values()))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "file_no_sweep"),
        ("a,b\n1,2\n", "file_no_sweep"),
        (f"# {FORMAT}", "file_no_sweep"),
        (GOOD.replace("sweep 1", "sweep 12"), "file_no_sweep"),
        (GOOD.replace("ttft_s", "ttft"), "file_no_sweep"),
        (f"# {FORMAT}\n# model: x\n", "file_empty"),
        (GOOD[: GOOD.rindex("1024,4")], "file_empty"),
        (GOOD[:-9], "file_empty"),  # the row was being written
        (with_row("1,2"), "row_broken"),
        (with_row('"' + "1" * 200_000), "row_broken"),
        (with_row(ROW), "row_broken"),  # the same point twice
        *((changed("context", value), "row_broken") for value in ("", "0", "-1", "1e3", "٣", "9" * 12)),
        *((changed("batch", value), "row_broken") for value in ("0", "257", "4.0")),
        *((changed("ttft_s", value), "row_broken") for value in ("", "0.0", "nan", "inf", "-1", "1e300", "0x1")),
        *((changed("decode_step_s", value), "row_broken") for value in ("1_0", "5e-324", "1e-30")),
        (changed("together", "1.5"), "row_broken"),
        (changed("note", "failed:<b>"), "row_broken"),
        (changed("note", "queued <script>"), "row_broken"),
        (written(point(n, 1) for n in range(100, 101 + MOST_CELLS)), "file_too_long"),
        (with_row(*(["x"] * MOST_ROWS)), "file_too_long"),
    ],
)
def test_a_broken_file_is_a_sentence(text: str, key: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_record(text, "x.csv")
    assert refused.value.key == f"server.{key}" and "x.csv" in refused.value.sentence("zh")


def test_a_torn_end_is_left_out() -> None:
    assert len(read_record(GOOD + ROW[:20], "x.csv").points) == 1
    assert len(read_record(GOOD.replace("\n", "\r\n"), "x.csv").points) == 1


def test_repeats_become_medians_and_steps_a_law() -> None:
    points = healthy(batches=(1, 4, 16))
    points += [replace(point(4096, 4), key=PointKey(4096, 4, 1), decode_step_s=2 * step_s(4096, 4), retries=3)]
    points += [replace(queued(4096, 4), key=PointKey(4096, 4, 2)), queued(1024, 64)]
    found = server_findings(points)
    cell, lone = found.cell(4096, 4), found.cell(1024, 64)
    assert cell is not None and cell.step is not None and lone is not None and lone.step is not None
    assert (cell.n_repeats, cell.n_used, cell.is_together) == (3, 2, True)
    assert cell.step.median_s == pytest.approx(1.5 * step_s(4096, 4))
    assert not lone.is_together and lone.tokens_per_s is None
    assert lone.step.median_s == pytest.approx(1.01 * step_s(1024, 64))
    assert (found.n_again, found.n_retries, found.notes[Note.QUEUED]) == (1, 3, 2)
    exact = server_findings(healthy())
    assert [law.batch for law in exact.laws] == [1, 4, 16] and exact.joint is not None
    assert exact.joint.coefficients == pytest.approx((0.020, 1e-7, 2e-4, 1.2e-7))
    assert exact.laws[1].fit.coefficients == pytest.approx((0.0208, 5.8e-7))
    assert exact.tested is not None and exact.tested.median_error < 1e-6


def test_the_floor_is_the_estimates_for_what_a_client_sees() -> None:
    card = accelerator_named("h100-sxm")
    assumed = Assumed(
        shape=shape("qwen3-32b"), weight_dtypes=BF16_WEIGHTS, kv_dtypes=BF16_KV, accelerator=card, ranks=4
    )
    cached = replace(point(4096, 1), cached_tokens=64)
    uncounted = replace(point(1024, 1), prompt_tokens=None)
    floors = floors_under(assumed, server_findings([point(1024, 5), queued(2048, 4), cached, uncounted]).cells)

    def floor(kind: str, context: int, batch: int) -> object:
        request = Request(batch=batch, context=context, accelerator=card, ranks=4)
        return getattr(estimate(shape("qwen3-32b"), request), kind).floor

    assert floors[1024, 5].step == floor("decode", 1024, 5)
    assert floors[1024, 5].first == floor("prefill", 1024 - 16, 3)  # the middle one of five is the third
    assert floors[2048, 4].step == floor("decode", 2048, 1)  # one at least was written
    assert floors[2048, 4].first == floor("prefill", 2048 - 16, 2)
    assert floors[4096, 1].first is None and floors[1024, 1].first is None and floors[1024, 1].step is not None
    step = floors[1024, 5].step
    assert step is not None and against(3 * float(step.seconds), step) == (3,)
    assert against(None, step) is None and against(1.0, None) is None
    assert HEADS["model"] == "qwen3-32b"
