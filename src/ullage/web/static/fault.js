// What a view shows where it has nothing to show: an error with what to do, or that there is nothing yet.

import { make, setAttribute, setText } from "./dom.js";

/** A line for errors of a view. `show(null)` hides it. */
export function makeFault() {
  const element = make("p", "notice");
  setAttribute(element, "role", "alert");
  element.hidden = true;
  return {
    element,
    show(error) {
      element.hidden = error === null;
      setText(element, error === null ? "" : error.message);
    },
  };
}

/** A line, and what to do next, where a list is empty. */
export const makeEmpty = (text, ...more) => make("p", "none", text, ...more);
