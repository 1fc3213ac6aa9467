// Elements of SVG, changed by key as those of the document are, and charts that follow the width of their place.

import { setAttribute } from "../dom.js";

const SVG = "http://www.w3.org/2000/svg";

/** A new element with its attributes and children. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  set(element, attributes);
  element.append(...children);
  return element;
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
}

/** A picture with its text alternative. `paint(width)` is called when it is to be drawn, and when its place has another width. */
export function makePicture(className, paint) {
  const picture = draw("svg", { class: className, role: "img", "aria-label": "nothing is drawn yet" });
  let width = 0;
  const watch = new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found === width || found === 0) return;
    width = found;
    paint(width);
  });
  watch.observe(picture);
  return {
    element: picture,
    again: () => width && paint(width),
    close: () => watch.disconnect(),
  };
}

/** Sets the height and the text alternative of a picture. */
export function describe(picture, height, text) {
  set(picture, { height, "aria-label": text });
}
