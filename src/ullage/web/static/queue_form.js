// The form of a queue. The server checks what is written, and its sentence is shown where something is wrong.

import { change, pathOf } from "./api.js";
import { makeField, showForm } from "./dialog.js";
import { make, setAttribute } from "./dom.js";

const ROOT = "root";
const TEXTS = ["guarantee", "limit", "default_resreq", "max_resreq"];
const AMOUNT = "such as gpu=4,cpu=16,mem=64g; empty: none";

/** Changes a queue, or adds one; the form closes once the server has it. */
export function editQueue(queue, queues) {
  const others = queues.filter((each) => each.name !== queue?.name).map((each) => each.name);
  const parent = choice("Below", [...new Set([ROOT, queue?.parent ?? ROOT, ...others])], queue?.parent ?? ROOT);
  const fields = [
    ...(queue ? [] : [makeField("Name", { name: "name", required: "", autocomplete: "off", spellcheck: "false" })]),
    parent,
    makeField("Weight", { name: "weight", type: "number", min: 1, required: "", value: queue?.weight ?? 1 }, "Its part of what its siblings share."),
    makeField("Guarantee", { name: "guarantee", autocomplete: "off", value: queue?.guarantee ?? "" }, AMOUNT),
    makeField("Limit", { name: "limit", autocomplete: "off", value: queue?.limit ?? "" }, AMOUNT),
    makeField("Default request", { name: "default_resreq", autocomplete: "off", value: queue?.default_resreq ?? "" }, "What a session asks for that states nothing."),
    makeField("Largest request", { name: "max_resreq", autocomplete: "off", value: queue?.max_resreq ?? "" }, "The most that one executor may ask for."),
    makeField("Longest task", { name: "max_time_s", type: "number", min: 1, value: queue?.max_time_s ?? "" }, "In seconds; empty: no limit."),
  ];
  return showForm({
    title: queue ? `Queue ${queue.name}` : "New queue",
    fields,
    action: queue ? "Save" : "Add",
    act: (form) => {
      const given = Object.fromEntries(new FormData(form));
      const texts = Object.fromEntries(TEXTS.map((name) => [name, given[name].trim() || null]));
      const body = { ...texts, parent: given.parent, weight: Number(given.weight), max_time_s: Number(given.max_time_s) || null };
      body.default_time_s = queue?.default_time_s ?? null; // the form does not show it
      return change("PUT", pathOf("queues", queue?.name ?? given.name.trim()), body);
    },
  });
}

export function removeQueue(name) {
  const text = make("p", "", "It has no sessions and no queues below it.");
  return showForm({ title: `Remove ${name}?`, fields: [text], action: "Remove it", danger: true, act: () => change("DELETE", pathOf("queues", name)) });
}

function choice(label, names, chosen) {
  const select = make("select", "", ...names.map((name) => new Option(name, name, false, name === chosen)));
  setAttribute(select, "name", "parent");
  return make("label", "field", make("span", "label", label), select);
}
