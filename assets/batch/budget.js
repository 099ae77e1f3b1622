// The memory that all caches share: what they hold, what they may still grow to, what there is.

import { el, refill } from '../stage/dom.js';
import { scaledBytes } from '../stage/numbers.js';

export class Budget {
  constructor() {
    this.title = el('h2', {});
    this.held = el('i', { class: 'tbt-budget-held' });
    this.promised = el('i', { class: 'tbt-budget-promised' });
    this.bar = el('div', { class: 'tbt-budget-bar', 'aria-hidden': 'true' }, this.held, this.promised);
    this.words = el('p', { class: 'tbt-note' });
    this.root = el('section', {}, this.title, this.bar, this.words);
  }

  update({ held_bytes: held, promised_bytes: promised, budget_bytes: total }, t, units) {
    const most = Math.max(total, promised, held, 1);
    const size = (bytes) => scaledBytes(bytes, units);
    this.title.textContent = t('budget_title');
    this.held.style.width = held ? `max(2px, ${(100 * held) / most}%)` : '0';
    this.promised.style.width = `${(100 * Math.max(0, promised - held)) / most}%`;
    const drawn = [t('budget_held', { held: size(held) }), t('budget_promised', { promised: size(promised) }),
      total ? t('budget_total', { total: size(total) }) : t('budget_unlimited')];
    if (drawn.join() === this.drawn) return;
    this.drawn = drawn.join();
    const [heldText, promisedText, totalText] = drawn;
    refill(this.words,
      el('span', { class: 'tbt-batch-key tbt-budget-key-held' }, heldText),
      el('span', { class: 'tbt-batch-key tbt-budget-key-promised' }, promisedText),
      el('span', { class: 'tbt-budget-total' }, totalText));
  }
}
