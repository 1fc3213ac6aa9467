// The page of a cluster: asks for its overview every few seconds and draws it.
//
// It only reads. While nothing answers, the last picture stays, faded. All addresses are relative: the page may be
// served below a path, as behind the proxy of an API server.

import { drawTotals } from "./cards.js";
import { setAttribute, setText } from "./dom.js";
import { drawHeat } from "./heat.js";
import { drawQueues } from "./queues.js";
import { drawHeader, drawReason, drawTable } from "./table.js";
import { age, counted, ofBytes, orDash } from "./words.js";

const AGAIN_MS = 2_000;
const SILENCE_MS = 30_000;
const REST = 9; // An answer that takes long is asked for less often.
const LINKS = { live: "live", lost: "no answer" };

const WAITING = [
  { label: "pod", kind: "id", text: (pod) => `${pod.namespace}/${pod.pod}` },
  { label: "queue", text: (pod) => (pod.position === null ? orDash(pod.queue) : `${pod.queue} (${pod.position})`) },
  { label: "priority", kind: "number", text: (pod) => pod.priority },
  { label: "asks for", kind: "request", text: (pod) => pod.request || "cannot be read" },
  { label: "age", kind: "number", text: (pod, at) => (pod.created_at ? age(at - pod.created_at) : "–") },
  { label: "reason", kind: "reason", draw: (cell, pod) => drawReason(cell, pod.reason, pod.message) },
];
const BINDINGS = [
  { label: "application", kind: "id", text: (row) => row.appName },
  { label: "owner", text: (row) => orDash(row.owner) },
  { label: "node", text: (row) => row.card.nodeName },
  { label: "card", text: (row) => row.card.id },
  { label: "model", text: (row) => row.card.cardModel },
  { label: "shared", text: (row) => row.card.supportType },
  { label: "memory", kind: "number", text: (row) => (row.memory ? ofBytes(row.memory) : "–") },
  { label: "state", text: (row) => row.state || "bound" },
];

const find = (id) => document.getElementById(id);
let tag = "";
let overview = null;
let timer = null;

function draw(at) {
  const { front, nodes, gpus, queues, waiting, bindings } = overview;
  drawTotals(nodes);
  drawHeat(nodes, gpus, find("filter").value);
  drawQueues(queues);
  drawTable("waiting", WAITING, waiting, { keyOf: (pod) => `${pod.namespace}/${pod.pod}`, at, count: overview.waiting_count });
  const rows = bindings.flatMap((card) => card.bindings.map((row) => ({ ...row, card })));
  drawTable("bindings", BINDINGS, rows, { keyOf: (row) => `${row.appId} ${row.owner} ${row.card.nodeName} ${row.card.id}`, at });
  setText(find("fleet"), `${counted(nodes.length, "node")} · ${counted(gpus.length, "card")}`);
  setText(find("front"), `${front.identity} · ${front.leads ? "leads" : "follows"} · version ${front.version}`);
  const faults = Object.entries(front.errors).map(([kind, message]) => `${kind}: ${message}`);
  showNotice([front.unready && `This process decides nothing now: ${front.unready}.`, ...faults].filter(Boolean).join(" "));
  drawTime(at);
}

function drawTime(at) {
  const moment = new Date(at * 1000);
  setText(find("at"), moment.toLocaleTimeString());
  setAttribute(find("at"), "datetime", moment.toISOString());
}

function showNotice(text) {
  setText(find("notice"), text);
  find("notice").hidden = text === "";
}

function showLink(link) {
  document.body.dataset.link = link;
  setText(find("link"), LINKS[link]);
}

/** Fetches the overview if it has changed, and draws it; returns whether there was an answer. */
async function refresh() {
  const known = tag ? { "If-None-Match": tag } : {};
  const answer = await fetch("v1/overview", { headers: known, cache: "no-store", signal: AbortSignal.timeout(SILENCE_MS) });
  if (!answer.ok && answer.status !== 304) return false;
  if (answer.ok) {
    const found = await answer.json();
    if (overview !== null && found.front.version !== overview.front.version) location.reload();
    overview = found;
    tag = answer.headers.get("ETag") ?? "";
  }
  const date = Date.parse(answer.headers.get("Date"));
  draw(Number.isNaN(date) ? overview.at : date / 1000);
  return true;
}

async function follow() {
  clearTimeout(timer);
  const began = performance.now();
  const answered = await refresh().catch(() => false);
  showLink(answered ? "live" : "lost");
  const took = performance.now() - began;
  if (!document.hidden) timer = setTimeout(follow, Math.max(AGAIN_MS, answered ? REST * took : 0));
}

document.addEventListener("visibilitychange", () => document.hidden || follow());
find("filter").addEventListener("input", () => overview && drawHeat(overview.nodes, overview.gpus, find("filter").value));
drawHeader("waiting", WAITING);
drawHeader("bindings", BINDINGS);
follow();
