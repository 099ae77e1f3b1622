// The line and the view that opens from it, drawn from the newest answer of the route.

import { el } from '../stage/dom.js';
import { Asking } from './asking.js';
import { Budget } from './budget.js';
import { Curves } from './curve.js';
import { Line } from './line.js';
import { momentOf } from './moment.js';
import { Runs } from './runs.js';
import { Step } from './step.js';

const SPOKEN_MS = 5000;

export class View {
  constructor(address) {
    this.line = new Line();
    [this.step, this.runs, this.curves, this.budget] = [new Step(), new Runs(), new Curves(), new Budget()];
    this.body = el('div', { class: 'tbt-batch-body' },
      el('div', {}, this.step.root, this.runs.root), el('div', {}, this.curves.root, this.budget.root));
    this.details = el('details', { class: 'tbt-card' }, el('summary', {}, this.line.text, this.line.dots), this.body);
    this.spoken = el('p', { class: 'tbt-batch-spoken', role: 'status' });
    this.root = el('div', { class: 'tbt-batch' }, this.details, this.spoken);
    this.status = null;
    this.failures = 0;
    this.spokenAt = -Infinity;
    this.asking = new Asking(address, {
      took: (status) => this.draw({ status, failures: 0 }),
      failed: (failures) => this.draw({ failures }),
    });
    this.details.addEventListener('toggle', () => {
      this.asking.open(this.details.open);
      this.draw({});
    });
    this.observer = new ResizeObserver(() => this.fit());
  }

  /** data: {tag, language, units}, as the page says them. */
  take(data, t) {
    this.root.dataset.tag = data.tag;
    this.observer.observe(this.body);
    this.draw({ data, t });
    this.asking.start(this.root);
  }

  /** The page has no place for it any more. What it shows stays, for the case that it comes back. */
  leave() {
    this.asking.stop();
    this.observer.disconnect();
  }

  draw(news) {
    Object.assign(this, news);
    const { status, data, t, failures } = this;
    const moment = status && momentOf(status, data.tag);
    this.say(this.line.update(moment, failures, t, data.units));
    if (!moment || !this.details.open) return;
    for (const part of [this.step, this.runs, this.curves, this.budget]) part.update(moment, t, data.units);
  }

  /** Pictures are drawn to the pixel: a new width asks for new ones. */
  fit() {
    this.step.draw();
    this.curves.draw();
  }

  /** Says aloud what concerns this visitor, seldom enough not to chatter. */
  say(sentence) {
    const now = performance.now();
    if (sentence === this.spoken.textContent || (sentence && now - this.spokenAt < SPOKEN_MS)) return;
    this.spokenAt = now;
    this.spoken.textContent = sentence;
  }
}
