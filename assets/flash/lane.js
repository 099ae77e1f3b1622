// One attention: slow memory above with its strips, the n×n square, fast memory below with the tiles in it.

import { el, refill, svg } from '../stage/dom.js';
import { count, scaled } from '../stage/numbers.js';
import { movedIn } from './walk.js';

// Pixels of the drawing, for wide and for narrow rooms: text keeps its size.
const WIDE = { width: 460, strip: 176, second: 226, square: 166, table: 258, chip: 82 };
const NARROW = { width: 320, strip: 112, second: 156, square: 124, table: 182, chip: 94 };
const NARROW_BELOW = 420;
const LEFT = 10;
const SQUARE_LEFT = 28;
const SQUARE_TOP = 120;
const CHIP_HEIGHT = 30;
const GAP = 6;
const WORDS_HEIGHT = 58;
const THIN = ['l', 'm'];
const LEAST_ARROW = 14; // a mark narrower than that has no room for one

const INK = { Q: 'q', K: 'k', V: 'v', O: 'o', S: 's', P: 's', l: 'state', m: 'state' };
const ARROW = { load: '↓', store: '↑' };
const text = (where, attributes) => svg('text', attributes, where);

/** Text that wraps, in a drawing. */
function paragraphs(where, kind, lines) {
  const room = svg('foreignObject', where);
  room.append(el('div', { class: `tbt-flash-text ${kind}` }, lines.map((line) => el('p', {}, line))));
  return room;
}

/** Common to both: the boxes, the strips, the tiles that are held, the counters. */
class Lane {
  constructor(kind) {
    this.kind = kind;
    this.room = WIDE;
    this.picture = svg('svg', { role: 'img', 'data-lane': kind });
    this.title = el('h4', {});
    this.bar = { load: el('i', { class: 'tbt-flash-load' }), store: el('i', { class: 'tbt-flash-store' }) };
    this.counts = el('dl', {});
    this.root = el('section', { class: `tbt-flash-lane tbt-flash-${kind}` }, this.title, this.picture,
      el('div', { class: 'tbt-flash-bar', 'aria-hidden': 'true' }, this.bar.load, this.bar.store), this.counts);
  }

  /** A new record. `most` is the end of both lanes' bars, in elements. */
  take(walks, most, t) {
    Object.assign(this, { walks, n: walks.n, steps: walks[this.kind], most, t });
    this.title.textContent = t(`lane_${this.kind}`);
    this.layOut();
  }

  /** The drawing for the room there is. Returns whether there was anything to do. */
  fit() {
    const isNarrow = this.root.clientWidth > 0 && this.root.clientWidth < NARROW_BELOW;
    if (!this.walks || (this.room === NARROW) === isNarrow) return false;
    this.room = isNarrow ? NARROW : WIDE;
    this.layOut();
    return true;
  }

  layOut() {
    const { t, room } = this;
    const names = this.walks.order === 'key_outer' && this.kind === 'tiled' ? ['Q', 'K', 'V', 'O', ...THIN] : ['Q', 'K', 'V', 'O'];
    const most = Math.max(...this.steps.map(({ held }) => held.length));
    this.chipsInARow = Math.floor((room.width - 2 * LEFT + GAP) / (room.chip + GAP));
    this.fastTop = SQUARE_TOP + room.square + 36;
    this.wordsTop = this.fastTop + 16 + Math.ceil(most / this.chipsInARow) * (CHIP_HEIGHT + GAP);
    this.moving = svg('g', {});
    this.strips = new Map();
    const height = this.wordsTop + WORDS_HEIGHT;
    const box = (y, end, kind) => svg('rect', { x: 1, y, width: room.width - 2, height: end - y, rx: 8, class: `tbt-flash-${kind}` });
    this.picture.setAttribute('viewBox', `0 0 ${room.width} ${height}`);
    refill(this.picture,
      text(t('slow'), { x: LEFT, y: 12, class: 'tbt-flash-box-name' }),
      box(18, this.kind === 'plain' ? SQUARE_TOP + room.square + 17 : 92, 'slow'),
      names.map((name, place) => this.strip(name, place)),
      this.squares(),
      text(t('fast'), { x: LEFT, y: this.fastTop - 6, class: 'tbt-flash-box-name' }),
      box(this.fastTop, height - 1, 'fast'),
      this.moving,
    );
  }

