// A cell looked at: where it lies, and its real K and V as bars. Pinned, it is compared again after every later step.

import { vectorsOf } from './api.js';
import { el } from './dom.js';
import { count, visible } from './numbers.js';

const AGAIN_MS = 400; // a pinned cell is asked for at most so often
const BAR_HEIGHT = 54;

export class Inspector {
  constructor(picture) {
    this.picture = picture;
    this.cell = null;
    this.vectors = null;
    this.pinned = null; // {vectors, steps} of the cell as it was when it was pinned
    this.title = el('h3', {});
    this.pin = el('button', { type: 'button', class: 'tbt-button tbt-pin' });
    this.close = el('button', { type: 'button', class: 'tbt-button tbt-close' });
    this.canvas = el('canvas', { role: 'img' });
    this.note = el('p', { class: 'tbt-note', role: 'status' });
    const head = el('header', {}, this.title, this.pin, this.close);
    this.root = el('div', { class: 'tbt-inspector', hidden: true }, head, this.canvas, this.note);
    this.pin.addEventListener('click', () => this.togglePin());
    this.close.addEventListener('click', () => picture.look(null));
  }

  /** Layer, position, token, head, norms and bytes of a cell, as a text. */
  describe({ position, layer, head }) {
    const { record, t } = this.picture.stage;
    const { head_dim: width, element_bytes: bytes, n_kv_heads: heads } = record.facts;
    return t('cell', {
      layer, position: count(position), head, heads,
      token: visible(record.tokens[position][1]),
      k: record.norm(position, layer, 0, head).toFixed(2),
      v: record.norm(position, layer, 1, head).toFixed(2),
      bytes: count(2 * width * bytes), width, element: bytes,
    });
  }

  look(cell) {
    const { record } = this.picture.stage;
    const key = cell && `${record.visit} ${record.number} ${cell.position} ${cell.layer} ${cell.head}`;
    if (key === this.key) return;
    Object.assign(this, { cell, key, vectors: null, pinned: null, asked: '' });
    this.root.hidden = !cell;
    if (cell) this.fetch();
  }

  update(stage) {
    if (!this.cell) return;
    const { t } = stage;
    this.title.textContent = this.describe(this.cell);
    this.pin.textContent = t(this.pinned ? 'unpin' : 'pin');
    this.pin.setAttribute('aria-pressed', String(Boolean(this.pinned)));
    this.pin.hidden = !this.vectors;
    this.close.textContent = t('close');
    this.canvas.setAttribute('aria-label', t('cell_bars', { width: stage.record.facts.head_dim }));
    if (this.pinned && this.asked !== `${this.key} ${stage.record.version}`) this.fetchLater();
    this.draw(stage);
  }

  togglePin() {
    this.pinned = this.pinned ? null : { vectors: this.vectors, steps: this.picture.stage.record.steps.length };
    this.update(this.picture.stage);
  }

  fetchLater() {
    if (!this.later) this.later = setTimeout(() => { this.later = null; this.fetch(); }, AGAIN_MS);
  }

  async fetch() {
    const { cell, key } = this;
    if (!cell) return;
    const { record, header } = this.picture.stage;
    this.asked = `${key} ${record.version}`;
    // Without a cache there is nothing to ask for, and of a run out of a file nobody to ask.
    const canAsk = record.facts.use_cache && !header.replay;
    const vectors = canAsk ? await vectorsOf(record.visit, cell).catch(() => null) : null;
    if (this.key !== key) return;
    this.vectors = vectors;
    this.update(this.picture.stage);
  }

  draw(stage) {
    const { t, record } = stage;
    this.canvas.hidden = !this.vectors;
    if (!this.vectors) {
      this.note.textContent = this.asked ? t(stage.header.replay ? 'cell_not_in_file' : 'cell_none') : '';
      return;
    }
    this.note.textContent = this.pinned ? this.compared(t, record) : t('cell_dtype', { dtype: this.vectors.dtype });
    const width = Math.floor(this.root.clientWidth);
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: 2 * BAR_HEIGHT * ratio });
    this.canvas.style.height = `${2 * BAR_HEIGHT}px`;
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { colours } = this.picture;
    if (!colours) return;
    bars(context, this.vectors.k, 0, width, colours.k, colours, 'K');
    bars(context, this.vectors.v, BAR_HEIGHT, width, colours.v, colours, 'V');
  }

  /** What a pinned cell shows: how far it is from what it was. */
  compared(t, record) {
    const differences = ['k', 'v'].flatMap((kind) =>
      this.vectors[kind].map((value, index) => Math.abs(value - this.pinned.vectors[kind][index])));
    const values = { difference: Math.max(...differences), steps: record.steps.length - this.pinned.steps };
    return t(values.steps === 1 ? 'cell_pinned_one' : 'cell_pinned', values);
  }
}

/** A vector as bars around a line of zero; the largest value takes the whole height. */
function bars(context, vector, top, width, colour, colours, name) {
  const most = Math.max(...vector.map(Math.abs), 1e-9);
  const [left, middle] = [64, top + BAR_HEIGHT / 2];
  const each = (width - left) / vector.length;
  context.fillStyle = colours.muted;
  context.font = colours.small;
  context.fillText(`${name} ±${most.toPrecision(3)}`, 0, middle + 4);
  context.fillStyle = colours.line;
  context.fillRect(left, middle, width - left, 1);
  context.fillStyle = colour;
  vector.forEach((value, index) => {
    const height = (value / most) * (BAR_HEIGHT / 2 - 3);
    context.fillRect(left + index * each, Math.min(middle, middle - height), Math.max(1, each - 1), Math.abs(height));
  });
}
