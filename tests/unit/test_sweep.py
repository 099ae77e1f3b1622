"""The sweep on the tiny model: every byte and FLOP by formula, a file that holds whatever ends it, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.engine.engine import Engine
from core.engine.exclusive import Point
from core.estimate.flops import decode_flops, decode_flops_chapter
from core.estimate.kv import kv_bytes
from core.lab import decode_step as decode_step_module
from core.lab.sweep.fill import FilledCaches
from core.lab.sweep.forecast import Probe, check_time, foreseen_seconds, needed_bytes, probe
from core.lab.sweep.head import head_of
from core.lab.sweep.plan import FILLS, Fill, Spot, SweepPlan, SweepRow, cells
from core.lab.sweep.sweep import N_STEPS, Sweep
from core.lab.sweep.table import COLUMNS, SweepFile, read_sweep
from core.model.kv_cache import BLOCK_TOKENS
from core.model.load import LanguageModel
from core.refusal import Refusal
from tests.engines import PATIENCE

MANY = 2**30
# Around the ends of blocks of 64 positions, and beyond one chunk of a prefill.
PLAN = SweepPlan(contexts=(2, 64, 65, 66, 150), batches=(1, 3), repeats=2)


def measured(model: LanguageModel, plan: SweepPlan, done: set[Spot] = frozenset(), tries: int = 1) -> list[SweepRow]:  # type: ignore[assignment]
    sweep = Sweep(model, plan, MANY, done)
    measurement = sweep.measurement()
    for index, point in enumerate(measurement.points):
        for _ in range(tries):
            value = point()
        measurement.on_point(index, Point(value, 0.1, tries, index % 2 == 0))
    return sweep.rows


def row(context: int = 10, batch: int = 1, repeat: int = 0, seconds: float = 0.5) -> SweepRow:
    return SweepRow(
        context=context,
        batch=batch,
        repeat=repeat,
        kv_bytes_formula=100,
        kv_bytes_measured=100,
        decode_step_s=seconds,
        flops_chapter=7,
        flops_exact=6,
        bytes_read=5,
    )


@pytest.mark.parametrize("fill", FILLS)
def test_every_spot_is_what_the_formulas_say(tiny_f32: LanguageModel, fill: Fill) -> None:
    plan, model = replace(PLAN, fill=fill), tiny_f32
    rows = measured(model, plan, tries=2)
    assert [one.spot for one in rows] == list(plan.spots())
    for one in rows:
        assert one.kv_gap_bytes == 0
        assert one.kv_bytes_measured == kv_bytes(
            model.shape, n_tokens=one.context, batch=one.batch, dtypes=model.kv_dtypes
        )
        assert one.flops_exact == decode_flops(model.shape, one.context, one.batch)
        assert one.flops_chapter == decode_flops_chapter(model.shape, one.context, one.batch)
        assert one.bytes_read == model.transformer.product_bytes + one.kv_bytes_measured
        assert one.decode_step_s > 0 and (one.peak_memory_bytes or 1) > 0
    assert {one.disturbed for one in rows} == {True, False}


def test_a_filled_cache_is_that_of_a_prefill(tiny_f32: LanguageModel) -> None:
    filled = FilledCaches(tiny_f32, 2, 140, "prefill")
    assert [begin for _, begin in filled.chunks] == [0, 128, 0, 128]
    for row_number, begin in filled.chunks:
        filled.fill(row_number, begin)
        filled.fill(row_number, begin)
    for row_number, copied in enumerate(filled.copies(2, 70)):
        cache = tiny_f32.transformer.new_cache()
        with torch.inference_mode():
            tiny_f32.transformer.hidden(filled.ids[row_number : row_number + 1, :70], [cache])
        assert copied.n_tokens == 70
        torch.testing.assert_close(copied.columns(0, 70), cache.columns(0, 70), atol=1e-4, rtol=1e-3)
    one, other = filled.copies(2, 70)
    assert not torch.equal(one.columns(0, 70), other.columns(0, 70))


def test_a_step_is_that_of_the_engine(tiny_f32: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches are n − 1 long before every step, and the step computes one position of each sequence."""
    seen = []
    decode = decode_step_module.decode_one_token

    def heard(model: LanguageModel, runs: list) -> list:  # type: ignore[type-arg]
        before = [run.cache.n_tokens for run in runs]
        reserved = [run.cache.reserved_tokens for run in runs]
        events = decode(model, runs)
        assert reserved == [run.cache.reserved_tokens for run in runs]  # nothing grew while the clock ran
        seen.append((before, [event.n_tokens for event in events], [event.batch for event in events]))
        return events

    monkeypatch.setattr(decode_step_module, "decode_one_token", heard)
    measured(tiny_f32, SweepPlan(contexts=(65,), batches=(3,), repeats=1))
    assert seen == [([64] * 3, [65] * 3, [3] * 3)] * N_STEPS


