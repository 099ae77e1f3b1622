// One stage: a run's record, the moment of it that is shown, and everything drawn from these two.

import { Asking } from './asking.js';
import { Bar } from './bar.js';
import { Cards } from './cards.js';
import { el, keepingFocus, whenDialogCloses } from './dom.js';
import { readFrame } from './frame.js';
import { Ledger } from './ledger.js';
import { Picture } from './picture.js';
import { Player } from './player.js';
import { recordOf } from './runs.js';
import { Strip } from './strip.js';
import { formerVisit, remember } from './tab.js';
import { takeaway } from './takeaway.js';
import { Timeline, stepMs } from './timeline.js';

const WHATEVER = -2; // what an event has seen when steps were streaming past
const DOUBLE_CLICK_MS = 250;
const ORPHAN_MS = 2000;
const TEXTS_MS = 90;
const PROMPT = '.st-key-prompt textarea';
const MOST_EMPTY = 5; // then playing is over
const STEP_MS = 1100; // how long one step by hand is shown

export class Stage {
  constructor() {
    this.root = el('div', { class: 'tbt-stage' });
    this.greeted = false;
    this.drawnAt = -Infinity;
    this.lastClick = { action: '', at: -Infinity };
    this.asking = new Asking(this);
    this.selected = null; // the position chosen in the strip; null: the newest
    this.playing = false;
    this.nEmpty = 0; // streams in a row that brought no step
    this.streamedTo = -1;
    this.timeline = new Timeline();
    this.player = new Player({
      take: (bytes) => this.takeStep(bytes),
      ended: () => this.streamed(),
      broken: () => this.ask(this.playing ? 'look' : 'decode', { force: true }), // playing goes on with the answer
    });
    this.bar = new Bar(this);
    this.strip = new Strip(this);
    this.picture = new Picture(this);
    this.cards = new Cards(this);
    this.ledger = new Ledger(this);
    this.empty = el('p', { class: 'tbt-empty' });
    this.takeaway = el('p', { class: 'tbt-takeaway' });
    const parts = [this.picture.root, this.cards.root, this.ledger.root, this.takeaway];
    this.body = el('div', { class: 'tbt-body' }, parts);
    const top = el('section', { class: 'tbt-card tbt-top' }, this.bar.root, this.strip.root);
    this.root.append(top, this.empty, this.body);
    this.root.addEventListener('click', (event) => this.opened(event));
  }

  /** The event that waits for its answer. */
  get asked() {
    return this.asking.event;
  }

  /** Puts the stage, as it stands, into the element that the page has for it now. */
  moveTo(parent) {
    clearTimeout(this.orphaned);
    if (this.root.parentElement !== parent) parent.append(this.root);
  }

  /** Its element is gone. Ends the stage unless another one takes it in. */
  left(parent, forget) {
    if (this.root.parentElement !== parent) return;
    this.orphaned = setTimeout(() => {
      this.end();
      forget();
    }, ORPHAN_MS);
  }

  /** Takes a frame of the page in: what can be pressed now, and the steps that are new. */
  take(header, body, t) {
    if (this.refreshed(header)) return;
    const record = recordOf(header);
    if (!record.take(header, body)) {
      this.record = record;
      this.ask('look', { force: true });
      return;
    }
    const sameRun = this.record === record && record.steps.length > 0;
    Object.assign(this, { header, record, t });
    this.picture.colours = null; // the theme may be another one
    const answered = this.asking.answered();
    if (!sameRun || this.selected >= record.tokens.length) this.selected = null;
    if (!sameRun) this.timeline = new Timeline();
    this.grown(header.speed);
    if (answered?.action === 'next_turn') document.querySelector(PROMPT)?.focus();
    if (header.busy) this.asking.lookAgain();
    else this.asking.goOn();
    this.carryOn();
    // At once, not with the next frame of the screen: a click is answered a frame earlier.
    cancelAnimationFrame(this.wished);
    this.frame(performance.now());
  }

