// Numbers at the rim, as pages/shared/numbers.py writes them; a browser test holds the two together.

const MINUS = '−';
const UNITS = { binary: [1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']], decimal: [1000, ['B', 'kB', 'MB', 'GB', 'TB']] };

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
  return `${value.toFixed(digits)} ${prefixes[index]}`.trim();
}

/** Bytes with a prefix: 1.03 MiB, or 1.08 MB. */
export function scaledBytes(value, units) {
  const [base, names] = UNITS[units];
  let index = 0;
  let size = value;
  while (size >= base && index < names.length - 1) {
    size /= base;
    index += 1;
  }
  return index ? `${size.toFixed(size < 10 ? 2 : 1)} ${names[index]}` : `${value} B`;
}

/** A duration: 14.2 ms, 0.31 ms, 2.41 s. */
export function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 999.95) return `${seconds.toFixed(2)} s`;
  return `${ms.toFixed(ms >= 9.995 ? 1 : 2)} ms`;
}

/** A share of one: 41%, 6.2%, < 0.1%. */
export function percent(share) {
  if (share >= 0.0995) return `${(share * 100).toFixed(0)}%`;
  return share >= 0.001 ? `${(share * 100).toFixed(1)}%` : '< 0.1%';
}

/** How far a value is off: +7.9%, −0.04%, 0%. */
export function gapPercent(value, exact) {
  if (value === exact) return '0%';
  const off = (100 * (value - exact)) / exact;
  const text = Math.abs(off).toFixed(Math.abs(off) >= 0.1 ? 1 : 3);
  return `${off < 0 ? MINUS : '+'}${text}%`;
}
