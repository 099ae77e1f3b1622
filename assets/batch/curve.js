// The two curves: how long a step takes at each B, and what all its runs get out of it. Points come as people join.

import { el, refill, svg } from '../stage/dom.js';
import { count, milliseconds } from '../stage/numbers.js';
import { isSolid, rate, roundUp, sentenceOf, titled } from './moment.js';

const HEIGHT = 184;
const LEFT = 40;
const RIGHT = 14;
const TOP = 34;
const BOTTOM = 36;
const LEAST_BATCHES = 4;
const TICKS_UP = 4;
const TICKS_ACROSS = 8;

/** The scale of an axis: its end, and where its ticks stand; at most so many, at least so far apart. */
export function axisOf(largest, most, least = 0) {
  const step = Math.max(least, roundUp(largest / most));
  const ticks = [];
  for (let tick = 0; tick <= largest * (1 + 1e-9); tick += step) ticks.push(Number(tick.toPrecision(12)));
  return { end: largest, ticks };
}

export class Curves {
  constructor() {
    this.title = el('h2', {});
    this.charts = el('div', { class: 'tbt-curves' });
    this.key = el('p', { class: 'tbt-note' });
    this.sentence = el('p', { class: 'tbt-batch-sentence' });
    this.root = el('section', {}, this.title, this.charts, this.key, this.sentence);
  }

  update(moment, t) {
    const { model } = moment;
    Object.assign(this, { model, t });
    this.title.textContent = titled(t('curve_title'), moment);
    const points = model?.by_batch ?? [];
    const [isTakeaway, text] = sentenceOf(points, t);
    this.sentence.textContent = text;
    this.sentence.classList.toggle('tbt-takeaway', isTakeaway);
    this.key.textContent = [
      points.some(({ batch }) => batch === 1) && points.length > 1 ? t('curve_in_turn') : '',
      points.every(isSolid) ? '' : t('curve_few', { least: isSolid.least }),
    ].filter(Boolean).join(' · ');
    this.draw();
  }

  draw() {
    const { model, t } = this;
    const columns = this.charts.clientWidth;
    if (!t || !columns) return;
    const width = columns < 420 ? columns : Math.floor((columns - 16) / 2);
    const points = [...(model?.by_batch ?? [])].sort((one, other) => one.batch - other.batch);
    const drawn = JSON.stringify([width, t('curve_title'), model?.batch, points]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const alone = points.find(({ batch }) => batch === 1);
    const kinds = {
      step: { of: (point) => 1000 * point.step_s, inTurn: (batch) => batch * 1000 * alone.step_s },
      rate: { of: (point) => point.tokens_per_s, inTurn: () => alone.tokens_per_s },
    };
    refill(this.charts, Object.entries(kinds).map(([name, { of, inTurn }]) =>
      this.chart(name, width, points, of, alone ? inTurn : null)));
  }

  chart(name, width, points, of, inTurn) {
    const { model, t } = this;
    const said = (point) => t('curve_point', { batch: point.batch, step: milliseconds(point.step_s), rate: rate(point.tokens_per_s), passes: count(point.n_passes) });
    const across = axisOf(Math.max(LEAST_BATCHES, ...points.map(({ batch }) => batch)), TICKS_ACROSS, 1);
    const up = axisOf(1.12 * Math.max(...points.map(of), Number.EPSILON), TICKS_UP);
    const x = (batch) => LEFT + ((width - LEFT - RIGHT) * batch) / across.end;
    const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / up.end;
    const picture = svg('svg', { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', 'data-curve': name,
      'aria-label': t(`curve_words_${name}`, { points: points.map(said).join('; ') || '–' }) });
    const text = (where, attributes) => svg('text', attributes, where);
    picture.append(
      text(t(`curve_${name}`), { x: 0, y: 12, class: 'tbt-curve-title' }),
      text(t('curve_batch'), { x: width - RIGHT, y: HEIGHT - 3, 'text-anchor': 'end', class: 'tbt-curve-title' }),
      ...(points.length ? up.ticks : [0]).flatMap((tick) => [
        svg('line', { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), class: tick ? 'tbt-curve-grid' : 'tbt-curve-axis' }),
        text(tick.toLocaleString('en-US'), { x: LEFT - 6, y: y(tick) + 4, 'text-anchor': 'end' }),
      ]),
      ...across.ticks.filter((tick) => tick > 0).flatMap((tick) => [
        svg('line', { x1: x(tick), x2: x(tick), y1: y(0), y2: y(0) + 4, class: 'tbt-curve-axis' }),
        text(count(tick), { x: x(tick), y: y(0) + 16, 'text-anchor': 'middle' }),
      ]),
    );
    if (inTurn && points.length > 1) {
      // As far as it stays in the picture.
      const last = name === 'step' ? Math.min(across.end, up.end / inTurn(1)) : across.end;
      picture.append(svg('line', { x1: x(1), y1: y(inTurn(1)), x2: x(last), y2: y(inTurn(last)), class: 'tbt-curve-turn' }));
    }
    const now = points.find(({ batch }) => batch === model?.batch);
    if (now) {
      const [left, top] = [x(now.batch), y(of(now))];
      picture.append(
        svg('line', { x1: left, x2: left, y1: TOP, y2: y(0), class: 'tbt-curve-now' }),
        text(t('curve_now'), { x: left, y: TOP - 5, 'text-anchor': 'middle', class: 'tbt-curve-now-word' }),
        svg('circle', { cx: left, cy: top, r: 7.5, class: 'tbt-curve-ring' }),
      );
    }
    const line = points.map((point) => `${x(point.batch).toFixed(1)},${y(of(point)).toFixed(1)}`).join(' ');
    picture.append(svg('polyline', { points: line, class: 'tbt-curve-line' }));
    for (const point of points) {
      picture.append(svg('circle', { cx: x(point.batch), cy: y(of(point)), r: points.length > 24 ? 2.6 : 3.6,
        class: isSolid(point) ? 'tbt-curve-point' : 'tbt-curve-point tbt-curve-few' }, svg('title', {}, said(point))));
    }
    return picture;
  }
}
