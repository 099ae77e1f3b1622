// The cache as a picture: a canvas that shows the record at a moment, the timeline below it, and the same in words.

import { attentionOf } from './api.js';
import { attentionMap } from './act.js';
import { caption } from './caption.js';
import { CellLayer } from './cells.js';
import { el } from './dom.js';
import { cellAt, layout, pictureHeight } from './geometry.js';
import { Inspector } from './inspector.js';
import { stepName } from './ledger.js';
import { count } from './numbers.js';
import { paint } from './paint.js';
import { PictureHead } from './picture_head.js';
import { sceneAt } from './scene.js';
import { Shapes } from './shapes.js';
import { readColours } from './theme.js';
import { Timebar } from './timebar.js';

const REST_MS = 160;

export class Picture {
  constructor(stage) {
    this.stage = stage;
    this.cell = null; // the cell looked at: {position, layer, head}
    this.width = 0; // nothing is painted before it is measured
    this.head = new PictureHead(this);
    this.cells = new CellLayer();
    this.canvas = el('canvas', { role: 'img' });
    this.tip = el('div', { class: 'tbt-tip', 'aria-hidden': 'true', hidden: true });
    this.view = el('div', { class: 'tbt-view', tabindex: 0, role: 'application' }, this.canvas, this.tip);
    this.probe = el('i', { class: 'tbt-probe', 'aria-hidden': 'true' });
    this.spoken = el('p', { class: 'tbt-spoken', role: 'status' });
    this.note = el('p', { class: 'tbt-note' });
    this.caption = el('p', { class: 'tbt-note tbt-caption' });
    this.shapes = new Shapes();
    this.timebar = new Timebar(stage);
    this.inspector = new Inspector(this);
    const parts = [this.head.root, this.view, this.timebar.root, this.note, this.shapes.root, this.caption];
    this.root = el('section', { class: 'tbt-card tbt-picture' }, parts, this.inspector.root, this.probe, this.spoken);
    this.view.addEventListener('keydown', (event) => this.keyed(event));
    this.canvas.addEventListener('click', (event) => this.look(this.at(event)));
    this.canvas.addEventListener('pointermove', (event) => this.hover(this.at(event), event));
    this.canvas.addEventListener('pointerleave', () => this.hover(null));
    // Sizes and colours are read when they change, not for each frame: reading them makes the page lay itself out.
    this.watch = new ResizeObserver(() => this.measure());
    this.watch.observe(this.root);
    this.measured = () => this.measure();
    window.addEventListener('resize', this.measured);
  }

  /** Texts and controls; the canvas follows in `paint`. */
  update(stage) {
    const { record, t } = stage;
    this.head.update(stage);
    this.shapes.update(record, Math.max(0, stage.shown), t);
    if (this.cell && this.cell.position >= record.nColumns(stage.shown + 1)) this.look(null);
    this.view.setAttribute('aria-label', t('picture_keys'));
    this.inspector.update(stage);
  }

