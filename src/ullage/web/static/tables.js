// The two tables: sessions that wait and why, and all open sessions with the counts of their tasks.

import { keep, make, setAttribute, setClass, setText } from "./dom.js";
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
const REASON = { label: "reason", kind: "reason", draw: drawReason };
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

const find = (id) => document.getElementById(id);

/** Draws the headers once, before anything is known. */
export function drawHeaders() {
  drawHeader("pending", PENDING);
  drawHeader("sessions", SESSIONS);
}

export function drawTables(sessions, at) {
  const waiting = sessions.filter(waits).sort((a, b) => b.priority - a.priority || a.created_at - b.created_at);
  drawTable("pending", PENDING, waiting, at);
  drawTable("sessions", SESSIONS, sessions, at);
}

/** A session waits if the scheduler has a reason for it, or if it has work and not one executor. */
const waits = (session) => session.reason !== null || (session.pending > 0 && session.held === 0);

function drawHeader(id, columns) {
  const cells = columns.map((column) => {
    const cell = make("th", column.kind ?? "", column.label);
    setAttribute(cell, "scope", "col");
    setAttribute(cell, "role", "columnheader");
    return cell;
  });
  const head = make("thead", "", withRole(make("tr", "", ...cells), "row"));
  find(id).append(withRole(head, "rowgroup"), withRole(make("tbody"), "rowgroup"));
}

function drawTable(id, columns, sessions, at) {
  const body = find(id).tBodies[0];
  keep(body, sessions, (session) => session.id, () => newRow(columns), (row, session) => {
    columns.forEach((column, place) => drawCell(row.children[place], column, session, at));
  });
  setText(find(`${id}-count`), sessions.length);
  find(id).hidden = sessions.length === 0;
  find(`${id}-none`).hidden = sessions.length > 0;
}

/** Roles are said aloud because narrow screens show rows as blocks, which would take them away. */
function withRole(element, role) {
  setAttribute(element, "role", role);
  return element;
}

function newRow(columns) {
  const cells = columns.map((column, place) => {
    const cell = withRole(make(place ? "td" : "th", column.kind ?? ""), place ? "cell" : "rowheader");
    if (!place) setAttribute(cell, "scope", "row");
    setAttribute(cell, "data-label", column.label);
    return cell;
  });
  return withRole(make("tr", "", ...cells), "row");
}

function drawCell(cell, column, session, at) {
  if (column.draw) column.draw(cell, session);
  else setText(cell, column.text(session, at));
}

function drawId(cell, session) {
  if (!cell.firstElementChild) cell.append(make("span"), make("span", "text"));
  setClass(cell.firstElementChild, `swatch ${tintOf(session.id)}`);
  setText(cell.lastElementChild, session.id);
}

function drawReason(cell, session) {
  if (!cell.firstElementChild) cell.append(make("code"), " ", make("span", "text"));
  setText(cell.firstElementChild, session.reason ?? "new");
  setText(cell.lastElementChild, session.reason ? messageOf(session) : "the next cycle looks at it");
}

function messageOf(session) {
  const failures = session.bind_failures ? ` (${counted(session.bind_failures, "failed start")})` : "";
  return session.message + failures;
}
