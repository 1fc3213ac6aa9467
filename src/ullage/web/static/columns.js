// Columns of tables of sessions.

import { make, setAttribute, setClass, setText } from "./dom.js";
import { hrefOf } from "./router.js";
import { drawReason } from "./table.js";
import { tintOf } from "./tints.js";
import { age, counted, orDash, percent } from "./words.js";

/** A requirement without what it asks nothing of. */
export const requestOf = (resreq) => resreq.split(",").filter((entry) => !entry.endsWith("=0")).join(", ");

const count = (field) => ({ label: field, kind: "number", sort: field, text: (session) => session[field] });

export const ID = { label: "session", kind: "id", sort: "id", draw: drawId };
export const STATE = { label: "state", draw: (cell, session) => drawBadge(cell, session.activity) };
export const OWNER = { label: "owner", kind: "who", sort: "owner", text: (session) => orDash(session.owner) };
export const APPLICATION = { label: "application", kind: "who minor", sort: "application", text: (session) => session.application };
export const QUEUE = { label: "queue", kind: "who", sort: "queue", text: (session) => session.queue };
export const PRIORITY = { label: "priority", kind: "number minor", sort: "priority", text: (session) => session.priority };
export const REQUEST = { label: "request", kind: "request", text: (session) => requestOf(session.resreq) };
export const HELD = { label: "held / deserved", kind: "number", sort: "held", text: (session) => `${session.held} / ${session.deserved}` };
export const SHARE = { label: "share", kind: "number", text: (session) => percent(session.share) };
export const RUNNING = count("running");
export const PENDING = count("pending");
export const FAILED = count("failed");
export const DONE = { label: "done", kind: "number", sort: "succeed", text: (session) => session.succeed };
export const AGE = { label: "age", kind: "number", sort: "-created", text: (session, at) => age((session.closed_at ?? at) - session.created_at) };
export const REASON = { label: "reason", kind: "reason", draw: (cell, session) => drawReason(cell, session.reason ?? "new", messageOf(session)) };

/** A session waits if the scheduler has a reason for it, or if it has work and not one executor. */
export const waits = (session) => session.reason !== null || (session.pending > 0 && session.held === 0);

/** The tint of a session and a link to it. */
export function drawId(cell, session) {
  if (!cell.firstElementChild) cell.append(make("span"), make("a", "text"));
  setClass(cell.firstElementChild, `swatch ${tintOf(session.id)}`);
  setAttribute(cell.lastElementChild, "href", hrefOf("sessions", session.id));
  setText(cell.lastElementChild, session.id);
}

/** A word in a pill of its own colour. */
export function drawBadge(cell, word) {
  if (!cell.firstElementChild) cell.append(make("span"));
  setClass(cell.firstElementChild, `state is-${word}`);
  setText(cell.firstElementChild, word);
}

function messageOf(session) {
  if (!session.reason) return "the next cycle looks at it";
  const failures = session.bind_failures ? ` (${counted(session.bind_failures, "failed start")})` : "";
  return session.message + failures;
}
