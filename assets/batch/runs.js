// The runs in the engine, one row each: what it does, its cache to scale, what it gets. Rows keep their places.

import { el, refill } from '../stage/dom.js';
import { count, scaledBytes } from '../stage/numbers.js';
import { dotClass } from './line.js';
import { rate } from './moment.js';

const SHORTEST_SCALE = 64;

/** The end of the bars' scale: a power of two that holds the longest cache. */
export function scaleOf(seats) {
  const longest = Math.max(SHORTEST_SCALE, ...seats.map(({ n_tokens: n, n_prefix: prefix }) => Math.max(n, prefix)));
  return 2 ** Math.ceil(Math.log2(longest));
}

export class Runs {
  constructor() {
    this.title = el('h2', {});
    this.head = el('tr', {});
    this.body = el('tbody', {});
    this.none = el('p', { class: 'tbt-note' });
    const table = el('table', { class: 'tbt-runs' }, el('thead', {}, this.head), this.body);
    this.box = el('div', { class: 'tbt-runs-box', tabindex: 0, role: 'region' }, table, this.none);
    this.root = el('section', { class: 'tbt-runs-all' }, this.title, this.box);
    this.rows = new Map(); // by tag; a visitor's second run by tag and number
  }

  update({ seats, nModels }, t, units) {
    const scale = scaleOf(seats);
    this.title.textContent = t('runs_title');
    this.box.setAttribute('aria-label', t('runs_title'));
    this.root.classList.toggle('tbt-runs-models', nModels > 1);
    this.none.textContent = seats.length ? '' : t('runs_none');
    const titles = ['doing', 'model', 'n', 'kv', 'rate'].map((name) => t(`runs_column_${name}`));
    const drawn = `${titles.join()} ${scale}`;
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      const end = el('span', { 'aria-hidden': 'true' }, count(scale));
      refill(this.head, titles.map((title, place) => el('th', { scope: 'col' }, title, place === 2 ? end : null)));
    }
    this.head.parentElement.hidden = !seats.length;
    const before = this.rows;
    this.rows = new Map();
    for (const seat of seats) {
      let key = seat.tag;
      while (this.rows.has(key)) key += '+';
      const row = before.get(key) ?? new Row();
      this.rows.set(key, row);
      row.update(seat, scale, t, units);
    }
    const wanted = [...this.rows.values()].map((row) => row.root);
    if (wanted.some((row, place) => row !== this.body.children[place]) || wanted.length !== this.body.children.length) {
      this.body.replaceChildren(...wanted);
    }
  }
}

class Row {
  constructor() {
    this.dot = el('i', { 'aria-hidden': 'true' });
    this.doing = el('span', {});
    this.you = el('b', { class: 'tbt-you' });
    this.model = el('td', {});
    this.fill = el('i', {});
    this.track = el('i', {}, this.fill);
    this.n = el('span', {});
    this.kv = el('td', {});
    this.rate = el('td', {});
    const bar = el('span', { class: 'tbt-runs-bar', 'aria-hidden': 'true' }, this.track);
    this.root = el('tr', {},
      el('td', {}, this.dot, this.doing, ' ', this.you), this.model,
      el('td', {}, el('span', { class: 'tbt-runs-n' }, bar, this.n)), this.kv, this.rate);
  }

  update(seat, scale, t, units) {
    const { doing, isOwn, isHome, n_tokens: n, n_prefix: prefix, place } = seat;
    this.root.classList.toggle('tbt-runs-own', isOwn);
    this.root.dataset.doing = doing;
    this.dot.className = dotClass(seat);
    say(this.doing, t(`doing_${doing}`, { done: count(n), positions: count(prefix), place }));
    say(this.you, isOwn ? t('runs_you') : isHome ? t('runs_home') : '');
    say(this.model, seat.model);
    say(this.n, doing === 'queued' ? '–' : count(n));
    say(this.kv, doing === 'queued' ? '–' : scaledBytes(seat.kv_bytes, units));
    say(this.rate, doing === 'decoding' ? rate(seat.tokens_per_s) : '–');
    const whole = Math.max(n, prefix);
    this.track.style.width = `${(100 * whole) / scale}%`;
    this.fill.style.width = `${whole ? (100 * n) / whole : 0}%`;
  }
}

function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
