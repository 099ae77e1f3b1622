// Numbers at the rim, as pages/shared/numbers.py writes them; a browser test holds the two together.

const MINUS = '−';
const UNITS = { binary: [1024, ['KiB', 'MiB', 'GiB', 'TiB']], decimal: [1000, ['kB', 'MB', 'GB', 'TB']] };

/** `toFixed`, with exact ties going to the even digit, as Python rounds. */
function fixed(value, digits) {
  const exact = Math.abs(value).toFixed(60); // all its decimals: a double below 2 ** 53 has no more that count
  const end = exact.indexOf('.') + 1 + digits;
  const kept = exact.slice(0, digits ? end : end - 1);
  const goesDown = /^50*$/.test(exact.slice(end)) && Number(kept.at(-1)) % 2 === 0;
  return goesDown ? `${value < 0 ? '-' : ''}${kept}` : value.toFixed(digits);
}

/** A whole number with separators: 1,082,880. */
export function count(value) {
  return Math.round(value).toLocaleString('en-US').replace('-', MINUS);
}

/** Three significant figures and a decimal prefix: 9.77 G. */
export function scaled(value) {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P'];
  let index = 0;
  while (Math.abs(value) >= 999.5 && index < prefixes.length - 1) {
    value /= 1000;
    index += 1;
  }
  const whole = String(Math.trunc(Math.abs(value))).length;
  const digits = index ? Math.max(0, 3 - whole) : 0;
  return `${fixed(value, digits)} ${prefixes[index]}`.trim();
}

/** Bytes with a prefix: 1.03 MiB, or 1.08 MB. */
export function scaledBytes(value, units) {
  const [base, names] = UNITS[units];
  if (value < base) return `${value} B`;
  let size = value / base;
  let index = 0;
  while (size >= base - 0.05 && index < names.length - 1) {
    size /= base;
    index += 1;
  }
  return `${fixed(size, size < 9.995 ? 2 : 1)} ${names[index]}`;
}

/** A duration: 0.31 ms, 14.2 ms, 216.3 ms, 2.41 s. */
export function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 999.95) return `${fixed(seconds, 2)} s`;
  return `${fixed(ms, ms >= 9.995 ? 1 : 2)} ms`;
}

/** A share of one: 41%, 6.2%, < 0.1%. */
export function percent(share) {
  if (share >= 0.0995) return `${fixed(share * 100, 0)}%`;
  return share >= 0.001 ? `${fixed(share * 100, 1)}%` : '< 0.1%';
}

/** How far a value is off: +7.9%, −0.04%, 0%. */
export function gapPercent(value, exact) {
  if (value === exact) return '0%';
  const off = (100 * (value - exact)) / exact;
  const text = fixed(Math.abs(off), Math.abs(off) >= 0.1 ? 1 : 3);
  return `${off < 0 ? MINUS : '+'}${text}%`;
}

/** A token's label with nothing invisible in it: blanks at its edges go, and nothing but blanks becomes signs. */
export function visible(label) {
  return label.trim() || label.replaceAll(' ', '␣');
}
