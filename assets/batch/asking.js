// Asks a route again and again while somebody can see the answer: one request at a time, more seldom while it fails.

import { Seen } from '../stage/seen.js';

const OPEN_MS = 1500;
const CLOSED_MS = 5000;
const MOST_MS = 30_000;
const PATIENCE_MS = 8000;

export class Asking {
  /** took(answer) for each answer; failed(times) for each one that did not come, `times` in a row. */
  constructor(address, { took, failed }) {
    Object.assign(this, { address, took, failed });
    this.isOpen = false;
    this.failures = 0;
    this.askedAt = -Infinity;
    this.seen = new Seen(() => this.plan());
  }

  start(element) {
    this.seen.start(element);
  }

  stop() {
    this.seen.stop();
    clearTimeout(this.timer);
    this.request?.abort();
    this.request = null;
  }

  open(isOpen) {
    this.isOpen = isOpen;
    this.plan();
  }

  /** Milliseconds between two requests; a little uneven, so that a class that came together does not ask together. */
  get pause() {
    const pause = this.isOpen ? OPEN_MS : CLOSED_MS;
    const longer = this.failures ? Math.min(MOST_MS, pause * 2 ** this.failures) : pause;
    return longer * (0.95 + 0.1 * Math.random());
  }

  /** Sets the time of the next request, or none while nobody looks. */
  plan() {
    clearTimeout(this.timer);
    if (!this.seen.now || this.request) return;
    this.timer = setTimeout(() => this.ask(), Math.max(0, this.askedAt + this.pause - performance.now()));
  }

  async ask() {
    this.askedAt = performance.now();
    const request = new AbortController();
    this.request = request;
    const tooLong = setTimeout(() => request.abort(), PATIENCE_MS);
    try {
      const answer = await fetch(this.address, { cache: 'no-store', signal: request.signal });
      if (!answer.ok) throw new Error(String(answer.status));
      const news = await answer.json();
      this.answered(request, () => {
        this.failures = 0;
        this.took(news);
      });
    } catch {
      this.answered(request, () => {
        this.failures += 1;
        this.failed(this.failures);
      });
    } finally {
      clearTimeout(tooLong);
    }
  }

  /** A request is done, for good or ill; one that was given up in between is nobody's any more. */
  answered(request, then) {
    if (this.request !== request) return;
    this.request = null;
    then();
    this.plan();
  }
}