  strip(name, place) {
    const isThin = THIN.includes(name);
    const where = { x: LEFT + 24 + (place % 2) * this.room.second, y: 30 + Math.floor(place / 2) * 24, height: isThin ? 6 : 14 };
    this.strips.set(name, where);
    return svg('g', {},
      text(name, { x: where.x - 8, y: where.y + (isThin ? 7 : 11), 'text-anchor': 'end', class: 'tbt-flash-name' }),
      svg('rect', { x: where.x, y: where.y, width: this.room.strip, height: where.height, rx: 2, class: `tbt-flash-strip tbt-flash-${INK[name]}` }));
  }

  /** Draws the state after `done` steps. */
  draw(done) {
    const { t, steps, most } = this;
    const step = steps[done - 1];
    const [loaded, stored] = step ? [step.loaded, step.stored] : [0, 0];
    this.bar.load.style.width = `${(100 * loaded) / most}%`;
    this.bar.store.style.width = `${(100 * stored) / most}%`;
    refill(this.counts, [['loaded', loaded], ['stored', stored], ['moved', loaded + stored]].map(([name, value]) =>
      el('div', { 'data-count': name }, el('dt', {}, t(name)), el('dd', {}, count(value)))));
    this.picture.setAttribute('aria-label', t(`words_${this.kind}`,
      { done: count(done), total: count(steps.length), loaded: count(loaded), stored: count(stored) }));
    this.fill(done);
    refill(this.moving, step ? [...this.accesses(step), ...this.held(step), this.words(step)] : []);
  }

  /** What the step loads and stores, on the strips of slow memory. */
  accesses(step) {
    return step.accesses.filter(({ name }) => this.strips.has(name)).map(({ kind, name, begin, end }) => {
      const { x, y, height } = this.strips.get(name);
      const left = x + (this.room.strip * begin) / this.n;
      const width = Math.max(3, (this.room.strip * (end - begin)) / this.n);
      const hasArrow = width >= LEAST_ARROW && !THIN.includes(name);
      return svg('g', {},
        svg('rect', { x: left, y: y - 2, width, height: height + 4, rx: 2, class: `tbt-flash-access tbt-flash-access-${kind}` }),
        hasArrow ? text(ARROW[kind], { x: left + width / 2, y: y + 11, 'text-anchor': 'middle', class: 'tbt-flash-arrow' }) : null);
    });
  }

  /** The tiles in fast memory; an arrow where one came or went in this step. */
  held(step) {
    const arrows = (name) => [...new Set(step.accesses.filter((access) => access.name === name).map(({ kind }) => kind))]
      .map((kind) => ARROW[kind]).join('');
    return step.held.map(({ name, begin, end, across }, place) => {
      const x = LEFT + (place % this.chipsInARow) * (this.room.chip + GAP);
      const y = this.fastTop + 12 + Math.floor(place / this.chipsInARow) * (CHIP_HEIGHT + GAP);
      const moved = arrows(name);
      const rows = across
        ? this.t('chip_tile', { rows: count(end - begin), across: count(across) })
        : this.t('chip_rows', { begin: count(begin), end: count(end - 1) });
      const looks = [INK[name], moved && 'moved', across && 'in-work'].filter(Boolean).map((look) => `tbt-flash-${look}`);
      return svg('g', {},
        svg('rect', { x, y, width: this.room.chip, height: CHIP_HEIGHT, rx: 4, class: ['tbt-flash-chip', ...looks].join(' ') }),
        text(`${name} ${moved}`.trim(), { x: x + 7, y: y + 13, class: 'tbt-flash-chip-name' }),
        text(rows, { x: x + 7, y: y + 26, class: 'tbt-flash-chip-rows' }));
    });
  }

  words(step) {
    const { t } = this;
    const moves = t('step_moves', { loaded: scaled(movedIn(step, 'load')), stored: scaled(movedIn(step, 'store')) });
    const [row, m, l, factor] = step.state ?? [];
    const state = step.state ? t('state', { row: count(row), m, l, factor }) : t('state_none');
    const where = { x: LEFT, y: this.wordsTop, width: this.room.width - 2 * LEFT, height: WORDS_HEIGHT };
    return paragraphs(where, 'tbt-flash-said', [moves, state]);
  }

