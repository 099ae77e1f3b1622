// The thin line: who is here, who decodes, what comes out of it; or the one thing that matters more at this moment.

import { el, refill } from '../stage/dom.js';
import { count, scaledBytes } from '../stage/numbers.js';
import { rate } from './moment.js';

const MARK = '\u0001'; // stands for B in a text until the text is cut there
const MOST_DOTS = 48;
const ORDER = ['decoding', 'prefilling', 'queued', 'resting'];
const SILENT_AFTER = 2; // one answer that does not come is no news

/** The line as [name, text] parts; `kind` says what it is about. */
export function lineOf(moment, failures, t, units) {
  if (failures >= SILENT_AFTER) return { kind: 'silent', parts: [['said', t('line_silent')]] };
  if (!moment) return { kind: 'asking', parts: [['said', t('line_asking')]] };
  const { own, measuring } = moment;
  if (own?.doing === 'queued') {
    const said = own.place > 1 ? t('line_waits', { place: own.place }) : t('line_waits_next');
    return { kind: 'waits', parts: [['said', said], ['caches', caches(moment, t, units)]] };
  }
  if (measuring) {
    const values = { point: Math.min(measuring.n_done + 1, measuring.n_points), points: measuring.n_points };
    return { kind: 'measuring', parts: [['said', t('line_measuring', values)]] };
  }
  const parts = [
    ['people', people(moment, t)],
    ['home', moment.hasHome ? t('line_home') : ''],
    ['decoding', decoding(moment, t)],
    ['rate', together(moment, t)],
    ['caches', caches(moment, t, units)],
    ['queue', t('line_queue', { queued: count(moment.n_queued) })],
  ];
  return { kind: 'batch', parts: parts.filter(([, text]) => text) };
}

function people({ people: all, peopleHere, nModels, model }, t) {
  if (all === 1) return t('line_alone');
  if (nModels < 2) return t('line_people', { people: count(all) });
  return t('line_people_models', { people: count(all), here: count(peopleHere), model: model.model });
}

function decoding({ decoding: seats, model, own }, t) {
  const [n, batch] = [seats.length, model?.batch ?? 0];
  if (!n) return t('line_idle');
  if (!batch) return n === 1 ? t('line_stalled_one') : t('line_stalled', { decoding: count(n) });
  if (n !== batch) return t('line_pass', { decoding: count(n), batch: count(batch), b: MARK });
  if (n > 1) return t('line_decoding', { decoding: count(n), b: MARK });
  return t(own?.doing === 'decoding' ? 'line_you_decode' : 'line_one_decodes', { b: MARK });
}

function together({ decoding: seats, model }, t) {
  if (!seats.length || !model.tokens_per_s) return '';
  if (seats.length === 1) return t('line_rate', { rate: rate(model.tokens_per_s) });
  return t('line_rate_each', { rate: rate(model.tokens_per_s), each: rate(model.tokens_per_s / seats.length) });
}

function caches({ held_bytes: held, budget_bytes: budget }, t, units) {
  const values = { held: scaledBytes(held, units), budget: scaledBytes(budget, units) };
  return t(budget ? 'line_caches' : 'line_caches_alone', values);
}

export class Line {
  constructor() {
    this.text = el('span', { class: 'tbt-batch-line' });
    this.dots = el('span', { class: 'tbt-batch-dots', 'aria-hidden': 'true' });
  }

  /** Returns what is worth being said aloud: nothing of what merely changes from second to second. */
  update(moment, failures, t, units) {
    const { kind, parts } = lineOf(moment, failures, t, units);
    const drawn = JSON.stringify([kind, parts, moment?.model?.batch]);
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      this.text.dataset.kind = kind;
      const between = kind === 'batch' ? ' · ' : ' '; // a sentence has its full stop
      refill(this.text, parts.map(([name, text], place) =>
        el('span', { 'data-part': name }, place ? between : null, withBatch(text, moment))));
    }
    this.drawDots(kind === 'silent' ? null : moment);
    return ['waits', 'measuring'].includes(kind) ? parts[0][1] : '';
  }

  /** One dot a run; those that decode come first, so that they can be counted. */
  drawDots(moment) {
    const seats = [...(moment?.seats ?? [])].sort((one, other) => ORDER.indexOf(one.doing) - ORDER.indexOf(other.doing));
    const names = seats.slice(0, MOST_DOTS).map(dotClass);
    const more = seats.length > MOST_DOTS ? `+${seats.length - MOST_DOTS}` : null;
    const drawn = `${names.join()} ${more}`;
    if (drawn === this.drawnDots) return;
    this.drawnDots = drawn;
    refill(this.dots, names.map((name) => el('i', { class: name })), more);
  }
}

/** The dot of a run: what it does, and whether it is the visitor's own. */
export function dotClass({ doing, isOwn }) {
  return `tbt-dot tbt-dot-${doing}${isOwn ? ' tbt-dot-own' : ''}`;
}

function withBatch(text, moment) {
  const [before, after] = text.split(MARK);
  return after === undefined ? [text] : [before, el('b', { class: 'tbt-decode-ink' }, `B = ${moment.model.batch}`), after];
}
