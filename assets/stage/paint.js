// Draws the picture around the cells: what is reserved, the two phases, the axes, the chosen position.

import { columnX, layerStep, positionStep } from './geometry.js';
import { count } from './numbers.js';

/** Paints a run. `cells` is its CellLayer, `colours` are resolved CSS texts, `selected` a position or null. */
export function paint(context, place, record, { cells, colours, selected, t }) {
  context.clearRect(0, 0, place.width, place.height);
  context.font = colours.small;
  context.textBaseline = 'alphabetic';
  reserved(context, place, record, colours, t);
  if (!record.facts.use_cache) context.globalAlpha = 0.4;
  context.drawImage(cells.canvas, 0, 0, place.width, place.height);
  context.globalAlpha = 1;
  phases(context, place, record, colours, t);
  axes(context, place, record, colours, selected);
  if (selected !== null && selected < record.nColumns) mark(context, place, selected, colours);
}

function reserved(context, place, record, colours, t) {
  const { n_kv_heads: heads, n_layers: layers, head_dim: width, element_bytes: bytes } = record.facts;
  const newest = record.steps[record.steps.length - 1];
  const nReserved = newest.kv_reserved / (2 * layers * heads * width * bytes);
  const [from, to] = [columnX(place, record.nColumns), Math.min(place.right, columnX(place, nReserved))];
  if (to <= from) return;
  context.fillStyle = colours.reserved;
  context.fillRect(from, place.top, to - from, place.bottom - place.top);
  context.strokeStyle = colours.line;
  context.setLineDash([3, 3]);
  context.strokeRect(from + 0.5, place.top + 0.5, to - from - 1, place.bottom - place.top - 1);
  context.setLineDash([]);
  const label = t('picture_reserved', { count: count(nReserved - record.nColumns) });
  if (context.measureText(label).width + 16 > to - from) return;
  context.fillStyle = colours.muted;
  context.fillText(label, from + 8, place.top + 18);
}

function phases(context, place, record, colours, t) {
  const nPrompt = record.steps[0].n_tokens;
  const isCached = record.facts.use_cache;
  const prompt = [place.left, Math.min(place.right, columnX(place, nPrompt - 1) + place.cellWidth)];
  const end = columnX(place, record.nColumns - 1) + place.cellWidth;
  const names = isCached ? ['picture_prefill', 'picture_decode'] : ['picture_recompute', null];
  frame(context, place, prompt[0], isCached ? prompt[1] : end, isCached ? colours.prefill : colours.weights, !isCached);
  const first = t(names[0], { count: count(isCached ? nPrompt : record.nColumns) });
  context.fillStyle = isCached ? colours.prefillInk : colours.weightsInk;
  const { bold } = colours;
  context.font = bold;
  context.fillText(first, place.left, place.top - 9);
  if (!isCached || record.nColumns === nPrompt) return;
  frame(context, place, prompt[1], end, colours.decode, false);
  const second = t(names[1], { count: count(record.nColumns - nPrompt) });
  const room = place.width - context.measureText(second).width - 4;
  const x = Math.min(Math.max(prompt[1] + 2, place.left + context.measureText(first).width + 16), room);
  if (x < place.left + context.measureText(first).width + 8) return;
  context.fillStyle = colours.decode;
  context.fillText(second, x, place.top - 9);
}

function frame(context, place, from, to, colour, isDashed) {
  context.strokeStyle = colour;
  context.lineWidth = 1.6;
  if (isDashed) context.setLineDash([5, 4]);
  context.beginPath();
  context.roundRect(from - 1.5, place.top - 3, Math.max(4, to - from + 2), place.bottom - place.top + 4, 5);
  context.stroke();
  context.setLineDash([]);
  context.lineWidth = 1;
}

function axes(context, place, record, colours, selected) {
  context.fillStyle = colours.muted;
  context.font = colours.small;
  context.textAlign = 'right';
  const every = layerStep(place);
  for (let layer = 0; layer < place.nLayers; layer += every) {
    context.fillText(`L${layer}`, place.left - 6, place.top + (layer + 0.5) * place.cellHeight + 4);
  }
  context.textAlign = 'left';
  if (place.hasText) tokens(context, place, record, colours, selected);
  else {
    const step = positionStep(place);
    for (let position = 0; position < place.bins * place.perBin; position += step) {
      const x = columnX(place, position);
      const fits = x + context.measureText(String(position)).width <= place.width;
      if (fits) context.fillText(String(position), x, place.bottom + 15);
    }
  }
}

function tokens(context, place, record, colours, selected) {
  record.tokens.slice(0, record.nColumns).forEach(([, label], position) => {
    const text = clip(label);
    context.fillStyle = position === selected ? colours.ink : colours.muted;
    const [x, width] = [columnX(place, position), context.measureText(text).width];
    if (width <= place.cellWidth) {
      context.fillText(text, x + (place.cellWidth - width) / 2 - 0.5, place.bottom + 15);
      return;
    }
    context.save();
    context.translate(x + place.cellWidth / 2 - 2, place.bottom + 8);
    context.rotate(Math.PI / 3.2);
    context.fillText(text, 0, 4);
    context.restore();
  });
}

function clip(label) {
  const letters = [...label.trim()];
  return letters.length > 8 ? `${letters.slice(0, 7).join('')}…` : letters.join('') || label;
}

function mark(context, place, selected, colours) {
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  const x = columnX(place, selected);
  context.strokeRect(x - 1, place.top - 1, place.cellWidth + 1, place.bottom - place.top + 1);
  context.lineWidth = 1;
}