  /** A square's frame with its axes. */
  frame(x, title, kind) {
    const { t, room } = this;
    const middle = SQUARE_TOP + room.square / 2;
    return [
      svg('rect', { x, y: SQUARE_TOP, width: room.square, height: room.square, class: `tbt-flash-square tbt-flash-square-${kind}` }),
      text(title, { x, y: SQUARE_TOP - 6, class: 'tbt-flash-title' }),
      text(`${t('axis_keys')} →`, { x: x + room.square, y: SQUARE_TOP + room.square + 12, 'text-anchor': 'end' }),
      text(`← ${t('axis_queries')}`, { x: x - 5, y: middle, 'text-anchor': 'middle', transform: `rotate(-90 ${x - 5} ${middle})` }),
    ];
  }

  scale(position) {
    return (this.room.square * position) / this.n;
  }
}

/** Tiles walk over a square that exists nowhere. */
export class TiledLane extends Lane {
  constructor() {
    super('tiled');
  }

  squares() {
    const { t, room, steps, n } = this;
    this.tiles = steps.map(({ queries, keys }) => svg('rect', {
      x: SQUARE_LEFT + this.scale(keys[0]), y: SQUARE_TOP + this.scale(queries[0]),
      width: this.scale(keys[1] - keys[0]), height: this.scale(queries[1] - queries[0]), class: 'tbt-flash-tile',
    }));
    this.now = svg('rect', { class: 'tbt-flash-now' });
    const isWhole = steps.reduce((sum, { queries, keys }) => sum + (queries[1] - queries[0]) * (keys[1] - keys[0]), 0) === n * n;
    const beside = SQUARE_LEFT + room.square + 14;
    return [
      svg('defs', {}, svg('pattern', { id: 'tbt-flash-hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
        svg('line', { x1: 0, x2: 0, y1: 0, y2: 6, class: 'tbt-flash-hatch' }))),
      ...this.frame(SQUARE_LEFT, t('never'), 'never'),
      isWhole ? null : svg('rect', { x: SQUARE_LEFT, y: SQUARE_TOP, width: room.square, height: room.square, fill: 'url(#tbt-flash-hatch)' }),
      ...this.tiles,
      this.now,
      paragraphs({ x: beside, y: SQUARE_TOP, width: room.width - beside - LEFT, height: room.square }, 'tbt-flash-beside',
        isWhole ? [t('only_tile')] : [t('only_tile'), t('skipped')]),
    ];
  }

  fill(done) {
    this.tiles.forEach((tile, place) => tile.classList.toggle('tbt-flash-done', place < done));
    const tile = this.tiles[done - 1];
    for (const name of ['x', 'y', 'width', 'height']) this.now.setAttribute(name, tile ? tile.getAttribute(name) : 0);
  }
}

/** Two tables in slow memory, filled and read strip by strip. */
export class PlainLane extends Lane {
  constructor() {
    super('plain');
  }

  squares() {
    const { t, room } = this;
    const table = (x) => ({ x, written: svg('rect', { x, y: SQUARE_TOP, width: room.square, height: 0, class: 'tbt-flash-s tbt-flash-written' }), now: svg('g', {}) });
    this.tables = { S: table(SQUARE_LEFT), P: table(room.table) };
    return Object.entries(this.tables).flatMap(([name, { x, written, now }]) =>
      [...this.frame(x, t(`table_${name.toLowerCase()}`), 'kept'), written, now]);
  }

  fill(done) {
    const { room } = this;
    for (const [name, { x, written, now }] of Object.entries(this.tables)) {
      const rows = this.steps.slice(0, done).flatMap(({ accesses }) => accesses)
        .filter((access) => access.name === name && access.kind === 'store');
      written.setAttribute('height', this.scale(rows.at(-1)?.end ?? 0));
      const touched = this.steps[done - 1]?.accesses.filter((access) => access.name === name) ?? [];
      refill(now, touched.flatMap(({ kind, begin, end }) => [
        svg('rect', { x, y: SQUARE_TOP + this.scale(begin), width: room.square, height: Math.max(2, this.scale(end - begin)), class: 'tbt-flash-now' }),
        text(ARROW[kind], { x: x + room.square / 2, y: SQUARE_TOP + this.scale((begin + end) / 2) + 5, 'text-anchor': 'middle', class: 'tbt-flash-arrow' }),
      ]));
    }
  }
}
