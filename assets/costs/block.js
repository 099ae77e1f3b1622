// The bytes as areas, to one scale: the weights once, and a block of keys and values for every sequence.

import { el, refill, svg } from '../stage/dom.js';
import { NUMBER } from './feed.js';
import { scaledBytes } from '../stage/numbers.js';

const MOST_BLOCKS = 256;

/** How the blocks lie: rows and columns of B equal blocks in a field of this ratio, and how many are drawn as one. */
export function laidOut(batch, ratio) {
  const together = Math.ceil(batch / MOST_BLOCKS);
  const blocks = Math.ceil(batch / together);
  const columns = Math.max(1, Math.min(blocks, Math.round(Math.sqrt(blocks * ratio))));
  return { together, blocks, columns, rows: Math.ceil(blocks / columns) };
}

/** The side of a square of so many bytes, in pixels, at `bytesPerPixel` bytes a square pixel. */
export function side(bytes, bytesPerPixel) {
  return Math.sqrt(bytes / bytesPerPixel);
}

/** Bytes a square pixel, a power of two: everything fits, and the scale stands still while little changes. */
export function scaleFor(totalBytes, squarePixels) {
  return 2 ** Math.ceil(Math.log2(totalBytes / squarePixels));
}

export class Block {
  constructor(feed) {
    this.feed = feed;
    this.root = el('figure', { class: 'tbt-block' });
    this.ends = [feed.listen('estimate', (estimate) => this.draw({ estimate }), () => NUMBER)];
  }

  /** `latent`: a position leaves one latent, not keys and values. */
  take({ estimate, units, latent }, t) {
    Object.assign(this, { units, latent, t });
    this.draw({ estimate });
    this.observer ??= new ResizeObserver(() => this.draw({}));
    this.observer.observe(this.root);
  }

  leave() {
    for (const end of this.ends) end();
    this.observer?.disconnect();
  }

  draw(news) {
    Object.assign(this, news);
    const width = this.root.clientWidth;
    if (!width || !this.estimate) return;
    const { weight_bytes: weights, kv_bytes: kv, fit } = this.estimate;
    const batch = Number(this.feed.words.batch ?? 1);
    const height = 170;
    const capacity = fit?.capacity_bytes ?? 0;
    const scale = scaleFor(Math.max(weights + kv, capacity), 0.94 * width * (height - 30));
    const words = { weights: scaledBytes(weights, this.units), kv: scaledBytes(kv, this.units) };
    const picture = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': this.t('block_alt', words) });
    const tall = height - 30;
    const column = (bytes) => bytes / scale / tall; // width of a full-height column of so many bytes
    const kvWidth = column(kv);
    const weightsWidth = column(weights);
    picture.append(svg('rect', { x: 0, y: 0, width: Math.max(1, weightsWidth), height: tall, class: 'tbt-area-weights' }));
    this.blocks(picture, weightsWidth, kvWidth, tall, batch);
    if (capacity) {
      const x = column(capacity);
      picture.append(svg('line', { x1: x, x2: x, y1: -1, y2: tall + 6, class: 'tbt-area-capacity' }));
    }
    const unitBytes = 4 ** Math.floor(Math.log(scale * 900) / Math.log(4));
    const square = side(unitBytes, scale);
    picture.append(svg('rect', { x: 1, y: height - 1 - square, width: square, height: square, class: 'tbt-area-unit' }));
    const legend = el('figcaption', { class: 'tbt-note' },
      el('span', { class: 'tbt-key tbt-key-weights' }, `${this.t('block_weights')} ${words.weights}`),
      this.latent
        ? el('span', { class: 'tbt-key tbt-key-k' }, `${this.t('block_latent')} ${words.kv}`)
        : [el('span', { class: 'tbt-key tbt-key-k' }, this.t('block_k')), el('span', { class: 'tbt-key tbt-key-v' }, `${this.t('block_v')} ${words.kv}`)],
      capacity ? el('span', { class: 'tbt-key tbt-key-capacity' }, `${this.t('block_capacity')} ${scaledBytes(capacity, this.units)}`) : null,
      el('span', { class: 'tbt-key tbt-key-unit' }, this.t('block_unit', { bytes: scaledBytes(unitBytes, this.units) })));
    refill(this.root, picture, legend);
  }

  blocks(picture, x, width, height, batch) {
    const { blocks, columns, rows } = laidOut(batch, Math.max(0.02, width / height));
    const [wide, high] = [width / columns, height / rows];
    const gap = Math.min(1.5, wide / 6, high / 6);
    const at = (name, left, top, w, h) => svg('rect', { x: left, y: top, width: Math.max(0.2, w), height: Math.max(0.2, h), class: name });
    for (let place = 0; place < blocks; place += 1) {
      const left = x + Math.floor(place / rows) * wide;
      const top = (place % rows) * high;
      const keys = this.latent ? high - gap : (high - gap) / 2;
      picture.append(at('tbt-area-k', left, top, wide - gap, keys));
      if (!this.latent) picture.append(at('tbt-area-v', left, top + keys, wide - gap, keys));
    }
  }
}
