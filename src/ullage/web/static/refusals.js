// Columns of a table of what each node lacks for a request.

import { make, setText } from "./dom.js";
import { orDash } from "./words.js";

const CURES = {
  capacity: "others that end",
  "node-change": "a change of the node",
  quota: "a larger quota",
  owner: "a change by its owner",
  never: "another request",
};

export const REFUSALS = [
  { label: "node", kind: "id", text: (each) => orDash(each.node) },
  { label: "reason", draw: (cell, each) => setText(cell.firstElementChild ?? cell.appendChild(make("code")), each.code) },
  { label: "in words", kind: "reason", text: (each) => each.text },
  { label: "what helps", text: (each) => CURES[each.cure] ?? each.cure },
];

export const keyOfRefusal = (each) => `${each.node} ${each.gpu} ${each.code}`;
