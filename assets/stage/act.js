// What moves in the picture: the new column sliding in, the query going over the keys, the values coming back.

import { columnX } from './geometry.js';

const SLIDE = 56; // pixels a new column comes from
const FAINTEST = 0.02; // of the largest weight: what weighs less gets no frame
const MOST_STREAMS = 24; // values that are drawn on their way; the others are too faint to be seen

/** The middle of a layer's row. */
function rowY(place, layer) {
  return place.top + (layer + 0.5) * place.cellHeight;
}

/** The positions and weights that light up: those the query has passed, from the newest back; weights are 0 to 1. */
export function lit(weights, sweep) {
  const first = Math.ceil(weights.length * (1 - sweep));
  return [...weights.keys()].filter((position) => position >= first).map((position) => [position, weights[position]]);
}

/** The column a decode step brings, on its way from the right. */
export function incoming(context, place, cells, scene, ratio) {
  const from = columnX(place, scene.nColumns);
  const width = place.cellWidth;
  const x = from + SLIDE * (1 - ease(scene.incoming));
  context.globalAlpha = scene.incoming;
  const [left, top, height] = [from, place.top, place.bottom - place.top].map((value) => value * ratio);
  context.drawImage(cells.canvas, left, top, width * ratio, height, x, place.top, width, place.bottom - place.top);
  context.globalAlpha = 1;
}

/** The attention of one layer and head: a frame around each cell the query has met, the thicker the more it weighs. */
export function attention(context, place, { layer, weights }, scene, colours) {
  const most = Math.max(...weights, 1e-9);
  context.strokeStyle = colours.attention;
  const y = place.top + layer * place.cellHeight;
  const byBin = new Map();
  for (const [position, weight] of lit(weights, scene.sweep)) {
    if (weight < FAINTEST * most) continue;
    const x = columnX(place, position);
    byBin.set(x, (byBin.get(x) ?? 0) + weight);
  }
  for (const [x, weight] of byBin) {
    const share = Math.min(1, weight / most);
    context.lineWidth = 0.6 + 3 * Math.sqrt(share);
    context.globalAlpha = 0.35 + 0.65 * Math.sqrt(share);
    context.strokeRect(x - 0.5, y - 0.5, place.cellWidth, place.cellHeight);
  }
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

/** The attention of one head in all layers ([L, n] one after another): the brighter, the more a position weighs. */
export function attentionMap(context, place, weights, colours) {
  const n = weights.length / place.nLayers;
  context.fillStyle = colours.panel;
  const width = columnX(place, n - 1) + place.cellWidth - place.left;
  context.fillRect(place.left, place.top, width, place.bottom - place.top);
  context.fillStyle = colours.attention;
  const gap = place.cellHeight >= 6 ? 1 : 0;
  for (let layer = 0; layer < place.nLayers; layer += 1) {
    const row = weights.subarray(layer * n, (layer + 1) * n);
    const most = Math.max(...row);
    const y = place.top + layer * place.cellHeight;
    for (let bin = 0; bin * place.perBin < n; bin += 1) {
      const share = Math.max(...row.subarray(bin * place.perBin, (bin + 1) * place.perBin)) / most;
      context.globalAlpha = Math.sqrt(share);
      const x = place.left + bin * place.cellWidth;
      context.fillRect(x, y, place.cellWidth - (place.cellWidth >= 6 ? 1 : 0), place.cellHeight - gap);
    }
  }
  context.globalAlpha = 1;
}

/** The query, a disc beside the newest column; it moves over its keys, takes their values in, and fades. */
export function query(context, place, { layer, weights }, scene, colours) {
  const home = Math.min(place.width - 10, columnX(place, weights.length - 1) + place.cellWidth + 14);
  const away = scene.sweep > 0 && scene.sweep < 1;
  const x = away ? home - 14 - (home - 14 - place.left) * scene.sweep : home;
  const y = rowY(place, layer);
  context.globalAlpha = scene.query;
  if (scene.gather > 0) values(context, place, weights, { x, y }, scene.gather, colours);
  context.fillStyle = colours.q;
  context.beginPath();
  context.arc(x, y, 9, 0, 2 * Math.PI);
  context.fill();
  context.fillStyle = colours.panel;
  context.font = colours.bold;
  context.textAlign = 'center';
  context.fillText('Q', x, y + 4.5);
  context.textAlign = 'left';
  context.globalAlpha = 1;
}

/** Values on their way to the query, each as strong as its weight. */
function values(context, place, weights, to, share, colours) {
  const strongest = [...weights.keys()].sort((a, b) => weights[b] - weights[a]).slice(0, MOST_STREAMS);
  const most = weights[strongest[0]];
  context.strokeStyle = colours.v;
  for (const position of strongest) {
    const strength = Math.sqrt(weights[position] / most);
    const x = columnX(place, position) + place.cellWidth / 2;
    context.lineWidth = 0.5 + 2.5 * strength;
    context.globalAlpha = 0.15 + 0.75 * strength;
    context.beginPath();
    const come = x + (to.x - x) * ease(share);
    const height = Math.min(46, 8 + Math.abs(to.x - x) / 6);
    context.moveTo(come, to.y - height * Math.sin(Math.PI * ease(share)));
    context.quadraticCurveTo((come + to.x) / 2, to.y - height, to.x, to.y);
    context.stroke();
  }
  context.lineWidth = 1;
  context.globalAlpha = 1;
}

function ease(share) {
  return share * share * (3 - 2 * share);
}
