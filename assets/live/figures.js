// What the run has cost so far, as three figures and the sentence that they prove.

import { el } from '../stage/dom.js';
import { count, milliseconds, scaledBytes } from '../stage/numbers.js';
import { secondsOf } from './picture.js';

const LEAST_STEPS = 5; // of which a median tells something
const LONGER = 1.5; // from here on a prefill is said to take longer than a decode step

/** The run in base units; `decode` is the median of its decode steps, null while there is none. */
export function costsOf(record) {
  const [prefill, ...decodes] = record.steps;
  const times = decodes.map(secondsOf).sort((one, other) => one - other);
  const middle = times.length / 2;
  return {
    positions: prefill.new,
    prefill: secondsOf(prefill),
    steps: times.length,
    decode: times.length ? (times[Math.ceil(middle) - 1] + times[Math.floor(middle)]) / 2 : null,
    cached: record.nColumns(),
    bytes: record.steps.at(-1).kv_bytes,
    each: record.positionBytes,
  };
}

/** [name, value, why] of each figure; without a run they wait for their values. */
export function figuresOf(costs, t, units) {
  const texts = costs && {
    positions: count(costs.positions),
    steps: count(costs.steps),
    cached: count(costs.cached),
    each: scaledBytes(costs.each, units),
  };
  const values = costs && {
    prefill: milliseconds(costs.prefill),
    decode: costs.decode === null ? null : milliseconds(costs.decode),
    cache: scaledBytes(costs.bytes, units),
  };
  return ['prefill', 'decode', 'cache'].map((name) =>
    [name, values?.[name] ?? '–', values?.[name] ? t(`${name}_why`, texts) : '\u00a0']);
}

/** What the run proves; nothing before it has enough steps. */
export function takeawayOf(costs, t) {
  if (costs.steps < LEAST_STEPS) return '';
  const ratio = costs.prefill / costs.decode;
  if (ratio < LONGER) return t('takeaway_short');
  return t('takeaway_wait', { positions: count(costs.positions), ratio: ratio.toFixed(1) });
}

/** The picture in words. */
export function inWords(record, costs, t, units) {
  return t('picture_words', {
    model: record.facts.model,
    positions: count(costs.positions),
    prefill: milliseconds(costs.prefill),
    steps: count(costs.steps),
    decode: costs.decode === null ? '–' : milliseconds(costs.decode),
    cached: count(costs.cached),
    bytes: scaledBytes(costs.bytes, units),
  });
}

/** One figure: its value large, what it is, and why it is as it is. */
export class Figure {
  constructor(name) {
    this.value = el('b', {});
    this.what = el('span', {});
    this.why = el('dd', {});
    this.root = el('div', { class: `tbt-live-figure tbt-live-${name}` }, el('dt', {}, this.value, ' ', this.what), this.why);
  }

  update(value, what, why) {
    say(this.value, value);
    say(this.what, what);
    say(this.why, why);
  }
}

/** Sets an element's text where it is another. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
