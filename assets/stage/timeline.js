// Where on the timeline the picture stands, and how it moves: a clock comes in, a moment goes out.

/** Milliseconds a step takes on the screen at a speed of so many steps a second. */
export function stepMs(speed) {
  return 1000 / speed;
}

/**
 * The moment shown, between 0 and the steps there are.
 *
 * It follows the newest step until somebody looks back; then it stays where it was put. `goal` is where it moves to.
 */
export class Timeline {
  constructor() {
    this.at = 0;
    this.total = 0;
    this.goal = 0;
    this.msAStep = 400;
    this.follows = true;
    this.hurries = true;
    this.last = null;
  }

  /** The record has grown (or shrunk) to `total` steps. What is new is played; what is gone is not shown any more. */
  grown(total, { msAStep, atOnce = false }) {
    this.total = total;
    this.msAStep = msAStep;
    this.hurries = this.follows;
    if (this.at > total) this.at = total;
    if (this.follows || this.goal > total) this.goal = total;
    if (atOnce && this.follows) this.at = total;
    // Far behind, the picture does not run after every step it has missed.
    if (this.follows && this.at < total - 2) this.at = total - 1;
  }

  /** Shows a moment and stays there; at the end it follows again. */
  lookAt(moment) {
    this.at = Math.max(0, Math.min(moment, this.total));
    this.goal = this.at;
    this.follows = this.at === this.total;
    this.last = null;
  }

  /** Plays from the moment shown to the end, and then follows. */
  playOn(msAStep) {
    this.msAStep = msAStep;
    this.goal = this.total;
    this.follows = true;
    this.hurries = false;
    this.last = null;
  }

  /** Stops where it is; a step half shown is shown whole. */
  halt() {
    this.goal = Math.ceil(this.at);
    this.follows = this.goal === this.total;
  }

  get moves() {
    return this.at !== this.goal;
  }

  /** Moves on to the time `now` (milliseconds of any clock). True while there is more to show. */
  tick(now) {
    const passed = this.last === null ? 0 : now - this.last;
    this.last = now;
    // Behind the newest step by more than one it hurries; a replay has time.
    const steps = (passed / this.msAStep) * (this.hurries ? Math.max(1, this.goal - this.at) : 1);
    if (this.at < this.goal) this.at = Math.min(this.goal, this.at + steps);
    else this.at = this.goal;
    if (!this.moves) this.last = null;
    return this.moves;
  }
}
