// The way through a long list: where one is, and a page back or on.

import { make, setAttribute, setText } from "./dom.js";

/** `go` gets the place of the first item of the wanted page. */
export function makePager(size, go) {
  let offset = 0;
  const back = button("Previous", () => go(Math.max(0, offset - size)));
  const on = button("Next", () => go(offset + size));
  const where = make("span", "small");
  const element = make("nav", "pager", back, where, on);
  setAttribute(element, "aria-label", "Pages of the list");
  return {
    element,
    show(first, shown, total) {
      offset = first;
      back.disabled = first === 0;
      on.disabled = first + shown >= total;
      setText(where, `${shown ? first + 1 : 0}–${first + shown} of ${total.toLocaleString("en")}`);
      element.hidden = total <= size && first === 0;
    },
  };
}

function button(text, act) {
  const element = make("button", "", text);
  setAttribute(element, "type", "button");
  element.addEventListener("click", act);
  return element;
}
