// When a session had executors: a lane for each, from its start until it left or went.

import { lasting, makeKeys, makeLanes } from "../charts/lanes.js";
import { make, setText } from "../dom.js";
import { makeLoader } from "../loader.js";
import { counted } from "../words.js";
import { recordOf, refresh } from "./record.js";

const MOST_LANES = 30;
const BEGINS = ["executor.started", "executor.reused"];
const ENDS = ["executor.left", "executor.gone"];
const KINDS = { works: "has an executor now", left: "left in order", evicted: "gave way to another session", lost: "lost or failed" };

export function makeTimeline(id) {
  const record = recordOf(id);
  const note = make("p", "small");
  const none = make("p", "none", "It has had no executor yet.");
  const chart = makeLanes();
  const keys = makeKeys(KINDS);
  const element = make("section", "wide", make("h2", "", "Executors over time"), keys, note, chart.element, none);
  let now = Date.now() / 1000;
  const loader = makeLoader(() => refresh(record), show, () => {});
  loader.now();

  function show(events) {
    const spells = spellsOf(events, now);
    const shown = spells.slice(-MOST_LANES);
    none.hidden = spells.length > 0;
    for (const each of [chart.element, keys]) each.hidden = spells.length === 0;
    setText(note, shown.length < spells.length ? `the last ${shown.length} of ${spells.length}` : "");
    if (!shown.length) return;
    const from = Math.min(...shown.map((spell) => spell.from));
    const to = Math.max(from + 1, ...shown.map((spell) => spell.to));
    const text = `${counted(spells.length, "stay")} of executors, ${shown.filter((spell) => spell.kind === "works").length} of them now`;
    chart.show({ rows: shown.map(rowOf), from, to, text });
  }

  return {
    element,
    update(overview) {
      now = overview.at;
      loader.soon();
    },
    close() {
      loader.close();
      chart.close();
    },
  };
}

/** Stays of executors, from the events of a session. */
function spellsOf(events, now) {
  const open = new Map();
  const found = [];
  for (const event of events) {
    const name = event.data.executor;
    if (BEGINS.includes(event.kind)) {
      open.set(name, { key: event.number, name, node: event.data.node, gpus: event.data.gpus, from: event.at, to: now, kind: "works", why: "" });
      found.push(open.get(name));
    }
    const spell = open.get(name);
    if (!spell) continue;
    if (event.kind === "executor.evicted" || event.kind === "executor.reclaimed") Object.assign(spell, { gives: true, why: event.message });
    if (ENDS.includes(event.kind)) {
      Object.assign(spell, { to: event.at, kind: kindOf(event, spell), why: spell.why || event.message });
      open.delete(name);
    }
  }
  return found;
}

function kindOf(event, spell) {
  if (spell.gives) return "evicted";
  return event.kind === "executor.left" || event.message === "stopped" ? "left" : "lost";
}

function rowOf(spell) {
  const cards = spell.gpus ? ` · ${counted(spell.gpus.split(" ").length, "card")}` : "";
  const text = [`${KINDS[spell.kind]}, ${lasting(spell.from, spell.to)} on ${spell.node}${cards}`, spell.why].filter(Boolean).join(": ");
  return { key: spell.key, label: spell.name, bars: [{ from: spell.from, to: spell.to, kind: spell.kind, text }] };
}
