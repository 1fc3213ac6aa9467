// Use of the fleet over time, by owner or queue, with the same figures as a table.

import { read } from "../api.js";
import { makeBars } from "../charts/bars.js";
import { make, setClass, setText } from "../dom.js";
import { makeFault } from "../fault.js";
import { makeLoader } from "../loader.js";
import { drawRows, makeTable } from "../table.js";
import { age, orDash, percent } from "../words.js";

const DAY_S = 86400;
const HOUR_S = 3600;
const GIB = 1024 ** 3;
const BARS = 48;
const MOST_GROUPS = 7;
const GAP_MS = 30_000;
const STEPS_S = [60, 300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
const UNITS = { card_s: ["card-hours", HOUR_S], core_s: ["core-hours", HOUR_S], memory_byte_s: ["GiB-hours", HOUR_S * GIB], waited_s: ["hours", HOUR_S] };

export function makeUsed() {
  let asked = null;
  const fault = makeFault();
  const title = make("h2", "", "Use over time");
  const lead = make("p", "small");
  const none = make("p", "none", "Nothing was used in this period.");
  const chart = makeBars();
  const columns = [
    { label: "who", kind: "id", draw: drawName },
    { label: "used", kind: "number", text: (group) => amountOf(group.total) },
    { label: "part", kind: "number", text: (group) => percent(group.part) },
    { label: "waited", kind: "number", text: (group) => age(group.waited) },
    { label: "sessions", kind: "number", text: (group) => group.sessions },
  ];
  const table = makeTable("Use by group", columns);
  const element = make("section", "wide", title, lead, fault.element, chart.element, none, table);
  const loader = makeLoader(load, draw, fault.show, GAP_MS);

  function load(signal) {
    const { days, by, owner, queue } = asked;
    const until = Math.ceil(Date.now() / 1000);
    const step = STEPS_S.find((each) => (days * DAY_S) / each <= BARS) ?? STEPS_S.at(-1);
    const since = Math.floor((until - days * DAY_S) / step) * step;
    return read("/v1/usage", { by, since, until, step, owner, queue }, signal);
  }

  const amountOf = (value) => `${(value / UNITS[asked.of][1]).toLocaleString("en", { maximumSignificantDigits: 3 })} ${UNITS[asked.of][0]}`;

  function draw({ body }) {
    fault.show(null);
    const { of, by } = asked;
    const others = `${body.left_out} others`;
    const rows = [...body.rows, ...body.rest.map((row) => ({ ...row, [by]: others }))];
    const groups = groupsOf(rows, of, by);
    const total = groups.reduce((sum, group) => sum + group.total, 0);
    const offered = of === "waited_s" ? null : body.offered.reduce((sum, each) => sum + each[of], 0);
    none.hidden = total > 0;
    chart.element.hidden = total === 0;
    setText(lead, [total && `${amountOf(total)} used`, offered && `${amountOf(Math.max(0, offered - total))} idle of ${amountOf(offered)}`].filter(Boolean).join(", "));
    drawRows(table, columns, groups, (group) => group.name);
    chart.show({ from: body.since, to: Math.max(body.until, ...rows.map((row) => row.at + body.step)), step: body.step, bars: barsOf(rows, body.offered, groups), text: `use by ${by}: ${groups.map((group) => `${orDash(group.name)} ${amountOf(group.total)}`).join(", ")}` });
  }

  /** The largest groups, each with its colour; the others are one. */
  function groupsOf(rows, of, by) {
    const found = new Map();
    for (const row of rows) {
      const group = found.get(row[by]) ?? { name: row[by], total: 0, waited: 0, sessions: 0 };
      Object.assign(group, { total: group.total + row[of], waited: group.waited + row.waited_s, sessions: group.sessions + row.sessions });
      found.set(row[by], group);
    }
    const sum = [...found.values()].reduce((total, group) => total + group.total, 0) || 1;
    const ordered = [...found.values()].sort((a, b) => b.total - a.total);
    return ordered.map((group, place) => ({ ...group, part: group.total / sum, kind: place < MOST_GROUPS ? `tint-${place}` : "tint-none" }));
  }

  function barsOf(rows, offered, groups) {
    const { of, by } = asked;
    const unit = UNITS[of][1];
    const kinds = new Map(groups.map((group, order) => [group.name, { ...group, order }]));
    const bars = new Map(offered.map((each) => [each.at, { at: each.at, parts: [], whole: of === "waited_s" ? null : each[of] / unit }]));
    for (const row of rows) {
      if (!bars.has(row.at)) bars.set(row.at, { at: row.at, parts: [], whole: null });
      const { kind, order } = kinds.get(row[by]);
      const when = new Date(row.at * 1000).toLocaleString();
      bars.get(row.at).parts.push({ key: row[by], kind, order, value: row[of] / unit, text: `${orDash(row[by])}: ${amountOf(row[of])} from ${when}` });
    }
    for (const bar of bars.values()) bar.parts.sort((a, b) => a.order - b.order);
    return [...bars.values()].sort((a, b) => a.at - b.at);
  }

  return {
    element,
    ask(next) {
      asked = next;
      loader.now();
    },
    update: () => loader.soon(),
    close() {
      loader.close();
      chart.close();
    },
  };
}

function drawName(cell, group) {
  if (!cell.firstElementChild) cell.append(make("span"), make("span"));
  setClass(cell.firstElementChild, `swatch ${group.kind}`);
  setText(cell.lastElementChild, orDash(group.name));
}
