// Keyed changes to the document: a redraw touches only what changed, so nothing flickers or jumps.
// Text enters the document through textContent alone.

const kept = new WeakMap();

/** A new element with its class and children. */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setClass(element, className) {
  if (element.className !== className) element.className = className;
}

/** Sets an attribute; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}

/** Sets a part of a whole as a custom property that the style sheet turns into a width or a place. */
export function setPart(element, property, part, whole) {
  const percent = whole > 0 ? Math.min(100, (100 * part) / whole) : 0;
  const wanted = `${percent.toFixed(2)}%`;
  if (element.style.getPropertyValue(property) !== wanted) element.style.setProperty(property, wanted);
}

/** Makes the children of `parent` those of `items`, in their order; an item keeps its element by its key. */
export function keep(parent, items, keyOf, create, update) {
  const before = kept.get(parent) ?? new Map();
  const now = new Map(items.map((item) => [keyOf(item), before.get(keyOf(item)) ?? create(item)]));
  for (const [key, element] of before) if (!now.has(key)) element.remove();
  let place = parent.firstElementChild;
  for (const item of items) {
    const element = now.get(keyOf(item));
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  kept.set(parent, now);
}
