// The two tables: sessions that wait and why, and all open sessions with the counts of their tasks.

import { make, setClass, setText } from "./dom.js";
import { drawHeader, drawReason, drawTable } from "./table.js";
import { tintOf } from "./tints.js";
import { age, counted, orDash, percent } from "./words.js";

// A column draws its cell with `text`, or with `draw` where plain text is not enough.
const ID = { label: "session", kind: "id", draw: drawId };
const OWNER = { label: "owner", text: (session) => orDash(session.owner) };
const QUEUE = { label: "queue", text: (session) => session.queue };
const PRIORITY = { label: "priority", kind: "number", text: (session) => session.priority };
const REQUEST = { label: "request", kind: "request", text: (session) => requestOf(session.resreq) };
const HELD = { label: "held / deserved", kind: "number", text: (session) => `${session.held} / ${session.deserved}` };
const AGE = { label: "age", kind: "number", text: (session, at) => age(at - session.created_at) };
const REASON = { label: "reason", kind: "reason", draw: (cell, session) => drawReason(cell, session.reason ?? "new", messageOf(session)) };
const APPLICATION = { label: "application", text: (session) => session.application };
const SHARE = { label: "share", kind: "number", text: (session) => percent(session.share) };
const count = (field) => ({ label: field, kind: "number", text: (session) => session[field] });

const PENDING = [ID, OWNER, QUEUE, PRIORITY, REQUEST, count("pending"), HELD, AGE, REASON];
const SESSIONS = [
  ID, OWNER, APPLICATION, QUEUE, REQUEST, HELD, SHARE,
  count("running"), count("pending"), count("succeed"), count("failed"), count("cancelled"), AGE,
];

/** A requirement without what it asks nothing of. */
const requestOf = (resreq) => resreq.split(",").filter((entry) => !entry.endsWith("=0")).join(", ");

/** Draws the headers once, before anything is known. */
export function drawHeaders() {
  drawHeader("pending", PENDING);
  drawHeader("sessions", SESSIONS);
}

export function drawTables(sessions, at) {
  const waiting = sessions.filter(waits).sort((a, b) => b.priority - a.priority || a.created_at - b.created_at);
  drawTable("pending", PENDING, waiting, { keyOf, at });
  drawTable("sessions", SESSIONS, sessions, { keyOf, at });
}

const keyOf = (session) => session.id;

/** A session waits if the scheduler has a reason for it, or if it has work and not one executor. */
const waits = (session) => session.reason !== null || (session.pending > 0 && session.held === 0);

function drawId(cell, session) {
  if (!cell.firstElementChild) cell.append(make("span"), make("span", "text"));
  setClass(cell.firstElementChild, `swatch ${tintOf(session.id)}`);
  setText(cell.lastElementChild, session.id);
}

function messageOf(session) {
  if (!session.reason) return "the next cycle looks at it";
  const failures = session.bind_failures ? ` (${counted(session.bind_failures, "failed start")})` : "";
  return session.message + failures;
}
