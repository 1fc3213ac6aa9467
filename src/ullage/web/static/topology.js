// What is near what in a node: its zones with what is in them, the links between devices, the distances.
//
// It is asked for while it is open, as it is large and seldom changes.

import { ask } from "./key.js";
import { keep, make, setAttribute, setClass, setText } from "./dom.js";
import { tintOf } from "./tints.js";
import { counted, fraction, ofBytes } from "./words.js";

const AGAIN_MS = 5_000;
const UNKNOWN = "?";

// Nearest first; what a cell shows may have a number after it.
const WAYS = {
  NV: "NV#: # bonded NVLinks",
  BOARD: "BOARD: one board",
  PIX: "PIX: at most one PCIe bridge",
  PXB: "PXB: several PCIe bridges",
  PHB: "PHB: a PCIe host bridge",
  NODE: "NODE: host bridges of one zone",
  SYS: "SYS: between zones",
  [UNKNOWN]: "?: not known",
};

const asked = new WeakMap();

/** A part of a node's drawing that can be opened. */
export function newTopology() {
  const parts = [make("p", "small"), make("ul", "zones"), make("div", "matrix"), make("p", "small"), make("div", "matrix")];
  const details = make("details", "topology", make("summary", "", "zones and links"), ...parts);
  details.addEventListener("toggle", () => refresh(details));
  for (const matrix of details.querySelectorAll(".matrix")) setAttribute(matrix, "role", "table");
  return details;
}

export function updateTopology(details, node) {
  details.dataset.node = node;
  refresh(details);
}

/** Asks anew if it is open and was not asked for a while; without an answer the last picture stays. */
async function refresh(details) {
  if (!details.open || Date.now() - (asked.get(details) ?? 0) < AGAIN_MS) return;
  asked.set(details, Date.now());
  const answer = await ask(`/v1/nodes/${encodeURIComponent(details.dataset.node)}/topology`).catch(() => null);
  if (answer?.ok) draw(details, await answer.json());
}

function draw(details, body) {
  const [, said, zones, links, legend, distances] = details.children;
  const devices = [...body.cards.map(ofCard), ...body.devices.map(ofDevice)];
  setText(said, [sourceOf(body), body.note].filter(Boolean).join(" · "));
  keep(zones, blocksOf(body, devices), (block) => block.name, newZone, updateZone);
  drawLinks(links, legend, body, devices);
  drawDistances(distances, body);
}

const ofCard = (card) => ({ ...card, name: `gpu${card.index}`, kind: kindOf(card), text: factsOfCard(card) });

function ofDevice(device) {
  const name = `${device.resource.split("/").pop()}${device.index}`;
  return { ...device, name, kind: "other", text: [device.resource, device.model, device.bus_id].filter(Boolean).join("\n") };
}

function kindOf(card) {
  if (!card.healthy) return "unhealthy";
  return card.holders.length ? `taken ${tintOf(card.holders[0])}` : "idle";
}

function factsOfCard(card) {
  const held = card.holders.length ? `held by ${card.holders.join(", ")}` : "free";
  const state = card.holders.length && card.free ? `${held}, free ${fraction(card.free)}` : held;
  return [card.model ?? "model unknown", card.healthy ? state : "unhealthy", card.bus_id].filter(Boolean).join("\n");
}

function sourceOf(body) {
  if (body.source !== null) return `read from ${body.source || "an unknown source"}`;
  return body.note ? "its topology is not known" : "its topology is not known: its kernel reports no zones";
}

/** A block per zone, also for one that only a device names, and one for what is in no known zone. */
function blocksOf(body, devices) {
  const known = new Map(body.zones.map((zone) => [zone.id, zone]));
  const ids = [...new Set([...known.keys(), ...devices.flatMap((device) => device.zones)])].sort((a, b) => a - b);
  const blocks = ids.map((id) => ({
    name: `zone ${id}`,
    facts: known.has(id) ? factsOf(known.get(id)) : "",
    devices: devices.filter((device) => device.zones.includes(id)),
  }));
  const lost = devices.filter((device) => device.zones.length === 0);
  return lost.length ? [...blocks, { name: "zone unknown", facts: "", devices: lost }] : blocks;
}

