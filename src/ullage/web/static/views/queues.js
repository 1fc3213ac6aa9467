// The tree of queues: what each holds of its guarantee and its limit. Those who may change, add and remove queues here.

import { requestOf } from "../columns.js";
import { make, setAttribute, setPart, setText } from "../dom.js";
import { linkTo } from "../links.js";
import { may } from "../me.js";
import { editQueue, removeQueue } from "../queue_form.js";
import { hrefOf } from "../router.js";
import { inOrder } from "../shares.js";
import { drawRows, makeTable } from "../table.js";
import { ofBytes, ofMilli, percent } from "../words.js";

export const titleOf = () => "Queues";

export function open(root) {
  let latest = null;
  const columns = [
    { label: "queue", kind: "id tree", draw: drawName },
    { label: "share", kind: "number", text: (queue) => percent(queue.share) },
    { label: "of the fleet", kind: "meter", draw: drawMeter },
    { label: "holds", text: (queue) => amountOf(queue.held) },
    { label: "weight", kind: "number", text: (queue) => queue.weight },
    { label: "guarantee", text: (queue) => queue.guarantee ? requestOf(queue.guarantee) : "–" },
    { label: "limit", text: (queue) => queue.limit ?? "none" },
    { label: "sessions", kind: "number", draw: (cell, queue) => linkTo(cell, `${queue.sessions}`, hrefOf("sessions", null, { state: "open", queue: queue.name })) },
    { label: "running", kind: "number", text: (queue) => queue.running },
    { label: "waiting", kind: "number", text: (queue) => queue.pending },
    { label: "", draw: drawActions },
  ];
  const table = makeTable("Queues", columns);
  const add = make("button", "primary", "New queue");
  const none = make("p", "none", "There are no queues yet.");
  setAttribute(add, "type", "button");
  add.addEventListener("click", () => editQueue(null, latest.queues));
  root.append(make("section", "wide", make("div", "section-head", make("p", "small", "Queues share the fleet by weight. A queue includes those below it."), add), table, none));
  allow();

  function drawActions(cell, queue) {
    if (!cell.firstElementChild) {
      const edit = button("Edit", () => editQueue(latest.queues.find((each) => each.name === queue.name), latest.queues));
      const remove = button("Remove", () => removeQueue(queue.name));
      cell.append(make("div", "buttons", edit, remove));
    }
    const [edit, remove] = cell.firstElementChild.children;
    setAttribute(edit, "aria-label", `Edit queue ${queue.name}`);
    setAttribute(remove, "aria-label", `Remove queue ${queue.name}`);
    edit.hidden = !may("put_queue");
    remove.hidden = !may("delete_queue") || queue.sessions > 0 || latest.queues.some((each) => each.parent === queue.name);
  }

  function allow() {
    add.hidden = !may("put_queue");
    if (latest) draw();
  }

  function draw() {
    const rows = inOrder(latest.queues).map(({ queue, depth }) => ({ ...queue, depth }));
    drawRows(table, columns, rows, (queue) => queue.name);
    none.hidden = rows.length > 0;
  }

  return {
    update(overview) {
      latest = overview;
      draw();
    },
    allow,
  };
}

function drawName(cell, queue) {
  setAttribute(cell, "data-depth", Math.min(queue.depth, 4));
  setText(cell, queue.name);
}

function drawMeter(cell, queue) {
  if (!cell.firstElementChild) cell.append(make("span", "track", make("span", "level")));
  setAttribute(cell.firstElementChild, "aria-hidden", "true"); // the share beside it says the same
  setPart(cell.firstElementChild.firstElementChild, "--part", queue.share, 1);
}

function button(text, act) {
  const element = make("button", "quiet", text);
  setAttribute(element, "type", "button");
  element.addEventListener("click", act);
  return element;
}

function amountOf({ gpu_milli: cards, cpu_milli: cores, memory_bytes: bytes }) {
  const parts = [cards && `${ofMilli(cards)} cards`, cores && `${ofMilli(cores)} cores`, bytes && ofBytes(bytes)];
  return parts.filter(Boolean).join(", ") || "nothing";
}
