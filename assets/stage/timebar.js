// The timeline below the picture: to the prefill, a step back, anywhere, a step on. It only looks; nothing is asked.

import { el, icon } from './dom.js';
import { stepName } from './ledger.js';
import { count } from './numbers.js';

const ICONS = { to_prefill: 'M6 5h2v14H6zm3 7l10 7V5z', earlier: 'M15 5L8 12l7 7z', later: 'M9 5l7 7-7 7z' };

export class Timebar {
  constructor(stage) {
    this.stage = stage;
    this.range = el('input', { type: 'range', min: 0, max: 1, step: 0.02, value: 0 });
    this.range.addEventListener('input', () => stage.lookAt(Number(this.range.value)));
    this.range.addEventListener('keydown', (event) => this.keyed(event));
    this.output = el('output', {});
    const button = (name) => el('button', { type: 'button', 'data-time': name }, icon(ICONS[name]));
    this.buttons = Object.fromEntries(Object.keys(ICONS).map((name) => [name, button(name)]));
    this.buttons.to_prefill.addEventListener('click', () => stage.lookAt(1));
    this.buttons.earlier.addEventListener('click', () => stage.lookAt(Math.ceil(stage.timeline.at) - 1));
    this.buttons.later.addEventListener('click', () => stage.lookAt(Math.floor(stage.timeline.at) + 1));
    const { to_prefill: first, earlier, later } = this.buttons;
    this.root = el('div', { class: 'tbt-time' }, first, earlier, this.range, later, this.output);
  }

  update({ header, record, timeline, shown, t }, scene) {
    this.range.max = timeline.total;
    // While a hand is on it, it says where to look; else it follows.
    if (Number(this.range.value) !== timeline.at) this.range.value = timeline.at;
    const state = `${header.language} ${shown} ${timeline.total}`;
    if (this.drawn === state) return;
    this.drawn = state;
    this.range.setAttribute('aria-label', t('timeline'));
    for (const [name, button] of Object.entries(this.buttons)) {
      button.setAttribute('aria-label', t(name));
      button.title = t(name);
    }
    const name = scene.step === null ? t('before_first') : stepName(record.steps[scene.step], scene.step, t);
    const text = t('timeline_at', { step: count(shown + 1), total: count(timeline.total), name });
    this.output.textContent = text;
    this.range.setAttribute('aria-valuetext', text);
  }

  keyed(event) {
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.stage.lookAt(by > 0 ? Math.floor(this.stage.timeline.at) + 1 : Math.ceil(this.stage.timeline.at) - 1);
  }
}
