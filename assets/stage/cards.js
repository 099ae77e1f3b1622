// The figures beside the picture: memory, latency, where the newest token came from.

import { el, figure, refill } from './dom.js';
import { count, milliseconds, percent, scaledBytes, visible } from './numbers.js';

export class Cards {
  constructor() {
    this.memory = el('section', { class: 'tbt-card tbt-memory' });
    this.latency = el('section', { class: 'tbt-card tbt-latency' });
    this.next = el('section', { class: 'tbt-card tbt-next' });
    this.root = el('div', { class: 'tbt-column' }, this.memory, this.latency, this.next);
  }

  /** The figures as they stood after the step shown. */
  update({ header, record, t, shown }) {
    const last = Math.max(0, shown);
    const { facts } = record;
    const steps = record.steps.slice(0, last + 1);
    refill(this.memory, memory({ facts, steps }, last, header.units, t));
    refill(this.latency, latency({ facts, steps }, t));
    refill(this.next, candidates({ facts, steps }, last, t));
  }
}

/** M_KV by its formula and by the tensors' own bytes, the gap between them; used against reserved. */
function memory({ facts, steps }, last, units, t) {
  const step = steps[last];
  const title = el('h2', {}, t('memory'));
  if (!facts.use_cache) return [title, el('p', { class: 'tbt-number' }, '0 B'), note(t('memory_no_cache'))];
  const perPosition = step.kv_formula / step.n_tokens;
  const nReserved = step.kv_reserved / perPosition;
  const share = (100 * step.kv_bytes) / step.kv_reserved;
  const factors = [2, 1, facts.n_layers, facts.n_kv_heads, count(step.n_tokens), facts.head_dim, facts.element_bytes];
  return [
    title,
    el(
      'p', { class: 'tbt-number' },
      figure(t, 'kv_tensors', last, `${count(step.kv_bytes)} B`), ' ',
      el('small', {}, scaledBytes(step.kv_bytes, units)),
    ),
    note(
      t('formula'), ' 2·B·L·n', el('sub', {}, 'kv'), '·n·d', el('sub', {}, 'h'), `·b = ${factors.join('·')} = `,
      figure(t, 'kv_formula', last, count(step.kv_formula)),
    ),
    note(
      t('tensors'), ' ', figure(t, 'kv_tensors', last, count(step.kv_bytes)), ` · ${t('gap')} `,
      el('b', { class: 'tbt-prefill-ink' }, `${count(step.kv_bytes - step.kv_formula)} B`),
    ),
    el('div', { class: 'tbt-bar' }, el('i', { class: 'tbt-used', style: `width:${share.toFixed(2)}%` })),
    el(
      'p', { class: 'tbt-note tbt-ends' },
      el('span', {}, t('used', { count: count(step.n_tokens), bytes: scaledBytes(step.kv_bytes, units) })),
      el(
        'span', {},
        t('reserved', { count: count(nReserved) }), ' ',
        figure(t, 'kv_reserved', last, scaledBytes(step.kv_reserved, units)),
      ),
    ),
  ];
}

/** TTFT with its parts, and TPOT. */
function latency({ facts, steps }, t) {
  const first = steps[0];
  const before = { waiting: facts.waiting_s, tokenising: facts.tokenising_s };
  const parts = { ...before, model: first.model_s, sampling: first.sampling_s };
  const toFirst = Object.values(parts).reduce((total, seconds) => total + seconds, 0);
  const nOutputs = steps.filter((step) => step.token).length;
  const rest = steps.slice(1).reduce((total, step) => total + step.model_s + step.sampling_s, 0);
  const perToken = nOutputs > 1 ? rest / (nOutputs - 1) : null;
  const summands = Object.entries(parts).map(([name, seconds]) => `${t(`part_${name}`)} ${milliseconds(seconds)}`);
  const division = `(${milliseconds(toFirst + rest)} − ${milliseconds(toFirst)}) / (${nOutputs} − 1)`;
  const last = steps.length - 1;
  const headed = (label, ink, value) =>
    el('div', {}, el('p', { class: 'tbt-label' }, label), el('p', { class: `tbt-number ${ink}` }, value));
  return [
    el('h2', {}, t('latency')),
    el(
      'div', { class: 'tbt-pair' },
      headed(t('ttft'), 'tbt-prefill-ink', figure(t, 'ttft', 0, milliseconds(toFirst))),
      headed(t('tpot'), 'tbt-decode-ink', perToken === null ? '–' : figure(t, 'tpot', last, milliseconds(perToken))),
    ),
    note(el('b', {}, 'TTFT'), ` = ${summands.join(' + ')}`),
    note(el('b', {}, 'TPOT'), ` = ${perToken === null ? t('tpot_wait') : division}`),
  ];
}

/** The likeliest tokens: the model's own probability, and what temperature, top-k and top-p make of it. */
function candidates({ facts, steps }, last, t) {
  const step = steps[last];
  if (!step.token) return [];
  const rows = step.candidates.map(([id, label, before, after, kept], rank) =>
    el(
      'tr', { class: id === step.token[0] ? 'tbt-chosen' : kept ? '' : 'tbt-cut' },
      el('td', {}, el('bdi', { class: 'tbt-mono' }, label.trim() ? label : visible(label))),
      el('td', {}, el('span', { class: 'tbt-twin' }, bar('tbt-before', before), bar('tbt-after', after))),
      el('td', {}, figure(t, `model_probability_${rank}`, last, percent(before))),
      el('td', {}, figure(t, `drawn_probability_${rank}`, last, kept ? percent(after) : t('filtered_away'))),
    ));
  const isListed = step.candidates.some(([id]) => id === step.token[0]);
  const heads = [t('column_token'), '', t('before_filters'), t('after_filters')];
  return [
    el('h2', {}, t('candidates')),
    el(
      'table', { class: 'tbt-candidates' },
      el('thead', {}, el('tr', {}, heads.map((head) => (head ? el('th', { scope: 'col' }, head) : el('td', {}))))),
      el('tbody', {}, rows),
    ),
    isListed ? null : note(t('chosen_beyond', { token: step.token[1] })),
    note(facts.greedy ? t('kept_greedy') : t('kept', { count: count(step.kept), share: percent(step.kept_mass) })),
  ];
}

function note(...parts) {
  return el('p', { class: 'tbt-note' }, ...parts);
}

function bar(kind, share) {
  return el('i', { class: kind, style: `width:${(100 * share).toFixed(2)}%` });
}
