// Why a session has the executors that it has: a sentence, its numbers, who holds what is missing, what would help.

import { pathOf, read } from "../api.js";
import { requestOf } from "../columns.js";
import { keep, make, setText } from "../dom.js";
import { makeLoader } from "../loader.js";
import { REFUSALS, keyOfRefusal } from "../refusals.js";
import { hrefOf } from "../router.js";
import { drawRows, makeTable } from "../table.js";
import { orDash, percent } from "../words.js";
import { linkTo } from "../links.js";

const GAP_MS = 3_000;

const HOLDERS = [
  { label: "held by", kind: "id", draw: (cell, each) => linkTo(cell, each.session, hrefOf("sessions", each.session)) },
  { label: "owner", text: (each) => orDash(each.owner) },
  { label: "executors", kind: "number", text: (each) => each.executors },
  { label: "deserves", kind: "number", text: (each) => each.deserved },
  { label: "amount", text: (each) => requestOf(each.amount) },
];

export function makeWhy(id) {
  const sentence = make("p", "lead");
  const numbers = make("ul", "numbers");
  const start = make("p", "start");
  const helps = make("ul", "helps");
  const refusals = makeTable("What each node lacks", REFUSALS);
  const holders = makeTable("Who holds it", HOLDERS);
  const lists = make("ul", "warnings");
  const element = make("section", "wide", make("h2", "", "Why"), sentence, numbers, start, helps, lists, refusals, holders);
  const loader = makeLoader((signal) => read(pathOf("sessions", id, "why"), {}, signal), ({ body }) => draw(body), () => {}, GAP_MS);
  const estimate = makeLoader((signal) => read(pathOf("sessions", id, "start"), {}, signal), ({ body }) => setText(start, startOf(body)), silent, GAP_MS);
  loader.now();
  estimate.now();

  /** A server that estimates no starts is not asked again. */
  function silent(error) {
    setText(start, "");
    if (error.status === 404) estimate.close();
  }

  function draw(why) {
    setText(sentence, why.summary);
    keep(numbers, numbersOf(why), ([name]) => name, () => make("li", "", make("b"), " ", make("span")), (item, [name, value]) => {
      setText(item.firstElementChild, value);
      setText(item.lastElementChild, name);
    });
    drawList(helps, why.suggestions.map((text) => `Would help: ${text}`));
    const evicted = why.evicted ? [`Last evicted ${new Date(why.evicted.at * 1000).toLocaleString()}: ${why.evicted.message}`] : [];
    drawList(lists, [...why.warnings, ...evicted]);
    drawRows(refusals, REFUSALS, why.rejections, keyOfRefusal);
    drawRows(holders, HOLDERS, why.holders, (each) => each.session);
  }

  return {
    element,
    update() {
      loader.soon();
      estimate.soon();
    },
    close() {
      loader.close();
      estimate.close();
    },
  };
}

function startOf({ at, earliest, latest, confidence, text }) {
  if (at === null) return `Start: ${text}`;
  const [first, last, likely] = [earliest, latest, at].map((each) => new Date(each * 1000).toLocaleString());
  return `Starts between ${first} and ${last}, ${10 * confidence} of 10 times; most likely at ${likely}. The estimate is ${text}.`;
}

function numbersOf({ code, want, held, deserved, share, position }) {
  const found = [["reason", code], ["wanted", want], ["held", held], ["deserved", deserved], ["share", percent(share)]];
  return position === null ? found : [...found, ["in line", position]];
}

function drawList(element, texts) {
  keep(element, texts, (text) => text, () => make("li"), setText);
  element.hidden = texts.length === 0;
}
