// All sessions: searched, filtered, sorted and paged by the server, so that ten thousand are as quick as ten.

import { read } from "../api.js";
import * as column from "../columns.js";
import { make, setAttribute, setText } from "../dom.js";
import { makeEmpty, makeFault } from "../fault.js";
import { makeFilters } from "../filters.js";
import { makeLoader } from "../loader.js";
import { makePager } from "../pager.js";
import { setQuery } from "../router.js";
import { drawRows, makeTable, markSort } from "../table.js";

const SIZE = 50;
const NEWEST = "-created";
const COLUMNS = [
  column.ID, column.STATE, column.OWNER, column.QUEUE, column.APPLICATION, column.REQUEST, column.HELD,
  column.RUNNING, column.PENDING, column.DONE, column.FAILED, column.PRIORITY, column.AGE,
];
const FIELDS = [
  { name: "search", label: "Search", type: "search", placeholder: "session, owner, queue…" },
  { name: "state", label: "State", options: [["", "any state"], ["open", "open"], ["closed", "closed"]] },
  { name: "queue", label: "Queue", options: [["", "all queues"]] },
  { name: "owner", label: "Owner", type: "text", placeholder: "anybody" },
  { name: "sort", label: "Order", options: [["", "newest first"], ["created", "oldest first"], ["-pending", "most waiting"], ["-running", "most running"], ["-failed", "most failed"], ["-priority", "highest priority"], ["id", "name"]] },
];

export const titleOf = () => "Sessions";

export function open(root, { query }) {
  let given = query;
  let at = Date.now() / 1000;
  const fault = makeFault();
  const empty = makeEmpty("No session matches. ");
  const clear = make("button", "quiet", "Show all sessions");
  const count = make("p", "small count-line");
  const table = makeTable("Sessions", COLUMNS, sortBy);
  const pager = makePager(SIZE, (offset) => setQuery({ offset: offset || null }));
  const filters = makeFilters(FIELDS, (changes) => setQuery({ ...changes, offset: null }));
  setAttribute(clear, "type", "button");
  setAttribute(count, "role", "status");
  clear.addEventListener("click", () => setQuery({ search: null, state: null, queue: null, owner: null, offset: null }));
  empty.append(clear);
  empty.hidden = true;
  root.append(filters.element, fault.element, make("section", "wide", count, table, empty, pager.element));

  const sortOf = () => given.get("sort") ?? NEWEST;
  const offsetOf = () => Number(given.get("offset") ?? 0) || 0;
  const loader = makeLoader((signal) => read("/v1/sessions", { ...wanted(), limit: SIZE }, signal), draw, fault.show);
  filters.show(given);
  loader.now();

  function wanted() {
    const asked = Object.fromEntries(FIELDS.map(({ name }) => [name, given.get(name) ?? ""]));
    return { ...asked, sort: sortOf(), offset: offsetOf() || "" };
  }

  /** The same column again turns the order round. */
  function sortBy(sort) {
    const back = sort.startsWith("-") ? sort.slice(1) : `-${sort}`;
    setQuery({ sort: sortOf() === sort ? back : sort, offset: null });
  }

  function draw({ body, total }) {
    fault.show(null);
    markSort(table, sortOf());
    drawRows(table, COLUMNS, body, (session) => session.id, at);
    empty.hidden = body.length > 0;
    setText(count, total === 1 ? "1 session" : `${total.toLocaleString("en")} sessions`);
    pager.show(offsetOf(), body.length, total);
  }

  return {
    update(overview) {
      at = overview.at;
      filters.choices("queue", [["", "all queues"], ...overview.queues.map(({ name }) => [name, name])]);
      filters.show(given);
      loader.soon();
    },
    turn(route) {
      given = route.query;
      filters.show(given);
      loader.now();
    },
    close: () => loader.close(),
  };
}
