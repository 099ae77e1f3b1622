// Where things lie in the picture: pure functions of its width and the run, so that a test can check them.

const LEFT = 34;
const TOP = 24;
const RIGHT = 10;
const LEAST_COLUMNS = 24;
const HIGHEST_CELL = 92;
const TEXT_ROOM = 58; // below, where tokens are written
const TICK_ROOM = 20; // below, where only numbers fit

/** The picture of `nColumns` positions with `nReserved` reserved, `nLayers` deep, in `width` pixels. */
export function layout({ width, nColumns, nReserved, nLayers, height }) {
  const columns = Math.max(nReserved, nColumns, LEAST_COLUMNS);
  const inner = Math.max(60, width - LEFT - RIGHT);
  // Cells narrower than two pixels could not show K beside V: then several positions share one.
  const perBin = Math.max(1, Math.ceil((2 * columns) / inner));
  const bins = Math.ceil(columns / perBin);
  const cellWidth = Math.min(26, inner / bins);
  const hasText = perBin === 1 && cellWidth >= 10.5;
  // The picture keeps its height when cells become too narrow for their tokens: the layers take the room.
  const room = hasText ? TEXT_ROOM : TICK_ROOM;
  const most = Math.min(height, TOP + TEXT_ROOM + HIGHEST_CELL * nLayers);
  const cellHeight = Math.max(3, (most - TOP - room) / nLayers);
  const bottom = TOP + cellHeight * nLayers;
  return {
    width,
    height: Math.ceil(bottom + room),
    left: LEFT,
    top: TOP,
    right: LEFT + cellWidth * bins,
    bottom,
    cellWidth,
    cellHeight,
    bins,
    perBin,
    hasText,
    nLayers,
  };
}

/** How high the picture may be: at 1440 × 900 it ends above the fold, on a projector it takes what there is. */
export function pictureHeight(width, windowHeight) {
  return width > 640 ? Math.max(320, Math.min(560, windowHeight - 570)) : 360;
}

/** The left edge of a position's column. */
export function columnX(place, position) {
  return place.left + Math.floor(position / place.perBin) * place.cellWidth;
}

/** The cell under a point: position, layer, and how far down inside it (0 to 1); null outside the cells. */
export function cellAt(place, x, y) {
  if (x < place.left || x >= place.right || y < place.top || y >= place.bottom) return null;
  const row = (y - place.top) / place.cellHeight;
  const position = Math.floor((x - place.left) / place.cellWidth) * place.perBin;
  return { position, layer: Math.floor(row), inside: row % 1 };
}

/** Every how many layers a label stands, so that labels keep 14 pixels between them. */
export function layerStep(place) {
  return [1, 2, 5, 10, 20, 50].find((step) => step * place.cellHeight >= 14) ?? 100;
}

/** Every how many positions a number stands, so that numbers keep 40 pixels between them. */
export function positionStep(place) {
  const pixels = place.cellWidth / place.perBin;
  return [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024].find((step) => step * pixels >= 40) ?? 2048;
}
