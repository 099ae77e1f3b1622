// The tokens in a row: prompt, produced, the newest. Choosing one says where it lies and what predicted it.

import { el, refill } from './dom.js';
import { count, visible } from './numbers.js';

const MOST_CHIPS = 320;
const FIRST_CHIPS = 60;

export class Strip {
  constructor(stage) {
    this.stage = stage;
    this.list = el('ol', { class: 'tbt-strip' });
    this.detail = el('p', { class: 'tbt-detail', 'aria-live': 'polite' });
    this.answer = el('div', { class: 'tbt-text', dir: 'auto', lang: '' });
    this.label = el('span', { class: 'tbt-label' });
    this.again = el('p', { class: 'tbt-note tbt-again' });
    this.root = el(
      'div',
      { class: 'tbt-strip-all' },
      this.list,
      this.detail,
      this.again,
      el('div', { class: 'tbt-answer' }, this.label, this.answer),
    );
    this.list.addEventListener('click', (event) => {
      const chip = event.target.closest('[data-position]');
      if (chip) stage.choose(Number(chip.dataset.position));
    });
    this.list.addEventListener('keydown', (event) => this.keyed(event));
    this.drawn = { record: null, language: '', tokens: [] };
  }

  update({ header, record, t, selected, shown }) {
    this.root.hidden = record.steps.length === 0;
    if (this.root.hidden) return;
    const tokens = record.tokens;
    this.refillList(header, record, tokens, t);
    const last = record.prompt.length + shown; // the token that the step shown produced
    const chosen = Math.min(selected ?? last, tokens.length - 1);
    this.mark(record, last, chosen);
    const between = header.language === 'zh' ? '' : ' ';
    this.detail.textContent = this.describe(record, tokens, chosen, t).join(between);
    const again = record.facts.computed_again;
    this.again.hidden = !again;
    const counts = { again: count(again), prompt: count(record.prompt.length) };
    this.again.textContent = again ? t('computed_again', counts) : '';
    this.label.textContent = t('produced_text');
    const text = record.text(shown + 1);
    if (this.answer.textContent !== text) this.answer.textContent = text;
  }

  /** Marks the newest token, the chosen one, and those that come later than the moment shown. */
  mark(record, last, chosen) {
    for (const chip of this.list.querySelectorAll('[data-position]')) {
      const position = Number(chip.dataset.position);
      const state = `${position === last} ${position === chosen} ${position > last}`;
      if (chip.dataset.state === state) continue;
      chip.dataset.state = state;
      chip.classList.toggle('tbt-new', position === last && last >= record.prompt.length);
      chip.classList.toggle('tbt-later', position > last);
      chip.setAttribute('aria-current', position === chosen);
      chip.tabIndex = position === chosen ? 0 : -1;
    }
  }

  /** Brings the list up to the tokens: what is the same stays, what is new comes, what is left out goes. */
  refillList(header, record, tokens, t) {
    const positions = drawnPositions(tokens.length);
    const { drawn } = this;
    const isOther = drawn.record !== record || drawn.language !== header.language || drawn.tokens[0] !== tokens[0];
    if (isOther) refill(this.list);
    const wanted = new Set(positions);
    const kept = new Set();
    for (const chip of [...this.list.querySelectorAll('[data-position]')]) {
      const position = Number(chip.dataset.position);
      if (wanted.has(position) && drawn.tokens[position] === tokens[position]) kept.add(position);
      else chip.parentElement.remove();
    }
    const fresh = positions.filter((position) => !kept.has(position));
    this.list.append(...fresh.map((position) => chipOf(record, tokens, position, t)));
    this.leaveOut(tokens.length - positions.length, t);
    const nPrompt = record.prompt.length;
    this.list.setAttribute('aria-label', t('strip_label', { prompt: nPrompt, produced: tokens.length - nPrompt }));
    this.drawn = { record, language: header.language, tokens };
    if (fresh.length) this.list.scrollTop = this.list.scrollHeight;
  }

  /** Says how many tokens are not drawn, where they would be. */
  leaveOut(hidden, t) {
    this.more ??= el('li', { class: 'tbt-more' });
    if (!hidden) this.more.remove();
    else {
      const text = t('tokens_left_out', { count: count(hidden) });
      if (this.more.textContent !== text) this.more.textContent = text;
      const place = this.list.children[FIRST_CHIPS];
      if (place !== this.more) this.list.insertBefore(this.more, place);
    }
  }

  describe(record, tokens, position, t) {
    const [id] = tokens[position];
    const values = { position: count(position), id, token: visible(tokens[position][1]), before: count(position - 1) };
    const parts = [t('chip_where', values)];
    if (tokens[position][2]) parts.push(t('chip_bytes'));
    const hasColumn = position < record.nColumns();
    if (!record.facts.use_cache) parts.push(t('chip_no_cache'));
    else parts.push(t(hasColumn ? 'chip_column' : 'chip_no_column', values));
    if (position >= record.prompt.length) {
      parts.push(t('chip_predicted', { ...values, by: visible(tokens[position - 1][1]) }));
    } else parts.push(t('chip_given'));
    if (position === record.prompt.length - 1) parts.push(t('chip_last_of_prompt'));
    return parts;
  }

  keyed(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    const chip = event.target.closest('[data-position]');
    if (!by || !chip) return;
    event.preventDefault();
    const all = [...this.list.querySelectorAll('[data-position]')];
    const next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(chip) + by))];
    this.stage.choose(Number(next.dataset.position));
    next.focus();
  }
}

/** All positions; of a long run the first few and the newest. */
function drawnPositions(nTokens) {
  const all = [...Array(nTokens).keys()];
  return nTokens <= MOST_CHIPS ? all : [...all.slice(0, FIRST_CHIPS), ...all.slice(FIRST_CHIPS - MOST_CHIPS)];
}

function chipOf(record, tokens, position, t) {
  const [id, label] = tokens[position];
  const isPrompt = position < record.prompt.length;
  const again = position < record.facts.computed_again ? ' tbt-again-chip' : '';
  const kind = isPrompt ? `tbt-prompt${again}` : 'tbt-produced';
  const title = t('chip_title', { position, id });
  const attributes = { type: 'button', class: `tbt-chip ${kind}`, 'data-position': position, title };
  const text = label.trim() ? label : visible(label);
  return el('li', {}, el('button', attributes, el('bdi', {}, text), el('small', {}, id)));
}

