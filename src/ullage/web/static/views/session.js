// One session: its state, why it has what it has, when it had executors, its tasks with their output, its events.

import { pathOf, read } from "../api.js";
import { drawBadge, requestOf } from "../columns.js";
import { keep, make, setAttribute, setClass, setText } from "../dom.js";
import { makeFault } from "../fault.js";
import { makeLoader } from "../loader.js";
import { hrefOf } from "../router.js";
import { makeActions } from "../session/actions.js";
import { makeEvents } from "../session/events.js";
import { makeLog } from "../session/log.js";
import { makeTasks } from "../session/tasks.js";
import { makeTimeline } from "../session/timeline.js";
import { makeWhy } from "../session/why.js";
import { tintOf } from "../tints.js";
import { age, orDash, percent } from "../words.js";

export const titleOf = ({ id }) => id;

export function open(root, { id, query }) {
  const fault = makeFault();
  const actions = makeActions(id, () => loader.now());
  const head = make("div", "session-head", make("span", "swatch"), make("span", "state-of"), make("span", "small ages"), actions.element);
  const facts = make("dl", "facts-list");
  const parts = { why: makeWhy(id), timeline: makeTimeline(id), tasks: makeTasks(id), log: makeLog(id), events: makeEvents(id) };
  root.append(fault.element, make("section", "wide", head, facts), ...Object.values(parts).map((part) => part.element));
  const loader = makeLoader((signal) => read(pathOf("sessions", id), {}, signal), ({ body }) => draw(body), gone);
  loader.now();
  turn(query);
  let session = null;

  function draw(found) {
    session = found;
    fault.show(null);
    setClass(head.children[0], `swatch ${tintOf(id)}`);
    drawBadge(head.children[1], session.activity);
    setText(head.children[2], timesOf(session));
    actions.show(session);
    keep(facts, factsOf(session), ([name]) => name, newFact, drawFact);
    parts.tasks.show(session);
  }

  function gone(error) {
    if (error.status === 404) for (const section of root.querySelectorAll("section")) section.hidden = true;
    fault.show(error);
  }

  /** The query names a task whose output is shown, and the page of tasks. */
  function turn(given) {
    parts.tasks.turn(given);
    parts.log.turn(given);
  }

  return {
    update(overview) {
      loader.soon();
      parts.why.update();
      parts.timeline.update(overview);
      parts.tasks.update();
      parts.events.update();
    },
    turn: (route) => turn(route.query),
    allow() {
      if (session) actions.show(session);
      parts.tasks.allow();
    },
    close() {
      loader.close();
      for (const part of Object.values(parts)) part.close();
    },
  };
}

function timesOf(session) {
  const began = `created ${new Date(session.created_at * 1000).toLocaleString()}`;
  if (session.closed_at === null) return began;
  return `${began}, closed after ${age(session.closed_at - session.created_at)}`;
}

function factsOf(session) {
  const { min_instances: least, max_instances: most } = session;
  const range = [least ? `, at least ${least}` : "", most === null ? "" : `, at most ${most}`].join("");
  return [
    ["owner", orDash(session.owner)],
    ["queue", session.queue, hrefOf("sessions", null, { queue: session.queue })],
    ["application", session.application],
    ["each executor asks for", requestOf(session.resreq)],
    ["executors", `${session.held} held, ${session.deserved} deserved${range}`],
    ["dominant share", percent(session.share)],
    ["priority", session.priority],
    ["weight", session.weight],
    ["tasks", `${session.running} running, ${session.pending} waiting, ${session.succeed} done, ${session.failed} failed, ${session.cancelled} cancelled`],
  ];
}

const newFact = () => make("div", "", make("dt"), make("dd"));

function drawFact(element, [name, value, href]) {
  const [term, text] = element.children;
  setText(term, name);
  if (!href) return setText(text, value);
  if (!text.firstElementChild) text.append(make("a"));
  setAttribute(text.firstElementChild, "href", href);
  setText(text.firstElementChild, value);
}
