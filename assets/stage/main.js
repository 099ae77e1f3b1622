// Called by Streamlit with each frame: finds the stage it is for and hands it on.

import { readFrame } from './frame.js';
import { Stage } from './stage.js';
import { wordsOf } from './words.js';

const stages = new Map(); // by name: a rerun may put the component into a new element, and the stage moves along

/** Called for every new frame, and when the theme changes. Returns what ends the stage. */
export async function show({ data, parentElement, setTriggerValue }) {
  if (!data) return undefined;
  const { header, body } = readFrame(new Uint8Array(data));
  const t = await wordsOf(header.language);
  const stage = stages.get(header.stage) ?? new Stage();
  stages.set(header.stage, stage);
  stage.moveTo(parentElement);
  stage.send = (event) => setTriggerValue('event', event);
  stage.take(header, body, t);
  return () => stage.left(parentElement, () => stages.delete(header.stage));
}

/** The stages on this page, for tests to look at. */
export function all() {
  return [...stages.values()];
}
