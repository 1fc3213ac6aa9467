// Which sessions ran when: a lane for each, and the same as a table.

import { read } from "../api.js";
import { lasting, makeKeys, makeLanes } from "../charts/lanes.js";
import { drawBadge, requestOf } from "../columns.js";
import { make, setAttribute, setText } from "../dom.js";
import { makeFault } from "../fault.js";
import { linkTo } from "../links.js";
import { makeLoader } from "../loader.js";
import { hrefOf } from "../router.js";
import { drawRows, makeTable } from "../table.js";
import { age, orDash } from "../words.js";

const DAY_S = 86400;
const HOUR_S = 3600;
const PAGE = 40;
const GAP_MS = 10_000;
const KINDS = { waited: "waited", running: "runs", succeed: "ended well", failed: "failed or lost", cancelled: "cancelled" };
const COLUMNS = [
  { label: "session", kind: "id", draw: (cell, row) => linkTo(cell, row.session, hrefOf("sessions", row.session)) },
  { label: "state", draw: (cell, row) => drawBadge(cell, row.state) },
  { label: "owner", text: (row) => orDash(row.owner) },
  { label: "queue", text: (row) => row.queue },
  { label: "request", kind: "request", text: (row) => requestOf(row.resreq) },
  { label: "began", text: (row) => (row.started_at ? new Date(row.started_at * 1000).toLocaleString() : "–") },
  { label: "waited", kind: "number", text: (row) => age(row.waited_s) },
  { label: "card-hours", kind: "number", text: (row) => (row.card_s / HOUR_S).toFixed(2) },
  { label: "core-hours", kind: "number", text: (row) => (row.core_s / HOUR_S).toFixed(2) },
];

export function makePast() {
  let asked = null;
  let after = [0];
  const fault = makeFault();
  const none = make("p", "none", "No session was open in this period.");
  const chart = makeLanes();
  const keys = makeKeys(KINDS);
  const table = makeTable("Sessions of the period", COLUMNS);
  const back = button("Earlier sessions", () => turn(after.slice(0, -1)));
  const on = button("Later sessions", () => turn([...after, last]));
  const pager = make("nav", "pager", back, on);
  const element = make("section", "wide", make("h2", "", "Sessions over time"), keys, fault.element, chart.element, table, none, pager);
  let last = 0;
  setAttribute(pager, "aria-label", "Pages of past sessions");
  const loader = makeLoader(load, draw, fault.show, GAP_MS);

  function load(signal) {
    const { days, owner, queue } = asked;
    return read("/v1/history", { since: Math.floor(Date.now() / 1000 - days * DAY_S), owner, queue, after: after.at(-1) || "", limit: PAGE + 1 }, signal);
  }

  function turn(next) {
    after = next;
    loader.now();
  }

  function draw({ body: found }) {
    const body = found.slice(0, PAGE); // one more says whether there is a page after this one
    fault.show(null);
    last = body.at(-1)?.number ?? last;
    back.disabled = after.length === 1;
    on.disabled = found.length <= PAGE;
    pager.hidden = back.disabled && on.disabled;
    none.hidden = body.length > 0;
    for (const each of [chart.element, keys]) each.hidden = body.length === 0;
    drawRows(table, COLUMNS, body, (row) => row.number);
    if (!body.length) return;
    const now = Date.now() / 1000;
    const begins = Math.max(now - asked.days * DAY_S, Math.min(...body.map((row) => row.created_at)));
    const to = Math.max(begins + 60, ...body.map((row) => row.ended_at ?? now));
    chart.show({ rows: body.map((row) => laneOf(row, now)), from: begins, to, text: `${body.length} sessions, ${body.filter((row) => row.ended_at === null).length} of them open` });
  }

  return {
    element,
    ask(next) {
      asked = next;
      turn([0]);
    },
    update: () => loader.soon(),
    close() {
      loader.close();
      chart.close();
    },
  };
}

function laneOf(row, now) {
  const end = row.ended_at ?? now;
  const began = row.started_at ?? end;
  const kind = row.state === "lost" ? "failed" : row.state === "pending" ? "waited" : row.state;
  const bars = [{ from: row.created_at, to: began, kind: "waited", text: `waited ${lasting(row.created_at, began)}` }];
  if (row.started_at) bars.push({ from: began, to: end, kind, text: `${KINDS[kind] ?? kind}, ${lasting(began, end)}` });
  return { key: row.number, label: row.session, bars: bars.filter((bar) => bar.to > bar.from) };
}

function button(text, act) {
  const element = make("button", "", text);
  setAttribute(element, "type", "button");
  element.addEventListener("click", act);
  return element;
}