def test_repeats_alternate() -> None:
    plan = SweepPlan(contexts=(20, 10), batches=(2, 1), repeats=2)
    up = [(10, 1), (10, 2), (20, 1), (20, 2)]
    assert [spot[:2] for spot in plan.spots()] == [*up, *reversed(up)]
    assert [spot.repeat for spot in plan.spots()] == [0] * 4 + [1] * 4


def test_disturbed_repeats_count_only_where_all_were() -> None:
    rows = [row(repeat=repeat, seconds=seconds) for repeat, seconds in enumerate((1.0, 9.0, 2.0))]
    rows[1] = replace(rows[1], disturbed=True)
    (cell,) = cells(rows)
    assert (cell.n_repeats, cell.n_used, cell.median_s) == (3, 2, 1.5)
    (cell,) = cells([replace(one, disturbed=True) for one in rows])
    assert (cell.n_used, cell.median_s) == (3, 2.0)


def test_a_cell_has_the_middle_of_its_repeats() -> None:
    rows = [row(repeat=repeat, seconds=seconds) for repeat, seconds in enumerate((5.0, 1.0, 2.0, 4.0, 3.0))]
    rows[3] = replace(rows[3], kv_bytes_measured=93)
    (cell, other) = cells([*rows, row(20)])
    assert (cell.context, cell.n_repeats, cell.median_s) == (10, 5, 3.0)
    assert cell.n_used == 5
    assert (cell.first_quartile_s, cell.third_quartile_s, cell.kv_gap_bytes) == (2.0, 4.0, -7)
    assert (other.context, other.median_s, other.first_quartile_s) == (20, 0.5, 0.5)


@pytest.mark.parametrize(
    "values",
    [
        {"contexts": ()},
        {"contexts": (1,)},
        {"contexts": (5, 5)},
        {"batches": (0,)},
        {"batches": tuple(range(1, 66))},
        {"repeats": 0},
        {"repeats": 1001},
    ],
)
def test_what_is_no_sweep_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(Refusal):
        SweepPlan(**{"contexts": (10,), "batches": (1,), "repeats": 1, **values})  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_before_it_begins(tiny_f32: LanguageModel) -> None:
    needed = needed_bytes(tiny_f32, PLAN)
    whole = kv_bytes(tiny_f32.shape, n_tokens=150, batch=3, dtypes=tiny_f32.kv_dtypes, page_tokens=BLOCK_TOKENS)
    assert needed > 2 * whole
    Sweep(tiny_f32, PLAN, needed)
    with pytest.raises(Refusal) as refused:
        Sweep(tiny_f32, PLAN, needed - 1)
    assert refused.value.key == "sweep.too_large"
    limit = tiny_f32.config.context_limit
    Sweep(tiny_f32, SweepPlan(contexts=(limit,), batches=(1,), repeats=1), MANY)
    with pytest.raises(Refusal) as refused:
        Sweep(tiny_f32, SweepPlan(contexts=(limit + 1,), batches=(1,), repeats=1), MANY)
    assert refused.value.key == "sweep.context_too_long"
    check_time(60.0, 60.0)
    with pytest.raises(Refusal):
        check_time(60.1, 60.0)


def test_time_is_foreseen_from_a_probe(tiny_f32: LanguageModel) -> None:
    probed = probe(tiny_f32)
    assert probed.flops_per_s > 0 < probed.decode_step_s and probed.n_tokens == 129
    fixed = Probe(flops_per_s=1e9, decode_step_s=1e-3, n_tokens=129)
    whole = foreseen_seconds(tiny_f32, PLAN, N_STEPS, fixed)
    fast = foreseen_seconds(tiny_f32, replace(PLAN, fill="fast"), N_STEPS, fixed)
    twice = foreseen_seconds(tiny_f32, replace(PLAN, fill="fast", repeats=4), N_STEPS, fixed)
    rest = foreseen_seconds(tiny_f32, replace(PLAN, fill="fast"), N_STEPS, fixed, n_done=15)
    assert whole > fast and twice == pytest.approx(2 * fast) and rest == pytest.approx(fast / 4)
    one = SweepPlan(contexts=(129,), batches=(1,), repeats=1, fill="fast")
    assert foreseen_seconds(tiny_f32, one, 1, fixed) == pytest.approx(1e-3)


