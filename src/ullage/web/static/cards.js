// The header's totals and the cards: one glass per GPU, empty where there is room.

import { keep, make, setAttribute, setClass, setPart, setText } from "./dom.js";
import { tintOf } from "./tints.js";
import { newTopology, updateTopology } from "./topology.js";
import { counted, fraction, ofBytes, ofMilli, partOfBytes, partOfMilli } from "./words.js";

const DIMENSIONS = [
  { name: "cpu", field: "cpu_milli", figure: partOfMilli },
  { name: "memory", field: "memory_bytes", figure: partOfBytes },
  { name: "gpu", field: "gpu_milli", figure: partOfMilli },
];

const find = (id) => document.getElementById(id);
const sum = (nodes, amount, field) => nodes.reduce((total, node) => total + node[amount][field], 0);

/** The three bars: held of what work may hold. */
export function drawTotals(nodes) {
  const rows = DIMENSIONS.map((dimension) => ({
    ...dimension,
    held: sum(nodes, "held", dimension.field),
    whole: sum(nodes, "allocatable", dimension.field),
  }));
  keep(find("totals"), rows, (row) => row.name, newTotal, updateTotal);
}

function newTotal(row) {
  const track = make("span", "track", make("span", "level"));
  for (const [name, value] of [["role", "meter"], ["aria-label", `${row.name} held`], ["aria-valuemin", 0]])
    setAttribute(track, name, value);
  return make("div", "total", make("span", "name", row.name), track, make("span", "figure"));
}

function updateTotal(element, { held, whole, figure }) {
  const [, track, text] = element.children;
  setPart(track.firstElementChild, "--part", held, whole);
  setAttribute(track, "aria-valuemax", whole);
  setAttribute(track, "aria-valuenow", Math.min(held, whole));
  setAttribute(track, "aria-valuetext", figure(held, whole));
  setText(text, figure(held, whole));
}

/** Nodes with cards as grids of cells, the others as a line each. */
export function drawNodes(nodes, gpus) {
  const cards = byNode(gpus);
  const withCards = nodes.filter((node) => cards.has(node.name));
  const without = nodes.filter((node) => !cards.has(node.name));
  keep(find("nodes"), withCards, (node) => node.name, newNode, (element, node) => updateNode(element, node, cards));
  keep(find("bare-nodes"), without, (node) => node.name, newBareNode, updateBareNode);
}

function byNode(gpus) {
  const found = new Map();
  for (const gpu of gpus) found.set(gpu.node, [...(found.get(gpu.node) ?? []), gpu]);
  return found;
}

function newNode() {
  const title = make("h3", "", make("span", "node-name"), make("span", "badge"));
  const list = make("ul", "cards");
  return make("article", "node", title, make("p", "facts"), list, make("p", "small note"), newTopology());
}

function updateNode(element, node, cards) {
  const [title, facts, list, note, topology] = element.children;
  updateNodeTitle(title, node);
  setText(facts, `${factsOf(node)} · ${counted(node.executors, "executor")}`);
  setAttribute(list, "aria-label", `Cards of ${node.name}`);
  keep(list, cards.get(node.name), (gpu) => gpu.uuid, newCard, updateCard);
  setText(note, node.note);
  updateTopology(topology, node.name);
}

function updateNodeTitle(title, node) {
  const [name, badge] = title.children;
  setText(name, node.name);
  setText(badge, conditionOf(node));
  badge.hidden = conditionOf(node) === "";
}

const conditionOf = (node) => (node.state === "ready" ? "" : node.state) || (node.cordoned ? "cordoned" : "");

function factsOf(node) {
  const parts = DIMENSIONS.filter(({ field }) => node.allocatable[field] > 0 || node.held[field] > 0);
  return parts.map(({ name, field, figure }) => `${name} ${figure(node.held[field], node.allocatable[field])}`).join(" · ");
}

