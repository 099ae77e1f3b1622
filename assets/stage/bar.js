// The buttons that move a run, what stands beside them, and the sentence about the run.

import { el, icon, refill } from './dom.js';

const ICONS = {
  play: 'M8 5v14l11-7z',
  pause: 'M6 5h4v14H6zm8 0h4v14h-4z',
  step_back: 'M6 5h2v14H6zm3 7l10 7V5z',
  reset: 'M12 5a7 7 0 1 1-6.3 4H8L4 4 2 9h1.6A9 9 0 1 0 12 3z',
  next_turn: 'M4 4h16v11H8l-4 4z',
};

const PAGE = 'page'; // a replay outside the app: without the buttons that only the app can carry out

export class Bar {
  constructor(stage) {
    this.buttons = {};
    for (const action of ['prefill', 'decode', 'play', 'step_back', 'reset', 'next_turn']) {
      const button = el('button', { type: 'button', class: `tbt-button tbt-act-${action}`, 'data-act': action });
      // A key that is held presses once.
      button.addEventListener('keydown', (event) => event.repeat && event.preventDefault());
      button.addEventListener('click', () => button.getAttribute('aria-disabled') !== 'true' && stage.click(action));
      this.buttons[action] = button;
    }
    this.speed = el('select', { class: 'tbt-speed', 'data-act': 'speed' });
    this.speed.addEventListener('change', () => stage.changeSpeed(Number(this.speed.value)));
    this.line = el('p', { class: 'tbt-line' });
    this.notice = el('p', { class: 'tbt-notice' });
    const { prefill, decode, play, step_back, reset, next_turn } = this.buttons;
    const player = el('span', { class: 'tbt-player' }, play, this.speed);
    this.root = el(
      'div',
      { class: 'tbt-bar-all' },
      el(
        'div',
        { class: 'tbt-actions', role: 'group' },
        prefill, decode, player, step_back, reset, next_turn, el('div', { class: 'tbt-said' }, this.notice, this.line),
      ),
    );
  }

  update({ header, record, t, playing, player, speed, asked }) {
    const isStepping = player.streams && !playing;
    const isBusy = header.busy || isStepping || ['prefill', 'decode'].includes(asked?.action);
    const play = playing || header.can.decode || record.steps.length > 0;
    const can = { ...header.can, play, reset: header.can.reset || isBusy };
    for (const [action, button] of Object.entries(this.buttons)) {
      const name = action === 'play' && playing ? 'pause' : action;
      // Not `disabled`: a button that is pressed and greys out for a moment must keep the focus of the keyboard.
      button.setAttribute('aria-disabled', String(!can[action]));
      const isIdle = Boolean(header.replay) && action !== 'play'; // a run out of a file is looked at, not computed
      button.hidden = action === 'next_turn' ? !header.can.next_turn : isIdle && header.replay === PAGE;
      const drawn = `${name} ${header.language} ${header.replay ?? ''}`;
      if (button.dataset.drawn === drawn) continue;
      button.dataset.drawn = drawn;
      refill(button, ICONS[name] ? icon(ICONS[name]) : null, el('span', {}, t(name)));
      const isReplay = Boolean(header.replay) && name === 'play';
      button.title = t(isIdle ? 'replay_computes_nothing' : isReplay ? 'replay_hint' : `${name}_hint`);
    }
    this.root.firstChild.setAttribute('aria-label', t('actions'));
    if (this.speed.dataset.language !== header.language) {
      this.speed.dataset.language = header.language;
      this.speed.setAttribute('aria-label', t('speed'));
      refill(this.speed, header.speeds.map((speed) => el('option', { value: speed }, t('steps_a_second', { speed }))));
    }
    if (document.activeElement !== this.speed) this.speed.value = speed;
    this.root.classList.toggle('tbt-working', Boolean(isBusy));
    this.sayLine(header, t);
    this.sayNotice(header);
  }

  sayLine({ line, facts }, t) {
    const on = facts ? el('b', {}, t(facts.use_cache ? 'on' : 'off')) : null;
    refill(
      this.line,
      on ? [t('kv_cache'), ' ', on, ' · '] : null,
      line ? `${line.model} · ${line.machine}` : null,
      line?.changed ? el('span', { class: 'tbt-changed' }, t('settings_changed')) : null,
    );
  }

  sayNotice({ notice: said }) {
    this.notice.hidden = !said;
    if (!said) return;
    this.notice.className = `tbt-notice tbt-${said.kind}`;
    this.notice.setAttribute('role', said.kind === 'refusal' ? 'alert' : 'status');
    if (this.notice.textContent !== said.text) this.notice.textContent = said.text;
  }
}
