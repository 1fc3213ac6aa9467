// Everything at one glance: what is held, by whom, and why work waits.

import { drawNodes, drawTotals } from "../cards.js";
import * as column from "../columns.js";
import { setText } from "../dom.js";
import { drawHeat } from "../heat.js";
import { drawShares } from "../shares.js";
import { drawHeader, drawTable } from "../table.js";
import { roomOf } from "../words.js";

const MOST_GLASSES = 64;
const MOST_WAITING = 20;
const PENDING = [
  column.ID, column.OWNER, column.QUEUE, column.PRIORITY, column.REQUEST, column.PENDING, column.HELD, column.AGE, column.REASON,
].map((each) => ({ ...each, sort: undefined }));

const find = (id) => document.getElementById(id);

export const titleOf = () => "Overview";

export function open(root) {
  root.append(document.getElementById("overview").content.cloneNode(true));
  drawHeader("pending", PENDING);
  return { update };
}

function update({ nodes, gpus, room, queues, sessions, sessions_open: total, at }) {
  drawTotals(nodes);
  drawFleet(nodes, gpus);
  setText(find("room"), roomOf(room));
  drawShares(queues, sessions);
  const waiting = sessions.filter(column.waits).sort((a, b) => b.priority - a.priority || a.created_at - b.created_at);
  const count = sessions.length < total ? `${waiting.length} or more` : waiting.length;
  drawTable("pending", PENDING, waiting.slice(0, MOST_WAITING), { keyOf: (session) => session.id, at, count });
}

/** A glass for each card while they are few, else a tile. */
function drawFleet(nodes, gpus) {
  const few = gpus.length <= MOST_GLASSES;
  for (const [id, hidden] of [["nodes", !few], ["heat", few], ["shown", few]]) find(id).hidden = hidden;
  if (few) drawNodes(nodes, gpus);
  else drawHeat(nodes, gpus, "", find("heat"));
}
