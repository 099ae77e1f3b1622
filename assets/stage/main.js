// The stage: takes a frame, keeps the run's record, draws it, and sends what its visitor does.

import { Bar } from './bar.js';
import { Cards } from './cards.js';
import { el } from './dom.js';
import { readFrame } from './frame.js';
import { Ledger } from './ledger.js';
import { count } from './numbers.js';
import { Picture } from './picture.js';
import { Player } from './player.js';
import { recordOf } from './runs.js';
import { Strip } from './strip.js';
import { wordsOf } from './words.js';

const TAB = 'tbt.visit'; // the tab's name for its visit: survives a refresh, is never part of an address
const DOUBLE_CLICK_MS = 250;
const RETRY_MS = 2500;
const ORPHAN_MS = 2000;
const stages = new Map(); // by name: a rerun may put the component into a new element, and the stage moves along
let greeted = false;

/** Called by Streamlit for every new frame, and when the theme changes. Returns what ends the stage. */
export async function show({ data, parentElement, setTriggerValue }) {
  if (!data) return undefined;
  const { header, cells } = readFrame(new Uint8Array(data));
  const t = await wordsOf(header.language);
  const stage = stages.get(header.stage) ?? new Stage();
  stages.set(header.stage, stage);
  stage.moveTo(parentElement);
  stage.send = (event) => setTriggerValue('event', event);
  stage.take(header, cells, t);
  return () => stage.left(parentElement, () => stages.delete(header.stage));
}

class Stage {
  constructor() {
    this.root = el('div', { class: 'tbt-stage' });
    this.lastClick = { action: '', at: -Infinity };
    this.asked = null; // the event that waits for its answer
    this.selected = null; // the position chosen in the strip; null: the newest
    this.player = new Player(() => this.ask('decode'), () => this.bar.update(this));
    this.bar = new Bar(this);
    this.strip = new Strip(this);
    this.picture = new Picture(this);
    this.cards = new Cards(this);
    this.ledger = new Ledger(this);
    this.empty = el('p', { class: 'tbt-empty' });
    this.takeaway = el('p', { class: 'tbt-takeaway' });
    this.body = el(
      'div',
      { class: 'tbt-body' },
      this.picture.root,
      this.cards.root,
      this.ledger.root,
      this.takeaway,
    );
    const top = el('section', { class: 'tbt-card tbt-top' }, this.bar.root, this.strip.root);
    this.root.append(top, this.empty, this.body);
    this.root.addEventListener('click', (event) => this.opened(event));
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

  /** Takes a frame in and draws what it says. */
  take(header, cells, t) {
    if (this.refreshed(header)) return;
    const record = recordOf(header);
    if (!record.take(header, cells)) {
      this.ask('look', { force: true });
      return;
    }
    const sameRun = this.record === record;
    Object.assign(this, { header, record, t });
    this.asked = null;
    clearTimeout(this.retry);
    if (!sameRun || this.selected >= record.tokens.length) this.selected = null;
    this.draw();
    this.player.arrived({ speed: header.speed, canGoOn: header.can.decode, busy: header.busy });
    if (header.busy) this.lookAgain();
  }

  /** In a tab that had a run before it was refreshed or duplicated: asks for that run, once. */
  refreshed(header) {
    const remembered = greeted ? null : sessionStorage.getItem(TAB);
    const asks = !greeted && remembered && remembered !== header.visit && header.total === 0;
    greeted = true;
    sessionStorage.setItem(TAB, header.visit);
    if (asks) this.send({ action: 'resume', name: remembered });
    return asks;
  }

  draw() {
    const hasRun = this.header.total > 0;
    this.empty.hidden = hasRun;
    this.empty.textContent = this.t('before_prefill');
    this.body.hidden = !hasRun;
    this.bar.update(this);
    this.strip.update(this);
    if (hasRun) {
      this.picture.update(this);
      this.cards.update(this);
      this.ledger.update(this);
      this.takeaway.textContent = takeaway(this.record, this.t);
    }
    // What a test waits for: these steps are on the screen.
    this.root.dataset.steps = this.header.total;
    this.root.dataset.version = this.header.version;
  }

  /** A click of the visitor: the second of a double click does not count. */
  click(action) {
    const now = performance.now();
    const isSecond = this.lastClick.action === action && now - this.lastClick.at < DOUBLE_CLICK_MS;
    this.lastClick = { action, at: now };
    if (isSecond) return;
    if (action === 'play') {
      this.player.toggle();
    } else {
      this.player.stop();
      this.ask(action, { force: action === 'reset' });
    }
    this.bar.update(this);
  }

  /** Sends an event with what this screen shows; one at a time, and again when no answer comes. */
  ask(action, { force = false, ...more } = {}) {
    if (this.asked && !force) return;
    const { header, record } = this;
    const event = header
      ? { action, visit: header.visit, run: header.run, seen: header.version, have: record.steps.length, ...more }
      : { action, ...more };
    this.asked = event;
    this.root.classList.add('tbt-waiting');
    this.post(event);
    this.bar.update(this);
  }

  post(event) {
    this.send(event);
    clearTimeout(this.retry);
    // An answer can be lost (streamlit issue 14710). The same event again is harmless: it names the version it saw.
    this.retry = setTimeout(() => this.asked === event && this.post(event), RETRY_MS);
  }

  lookAgain() {
    clearTimeout(this.looking);
    this.looking = setTimeout(() => this.header.busy && this.ask('look'), 350);
  }

  /** A click on a figure: its formula opens. */
  opened(event) {
    const button = event.target.closest('.tbt-open');
    if (!button) return;
    this.player.stop();
    this.bar.update(this);
    this.ask('open', { force: true, name: button.dataset.figure, value: Number(button.dataset.step) });
  }

  choose(position) {
    this.selected = position;
    this.strip.update(this);
    this.picture.update(this);
  }

  end() {
    this.player.stop();
    clearTimeout(this.retry);
    clearTimeout(this.looking);
    this.picture.end();
  }
}

/** The one sentence that these figures prove. */
function takeaway({ steps }, t) {
  const [first, newest] = [steps[0], steps[steps.length - 1]];
  const token = newest.token ? newest.token[1].trim() || newest.token[1] : '';
  const prompt = count(first.new);
  if (first.phase === 'recompute') {
    if (steps.length === 1) return t('takeaway_first_no_cache', { prompt });
    const computed = steps.reduce((sum, step) => sum + step.new, 0);
    const cached = newest.n_tokens;
    const values = { computed: count(computed), cached: count(cached), times: (computed / cached).toFixed(1) };
    return t('takeaway_no_cache', { steps: steps.length, ...values });
  }
  if (steps.length === 1) return t('takeaway_prefill', { prompt, token });
  const words = steps.length === 2 ? 'takeaway_decode_once' : 'takeaway_decode';
  return t(words, { prompt, steps: count(steps.length - 1), token });
}
