// The byte format of all transports: "TBT1", the header's length (uint32, little endian), the header as JSON in UTF-8,
// then one byte a cell: for each new column, each layer, K then V, each KV head; then two bytes a weight of attention
// where the header names rows of it. pages/shared/wire.py writes it.

const MAGIC = 0x31544254; // "TBT1" read as a little-endian number

/** A frame as {header, body}. Throws on bytes that are none. */
export function readFrame(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new Error('not a frame of the stage');
  const end = 8 + view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, end)));
  return { header, body: bytes.subarray(end) };
}
