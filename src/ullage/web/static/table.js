// A table whose rows become blocks on narrow screens. A column has a `label`, a `kind` (its class), and `text` or `draw`.

import { keep, make, setAttribute, setText } from "./dom.js";

const find = (id) => document.getElementById(id);

/** Draws the header of a table once, before anything is known. */
export function drawHeader(id, columns) {
  const cells = columns.map((column) => {
    const cell = make("th", column.kind ?? "", column.label);
    setAttribute(cell, "scope", "col");
    setAttribute(cell, "role", "columnheader");
    return cell;
  });
  const head = make("thead", "", withRole(make("tr", "", ...cells), "row"));
  find(id).append(withRole(head, "rowgroup"), withRole(make("tbody"), "rowgroup"));
}

/** Draws the rows, or the text `ID-none` without any. A row keeps its element by its key; `count` may be larger. */
export function drawTable(id, columns, items, { keyOf, at, count = items.length }) {
  const body = find(id).tBodies[0];
  keep(body, items, keyOf, () => newRow(columns), (row, item) => {
    columns.forEach((column, place) => drawCell(row.children[place], column, item, at));
  });
  setText(find(`${id}-count`), count);
  find(id).hidden = items.length === 0;
  find(`${id}-none`).hidden = items.length > 0;
}

/** Roles are said aloud because narrow screens show rows as blocks, which would take them away. */
function withRole(element, role) {
  setAttribute(element, "role", role);
  return element;
}

function newRow(columns) {
  const cells = columns.map((column, place) => {
    const cell = withRole(make(place ? "td" : "th", column.kind ?? ""), place ? "cell" : "rowheader");
    if (!place) setAttribute(cell, "scope", "row");
    setAttribute(cell, "data-label", column.label);
    return cell;
  });
  return withRole(make("tr", "", ...cells), "row");
}

function drawCell(cell, column, item, at) {
  if (column.draw) column.draw(cell, item);
  else setText(cell, column.text(item, at));
}

/** Draws why something waits: a word and a sentence. */
export function drawReason(cell, reason, message) {
  if (!cell.firstElementChild) cell.append(make("code"), " ", make("span", "text"));
  setText(cell.firstElementChild, reason);
  setText(cell.lastElementChild, message);
}