  paint(stage) {
    const { record, t, selected } = stage;
    const { width, height } = this;
    if (!record?.steps.length || width < 80) return;
    const { facts } = record;
    const newest = record.steps[record.steps.length - 1];
    const nReserved = newest.kv_reserved / record.positionBytes;
    const nColumns = record.nColumns();
    const place = layout({ width, height, nColumns, nReserved, nLayers: facts.n_layers });
    this.place = place;
    const ratio = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(place.width * ratio), Math.round(place.height * ratio)];
    if (this.canvas.width !== across || this.canvas.height !== down) {
      Object.assign(this.canvas, { width: across, height: down });
      this.canvas.style.height = `${place.height}px`;
    }
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.colours ??= readColours(this.probe, this.root);
    const { colours } = this;
    const scene = sceneAt(record.steps, stage.timeline.at);
    const isMap = this.head.shown === 'attention';
    this.cells.update(place, record, isMap ? 'both' : this.head.shown, colours, ratio);
    const row = this.row(scene);
    paint(context, place, record, scene, { cells: this.cells, row, colours, selected, cell: this.cell, ratio, t });
    if (isMap) this.paintMap(context, place, scene, colours);
    this.timebar.update(stage, scene);
    this.say(place, scene, nReserved, row !== null);
    const painted = String(record.steps.length);
    if (stage.root.dataset.painted !== painted) stage.root.dataset.painted = painted;
  }

  /** The attention row to draw; asked for when it has not come with its step. Without a cache there is none. */
  row(scene) {
    if (scene.step === null || !this.stage.record.facts.use_cache) return null;
    const { layer, head } = this.head.focus;
    return this.stage.record.row(scene.step, layer, head) ?? this.fetched(scene.step, layer, head);
  }

  paintMap(context, place, scene, colours) {
    if (scene.step === null || !this.stage.record.facts.use_cache) return;
    const { head } = this.head.focus;
    const map = this.stage.record.row(scene.step, -1, head) ?? this.fetched(scene.step, -1, head);
    if (map) attentionMap(context, place, map.weights, colours);
  }

  measure() {
    this.width = Math.floor(this.root.clientWidth - 32);
    this.height = pictureHeight(this.width, window.innerHeight);
    this.stage.wish();
  }

  /** Asks the server for a row when the picture has rested there, once; not for the steps that rush past. */
  fetched(step, layer, head) {
    const { record, header } = this.stage;
    if (header.replay) return null; // what a file does not hold nobody has
    const key = `${record.visit} ${record.number} ${step} ${layer} ${head}`;
    if (this.wanted === key) return null;
    this.wanted = key;
    clearTimeout(this.rested);
    this.rested = setTimeout(() => this.fetch(record, { step, layer, head }, key), REST_MS);
    return null;
  }

  fetch(record, { step, layer, head }, key) {
    attentionOf(record.visit, { step, layer, head })
      .then((bytes) => {
        record.keepRow({ step, layer, head }, bytes);
        this.stage.wish();
      })
      .catch(() => undefined) // the run is gone: the picture stays without the row
      .finally(() => { if (this.wanted === key) this.wanted = null; });
  }

  /** The picture in words: for a screen reader, and as the caption below it. */
  say(place, scene, nReserved, isSeen) {
    const { record, t, header } = this.stage;
    this.note.textContent = place.perBin > 1 ? t('picture_bins', { count: place.perBin }) : '';
    this.note.hidden = place.perBin === 1;
    const words = record.facts.use_cache ? 'picture_words' : 'picture_words_no_cache';
    const counts = { columns: scene.nColumns, reserved: nReserved, prompt: record.steps[0].n_tokens };
    const shown = Object.fromEntries(Object.entries(counts).map(([name, value]) => [name, count(value)]));
    const label = t(words, { layers: record.facts.n_layers, ...shown });
    if (this.canvas.getAttribute('aria-label') !== label) this.canvas.setAttribute('aria-label', label);
    const text = caption(record, scene, this.head.focus, t, { isSeen: isSeen || !header.replay });
    if (this.caption.textContent !== text) this.caption.textContent = text;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { record, shown } = this.stage;
    const cell = this.place && cellAt(this.place, event.clientX - box.left, event.clientY - box.top);
    if (!cell || cell.position >= record.nColumns(shown + 1)) return null;
    return { ...cell, head: Math.min(record.facts.n_kv_heads - 1, Math.floor(cell.inside * record.facts.n_kv_heads)) };
  }

  hover(cell, event) {
    this.tip.hidden = !cell;
    if (!cell) return;
    const text = this.inspector.describe(cell);
    if (this.tip.textContent !== text) this.tip.textContent = text;
    const box = this.view.getBoundingClientRect();
    const x = Math.min(event.clientX - box.left + 14, box.width - this.tip.offsetWidth - 4);
    this.tip.style.transform = `translate(${Math.max(0, x)}px, ${event.clientY - box.top + 16}px)`;
  }

  /** Looks at a cell: its vectors are shown, its token is chosen. */
  look(cell) {
    this.cell = cell;
    if (cell) this.stage.selected = cell.position;
    this.inspector.look(cell);
    this.stage.wish();
  }

  keyed(event) {
    const { stage, cell } = this;
    const { timeline, record, t } = stage;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === ' ') stage.click('play');
    else if (event.key === 'Home') stage.lookAt(1);
    else if (event.key === 'End') stage.lookAt(timeline.total);
    else if (event.key === 'Escape' && cell) this.look(null);
    else if (event.key === 'Enter' && !cell) {
      this.look({ position: record.nColumns(stage.shown + 1) - 1, layer: this.head.focus.layer, head: 0 });
    } else if (arrows && cell) {
      const position = Math.max(0, Math.min(record.nColumns(stage.shown + 1) - 1, cell.position + arrows[0]));
      const layer = Math.max(0, Math.min(record.facts.n_layers - 1, cell.layer + arrows[1]));
      this.look({ ...cell, position, layer });
    } else if (arrows && arrows[0]) stage.lookAt(Math.round(timeline.at) + arrows[0]);
    else return;
    event.preventDefault();
    const step = stage.record.steps[Math.max(0, stage.shown)];
    const moment = stepName(step, Math.max(0, stage.shown), t);
    this.spoken.textContent = this.cell ? this.inspector.describe(this.cell) : moment;
  }

  end() {
    this.watch.disconnect();
    window.removeEventListener('resize', this.measured);
    clearTimeout(this.rested);
  }
}
