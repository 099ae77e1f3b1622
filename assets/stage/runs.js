// What is known of each visit's run. Outlives a remount of the component: a rerun of the page may make one at any time.

const runs = new Map();

/** One run as far as it has arrived: settings, prompt, steps, and one byte a cell of its cache. */
export class RunRecord {
  constructor(visit, number) {
    this.visit = visit;
    this.number = number;
    this.facts = null;
    this.prompt = [];
    this.scales = [];
    this.steps = [];
    this.cells = new Uint8Array(0);
  }

  /** Positions whose keys and values the picture can show. */
  get nColumns() {
    return this.steps.length ? this.steps[this.steps.length - 1].n_tokens : 0;
  }

  /** Prompt and produced tokens: [id, label] each. */
  get tokens() {
    return [...this.prompt, ...this.steps.filter((step) => step.token).map((step) => step.token)];
  }

  /** The text produced so far. */
  get text() {
    return this.steps.map((step) => step.text).join('') + (this.facts?.tail ?? '');
  }

  /** Bytes of one column: layers × (K, V) × KV heads. */
  get columnBytes() {
    return this.facts.n_layers * 2 * this.facts.n_kv_heads;
  }

  /** The byte of one cell; `kind` 0 is K, 1 is V. */
  cell(position, layer, kind, head) {
    const heads = this.facts.n_kv_heads;
    return this.cells[position * this.columnBytes + (layer * 2 + kind) * heads + head];
  }

  /** Takes the steps of a frame from `header.start` on. False when steps before them are missing here. */
  take(header, cells) {
    if (header.start > this.steps.length) return false;
    this.facts = header.facts;
    if (header.start === 0 && header.total) {
      this.prompt = header.prompt;
      this.scales = header.scales;
    }
    this.steps.length = header.start;
    const first = this.nColumns;
    this.steps.push(...header.steps);
    if (header.total === 0) return true;
    this._room(this.nColumns);
    this.cells.set(cells, first * this.columnBytes);
    return true;
  }

  _room(nColumns) {
    const needed = nColumns * this.columnBytes;
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
