// The ledger: one row a step, chapter, exact and measured side by side with the gap between them.

import { el, figure, refill } from './dom.js';
import { count, gapPercent, milliseconds, scaled, scaledBytes } from './numbers.js';

const COLUMNS = [
  'step', 'token', 'computed', 'reused', 'n', 'flop_chapter', 'flop_exact', 'flop_gap', 'kv_formula', 'kv_tensors',
  'kv_gap', 'bytes_read', 'time',
];

export class Ledger {
  constructor() {
    this.title = el('h2', {});
    this.head = el('tr', {});
    this.rows = el('tbody', {});
    this.box = el(
      'div', { class: 'tbt-scroll tbt-newest', tabindex: 0, role: 'region' },
      el('table', { class: 'tbt-table' }, el('thead', {}, this.head), this.rows),
    );
    this.root = el('section', { class: 'tbt-card tbt-ledger' }, this.title, this.box);
    this.drawn = { record: null, words: '', steps: [] };
  }

  update({ header, record, t, shown }) {
    const words = `${header.language} ${header.units}`;
    const { drawn } = this;
    if (drawn.words !== words) {
      this.title.textContent = t('ledger');
      this.box.setAttribute('aria-label', t('ledger'));
      refill(this.head, COLUMNS.map((column) => el('th', { scope: 'col' }, t(`column_${column}`))));
    }
    // Rows whose step is still the same object stay as they are; what differs from there on is drawn anew.
    let same = 0;
    if (drawn.record === record && drawn.words === words) {
      while (same < drawn.steps.length && drawn.steps[same] === record.steps[same]) same += 1;
    }
    while (this.rows.children.length > same) this.rows.lastChild.remove();
    record.steps.slice(same).forEach((step, index) => this.rows.append(row(step, same + index, header.units, t)));
    this.drawn = { record, words, steps: [...record.steps] };
    this.mark(shown);
    if (same < record.steps.length) this.box.scrollTop = 0;
  }

  /** Marks the row of the step shown. Only its figures are stops for the keyboard. */
  mark(shown) {
    const now = this.rows.children[shown] ?? null;
    if (this.marked === now) return;
    for (const [row, isNow] of [[this.marked, false], [now, true]]) {
      row?.toggleAttribute('data-shown', isNow);
      row?.querySelectorAll('button').forEach((button) => { button.tabIndex = isNow ? 0 : -1; });
    }
    this.marked = now;
  }
}

/** What a step is called: "Prefill", "Decode 3", "Recompute 3". */
export function stepName(step, number, t) {
  const name = t(`phase_${step.phase}`);
  return step.phase === 'prefill' ? name : `${name} ${number + (step.phase === 'recompute' ? 1 : 0)}`;
}

function row(step, number, units, t) {
  const open = (name, text) => figure(t, name, number, text, false);
  const values = [
    el('span', { class: `tbt-${step.phase}-ink` }, stepName(step, number, t)),
    el('bdi', { class: 'tbt-mono' }, step.token ? step.token[1] : ''),
    count(step.new),
    count(step.reused),
    count(step.n_tokens),
    open('flops_chapter', scaled(step.flops_chapter)),
    open('flops_exact', scaled(step.flops_exact)),
    gapPercent(step.flops_chapter, step.flops_exact),
    open('kv_formula', count(step.kv_formula)),
    open('kv_tensors', count(step.kv_bytes)),
    `${count(step.kv_bytes - step.kv_formula)} B`,
    open('bytes_read', scaledBytes(step.bytes_read, units)),
    open('step_time', milliseconds(step.model_s + step.sampling_s)),
  ];
  return el('tr', {}, values.map((value) => el('td', {}, value)));
}
