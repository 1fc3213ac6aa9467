// What one may do to a session: change its priority, close it, cancel it. Only what one may do is offered.

import { change, pathOf } from "../api.js";
import { makeField, showForm } from "../dialog.js";
import { make, setAttribute } from "../dom.js";
import { may } from "../me.js";

/** Buttons; `done` is called after a change. */
export function makeActions(id, done) {
  let session = null;
  const path = (...more) => pathOf("sessions", id, ...more);
  const buttons = [
    button("Change priority", "update_session", () => showForm(priorityForm())),
    button("Retry", "clear_failures", () => change("POST", path("clear-failures")), () => session.bind_failures > 0),
    button("Close", "close_session", () => showForm(closeForm())),
    button("Cancel", "cancel_session", () => showForm(cancelForm()), () => true, "danger"),
  ];
  const element = make("div", "buttons", ...buttons.map(({ element: each }) => each));

  function button(text, operation, act, suits = () => true, kind = "") {
    const made = make("button", kind, text);
    setAttribute(made, "type", "button");
    made.hidden = true;
    made.addEventListener("click", async () => {
      await act();
      done();
    });
    return { element: made, operation, suits };
  }

  function priorityForm() {
    const field = makeField("Priority", { type: "number", min: 0, value: session.priority, required: "" }, "Higher goes first within the queue.");
    const act = (form) => change("PATCH", path(), { priority: Number(form.querySelector("input").value) });
    return { title: `Priority of ${id}`, fields: [field], action: "Change", act };
  }

  function closeForm() {
    const text = make("p", "", "It takes no more tasks. What has ended stays; a session with running tasks has to be cancelled instead.");
    return { title: `Close ${id}?`, fields: [text], action: "Close it", act: () => change("POST", path("close")) };
  }

  function cancelForm() {
    const text = make("p", "", `${session.running} running and ${session.pending} waiting tasks end as cancelled, and the session closes. This cannot be undone.`);
    return { title: `Cancel ${id}?`, fields: [text], action: "Cancel it", danger: true, act: () => change("POST", path("cancel")) };
  }

  return {
    element,
    show(found) {
      session = found;
      for (const each of buttons)
        each.element.hidden = session.state !== "open" || !may(each.operation, session.owner) || !each.suits();
    },
  };
}
