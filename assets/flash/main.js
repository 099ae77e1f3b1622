// Called by Streamlit with each run of the panel: the walk that stands there goes on unless another one was recorded.

import { wordsOf } from '../stage/words.js';
import { View } from './view.js';

const views = new WeakMap(); // by element

/** Called for every run of the page, and when the theme changes. Returns what stops the playing. */
export async function show({ data, parentElement }) {
  if (!data) return undefined;
  const t = await wordsOf(data.language, import.meta.url);
  const view = views.get(parentElement) ?? new View();
  views.set(parentElement, view);
  if (view.root.parentElement !== parentElement) parentElement.replaceChildren(view.root);
  view.take(data, t);
  return () => view.pause();
}
