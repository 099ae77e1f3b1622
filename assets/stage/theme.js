// The colours of the theme at this moment: a canvas knows no CSS.

const INKS = {
  ink: '--tbt-ink',
  muted: '--tbt-muted',
  line: '--tbt-line',
  panel: '--tbt-panel',
  k: '--tbt-k',
  v: '--tbt-v',
  q: '--tbt-q',
  prefill: '--tbt-prefill',
  prefillInk: '--tbt-prefill-ink',
  decode: '--tbt-decode',
  weights: '--tbt-weights',
  weightsInk: '--tbt-weights-ink',
  attention: '--tbt-attention',
  reserved: '--tbt-reserved',
};
let known = { key: '', colours: null };

/** Colours as CSS texts, K, V and paper as [r, g, b] too, and the fonts. `probe` is an element nobody sees. */
export function readColours(probe, root) {
  const style = getComputedStyle(root);
  const key = `${style.colorScheme} ${style.backgroundColor} ${style.fontFamily}`;
  if (known.key === key) return known.colours;
  const colours = {};
  for (const [name, variable] of Object.entries(INKS)) {
    probe.style.color = `var(${variable})`;
    colours[name] = getComputedStyle(probe).color;
  }
  const channels = (text) => text.match(/[\d.]+/g).slice(0, 3).map(Number);
  colours.kinds = [channels(colours.k), channels(colours.v)];
  colours.paper = channels(colours.panel);
  colours.small = `12px ${style.fontFamily}`;
  colours.bold = `600 13px ${style.fontFamily}`;
  known = { key, colours };
  return colours;
}
