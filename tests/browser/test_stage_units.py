"""The stage's modules by themselves, in the browser they are made for and as the server serves them."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Error

from pages.shared import wire

Call = Callable[..., Any]
FRAME = "return m.readFrame(Uint8Array.from(atob(given), (letter) => letter.charCodeAt(0)))"


def test_a_frame_is_read_as_python_packed_it(module: Call) -> None:
    header = {"text": "床前 <b>\u202e😀\n\x00", "none": None, "list": [1, 2.5, True, -0.125, 2**52], "empty": {}}
    cells = bytes(range(256)) * 3
    body = FRAME.replace("return ", "const frame = ") + "; return [frame.header, [...frame.body]]"
    for content in (cells, b""):
        packed = base64.b64encode(wire.pack(header, content)).decode()
        assert module("frame.js", body, packed) == [header, list(content)]


@pytest.mark.parametrize(
    "junk", [b"", b"TBT1", b"TBT2\x02\x00\x00\x00{}", b"TBT1\x05\x00\x00\x00{", b"TBT1\x02\x00\x00\x00{]"]
)
def test_what_is_no_frame_is_refused(module: Call, junk: bytes) -> None:
    with pytest.raises(Error):
        module("frame.js", FRAME, base64.b64encode(junk).decode())


# A run of two layers and one KV head: a prompt of three positions, then steps of one. The cells of a column count up
# from ten times its position.
RUN = """
  const prompt = [[0, 'a'], [1, 'b'], [2, 'c']];
  const facts = { n_layers: 2, n_kv_heads: 1, tail: '' };
  const step = (n, isFirst) => ({ n_tokens: n, new: isFirst ? n : 1, token: [n, `t${n}`], text: `t${n}` });
  const columns = (from, to) =>
    Uint8Array.from({ length: 4 * (to - from) }, (_, i) => 10 * (from + Math.floor(i / 4)) + (i % 4));
  let version = 0;
  const all = [step(3, true), step(4), step(5), step(6)];
  const frame = (start, end, number = 1) => [
    {
      visit: 'v', run: number, version: (version += 1), start, total: end, facts, prompt, scales: [],
      steps: all.slice(start, end),
    },
    columns(start ? all[start - 1].n_tokens : 0, end ? all[end - 1].n_tokens : 0),
  ];
  const shown = (record) => ({
    steps: record.steps.length, text: record.text(), columns: record.nColumns(), tokens: record.tokens.length,
    cells: [...record.cells.slice(0, 4 * record.nColumns())],
  });
  const take = (record, ...range) => record.take(...frame(...range));
  const visit = crypto.randomUUID(); // the module remembers the visits of the tests before
  const record = m.recordOf({ visit, run: 1 });
"""


def test_a_record_takes_ranges_however_often_they_come(module: Call) -> None:
    ranges = [(0, 1), (1, 2), (1, 3), (0, 4), (3, 4), (4, 4)]
    taking = "".join(f"take(record, {start}, {end});" for start, end in ranges)
    shown = module("runs.js", f"{RUN} {taking} return shown(record)")
    at_once = module("runs.js", f"{RUN} take(record, 0, 4); return shown(record)")
    assert shown == at_once
    assert shown["cells"] == [10 * position + part for position in range(6) for part in range(4)]
    assert (shown["steps"], shown["columns"], shown["tokens"], shown["text"]) == (4, 6, 7, "t3t4t5t6")


def test_a_record_with_a_hole_is_refused_and_stays_as_it_was(module: Call) -> None:
    body = f"""{RUN} take(record, 0, 2); const before = shown(record);
      const taken = take(record, 3, 4); return [taken, before, shown(record)]"""
    taken, before, after = module("runs.js", body)
    assert taken is False and before == after and before["steps"] == 2


def test_a_step_back_truncates_and_other_steps_may_follow(module: Call) -> None:
    shown = module("runs.js", f"{RUN} take(record, 0, 4); take(record, 2, 2); return shown(record)")
    assert (shown["steps"], shown["columns"], shown["text"]) == (2, 4, "t3t4")
    again = module("runs.js", f"{RUN} take(record, 0, 4); take(record, 2, 2); take(record, 2, 3); return shown(record)")
    assert again["cells"] == [10 * position + part for position in range(5) for part in range(4)]
    nothing = module("runs.js", f"{RUN} take(record, 0, 4); take(record, 0, 0); return shown(record)")
    assert (nothing["steps"], nothing["columns"], nothing["cells"], nothing["text"]) == (0, 0, [], "")


def test_a_frame_that_comes_too_late_changes_nothing(module: Call) -> None:
    """A step of the stream may overtake the page's answer."""
    body = f"""{RUN} take(record, 0, 1); const late = frame(0, 2); take(record, 1, 4);
      const taken = record.take(...late); return [taken, shown(record)]"""
    taken, shown = module("runs.js", body)
    assert taken is True and shown["steps"] == 4


def test_attention_comes_with_the_newest_step_and_goes_with_it(module: Call) -> None:
    body = f"""{RUN} const [header, cells] = frame(0, 2);
      const weights = new Uint8Array(new Uint16Array([0, 65535, 13107, 0]).buffer);
      record.take({{ ...header, attention: {{ step: 1, layer: 1, head: 0 }} }}, new Uint8Array([...cells, ...weights]));
      const row = [...record.row(1, 1, 0).weights].map((weight) => Number(weight.toFixed(6)));
      const others = [record.row(0, 1, 0), record.row(1, 0, 0)];
      take(record, 1, 1);
      return [row, others, record.row(1, 1, 0), record.newestRow]"""
    assert module("runs.js", body) == [[0, 1, 0.2, 0], [None, None], None, {"layer": 1, "head": 0}]


