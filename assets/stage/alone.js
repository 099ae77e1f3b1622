// The stage on a page that was saved: one run, its words and its bytes stand in the page, and nobody is asked.

import { readFrame } from './frame.js';
import { Stage } from './stage.js';
import { speaker } from './words.js';

/** Puts the stage into `parent`. `frame` is the run in the stage's own bytes, `words` the catalogue of its language. */
export function alone(parent, frame, words) {
  const { header, body } = readFrame(frame);
  const stage = new Stage();
  stage.moveTo(parent);
  stage.take(header, body, Object.assign(speaker(words), { isAlone: true }));
  // The page follows its reader's system; the canvas knows no CSS.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    stage.picture.colours = null;
    stage.wish();
  });
  return stage;
}

/** The bytes of a text in base64, unpacked. */
export async function unpacked(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
