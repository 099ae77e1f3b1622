// Play: asks for the next step at the chosen pace, one at a time, so that a pause takes effect within one step.

const APP = '[data-testid="stApp"]';

export class Player {
  /** `pull` asks for a step; `changed` is told when playing begins or ends by itself. */
  constructor(pull, changed) {
    this.pull = pull;
    this.changed = changed;
    this.playing = false;
    this.speed = 4;
    this.last = -Infinity;
  }

  toggle() {
    if (this.playing) this.stop();
    else {
      this.playing = true;
      this.next();
    }
  }

  stop() {
    this.playing = false;
    clearTimeout(this.timer);
  }

  /** A frame is on the screen: the next step can be asked for. */
  arrived({ speed, canGoOn, busy }) {
    this.speed = speed;
    if (!this.playing || busy) return;
    if (canGoOn) this.next();
    else {
      this.stop();
      this.changed();
    }
  }

  next() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.due(), Math.max(0, this.last + 1000 / this.speed - performance.now()));
  }

  due() {
    if (!this.playing) return;
    const app = document.querySelector(APP)?.dataset ?? {};
    // While the page answers another control, a step asked for now could make Streamlit drop that answer.
    if (app.testScriptState !== 'notRunning' || app.testConnectionState !== 'CONNECTED') {
      this.timer = setTimeout(() => this.due(), 30);
      return;
    }
    this.last = performance.now();
    this.pull();
  }
}