def test_another_run_of_the_same_visit_begins_empty(module: Call) -> None:
    body = f"""{RUN} take(record, 0, 4);
      const [next, stranger] = [m.recordOf({{ visit, run: 2 }}), m.recordOf({{ visit: 'w', run: 1 }})];
      const isTheSame = next === m.recordOf({{ visit, run: 2 }});
      return [next.steps.length, stranger.steps.length, isTheSame, next === record]"""
    assert module("runs.js", body) == [0, 0, True, False]


# What Streamlit does with an element: a call for every news, ended at once if it has been followed meanwhile.
CALLS = """
  const [parent, other] = [document.createElement('div'), document.createElement('div')];
  const ended = [];
  const opened = {};
  const show = m.newestEnds(async ({ name }) => {
    await new Promise((resolve) => { opened[name] = resolve; });
    if (name === 'fails') throw new Error(name);
    return name === 'empty' ? undefined : () => ended.push(name);
  });
  const call = (name, parentElement = parent) => show({ name, parentElement });
"""


def test_news_that_come_while_a_part_loads_do_not_end_it(module: Call) -> None:
    body = f"""{CALLS} const [first, second, next] = [call('first'), call('second'), call('next', other)];
      opened.second(); opened.first(); opened.next();
      (await first)();
      const [end, endOther] = [await second, await next];
      const before = [...ended];
      end(); endOther();
      return [before, ended]"""
    assert module("newest.js", body) == [[], ["second", "next"]]


def test_a_call_that_shows_nothing_ends_nothing(module: Call) -> None:
    body = f"""{CALLS} const [empty, fails] = [call('empty'), call('fails', other)];
      opened.empty(); opened.fails();
      (await empty)();
      return [ended, await fails.catch((error) => error.message)]"""
    assert module("newest.js", body) == [[], "fails"]


PLACES = """
  const wrong = [];
  const say = (is, what, given) => is || wrong.length > 5 || wrong.push(`${what} at ${JSON.stringify(given)}`);
  for (const nColumns of [1, 2, 23, 24, 25, 64, 100, 320, 700, 1024, 2500, 8192]) {
    for (const nLayers of [4, 12, 30, 48, 80]) {
      for (const width of [260, 346, 390, 640, 641, 900, 1400]) {
        const [nReserved, height] = [64 * Math.ceil(nColumns / 64), width > 640 ? 500 : 360];
        const given = { width, nColumns, nReserved, nLayers, height };
        const place = m.layout(given);
        const { left, right, top, bottom, cellWidth, cellHeight, perBin, bins } = place;
        say(left > 0 && right <= width + 1e-6 && top > 0 && bottom < place.height, 'cells beyond the picture', given);
        say(perBin >= 1 && bins * perBin >= nReserved && (bins - 1) * perBin < nReserved, 'bins', given);
        say(cellWidth >= 2 || perBin === 1, 'cells too narrow for K beside V', given);
        say(perBin > 1 === (2 * nReserved > width - left - 10), 'binned without need', given);
        say(bottom - top === cellHeight * nLayers && cellHeight >= 3, 'layers', given);
        for (let position = 0; position < nColumns; position += Math.max(1, Math.floor(nColumns / 97))) {
          const x = m.columnX(place, position);
          say(x >= left && x + cellWidth <= right + 1e-6, 'column', [given, position]);
          for (const layer of [0, 1, nLayers - 1]) {
            const cell = m.cellAt(place, x + cellWidth / 2, top + (layer + 0.5) * cellHeight);
            const isRight = cell?.layer === layer && cell.position === perBin * Math.floor(position / perBin);
            say(isRight, 'cell', [given, position, layer, cell]);
          }
        }
        for (const [x, y] of [[left - 1, top + 1], [right + 1, top + 1], [left + 1, top - 1], [left + 1, bottom + 1]]) {
          say(m.cellAt(place, x, y) === null, 'a cell where there is none', [given, x, y]);
        }
        say(m.layerStep(place) * cellHeight >= 14, 'labels of layers', given);
        say((m.positionStep(place) * cellWidth) / perBin >= 40, 'labels of positions', given);
      }
    }
  }
  return wrong;
"""


def test_every_cell_has_its_place_in_pictures_of_all_sizes(module: Call) -> None:
    assert module("geometry.js", PLACES) == []


def test_a_longer_vector_is_never_the_paler_cell(module: Call) -> None:
    """From the paper towards the colour, level by level, in both themes; the strongest cell has the colour itself."""
    body = """return given.map(([colour, paper]) => {
      const shades = [...Array(256).keys()].map((level) => m.shade(level, colour, paper));
      const towards = (shade) => shade.map((part, i) => Math.sign(colour[i] - paper[i]) * (part - paper[i]));
      const isFurther = (one, other) => towards(one).every((part, i) => part >= towards(other)[i]);
      const isMonotone = shades.slice(1).every((shade, before) => isFurther(shade, shades[before]));
      return [isMonotone, shades[255].join() === colour.join(), shades[0].join() !== paper.join()];
    })"""
    themes = [([15, 111, 181], [255, 255, 255]), ([217, 138, 0], [255, 255, 255]), ([86, 168, 234], [27, 31, 38])]
    assert module("cells.js", body, themes) == [[True, True, True]] * 3


def test_positions_that_share_a_column_show_their_mean(module: Call) -> None:
    body = """const record = { nColumns: () => 5, cell: (position) => 10 * position };
      return [0, 1].map((bin) => m.binLevel(record, bin, 3, 0, 0, 0))"""
    assert module("cells.js", body) == [10, 35]
