// What is known of each visit's run. Outlives a remount of the component: a rerun of the page may make one at any time.

const MOST_WEIGHTS = 2e6; // of attention, kept for looking back
const runs = new Map();

/** One run as far as it has arrived: settings, prompt, steps, one byte a cell of its cache, rows of attention. */
class RunRecord {
  constructor(visit, number) {
    this.visit = visit;
    this.number = number;
    this.version = -1;
    this.facts = null;
    this.prompt = [];
    this.scales = [];
    this.steps = [];
    this.cells = new Uint8Array(0);
    this.rows = new Map();
    this.nWeights = 0;
    this.newestRow = null; // the layer and head whose attention comes with each step
  }

  /** Positions whose keys and values the picture can show, after so many steps. */
  nColumns(nSteps = this.steps.length) {
    return nSteps ? this.steps[nSteps - 1].n_tokens : 0;
  }

  /** Prompt and produced tokens: [id, label, whether it is part of a character] each. */
  get tokens() {
    if (this.listed !== this.steps.length) {
      this.list = [...this.prompt, ...this.steps.filter((step) => step.token).map((step) => step.token)];
      this.listed = this.steps.length;
    }
    return this.list;
  }

  /** The text produced by so many steps. */
  text(nSteps = this.steps.length) {
    const tail = nSteps === this.steps.length ? this.facts?.tail ?? '' : '';
    return this.steps.slice(0, nSteps).map((step) => step.text).join('') + tail;
  }

  /** Bytes of one column of the picture: layers × (K, V) × KV heads. */
  get columnCells() {
    return this.facts.n_layers * 2 * this.facts.n_kv_heads;
  }

  /** Bytes of the keys and values of one position, in all layers. */
  get positionBytes() {
    return this.columnCells * this.facts.head_dim * this.facts.element_bytes;
  }

  /** The byte of one cell; `kind` 0 is K, 1 is V. */
  cell(position, layer, kind, head) {
    const heads = this.facts.n_kv_heads;
    return this.cells[position * this.columnCells + (layer * 2 + kind) * heads + head];
  }

  /** The length of a cell's K or V vector, as well as its byte tells. */
  norm(position, layer, kind, head) {
    const [low, high] = this.scales[layer].slice(2 * kind, 2 * kind + 2);
    return low + ((high - low) * this.cell(position, layer, kind, head)) / 255;
  }

  /** Takes the steps of a frame from `header.start` on. False when steps before them are missing here. */
  take(header, body) {
    if (header.version < this.version) return true; // said before what has arrived since
    if (header.start > this.steps.length) return false;
    this.version = header.version;
    this.facts = header.facts;
    if (header.start === 0 && header.total) {
      this.prompt = header.prompt;
      this.scales = header.scales;
    }
    // A step that comes once more stays the object it was, and what was drawn for it stays drawn.
    const before = this.steps.splice(header.start);
    const isSame = (step, index) => before[index] && JSON.stringify(before[index]) === JSON.stringify(step);
    const steps = header.steps.map((step, index) => (isSame(step, index) ? before[index] : step));
    const nSame = steps.findIndex((step, index) => step !== before[index]);
    this.listed = -1;
    const first = this.nColumns();
    this.steps.push(...steps);
    this.forgetRows(header.start + (nSame < 0 ? steps.length : nSame));
    if (header.total === 0) return true;
    const nCells = (this.nColumns() - first) * this.columnCells;
    this.room(this.nColumns());
    this.cells.set(body.subarray(0, nCells), first * this.columnCells);
    let begin = nCells;
    for (const row of [...(header.rows ?? []), ...(header.attention ? [header.attention] : [])]) {
      const end = begin + 2 * this.steps[row.step].n_tokens;
      this.keepRow(row, body.subarray(begin, end));
      this.newestRow = { layer: row.layer, head: row.head };
      begin = end;
    }
    return true;
  }

  /** Keeps the attention of a step's newest position: {step, layer, head} and two bytes a weight. */
  keepRow({ step, layer, head }, bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const weights = new Float32Array(bytes.byteLength / 2);
    for (let index = 0; index < weights.length; index += 1) weights[index] = view.getUint16(2 * index, true) / 65535;
    this.rows.set(`${step} ${layer} ${head}`, { layer, head, weights });
    this.nWeights += weights.length;
    while (this.nWeights > MOST_WEIGHTS && this.rows.size > 1) this.forgetRow(this.rows.keys().next().value);
  }

  /** The attention of a step's newest position in a layer and head; for layer −1, of all layers one after another. */
  row(step, layer, head) {
    return this.rows.get(`${step} ${layer} ${head}`) ?? null;
  }

  forgetRows(fromStep) {
    for (const key of [...this.rows.keys()]) if (Number(key.split(' ')[0]) >= fromStep) this.forgetRow(key);
  }

  forgetRow(key) {
    this.nWeights -= this.rows.get(key).weights.length;
    this.rows.delete(key);
  }

  room(nColumns) {
    const needed = nColumns * this.columnCells;
    if (needed <= this.cells.length) return;
    const grown = new Uint8Array(Math.max(needed, 2 * this.cells.length));
    grown.set(this.cells);
    this.cells = grown;
  }
}

/** The record a frame belongs to; an older run of the same visit is forgotten. */
export function recordOf(header) {
  let record = runs.get(header.visit);
  if (!record || record.number !== header.run) {
    record = new RunRecord(header.visit, header.run);
    runs.set(header.visit, record);
  }
  return record;
}