  /** Takes a step of the stream in. */
  takeStep(bytes) {
    const { header, body } = readFrame(bytes);
    if (header.visit !== this.record.visit || header.run !== this.record.number || !this.record.take(header, body)) {
      this.stopPlaying();
      return;
    }
    this.header = { ...this.header, version: header.version };
    this.grown(this.speed);
    if (this.playing) this.wish();
    else {
      cancelAnimationFrame(this.wished);
      this.frame(performance.now());
    }
  }

  grown(speed) {
    this.speed = speed;
    this.timeline.grown(this.record.steps.length, { msAStep: this.msAStep, atOnce: this.isStill });
  }

  get msAStep() {
    return this.playing ? Math.min(STEP_MS, 0.92 * stepMs(this.speed)) : STEP_MS;
  }

  changeSpeed(speed) {
    this.speed = speed;
    this.timeline.msAStep = this.msAStep;
    this.player.stop(); // and on it goes, at the new pace, when the answer comes
    this.ask('speed', { force: true, value: speed });
  }

  /** Whether this visitor asked their system for less motion: then every step is shown whole, at once. */
  get isStill() {
    return matchMedia('(prefers-reduced-motion: reduce)').matches;
  }

  /** The step whose figures are shown: the one under way, or the last one done; −1 before the first. */
  get shown() {
    return Math.ceil(this.timeline.at) - 1;
  }

  /** In a tab that was refreshed or duplicated: asks for the run it had, once. */
  refreshed(header) {
    const former = this.greeted ? null : formerVisit(header);
    this.greeted = true;
    // The old name stays until its run has come: a tab that is refreshed once more asks again.
    if (former) this.ask('resume', { name: former });
    else remember(header);
    return former !== null;
  }

  /** Draws with the next frame of the screen; several wishes cost one drawing. */
  wish() {
    if (!this.wished) this.wished = requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.wished = 0;
    if (!this.header || this.header.visit !== this.record.visit) return;
    const hasMore = this.timeline.tick(now);
    const state = `${this.header.version} ${this.shown} ${this.playing} ${this.drawnFor()}`;
    // Texts at most so often while steps rush past: the picture is what is watched then.
    const isDue = !this.playing || this.speed < 16 || now - this.drawnAt > TEXTS_MS;
    if (state !== this.drawn && isDue) {
      this.drawnAt = now;
      this.drawn = state;
      keepingFocus(this.root, () => this.draw());
    }
    this.picture.paint(this);
    this.reached();
    this.root.toggleAttribute('data-waiting', this.player.streams || this.asked !== null);
    if (hasMore || state !== this.drawn) this.wish();
  }

  /** What besides the run changes the texts around the picture. */
  drawnFor() {
    const { language, units, speed, busy, notice, line, can } = this.header;
    const waits = [this.asked?.action, this.player.streams];
    return JSON.stringify([language, units, speed, busy, notice, line, can, this.selected, waits]);
  }

  draw() {
    const hasRun = this.record.steps.length > 0;
    this.empty.hidden = hasRun;
    const begins = this.asked?.action === 'prefill' || this.header.busy;
    this.empty.textContent = this.t(begins ? 'working' : 'before_prefill');
    this.body.hidden = !hasRun;
    this.bar.update(this);
    this.strip.update(this);
    if (hasRun) {
      this.picture.update(this);
      this.cards.update(this);
      this.ledger.update(this);
      this.takeaway.textContent = takeaway(this.record.steps.slice(0, Math.max(0, this.shown) + 1), this.t);
    }
    // What a test waits for: these steps are on the screen.
    this.root.dataset.steps = this.record.steps.length;
    this.root.dataset.version = this.header.version;
  }

