// Shares: what each queue and each of its sessions holds against what it deserves, in executors.
//
// All bars have one scale, so that lengths can be compared; a queue's bar is made of its sessions.

import { keep, make, setAttribute, setClass, setPart, setText } from "./dom.js";
import { linkTo } from "./links.js";
import { hrefOf } from "./router.js";
import { tintOf } from "./tints.js";
import { orDash, percent } from "./words.js";

/** The share tree as rows, parents before children. */
export function drawShares(queues, sessions) {
  const rows = inOrder(queues).map(({ queue, depth }) => rowOf(queue, depth, queues, sessions));
  const scale = Math.max(1, ...rows.flatMap((row) => [row.held, row.deserved]));
  keep(
    document.getElementById("queues"),
    rows,
    (row) => row.name,
    () => make("li", "queue", newRow("queue-row"), make("ul", "")),
    (element, row) => updateQueue(element, row, scale),
  );
}

/** Queues with their depth, parents before children. */
export function inOrder(queues) {
  const names = new Set(queues.map((queue) => queue.name));
  const below = (parent, depth) =>
    queues.filter((queue) => queue.parent === parent).flatMap((queue) => [{ queue, depth }, ...below(queue.name, depth + 1)]);
  const roots = [...new Set(queues.map((queue) => queue.parent))].filter((parent) => !names.has(parent));
  return roots.flatMap((parent) => below(parent, 0));
}

/** A queue's row counts what the queues below it hold, as the server does for its share. */
function rowOf(queue, depth, queues, sessions) {
  const parents = new Map(queues.map(({ name, parent }) => [name, parent]));
  const isBelow = (name) => name === queue.name || (parents.has(name) && isBelow(parents.get(name)));
  const members = sessions.filter((session) => isBelow(session.queue));
  return {
    name: queue.name,
    title: titleOf(queue),
    depth,
    segments: members,
    sessions: members.filter((session) => session.queue === queue.name),
    held: members.reduce((total, session) => total + session.held, 0),
    deserved: members.reduce((total, session) => total + session.deserved, 0),
    share: queue.share,
  };
}

function titleOf(queue) {
  const facts = [`weight ${queue.weight}`];
  if (queue.guarantee) facts.push(`guarantee ${queue.guarantee}`);
  if (queue.limit) facts.push(`limit ${queue.limit}`);
  return facts.join(", ");
}

function updateQueue(element, row, scale) {
  const [own, list] = element.children;
  setAttribute(element, "data-depth", Math.min(row.depth, 3));
  setText(own.firstElementChild, row.name);
  setAttribute(own.firstElementChild, "title", row.title);
  updateRow(own, row, scale);
  setAttribute(list, "aria-label", `Sessions of ${row.name}`);
  keep(
    list,
    row.sessions,
    (session) => session.id,
    () => make("li", "", newRow("session-row")),
    (item, session) => updateSession(item.firstElementChild, session, scale),
  );
}

function updateSession(element, session, scale) {
  linkTo(element.firstElementChild, session.id, hrefOf("sessions", session.id));
  setAttribute(element.firstElementChild, "title", `${session.id}, owner ${orDash(session.owner)}`);
  updateRow(element, { ...session, segments: [session] }, scale);
}

function newRow(className) {
  const track = make("span", "track", make("span", "segments"), make("span", "tick"));
  setAttribute(track, "aria-hidden", "true");
  return make("div", `row ${className}`, make("span", "name"), track, make("span", "figure"), make("span", "figure share"));
}

function updateRow(element, row, scale) {
  const [, track, figure, share] = element.children;
  const [segments, tick] = track.children;
  const holders = row.segments.filter((session) => session.held > 0);
  keep(segments, holders, (session) => session.id, () => make("span"), (part, session) => {
    setClass(part, `segment ${tintOf(session.id)}`);
    setPart(part, "--part", session.held, scale);
  });
  setPart(tick, "--part", row.deserved, scale);
  setText(figure, `${row.held} of ${row.deserved}`);
  setAttribute(figure, "title", `holds ${row.held}, deserves ${row.deserved}`);
  setText(share, percent(row.share));
}
