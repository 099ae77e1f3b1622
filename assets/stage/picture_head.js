// Above the picture: what the cells show, and the layer and head whose attention is looked at.

import { kindsOf } from './cells.js';
import { el, refill } from './dom.js';

const VIEWS = ['both', 'k', 'v', 'attention'];

export class PictureHead {
  constructor(picture) {
    this.picture = picture;
    this.shown = 'both';
    this.chosen = null; // {layer, head}; null: as the server chose
    this.title = el('h2', {});
    this.switch = el('div', { class: 'tbt-switch', role: 'group' });
    this.layer = this.select('layer');
    this.headSelect = this.select('head');
    this.layerName = el('span', {});
    this.headName = el('span', {});
    const focus = [el('label', {}, this.layerName, this.layer), el('label', {}, this.headName, this.headSelect)];
    this.focusBox = el('span', { class: 'tbt-focus' }, focus);
    this.legend = el('p', { class: 'tbt-note tbt-legend' });
    this.root = el('header', {}, this.title, this.switch, this.focusBox, this.legend);
  }

  /** The layer and head looked at: the chosen ones, if this model has them; else those the newest row came from. */
  get focus() {
    const { header, record: { facts, newestRow } } = this.picture.stage;
    const { layer = -1, head = -1 } = (header.replay ? null : this.chosen) ?? {};
    if (layer >= 0 && layer < facts.n_layers && head < facts.n_heads) return { layer, head };
    return newestRow ?? { layer: Math.floor(facts.n_layers / 2), head: 0 };
  }

  select(part) {
    const select = el('select', { 'data-focus': part });
    select.addEventListener('change', () => {
      this.chosen = { ...this.focus, [part]: Number(select.value) };
      this.picture.stage.wish();
    });
    return select;
  }

  update({ header, record, t }) {
    const { facts } = record;
    this.title.textContent = t('picture');
    this.legend.textContent = `${t('picture_axes')} · ${t('heads_per_cell', { count: facts.n_kv_heads })}`;
    this.focusBox.hidden = !facts.use_cache;
    // What a file holds of attention is one head's; the others cannot be asked for.
    for (const select of [this.layer, this.headSelect]) select.disabled = Boolean(header.replay);
    this.focusBox.title = header.replay ? t('replay_one_head') : '';
    this.fill(this.layer, this.layerName, t('focus_layer'), facts.n_layers, this.focus.layer);
    this.fill(this.headSelect, this.headName, t('focus_head'), facts.n_heads, this.focus.head);
    this.drawSwitch(header, t);
  }

  fill(select, name, text, size, value) {
    name.textContent = text;
    const numbers = [...Array(size).keys()];
    if (select.options.length !== size) refill(select, numbers.map((n) => el('option', { value: n }, n)));
    if (document.activeElement !== select) select.value = value;
  }

  drawSwitch({ language, replay }, t) {
    if (replay && this.shown === 'attention') this.shown = 'both';
    const state = `${language} ${this.shown} ${replay ?? ''}`;
    if (this.switch.dataset.state === state) return;
    this.switch.dataset.state = state;
    this.switch.setAttribute('aria-label', t('picture_switch'));
    refill(this.switch, VIEWS.map((shown) => this.button(shown, t, replay)));
  }

  button(shown, t, replay) {
    const marks = shown === 'attention' ? ['tbt-mark-a'] : kindsOf(shown).map((kind) => `tbt-mark-${'kv'[kind]}`);
    const attributes = { type: 'button', 'aria-pressed': String(shown === this.shown), 'data-show': shown };
    const isMissing = Boolean(replay) && shown === 'attention';
    const why = isMissing ? { disabled: true, title: t('replay_one_head') } : {};
    const marked = marks.map((mark) => el('i', { class: mark }));
    const button = el('button', { ...attributes, ...why }, marked, t(`show_${shown}`));
    button.addEventListener('click', () => {
      this.shown = shown;
      this.drawSwitch(this.picture.stage.header, t);
      this.switch.querySelector('[aria-pressed=true]').focus();
      this.picture.stage.wish();
    });
    return button;
  }
}
