// The run as a picture: above, how long each step took; below, what it put into the cache. Both over the positions that
// the step computed, so that the prefill is one wide bar and each decode step a narrow one.

import { axisOf } from '../batch/curve.js';
import { CellLayer } from '../stage/cells.js';
import { el } from '../stage/dom.js';
import { readColours } from '../stage/theme.js';

const LEFT = 46;
const RIGHT = 4;
const TOP = 20;
const TIME_HEIGHT = 74;
const BETWEEN = 10;
const CACHE_HEIGHT = 120;
const TICKS = 3;

export class Picture {
  constructor() {
    this.canvas = el('canvas', { role: 'img' });
    this.probe = el('i', { class: 'tbt-probe', 'aria-hidden': 'true' });
    this.root = el('div', { class: 'tbt-live-picture' }, this.canvas, this.probe);
    this.cells = new CellLayer();
  }

  /** Draws the run; an empty picture where nothing of it has come. */
  draw(record, header, t) {
    const width = Math.floor(this.root.clientWidth);
    if (width < 80) return;
    const height = TOP + TIME_HEIGHT + BETWEEN + CACHE_HEIGHT;
    const ratio = window.devicePixelRatio || 1;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== across || this.canvas.height !== down) Object.assign(this.canvas, { width: across, height: down });
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const colours = readColours(this.probe, this.root);
    const top = TOP + TIME_HEIGHT + BETWEEN;
    const inner = width - LEFT - RIGHT;
    context.fillStyle = colours.reserved;
    context.fillRect(LEFT, top, inner, CACHE_HEIGHT);
    if (!record?.steps.length) return;
    const layers = record.facts.n_layers;
    const bins = Math.max(header.most_columns, record.nColumns());
    const place = { width, height, left: LEFT, top, bottom: top + CACHE_HEIGHT, bins, perBin: 1,
      cellWidth: inner / bins, cellHeight: CACHE_HEIGHT / layers };
    this.cells.update(place, record, 'both', colours, ratio);
    context.drawImage(this.cells.canvas, 0, 0, width, height);
    this.times(context, place, record, colours, t);
    this.letters(context, colours, 'right');
    context.fillText('0', LEFT - 6, top + 10);
    context.fillText(String(layers - 1), LEFT - 6, place.bottom - 2);
    context.fillText(t('axis_cache'), LEFT - 6, (top + place.bottom) / 2 + 4);
  }

  /** A bar a step: as wide as the positions it computed, as high as it was long. */
  times(context, place, record, colours, t) {
    const { left, cellWidth, width } = place;
    const bottom = TOP + TIME_HEIGHT;
    const ms = record.steps.map(secondsOf).map((seconds) => 1000 * seconds);
    const axis = axisOf(1.04 * Math.max(...ms), TICKS);
    const y = (value) => bottom - (TIME_HEIGHT * value) / axis.end;
    this.letters(context, colours, 'right');
    for (const tick of axis.ticks) {
      context.fillStyle = colours.line;
      context.fillRect(left, Math.round(y(tick)) - 0.5, width - RIGHT - left, 1);
      context.fillStyle = colours.muted;
      context.fillText(tick.toLocaleString('en-US'), left - 6, y(tick) + 4);
    }
    this.letters(context, colours, 'left');
    context.fillText(t('axis_time'), 0, 12);
    record.steps.forEach((step, index) => {
      const from = index ? record.steps[index - 1].n_tokens : 0;
      const [x, end] = [left + from * cellWidth, left + step.n_tokens * cellWidth];
      context.fillStyle = index ? colours.decode : colours.prefill;
      context.fillRect(x, y(ms[index]), Math.max(1, end - x - (cellWidth > 4 ? 1.5 : 0.5)), bottom - y(ms[index]));
    });
  }

  letters(context, { muted, small }, align) {
    Object.assign(context, { fillStyle: muted, textAlign: align, font: small });
  }
}

/** What a step took: its pass through the model and the choice of its token. */
export function secondsOf(step) {
  return step.model_s + step.sampling_s;
}
