// The stage's words, from the same catalogue as the pages' own; fetched once a language, from the app itself.

const loading = new Map();

/** Resolves to `t(key, values)`: a text in `language` with its placeholders filled. */
export function wordsOf(language) {
  if (!loading.has(language)) {
    const file = new URL(`words/${language}.json`, import.meta.url);
    const fetched = fetch(file).then((answer) => answer.json()).then((words) => (key, values = {}) =>
      words[key].replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole)));
    fetched.catch(() => loading.delete(language));
    loading.set(language, fetched);
  }
  return loading.get(language);
}
