// The form of a queue. The server checks what is written, and its sentence is shown where something is wrong.

import { change, pathOf } from "./api.js";
import { makeField, showForm } from "./dialog.js";
import { make, setAttribute } from "./dom.js";

const ROOT = "root";
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
  ];
  return showForm({
    title: queue ? `Queue ${queue.name}` : "New queue",
    fields,
    action: queue ? "Save" : "Add",
    act: (form) => {
      const given = Object.fromEntries(new FormData(form));
      const body = { parent: given.parent, weight: Number(given.weight), guarantee: given.guarantee.trim() || null, limit: given.limit.trim() || null };
      return change("PUT", pathOf("queues", queue?.name ?? given.name.trim()), { ...kept(queue), ...body });
    },
  });
}

/** What a queue has that the form does not show stays as it is. */
function kept(queue) {
  const shown = ["name", "parent", "weight", "guarantee", "limit", "held", "share", "sessions", "pending", "running", "depth"];
  return Object.fromEntries(Object.entries(queue ?? {}).filter(([name]) => !shown.includes(name)));
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
