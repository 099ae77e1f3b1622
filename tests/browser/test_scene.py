"""What the picture shows at a moment, and how moments follow one another: pure functions, run in the browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]
CACHED = (
    "[{ phase: 'prefill', n_tokens: 5, new: 5 }, ...[6, 7, 8].map((n) => ({ phase: 'decode', n_tokens: n, new: 1 }))]"
)
UNCACHED = "[5, 6, 7].map((n) => ({ phase: 'recompute', n_tokens: n, new: n }))"


def scenes(module: Call, steps: str, moments: list[float]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = module("scene.js", f"return given.map((at) => m.sceneAt({steps}, at))", moments)
    return shown


def test_between_steps_everything_done_is_shown_and_nothing_moves(module: Call) -> None:
    rests = scenes(module, CACHED, [0, 1, 2, 3, 4, -1, 99])
    assert [scene["nColumns"] for scene in rests] == [0, 5, 6, 7, 8, 0, 8]
    assert [scene["step"] for scene in rests] == [None, 0, 1, 2, 3, None, 3]
    for scene in rests:
        assert (scene["incoming"], scene["gather"], scene["query"], scene["rows"], scene["share"]) == (0, 0, 0, 1, 0)
    assert [scene["sweep"] for scene in rests[:3]] == [0, 0, 1]  # what a decode step weighed stays to be seen


def test_prefill_writes_all_columns_layer_after_layer(module: Call) -> None:
    shares = [0.01, 0.25, 0.5, 0.99]
    for share, scene in zip(shares, scenes(module, CACHED, shares), strict=True):
        assert (scene["nColumns"], scene["step"]) == (5, 0) and scene["rows"] == pytest.approx(share)


def test_a_decode_step_writes_compares_gathers_and_drops_its_query_in_this_order(module: Call) -> None:
    shown = scenes(module, CACHED, [1 + share / 100 for share in range(1, 100)])
    for name in ("incoming", "sweep", "gather"):
        values = [scene[name] for scene in shown]
        assert values == sorted(values) and values[0] < 0.1 and values[-1] == 1
    assert all(scene["nColumns"] == 5 and scene["step"] == 1 for scene in shown)
    assert all(scene["incoming"] == 1 for scene in shown if scene["sweep"] > 0)
    assert all(scene["sweep"] == 1 for scene in shown if scene["gather"] > 0)
    queries = [scene["query"] for scene in shown]
    assert max(queries) == 1 and queries[-1] < 0.15 and all(scene["gather"] == 1 for scene in shown[-8:])


def test_without_a_cache_every_position_goes_and_comes_again(module: Call) -> None:
    gone, again = scenes(module, UNCACHED, [1.14, 1.5])
    assert gone["nColumns"] == 5 and gone["rows"] < 0.1
    assert again["nColumns"] == 6 and 0.3 < again["rows"] < 0.6
    counts = module("scene.js", f"return [0, 1, 2, 3].map((at) => m.positionsComputed({UNCACHED}, at))")
    assert [count["computed"] for count in counts] == [0, 5, 11, 18]
    assert [count["cached"] for count in counts] == [0, 5, 6, 7]


def test_the_same_moment_is_always_the_same_scene(module: Call) -> None:
    moments = [0.3, 1.7, 2.2, 3.9]
    forwards = scenes(module, CACHED, moments)
    assert scenes(module, CACHED, moments[::-1])[::-1] == forwards


TIMELINE = """
  const line = new m.Timeline();
  let now = 0;
  const run = (ms) => {
    for (const end = now + ms; now < end; now += 16) line.tick(now);
    return Number(line.at.toFixed(2));
  };
  const state = () => [Number(line.at.toFixed(2)), line.goal, line.follows];
"""


def timeline(module: Call, body: str) -> Any:
    return module("timeline.js", f"{TIMELINE} {body}")


def test_it_follows_the_newest_step_at_its_pace(module: Call) -> None:
    body = """line.grown(1, { msAStep: 1000 }); line.tick(0);
      const half = run(500); const whole = run(700); return [half, whole, line.moves]"""
    half, whole, moves = timeline(module, body)
    assert 0.4 < half < 0.6 and whole == 1 and moves is False


def test_far_behind_it_does_not_run_after_every_step(module: Call) -> None:
    assert timeline(module, "line.grown(500, { msAStep: 1000 }); return state()")[0] == 499
    assert timeline(module, "line.grown(3, { msAStep: 1000, atOnce: true }); return state()") == [3, 3, True]


def test_looking_back_stays_there_while_steps_come(module: Call) -> None:
    body = """line.grown(9, { msAStep: 100 }); run(500); line.lookAt(2.5); line.grown(10, { msAStep: 100 });
      run(2000); return state()"""
    assert timeline(module, body) == [2.5, 2.5, False]


def test_playing_on_goes_through_every_step_to_the_end_and_follows(module: Call) -> None:
    body = """line.grown(9, { msAStep: 100 }); run(3000); line.lookAt(0); line.playOn(100); line.tick(now);
      const after = run(300); run(2000); return [after, ...state()]"""
    after, *end = timeline(module, body)
    assert 2 < after < 4 and end == [9, 9, True]


def test_halting_finishes_the_step_that_is_half_shown(module: Call) -> None:
    body = """line.grown(9, { msAStep: 100 }); run(3000); line.lookAt(0); line.playOn(100); line.tick(now); run(250);
      line.halt(); run(2000); return state()"""
    assert timeline(module, body)[:2] == [3, 3]


def test_a_step_back_takes_the_moment_along(module: Call) -> None:
    body = """line.grown(9, { msAStep: 100 }); run(3000); line.grown(8, { msAStep: 100 }); return state()"""
    assert timeline(module, body) == [8, 8, True]


def test_what_lights_up_is_what_the_query_has_passed(module: Call) -> None:
    body = "return [0, 0.5, 1].map((sweep) => m.lit(new Float32Array([0.5, 0.25, 0.125, 0.125]), sweep))"
    assert module("act.js", body) == [[], [[2, 0.125], [3, 0.125]], [[0, 0.5], [1, 0.25], [2, 0.125], [3, 0.125]]]


def test_a_stream_is_cut_into_its_frames(module: Call) -> None:
    body = """const bytes = new Uint8Array([2, 0, 0, 0, 7, 8, 3, 0, 0, 0, 1]);
      const first = m.firstFrame(bytes);
      return [[...first], m.firstFrame(bytes.slice(4 + first.length)), m.firstFrame(bytes.slice(0, 3))]"""
    assert module("api.js", body) == [[7, 8], None, None]
