// Elements by hand. Every text goes in as a text node: nothing a visitor or a model wrote can become markup.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes (null and false are left out) and children (elements or texts; null is left out). */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
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
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  const shape = document.createElementNS(SVG, 'path');
  shape.setAttribute('d', path);
  svg.append(shape);
  return svg;
}

/** Puts children in place of what an element holds. */
export function refill(element, ...children) {
  element.replaceChildren(...present(children));
}

/** A figure that opens to its formula. `step` counts from 0. */
export function figure(name, step, text, focusable = true) {
  return el(
    'button',
    { type: 'button', class: 'tbt-open', 'data-figure': name, 'data-step': step, tabindex: focusable ? null : -1 },
    text,
  );
}
