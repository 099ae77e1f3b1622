// Called by Streamlit with the name under which a visitor's sweeps are kept. The browser remembers the first it was told,
// and says it to a page that knows another: after a refresh, or when the browser was closed. Never part of an address.

const KEY = 'tbt.lab';

/** Called for every run of the page. Draws nothing. */
export function show({ data, setTriggerValue }) {
  if (!data) return;
  let remembered = null;
  try {
    remembered = localStorage.getItem(KEY);
    if (!remembered) localStorage.setItem(KEY, data.name);
  } catch {
    return; // a browser that remembers nothing
  }
  if (remembered && remembered !== data.name) setTriggerValue('remembered', remembered);
}
