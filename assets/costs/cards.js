// Figures that follow the dials: name, value, formula with the values in it. A figure opens when it is clicked.

import { el, refill } from '../stage/dom.js';
import { FORMULA, FORMULAS, NUMBER } from './feed.js';
import { count, scaled, scaledBytes, milliseconds, percent } from '../stage/numbers.js';

/** A figure of the estimate by its dotted name: "decode.flops_exact". */
export function figureOf(estimate, name) {
  return name.split('.').reduce((part, key) => part?.[key], estimate);
}

/** A value in a reader's units, with a unit. */
export function written(value, unit, units) {
  if (unit === 'B') return scaledBytes(value, units);
  if (unit === 'FLOP') return `${scaled(value)}FLOP`.replace(/(\d)FLOP/, '$1 FLOP');
  if (unit === 's') return milliseconds(value);
  if (unit === 'FLOP/B') return `${value.toFixed(value < 9.995 ? 2 : 1)} FLOP/B`;
  if (unit === '%') return percent(value);
  return count(value);
}

export class Cards {
  constructor(feed) {
    this.feed = feed;
    this.root = el('div', { class: 'tbt-cards' });
    this.ends = [feed.listen(FORMULAS, ({ formulas }) => this.draw({ formulas }), () => FORMULA)];
  }

  /** cards: [{figure, unit, kind}]; estimate, formulas: as the routes answer, `route` being the one with the figures. */
  take({ cards, estimate, formulas, units, route }, t) {
    if (route !== this.route) {
      this.follows?.();
      this.follows = this.feed.listen(route, (news) => this.draw({ estimate: news }), () => NUMBER);
      this.route = route;
    }
    Object.assign(this, { cards, units, t });
    this.draw({ estimate, formulas });
  }

  leave() {
    for (const end of [...this.ends, this.follows]) end?.();
    this.route = null;
  }

  draw(news) {
    Object.assign(this, news);
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.figure : null;
    refill(this.root, this.cards.map((card) => this.card(card)));
    if (focused) this.root.querySelector(`[data-figure="${CSS.escape(focused)}"]`)?.focus();
  }

  card({ figure, unit, kind }) {
    const value = figureOf(this.estimate, figure);
    const key = figure.replaceAll('.', '_');
    const name = this.t(`card_${key}`);
    const { symbols, values } = this.formulas?.[figure] ?? {};
    const isNumber = typeof value === 'number';
    // Of a card's fit there is no figure without a card, or where nothing grows.
    const without = () => (figure.startsWith('fit.') && this.estimate.fit ? this.t(`any_${key}`) : this.t(`none_${key}`));
    const text = isNumber ? written(value, unit, this.units) : without();
    const shown = isNumber && symbols
      ? el('button', { type: 'button', class: 'tbt-open', 'data-figure': figure, 'aria-label': `${name}: ${text}` }, text)
      : el('span', { 'data-figure': figure }, text);
    if (isNumber && symbols) shown.addEventListener('click', () => this.send('opened', figure));
    // Beyond 2 ** 53 a browser no longer knows the last digits.
    const exact = Number.isSafeInteger(value) && ['B', 'FLOP'].includes(unit) ? `${count(value)} ${unit}` : '';
    return el('section', { class: `tbt-card tbt-cost${kind ? ` tbt-cost-${kind}` : ''}` },
      el('h2', {}, name),
      el('p', { class: 'tbt-number' }, shown),
      el('p', { class: 'tbt-note tbt-cost-exact' }, exact),
      symbols ? el('p', { class: 'tbt-cost-formula' }, el('span', {}, symbols), el('span', {}, `= ${values}`)) : null);
  }
}
