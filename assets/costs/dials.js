// Dials: sliders that follow the finger, each with a field for an exact number.

import { el, refill } from '../stage/dom.js';
import { count } from '../stage/numbers.js';

/** The divisors of a whole number, ascending. */
export function divisors(n) {
  return Array.from({ length: n }, (_, index) => index + 1).filter((divisor) => n % divisor === 0);
}

/** The stop nearest to a value, by ratio: 3 lies nearer to 4 than to 2. */
export function nearest(stops, value) {
  const distance = (stop) => Math.abs(Math.log(stop / value));
  return stops.reduce((best, stop) => (distance(stop) < distance(best) ? stop : best), stops[0]);
}

export class Dials {
  constructor(feed) {
    this.feed = feed;
    this.grid = el('div', { class: 'tbt-dials' });
    this.refusal = el('p', { role: 'status' });
    this.root = el('div', {}, this.grid, this.refusal);
    this.rows = new Map();
    this.hear = (sentence) => {
      this.refusal.textContent = sentence;
      this.refusal.className = sentence ? 'tbt-notice tbt-refusal' : '';
    };
    feed.refusals.add(this.hear);
  }

  /** dials: [{name, symbol, label, stops, least, most, of, disabled}]; `of` names the dial it must divide. */
  take({ dials }, t) {
    this.t = t;
    this.specs = dials;
    const names = dials.map(({ name }) => name).join();
    if (names !== this.names) this.build();
    this.names = names;
    for (const spec of dials) this.refresh(spec);
  }

  leave() {
    this.feed.refusals.delete(this.hear);
  }

  build() {
    this.rows.clear();
    refill(this.grid, this.specs.map(({ name, symbol }) => {
      const id = `tbt-dial-${name}`;
      const label = el('label', { for: id, class: 'tbt-dial-label' });
      const range = el('input', { type: 'range', id, min: 0, step: 1, 'data-dial': name });
      const exact = el('input', { type: 'text', inputmode: 'numeric', class: 'tbt-dial-exact', 'data-exact': name, autocomplete: 'off' });
      range.addEventListener('input', () => this.moved(name, this.stopsOf(name)[Number(range.value)]));
      range.addEventListener('change', () => this.released());
      exact.addEventListener('change', () => this.typed(name, exact));
      const row = el('div', { class: 'tbt-dial' }, label, el('i', { class: 'tbt-dial-symbol' }, symbol), range, exact);
      this.rows.set(name, { row, label, range, exact });
      return row;
    }));
  }

  spec(name) {
    return this.specs.find((spec) => spec.name === name);
  }

  value(name) {
    return Number(this.feed.words[name] ?? this.spec(name).value);
  }

  stopsOf(name) {
    const { of, stops } = this.spec(name);
    return of ? divisors(this.value(of)) : stops;
  }

  refresh(spec) {
    const { row, label, range, exact } = this.rows.get(spec.name);
    const stops = this.stopsOf(spec.name);
    const value = this.value(spec.name);
    label.textContent = spec.label;
    row.classList.toggle('tbt-dial-off', Boolean(spec.disabled));
    range.max = stops.length - 1;
    range.value = stops.indexOf(nearest(stops, value));
    range.disabled = exact.disabled = Boolean(spec.disabled);
    range.setAttribute('aria-valuetext', spec.disabled ? this.t('dial_not_one') : count(value));
    range.style.setProperty('--tbt-share', `${stops.length > 1 ? (100 * range.value) / (stops.length - 1) : 0}%`);
    exact.setAttribute('aria-label', this.t('dial_exact', { label: spec.label }));
    if (document.activeElement !== exact) exact.value = spec.disabled ? '–' : count(value);
  }

  /** A dial has a new value: whatever has to divide it follows. */
  moved(name, value) {
    const words = { [name]: value };
    for (const spec of this.specs.filter(({ of }) => of === name)) {
      const follower = nearest(divisors(value), this.value(spec.name));
      if (follower !== this.value(spec.name)) words[spec.name] = follower;
    }
    this.feed.set(words);
    for (const spec of this.specs) this.refresh(spec);
  }

  /** A number that was typed: brought into range, and to a divisor where it has to be one. */
  typed(name, field) {
    const { least, most, of } = this.spec(name);
    const digits = field.value.replace(/[,\s_]/g, '');
    const wanted = /^\d{1,12}$/.test(digits) ? Math.min(most, Math.max(least, Number(digits))) : this.value(name);
    const value = of ? nearest(divisors(this.value(of)), wanted) : wanted;
    field.value = count(value);
    if (value === this.value(name)) return;
    this.moved(name, value);
    this.released();
  }

  released() {
    const values = Object.fromEntries(this.specs.filter(({ disabled }) => !disabled).map(({ name }) => [name, this.value(name)]));
    this.send('released', { ...values, stamp: this.feed.stamp });
  }
}
