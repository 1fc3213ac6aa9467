// The events of a session, the newest first.

import { make, setText } from "../dom.js";
import { makeLoader } from "../loader.js";
import { drawRows, makeTable } from "../table.js";
import { orDash } from "../words.js";
import { recordOf, refresh } from "./record.js";

const SHOWN = 20;
const COLUMNS = [
  { label: "when", kind: "id", text: (event) => new Date(event.at * 1000).toLocaleString() },
  { label: "event", draw: (cell, event) => setText(cell.firstElementChild ?? cell.appendChild(make("code")), event.kind) },
  { label: "what", kind: "reason", text: (event) => orDash(event.message || valuesOf(event.data)) },
];

export function makeEvents(id) {
  let most = SHOWN;
  const record = recordOf(id);
  const title = make("h2", "", "Events ", make("span", "count"));
  const table = makeTable("Events", COLUMNS);
  const more = make("button", "quiet", "Show more");
  const element = make("section", "wide", title, table, more);
  const loader = makeLoader(() => refresh(record), draw, () => {});
  more.type = "button";
  more.addEventListener("click", () => {
    most += SHOWN * 5;
    draw(record.events);
  });
  loader.now();

  function draw(events) {
    setText(title.lastElementChild, events.length.toLocaleString("en"));
    drawRows(table, COLUMNS, events.slice(-most).reverse(), (event) => event.number);
    more.hidden = events.length <= most;
  }

  return { element, update: () => loader.soon(), close: () => loader.close() };
}

function valuesOf(data) {
  return Object.entries(data).filter(([name, value]) => name !== "asked_at" && value !== null && value !== "").map(([name, value]) => `${name} ${value}`).join(", ");
}
