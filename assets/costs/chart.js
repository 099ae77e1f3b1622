// A plotly figure drawn in place: a new one is a change of the old, so zoom and looks stay, and nothing flickers.

import { el, refill } from '../stage/dom.js';
import { paletteOf } from './colours.js';
import { SEEN, UNSEEN } from './feed.js';

let loading = null;
// Charts whose figure has changed: the first is drawn at once, the others one a frame, so that no frame is long.
const waiting = new Set();
let framing = false;
/** How far outside of what scrolls a chart already counts as seen: what is scrolled to is there. */
const NEAR = '200px';

/** plotly.js, from the app itself; only a page with a chart asks for it. */
function plotly(address) {
  loading ??= new Promise((resolve, reject) => {
    const script = el('script', { src: new URL(address, document.baseURI).href });
    script.addEventListener('load', () => resolve(window.Plotly));
    script.addEventListener('error', () => { loading = null; reject(new Error('plotly')); });
    document.head.append(script);
  });
  return loading;
}

function drawSoon(chart) {
  if (framing) {
    waiting.add(chart);
    return;
  }
  framing = true;
  requestAnimationFrame(() => {
    framing = false;
    const [next] = waiting;
    waiting.delete(next);
    if (next) drawSoon(next);
  });
  chart.draw();
}

/** The figure with what an answer changes: arrays of each trace by place, shapes and annotations, axis ranges. */
export function changed(figure, { data = [], layout = {} }) {
  return {
    data: figure.data.map((trace, place) => ({ ...trace, ...data[place] })),
    layout: Object.entries(layout).reduce(
      (whole, [name, value]) => ({ ...whole, [name]: Array.isArray(value) ? value : { ...whole[name], ...value } }),
      figure.layout,
    ),
  };
}

/** The numbers of a figure, one column a trace that has one (`meta`); bars that lie have their names on y. */
export function csvOf({ data, layout }) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const columns = data.filter((trace) => trace.meta && trace.visible !== false);
  const [along, values] = columns[0].orientation === 'h' ? ['y', 'x'] : ['x', 'y'];
  const header = [layout.meta.x, ...columns.map((trace) => trace.meta)];
  const rows = columns[0][along].map((name, place) => [name, ...columns.map((trace) => trace[values][place] ?? '')]);
  return [header, ...rows].map((row) => row.map((cell) => quoted(String(cell))).join(',')).join('\n');
}

export class Chart {
  constructor(feed) {
    this.feed = feed;
    this.plot = el('div', { class: 'tbt-plot' });
    this.tools = el('div', { class: 'tbt-chart-tools' });
    this.root = el('div', { class: 'tbt-chart' }, this.tools, this.plot);
    this.scales = {};
    this.isSeen = true; // until the browser says that it is not
  }

  /** figure: {data, layout}, colours as CSS variables; `curve`: the live route that changes it. */
  async take(data, t) {
    Object.assign(this, { given: data, t, figure: data.figure });
    this.end?.();
    this.route = data.curve && this.feed ? `curves/${data.curve}` : null;
    this.end = this.route && this.feed.listen(this.route, (news) => this.follow(news), () => (this.isSeen ? SEEN : UNSEEN));
    this.plotly = await plotly(data.plotly);
    this.coloured = paletteOf(this.root);
    this.drawTools();
    await this.draw();
    this.observer ??= new ResizeObserver(() => this.root.isConnected && this.plotly.Plots.resize(this.plot));
    this.observer.observe(this.root);
    this.view ??= new IntersectionObserver((found) => this.see(found.at(-1).isIntersecting), { scrollMargin: NEAR });
    this.view.observe(this.root);
  }

  /** Whether it is in view; what it has missed meanwhile is asked for. */
  see(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && this.route) this.feed.catchUp(this.route);
  }

  leave() {
    this.end?.();
    waiting.delete(this);
    this.observer?.disconnect();
    this.view?.disconnect();
    if (this.plotly) this.plotly.purge(this.plot);
  }

  follow(news) {
    this.figure = changed(this.figure, news);
    if (this.coloured) drawSoon(this); // before that, what is being loaded will draw it
  }

  /** It stands in another element now. */
  arrive() {
    if (this.isBehind) this.draw();
  }

  async draw() {
    this.isBehind = !this.root.isConnected; // on its way to another element: it is drawn there
    if (this.isBehind) return;
    const { data, layout } = this.coloured(this.figure);
    const turned = Object.entries(this.scales).filter(([axis, type]) => type !== layout[axis].type);
    const axes = Object.fromEntries(turned.map(([axis, type]) => [axis, { ...layout[axis], type, autorange: true, range: undefined }]));
    const shape = { ...layout, ...axes, autosize: true, uirevision: JSON.stringify(this.scales) };
    await this.plotly.react(this.plot, data, shape, { displayModeBar: false, responsive: false });
    this.plot.setAttribute('role', 'img');
    this.plot.setAttribute('aria-label', this.given.alt);
    this.root.dataset.drawn = String(Number(this.root.dataset.drawn ?? 0) + 1);
  }

  drawTools() {
    const tool = (name, act, pressed = null) => {
      const button = el('button', { type: 'button', class: 'tbt-tool', 'data-tool': name, 'aria-pressed': pressed }, this.t(`tool_${name}`));
      button.addEventListener('click', act);
      return button;
    };
    const scale = this.given.scales?.length
      ? tool('log', () => this.flip(), String((this.scales[this.given.scales[0]] ?? this.figure.layout[this.given.scales[0]].type) === 'log'))
      : null;
    const image = (format) => tool(format, () => this.plotly.downloadImage(this.plot, { format, filename: this.given.name, width: 1200, height: 640 }));
    refill(this.tools, scale, image('png'), image('svg'), this.given.csv ? tool('csv', () => this.download()) : null);
  }

  flip() {
    for (const axis of this.given.scales) {
      const now = this.scales[axis] ?? this.figure.layout[axis].type;
      this.scales[axis] = now === 'log' ? 'linear' : 'log';
    }
    this.drawTools();
    this.draw();
  }

  download() {
    const file = new Blob([csvOf(this.figure)], { type: 'text/csv' });
    const link = el('a', { href: URL.createObjectURL(file), download: `${this.given.name}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  }
}
