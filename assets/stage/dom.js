// Elements by hand. Every text goes in as a text node: nothing a visitor or a model wrote can become markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes (null and false are left out) and children (elements or texts; null is left out). */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same for an element of a drawing. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...present(children));
  return element;
}

function present(children) {
  return children.flat().filter((child) => child !== null && child !== undefined && child !== false);
}

/** An icon: one path in a box of 24, in the colour of the text around it. */
export function icon(path) {
  return svg('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true' }, svg('path', { d: path }));
}

/** Puts children in place of what an element holds. */
export function refill(element, ...children) {
  element.replaceChildren(...present(children));
}

/** A figure that opens to its formula, where `t` has somebody who can open it; `step` counts from 0. */
export function figure(t, name, step, text, focusable = true) {
  if (t.isAlone) return el('span', { 'data-figure': name, 'data-step': step }, text);
  const [, base, rank] = name.match(/^(.*?)(?:_(\d+))?$/);
  const label = `${t(`figure_${base}`)}${rank === undefined ? '' : ` ${Number(rank) + 1}`}: ${text}`;
  const attributes = { type: 'button', class: 'tbt-open', 'data-figure': name, 'data-step': step, 'aria-label': label };
  return el('button', { ...attributes, tabindex: focusable ? null : -1 }, text);
}

/** Draws, and gives the keyboard's focus back to a figure or chip that was drawn anew. */
export function keepingFocus(root, draw) {
  const { activeElement } = document;
  const names = root.contains(activeElement) ? [...activeElement.attributes] : [];
  const selector = names
    .filter(({ name }) => ['data-figure', 'data-position'].includes(name))
    .map(({ name, value }) => `[${name}="${CSS.escape(value)}"]`)
    .join('');
  draw();
  if (selector && !root.contains(document.activeElement)) root.querySelector(selector)?.focus();
}

/** Calls back once a dialog that is about to open has been closed again. */
export function whenDialogCloses(then) {
  let wasOpen = false;
  const deadline = performance.now() + 600_000;
  const look = () => {
    const isOpen = document.querySelector('[role="dialog"]') !== null;
    if (wasOpen && !isOpen) setTimeout(then, 60);
    else if (performance.now() < deadline) setTimeout(look, 120);
    wasOpen = isOpen;
  };
  look();
}
