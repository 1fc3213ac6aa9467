// Cards as a heat map: a tile per card with the percent that is held, the darker the more. A chosen tile says its facts.

import { keep, make, setAttribute, setClass, setText } from "./dom.js";
import { counted, fraction, ofBytes, partOfBytes, partOfMilli, percent } from "./words.js";

const MOST_NODES = 500;

const find = (id) => document.getElementById(id);
let chosen = null;

/** Draws the nodes whose name, or one of whose cards or pods, has the text. */
export function drawHeat(nodes, gpus, text, place = find("nodes")) {
  const cards = new Map(nodes.map((node) => [node.name, []]));
  for (const gpu of gpus) cards.get(gpu.node)?.push(gpu);
  const word = text.trim().toLowerCase();
  const found = nodes.filter((node) => has(node, cards.get(node.name), word));
  const shown = found.slice(0, MOST_NODES);
  const total = found.length === nodes.length ? `${nodes.length}` : `${found.length} of ${nodes.length}`;
  setText(find("shown"), shown.length < found.length ? `the first ${shown.length} of ${total} nodes` : `${total} nodes`);
  keep(place, shown, (node) => node.name, newNode, (element, node) => updateNode(element, node, cards.get(node.name)));
}

function has(node, cards, word) {
  if (!word) return true;
  const texts = [node.name, ...cards.flatMap((gpu) => [gpu.model ?? "", gpu.uuid, ...gpu.holders.map(nameOf)])];
  return texts.some((each) => each.toLowerCase().includes(word));
}

function newNode(node) {
  const title = make("h3", "", make("span", "node-name"), make("span", "badge"));
  const tiles = make("ul", "tiles");
  const facts = make("p", "small card-facts");
  facts.hidden = true;
  tiles.addEventListener("click", (event) => {
    const tile = event.target.closest("button");
    if (tile) choose(node.name, tile.dataset.uuid, tiles, facts);
  });
  return make("article", "heat-node", title, make("p", "facts small"), tiles, facts);
}

function updateNode(element, node, cards) {
  const [title, line, tiles, facts] = element.children;
  const state = node.state === "ready" ? (node.cordoned ? "cordoned" : "") : node.state;
  setText(title.firstElementChild, node.name);
  setText(title.lastElementChild, state);
  title.lastElementChild.hidden = state === "";
  setText(line, factsOf(node));
  setAttribute(tiles, "aria-label", `Cards of ${node.name}`);
  keep(tiles, cards, (gpu) => gpu.uuid, newTile, updateTile);
  showFacts(facts, cards.find((gpu) => chosen === keyOf(node.name, gpu.uuid)));
  setAttribute(element, "title", node.note || null);
}

function factsOf(node) {
  const { held, allocatable } = node;
  const cpu = `cpu ${partOfMilli(held.cpu_milli, allocatable.cpu_milli)}`;
  const memory = `mem ${partOfBytes(held.memory_bytes, allocatable.memory_bytes)}`;
  return [cpu, memory, counted(node.executors, "pod")].join(" · ");
}

const newTile = () => make("li", "", make("button", "tile"));

function updateTile(element, gpu) {
  const tile = element.firstElementChild;
  const held = heldOf(gpu);
  setAttribute(tile, "type", "button");
  setAttribute(tile, "data-uuid", gpu.uuid);
  setAttribute(tile, "data-heat", held < 1 ? Math.min(9, Math.ceil(held * 10)) : 10);
  setAttribute(tile, "aria-pressed", chosen === keyOf(gpu.node, gpu.uuid));
  setClass(tile, gpu.healthy ? "tile" : "tile unhealthy");
  setAttribute(tile, "title", factsOfCard(gpu));
  setAttribute(tile, "aria-label", `card ${gpu.index}: ${percent(held)} held${gpu.healthy ? "" : ", unhealthy"}`);
  setText(tile, held < 1 ? Math.floor(held * 100) : 100);
}

/** What is held of a card, from 0 to 1. */
const heldOf = (gpu) => (gpu.holders.length === 0 ? 0 : 1 - gpu.free.fraction);

const keyOf = (node, uuid) => `${node} ${uuid}`;

function choose(node, uuid, tiles, facts) {
  const key = keyOf(node, uuid);
  chosen = chosen === key ? null : key;
  for (const tile of document.querySelectorAll(".tile[aria-pressed=true]")) setAttribute(tile, "aria-pressed", false);
  for (const other of document.querySelectorAll(".card-facts")) other.hidden = true;
  if (chosen === null) return;
  const tile = [...tiles.querySelectorAll("button")].find((each) => each.dataset.uuid === uuid);
  setAttribute(tile, "aria-pressed", true);
  setText(facts, tile.title);
  facts.hidden = false;
}

function showFacts(facts, gpu) {
  facts.hidden = gpu === undefined;
  if (gpu !== undefined) setText(facts, factsOfCard(gpu));
}

const nameOf = (part) => part.session ?? part.executor;

function factsOfPart(part) {
  if (part.isolation === "shared") return nameOf(part);
  const vram = part.vram_bytes === null ? "" : `, ${ofBytes(part.vram_bytes)}`;
  return `${nameOf(part)}: ${fraction(part.fraction)}${vram}`;
}

function factsOfCard(gpu) {
  const facts = [
    `card ${gpu.index} of ${gpu.node}${gpu.model ? `, ${gpu.model}` : ""}`,
    ...(gpu.holders.length ? gpu.holders.map(factsOfPart) : ["free"]),
    gpu.vram_bytes === null ? "memory unknown" : `memory free ${partOfBytes(gpu.free.vram_bytes, gpu.vram_bytes)}`,
    gpu.pool ? `pool ${gpu.pool}` : "",
    `uuid ${gpu.uuid}`,
    gpu.healthy ? "" : "unhealthy: it receives no new work",
  ];
  return facts.filter(Boolean).join("\n");
}
