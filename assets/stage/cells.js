// The cells of the cache on a canvas of their own: layers down, positions across, K beside V, KV heads inside a cell.
// A column that is drawn stays, so a step costs the one column it adds.

const MOST_SHAPES = 16000; // above, cells are painted as pixels of an image, which is stretched

/** Which kinds (0: K, 1: V) stand side by side in a cell. */
export function kindsOf(shown) {
  return { both: [0, 1], k: [0], v: [1] }[shown];
}

/** The colour of a cell: from paper to the full colour as its norm goes from faint to strong. */
export function shade(level, colour, paper) {
  const share = 0.14 + (0.86 * level) / 255;
  return colour.map((channel, index) => Math.round(paper[index] + (channel - paper[index]) * share));
}

/** The byte of a cell; where several positions share it, their mean. */
export function binLevel(record, bin, perBin, layer, kind, head) {
  const first = bin * perBin;
  const end = Math.min(first + perBin, record.nColumns());
  let sum = 0;
  for (let position = first; position < end; position += 1) sum += record.cell(position, layer, kind, head);
  return Math.round(sum / (end - first));
}

export class CellLayer {
  constructor() {
    this.canvas = document.createElement('canvas');
    this.context = this.canvas.getContext('2d');
    this.drawn = { key: '', record: null, steps: [] };
  }

  /** Brings the canvas up to what the record holds: only what is new, unless the picture itself has changed. */
  update(place, record, shown, { kinds, paper }, ratio) {
    const key = JSON.stringify([place, shown, kinds, paper, ratio]);
    const { drawn } = this;
    let same = 0;
    if (drawn.key === key && drawn.record === record) {
      while (same < drawn.steps.length && drawn.steps[same] === record.steps[same]) same += 1;
    } else {
      Object.assign(this.canvas, { width: Math.round(place.width * ratio), height: Math.round(place.height * ratio) });
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.tables = [0, 1].map((kind) => [...Array(256).keys()].map((level) => shade(level, kinds[kind], paper)));
    }
    const from = Math.floor((same ? record.steps[same - 1].n_tokens : 0) / place.perBin);
    const x = place.left + from * place.cellWidth;
    this.context.clearRect(x, 0, place.width - x, place.height);
    const range = { from, to: Math.ceil(record.nColumns() / place.perBin) };
    const { n_layers: layers, n_kv_heads: heads } = record.facts;
    const sides = kindsOf(shown);
    const isDense = place.bins * layers * heads * sides.length > MOST_SHAPES;
    if (range.to > from) (isDense ? this.stretch : this.shapes).call(this, place, record, sides, range);
    this.drawn = { key, record, steps: [...record.steps] };
  }

  shapes(place, record, sides, { from, to }) {
    const { n_layers: layers, n_kv_heads: heads } = record.facts;
    const gap = place.cellWidth >= 7 ? 1 : 0;
    const rowGap = place.cellHeight >= 8 ? 2 : place.cellHeight >= 5 ? 1 : 0;
    const part = (place.cellWidth - gap) / sides.length;
    const headHeight = (place.cellHeight - rowGap) / heads;
    const [width, height] = [part - (part >= 4 ? 0.5 : 0), headHeight - (headHeight >= 5 ? 0.5 : 0)];
    for (let bin = from; bin < to; bin += 1) {
      for (let layer = 0; layer < layers; layer += 1) {
        sides.forEach((kind, side) => {
          for (let head = 0; head < heads; head += 1) {
            const level = binLevel(record, bin, place.perBin, layer, kind, head);
            this.context.fillStyle = `rgb(${this.tables[kind][level].join(' ')})`;
            const y = place.top + layer * place.cellHeight + head * headHeight;
            this.context.fillRect(place.left + bin * place.cellWidth + side * part, y, width, height);
          }
        });
      }
    }
  }

  stretch(place, record, sides, { from, to }) {
    const { n_layers: layers, n_kv_heads: heads } = record.facts;
    const [across, down] = [(to - from) * sides.length, layers * heads];
    const pixels = new ImageData(across, down);
    for (let bin = from; bin < to; bin += 1) {
      sides.forEach((kind, side) => {
        for (let row = 0; row < down; row += 1) {
          const level = binLevel(record, bin, place.perBin, Math.floor(row / heads), kind, row % heads);
          const at = 4 * (row * across + (bin - from) * sides.length + side);
          pixels.data.set(this.tables[kind][level], at);
          pixels.data[at + 3] = 255;
        }
      });
    }
    const small = document.createElement('canvas');
    Object.assign(small, { width: across, height: down });
    small.getContext('2d').putImageData(pixels, 0, 0);
    this.context.imageSmoothingEnabled = false;
    const x = place.left + from * place.cellWidth;
    this.context.drawImage(small, x, place.top, (to - from) * place.cellWidth, place.bottom - place.top);
  }
}