def test_in_the_exclusive_slot_and_stopped(tiny_f32: LanguageModel) -> None:
    worker = Engine(lambda: MANY)
    try:
        heard: list[SweepRow] = []
        sweep = Sweep(tiny_f32, PLAN, MANY)
        measurement = sweep.measurement(lambda one: (heard.append(one), measurement.cancel())[0])
        worker.measure(measurement).future.result(PATIENCE)
    finally:
        worker.stop()
    assert heard == sweep.rows and len(heard) == 1 and heard[0].spot == next(PLAN.spots())


def test_the_file_is_what_was_measured(tiny_f32: LanguageModel, tmp_path: Path) -> None:
    path, head = tmp_path / "s.csv", head_of(tiny_f32, PLAN)
    rows = measured(tiny_f32, PLAN)
    with SweepFile(path, head) as file:
        for one in rows:
            file.add(one)
            assert read_sweep(path.read_text(encoding="utf-8"), "s.csv") == (head, file.rows)  # valid at every moment
    text = path.read_text(encoding="utf-8")
    first = next(line for line in text.splitlines() if not line.startswith("#"))
    wanted = (
        "context,batch,repeat,kv_bytes_formula,kv_bytes_measured,decode_step_s,flops_chapter,flops_exact,bytes_read"
    )
    assert first.startswith(wanted) and first == ",".join(COLUMNS)
    assert read_sweep(text, "s.csv")[1] == rows
    assert {"model", "dtype", "device", "torch", "python", "processor"} <= head.keys()


@pytest.mark.parametrize("n_bytes", [1, 7, 20])
def test_a_line_that_was_cut_is_measured_again(tiny_f32: LanguageModel, tmp_path: Path, n_bytes: int) -> None:
    path, head = tmp_path / "s.csv", head_of(tiny_f32, PLAN)
    with SweepFile(path, head) as file:
        file.add(row())
        file.add(row(20))
    path.write_bytes(path.read_bytes()[:-n_bytes])
    with SweepFile(path, {**head, "date": "later"}) as file:
        assert file.rows == [row()]
        file.add(row(30))
    assert read_sweep(path.read_text(encoding="utf-8"), "")[1] == [row(), row(30)]


def test_a_sweep_goes_on_where_it_was_left(tiny_f32: LanguageModel, tmp_path: Path) -> None:
    path, head = tmp_path / "s.csv", head_of(tiny_f32, PLAN)
    spots = list(PLAN.spots())
    with SweepFile(path, head) as file:
        for spot in spots[:7]:
            file.add(row(*spot))
    with SweepFile(path, head) as file:
        done = {one.spot for one in file.rows}
        for one in measured(tiny_f32, PLAN, done):
            file.add(one)
        assert [one.spot for one in file.rows] == spots
    assert measured(tiny_f32, PLAN, set(spots)) == []


@pytest.mark.parametrize("content", [b"hello\n", b"\xff\xfe\n", b"# another\n1,2\n", b"x" * 10])
def test_a_file_of_something_else_is_left_alone(tiny_f32: LanguageModel, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.csv"
    path.write_bytes(content)
    with pytest.raises(Refusal) as refused:
        SweepFile(path, head_of(tiny_f32, PLAN))
    assert refused.value.key == "sweep.not_a_sweep" and path.read_bytes() == content


def test_another_sweep_is_not_continued(tiny_f32: LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    SweepFile(path, head_of(tiny_f32, PLAN)).__exit__()
    with pytest.raises(Refusal) as refused:
        SweepFile(path, head_of(tiny_f32, replace(PLAN, fill="fast")))
    assert refused.value.key == "sweep.other_sweep" and "caches" in str(refused.value)


@pytest.mark.parametrize(
    "line",
    ["1,2,3", "a,1,0,100,100,0.5,7,6,5,,", "1,1,0,100,100,nan,7,6,5,,", "1,1,0,-1,100,0.5,7,6,5,,", "", ",,,,,,,,,,"],
)
def test_a_broken_row_is_named(tiny_f32: LanguageModel, tmp_path: Path, line: str) -> None:
    path, head = tmp_path / "s.csv", head_of(tiny_f32, PLAN)
    with SweepFile(path, head) as file:
        file.add(row())
    n_lines = path.read_text(encoding="utf-8").count("\n")
    with path.open("a", encoding="utf-8") as opened:
        opened.write(line + "\n")
    with pytest.raises(Refusal) as refused:
        SweepFile(path, head)
    assert refused.value.key == "sweep.row_broken" and refused.value.values["line"] == n_lines + 1
