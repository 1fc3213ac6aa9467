// Queues of pods: the dominant share of each, how many of its pods run on cards, and how many wait.

import { keep, make, setAttribute, setPart, setText } from "./dom.js";
import { inOrder } from "./shares.js";
import { age, counted, percent } from "./words.js";

const find = (id) => document.getElementById(id);

/** The tree as rows, parents before children; a queue includes those below it. */
export function drawQueues(queues) {
  const rows = inOrder(queues);
  keep(find("queues"), rows, ({ queue }) => queue.name, newRow, updateRow);
  for (const id of ["queues", "shares-head"]) find(id).hidden = rows.length === 0;
  find("queues-none").hidden = rows.length > 0;
}

function newRow() {
  const track = make("span", "track", make("span", "level"));
  setAttribute(track, "aria-hidden", "true");
  const row = make("div", "row queue-row", make("span", "name"), track, make("span", "figure"), make("span", "figure share"));
  return make("li", "queue", row);
}

function updateRow(element, { queue, depth }) {
  const [name, track, figure, share] = element.firstElementChild.children;
  setAttribute(element, "data-depth", Math.min(depth, 3));
  setText(name, queue.name);
  setAttribute(element, "title", factsOf(queue));
  setPart(track.firstElementChild, "--part", queue.share, 1);
  setText(figure, `${queue.running}, ${queue.pending}`);
  setText(share, percent(queue.share));
}

function factsOf(queue) {
  const facts = [`weight ${queue.weight}`];
  if (queue.guarantee) facts.push(`guarantee ${queue.guarantee}`);
  if (queue.limit) facts.push(`limit ${queue.limit}`);
  if (queue.waited_s !== null) facts.push(`${counted(queue.admitted, "pod")} waited ${age(queue.waited_s)} on average`);
  return facts.join(", ");
}
