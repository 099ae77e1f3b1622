// The engine's status as one visitor sees it: pure functions of the route's answer.

const FEWEST_PASSES = 5;
const HOME = 'home'; // the tag of the run that the home page shows: nobody's

/** A point of the curves counts once it is the median of some passes. */
export function isSolid(point) {
  return point.n_passes >= FEWEST_PASSES;
}

isSolid.least = FEWEST_PASSES;

/** What everything is drawn from: the seats (own ones first, the others in an order that stays), people, own model. */
export function momentOf(status, tag) {
  const seats = status.seats.map((seat) => ({ ...seat, isOwn: seat.tag === tag, isHome: seat.tag === HOME })).sort(inOrder);
  const own = seats.find(({ isOwn }) => isOwn) ?? null;
  const model = modelOf(status, seats, own);
  const here = seats.filter((seat) => seat.model === model?.model);
  const tagsOf = (some) => some.filter(({ isHome }) => !isHome).map((seat) => seat.tag);
  return {
    ...status,
    seats,
    own,
    model,
    here,
    decoding: here.filter(({ doing }) => doing === 'decoding'),
    people: new Set([tag, ...tagsOf(seats)]).size,
    peopleHere: new Set(tagsOf(here)).size,
    hasHome: here.some(({ isHome }) => isHome),
    nModels: new Set(seats.map((seat) => seat.model)).size,
  };
}

/** Own runs first, one that waits before the others; the rest by tag, so that rows keep their places. */
function inOrder(one, other) {
  const rank = (seat) => (seat.isOwn ? Number(seat.doing !== 'queued') : 2);
  return rank(one) - rank(other) || (one.tag < other.tag ? -1 : Number(one.tag > other.tag));
}

/** The model this visitor's run is on; without a run, the one that most people are on. */
function modelOf({ models }, seats, own) {
  const onIt = (name) => seats.filter((seat) => seat.model === name).length;
  const passes = (model) => model.by_batch.reduce((sum, point) => sum + point.n_passes, 0);
  if (own) return models.find(({ model }) => model === own.model) ?? unseen(own.model);
  const best = [...models].sort((one, other) => onIt(other.model) - onIt(one.model) || passes(other) - passes(one))[0];
  return best ?? (seats.length ? unseen(seats[0].model) : null);
}

/** A model of which no pass is known yet. */
function unseen(model) {
  return { model, batch: 0, step_s: 0, tokens_per_s: 0, weight_bytes: 0, by_batch: [] };
}

/** The two points that are compared: the smallest batch and the largest; null while there is only one. */
export function compared(points) {
  const solid = points.filter(isSolid).sort((one, other) => one.batch - other.batch);
  return solid.length > 1 ? { base: solid[0], most: solid.at(-1) } : null;
}

/** The sentence that the points prove, or why they prove none yet: [whether it is a takeaway, text]. */
export function sentenceOf(points, t) {
  const pair = compared(points);
  if (pair) {
    const { base, most } = pair;
    const slower = (most.step_s / base.step_s).toFixed(1);
    const faster = (most.tokens_per_s / base.tokens_per_s).toFixed(1);
    return [true, t('takeaway_batch', { batch: most.batch, base: base.batch, slower, faster })];
  }
  const batches = points.map(({ batch }) => batch);
  if (!batches.length) return [false, t('curve_none')];
  const batch = Math.max(...batches);
  return [false, batch === 1 ? t('curve_only_one') : t('curve_only', { batch })];
}

/** A heading about one model: it names the model where there are several. */
export function titled(title, { nModels, model }) {
  return nModels > 1 && model ? `${title} · ${model.model}` : title;
}

/** A rate: 6.2, 31, 1,240. */
export function rate(value) {
  return value < 9.95 ? value.toFixed(1) : Math.round(value).toLocaleString('en-US');
}

/** The next of 1, 2, 5, 10, 20 … that is not smaller. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= value * (1 - 1e-9));
}
