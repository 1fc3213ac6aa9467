// The header's totals and the cards: one glass per GPU, empty where there is room.

import { keep, make, setAttribute, setClass, setPart, setText } from "./dom.js";
import { tintOf } from "./tints.js";
import { counted, ofBytes, partOfBytes, partOfMilli } from "./words.js";

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
  return make("article", "node", title, make("p", "facts"), list, make("p", "small note"));
}

function updateNode(element, node, cards) {
  const [title, facts, list, note] = element.children;
  updateNodeTitle(title, node);
  setText(facts, `${factsOf(node)} · ${counted(node.executors, "executor")}`);
  setAttribute(list, "aria-label", `Cards of ${node.name}`);
  keep(list, cards.get(node.name), (gpu) => gpu.uuid, newCard, updateCard);
  setText(note, node.note);
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

const newCard = () =>
  make("li", "", make("span", "index"), make("span", "flag"), make("span", "holder"), make("span", "owner"));

function updateCard(element, gpu) {
  const [index, flag, holder, owner] = element.children;
  setClass(element, classOf(gpu));
  setAttribute(element, "title", factsOfCard(gpu));
  setText(index, gpu.index);
  setText(flag, flagOf(gpu));
  setText(holder, holderOf(gpu));
  setText(owner, gpu.owner ?? "");
}

/** A card that no driver has described: the operator says that it exists. */
const isDeclared = (gpu) => gpu.model === null && gpu.vendor === null;

const holderOf = (gpu) => gpu.session ?? (gpu.executor ? "idle executor" : "free");

function flagOf(gpu) {
  if (!gpu.healthy) return "unhealthy";
  return isDeclared(gpu) ? "declared" : "";
}

function classOf(gpu) {
  const names = ["card", gpu.executor ? `held ${tintOf(gpu.session)}` : "free"];
  if (!gpu.healthy) names.push("unhealthy");
  if (isDeclared(gpu)) names.push("declared");
  return names.join(" ");
}

function factsOfCard(gpu) {
  const facts = [
    `GPU ${gpu.index} of ${gpu.node}`,
    gpu.session ? `session ${gpu.session}${gpu.owner ? ` of ${gpu.owner}` : ""}` : holderOf(gpu),
    `uuid ${gpu.uuid}`,
    `model ${gpu.model ?? (isDeclared(gpu) ? "unknown: declared by the operator" : "unknown")}`,
    gpu.vram_bytes === null ? "memory unknown" : `memory ${ofBytes(gpu.vram_bytes)}`,
    `bus id ${gpu.bus_id ?? "unknown"}`,
  ];
  if (!gpu.healthy) facts.push("unhealthy: it receives no new work");
  return facts.join("\n");
}
