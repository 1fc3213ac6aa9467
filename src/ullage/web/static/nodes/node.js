// One node with its cards.

import { drawBadge } from "../columns.js";
import { keep, make, setAttribute, setPart, setText } from "../dom.js";
import { newTopology, updateTopology } from "../topology.js";
import { counted, partOfBytes, partOfMilli } from "../words.js";
import { makeCard } from "./card.js";

const BARS = [
  ["cards", "gpu_milli", partOfMilli],
  ["cores", "cpu_milli", partOfMilli],
  ["memory", "memory_bytes", partOfBytes],
];

/** `cordon` gets the name and the verb, `cordon` or `uncordon`. */
export function makeNode(name, cordon) {
  const made = new Map();
  const state = make("span");
  const button = make("button", "quiet");
  const head = make("div", "section-head", make("h2", "", name), state, make("span", "small"), button);
  const bars = make("ul", "bars");
  const note = make("p", "small");
  const cards = make("ul", "card-rows");
  const topology = newTopology();
  const element = make("article", "node-block", head, bars, note, cards, topology);
  setAttribute(element, "aria-label", `node ${name}`);
  setAttribute(button, "type", "button");
  setAttribute(cards, "aria-label", `Cards of ${name}`);
  button.addEventListener("click", () => cordon(name, button.dataset.verb));

  function show({ node, cards: found, load, mayCordon }) {
    drawBadge(state, node.state === "ready" && node.cordoned ? "cordoned" : node.state);
    setText(head.children[2], [counted(node.executors, "executor"), node.arch, node.os].filter(Boolean).join(" · "));
    button.hidden = !mayCordon;
    button.dataset.verb = node.cordoned ? "uncordon" : "cordon";
    setText(button, node.cordoned ? "Uncordon" : "Cordon");
    setAttribute(button, "aria-label", `${node.cordoned ? "Uncordon" : "Cordon"} ${name}`);
    setAttribute(button, "title", node.cordoned ? "place work on it again" : "place no new work on it");
    keep(bars, BARS.filter(([, field]) => node.allocatable[field] > 0), ([label]) => label, newBar, (item, [, field, words]) => drawBar(item, node, field, words));
    setText(note, node.note);
    note.hidden = !node.note;
    keep(cards, found, (card) => card.uuid, create, (_, card) => made.get(card.uuid).show(card, load.get(card.uuid)));
    updateTopology(topology, name);
  }

  function create(card) {
    const part = makeCard();
    made.get(card.uuid)?.close();
    made.set(card.uuid, part);
    return part.element;
  }

  return {
    element,
    show,
    close: () => made.forEach((part) => part.close()),
  };
}

function newBar([label]) {
  const track = make("span", "track", make("span", "level"));
  setAttribute(track, "aria-hidden", "true"); // the figure beside it says the same
  return make("li", "bar-line", make("span", "name", label), track, make("span", "figure"));
}

function drawBar(item, node, field, words) {
  setPart(item.children[1].firstElementChild, "--part", node.held[field], node.allocatable[field]);
  setText(item.lastElementChild, words(node.held[field], node.allocatable[field]));
}
