// Called by Streamlit with a drawing that Python made as text. One of something under way asks for the next.

const ASK_AGAIN_MS = 1000; // not more often: drawing takes the cores that are being measured
const timers = new WeakMap(); // by element: a new drawing in it takes the place of the question before

/** Called for every run of the page, and when the theme changes. Returns what ends the asking. */
export function show({ data, parentElement, setTriggerValue }) {
  if (!data) return undefined;
  clearTimeout(timers.get(parentElement));
  const root = parentElement.querySelector(':scope > .tbt-drawn') ?? document.createElement('div');
  const opened = [...root.querySelectorAll('details')].map(({ open }) => open);
  root.className = 'tbt-drawn';
  root.innerHTML = data.html; // every value in it was escaped where it was put together
  root.querySelectorAll('details').forEach((details, index) => { details.open = opened[index] ?? false; });
  if (root.parentElement !== parentElement) parentElement.replaceChildren(root);
  if (data.again) timers.set(parentElement, setTimeout(() => setTriggerValue('again', data.again), ASK_AGAIN_MS));
  return () => clearTimeout(timers.get(parentElement));
}
