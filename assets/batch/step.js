// What a decode step reads: the weights once for everybody, and beside them a cache for every run.

import { el, refill, svg } from '../stage/dom.js';
import { count, scaledBytes } from '../stage/numbers.js';
import { titled } from './moment.js';

const HEIGHT = 30;
const MARK = 9; // below the own cache, with its triangle
const GAP = 8;
const MEAN_CELL = 7;
const MOST_SHARE = 0.45;
const MOST_TIMES = 1024;

/** How the step is drawn in so many pixels: the weights' width, the caches' widths, how much wider these are drawn. */
export function laidOut(weights, caches, width) {
  const kv = caches.reduce((sum, bytes) => sum + bytes, 0);
  const wanted = Math.min(MOST_SHARE * width, Math.max(MEAN_CELL * caches.length, 24));
  let times = 1;
  const scale = () => (width - GAP) / (weights + times * kv);
  while (kv && times < MOST_TIMES && times * kv * scale() < wanted) times *= 2;
  return { times, weights: weights * scale(), caches: caches.map((bytes) => bytes * times * scale()) };
}

export class Step {
  constructor() {
    this.title = el('h2', {});
    this.figure = el('figure', {});
    this.root = el('section', { class: 'tbt-batch-step' }, this.title, this.figure);
  }

  update(moment, t, units) {
    Object.assign(this, { moment, t, units });
    this.title.textContent = titled(t('step_title'), moment);
    this.draw();
  }

  draw() {
    const { moment, t, units } = this;
    const width = this.root.clientWidth;
    if (!moment || !width) return;
    const { model, here, decoding } = moment;
    const cached = here.filter((seat) => seat.kv_bytes > 0);
    const shown = [...cached].sort((one, other) => Number(other.doing === 'decoding') - Number(one.doing === 'decoding'));
    const drawn = JSON.stringify([width, units, t('step_title'), model, shown]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    if (!model?.weight_bytes) {
      refill(this.figure, el('p', { class: 'tbt-note' }, t('step_none')));
      return;
    }
    const place = laidOut(model.weight_bytes, shown.map((seat) => seat.kv_bytes), width);
    const isIdle = !decoding.length;
    const read = shown.filter((seat) => isIdle || seat.doing === 'decoding');
    const kv = read.reduce((sum, seat) => sum + seat.kv_bytes, 0);
    const words = { weights: scaledBytes(model.weight_bytes, units), kv: scaledBytes(kv, units) };
    const picture = svg('svg', { viewBox: `0 0 ${width} ${HEIGHT + MARK}`, width, height: HEIGHT + MARK, role: 'img', 'aria-label': t('step_picture', words) });
    picture.append(svg('rect', { x: 0, y: 0, width: place.weights, height: HEIGHT, rx: 3, class: 'tbt-batch-weights' }));
    let x = place.weights + GAP;
    shown.forEach((seat, index) => {
      picture.append(cacheOf(seat, x, place.caches[index], isIdle));
      x += place.caches[index];
    });
    refill(this.figure, picture, el('figcaption', { class: 'tbt-note' },
      el('span', { class: 'tbt-batch-key tbt-batch-key-weights' }, this.weightsSaid(model, words)),
      kv ? el('span', { class: 'tbt-batch-key tbt-batch-key-kv' }, this.cachesSaid(read, isIdle, words)) : null,
      place.times > 1 ? el('span', {}, t('step_wider', { times: count(place.times) })) : null));
  }

  weightsSaid({ batch, weight_bytes: bytes }, words) {
    if (!batch) return this.t('step_weights_any', words);
    if (batch === 1) return this.t('step_weights_one', words);
    return this.t('step_weights', { ...words, batch: count(batch), share: scaledBytes(Math.round(bytes / batch), this.units) });
  }

  cachesSaid(read, isIdle, words) {
    if (isIdle) return this.t('step_kv_would', words);
    return read.length === 1 ? this.t('step_kv_one', words) : this.t('step_kv', { ...words, runs: count(read.length) });
  }
}

/** One run's keys above its values; pale when it takes no part in the step, with a mark when it is the visitor's own. */
function cacheOf({ doing, isOwn }, x, width, isIdle) {
  const wide = Math.max(0.5, width - Math.min(2, width / 4));
  const part = (name, y) => svg('rect', { x, y, width: wide, height: HEIGHT / 2, class: name });
  const middle = x + wide / 2;
  return svg('g', { class: isIdle || doing === 'decoding' ? null : 'tbt-batch-pale', 'data-own': isOwn },
    part('tbt-batch-k', 0), part('tbt-batch-v', HEIGHT / 2),
    isOwn ? svg('path', { d: `M${middle} ${HEIGHT + 2}l4.5 6.5h-9z`, class: 'tbt-batch-own' }) : null);
}
