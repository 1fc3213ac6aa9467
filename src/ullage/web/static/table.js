// A table whose rows become blocks where there is little room. A column has a `label`, a `kind` (its class), and `text` or
// `draw`; with a `sort` its header is a button.

import { keep, make, setAttribute, setText } from "./dom.js";

// With more columns a table needs a wide screen.
const BROAD = 8;

const find = (id) => document.getElementById(id);

/** A table with a header. `onSort` gets the `sort` of a column whose header is pressed. */
export function makeTable(label, columns, onSort = () => {}) {
  const table = make("table");
  setAttribute(table, "aria-label", label);
  fillTable(table, columns, onSort);
  return table;
}

function fillTable(table, columns, onSort) {
  const cells = columns.map((column) => headerOf(column, onSort));
  const head = make("thead", "", withRole(make("tr", "", ...cells), "row"));
  setAttribute(table, "role", "table");
  if (columns.length > BROAD) table.classList.add("broad");
  table.append(withRole(head, "rowgroup"), withRole(make("tbody"), "rowgroup"));
}

function headerOf(column, onSort) {
  const cell = withRole(make("th", column.kind ?? ""), "columnheader");
  setAttribute(cell, "scope", "col");
  if (column.sort) {
    const button = make("button", "sort", column.label);
    setAttribute(button, "type", "button");
    button.addEventListener("click", () => onSort(column.sort));
    cell.dataset.sort = column.sort;
    cell.append(button);
  } else {
    cell.append(column.label);
  }
  return cell;
}

/** Marks the column by which the rows are sorted; `-` before it is descending. */
export function markSort(table, sort) {
  for (const cell of table.tHead.rows[0].cells) {
    const mine = cell.dataset.sort !== undefined && cell.dataset.sort === sort.replace(/^-/, "");
    setAttribute(cell, "aria-sort", mine ? (sort.startsWith("-") ? "descending" : "ascending") : null);
  }
}

/** Makes the rows those of the items; a row keeps its element by its key. */
export function drawRows(table, columns, items, keyOf, at) {
  keep(table.tBodies[0], items, keyOf, () => newRow(columns), (row, item) => {
    columns.forEach((column, place) => drawCell(row.children[place], column, item, at));
  });
  table.hidden = items.length === 0;
}

/** Draws the header of a table of the document once, before anything is known. */
export function drawHeader(id, columns) {
  fillTable(find(id), columns, () => {});
}

/** Draws the rows, or the text `ID-none` without any. A row keeps its element by its key; `count` may be larger. */
export function drawTable(id, columns, items, { keyOf, at, count = items.length }) {
  drawRows(find(id), columns, items, keyOf, at);
  setText(find(`${id}-count`), count);
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