const newBareNode = () => make("li", "", make("span", "node-name"), make("span", "badge"), make("span", "facts"));

function updateBareNode(element, node) {
  updateNodeTitle(element, node);
  setText(element.lastElementChild, `${factsOf(node)} · ${counted(node.executors, "executor")} · no GPUs`);
  setAttribute(element, "title", node.note || null);
}

const newCard = () => {
  const fills = make("span", "fills");
  setAttribute(fills, "aria-hidden", "true"); // the text beside it says the same
  return make("li", "", make("span", "index"), make("span", "flag"), make("span", "holder"), make("span", "owner"), fills);
};

function updateCard(element, gpu) {
  const [index, flag, holder, owner, fills] = element.children;
  setClass(element, classOf(gpu));
  keep(fills, isShared(gpu) ? gpu.holders : [], (part) => part.executor, () => make("span"), updateFill);
  setAttribute(element, "title", factsOfCard(gpu));
  setText(index, gpu.index);
  setText(flag, flagOf(gpu));
  setText(holder, gpu.holders.map(nameOf).join(", ") || "free");
  setText(owner, ownersOf(gpu).join(", "));
}

/** A level in the glass, as high as the part that is held. */
function updateFill(element, part) {
  setClass(element, `fill ${tintOf(part.session)}`);
  setPart(element, "--part", part.fraction, 1);
}

/** A card that no driver has described: the operator says that it exists. */
const isDeclared = (gpu) => (gpu.model === null && gpu.vendor === null) || gpu.uuid.startsWith("declared-");

/** Whether parts of it are held, not all of it by one. */
const isShared = (gpu) => gpu.holders.length > 0 && gpu.holders[0].isolation !== "shared";

const ownersOf = (gpu) => [...new Set(gpu.holders.map((part) => part.owner).filter(Boolean))];

function nameOf(part) {
  const name = part.session ?? "idle executor";
  return part.isolation === "shared" ? name : `${name} ${fraction(part.fraction)}`;
}

function flagOf(gpu) {
  if (!gpu.healthy) return "unhealthy";
  return isDeclared(gpu) ? "declared" : "";
}

function classOf(gpu) {
  const names = ["card", gpu.holders.length ? `held ${tintOf(gpu.holders[0].session)}` : "free"];
  if (isShared(gpu)) names[1] = "shared";
  if (!gpu.healthy) names.push("unhealthy");
  if (isDeclared(gpu)) names.push("declared");
  return names.join(" ");
}

function factsOfPart(part) {
  const amounts = [
    part.vram_bytes === null ? "" : ofBytes(part.vram_bytes),
    part.compute_gflops === null ? "" : `${ofMilli(part.compute_gflops)} TFLOPS`,
  ];
  const size = part.isolation === "shared" ? "" : `: ${[fraction(part.fraction), ...amounts].filter(Boolean).join(", ")}`;
  return part.session ? `session ${part.session}${part.owner ? ` of ${part.owner}` : ""}${size}` : `idle executor${size}`;
}

function factsOfCard(gpu) {
  const facts = [
    `GPU ${gpu.index} of ${gpu.node}`,
    ...(gpu.holders.length ? gpu.holders.map(factsOfPart) : ["free"]),
    `uuid ${gpu.uuid}`,
    `model ${gpu.model ?? (isDeclared(gpu) ? "unknown: declared by the operator" : "unknown")}`,
    gpu.vram_bytes === null ? "memory unknown" : `memory free ${partOfBytes(gpu.free.vram_bytes, gpu.vram_bytes)}`,
    gpu.compute_gflops === null ? "compute unknown" : `TFLOPS free ${partOfMilli(gpu.free.compute_gflops, gpu.compute_gflops)}`,
    `bus id ${gpu.bus_id ?? "unknown"}`,
  ];
  if (!gpu.healthy) facts.push("unhealthy: it receives no new work");
  return facts.join("\n");
}
