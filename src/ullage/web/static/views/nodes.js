// Nodes and their cards: who holds what, how it was used in the last hour, and how busy a card is where its driver says so.

import { change, pathOf, read } from "../api.js";
import { makeKeys } from "../charts/lanes.js";
import { keep, make, setAttribute } from "../dom.js";
import { makeFault } from "../fault.js";
import { makeFilters } from "../filters.js";
import { makeLoader } from "../loader.js";
import { may } from "../me.js";
import { makeNode } from "../nodes/node.js";
import { setQuery } from "../router.js";

const GAP_MS = 10_000;
const MOST = 60;
const FIELDS = [
  { name: "search", label: "Search", type: "search", placeholder: "node, model, card or session" },
  { name: "show", label: "Show", options: [["", "all nodes"], ["free", "with a free card"], ["cordoned", "cordoned or not ready"]] },
];

export const titleOf = () => "Nodes and cards";

export function open(root, { query }) {
  let given = query;
  let latest = null;
  let load = new Map();
  const fault = makeFault();
  const made = new Map();
  const filters = makeFilters(FIELDS, setQuery);
  const list = make("div", "node-list");
  const none = make("p", "none", "No node matches.");
  const keys = makeKeys({ held: "held, over the last hour", compute: "busy, as its driver measures it", memory: "its memory in use" });
  filters.show(given);
  root.append(filters.element, fault.element, make("section", "wide", keys, list, none));
  const loader = makeLoader((signal) => read("/v1/load", {}, signal), ({ body }) => takeLoad(body), fault.show, GAP_MS);
  loader.now();

  function takeLoad({ at, cards }) {
    fault.show(null);
    load = new Map(cards.map((card) => [card.uuid, { ...card, at }]));
    draw();
  }

  function draw() {
    if (latest === null) return;
    const cards = new Map(latest.nodes.map((node) => [node.name, []]));
    for (const gpu of latest.gpus) cards.get(gpu.node)?.push(gpu);
    const found = latest.nodes.filter((node) => suits(node, cards.get(node.name), given)).slice(0, MOST);
    keep(list, found, (node) => node.name, create, (_, node) => made.get(node.name).show({ node, cards: cards.get(node.name), load, mayCordon: may(node.cordoned ? "uncordon_node" : "cordon_node") }));
    setAttribute(list, "aria-busy", null);
    none.hidden = found.length > 0;
  }

  function create(node) {
    const part = makeNode(node.name, cordon);
    made.get(node.name)?.close();
    made.set(node.name, part);
    return part.element;
  }

  async function cordon(name, verb) {
    try {
      await change("POST", pathOf("nodes", name, verb));
      fault.show(null);
    } catch (error) {
      fault.show(error);
    }
  }

  return {
    update(overview) {
      latest = overview;
      draw();
      loader.soon();
    },
    turn(route) {
      given = route.query;
      filters.show(given);
      draw();
    },
    allow: draw,
    close() {
      loader.close();
      for (const part of made.values()) part.close();
    },
  };
}

function suits(node, cards, query) {
  const show = query.get("show") ?? "";
  if (show === "free" && !cards.some((card) => card.healthy && card.holders.length === 0)) return false;
  if (show === "cordoned" && node.state === "ready" && !node.cordoned) return false;
  const word = (query.get("search") ?? "").trim().toLowerCase();
  const texts = [node.name, ...cards.flatMap((card) => [card.model ?? "", card.uuid, ...card.holders.map((part) => part.session ?? part.executor)])];
  return !word || texts.some((text) => text.toLowerCase().includes(word));
}
