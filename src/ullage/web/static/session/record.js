// The events of a session, read once and then only what is new. The timeline and the list of events share them.

import { read } from "../api.js";

const PAGE = 1_000;
const MOST = 10_000;
const records = new Map();

/** The record of a session; the last one asked for is kept. */
export function recordOf(id) {
  if (!records.has(id)) {
    records.clear();
    records.set(id, { id, events: [], after: 0, reading: null });
  }
  return records.get(id);
}

/** Reads what is new; returns all events, oldest first. */
export function refresh(record) {
  record.reading ??= readOn(record).finally(() => (record.reading = null));
  return record.reading;
}

async function readOn(record) {
  for (;;) {
    const { body } = await read("/v1/events", { session: record.id, after: record.after || "", limit: PAGE });
    record.events.push(...body);
    record.events.splice(0, Math.max(0, record.events.length - MOST));
    record.after = body.at(-1)?.number ?? record.after;
    if (body.length < PAGE) return record.events;
  }
}
