// Whether somebody can see an element: it is on the screen, in a tab that is in front.

export class Seen {
  /** changed() is called whenever it may have come into sight, or gone out of it. */
  constructor(changed) {
    this.changed = changed;
    this.isOnScreen = false;
  }

  start(element) {
    if (this.observer) return;
    document.addEventListener('visibilitychange', this.changed);
    this.observer = new IntersectionObserver((entries) => {
      this.isOnScreen = entries.at(-1).isIntersecting;
      this.changed();
    });
    this.observer.observe(element);
  }

  stop() {
    document.removeEventListener('visibilitychange', this.changed);
    this.observer?.disconnect();
    this.observer = null;
    this.isOnScreen = false;
  }

  get now() {
    return this.isOnScreen && document.visibilityState === 'visible';
  }
}
