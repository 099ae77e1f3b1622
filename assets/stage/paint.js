// Draws the picture at a moment: the cells as far as they are written, what is reserved, the two phases, the axes.

import { attention, incoming, query } from './act.js';
import { columnX, layerStep, positionStep } from './geometry.js';
import { count, visible } from './numbers.js';
import { positionsComputed } from './scene.js';

/**
 * Paints a scene. `cells` is the CellLayer of the whole record, `row` the attention of the step shown ({layer, weights}
 * or null), `colours` are resolved CSS texts, `selected` a position or null, `cell` the one looked at or null.
 */
export function paint(context, place, record, scene, { cells, row, colours, selected, cell, ratio, t }) {
  context.clearRect(0, 0, place.width, place.height);
  context.font = colours.small;
  context.textBaseline = 'alphabetic';
  reserved(context, place, record, scene, colours, t);
  written(context, place, record, scene, cells, ratio);
  phases(context, place, record, scene, colours, t);
  axes(context, place, record, scene, colours, selected);
  if (row) {
    attention(context, place, row, scene, colours);
    if (scene.query > 0) query(context, place, row, scene, colours);
  }
  if (selected !== null && selected < scene.nColumns) mark(context, place, selected, colours);
  if (cell) markCell(context, place, cell, colours);
}

/** The cells that are written: whole columns, of a pass under way only the layers it has reached. */
function written(context, place, record, scene, cells, ratio) {
  const width = columnX(place, Math.max(0, scene.nColumns - 1)) + place.cellWidth;
  const height = (place.bottom - place.top) * scene.rows;
  if (scene.nColumns && height > 0) {
    // Without a cache nothing is kept: what is drawn is what the pass under way, or the last one, computed.
    if (!record.facts.use_cache) context.globalAlpha = scene.share ? 0.9 : 0.4;
    const [right, down] = [width * ratio, (place.top + height) * ratio];
    context.drawImage(cells.canvas, 0, 0, right, down, 0, 0, width, place.top + height);
    context.globalAlpha = 1;
  }
  if (scene.incoming > 0) incoming(context, place, cells, scene, ratio);
}

function reserved(context, place, record, scene, colours, t) {
  const step = record.steps[Math.max(0, scene.step ?? 0)];
  const nReserved = step.kv_reserved / record.positionBytes;
  const begin = scene.nColumns + (scene.incoming > 0 ? 1 : 0);
  const [from, to] = [columnX(place, begin), Math.min(place.right, columnX(place, nReserved))];
  if (to <= from) return;
  context.fillStyle = colours.reserved;
  context.fillRect(from, place.top, to - from, place.bottom - place.top);
  context.strokeStyle = colours.line;
  context.setLineDash([3, 3]);
  context.strokeRect(from + 0.5, place.top + 0.5, to - from - 1, place.bottom - place.top - 1);
  context.setLineDash([]);
  const label = t('picture_reserved', { count: count(nReserved - begin) });
  if (context.measureText(label).width + 16 > to - from) return;
  context.fillStyle = colours.muted;
  context.fillText(label, from + 8, place.top + 18);
}

function phases(context, place, record, scene, colours, t) {
  if (scene.step === null) return;
  const nPrompt = record.steps[0].n_tokens;
  const isCached = record.facts.use_cache;
  const nShown = scene.nColumns + (scene.incoming > 0 ? 1 : 0);
  const end = columnX(place, Math.max(0, nShown - 1)) + place.cellWidth;
  const promptEnd = Math.min(end, columnX(place, nPrompt - 1) + place.cellWidth);
  context.font = colours.bold;
  if (!isCached) {
    const { computed, cached } = positionsComputed(record.steps, scene.step + 1);
    frame(context, place, place.left, end, colours.weights, true);
    context.fillStyle = colours.weightsInk;
    const values = { computed: count(computed), cached: count(cached) };
    context.fillText(t('picture_recompute', values), place.left, place.top - 9);
    return;
  }
  frame(context, place, place.left, promptEnd, colours.prefill, false);
  const first = t('picture_prefill', { count: count(nPrompt) });
  context.fillStyle = colours.prefillInk;
  context.fillText(first, place.left, place.top - 9);
  if (nShown <= nPrompt) return;
  frame(context, place, promptEnd, end, colours.decode, false);
  const second = t('picture_decode', { count: count(nShown - nPrompt) });
  const after = place.left + context.measureText(first).width;
  const room = place.width - context.measureText(second).width - 4;
  const x = Math.min(Math.max(promptEnd + 2, after + 16), room);
  if (x < after + 8) return;
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

function axes(context, place, record, scene, colours, selected) {
  context.fillStyle = colours.muted;
  context.font = colours.small;
  context.textAlign = 'right';
  const every = layerStep(place);
  for (let layer = 0; layer < place.nLayers; layer += every) {
    context.fillText(`L${layer}`, place.left - 6, place.top + (layer + 0.5) * place.cellHeight + 4);
  }
  context.textAlign = 'left';
  if (place.hasText) {
    tokens(context, place, record, scene, colours, selected);
    return;
  }
  const step = positionStep(place);
  for (let position = 0; position < place.bins * place.perBin; position += step) {
    const x = columnX(place, position);
    const fits = x + context.measureText(String(position)).width <= place.width;
    if (fits) context.fillText(String(position), x, place.bottom + 15);
  }
}

function tokens(context, place, record, scene, colours, selected) {
  const nShown = scene.nColumns + (scene.incoming > 0 ? 1 : 0);
  record.tokens.slice(0, nShown).forEach(([, label], position) => {
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
  const letters = [...visible(label)];
  return letters.length > 8 ? `${letters.slice(0, 7).join('')}…` : letters.join('');
}

function mark(context, place, selected, colours) {
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  context.strokeRect(columnX(place, selected) - 1, place.top - 1, place.cellWidth + 1, place.bottom - place.top + 1);
  context.lineWidth = 1;
}

function markCell(context, place, { position, layer }, colours) {
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  const y = place.top + layer * place.cellHeight;
  context.strokeRect(columnX(place, position) - 1, y - 1, place.cellWidth + 1, place.cellHeight + 1);
  context.lineWidth = 1;
}
