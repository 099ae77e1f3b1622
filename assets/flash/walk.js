// The record as Python sends it, under names. No number is reckoned here.

function accessOf([kind, name, begin, end, elements]) {
  return { kind, name, begin, end, elements };
}

function stepOf([queries, keys, loaded, stored, accesses]) {
  return { queries, keys, loaded, stored, accesses: accesses.map(accessOf) };
}

/** Both walks: {n, order, tiled: [...], plain: [...]}; every step knows what is held in fast memory at its end. */
export function walksOf({ n, order, tiled, plain }) {
  return {
    n,
    order,
    tiled: tiled.map((raw) => {
      const step = stepOf(raw);
      const rows = [['Q', step.queries], ['K', step.keys], ['V', step.keys], ['O', step.queries]];
      const held = rows.map(([name, [begin, end]]) => ({ name, begin, end }));
      const scores = { name: 'S', begin: step.queries[0], end: step.queries[1], across: step.keys[1] - step.keys[0] };
      return { ...step, state: raw[5], held: [...held, scores] };
    }),
    plain: plain.map((raw) => {
      const step = stepOf(raw);
      return { ...step, state: null, held: raw[5].map(([name, begin, end]) => ({ name, begin, end })) };
    }),
  };
}

/** Elements that a step moved in one direction: "load" or "store". */
export function movedIn(step, kind) {
  return step.accesses.filter((access) => access.kind === kind).reduce((sum, { elements }) => sum + elements, 0);
}
