// The live page: follows the server's overviews (server-sent events) and has each one drawn.
//
// It only reads. When the connection is lost the last picture stays, faded, until the server is back.

import { drawNodes, drawTotals } from "./cards.js";
import { setText } from "./dom.js";
import { readEvents } from "./events.js";
import { ask, hasKey } from "./key.js";
import { drawShares } from "./shares.js";
import { drawHeaders, drawTables } from "./tables.js";
import { giveTints } from "./tints.js";
import { counted, roomOf } from "./words.js";

// The server sends an overview every 5 s even if nothing changed: a longer silence is a lost connection.
const SILENCE_MS = 15_000;
const AGAIN_MS = 2_000;
const LINKS = { live: "live", lost: "reconnecting…", closed: "not admitted" };
const NOT_ADMITTED = "This browser may not read here yet. Open the link that `ullage page` prints.";

const find = (id) => document.getElementById(id);
let version = null;
let stop = new AbortController();
let silence = null;

function draw(overview) {
  const { nodes, gpus, room, queues, sessions, server, at } = overview;
  giveTints(sessions);
  drawTotals(nodes);
  drawNodes(nodes, gpus);
  setText(find("room"), roomOf(room));
  drawShares(queues, sessions);
  drawTables(sessions, at);
  setText(find("fleet"), `${counted(nodes.length, "node")} · ${counted(gpus.length, "card")}`);
  setText(find("isolation"), `isolation: ${server.isolation}`);
  drawTime(at);
}

function drawTime(at) {
  const moment = new Date(at * 1000);
  setText(find("at"), moment.toLocaleTimeString());
  find("at").dateTime = moment.toISOString();
}

function showLink(link) {
  document.body.dataset.link = link;
  setText(find("link"), LINKS[link]);
  setText(find("notice"), link === "closed" ? NOT_ADMITTED : "");
  find("notice").hidden = link !== "closed";
}

async function follow() {
  stop.abort();
  const mine = (stop = new AbortController());
  expect();
  let status = null;
  try {
    const answer = await ask("/v1/live", { signal: mine.signal });
    status = answer.status;
    if (answer.ok) await readEvents(answer.body, (name, data) => name === "overview" && take(JSON.parse(data)));
  } catch {
    // The connection was lost, or given up for a new one.
  }
  if (mine === stop) lose(status);
}

function take(overview) {
  version ??= overview.server.version;
  if (overview.server.version !== version) location.reload(); // a new server brings a new page
  showLink("live");
  expect();
  draw(overview);
}

/** Starts the wait for the next overview anew. */
function expect() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    showLink("lost");
    follow();
  }, SILENCE_MS);
}

function lose(status) {
  clearTimeout(silence);
  showLink(status === 401 ? "closed" : "lost");
  setTimeout(follow, AGAIN_MS);
}

if (hasKey()) {
  drawHeaders();
  follow();
} else {
  location.replace("/enter");
}
