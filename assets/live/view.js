// The live run: what is asked, what has been answered so far, what each word cost, and the picture of it.

import { el, icon, refill } from '../stage/dom.js';
import { count } from '../stage/numbers.js';
import { recordOf } from '../stage/runs.js';
import { costsOf, Figure, figuresOf, inWords, say, takeawayOf } from './figures.js';
import { Picture } from './picture.js';
import { Watching } from './watching.js';

const ICONS = { pause: 'M7 5h3.5v14H7zm6.5 0H17v14h-3.5z', watch: 'M8 5v14l11-7z' };
const SILENT_AFTER = 2; // one stream that breaks is no news

export class View {
  constructor(address) {
    this.title = el('h2', { id: 'tbt-live-title' });
    this.others = el('span', { class: 'tbt-note' });
    this.button = el('button', { type: 'button', class: 'tbt-button' });
    this.question = el('span', { class: 'tbt-live-question', lang: '' });
    this.answer = el('span', { lang: '' });
    this.said = el('span', { class: 'tbt-live-said' });
    this.figures = ['prefill', 'decode', 'cache'].map((name) => new Figure(name));
    this.picture = new Picture();
    this.note = el('p', { class: 'tbt-note' });
    this.takeaway = el('p', { class: 'tbt-live-takeaway' });
    this.root = el('section', { class: 'tbt-card tbt-live', 'aria-labelledby': 'tbt-live-title' },
      el('header', {}, this.title, this.others, this.button),
      el('p', { class: 'tbt-live-text', dir: 'auto' }, this.question, ' ', this.answer, ' ', this.said),
      el('dl', {}, this.figures.map(({ root }) => root)),
      this.picture.root, this.note, this.takeaway);
    this.state = 'loading';
    this.watching = new Watching(address, {
      wanted: () => ({ language: this.data.language, run: this.record?.number ?? -1, have: this.record?.steps.length ?? 0 }),
      took: (frame) => this.took(frame),
      notYet: () => this.turn('loading'),
      failed: (times) => this.turn(times < SILENT_AFTER ? this.state : 'lost'),
    });
    // Who asked for less motion begins it when they like.
    this.watching.isPaused = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.button.addEventListener('click', () => {
      this.watching.pause(!this.watching.isPaused);
      this.draw();
    });
    this.resized = new ResizeObserver(() => this.paint());
  }

  /** data: {language, units}, as the page says them. */
  take(data, t) {
    Object.assign(this, { data, t });
    this.draw();
    this.resized.observe(this.picture.root);
    this.watching.start(this.root);
  }

  /** The page has no place for it any more. What it shows stays, for the case that it comes back. */
  leave() {
    this.watching.stop();
    this.resized.disconnect();
  }

  took({ header, body }) {
    const record = recordOf(header);
    if (!record.take(header, body)) return;
    Object.assign(this, { record, header });
    this.turn(header.refused ? 'refused' : header.again_s === null ? 'answering' : 'complete');
  }

  turn(state) {
    this.state = state;
    this.draw();
  }

  draw() {
    const { t, header, record, data, watching } = this;
    const facts = record?.facts;
    say(this.title, facts ? t('title', { model: facts.model }) : t('title_waiting'));
    say(this.others, header && !watching.isPaused ? othersOf(header.watching, t) : '');
    const action = watching.isPaused ? 'watch' : 'pause';
    refill(this.button, icon(ICONS[action]), el('span', {}, t(action)));
    say(this.question, header?.question ?? '');
    say(this.answer, facts ? record.text() : '');
    say(this.said, this.sentence());
    const costs = facts ? costsOf(record) : null;
    figuresOf(costs, t, data.units).forEach(([name, value, why], place) => this.figures[place].update(value, t(name), why));
    say(this.note, t('picture'));
    const takeaway = costs ? takeawayOf(costs, t) : '';
    say(this.takeaway, takeaway);
    this.takeaway.classList.toggle('tbt-takeaway', takeaway !== '');
    this.picture.canvas.setAttribute('aria-label', costs ? inWords(record, costs, t, data.units) : t('title_waiting'));
    this.root.dataset.steps = record?.steps.length ?? 0;
    this.paint();
  }

  /** What is said behind the answer, or in its place. */
  sentence() {
    const { t, state, header, data, watching, record } = this;
    if (watching.isPaused) return record ? '' : t('still');
    if (state === 'refused') return header.refused[data.language];
    return state === 'answering' ? '' : t(state);
  }

  paint() {
    this.picture.draw(this.record, this.header, this.t);
  }
}

function othersOf(watching, t) {
  return watching > 1 ? t('watching', { count: count(watching) }) : t('watching_one');
}
