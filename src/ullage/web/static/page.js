// The page of a server: opens the view that the address names, and gives it each overview that the server sends.
//
// When the connection is lost the last picture stays, faded, until the server is back.

import { drawAccount, refreshAccount } from "./account.js";
import { setAttribute, setText } from "./dom.js";
import { hasKey } from "./key.js";
import { follow } from "./live.js";
import { onMe } from "./me.js";
import { routeOf } from "./router.js";
import { giveTints } from "./tints.js";
import * as fit from "./views/fit.js";
import * as missing from "./views/missing.js";
import * as nodes from "./views/nodes.js";
import * as overview from "./views/overview.js";
import * as queues from "./views/queues.js";
import * as session from "./views/session.js";
import * as sessions from "./views/sessions.js";
import * as usage from "./views/usage.js";
import { counted } from "./words.js";

const VIEWS = { overview, queues, sessions, nodes, history: usage, fit };
const LINKS = { live: "live", lost: "reconnecting…", closed: "not admitted" };
const NOT_ADMITTED = "This browser may not read here yet. Open the link that `ullage page` prints.";

const find = (id) => document.getElementById(id);
let route = null;
let view = null;
let latest = null;

const viewOf = ({ name, id }) => (name === "sessions" && id !== null ? session : Object.hasOwn(VIEWS, name) ? VIEWS[name] : missing);

/** Opens the view of the address; the same view only takes its new query. */
function turn() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const next = routeOf(location.hash);
  const same = route !== null && next.name === route.name && next.id === route.id;
  route = next;
  if (same) view.turn?.(next);
  else open(next);
}

function open(next) {
  const moved = view !== null;
  view?.close?.();
  const module = viewOf(next);
  const root = find("view");
  root.replaceChildren();
  setText(find("title"), module.titleOf(next));
  document.title = next.name === "overview" ? "Ullage" : `${module.titleOf(next)} · Ullage`;
  document.body.dataset.view = next.name;
  for (const link of find("nav").querySelectorAll("a"))
    setAttribute(link, "aria-current", link.dataset.view === next.name ? "page" : null);
  view = module.open(root, next);
  if (latest) view.update?.(latest);
  if (!moved) return;
  scrollTo(0, 0);
  find("title").focus({ preventScroll: true });
}

function take(found) {
  if (latest !== null && latest.server.version !== found.server.version) location.reload(); // a new server brings a new page
  latest = found;
  giveTints(found.sessions);
  drawFrame(found);
  view.update?.(found);
}

function drawFrame({ at, server, nodes: machines, gpus }) {
  const moment = new Date(at * 1000);
  setText(find("at"), moment.toLocaleTimeString());
  setAttribute(find("at"), "datetime", moment.toISOString());
  setText(find("about"), `Ullage ${server.version} · isolation: ${server.isolation} · ${counted(machines.length, "node")}, ${counted(gpus.length, "card")}`);
}

function showLink(link) {
  if (document.body.dataset.link !== link && link === "live") refreshAccount();
  document.body.dataset.link = link;
  setText(find("link"), LINKS[link]);
  setText(find("notice"), link === "closed" ? NOT_ADMITTED : "");
  find("notice").hidden = link !== "closed";
}

if (hasKey()) {
  addEventListener("hashchange", turn);
  onMe(() => view?.allow?.());
  find("skip").addEventListener("click", (event) => {
    event.preventDefault();
    find("title").focus();
  });
  turn();
  const connect = follow(take, showLink);
  drawAccount(find("account"), connect);
} else {
  sessionStorage.setItem("ullage-return", location.hash);
  location.replace("/enter");
}
