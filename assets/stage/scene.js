// What the picture shows at a moment of the timeline: a pure function of the record and the moment.
//
// A moment is a number: its whole part says how many steps are done, its fraction how far the next one has come. So any
// moment can be drawn again, forwards or backwards, and none needs the server.

/** Shares of a decode step: the column slides in, the query meets the keys, gathers the values, is gone. */
export const DECODE = { written: 0.25, compared: 0.65, gathered: 0.9 };
/** Shares of a pass over a prefix: with nothing kept, what stood there goes first; then layer after layer comes. */
export const PREFIX = { cleared: 0.15 };

/**
 * The scene at `at` of a record of steps {phase, n_tokens, new}.
 *
 * `step` is the step under way or else the last one done, null before the first. `nColumns` columns are whole;
 * `rows` of them are computed (a share of the layers, 0 to 1, from the top). `incoming` is how far the new column has
 * slid in, `sweep` how far the query has come over the keys, `gather` how far the values have come back, `query` how
 * much of it is still there; each 0 to 1.
 */
export function sceneAt(steps, at) {
  const moment = Math.max(0, Math.min(at, steps.length));
  const done = Math.floor(moment);
  const share = moment - done;
  if (share === 0) return rest(steps, done);
  const step = steps[done];
  const before = done ? steps[done - 1].n_tokens : 0;
  const scene = { step: done, share, done, nColumns: before, incoming: 0, rows: 1, sweep: 0, gather: 0, query: 0 };
  if (step.phase === 'decode') return { ...scene, ...decode(share) };
  if (step.phase === 'prefill') return { ...scene, nColumns: step.n_tokens, rows: share };
  const clearing = share < PREFIX.cleared;
  return {
    ...scene,
    nColumns: clearing ? before : step.n_tokens,
    rows: clearing ? 1 - share / PREFIX.cleared : (share - PREFIX.cleared) / (1 - PREFIX.cleared),
  };
}

function rest(steps, done) {
  const nColumns = done ? steps[done - 1].n_tokens : 0;
  const compared = done && steps[done - 1].phase === 'decode' ? 1 : 0;
  return {
    step: done ? done - 1 : null, share: 0, done, nColumns, incoming: 0, rows: 1, sweep: compared, gather: 0, query: 0,
  };
}

function decode(share) {
  const { written, compared, gathered } = DECODE;
  const part = (from, to) => Math.max(0, Math.min(1, (share - from) / (to - from)));
  return {
    incoming: part(0, written),
    sweep: part(written, compared),
    gather: part(compared, gathered),
    query: share < gathered ? part(0, written) : 1 - part(gathered, 1),
  };
}

/** Positions sent through the layers up to a moment, and what they would have been with a cache. */
export function positionsComputed(steps, at) {
  const done = Math.floor(Math.max(0, Math.min(at, steps.length)));
  const computed = steps.slice(0, done).reduce((sum, step) => sum + step.new, 0);
  return { computed, cached: done ? steps[done - 1].n_tokens : 0 };
}
