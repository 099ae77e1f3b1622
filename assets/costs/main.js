// Called by Streamlit with what Python shows on an estimate page: dials, a chart, figures, the block of bytes.

import { Home } from '../stage/home.js';
import { wordsOf } from '../stage/words.js';
import { Block } from './block.js';
import { Cards } from './cards.js';
import { Chart } from './chart.js';
import { Dials } from './dials.js';
import { feedOf } from './feed.js';

const PARTS = { block: Block, cards: Cards, chart: Chart, dials: Dials };
const shown = new Map(); // by key: a rerun may put a component into a new element, and the part moves along

/** Called for every run of the page, and when the theme changes. Returns what ends the part. */
export async function show({ data, parentElement, setTriggerValue }) {
  if (!data) return undefined;
  const t = await wordsOf(data.language, import.meta.url);
  const feed = data.feed ? feedOf(data.feed.id) : null;
  feed?.take(data.feed);
  const part = shown.get(data.key) ?? new PARTS[data.kind](feed);
  shown.set(data.key, part);
  part.home ??= new Home(part.root, () => part.arrive?.());
  part.home.enter(parentElement);
  part.send = setTriggerValue;
  await part.take(data, t);
  return () => part.home.leave(parentElement, () => {
    part.leave();
    if (shown.get(data.key) === part) shown.delete(data.key);
  });
}

/** The parts on this page by key, for tests to look at. */
export function all() {
  return Object.fromEntries(shown);
}
