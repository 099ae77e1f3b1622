// What an estimate page shows at this moment: the words of its question, and the live routes' answers to it.
//
// While a dial is dragged, every part that listens to a route gets an answer as often as the server gives one: one
// request a route is under way, and when it is answered the newest words are asked next. Words in between are skipped.
// Nothing is asked for what cannot be seen: it is asked when it comes into view.

export const FORMULAS = 'curves/formulas';
/** What is asked first: numbers, then charts in view, then formulas; what is unseen waits until it comes into view. */
export const [UNSEEN, FORMULA, SEEN, NUMBER] = [0, 1, 2, 3];
const feeds = new Map();
const API = new URL('../../../api/', import.meta.url);

/** The feed of a page; made when it is first asked for. */
export function feedOf(id) {
  if (!feeds.has(id)) feeds.set(id, new Feed());
  return feeds.get(id);
}

class Feed {
  constructor() {
    this.words = {};
    this.common = {};
    this.stamp = 0; // counts the changes; `changed` holds for each word the stamp of its last one
    this.changed = new Map();
    this.listeners = new Map(); // route → function → how urgent it is now
    this.behind = new Set(); // routes that were not asked after the last change
    this.underWay = new Set();
    this.stale = new Set();
    this.refusals = new Set(); // called with the sentence when the server refuses, with '' when it answers again
  }

  /** What Python says: its words hold, but for those that were changed after what it had heard (`stamp`). */
  take({ words, common, stamp }) {
    const newer = [...this.changed].filter(([, at]) => at > stamp).map(([name]) => [name, this.words[name]]);
    this.changed = new Map([...this.changed].filter(([, at]) => at > stamp));
    this.words = { ...words, ...Object.fromEntries(newer) };
    this.common = common;
    this.tell('');
  }

  /** Changes some words, and asks every route that somebody listens to. */
  set(words) {
    this.stamp += 1;
    for (const name of Object.keys(words)) this.changed.set(name, this.stamp);
    Object.assign(this.words, words);
    const urgencies = [...this.listeners].map(([route, each]) => [route, Math.max(...[...each.values()].map((now) => now()))]);
    for (const [route, urgency] of urgencies.sort(([, one], [, other]) => other - one)) {
      if (urgency > UNSEEN) this.ask(route);
      else this.behind.add(route);
    }
  }

  /** Asks a route that was left out while nobody could see what it is for. */
  catchUp(route) {
    if (this.behind.has(route)) this.ask(route);
  }

  tell(refusal) {
    for (const hear of this.refusals) hear(refusal);
  }

  /** Calls back with each answer of a route, which is asked as urgently as `urgency` says then; returns what ends that. */
  listen(route, then, urgency) {
    if (!this.listeners.has(route)) this.listeners.set(route, new Map());
    this.listeners.get(route).set(then, urgency);
    return () => {
      this.listeners.get(route)?.delete(then);
      if (!this.listeners.get(route)?.size) this.listeners.delete(route);
    };
  }

  async ask(route) {
    if (this.underWay.has(route)) {
      this.stale.add(route);
      return;
    }
    this.underWay.add(route);
    this.behind.delete(route);
    try {
      do {
        this.stale.delete(route);
        await this.askOnce(route);
      } while (this.stale.has(route) && this.listeners.has(route));
    } finally {
      this.underWay.delete(route);
    }
  }

  async askOnce(route) {
    const words = new URLSearchParams({ ...this.words, ...(route === 'estimate' ? {} : this.common) });
    let answer;
    try {
      const response = await fetch(new URL(`${route}?${words}`, API));
      answer = await response.json();
      this.tell(response.ok ? '' : answer.error ?? '');
      if (!response.ok) return;
    } catch {
      return; // the server is away for a moment: the next change asks again
    }
    for (const then of this.listeners.get(route)?.keys() ?? []) then(answer);
  }
}
