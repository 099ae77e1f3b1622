// Both lanes with one clock: play, pause, step, slider. Nothing moves before somebody asks for it.

import { el, icon } from '../stage/dom.js';
import { count } from '../stage/numbers.js';
import { PlainLane, TiledLane } from './lane.js';
import { walksOf } from './walk.js';

const PLAY_MS = 14_000;
const LEAST_MS = 70;
const CALM_MS = 900; // between two pictures where motion is unwanted
const CALM_PICTURES = 16;
const PATHS = { play: 'M8 5v14l11-7z', pause: 'M6 5h4v14H6zM14 5h4v14h-4z', back: 'M6 5h2v14H6zM20 5v14l-10-7z', forward: 'M16 5h2v14h-2zM4 5v14l10-7z' };

export class View {
  constructor() {
    this.lanes = [new TiledLane(), new PlainLane()];
    const button = (name, act) => {
      const made = el('button', { type: 'button', class: 'tbt-flash-button', 'data-act': name }, icon(PATHS[name]));
      made.addEventListener('click', act);
      return made;
    };
    this.play = button('play', () => (this.timer ? this.pause() : this.start()));
    this.back = button('back', () => this.seek(this.done - 1));
    this.forward = button('forward', () => this.seek(this.done + 1));
    this.slider = el('input', { type: 'range', min: 0, step: 1 });
    this.slider.addEventListener('input', () => this.seek(Number(this.slider.value)));
    this.said = el('p', { class: 'tbt-flash-step' });
    this.root = el('figure', { class: 'tbt-flash' },
      el('div', { class: 'tbt-flash-controls' }, this.back, this.play, this.forward, this.slider, this.said),
      el('div', { class: 'tbt-flash-lanes' }, this.lanes.map(({ root }) => root)));
    this.done = 0;
    this.timer = null;
    new ResizeObserver(() => {
      if (this.lanes.filter((lane) => lane.fit()).length) this.draw();
    }).observe(this.root);
  }

  /** data: the record, and the language. The same record in another language keeps its place. */
  take({ language, ...record }, t) {
    const taken = JSON.stringify(record);
    const isNew = taken !== this.taken;
    if (!isNew && t === this.t) return;
    if (isNew) this.pause();
    Object.assign(this, { taken, t, walks: walksOf(record) });
    this.total = this.walks.tiled.length;
    if (isNew) this.done = Math.ceil(this.total / 2) - 1;
    const most = Math.max(...this.lanes.map(({ kind }) => this.walks[kind].at(-1)).map((last) => last.loaded + last.stored));
    for (const lane of this.lanes) lane.take(this.walks, most, t);
    this.slider.max = this.total;
    this.slider.setAttribute('aria-label', t('place'));
    this.back.setAttribute('aria-label', t('back'));
    this.forward.setAttribute('aria-label', t('forward'));
    this.name();
    this.draw();
  }

  start() {
    if (this.done >= this.total) this.done = 0;
    const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const stride = isCalm ? Math.ceil(this.total / CALM_PICTURES) : Math.ceil((this.total * LEAST_MS) / PLAY_MS);
    const pause = isCalm ? CALM_MS : Math.min(900, (PLAY_MS * stride) / this.total);
    this.timer = setInterval(() => {
      this.done = Math.min(this.total, this.done + stride);
      this.draw();
      if (this.done === this.total || !this.root.isConnected) this.pause();
    }, pause);
    this.name();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.t) this.name();
  }

  seek(done) {
    this.pause();
    this.done = Math.max(0, Math.min(this.total, done));
    this.draw();
  }

  /** The button says what it would do. */
  name() {
    const name = this.timer ? 'pause' : 'play';
    this.play.replaceChildren(icon(PATHS[name]));
    this.play.setAttribute('aria-label', this.t(name));
  }

  draw() {
    const { t, done, total, walks } = this;
    for (const lane of this.lanes) lane.draw(Math.round((done / total) * walks[lane.kind].length));
    const { queries, keys } = walks.tiled[done - 1] ?? {};
    const said = done
      ? t('at_step', { done: count(done), total: count(total), q_begin: count(queries[0]), q_end: count(queries[1] - 1), k_begin: count(keys[0]), k_end: count(keys[1] - 1) })
      : t('at_start', { total: count(total) });
    this.said.textContent = said;
    this.slider.value = done;
    this.slider.setAttribute('aria-valuetext', said);
    this.slider.style.setProperty('--tbt-share', `${(100 * done) / total}%`);
    this.back.disabled = done === 0;
    this.forward.disabled = done === total;
  }
}
