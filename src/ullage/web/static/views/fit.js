// Would it fit, when, and what would help: asks the planner, and changes nothing.

import { read } from "../api.js";
import { makeField } from "../dialog.js";
import { make, setAttribute, setText } from "../dom.js";
import { makeAnswer } from "../fit/answer.js";
import { setQuery } from "../router.js";

const FIELDS = [
  ["gpu", "Cards", { inputmode: "decimal", placeholder: "1, or 0.5 of one" }],
  ["cpu", "Cores", { inputmode: "decimal", placeholder: "as few as possible" }],
  ["mem", "Memory", { placeholder: "such as 16g" }],
  ["vram", "Memory of each card", { placeholder: "such as 20g" }],
  ["more", "More", { placeholder: "such as gpu_model=A100" }],
  ["priority", "Priority", { inputmode: "numeric", placeholder: "that of medium" }],
];
const OPTIONS = [
  ["preempt", "Say who would have to give way"],
  ["move", "Say what could be moved to make room"],
];

export const titleOf = () => "Would it fit?";

export function open(root, { query }) {
  const inputs = new Map();
  const fields = FIELDS.map(([name, label, attributes]) => keepInput(name, makeField(label, { name, type: "text", autocomplete: "off", spellcheck: "false", ...attributes })));
  const options = OPTIONS.map(([name, label]) => keepInput(name, makeCheck(name, label)));
  const go = make("button", "primary", "Ask the planner");
  const command = make("code");
  const answer = makeAnswer();
  const form = make("form", "fit-form", make("div", "fields", ...fields), make("div", "checks", ...options), make("div", "buttons", go), make("p", "small", "The same on the command line: ", command));
  setAttribute(answer.element, "aria-live", "polite");
  root.append(make("section", "", make("h2", "", "A request"), form), answer.element);
  form.addEventListener("input", () => setText(command, commandOf(valuesOf())));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setQuery(valuesOf());
    askFor(valuesOf());
  });
  fill(query);

  function keepInput(name, label) {
    inputs.set(name, label.querySelector("input"));
    return label;
  }

  function valuesOf() {
    return Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? (input.checked ? "1" : "") : input.value.trim()]));
  }

  /** An address with a request is answered at once. */
  function fill(given) {
    for (const [name, input] of inputs) {
      if (input.type === "checkbox") input.checked = given.get(name) === "1";
      else input.value = given.get(name) ?? "";
    }
    setText(command, commandOf(valuesOf()));
    if (resreqOf(valuesOf())) askFor(valuesOf());
    else answer.clear();
  }

  async function askFor(values) {
    const resreq = resreqOf(values);
    if (!resreq) return answer.fail(new Error("Say what the request needs: a number of cards, cores or memory."));
    go.disabled = true;
    try {
      const { priority, preempt, move } = values;
      answer.show((await read("/v1/plan", { resreq, priority, preempt, move })).body);
    } catch (error) {
      answer.fail(error);
    }
    go.disabled = false;
  }

  return {
    turn(route) {
      const asked = Object.entries(valuesOf()).every(([name, value]) => (route.query.get(name) ?? "") === value);
      if (!asked) fill(route.query);
    },
  };
}

function makeCheck(name, label) {
  const input = make("input");
  for (const [attribute, value] of [["type", "checkbox"], ["name", name], ["value", "1"]]) setAttribute(input, attribute, value);
  return make("label", "check", input, " ", label);
}

function resreqOf({ gpu, cpu, mem, vram, more }) {
  const parts = Object.entries({ cpu, mem, gpu, vram }).filter(([, value]) => value);
  return [...parts.map(([name, value]) => `${name}=${value}`), ...(more ? [more] : [])].join(",");
}

function commandOf(values) {
  const resreq = resreqOf(values) || "gpu=1";
  const rest = [values.priority && `--priority ${values.priority}`, values.preempt && "--preempt", values.move && "--move"];
  return ["ullage plan -r", /[^\w=,.]/.test(resreq) ? `'${resreq}'` : resreq, ...rest.filter(Boolean)].join(" ");
}
