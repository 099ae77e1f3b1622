// The routes the stage asks by itself. A visit is named in a header, never in an address.

export const VISIT_HEADER = 'X-TBT-Visit';

/** The answer of a route; throws where there is none. */
async function ask(visit, name, values, signal) {
  const api = new URL('../../../api/stage/', import.meta.url);
  const answer = await fetch(new URL(`${name}?${new URLSearchParams(values)}`, api), {
    headers: { [VISIT_HEADER]: visit },
    cache: 'no-store',
    signal,
  });
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer;
}

/** Attention of a step's newest position: two bytes a weight. */
export async function attentionOf(visit, values) {
  return new Uint8Array(await (await ask(visit, 'attention', values)).arrayBuffer());
}

/** The K and V vectors of a cell. */
export async function vectorsOf(visit, values) {
  return (await ask(visit, 'vectors', values)).json();
}

/** Frames as the engine makes them. Ends with the run; throws when the connection breaks or `signal` says so. */
export async function* stepsOf(visit, values, signal) {
  yield* framesOf(await ask(visit, 'play', values, signal));
}

/** The frames of an answer that streams them, each as it comes. */
export async function* framesOf(answer) {
  const reader = answer.body.getReader();
  let bytes = new Uint8Array(0);
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const joined = new Uint8Array(bytes.length + value.length);
    joined.set(bytes);
    joined.set(value, bytes.length);
    bytes = joined;
    for (let frame = firstFrame(bytes); frame; frame = firstFrame(bytes)) {
      bytes = bytes.slice(4 + frame.length);
      yield frame;
    }
  }
}

/** The first frame of a stream's bytes; null while it is not whole. */
export function firstFrame(bytes) {
  if (bytes.length < 4) return null;
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  return bytes.length < 4 + length ? null : bytes.slice(4, 4 + length);
}
