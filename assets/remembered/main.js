// Called by Streamlit with the name under which the server keeps something of a visitor's. Never part of an address.
// Sweeps outlive the browser: it remembers the first name it was told, and says it to a page that knows another.
// Answers belong to the tab: it remembers the newest name, once it has asked for what lies under the one before.

const KEY = 'tbt.';

/** Called for every run of the page. Draws nothing. */
export function show({ data, setTriggerValue }) {
  if (!data) return;
  try {
    const remembered = data.slot === 'lab' ? first(data.name) : newest(data.name, data.asks);
    if (remembered && remembered !== data.name) setTriggerValue('remembered', remembered);
  } catch {
    // a browser that remembers nothing
  }
}

function first(name) {
  const remembered = localStorage.getItem(`${KEY}lab`);
  if (!remembered) localStorage.setItem(`${KEY}lab`, name);
  return remembered;
}

function newest(name, asks) {
  const remembered = sessionStorage.getItem(`${KEY}questions`);
  if (!asks || !remembered) sessionStorage.setItem(`${KEY}questions`, name);
  return asks ? remembered : null;
}
