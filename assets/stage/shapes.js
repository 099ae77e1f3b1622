// The shapes of the tensors that meet in each layer of a step.

import { el, figure, refill } from './dom.js';

export class Shapes {
  constructor() {
    this.root = el('div', { class: 'tbt-shapes' });
  }

  update({ facts, steps }, shown, t) {
    const { new: nNew, n_tokens: n } = steps[shown];
    const state = `${t('attention_weights')} ${shown} ${nNew} ${n}`;
    if (this.root.dataset.state === state) return;
    this.root.dataset.state = state;
    const q = `Q [1, ${facts.n_heads}, ${nNew}, ${facts.head_dim}]`;
    const weights = `${t('attention_weights')} [1, ${facts.n_heads}, ${nNew}, ${n}]`;
    const past = (letter) => `${letter} [1, ${facts.n_kv_heads}, ${n}, ${facts.head_dim}]`;
    refill(
      this.root,
      el('span', { class: 'tbt-q' }, q),
      el('span', {}, '×'),
      el('span', { class: 'tbt-k' }, past('K')),
      el('span', {}, '→'),
      el('span', { class: 'tbt-a' }, figure(t, 'attended_pairs', shown, weights)),
      el('span', {}, '×'),
      el('span', { class: 'tbt-v' }, past('V')),
    );
  }
}
