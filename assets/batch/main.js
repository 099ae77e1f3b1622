// Called by Streamlit with each run of the page: finds the view that stands there already and hands the news on.

import { Home } from '../stage/home.js';
import { wordsOf } from '../stage/words.js';
import { View } from './view.js';

const views = new Map(); // by key; kept when the page is left, so that it comes back as it was, opened or closed

/** Called for every run of the page, and when the theme changes. Returns what ends the asking. */
export async function show({ data, parentElement }) {
  if (!data) return undefined;
  const t = await wordsOf(data.language, import.meta.url);
  const view = views.get('batch') ?? new View(new URL('../../../api/batch', import.meta.url));
  views.set('batch', view);
  view.home ??= new Home(view.root);
  view.home.enter(parentElement);
  view.take(data, t);
  return () => view.home.leave(parentElement, () => view.leave());
}
