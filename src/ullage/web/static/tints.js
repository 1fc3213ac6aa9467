// The colour of a session: a class `tint-N` of the style sheet, chosen by a hash of its id.
//
// While fewer sessions are open than there are tints, no two share one: a later session steps on from
// its hash to a tint that is unused. A session keeps its tint for as long as the page is open.

const TINTS = 8;
const given = new Map();

/** FNV-1a. */
function hash(text) {
  let value = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(text)) value = Math.imul(value ^ byte, 0x01000193) >>> 0;
  return value;
}

function choose(id, used) {
  const start = hash(id) % TINTS;
  const order = Array.from({ length: TINTS }, (_, step) => (start + step) % TINTS);
  return order.find((tint) => !used.has(tint)) ?? start;
}

/** Gives every open session its tint, the oldest first; forgets those that closed. */
export function giveTints(sessions) {
  const open = new Set(sessions.map((session) => session.id));
  for (const id of given.keys()) if (!open.has(id)) given.delete(id);
  for (const id of open) if (!given.has(id)) given.set(id, choose(id, new Set(given.values())));
}

export const tintOf = (id) => (given.has(id) ? `tint-${given.get(id)}` : "tint-none");
