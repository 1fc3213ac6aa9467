// A row of fields that narrow a list. What is typed counts after a moment, what is chosen at once.

import { keep, make, setAttribute, setText } from "./dom.js";

const PAUSE_MS = 250;

/** `fields` have a name, a label and either options or a type; `act` gets the changed names with their values. */
export function makeFilters(fields, act) {
  let timer = null;
  let changes = {};
  const inputs = new Map(fields.map((field) => [field.name, inputOf(field)]));
  const labels = fields.map((field) => make("label", "field", make("span", "label", field.label), inputs.get(field.name)));
  const element = make("form", "filters", ...labels);
  setAttribute(element, "role", "search");
  element.addEventListener("submit", (event) => event.preventDefault());
  element.addEventListener("input", ({ target }) => {
    clearTimeout(timer);
    changes[target.name] = target.value.trim();
    timer = setTimeout(give, target.tagName === "SELECT" ? 0 : PAUSE_MS);
  });

  function give() {
    const given = changes;
    changes = {};
    act(given);
  }

  return {
    element,
    /** Shows the values of the address, but not in fields that one changes. */
    show(query) {
      for (const [name, input] of inputs) {
        const value = query.get(name) ?? "";
        if (input !== document.activeElement && !(name in changes) && input.value !== value) input.value = value;
      }
    },
    choices(name, options) {
      drawOptions(inputs.get(name), options);
    },
  };
}

function inputOf(field) {
  const input = make(field.options ? "select" : "input");
  if (field.options) drawOptions(input, field.options);
  for (const [name, value] of Object.entries({ name: field.name, type: field.type, placeholder: field.placeholder }))
    if (value !== undefined) setAttribute(input, name, value);
  if (!field.options) for (const [name, value] of [["autocomplete", "off"], ["spellcheck", "false"]]) setAttribute(input, name, value);
  return input;
}

function drawOptions(select, options) {
  keep(select, options, ([value]) => value, () => make("option"), (element, [value, text]) => {
    setAttribute(element, "value", value);
    setText(element, text);
  });
}
