// The tasks of a session, a page at a time; the output of a chosen one is shown below.

import { change, pathOf, read } from "../api.js";
import { drawBadge } from "../columns.js";
import { make, setAttribute, setText } from "../dom.js";
import { makeFault } from "../fault.js";
import { makeLoader } from "../loader.js";
import { may, mayRead } from "../me.js";
import { makePager } from "../pager.js";
import { hrefOf, setQuery } from "../router.js";
import { drawRows, makeTable } from "../table.js";
import { age, orDash } from "../words.js";
import { linkTo } from "../links.js";

const SIZE = 25;
const STATES = ["pending", "running", "succeed", "failed", "cancelled"];
const ENDED = ["succeed", "failed", "cancelled"];

export function makeTasks(id) {
  let session = null;
  let first = 0;
  let at = Date.now() / 1000;
  const columns = [
    { label: "task", kind: "id", draw: drawNumber },
    { label: "state", draw: (cell, task) => drawBadge(cell, task.state) },
    { label: "executor", text: (task) => orDash(task.executor) },
    { label: "waited", kind: "number", text: (task) => (task.started_at ? age(task.started_at - task.created_at) : ENDED.includes(task.state) ? "–" : age(at - task.created_at)) },
    { label: "ran", kind: "number", text: (task) => (task.started_at ? age((task.ended_at ?? at) - task.started_at) : "–") },
    { label: "code", kind: "number", text: (task) => task.code ?? "–" },
    { label: "message", kind: "reason", text: (task) => orDash(task.message) },
    { label: "", draw: drawStop },
  ];
  const fault = makeFault();
  const none = make("p", "none", "It has no tasks yet.");
  const table = makeTable("Tasks", columns);
  const pager = makePager(SIZE, (offset) => setQuery({ tasks: offset || null }));
  const title = make("h2", "", "Tasks ", make("span", "count"));
  const element = make("section", "wide", title, fault.element, table, none, pager.element);
  const path = pathOf("sessions", id, "tasks");
  const loader = makeLoader((signal) => read(path, { after: first, limit: SIZE }, signal), ({ body }) => draw(body), fault.show);

  function draw(tasks) {
    at = Date.now() / 1000;
    fault.show(null);
    drawRows(table, columns, tasks, (task) => task.task, at);
    none.hidden = tasks.length > 0;
    const total = session ? STATES.reduce((sum, state) => sum + session[state], 0) : tasks.length;
    setText(title.lastElementChild, total.toLocaleString("en"));
    pager.show(first, tasks.length, total);
  }

  function drawNumber(cell, task) {
    const shown = session !== null && mayRead("stream_log", session.owner);
    linkTo(cell, `${task.task}`, shown ? hrefOf("sessions", id, { ...(first ? { tasks: first } : {}), task: task.task }) : null);
    if (shown) setAttribute(cell.firstElementChild, "aria-label", `output of task ${task.task}`);
  }

  function drawStop(cell, task) {
    if (!cell.firstElementChild) {
      const button = make("button", "quiet", "Cancel");
      setAttribute(button, "type", "button");
      button.addEventListener("click", () => change("POST", `${path}/${task.task}/cancel`).then(() => loader.now(), fault.show));
      cell.append(button);
    }
    setAttribute(cell.firstElementChild, "aria-label", `Cancel task ${task.task}`);
    cell.firstElementChild.hidden = ENDED.includes(task.state) || session === null || !may("cancel_task", session.owner);
  }

  return {
    element,
    turn(query) {
      first = Number(query.get("tasks") ?? 0) || 0;
      loader.now();
    },
    show(found) {
      const changed = session === null || STATES.some((state) => session[state] !== found[state]);
      session = found;
      if (changed) loader.soon();
    },
    update: () => session?.running && loader.soon(),
    allow: () => loader.now(),
    close: () => loader.close(),
  };
}
