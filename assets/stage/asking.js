// What the stage asks of the page: one event at a time, sent again when no answer comes, one click waiting behind it.

const APP = '[data-testid="stApp"]';
const RETRY_MS = 2500;
const RECONNECT_MS = 300; // while the page has no connection nothing can be sent
const LOOK_AGAIN_MS = 350;

export class Asking {
  constructor(stage) {
    this.stage = stage;
    this.event = null; // the event that waits for its answer
    this.next = null; // the click that waits for that answer
  }

  /** Sends an event with what this screen shows. While another waits for its answer only `force` sends it. */
  ask(action, { force = false, ...more } = {}) {
    if (!this.stage.send || (this.event && !force)) return; // a page that was saved has nobody to ask
    const { visit, number, version, steps } = this.stage.record ?? { steps: [] };
    const event = { action, visit, run: number, seen: version, have: steps.length, ...more };
    if (action === 'reset') this.next = null;
    this.event = event;
    this.post(event);
    this.stage.wish();
  }

  post(event) {
    clearTimeout(this.retry);
    const isConnected = document.querySelector(APP)?.dataset.testConnectionState === 'CONNECTED';
    if (isConnected) this.stage.send(event);
    // An answer can be lost (streamlit issue 14710). The same event again is harmless: it names the version it saw.
    const again = () => this.event === event && this.post(event);
    this.retry = setTimeout(again, isConnected ? RETRY_MS : RECONNECT_MS);
  }

  /** The answer is here. Returns what was asked. */
  answered() {
    const { event } = this;
    this.event = null;
    clearTimeout(this.retry);
    return event;
  }

  /** Sends the click that waited. */
  goOn() {
    const { next } = this;
    this.next = null;
    if (next) this.ask(next);
  }

  /** Asks how far a long step has come, until it is done. */
  lookAgain() {
    clearTimeout(this.looking);
    this.looking = setTimeout(() => this.stage.header.busy && this.ask('look'), LOOK_AGAIN_MS);
  }

  end() {
    clearTimeout(this.retry);
    clearTimeout(this.looking);
  }
}
