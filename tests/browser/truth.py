"""What a run must show: the same run made by `core` in the test's own process. Of the pages it takes the bytes only."""

from __future__ import annotations

import numpy as np

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.engine.trace import Trace
from core.model.load import LanguageModel
from pages.shared import wire
from tests.browser.visitor import Visitor

# What the stage has drawn: each cell's byte as its colour says, the attention row, and where the picture stands.
# Counts the cells whose middle has another colour than their byte asks for.
DRAWN = """async ([levels]) => {
  const files = performance.getEntriesByType('resource').map((entry) => entry.name);
  const main = files.find((name) => name.endsWith('/stage/main.js'));
  const stage = (await import(main)).all()[0];
  const { columnX } = await import(new URL('geometry.js', main));
  const { shade } = await import(new URL('cells.js', main));
  const { picture, record, timeline } = stage;
  const { place, cells: { canvas } } = picture;
  const [k, v, paper] = ['--tbt-k', '--tbt-v', '--tbt-panel'].map((name) => {
    picture.probe.style.color = `var(${name})`;
    return getComputedStyle(picture.probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  });
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const colourAt = (x, y) => {
    const at = 4 * (Math.floor(y * devicePixelRatio) * canvas.width + Math.floor(x * devicePixelRatio));
    return [...pixels.data.slice(at, at + 3)];
  };
  const { n_layers: layers, n_kv_heads: heads } = record.facts;
  const [side, head] = [place.cellWidth / 2, place.cellHeight / heads];
  const wrong = [];
  for (let position = 0; position < record.nColumns(); position += 1) {
    for (let part = 0; part < layers * 2 * heads; part += 1) {
      const [layer, kind, which] = [Math.floor(part / (2 * heads)), Math.floor(part / heads) % 2, part % heads];
      const x = columnX(place, position) + (kind + 0.45) * side;
      const y = place.top + layer * place.cellHeight + (which + 0.45) * head;
      const wanted = shade(levels[position * layers * 2 * heads + part], kind ? v : k, paper);
      const found = colourAt(x, y);
      const isRight = wanted.every((channel, index) => Math.abs(channel - found[index]) <= 3);
      if (!isRight) wrong.push({ position, part, wanted, found });
    }
  }
  const step = record.steps.length - 1;
  const { layer, head: queryHead } = picture.head.focus;
  return {
    perBin: place.perBin, wrong: wrong.length, first: wrong[0] ?? null, columns: record.nColumns(), at: timeline.at,
    focus: [layer, queryHead], attention: [...(record.row(step, layer, queryHead)?.weights ?? [])],
    bytes: [record.steps[step].kv_bytes, record.steps[step].kv_reserved],
  };
}"""


class Truth:
    """One greedy run of a prompt, recorded after each step."""

    def __init__(self, model: LanguageModel, prompt: str, max_new: int) -> None:
        ids = model.prompt_ids(prompt, raw=model.chat_template is None)
        run = Run(model, ids, RunConfig(max_new=max_new, record=RecordConfig(kv_norms=True, queries=True)))
        self.model, self.run = model, run
        self.traces: list[Trace] = [run.trace]
        for _ in generate(model, run):
            self.traces.append(run.trace)

    @property
    def n_steps(self) -> int:
        """Steps until the run stops by itself."""
        return len(self.traces) - 1

    def check(self, visitor: Visitor, steps: int) -> None:
        """Holds a screen against this run after so many steps: tokens, text, ledger, picture."""
        trace, shown = self.traces[steps], visitor.screen()
        label, n_prompt = self.model.tokenizer.token_label, len(trace.prompt_ids)
        ids = [*trace.prompt_ids, *trace.output_ids]
        assert shown["steps"] == steps
        assert [(chip["position"], chip["id"], chip["label"].replace("␣", " ")) for chip in shown["chips"]] == [
            (position, token_id, label(token_id)) for position, token_id in enumerate(ids)
        ]
        assert [chip["kind"] for chip in shown["chips"]] == ["tbt-prompt"] * n_prompt + ["tbt-produced"] * steps
        assert shown["text"] == trace.text
        assert [row[1:5] + row[8:11] for row in shown["ledger"]] == [
            self._row(trace, number) for number in range(steps)
        ]
        assert f"{n_prompt + steps - 1:,}" in shown["picture"] and str(n_prompt) in shown["picture"]
        drawn = visitor.page.evaluate(DRAWN, [list(wire.cells(trace, 0))])
        assert (drawn["perBin"], drawn["wrong"], drawn["first"]) == (1, 0, None)
        assert (drawn["columns"], drawn["at"]) == (n_prompt + steps - 1, steps)
        newest = trace.steps[-1]
        assert drawn["bytes"] == [newest.kv_bytes, newest.kv_reserved_bytes]
        true = self.run.attention(steps - 1, *drawn["focus"]).weights
        # Two bytes a weight, and another process's products: fp16 weights, other blocks of rows.
        assert np.abs(np.array(drawn["attention"]) - true).max() < 2e-3 and len(drawn["attention"]) == len(true)

    def _row(self, trace: Trace, number: int) -> list[str]:
        """Token, positions computed, reused, n, KV bytes by formula and by tensors, their gap."""
        n_prompt, token_id = len(trace.prompt_ids), trace.output_ids[number]
        new, reused = (1, n_prompt + number - 1) if number else (n_prompt, 0)
        counts = (new, reused, new + reused)
        size = f"{self._column_bytes * (new + reused):,}"
        return [self.model.tokenizer.token_label(token_id), *map(str, counts), size, size, "0 B"]

    @property
    def _column_bytes(self) -> int:
        """2 · L · n_kv · d_h · b_kv"""
        config = self.model.config
        return 2 * config.n_layers * config.n_kv_heads * config.head_dim * self.model.transformer.dtype.itemsize
