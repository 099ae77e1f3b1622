// The cache as a picture: a canvas that follows the record, and the same in words.

import { CellLayer, kindsOf } from './cells.js';
import { el, figure, refill } from './dom.js';
import { cellAt, layout } from './geometry.js';
import { count } from './numbers.js';
import { paint } from './paint.js';

const INKS = {
  ink: '--tbt-ink',
  muted: '--tbt-muted',
  line: '--tbt-line',
  prefill: '--tbt-prefill',
  prefillInk: '--tbt-prefill-ink',
  decode: '--tbt-decode',
  weights: '--tbt-weights',
  weightsInk: '--tbt-weights-ink',
  reserved: '--tbt-reserved',
};

export class Picture {
  constructor(stage) {
    this.stage = stage;
    this.shown = 'both';
    this.title = el('h2', {});
    this.legend = el('p', { class: 'tbt-note tbt-legend' });
    this.switch = el('div', { class: 'tbt-switch', role: 'group' });
    this.canvas = el('canvas', { role: 'img' });
    this.cells = new CellLayer();
    this.probe = el('i', { class: 'tbt-probe', 'aria-hidden': true });
    this.note = el('p', { class: 'tbt-note' });
    this.shapes = el('div', { class: 'tbt-shapes' });
    this.names = el('p', { class: 'tbt-note' });
    this.root = el(
      'section',
      { class: 'tbt-card tbt-picture' },
      el('header', {}, this.title, this.switch, this.legend),
      this.canvas,
      this.probe,
      this.note,
      this.shapes,
      this.names,
    );
    this.canvas.addEventListener('click', (event) => this.pressed(event));
    this.watch = new ResizeObserver(() => this.wish());
    this.watch.observe(this.root);
  }

  update(stage) {
    const { header, record, t } = stage;
    this.title.textContent = t('picture');
    const perCell = t('heads_per_cell', { count: record.facts.n_kv_heads });
    refill(this.legend, `${t('picture_axes')} · ${perCell}`);
    this.drawSwitch(header, t);
    this.drawShapes(record, t);
    this.wish();
  }

  /** Paints with the next frame of the screen; several wishes cost one painting. */
  wish() {
    if (this.wished) return;
    this.wished = requestAnimationFrame(() => {
      this.wished = 0;
      this.paint();
    });
  }

  paint() {
    const { header, record, t, selected } = this.stage;
    const width = Math.floor(this.root.clientWidth - 32);
    if (!record?.steps.length || !header.total || width < 80) return;
    const { facts } = record;
    const newest = record.steps[record.steps.length - 1];
    const columnBytes = 2 * facts.n_layers * facts.n_kv_heads * facts.head_dim * facts.element_bytes;
    const nReserved = newest.kv_reserved / columnBytes;
    const height = width > 640 ? 500 : 360;
    const place = layout({ width, height, nColumns: record.nColumns, nReserved, nLayers: facts.n_layers });
    this.place = place;
    const ratio = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(place.width * ratio), Math.round(place.height * ratio)];
    if (this.canvas.width !== across || this.canvas.height !== down) {
      Object.assign(this.canvas, { width: across, height: down });
      this.canvas.style.height = `${place.height}px`;
    }
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colours = this.colours();
    this.cells.update(place, record, this.shown, colours, ratio);
    paint(context, place, record, { cells: this.cells, colours, selected, t });
    this.note.textContent = place.perBin > 1 ? t('picture_bins', { count: place.perBin }) : '';
    this.note.hidden = place.perBin === 1;
    const words = facts.use_cache ? 'picture_words' : 'picture_words_no_cache';
    const counts = { columns: record.nColumns, reserved: nReserved, prompt: record.steps[0].n_tokens };
    const shown = Object.fromEntries(Object.entries(counts).map(([name, value]) => [name, count(value)]));
    this.canvas.setAttribute('aria-label', t(words, { layers: facts.n_layers, ...shown }));
    this.stage.root.dataset.painted = header.total;
  }

  /** The colours of the theme at this moment: a canvas knows no CSS. */
  colours() {
    const read = (name) => {
      this.probe.style.color = `var(${name})`;
      return getComputedStyle(this.probe).color;
    };
    const channels = (name) => read(name).match(/[\d.]+/g).slice(0, 3).map(Number);
    const family = getComputedStyle(this.root).fontFamily;
    const colours = Object.fromEntries(Object.entries(INKS).map(([key, name]) => [key, read(name)]));
    return {
      ...colours,
      kinds: [channels('--tbt-k'), channels('--tbt-v')],
      paper: channels('--tbt-panel'),
      small: `12px ${family}`,
      bold: `600 13px ${family}`,
    };
  }

  drawSwitch({ language }, t) {
    const state = `${language} ${this.shown}`;
    if (this.switch.dataset.state === state) return;
    this.switch.dataset.state = state;
    this.switch.setAttribute('aria-label', t('picture_switch'));
    const buttons = ['both', 'k', 'v'].map((shown) => {
      const marks = kindsOf(shown).map((kind) => el('i', { class: kind ? 'tbt-mark-v' : 'tbt-mark-k' }));
      const pressed = String(shown === this.shown);
      const button = el('button', { type: 'button', 'aria-pressed': pressed }, marks, t(`show_${shown}`));
      button.addEventListener('click', () => {
        this.shown = shown;
        this.update(this.stage);
        this.switch.querySelector('[aria-pressed=true]').focus();
      });
      return button;
    });
    refill(this.switch, buttons);
  }

  /** The shapes of the tensors that met in each layer of the newest step. */
  drawShapes({ facts, steps }, t) {
    const { new: nNew, n_tokens: n } = steps[steps.length - 1];
    const q = `Q [1, ${facts.n_heads}, ${nNew}, ${facts.head_dim}]`;
    const weights = `${t('attention_weights')} [1, ${facts.n_heads}, ${nNew}, ${n}]`;
    const past = (letter) => `${letter} [1, ${facts.n_kv_heads}, ${n}, ${facts.head_dim}]`;
    refill(
      this.shapes,
      el('span', { class: 'tbt-q' }, q),
      el('span', {}, '×'),
      el('span', { class: 'tbt-k' }, past('K')),
      el('span', {}, '→'),
      el('span', { class: 'tbt-a' }, figure('attended_pairs', steps.length - 1, weights)),
      el('span', {}, '×'),
      el('span', { class: 'tbt-v' }, past('V')),
    );
    this.names.textContent = t(nNew > 1 ? 'shape_names_prefill' : 'shape_names');
  }

  pressed(event) {
    const box = this.canvas.getBoundingClientRect();
    const cell = this.place && cellAt(this.place, event.clientX - box.left, event.clientY - box.top);
    if (cell && cell.position < this.stage.record.tokens.length) this.stage.choose(cell.position);
  }

  end() {
    this.watch.disconnect();
    cancelAnimationFrame(this.wished);
  }
}
