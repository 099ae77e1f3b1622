// Play: steps stream in at the chosen pace, past the reruns of the page. Pausing closes the stream: within one step.

import { stepsOf } from './api.js';

export class Player {
  /** `take` is given each frame; `ended` is told when the run has no more; `broken` when the connection is gone. */
  constructor({ take, ended, broken }) {
    Object.assign(this, { take, ended, broken });
    this.control = null;
  }

  get streams() {
    return this.control !== null;
  }

  async start(visit, values) {
    this.stop();
    const control = new AbortController();
    this.control = control;
    try {
      for await (const frame of stepsOf(visit, values, control.signal)) {
        if (this.control !== control) return;
        this.take(frame);
      }
      if (this.control !== control) return;
      this.control = null;
      this.ended();
    } catch {
      if (this.control !== control) return; // closed by us
      this.control = null;
      this.broken();
    }
  }

  stop() {
    this.control?.abort();
    this.control = null;
  }
}