function factsOf(zone) {
  const cores = `${counted(zone.cores, "core")}, socket ${zone.sockets.join(", ")}`;
  const facts = [zone.cpus ? `CPUs ${zone.cpus} (${cores}${zone.held_cpus ? `; held ${zone.held_cpus}` : ""})` : "", zone.memory ? `memory ${roomOf(zone.memory)}` : "memory unknown"];
  for (const [size, room] of Object.entries(zone.hugepages)) facts.push(`${ofBytes(Number(size))} pages ${ofBytes(room.total)}`);
  for (const [resource, room] of Object.entries(zone.amounts)) facts.push(`${resource} ${room.allocatable} of ${room.total}`);
  return facts.filter(Boolean).join(" · ");
}

const roomOf = ({ total, allocatable }) =>
  total === allocatable ? ofBytes(total) : `${ofBytes(allocatable)} of ${ofBytes(total)}`;

const newZone = () => make("li", "zone", make("h4"), make("p", "small"), make("ul", "chips"));

function updateZone(element, block) {
  const [title, facts, chips] = element.children;
  setText(title, block.name);
  setText(facts, block.facts);
  keep(chips, block.devices, (device) => device.uuid, () => make("li"), updateChip);
}

function updateChip(element, device) {
  setClass(element, `chip ${device.kind}`);
  setText(element, device.name);
  setAttribute(element, "title", device.text);
}

function drawLinks(matrix, legend, body, devices) {
  const known = new Map(body.links.flatMap((link) => [[`${link.a} ${link.b}`, wayOf(link)], [`${link.b} ${link.a}`, wayOf(link)]]));
  const cellOf = (a, b) => (a === b ? "–" : known.get(`${a.uuid} ${b.uuid}`) ?? UNKNOWN);
  const down = known.size ? devices : [];
  const across = down.slice(0, body.cards.length);
  drawMatrix(matrix, "links", across, down, cellOf);
  const shown = new Set(down.flatMap((a) => across.map((b) => cellOf(a, b).replace(/\d+$/, ""))));
  setText(legend, Object.keys(WAYS).filter((way) => shown.has(way)).map((way) => WAYS[way]).join("; "));
}

function wayOf(link) {
  if (link.nvlinks) return `NV${link.nvlinks}`;
  return link.path in WAYS ? link.path : UNKNOWN;
}

function drawDistances(matrix, body) {
  const zones = body.distances.length > 1 ? body.zones.map((zone, place) => ({ uuid: zone.id, name: `zone ${zone.id}`, place })) : [];
  drawMatrix(matrix, "distance", zones, zones, (a, b) => body.distances[a.place][b.place]);
}

/** A row per item of `down`, a column per item of `across`, below a row of names that begins with the title. */
function drawMatrix(matrix, title, across, down, cellOf) {
  setAttribute(matrix, "aria-label", title);
  matrix.hidden = down.length === 0;
  matrix.style.setProperty("--columns", across.length);
  const head = { uuid: "", name: title, cells: across.map((item) => ({ uuid: item.uuid, text: item.name })) };
  const rows = down.map((a) => ({ ...a, cells: across.map((b) => ({ uuid: b.uuid, text: cellOf(a, b) })) }));
  keep(matrix, down.length ? [head, ...rows] : [], (row) => row.uuid, newRow, updateRow);
}

function newRow() {
  const row = make("div", "row-of-matrix");
  setAttribute(row, "role", "row");
  return row;
}

function updateRow(element, row) {
  const role = row.uuid === "" ? "columnheader" : "cell";
  const cells = [{ uuid: "", text: row.name, role: "rowheader" }, ...row.cells.map((cell) => ({ ...cell, role }))];
  keep(element, cells, (cell) => cell.uuid, () => make("span"), updateCell);
}

function updateCell(element, cell) {
  setAttribute(element, "role", cell.role);
  setAttribute(element, "data-way", cell.role === "cell" ? String(cell.text).replace(/\d+$/, "") : null);
  setText(element, cell.text);
}
