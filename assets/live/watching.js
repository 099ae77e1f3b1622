// Asks for the live run while somebody can see it: one stream after the other, each of a few seconds.

import { framesOf } from '../stage/api.js';
import { readFrame } from '../stage/frame.js';
import { Seen } from '../stage/seen.js';

const NOT_YET = 503;
const LOOK_AGAIN_MS = 2000; // while the model loads
const MOST_MS = 30_000;

export class Watching {
  /**
   * wanted() gives the parameters of the next request; took({header, body}) hears of each frame, notYet() that there
   * is nothing to watch, failed(times) of each stream that broke, `times` in a row.
   */
  constructor(address, { wanted, took, notYet, failed }) {
    Object.assign(this, { address, wanted, took, notYet, failed });
    this.isPaused = false;
    this.failures = 0;
    this.seen = new Seen(() => this.look());
  }

  start(element) {
    this.seen.start(element);
    this.look();
  }

  stop() {
    this.seen.stop();
    this.look();
  }

  pause(isPaused) {
    this.isPaused = isPaused;
    this.look();
  }

  /** Begins to watch, or ends it, as it is to be now. */
  look() {
    if (this.seen.now && !this.isPaused) {
      if (!this.request && !this.timer) this.plan(0);
      return;
    }
    clearTimeout(this.timer);
    this.timer = null;
    this.request?.abort();
    this.request = null;
  }

  plan(ms) {
    this.timer = setTimeout(() => {
      this.timer = null;
      this.watch();
    }, ms);
  }

  async watch() {
    const request = new AbortController();
    this.request = request;
    let pause = 0;
    try {
      const answer = await fetch(`${this.address}?${new URLSearchParams(this.wanted())}`, { cache: 'no-store', signal: request.signal });
      if (answer.status === NOT_YET) {
        pause = LOOK_AGAIN_MS;
        if (this.request === request) this.notYet();
      } else if (!answer.ok) throw new Error(String(answer.status));
      else pause = await this.read(answer, request);
    } catch {
      if (this.request !== request) return; // ended here, not there
      this.failures += 1;
      pause = Math.min(MOST_MS, LOOK_AGAIN_MS * 2 ** (this.failures - 1));
      this.failed(this.failures);
    }
    if (this.request !== request) return;
    this.request = null;
    this.plan(pause);
  }

  /** Hands the frames on; returns after how many milliseconds the next run begins, 0 while this one goes on. */
  async read(answer, request) {
    let pause = 0;
    for await (const frame of framesOf(answer)) {
      if (this.request !== request) return 0;
      const { header, body } = readFrame(frame);
      this.failures = 0;
      this.took({ header, body });
      pause = header.again_s === null ? 0 : 1000 * header.again_s;
    }
    return pause;
  }
}
