// Called by Streamlit with each run of the home page: finds the view that stands there already and hands the news on.

import { Home } from '../stage/home.js';
import { wordsOf } from '../stage/words.js';
import { View } from './view.js';

let view = null; // kept when the page is left, so that it comes back as it was, paused or not

/** Called for every run of the page, and when the theme changes. Returns what ends the watching. */
export async function show({ data, parentElement }) {
  if (!data) return undefined;
  const t = await wordsOf(data.language, import.meta.url);
  view ??= new View(new URL('../../../api/live', import.meta.url));
  view.home ??= new Home(view.root);
  view.home.enter(parentElement);
  view.take(data, t);
  return () => view.home.leave(parentElement, () => view.leave());
}
