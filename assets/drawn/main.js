// Called by Streamlit with a drawing that Python made as text. One of something under way asks for the next; a button
// in it that names a choice tells it to Python.

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
  root.onclick = ({ target }) => {
    const button = target.closest('button[data-choose]');
    if (button) setTriggerValue('chosen', button.dataset.choose);
  };
  if (root.parentElement !== parentElement) parentElement.replaceChildren(root);
  if (data.again) timers.set(parentElement, setTimeout(() => setTriggerValue('again', data.again), ASK_AGAIN_MS));
  return () => clearTimeout(timers.get(parentElement));
}
