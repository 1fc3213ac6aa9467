// Links in cells.

import { make, setAttribute, setText } from "./dom.js";

/** Makes the content of an element one link; without an address it is text. */
export function linkTo(element, text, href) {
  if (!href) {
    if (element.firstElementChild) element.replaceChildren();
    return setText(element, text);
  }
  if (element.firstElementChild?.tagName !== "A") element.replaceChildren(make("a"));
  setAttribute(element.firstElementChild, "href", href);
  setText(element.firstElementChild, text);
}
