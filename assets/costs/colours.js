// Colours of the page's theme for a figure that names them as CSS variables: plotly knows none.

const VARIABLE = /^var\(--[\w-]+\)$/;

/** What resolves figures in the theme of this moment. Reading a style is slow, so each colour is read once. */
export function paletteOf(root) {
  const { fontFamily } = getComputedStyle(root);
  const known = new Map();
  const read = (text) => {
    const probe = document.createElement('i');
    probe.style.color = text;
    root.append(probe);
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  };
  const resolved = (value) => {
    if (typeof value === 'string') {
      if (!VARIABLE.test(value)) return value;
      if (!known.has(value)) known.set(value, read(value));
      return known.get(value);
    }
    if (Array.isArray(value)) return typeof value[0] === 'number' ? value : value.map(resolved);
    if (value && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, resolved(inner)]));
    return value;
  };
  const font = { family: fontFamily, color: resolved('var(--tbt-ink)') };
  /** The same figure with every `var(--…)` in it as a colour, and the page's font. */
  return (figure) => {
    const { data, layout } = resolved(figure);
    return { data, layout: { ...layout, font: { ...layout.font, ...font }, hoverlabel: { font: { family: font.family } } } };
  };
}
