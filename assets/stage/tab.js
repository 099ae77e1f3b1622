// What a tab remembers: the name of its visit. It survives a refresh and is never part of an address.

const KEY = 'tbt.visit';
const FIRST_STAGE = 'stage';

/** The visit this tab had before it was refreshed or duplicated, if the one it has now has not begun; else null. */
export function formerVisit({ stage, visit, total, replay }) {
  if (replay) return null;
  const remembered = sessionStorage.getItem(keyOf(stage));
  return remembered && remembered !== visit && total === 0 ? remembered : null;
}

/** Remembers the visit this tab shows; a run out of a file is nobody's visit. */
export function remember({ stage, visit, replay }) {
  if (replay) return;
  sessionStorage.setItem(keyOf(stage), visit);
}

function keyOf(stage) {
  return stage === FIRST_STAGE ? KEY : `${KEY}.${stage}`;
}
