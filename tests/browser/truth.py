"""What a run must show: the same run made by `core` in the test's own process. Of the pages it takes the bytes only."""

from __future__ import annotations

from typing import Any

from core.engine.recorder import RecordConfig
from core.engine.run import Run, RunConfig
from core.engine.steps import generate
from core.engine.trace import Trace
from core.model.load import LanguageModel
from pages.shared import wire
from tests.browser.visitor import Visitor

# Counts the cells of the picture whose middle has another colour than their byte asks for.
WRONG_CELLS = """async ([levels, shape]) => {
  const files = performance.getEntriesByType('resource').map((entry) => entry.name);
  const main = files.find((name) => name.endsWith('/main.js'));
  const { layout, columnX } = await import(new URL('geometry.js', main));
  const { shade } = await import(new URL('cells.js', main));
  const picture = document.querySelector('.tbt-picture');
  const canvas = picture.querySelector('canvas');
  const [width, height] = [canvas.width / devicePixelRatio, canvas.height / devicePixelRatio];
  const place = layout({ ...shape, width, height: width > 640 ? 500 : 360 });
  const probe = picture.appendChild(document.createElement('i'));
  const [k, v, paper] = ['--tbt-k', '--tbt-v', '--tbt-panel'].map((name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const colourAt = (x, y) => {
    const at = 4 * (Math.floor(y * devicePixelRatio) * canvas.width + Math.floor(x * devicePixelRatio));
    return [...pixels.data.slice(at, at + 3)];
  };
  const { nColumns, nLayers, nHeads } = shape;
  const [side, head] = [place.cellWidth / 2, place.cellHeight / nHeads];
  const wrong = [];
  for (let position = 0; position < nColumns; position += 1) {
    for (let part = 0; part < nLayers * 2 * nHeads; part += 1) {
      const [layer, kind, which] = [Math.floor(part / (2 * nHeads)), Math.floor(part / nHeads) % 2, part % nHeads];
      const x = columnX(place, position) + (kind + 0.45) * side;
      const y = place.top + layer * place.cellHeight + (which + 0.45) * head;
      const wanted = shade(levels[position * nLayers * 2 * nHeads + part], kind ? v : k, paper);
      const found = colourAt(x, y);
      const isRight = wanted.every((channel, index) => Math.abs(channel - found[index]) <= 3);
      if (!isRight) wrong.push({ position, part, wanted, found });
    }
  }
  const isWhole = place.height === height;
  return { perBin: place.perBin, isWhole, wrong: wrong.length, first: wrong[0] ?? null };
}"""


class Truth:
    """One greedy run of a prompt, recorded after each step."""

    def __init__(self, model: LanguageModel, prompt: str, max_new: int) -> None:
        ids = model.prompt_ids(prompt, raw=model.chat_template is None)
        run = Run(model, ids, RunConfig(max_new=max_new, record=RecordConfig(kv_norms=True)))
        self.model = model
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
        assert [(chip["position"], chip["id"], chip["label"]) for chip in shown["chips"]] == [
            (position, token_id, label(token_id)) for position, token_id in enumerate(ids)
        ]
        assert [chip["kind"] for chip in shown["chips"]] == ["tbt-prompt"] * n_prompt + ["tbt-produced"] * steps
        assert shown["text"] == trace.text
        assert [row[1:5] + row[8:11] for row in shown["ledger"]] == [
            self._row(trace, number) for number in range(steps)
        ]
        assert f"{n_prompt + steps - 1:,}" in shown["picture"] and str(n_prompt) in shown["picture"]
        drawn = visitor.page.evaluate(WRONG_CELLS, [list(wire.cells(trace, 0)), self._shape(trace)])
        assert drawn == {"perBin": 1, "isWhole": True, "wrong": 0, "first": None}

    def _row(self, trace: Trace, number: int) -> list[str]:
        """Token, positions computed, reused, n, KV bytes by formula and by tensors, their gap."""
        n_prompt, token_id = len(trace.prompt_ids), trace.output_ids[number]
        new, reused = (1, n_prompt + number - 1) if number else (n_prompt, 0)
        counts = (new, reused, new + reused)
        size = f"{self._column_bytes * (new + reused):,}"
        return [self.model.tokenizer.token_label(token_id), *map(str, counts), size, size, "0 B"]

    def _shape(self, trace: Trace) -> dict[str, Any]:
        config, newest = self.model.config, trace.steps[-1]
        return {
            "nColumns": newest.n_tokens,
            "nReserved": newest.kv_reserved_bytes // self._column_bytes,
            "nLayers": config.n_layers,
            "nHeads": config.n_kv_heads,
        }

    @property
    def _column_bytes(self) -> int:
        """2 · L · n_kv · d_h · b_kv"""
        config = self.model.config
        return 2 * config.n_layers * config.n_kv_heads * config.head_dim * self.model.transformer.dtype.itemsize
