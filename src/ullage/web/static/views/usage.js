// The past: what was used by whom, of what there was, and which sessions ran when.

import { setAttribute } from "../dom.js";
import { makeFilters } from "../filters.js";
import { setQuery } from "../router.js";
import { makePast } from "../usage/past.js";
import { makeUsed } from "../usage/used.js";

const FIELDS = [
  { name: "days", label: "Period", options: [["", "7 days"], ["0.0417", "1 hour"], ["1", "24 hours"], ["30", "30 days"], ["90", "90 days"]] },
  { name: "by", label: "By", options: [["", "owner"], ["queue", "queue"], ["application", "application"]] },
  { name: "of", label: "What", options: [["", "card-hours"], ["core_s", "core-hours"], ["memory_byte_s", "GiB-hours of memory"], ["waited_s", "hours waited"]] },
  { name: "owner", label: "Owner", type: "text", placeholder: "anybody" },
  { name: "queue", label: "Queue", type: "text", placeholder: "all queues" },
];
const DAYS = 7;

export const titleOf = () => "History";

export function open(root, { query }) {
  const filters = makeFilters(FIELDS, setQuery);
  const parts = [makeUsed(), makePast()];
  root.append(filters.element, ...parts.map((part) => part.element));
  turn(query);

  function turn(given) {
    filters.show(given);
    const days = Number(given.get("days")) || DAYS;
    const asked = { days, by: given.get("by") || "owner", of: given.get("of") || "card_s", owner: given.get("owner") ?? "", queue: given.get("queue") ?? "" };
    for (const part of parts) part.ask(asked);
  }

  setAttribute(filters.element, "aria-label", "Which past");
  return {
    update: () => parts.forEach((part) => part.update()),
    turn: (route) => turn(route.query),
    close: () => parts.forEach((part) => part.close()),
  };
}