  /** A click of the visitor: the second of a double click does not count. */
  click(action) {
    const now = performance.now();
    if (this.lastClick.action === action && now - this.lastClick.at < DOUBLE_CLICK_MS) return;
    this.lastClick = { action, at: now };
    if (action === 'play') {
      if (this.playing) this.stopPlaying();
      else this.play();
      return;
    }
    const streamed = this.player.streams;
    if (streamed && !this.playing && action !== 'reset') {
      this.asking.next = action; // the one step that is under way comes first
      return;
    }
    this.stopPlaying({ quietly: true });
    this.timeline.lookAt(this.timeline.total); // the run goes on from its newest step, and nothing moves meanwhile
    if (action === 'decode' && !this.asked && !streamed && this.header.can.decode) {
      // One step of a stream, past the reruns of the page: it is on the screen before the page could have begun.
      this.stream({ speed: 60, most: 1 });
      return;
    }
    const isAnswered = !this.asked || streamed || action === 'reset';
    if (isAnswered) this.ask(action, { force: true, ...(streamed ? { seen: WHATEVER } : {}) });
    else this.asking.next = action; // one click may wait for the answer to the one before
  }

  /** Plays what there is from the moment shown, then what the engine makes; a finished run from its beginning. */
  play() {
    this.playing = true;
    this.nEmpty = 0;
    this.streamedTo = -1;
    const { timeline } = this;
    const isAtEnd = timeline.at === timeline.total;
    if (isAtEnd && !this.header.can.decode) timeline.lookAt(0);
    timeline.playOn(this.msAStep);
    this.carryOn();
    this.wish();
  }

  /** The picture has come to the end of the record while playing: the engine goes on, or playing is over. */
  reached() {
    if (this.playing && !this.player.streams && !this.asked && !this.timeline.moves) this.carryOn();
  }

  carryOn() {
    if (!this.playing || this.player.streams || this.asked || this.timeline.at < this.timeline.total - 1) return;
    if (!this.header.can.decode) {
      // A step that outlived its broken stream is still under way: it is looked at again, and then playing goes on.
      if (!this.timeline.moves && !this.header.busy) this.stopPlaying({ quietly: true });
      return;
    }
    this.stream({ speed: this.speed });
  }

  stream(values) {
    const { visit, number, version, steps } = this.record;
    this.player.start(visit, { run: number, seen: version, have: steps.length, ...values });
    this.wish();
  }

  /**
   * A stream has come to its end: the page says what can be done now. What ended it may be no more than an event that was
   * sent twice, as happens several times in a row on a line that comes back; so playing goes on if it can, but not for ever.
   */
  streamed() {
    const { length } = this.record.steps;
    this.nEmpty = length > this.streamedTo ? 0 : this.nEmpty + 1;
    this.streamedTo = length;
    this.playing &&= this.nEmpty < MOST_EMPTY;
    this.ask('look', { force: true });
  }

  /** Ends playing after the step under way; asks the page where things stand. */
  stopPlaying({ quietly = false } = {}) {
    const streamed = this.player.streams || this.playing;
    this.playing = false;
    this.player.stop();
    if (!this.timeline.follows || quietly) this.timeline.halt();
    if (streamed && !quietly) this.ask('look', { force: true });
    this.wish();
  }

  /** Shows another moment; nothing is asked of the server. */
  lookAt(moment) {
    if (this.playing) this.stopPlaying();
    this.timeline.lookAt(moment);
    this.wish();
  }

  ask(action, more) {
    this.asking.ask(action, more);
  }

  /** A click on a figure: its formula opens. */
  opened(event) {
    const button = event.target.closest('.tbt-open');
    if (!button) return;
    this.stopPlaying({ quietly: true });
    const { figure, step } = button.dataset;
    this.ask('open', { force: true, name: figure, value: Number(step) });
    whenDialogCloses(() => this.root.querySelector(`[data-figure="${figure}"][data-step="${step}"]`)?.focus());
  }

  choose(position) {
    this.selected = position;
    this.wish();
  }

  end() {
    this.playing = false;
    this.player.stop();
    this.asking.end();
    cancelAnimationFrame(this.wished);
    this.picture.end();
  }
}
