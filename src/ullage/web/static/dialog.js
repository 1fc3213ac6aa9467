// Dialogs of the browser's own kind: Escape closes them, and the focus stays inside and returns.

import { make, setAttribute, setText } from "./dom.js";

/** Shows a form in a dialog. `act` gets the form; its error is shown, its success closes the dialog. */
export function showForm({ title, fields, action, act, danger = false }) {
  const fault = make("p", "fault");
  const heading = make("h2", "", title);
  heading.id = "dialog-title";
  const go = make("button", danger ? "primary danger" : "primary", action);
  const leave = make("button", "", "Leave it");
  setAttribute(leave, "type", "button");
  setAttribute(fault, "role", "alert");
  const form = make("form", "dialog-form", heading, ...fields, fault, make("div", "buttons", go, leave));
  const dialog = make("dialog", "", form);
  setAttribute(dialog, "aria-labelledby", heading.id);
  document.body.append(dialog);

  return new Promise((resolve) => {
    leave.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "done");
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        await act(form);
        dialog.close("done");
      } catch (error) {
        setText(fault, error.message);
        go.disabled = false;
      }
    });
    dialog.showModal();
    (form.querySelector("input, select") ?? leave).focus();
  });
}

/** A labelled field: an input with its attributes, below its name and above what explains it. */
export function makeField(label, attributes, hint = "") {
  const input = make("input");
  for (const [name, value] of Object.entries(attributes)) setAttribute(input, name, value);
  const parts = [make("span", "label", label), input];
  if (hint) parts.push(make("span", "hint", hint));
  return make("label", "field", ...parts);
}
