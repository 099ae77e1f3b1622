// A component's words, from the same catalogue as the pages' own; fetched once a language, from the app itself.

const loading = new Map();

/** `t(key, values)` out of a catalogue: the text with its placeholders filled. */
export function speaker(words) {
  return (key, values = {}) =>
    words[key].replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/** Resolves to `t(key, values)`: a text in `language` with its placeholders filled, of the words beside `module`. */
export function wordsOf(language, module = import.meta.url) {
  const file = new URL(`words/${language}.json`, module).href;
  if (!loading.has(file)) {
    const fetched = fetch(file).then((answer) => answer.json()).then(speaker);
    fetched.catch(() => loading.delete(file));
    loading.set(file, fetched);
  }
  return loading.get(file);
}
